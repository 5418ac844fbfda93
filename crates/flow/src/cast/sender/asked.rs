//! What receivers ask a sender for.

use farlink_wire::cast::Shape;
use farlink_wire::cast::control::{MOST_RUNS, Want};
use farlink_wire::message::Text;
use farlink_wire::quantity::Nanos;

use super::archive::one;
use super::held::{Held, shape};
use super::{Send, Sender, frames};

/// What a receiver asked for, and when.
#[derive(Debug)]
pub(super) struct Asked {
    came: Nanos,
    receiver: u32,
    /// The last first.
    wants: Vec<Want>,
}

/// How long what receivers ask for is collected.
#[derive(Debug)]
pub(super) struct Collected {
    /// At most: in that time all of them may have spoken, within the group's pace.
    pub(super) until: Nanos,
    /// So many may lack something, and have not spoken yet.
    silent: usize,
}

impl Default for Collected {
    fn default() -> Self {
        Self { until: Nanos::MAX, silent: 0 }
    }
}

impl Asked {
    fn new(came: Nanos, receiver: u32, mut wants: Vec<Want>) -> Self {
        wants.reverse();
        Self { came, receiver, wants }
    }

    /// Takes wants with so many ranges out, of about so many bytes, or all.
    fn take(&mut self, most: usize, most_bytes: u64) -> Vec<Want> {
        let (mut part, mut room, mut bytes) = (Vec::new(), most, most_bytes);
        while room > 0
            && bytes > 0
            && let Some(mut want) = self.wants.pop()
        {
            let mut rest = want.ranges.split_off(want.ranges.len().min(room));
            let whole = want.ranges.iter().scan(0, |sum: &mut u64, (_, length)| {
                *sum = sum.saturating_add(*length);
                Some(*sum)
            });
            let whole = whole.take_while(|sum| *sum <= bytes).count();
            let mut behind = want.ranges.split_off(whole);
            bytes -= want.ranges.iter().map(|(_, length)| length).sum::<u64>();
            if let Some((at, length)) = behind.first_mut()
                && bytes > 0
            {
                want.ranges.push((*at, bytes));
                (*at, *length) = (*at + bytes, *length - bytes);
                bytes = 0;
            }
            behind.append(&mut rest);
            if !behind.is_empty() {
                self.wants.push(Want { ranges: behind, ..want });
            }
            room -= want.ranges.len().min(room);
            part.push(want);
        }
        part
    }
}

impl Sender {
    /// A receiver lacks something. It is dealt with when the others have had the time to say that they lack it too.
    pub fn on_nack(&mut self, now: Nanos, receiver: u32, mut wants: Vec<Want>) {
        let Some(peer) = self.peers.get_mut(&receiver) else { return };
        peer.progress.nacks += 1;
        self.totals.nacks += 1;
        // Content that was damaged is wanted once more, whatever was sent: also where this frame is not heeded.
        for want in wants.iter().filter(|want| want.catch_up && !want.again) {
            want.ranges.iter().for_each(|range| peer.mark_unsent(want.product, self.config.payload, *range));
        }
        // One that does not keep to its pace has no more to say than the others.
        if peer.unheard == MOST_UNHEARD {
            return;
        }
        let is_first = peer.unheard == 0;
        peer.unheard += 1;
        for want in &mut wants {
            // There is no more of it than that, whatever was asked for.
            let stream = shape(&self.archive, &self.held, want.product).map_or(0, Shape::stream);
            want.ranges
                .iter_mut()
                .for_each(|(at, length)| *length = (*length).min(stream.saturating_sub(*at)));
        }
        if self.unheard.is_empty() {
            let behind = self.behind();
            let until = if behind > 1 { now.after(LISTEN.max(frames(behind))) } else { now };
            self.collected = Collected { until, silent: behind };
        }
        self.unheard.push(Asked::new(now, receiver, wants));
        self.collected.silent = self.collected.silent.saturating_sub(usize::from(is_first));
        if self.collected.silent == 0 {
            self.collected.until = now;
        }
        // Who hears where the sender is takes all that it asked for by then as answered. Where there is always something that is not, it is
        // said all the same.
        if now.since(self.spoken_at) < self.pace() {
            self.status_at = self.status_at.max(self.collected.until);
        }
    }

