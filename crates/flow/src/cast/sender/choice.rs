//! What a sender sends next: products first, repairs within their share.

use std::ops::Range;

use farlink_wire::cast::control::MOST_REPAIR;
use farlink_wire::quantity::Nanos;

use super::held::{bytes, shape};
use super::peer::Peer;
use super::turns::Round;
use super::{Data, FIRST_STATUS, LAST_STATUS, Lane, Parity, Send, Sender};
use crate::cast::parity::share;

impl Sender {
    /// The next to leave, where anything may leave now.
    pub(super) fn choose(&mut self, now: Nanos) -> Option<Send> {
        if std::mem::replace(&mut self.is_idle, self.queue.is_empty()) && !self.is_idle {
            self.pacer.begin(now);
        }
        if self.heeding.is_empty() {
            self.heeded = 0;
        } else {
            if self.heeded == 0 {
                self.heeding_from = now;
            }
            self.heeded = self.heeded.wrapping_add(1).max(1);
        }
        let is_long =
            now.since(self.heeding_from) >= LONG_HEEDING && self.heeded.is_multiple_of(REPAIRS_EVERY);
        if self.heeded > 0 && !is_long {
            // Who lacks what is not known yet: products do not wait for that, nor do repairs for long, however much is asked for.
            return self.pacer.is_free(Lane::Group, now).then(|| self.first_pass(now)).flatten();
        }
        // Where this host does not keep up with its rates both may always be free: neither keeps the other waiting.
        let is_turn_of_group = std::mem::take(&mut self.was_beside);
        if !is_turn_of_group && let Some(send) = self.choose_beside(now) {
            return Some(send);
        }
        let sent = if self.queue.is_empty() {
            // What is saved up is left to the next product.
            self.pacer.is_free(Lane::Spare, now).then(|| self.choose_idle(now))
        } else {
            self.pacer.is_free(Lane::Group, now).then(|| self.choose_busy(now))
        };
        if let Some(Some(send)) = sent {
            return Some(send);
        }
        if is_turn_of_group { self.choose_beside(now) } else { None }
    }

    fn choose_beside(&mut self, now: Nanos) -> Option<Send> {
        if !self.pacer.is_free(Lane::Beside, now) {
            return None;
        }
        let send = self.unicast_any(now, &[Lane::Beside], self.least_lacking(!self.queue.is_empty()));
        self.was_beside = send.is_some();
        send
    }

    fn choose_busy(&mut self, now: Nanos) -> Option<Send> {
        if let Some(send) = self.rare(now, Lane::Group) {
            return Some(send);
        }
        if self.pacer.is_free(Lane::Repair, now) {
            let lanes = [Lane::Group, Lane::Repair];
            let least = self.least_lacking(true);
            if let Some(send) = self.multicast_repair(now, &lanes, least) {
                return Some(send);
            }
            if self.pacer.free_at(Lane::Beside).is_none()
                && let Some(send) = self.unicast_any(now, &lanes, least)
            {
                return Some(send);
            }
        }
        self.first_pass(now)
    }

    fn choose_idle(&mut self, now: Nanos) -> Option<Send> {
        self.idle_at = now;
        // Unicast may go on for long, and who hears nothing of the group meanwhile would be taken for out of its reach.
        if now.since(self.spoken_at) >= LAST_STATUS
            && let Some(send) = self.status(now)
        {
            return Some(send);
        }
        if let Some(send) = self.rare(now, Lane::Spare) {
            return Some(send);
        }
        let (lanes, least) = ([Lane::Spare, Lane::Repair], self.least_lacking(false));
        if let Some(send) = self.multicast_repair(now, &lanes, least) {
            return Some(send);
        }
        // The group needs nothing: unicast may have its rate as well.
        if let Some(send) = self.unicast(now, Round::Few, &lanes, least) {
            return Some(send);
        }
        if now >= self.many_at(now)
            && let Some(send) = self.unicast(now, Round::Many, &lanes, least)
        {
            return Some(send);
        }
        let once_more =
            if now >= self.status_at && self.heeding.is_empty() { self.once_more(now) } else { None };
        once_more.or_else(|| self.status(now))
    }

    /// The last repairs of a product, where they are few: while nothing is known of them.
    fn once_more(&mut self, now: Nanos) -> Option<Send> {
        let (loss, rtt) = (self.view(false).loss, self.longest_rtt());
        while let Some((product, packets)) = self.tail.next(now, rtt, loss) {
            if self.held.contains_key(&product) {
                return self.repeat(now, &[Lane::Spare, Lane::Repair], product, packets);
            }
        }
        None
    }

