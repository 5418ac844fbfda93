//! Receivers as they come, speak, and go.

use std::net::{IpAddr, SocketAddr};

use farlink_flow::cast::receiver::LIKELY_RTT;
use farlink_host::clock::monotonic;
use farlink_mover::facts;
use farlink_wire::cast::control::{Control, Join, Leave, Report, Welcome, Words};
use farlink_wire::message::VERSION;
use farlink_wire::quantity::Nanos;

use super::Session;
use crate::door::Heard;
use crate::error::CastError;
use crate::record::{MOST_RTT, least_rtt};
use crate::send::{Notice, Peer, Progress};

impl Session<'_> {
    /// The door tells something of a receiver.
    pub(super) fn hear(&mut self, receiver: u32, heard: Heard, tell: &mut dyn FnMut(Notice<'_>)) {
        if let Heard::Full(receivers) = heard {
            if !std::mem::replace(&mut self.is_full_told, true) {
                tell(Notice::Full { receivers });
            }
            return;
        }
        let now = monotonic();
        // What it said before it was given up, or came back under another number, may come after that.
        let is_new = matches!(heard, Heard::Join(..) | Heard::Refused(..));
        if !is_new && !self.progress.peers.get(&receiver).is_some_and(|peer| peer.is_there) {
            return;
        }
        if !matches!(heard, Heard::Refused(..)) {
            self.heard_at.insert(receiver, now);
        }
        // That its connection has ended says nothing of whether it lives, nor what it said before it was killed and comes late.
        if !matches!(heard, Heard::Left(_))
            && self.succeeded.get(&receiver).is_some_and(|since| now.since(*since) > SILENT)
        {
            self.succeeded.remove(&receiver);
        }
        match heard {
            Heard::Join(join, at) => self.admit(now, receiver, *join, at, tell),
            Heard::Nack(wants) => {
                if let Some(peer) = self.progress.peers.get(&receiver) {
                    self.tempo.on_nack(receiver, peer.joined, &wants, |product| self.machine.stream(product));
                }
                self.machine.on_nack(now, receiver, wants);
            }
            Heard::Have(runs) => self.machine.on_have(now, receiver, &runs),
            Heard::Report(report) => {
                let rtt = if report.rtt == Nanos::ZERO { LIKELY_RTT } else { report.rtt.min(MOST_RTT) };
                // What one says does not become everybody's wait, nor its loss more than all.
                let reckoned = Report { rtt, lost: report.lost.min(report.packets), ..report };
                self.machine.on_report(now, receiver, reckoned);
                self.tempo.on_report(now, receiver, &reckoned);
                if let Some(peer) = self.progress.peers.get_mut(&receiver) {
                    peer.report = report;
                    peer.rtt = least_rtt(peer.rtt, report.rtt);
                }
            }
            Heard::Failed(product, reason) => {
                // Without a reason it was said long ago.
                if !self.machine.on_failed(now, receiver, product) || reason.is_empty() {
                    return;
                }
                let known = Some(self.products.path(product)).filter(|path| !path.is_empty());
                let path = known.map_or_else(|| format!("product {product}"), str::to_owned);
                if let Some(peer) = self.progress.peers.get(&receiver) {
                    tell(Notice::NotStored { peer, path, reason });
                }
            }
            Heard::Writable => self.machine.on_writable(receiver, true),
            Heard::Left(leave) => self.part(now, receiver, leave, tell),
            Heard::Refused(from, reason) => {
                if self.refusals.is_news(now, from.ip(), &reason) {
                    tell(Notice::Refused { from, reason });
                }
            }
            Heard::Full(_) => {}
        }
    }

    /// Whether as many are there as it waits for, or were, or those that are must do; says how many more it waits for, where that is news.
    ///
    /// # Errors
    /// [`CastError::Nobody`]: it waits no longer.
    pub(super) fn may_begin(
        &mut self,
        now: Nanos,
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> Result<bool, CastError> {
        if self.has_begun {
            return Ok(true);
        }
        let there = self.progress.peers.values().filter(|peer| peer.is_there).count();
        // None is counted twice.
        let there = u32::try_from(there - self.succeeded.len()).unwrap_or(u32::MAX);
        let receivers = self.plan.receivers.saturating_sub(there);
        let wait =
            self.plan.wait.filter(|_| receivers > 0 && self.wait_until.is_some_and(|until| now >= until));
        if let Some(after) = wait {
            if there == 0 {
                return Err(CastError::Nobody { group: self.plan.group, after });
            }
            tell(Notice::Without { receivers, after });
            return Ok(true);
        }
        if std::mem::replace(&mut self.awaited_told, receivers) != receivers && receivers > 0 {
            tell(Notice::Waiting { receivers });
        }
        if receivers == 0 {
            // Who was lost before had nothing that it could lack, and others have taken its place.
            self.progress.peers.retain(|_, peer| peer.is_there);
            self.lost.clear();
        }
        Ok(receivers == 0)
    }

    fn admit(
        &mut self,
        now: Nanos,
        receiver: u32,
        join: Join,
        at: SocketAddr,
        tell: &mut dyn FnMut(Notice<'_>),
    ) {
        let is_silent = |number| self.heard_at.get(number).is_none_or(|heard| now.since(*heard) > SILENT);
        let before = self.progress.peers.iter().filter(|(number, peer)| {
            let may_be_there = peer.is_there && !is_silent(*number);
            is_again(peer, may_be_there, &join, at.ip())
        });
        for before in before.map(|(before, _)| *before).collect::<Vec<_>>() {
            self.forget(now, before);
        }
        // One that was heard just now may have been killed since, or another may have the same directory by mistake: that one speaks again.
        let are_there = self.progress.peers.iter().filter(|(_, peer)| peer.is_there);
        let same = are_there.filter(|(_, peer)| is_again(peer, false, &join, at.ip()));
        self.succeeded.extend(same.map(|(number, _)| (*number, now)));
        let position = self.machine.position();
        let next = self.delayed().map_or(position.product, |delayed| delayed.min(position.product));
        let wanted = self.starts.wanted(&join, self.id, now, next);
        let first = self.machine.first().max(wanted);
        self.machine.on_join(now, receiver, first);
        let number = self.sealer.next();
        self.tempo.on_join(receiver, number);
        let welcome = Welcome {
            version: VERSION,
            host: facts::host(),
            session: self.id,
            key: self.key,
            protect: self.plan.protect,
            payload: self.payload,
            block: self.redundancy.block(),
            number,
            wanted,
            first,
            position,
            pace: self.machine.pace(),
        };
        self.outbox.say(receiver, &Control::Words(Words::Welcome(Box::new(welcome))));
        if self.progress.is_all {
            let products = self.products.count();
            self.outbox.say(receiver, &Control::Words(Words::End { products }));
        }
        self.keep_pace();
        let peer = Peer::new(join, at, wanted, position);
        tell(Notice::Joined(&peer));
        self.progress.peers.insert(receiver, peer);
    }

    /// A receiver is there under another number now. Its connection may have been lost for that receiver alone so far.
    fn forget(&mut self, now: Nanos, receiver: u32) {
        self.outbox.close(receiver);
        self.drop_out(now, receiver);
        self.lost.retain(|(lost, _)| *lost != receiver);
        self.progress.peers.remove(&receiver);
    }

    /// Tells those who are there that there are so many now that each must say less, or so few that each may say more.
    fn keep_pace(&mut self) {
        let (pace, told) = (self.machine.pace(), self.pace);
        let is_near = |one: Nanos, other: Nanos| one.0 < other.0.saturating_add(other.0 / 2);
        if is_near(pace, told) && is_near(told, pace) {
            return;
        }
        let is_first = std::mem::replace(&mut self.pace, pace) == Nanos::ZERO;
        for (receiver, _) in self.progress.peers.iter().filter(|(_, peer)| peer.is_there && !is_first) {
            self.outbox.say(*receiver, &Control::Words(Words::Pace(pace)));
        }
    }

    /// Nothing more is expected of a receiver.
    fn drop_out(&mut self, now: Nanos, receiver: u32) {
        self.machine.on_leave(now, receiver);
        self.tempo.on_leave(receiver);
        self.heard_at.remove(&receiver);
        self.succeeded.remove(&receiver);
        self.keep_pace();
    }

    /// A receiver is there no longer.
    fn part(&mut self, now: Nanos, receiver: u32, leave: Option<Leave>, tell: &mut dyn FnMut(Notice<'_>)) {
        if self.succeeded.contains_key(&receiver) && leave.is_none() {
            self.forget(now, receiver);
            return;
        }
        self.look_at(receiver);
        self.drop_out(now, receiver);
        // One that was given up is heard of again when its connection has ended.
        let Some(peer) = self.progress.peers.get_mut(&receiver).filter(|peer| peer.is_there) else { return };
        let (count, is_all) = (self.products.count(), self.progress.is_all);
        // Of what appears receivers take what comes while they are there.
        let comes_and_goes = self.plan.watch.is_some() && leave.is_some();
        let all = match is_all {
            true => Some(count),
            false => comes_and_goes.then(|| count.saturating_sub(self.machine.unsent() as u32)),
        };
        peer.leaves(leave, all);
        if leave.is_none() {
            // One that had everything may not have heard that this is all, and comes back to ask.
            let patience =
                if peer.is_short { self.plan.patience } else { self.plan.patience.min(ASKS_WITHIN) };
            self.lost.push((receiver, now.after(patience)));
        }
        tell(Notice::Left(peer));
        if leave.is_some() && !self.has_begun {
            // There was nothing that it could lack, and another takes its place.
            self.progress.peers.remove(&receiver);
        }
        self.progress.count_long_gone();
    }

    /// Has those leave who said nothing for too long: their hosts are gone, though no connection has ended.
    pub(super) fn dismiss_silent(&mut self, now: Nanos, tell: &mut dyn FnMut(Notice<'_>)) {
        let patience = self.plan.patience;
        let silent: Vec<_> = self
            .heard_at
            .iter()
            .filter(|(receiver, at)| {
                now.since(**at) > patience
                    && self.progress.peers.get(receiver).is_some_and(|peer| peer.is_there)
            })
            .map(|(receiver, _)| *receiver)
            .collect();
        for receiver in silent {
            self.outbox.close(receiver);
            self.part(now, receiver, None, tell);
        }
    }

    /// How a receiver stands, as the machine knows it.
    pub(super) fn look_at(&mut self, receiver: u32) {
        let (Some(peer), Some(progress)) =
            (self.progress.peers.get_mut(&receiver), self.machine.progress(receiver))
        else {
            return;
        };
        peer.products = progress.products;
        peer.failed = progress.failed;
        peer.repaired = progress.repaired;
        peer.behind = progress.behind;
    }
}

impl Peer {
    /// It is gone, with an account where it left of its own accord, and there are so many products; absent while nobody could have all.
    fn leaves(&mut self, leave: Option<Leave>, all: Option<u32>) {
        let leave_says = leave.map_or(0, |leave| u64::from(leave.products) + u64::from(leave.failed));
        // What it said before it was lost counts, too: it said so when it had stored it. What was forgotten before it joined counts as failed.
        let has = leave_says.max(self.products.saturating_add(self.failed));
        self.is_there = false;
        self.leave = leave;
        self.failed = self.failed.max(leave.map_or(0, |leave| leave.failed.into()));
        self.is_short = all.is_none_or(|all| has < all.saturating_sub(self.wanted).into());
    }
}

impl Progress {
    /// Of receivers that have left only so many are known by name: those of a feed come and go for months.
    fn count_long_gone(&mut self) {
        while self.peers.values().filter(|peer| !peer.is_there).count() > MOST_GONE {
            let oldest = self.peers.iter().find(|(_, peer)| !peer.is_there).map(|(receiver, _)| *receiver);
            let Some(gone) = oldest.and_then(|receiver| self.peers.remove(&receiver)) else { return };
            self.gone.receivers += 1;
            self.gone.whole += u64::from(gone.is_whole());
        }
    }
}

/// Whether who wants to join from `address` is `peer`: it was cut off, or it has ended and was started again for the same directory. As
/// long as it `may_be_there`, another one has that directory by mistake.
fn is_again(peer: &Peer, may_be_there: bool, join: &Join, address: IpAddr) -> bool {
    let is_same_place = join.place.is_some()
        && (peer.place, &peer.host.name, peer.at.ip()) == (join.place, &join.host.name, address);
    peer.number == join.receiver || (!may_be_there && is_same_place)
}

/// A receiver whose host has failed is silent for so long before it is started again: others say how they fare twenty times a second, or
/// more seldom in groups of tens of thousands.
const SILENT: Nanos = Nanos(2_000_000_000);

/// How soon one that was lost comes back, where nothing keeps it from that.
const ASKS_WITHIN: Nanos = Nanos(5_000_000_000);

/// Receivers that are known though they have left: they are in the record, and some of them come back.
const MOST_GONE: usize = 4096;

#[cfg(test)]
mod tests {
    use farlink_wire::cast::Position;
    use farlink_wire::message::{Host, Text};

    use super::*;

    const AT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn join(receiver: u64, place: Option<u64>) -> Join {
        let (name, other) = (Text::from("b".to_owned()), Text::default());
        let host = Host { name, kernel: other.clone(), cores: 2, clock: other };
        Join { place, ..Join::new(host, receiver) }
    }

    fn peer(join: Join) -> Peer {
        Peer::new(join, SocketAddr::new(AT, 40_000), 0, Position { product: 0, offset: 0 })
    }

    const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

    #[test]
    fn a_receiver_that_comes_back_is_itself_also_where_its_connection_seems_to_be_there() {
        for place in [None, Some(7)] {
            for may_be_there in [false, true] {
                assert!(is_again(&peer(join(1, place)), may_be_there, &join(1, place), AT));
            }
        }
        // From another address too: it has two interfaces, or a translator between.
        assert!(is_again(&peer(join(1, None)), false, &join(1, None), ELSEWHERE));
    }

    #[test]
    fn one_that_is_started_again_is_known_by_its_directory() {
        let lost = peer(join(1, Some(7)));
        assert!(is_again(&lost, false, &join(2, Some(7)), AT));
        assert!(!is_again(&lost, false, &join(2, Some(8)), AT), "another directory of the same host");
        assert!(!is_again(&peer(join(1, None)), false, &join(2, None), AT), "nothing was kept");
        assert!(!is_again(&lost, true, &join(2, Some(7)), AT), "the first is still there");
        assert!(!is_again(&lost, false, &join(2, Some(7)), ELSEWHERE), "the same path on another host");
    }

    #[test]
    fn one_that_is_lost_when_it_had_everything_is_not_short() {
        let leaves = |(products, failed), leave: Option<(u32, u32)>, wanted| {
            let mut peer = Peer { products, failed, ..peer(join(1, None)) };
            let leave = leave.map(|(products, failed)| Leave { products, failed, ..Leave::default() });
            peer.leaves(leave, wanted);
            (peer.is_short, peer.is_whole())
        };
        let (short, whole, failed) = ((true, false), (false, true), (false, false));
        assert_eq!(leaves((5, 0), None, Some(5)), whole);
        assert_eq!(leaves((4, 0), None, Some(5)), short);
        assert_eq!(leaves((4, 1), None, Some(5)), failed);
        // Its account may have come before what it had said itself, or after.
        assert_eq!(leaves((4, 0), Some((5, 0)), Some(5)), whole);
        assert_eq!(leaves((5, 0), Some((4, 0)), Some(5)), whole);
        assert_eq!(leaves((4, 0), Some((4, 1)), Some(5)), failed);
        assert_eq!(leaves((5, 0), Some((5, 0)), None), short, "there is more to come");
        // What was sent before those that it wants it needs not have.
        for (products, is_short) in [(3, false), (2, true)] {
            let mut late = Peer { wanted: 2, products, ..peer(join(1, None)) };
            late.leaves(None, Some(5));
            assert_eq!(late.is_short, is_short);
        }
    }

    #[test]
    fn receivers_that_come_and_go_for_months_are_counted_and_not_kept() {
        let mut progress = Progress::default();
        for number in 0..MOST_GONE as u32 + 20 {
            let is_there = number == 3;
            let peer = Peer { is_there, is_short: number % 2 == 0, ..peer(join(number.into(), None)) };
            progress.peers.insert(number, peer);
            progress.count_long_gone();
        }
        assert_eq!(progress.peers.len(), MOST_GONE + 1);
        assert!(progress.peers.contains_key(&3), "it is there");
        // Nineteen of them, of whom those with odd numbers had everything: 1, and 5 to 19.
        assert_eq!((progress.gone.receivers, progress.gone.whole), (19, 9));
    }
}