    /// Receivers that may lack something.
    fn behind(&self) -> usize {
        if self.queue.is_empty() {
            self.peers.values().filter(|peer| peer.behind > 0).count()
        } else {
            self.peers.len()
        }
    }

    /// Deals with a part of what was asked for, when that has been collected for long enough: all of it may take many times as long as
    /// the sender may be late with the next packet.
    pub(super) fn listen(&mut self, now: Nanos) {
        // What comes meanwhile waits: repairs have their turn when what was collected is dealt with.
        if now >= self.collected.until && self.heeding.is_empty() {
            self.collected.until = Nanos::MAX;
            self.heeding.extend(self.unheard.drain(..));
        }
        let Some(asked) = self.heeding.front_mut() else { return };
        let (came, receiver) = (asked.came, asked.receiver);
        let part = asked.take(AT_ONCE, PACKETS_AT_ONCE * u64::from(self.config.payload.get()));
        if asked.wants.is_empty() {
            self.heeding.pop_front();
            if let Some(peer) = self.peers.get_mut(&receiver) {
                peer.unheard = peer.unheard.saturating_sub(1);
            }
        }
        self.heed(now, came, receiver, &part);
    }

    /// Tells a receiver of the products that are held no longer.
    pub(super) fn tell_gone(&mut self, receiver: u32) {
        let Some(peer) = self.peers.get_mut(&receiver) else { return };
        let gone = std::mem::take(&mut peer.gone);
        let runs: Vec<_> = gone.iter().map(|run| (run.start as u32, (run.end - run.start) as u32)).collect();
        for runs in runs.chunks(MOST_RUNS) {
            self.pending.push_back(Send::Gone { receiver, runs: runs.to_vec() });
        }
    }

    /// Takes what a receiver lacks into account.
    fn heed(&mut self, now: Nanos, came: Nanos, receiver: u32, wants: &[Want]) {
        let Some(peer) = self.peers.get_mut(&receiver) else { return };
        let payload = self.config.payload;
        let (mut lost, mut most) = (Vec::new(), 0);
        for want in wants {
            let product = want.product;
            let is_owed = peer.owed.contains(product.into());
            if !is_owed && let Some(held) = self.held.get_mut(&product) {
                if held.is_settled(peer.place) {
                    continue;
                }
                for range in &want.ranges {
                    let packets = held.touched(payload, *range);
                    if !want.again {
                        peer.ask((packets.end - packets.start) * u64::from(payload.get()));
                    }
                    let rtt = peer.progress.report.rtt;
                    for packets in peer.not_sent(product, packets) {
                        for packets in held.not_repeated(came, packets, rtt) {
                            // What waits for it already is counted already.
                            let counted = want.again && peer.is_full();
                            for packets in peer.not_waiting(product, packets) {
                                held.lacking.add(packets.clone(), counted);
                                most = most.max(held.lacking.most(packets.clone()));
                                self.waiting += peer.want(product, packets);
                            }
                        }
                    }
                }
                if !held.lacking.is_empty() {
                    self.needy.insert(product);
                }
            } else if let Some(shape) = shape(&self.archive, &self.held, product) {
                // Where it is owed none, it said since that it has the product.
                if !is_owed {
                    continue;
                }
                if want.catch_up {
                    let mut all = Held::new(shape, payload, 0);
                    all.sent = all.packets;
                    for range in &want.ranges {
                        let packets = all.touched(payload, *range);
                        if !want.again {
                            peer.ask_late((packets.end - packets.start) * u64::from(payload.get()));
                        }
                        for packets in peer.not_sent(product, packets) {
                            self.waiting += peer.want(product, packets);
                        }
                    }
                } else {
                    peer.gone.insert(one(product));
                }
            } else if product < self.next_product {
                lost.push(product);
            }
        }
        if !peer.wanted.is_empty() && !peer.has_turn {
            peer.has_turn = true;
            self.turns.push(peer.round(self.totals.first_pass, payload), receiver);
        }
        // Where none of this is lacked by as many as would have to, there still is nothing: those who lack much say so often.
        self.nothing_from = self.nothing_from.filter(|from| most < *from);
        for product in lost {
            let is_superseded = self.superseded.contains(product.into());
            self.pending.push_back(if is_superseded {
                Send::Superseded { receiver, product }
            } else {
                Send::Lost { receiver, product, reason: Text::from(NOT_READ.to_owned()) }
            });
        }
        self.tell_gone(receiver);
        self.wake_status(now);
    }
}