    /// What a receiver lacks that seldom loses anything: it waits for nobody's masses.
    fn rare(&mut self, now: Nanos, lane: Lane) -> Option<Send> {
        if self.turns.count(Round::Few) == 0 || !self.pacer.is_free(Lane::Rare, now) {
            return None;
        }
        let least = self.least_lacking(lane == Lane::Group);
        self.unicast(now, Round::Few, &[lane, Lane::Rare], least)
    }

    /// When those who lose much may have the group's rate to catch up, at `now` at the earliest: they often share a host or a line with
    /// those who are about to have everything, and would take it from them.
    pub(super) fn many_at(&self, now: Nanos) -> Nanos {
        if now >= self.few_until {
            return now;
        }
        if self.few().any(|peer| peer.behind > 0) { self.few_until } else { now }
    }

    /// Receivers that seldom lose anything.
    fn few(&self) -> impl Iterator<Item = &Peer> {
        let (sent, payload) = (self.totals.first_pass, self.config.payload);
        self.peers.values().filter(move |peer| peer.round(sent, payload) == Round::Few)
    }

    fn unicast_any(&mut self, now: Nanos, lanes: &[Lane], least: u32) -> Option<Send> {
        let few = self.unicast(now, Round::Few, lanes, least);
        few.or_else(|| self.unicast(now, Round::Many, lanes, least))
    }

    /// The next run of the product that is being sent.
    fn first_pass(&mut self, now: Nanos) -> Option<Send> {
        let product = *self.queue.front()?;
        let (payload, block) = (self.config.payload, u64::from(self.config.block.get()));
        let run = self.pacer.run();
        let has_parity = self.config.parity > 0;
        let held = self.held.get_mut(&product)?;
        let begun = *held.begun.get_or_insert(now);
        let send = if held.parity_left > 0 {
            let first = (held.sent - 1) / block * block;
            let of = share((held.sent - first) as u16, (self.config.block.get(), self.config.parity));
            let index = of - held.parity_left;
            held.parity_left -= 1;
            self.totals.parity += u64::from(payload.get());
            self.totals.group_wire += self.pacer.charge(Lane::Group, now, 1, payload.get().into());
            let offset = first * u64::from(payload.get());
            Send::Parity(Parity { product, shape: held.shape, offset, index, of })
        } else {
            let mut end = held.packets.min(held.sent + run);
            if has_parity {
                end = end.min((held.sent / block + 1) * block);
            }
            let (offset, bytes) = bytes(held.shape, payload, &(held.sent..end));
            self.totals.first_pass += bytes;
            self.totals.group_wire += self.pacer.charge(Lane::Group, now, end - held.sent, bytes);
            held.sent = end;
            if has_parity && (end == held.packets || end % block == 0) {
                let packets = (end - (end - 1) / block * block) as u16;
                held.parity_left = share(packets, (self.config.block.get(), self.config.parity));
            }
            Send::Data { header: Data { product, shape: held.shape, offset, repair: false }, bytes }
        };
        if held.is_passed() {
            self.queue.pop_front();
            self.hold(now, product, now.since(begun));
            if self.queue.is_empty() {
                let rtt = self.few().map(|peer| peer.progress.report.rtt).max().unwrap_or_default();
                let wait = Nanos(2 * rtt.0).clamp(LEAST_FOR_FEW, MOST_FOR_FEW);
                // Of products that follow each other not each makes the others wait anew: they have half of the time.
                if now.since(self.few_until) >= wait {
                    self.few_until = now.after(wait);
                }
            }
        }
        self.status_after = FIRST_STATUS;
        (self.spoken_at, self.status_at) = (now, now.after(FIRST_STATUS));
        Some(send)
    }

    /// The first pass of a product is over.
    fn hold(&mut self, now: Nanos, product: u32, multicast: Nanos) {
        let until = now.after(self.config.hold.time(multicast, self.longest_rtt()));
        if let Some(held) = self.held.get_mut(&product) {
            held.until = Some(until);
            for peer in self.peers.values_mut().filter(|peer| !held.is_settled(peer.place)) {
                peer.behind += 1;
            }
            self.expiries.insert((until, product));
        }
    }

    fn longest_rtt(&self) -> Nanos {
        self.peers.values().map(|peer| peer.progress.report.rtt).max().unwrap_or_default()
    }

    /// Packets that at least `least` receivers lack, to the group again: of the oldest product first.
    fn multicast_repair(&mut self, now: Nanos, lanes: &[Lane], least: u32) -> Option<Send> {
        if self.nothing_from.is_some_and(|from| least >= from) {
            return None;
        }
        // A product that comes meanwhile should not wait for long.
        let run = if lanes.contains(&Lane::Spare) { (self.pacer.run() / 4).max(1) } else { self.pacer.run() };
        for product in &self.needy {
            let Some(held) = self.held.get_mut(product) else { continue };
            let found =
                held.lacking.next(held.cursor, least, run).or_else(|| held.lacking.next(0, least, run));
            let Some(packets) = found else { continue };
            let (product, all) = (*product, held.packets);
            if lanes.contains(&Lane::Spare) {
                let rtt = self.longest_rtt();
                self.tail.note(now, product, &packets, (all, rtt));
            }
            return self.repeat(now, lanes, product, packets);
        }
        self.nothing_from = Some(least);
        None
    }

    /// These packets, to the group again.
    fn repeat(&mut self, now: Nanos, lanes: &[Lane], product: u32, packets: Range<u64>) -> Option<Send> {
        let longest = self.longest_rtt();
        let held = self.held.get_mut(&product)?;
        held.repeat(now, packets.clone(), longest);
        let (offset, bytes) = bytes(held.shape, self.config.payload, &packets);
        let header = Data { product, shape: held.shape, offset, repair: true };
        if held.lacking.is_empty() {
            self.needy.remove(&product);
        }
        self.totals.multicast_repair += bytes;
        self.spoken_at = now;
        for lane in lanes {
            let wire = self.pacer.charge(*lane, now, packets.end - packets.start, bytes);
            self.totals.group_wire += if matches!(lane, Lane::Repair | Lane::Rare) { 0 } else { wire };
        }
        Some(Send::Data { header, bytes })
    }

    /// The next run for the receiver whose turn it is. What `least` receivers lack is left to the group, and goes there now where the
    /// receiver is one of those that are not to wait for it.
    fn unicast(&mut self, now: Nanos, round: Round, lanes: &[Lane], least: u32) -> Option<Send> {
        let payload = self.config.payload;
        let most = (MOST_REPAIR as u64 / u64::from(payload.get())).min(UNICAST_RUN);
        let most = match lanes {
            [Lane::Beside, ..] => most,
            // Nobody waits but for a product that comes in this quarter of a millisecond.
            [Lane::Spare, ..] => most.min(self.pacer.run()),
            _ => most.min((self.pacer.run() / 4).max(1)),
        };
        let is_rare = lanes.contains(&Lane::Rare);
        for _ in 0..self.turns.count(round) {
            let receiver = self.turns.pop(round)?;
            let Some(peer) = self.peers.get_mut(&receiver) else { continue };
            if !peer.is_writable && !peer.wanted.is_empty() {
                self.turns.push(round, receiver);
                continue;
            }
            while let Some((product, packets)) = peer.next(most) {
                self.waiting -= packets.end - packets.start;
                let is_owed = peer.owed.contains(product.into());
                let (shape, packets) = if !is_owed && let Some(held) = self.held.get_mut(&product) {
                    // Sent to the group since, or better sent to it.
                    let count = |packet| held.lacking.count(packet);
                    if is_rare && let Some(start) = packets.clone().find(|packet| count(*packet) >= least) {
                        let end =
                            (start..packets.end).find(|packet| count(*packet) < least).unwrap_or(packets.end);
                        self.waiting += peer.want(product, packets.start..start);
                        self.waiting += peer.want(product, end..packets.end);
                        peer.has_turn = !peer.wanted.is_empty();
                        if peer.has_turn {
                            self.turns.push(peer.round(self.totals.first_pass, payload), receiver);
                        }
                        return self.repeat(now, lanes, product, start..end);
                    }
                    let elsewhere = |packet: &u64| count(*packet) == 0 || count(*packet) >= least;
                    let Some(start) = packets.clone().find(|packet| !elsewhere(packet)) else { continue };
                    let end = (start..packets.end).find(elsewhere).unwrap_or(packets.end);
                    self.waiting += peer.want(product, end..packets.end);
                    (start..end).for_each(|packet| held.lacking.one_less(packet));
                    if held.lacking.is_empty() {
                        self.needy.remove(&product);
                    }
                    (held.shape, start..end)
                } else if let Some(shape) = shape(&self.archive, &self.held, product) {
                    (shape, packets)
                } else {
                    continue;
                };
                peer.has_turn = !peer.wanted.is_empty();
                if peer.has_turn {
                    self.turns.push(peer.round(self.totals.first_pass, payload), receiver);
                }
                let (offset, bytes) = bytes(shape, payload, &packets);
                peer.mark_sent(product, packets.clone());
                peer.progress.repaired += bytes;
                self.totals.unicast_repair += bytes;
                for lane in lanes {
                    self.pacer.charge(*lane, now, packets.end - packets.start, bytes);
                }
                return Some(Send::Repair { receiver, product, shape, offset, bytes });
            }
            peer.has_turn = false;
        }
        None
    }