/// How long NACKs are collected at least: receivers that lost the same packet say so within a millisecond or two of each other (a large
/// group within its pace), or are so far apart that repairing it twice costs less than waiting.
const LISTEN: Nanos = Nanos(2_000_000);

const NOT_READ: &str = "the sender could not read it, or has forgotten it";

/// Frames of one receiver that are collected: it sends one a millisecond at most.
const MOST_UNHEARD: u32 = 4;

/// Ranges that are dealt with at a time, and packets: some tenths of a millisecond. One range may be all of a large file, of one that comes late.
const AT_ONCE: usize = 128;
const PACKETS_AT_ONCE: u64 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cast::sender::Config;

    #[test]
    fn what_was_asked_for_comes_apart_without_loss() {
        let want = |product: u32, ranges: u64| Want {
            product,
            again: product == 2,
            catch_up: false,
            ranges: (0..ranges).map(|range| (range, 1)).collect(),
        };
        let mut asked = Asked::new(Nanos(7), 3, vec![want(1, 3), want(2, 300), want(3, 0), want(4, 1)]);
        let mut parts = Vec::new();
        while !asked.wants.is_empty() {
            let part = asked.take(AT_ONCE, u64::MAX);
            assert!(!part.is_empty() && part.iter().map(|want| want.ranges.len()).sum::<usize>() <= AT_ONCE);
            parts.extend(part);
        }
        let ranges = |product: u32| {
            let of = parts.iter().filter(|want| want.product == product);
            of.inspect(|want| assert_eq!(want.again, product == 2))
                .flat_map(|want| want.ranges.clone())
                .count()
        };
        assert_eq!([1, 2, 3, 4].map(ranges), [3, 300, 0, 1]);
    }

    #[test]
    fn a_range_that_is_a_whole_file_comes_apart_too() {
        let all = |product: u32| Want {
            product,
            again: true,
            catch_up: false,
            ranges: vec![(5, 10), (20, 250), (300, 7)],
        };
        let mut asked = Asked::new(Nanos(7), 3, vec![all(1), all(2)]);
        let mut taken = Vec::new();
        while !asked.wants.is_empty() {
            let part = asked.take(AT_ONCE, 100);
            let bytes = part.iter().flat_map(|want| &want.ranges).map(|(_, length)| *length).sum::<u64>();
            assert!((1..=100).contains(&bytes), "{part:?}");
            taken.extend(part.into_iter().flat_map(|want| {
                assert!(want.again && !want.catch_up);
                want.ranges.into_iter().map(move |range| (want.product, range))
            }));
        }
        for product in [1, 2] {
            let of = taken.iter().filter(|(of, _)| *of == product).map(|(_, range)| *range);
            let bytes: Vec<_> = of.flat_map(|(at, length)| at..at + length).collect();
            assert_eq!(bytes, (5..15).chain(20..270).chain(300..307).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_too_few_lack_is_not_looked_through_for_each_that_says_so() {
        let (mut sender, mut now) = passed(3);
        sender.nothing_from = Some(2);
        sender.on_nack(now, 0, lacks(1));
        while sender.collected.until < Nanos::MAX || !sender.heeding.is_empty() {
            now = now.max(sender.collected.until);
            sender.listen(now);
        }
        assert_eq!((sender.nothing_from, sender.needy.len()), (Some(2), 1));
        sender.on_nack(now, 1, lacks(1));
        while sender.nothing_from.is_some() {
            assert!(sender.collected.until < Nanos::MAX || !sender.heeding.is_empty());
            now = now.max(sender.collected.until);
            sender.listen(now);
        }
    }

    /// A sender whose one product has passed a group of so many, and when it had.
    fn passed(receivers: u32) -> (Sender, Nanos) {
        let mut now = Nanos(1_000_000_000);
        let mut sender = Sender::new(Config::of_a_gigabit(0.02, None), now);
        (0..receivers).for_each(|receiver| sender.on_join(now, receiver, 0));
        sender.on_product(Shape::new(100, 20_000).unwrap());
        while !sender.queue.is_empty() {
            while sender.poll(now).is_some() {}
            now = now.max(sender.deadline().unwrap());
        }
        (sender, now)
    }

    fn lacks(packet: u64) -> Vec<Want> {
        vec![Want { product: 0, again: false, catch_up: false, ranges: vec![(packet * 1000, 1000)] }]
    }

    /// What is sent until `end`, each with the time.
    fn sent(sender: &mut Sender, mut now: Nanos, end: Nanos) -> Vec<(Nanos, Send)> {
        let mut sent = Vec::new();
        while now <= end {
            while let Some(send) = sender.poll(now) {
                sent.push((now, send));
            }
            now = now.max(sender.deadline().unwrap_or(Nanos::MAX)).max(Nanos(now.0 + 1));
        }
        sent
    }

    #[test]
    fn what_receivers_lack_is_collected_until_all_have_spoken_that_may_lack_something() {
        let (mut sender, now) = passed(200);
        let most = frames(200);
        assert_eq!(sender.pace(), most);
        (3..200).for_each(|receiver| sender.on_have(now, receiver, &[(0, 1)]));
        // Of three the last takes its time, and is not waited for longer than three need.
        sender.on_nack(now, 0, lacks(5));
        assert_eq!(sender.collected.until, now.after(LISTEN));
        sender.on_nack(now, 0, lacks(6));
        sender.on_nack(now, 1, lacks(5));
        assert_eq!(sender.collected.until, now.after(LISTEN));
        sender.on_nack(now, 2, lacks(5));
        assert_eq!(sender.collected.until, now);
        let repairs = sent(&mut sender, now, now.after(Nanos(1_000_000)));
        let again =
            |send: &Send| matches!(send, Send::Data { header, .. } if header.repair && header.offset == 5000);
        assert!(repairs.iter().any(|(_, send)| again(send)), "{repairs:?}");
        // One alone is answered at once.
        (1..3).for_each(|receiver| sender.on_have(now, receiver, &[(0, 1)]));
        sender.on_nack(now, 0, lacks(7));
        assert_eq!(sender.collected.until, now);
        // Of a large group, as long as all of them need.
        let (mut sender, now) = passed(200);
        sender.on_nack(now, 0, lacks(5));
        assert_eq!(sender.collected.until, now.after(most));
    }

    #[test]
    fn where_the_sender_is_it_says_when_it_has_dealt_with_what_it_heard() {
        let (mut sender, now) = passed(200);
        let pace = sender.pace();
        sender.on_nack(now, 0, lacks(5));
        let is_status = |send: &Send| matches!(send, Send::Status(_));
        let first = sent(&mut sender, now, now.after(Nanos(2 * pace.0)));
        let repair = first.iter().position(|(_, send)| matches!(send, Send::Repair { .. })).unwrap();
        assert!(first[repair].0 >= now.after(pace), "{:?}", first[repair]);
        assert!(first.iter().position(|(_, send)| is_status(send)).unwrap() > repair, "{first:?}");
        // But not never, where some ask all the time for what there is not.
        let nothing = || vec![Want { product: 9, ..lacks(0).remove(0) }];
        let mut at = now.after(Nanos(2 * pace.0));
        let mut statuses = 0;
        for frame in 0..100 {
            sender.on_nack(at, frame % 10, nothing());
            let next = at.after(Nanos(1_000_000));
            statuses += sent(&mut sender, at, next).iter().filter(|(_, send)| is_status(send)).count();
            at = next;
        }
        assert!((5..=20).contains(&statuses), "{statuses}");
    }
}