    fn status(&mut self, now: Nanos) -> Option<Send> {
        // Who hears it takes what it asked for as answered.
        let is_early = !self.heeding.is_empty() && now.since(self.spoken_at) < LAST_STATUS;
        if now < self.status_at || is_early {
            return None;
        }
        (self.spoken_at, self.status_at) = (now, now.after(self.status_after));
        self.status_after = Nanos(2 * self.status_after.0).min(LAST_STATUS);
        self.totals.group_wire += self.pacer.charge(Lane::Spare, now, 1, 0);
        Some(Send::Status(self.position()))
    }

    fn least_lacking(&self, busy: bool) -> u32 {
        if self.needy.is_empty() { u32::MAX } else { self.policy.least_lacking(&self.view(busy)) }
    }
}

/// Most packets of one run for one receiver, so that the others have their turns.
const UNICAST_RUN: u64 = 16;

/// How long after the last packet of a first pass those who seldom lose anything have at least to say that they have it, or what they
/// lack: they collect what they say for some milliseconds, and store what came.
const LEAST_FOR_FEW: Nanos = Nanos(15_000_000);

/// And the most, whatever round trip one of them claims.
const MOST_FOR_FEW: Nanos = Nanos(1_000_000_000);

/// Where what was asked for is dealt with, part by part, for so long, one turn of so many may repair.
const LONG_HEEDING: Nanos = Nanos(10_000_000);
const REPAIRS_EVERY: u32 = 16;

#[cfg(test)]
mod tests {
    use farlink_wire::cast::Shape;
    use farlink_wire::cast::control::{Report, Want};
    use farlink_wire::quantity::BitsPerSec;

    use super::*;

    use crate::cast::repair_policy::{RepairPolicy, View};
    use crate::cast::sender::Config;

    #[derive(Debug)]
    struct NothingToTheGroup;

    impl RepairPolicy for NothingToTheGroup {
        fn least_lacking(&self, _view: &View) -> u32 {
            u32::MAX
        }
    }

    /// With so much beside the group's rate.
    fn sender(beside: Option<BitsPerSec>, now: Nanos) -> Sender {
        Sender::with_policy(Config::of_a_gigabit(0.001, beside), Box::new(NothingToTheGroup), now)
    }

    /// A sender that has just sent a product to three receivers, of whom the first lost half of it, and when it had.
    fn passed(rtt: Nanos) -> (Sender, Nanos) {
        let mut now = Nanos(1_000_000_000);
        let mut sender = sender(None, now);
        for receiver in 0..3 {
            sender.on_join(now, receiver, 0);
            sender.on_report(now, receiver, Report { rtt, ..Report::default() });
        }
        sender.on_product(Shape::new(100, 400_000).unwrap());
        while !sender.queue.is_empty() {
            while sender.poll(now).is_some() {}
            now = now.max(sender.deadline().unwrap());
        }
        let want = Want { product: 0, again: false, catch_up: false, ranges: vec![(0, 200_000)] };
        sender.on_nack(now, 0, vec![want]);
        (sender, now)
    }

    /// When the first repair leaves, where the caller comes when it is told to.
    fn repaired(sender: &mut Sender, mut now: Nanos) -> Nanos {
        for _ in 0..1000 {
            while let Some(send) = sender.poll(now) {
                if matches!(send, Send::Repair { receiver: 0, .. }) {
                    return now;
                }
            }
            now = now.max(sender.deadline().unwrap());
        }
        panic!("nothing at {now}");
    }

    #[test]
    fn who_lost_much_catches_up_as_soon_as_all_others_have_everything() {
        let (mut sender, now) = passed(Nanos(1_000_000));
        let all = now.after(Nanos(4_000_000));
        while sender.deadline().is_some_and(|deadline| deadline < all) {
            let at = now.max(sender.deadline().unwrap());
            while let Some(send) = sender.poll(at) {
                assert!(!matches!(send, Send::Repair { .. }), "{at}: {send:?}");
            }
        }
        (1..3).for_each(|receiver| sender.on_have(all, receiver, &[(0, 1)]));
        assert_eq!(repaired(&mut sender, all), all);
    }

    #[test]
    fn products_that_follow_each_other_leave_half_of_the_time_to_those_who_lost_much() {
        let (mut sender, mut now) = passed(Nanos(50_000_000));
        let (until, wait) = (sender.few_until, Nanos(100_000_000));
        // The next is passed in their time, and one more behind it.
        for (at, expected) in [
            (until.after(Nanos(wait.0 / 2)), until),
            (until.after(Nanos(2 * wait.0)), until.after(Nanos(3 * wait.0))),
        ] {
            now = now.max(at);
            sender.on_product(Shape::new(100, 1000).unwrap());
            while !sender.queue.is_empty() {
                while sender.poll(now).is_some() {}
                if !sender.queue.is_empty() {
                    now = now.max(sender.deadline().unwrap());
                }
            }
            let late = sender.few_until.since(expected);
            assert!(sender.few_until >= expected && late < Nanos(5_000_000), "{late}");
            assert_eq!(sender.many_at(now) == now, expected == until);
        }
    }

    #[test]
    fn and_after_two_round_trips_at_the_latest() {
        for (rtt, most) in [(Nanos(1_000_000), LEAST_FOR_FEW), (Nanos(50_000_000), Nanos(100_000_000))] {
            let (mut sender, now) = passed(rtt);
            sender.on_have(now, 1, &[(0, 1)]);
            let until = sender.few_until;
            assert!(until <= now.after(most) && until.after(Nanos(4_000_000)) > now.after(most));
            assert_eq!(repaired(&mut sender, now), until);
        }
    }
    #[test]
    fn a_host_that_does_not_keep_up_sends_to_single_receivers_at_their_rate_and_to_the_group() {
        // Half a millisecond for each decision, where a run to the group may leave each quarter.
        let step = Nanos(500_000);
        for (beside, least, most) in [(10_000_000, 500_000, 640_000), (100_000_000_000, 7_000_000, 8_100_000)]
        {
            let mut now = Nanos(1_000_000_000);
            let mut sender = sender(BitsPerSec::new(beside), now);
            (0..2).for_each(|receiver| sender.on_join(now, receiver, 0));
            for content in [20_000_000, 60_000_000] {
                sender.on_product(Shape::new(100, content).unwrap());
            }
            while sender.position().product == 0 {
                sender.poll(now);
                now = now.after(step);
            }
            let ranges = vec![(0, 20_000_000)];
            sender.on_nack(now, 0, vec![Want { product: 0, again: false, catch_up: false, ranges }]);
            let before = sender.totals();
            for _ in 0..1000 {
                sender.poll(now);
                now = now.after(step);
            }
            let after = sender.totals();
            let unicast = after.unicast_repair - before.unicast_repair;
            assert!((least..most).contains(&unicast), "{beside}: {unicast}");
            let group = after.first_pass - before.first_pass;
            assert!(group > 13_000_000, "{beside}: {group}");
        }
    }
    #[test]
    fn who_joins_late_has_the_repairs_share_while_products_wait_and_then_all() {
        let mut now = Nanos(1_000_000_000);
        let mut sender = sender(None, now);
        let pass = |sender: &mut Sender, mut now: Nanos| {
            while !sender.queue.is_empty() {
                while sender.poll(now).is_some() {}
                now = now.max(sender.deadline().unwrap());
            }
            now
        };
        sender.on_join(now, 0, 0);
        sender.on_product(Shape::new(100, 20_000_000).unwrap());
        now = pass(&mut sender, now);
        sender.on_have(now, 0, &[(0, 1)]);
        sender.on_join(now, 1, 0);
        sender.on_product(Shape::new(100, 100_000_000).unwrap());
        let want = Want { product: 0, again: false, catch_up: true, ranges: vec![(0, 30_000_000)] };
        sender.on_nack(now, 1, vec![want]);
        now = pass(&mut sender, now);
        // A thousandth of 0.9 s, and not the half percent of those who seldom lose anything.
        let busy = sender.totals().unicast_repair;
        assert!((1..200_000).contains(&busy), "{busy}");
        let idle = now;
        while sender.totals().unicast_repair < 20_000_000 {
            while sender.poll(now).is_some() {}
            now = now.max(sender.deadline().unwrap());
        }
        assert!(now.since(idle) < Nanos(250_000_000), "{now}");
    }
}
