//! A receiver as the sender knows it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use farlink_wire::cast::Payload;
use farlink_wire::cast::control::Report;
use farlink_wire::quantity::Nanos;

use super::archive::one;
use super::turns::Round;
use crate::cast::spans::Spans;

/// How a receiver stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Products that it has.
    pub products: u64,
    /// Products that were sent to the group and that it does not have yet, those that are gone included.
    pub behind: u64,
    /// Products that it could not store.
    pub failed: u64,
    /// Bytes that were sent to it alone.
    pub repaired: u64,
    /// Bytes that wait to be.
    pub waiting: u64,
    /// Frames with NACKs that came from it.
    pub nacks: u64,
    /// What it said last.
    pub report: Report,
}

/// A receiver.
#[derive(Debug)]
pub(super) struct Peer {
    /// Which bit of a product's set it has.
    pub(super) place: u32,
    /// What waits to be sent to it alone, by product: packets.
    pub(super) wanted: BTreeMap<u32, Spans>,
    /// Products whose first packet may wait for it: what came of a product without its name may have to be dropped.
    heads: BTreeSet<u32>,
    runs: usize,
    waiting: u64,
    /// Most of them, and of those that are on their way.
    most_runs: usize,
    /// What was sent to it alone and is not acknowledged, by product: its connection brings it there.
    sent: BTreeMap<u32, Spans>,
    sent_runs: usize,
    /// Products that were held no longer before it had them.
    pub(super) owed: Spans,
    /// Those of them that it is still to be told of.
    pub(super) gone: Spans,
    /// Products that it was told are lost: it may have had them, and not said so yet.
    pub(super) lost: Spans,
    /// Products that are held, have had their first pass, and that it does not have.
    pub(super) behind: u64,
    /// When what it does not hear of was last found to be gone.
    pub(super) deaf_at: Nanos,
    /// When it said last that more packets of the group could have come.
    pub(super) heard_at: Nanos,
    /// Bytes of first passes before it took part, and those that it asked for, each once.
    before: u64,
    asked: u64,
    /// And those that it asked for of what it is owed, while it is owed anything.
    asked_late: u64,
    /// Frames with NACKs that are not dealt with yet.
    pub(super) unheard: u32,
    /// Whether its connection takes more.
    pub(super) is_writable: bool,
    /// Whether it has a turn in the round of those who wait for unicast.
    pub(super) has_turn: bool,
    pub(super) progress: Progress,
}

impl Peer {
    /// One that takes part from now on, after so many bytes of first passes.
    pub(super) fn new(place: u32, now: Nanos, before: u64) -> Self {
        Self {
            place,
            wanted: BTreeMap::new(),
            heads: BTreeSet::new(),
            runs: 0,
            waiting: 0,
            most_runs: MOST_RUNS,
            sent: BTreeMap::new(),
            sent_runs: 0,
            owed: Spans::default(),
            lost: Spans::default(),
            gone: Spans::default(),
            behind: 0,
            deaf_at: now,
            heard_at: now,
            before,
            asked: 0,
            asked_late: 0,
            unheard: 0,
            is_writable: true,
            has_turn: false,
            progress: Progress::default(),
        }
    }

    /// It is one of so many.
    pub(super) fn share(&mut self, receivers: usize) {
        self.most_runs = (ALL_RUNS / receivers.max(1)).clamp(LEAST_RUNS, MOST_RUNS);
    }

    /// It asked for so many bytes for the first time.
    pub(super) const fn ask(&mut self, bytes: u64) {
        self.asked = self.asked.saturating_add(bytes);
    }

    /// It asked for so many bytes of what it is owed for the first time.
    pub(super) const fn ask_late(&mut self, bytes: u64) {
        self.asked_late = self.asked_late.saturating_add(bytes);
    }

    /// So many bytes of first passes have been sent: what it asked for long ago counts for less and less.
    pub(super) fn look_back(&mut self, first_pass: u64) {
        let mut sent = first_pass.saturating_sub(self.before);
        while sent > LATELY {
            sent /= 2;
            self.before = first_pass - sent;
            self.asked /= 2;
            self.asked_late /= 2;
        }
    }

    /// Which round it has its turns in, after so many bytes of first passes in packets of `payload`. One that catches up asks for much; what
    /// it loses when it has done so is judged by itself.
    pub(super) fn round(&self, first_pass: u64, payload: Payload) -> Round {
        let sent = first_pass.saturating_sub(self.before);
        let asked =
            if self.owed.is_empty() { self.asked } else { self.asked.saturating_add(self.asked_late) };
        if asked <= sent / SELDOM + A_FEW * u64::from(payload.get()) { Round::Few } else { Round::Many }
    }

    /// Adds packets to what waits for it, and says how many more wait now. Where too many runs wait already these are left out: it asks
    /// again.
    pub(super) fn want(&mut self, product: u32, packets: Range<u64>) -> u64 {
        if self.is_full() || packets.is_empty() {
            return 0;
        }
        if packets.start == 0 {
            self.heads.insert(product);
        }
        let spans = self.wanted.entry(product).or_default();
        let (runs, total) = (spans.runs(), spans.total());
        spans.insert(packets);
        self.runs = self.runs + spans.runs() - runs;
        self.waiting += spans.total() - total;
        spans.total() - total
    }

    /// Whether no more can wait for it.
    pub(super) const fn is_full(&self) -> bool {
        self.runs >= self.most_runs
    }

    /// Those of some packets that do not wait for it.
    pub(super) fn not_waiting(&self, product: u32, packets: Range<u64>) -> Vec<Range<u64>> {
        match self.wanted.get(&product) {
            Some(spans) => spans.missing(packets),
            None => vec![packets],
        }
    }

    /// Takes the next packets that wait for it, at most `most`: the first packet of a product, or those of the oldest product.
    pub(super) fn next(&mut self, most: u64) -> Option<(u32, Range<u64>)> {
        let starts = |spans: &Spans| !spans.missing(0..1).contains(&(0..1));
        let head = std::iter::from_fn(|| self.heads.pop_first())
            .find(|product| self.wanted.get(product).is_some_and(starts));
        let oldest = self.wanted.keys().next().copied()?;
        let product = head.unwrap_or(oldest);
        let spans = self.wanted.get_mut(&product)?;
        let runs = spans.runs();
        let run = spans.pop(if product == oldest { most } else { 1 })?;
        self.runs = self.runs + spans.runs() - runs;
        self.waiting -= run.end - run.start;
        if spans.is_empty() {
            self.wanted.remove(&product);
        }
        Some((product, run))
    }

    /// These packets are on their way to it.
    pub(super) fn mark_sent(&mut self, product: u32, packets: Range<u64>) {
        if self.sent_runs < self.most_runs {
            let spans = self.sent.entry(product).or_default();
            let runs = spans.runs();
            spans.insert(packets);
            self.sent_runs = self.sent_runs + spans.runs() - runs;
        }
    }

    /// What bytes of a stream touch is to be sent to it once more when it asks.
    pub(super) fn mark_unsent(&mut self, product: u32, payload: Payload, (offset, length): (u64, u64)) {
        let payload = u64::from(payload.get());
        if self.sent_runs >= self.most_runs {
            // Without room to remember which, all of it is to be.
            self.sent_runs -= self.sent.remove(&product).map_or(0, |spans| spans.runs());
            return;
        }
        let Some(spans) = self.sent.get_mut(&product) else { return };
        let runs = spans.runs();
        spans.remove(offset / payload..offset.saturating_add(length).div_ceil(payload));
        self.sent_runs = self.sent_runs + spans.runs() - runs;
        if spans.is_empty() {
            self.sent.remove(&product);
        }
    }

    /// Those of some packets that are not on their way to it, as far as that is remembered.
    pub(super) fn not_sent(&self, product: u32, packets: Range<u64>) -> Vec<Range<u64>> {
        match self.sent.get(&product) {
            Some(spans) => spans.missing(packets),
            None => vec![packets],
        }
    }

    /// Nothing of a product waits for it any more; says how many packets did.
    pub(super) fn forget(&mut self, product: u32) -> u64 {
        self.sent_runs -= self.sent.remove(&product).map_or(0, |spans| spans.runs());
        let Some(spans) = self.wanted.remove(&product) else { return 0 };
        self.runs -= spans.runs();
        self.waiting -= spans.total();
        spans.total()
    }

    /// Nothing of some products waits for it any more; says how many packets did.
    pub(super) fn forget_all(&mut self, products: RangeInclusive<u32>) -> u64 {
        let mut known: BTreeSet<u32> =
            self.wanted.range(products.clone()).map(|(product, _)| *product).collect();
        known.extend(self.sent.range(products).map(|(product, _)| *product));
        known.into_iter().map(|product| self.forget(product)).sum()
    }

    /// It was to have a product, which is held no longer.
    pub(super) fn owe(&mut self, product: u32) {
        if self.owed.is_empty() {
            self.asked_late = 0;
        }
        self.owed.insert(one(product));
        self.gone.insert(one(product));
    }

    /// Packets that wait for it.
    pub(super) const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> u64 {
        size_of::<Self>() as u64
            + 32 * (self.runs + self.sent_runs + self.owed.runs() + self.gone.runs() + self.lost.runs())
                as u64
    }
}

/// Runs of packets that wait for one receiver, and that are on their way to it: 2 MiB each at most, 32 KiB at least, and 32 MiB each for
/// all receivers of a group of a thousand or fewer.
const MOST_RUNS: usize = 65_536;
const LEAST_RUNS: usize = 1024;
const ALL_RUNS: usize = 1 << 20;

/// Who asks for no more than one byte of so many loses seldom: half a percent does not matter, as VCMTP's authors have it.
const SELDOM: u64 = 200;

/// Bytes of first passes over which that is judged.
const LATELY: u64 = 1 << 30;

/// And who asked for no more packets than this: in a feed that has just begun those who lose much do not go first for long.
const A_FEW: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_little_of_what_was_sent_loses_seldom() {
        let payload = Payload::try_from(1000).unwrap();
        let mut peer = Peer::new(0, Nanos::ZERO, 5_000_000);
        peer.ask(2_000);
        assert_eq!(peer.round(5_000_000, payload), Round::Few);
        peer.ask(10_000);
        assert_eq!(peer.round(6_900_000, payload), Round::Many);
        assert_eq!(peer.round(7_000_000, payload), Round::Few);
    }

    #[test]
    fn who_catches_up_asks_for_much_until_that_is_done() {
        let payload = Payload::try_from(1000).unwrap();
        let mut peer = Peer::new(0, Nanos::ZERO, 0);
        let round = |peer: &Peer| peer.round(1_000_000, payload);
        peer.owe(7);
        peer.ask_late(7_000);
        assert_eq!(round(&peer), Round::Few);
        peer.ask_late(100_000);
        assert_eq!(round(&peer), Round::Many);
        peer.owed.remove(one(7));
        assert_eq!(round(&peer), Round::Few);
        peer.owe(8);
        peer.ask_late(1_000);
        assert_eq!(round(&peer), Round::Few, "what it was owed before is done with");
    }

    #[test]
    fn who_lost_much_long_ago_or_nothing_for_long_is_judged_by_what_it_loses_now() {
        let (mut peer, payload) = (Peer::new(0, Nanos::ZERO, 0), Payload::try_from(1000).unwrap());
        let mut sent = 0;
        let mut send = |peer: &mut Peer, gigabytes: u64, share: u64| {
            for _ in 0..gigabytes * 100 {
                sent += 10_000_000;
                peer.ask(10_000_000 / 100 * share);
                peer.look_back(sent);
            }
            peer.round(sent, payload)
        };
        assert_eq!(send(&mut peer, 100, 0), Round::Few);
        assert_eq!(send(&mut peer, 1, 10), Round::Many);
        assert_eq!(send(&mut peer, 100, 10), Round::Many);
        assert_eq!(send(&mut peer, 10, 0), Round::Few);
    }

    #[test]
    fn the_first_packet_of_a_product_goes_before_all_others() {
        let mut peer = Peer::new(0, Nanos::ZERO, 0);
        peer.want(3, 5..9);
        peer.want(8, 1..4);
        peer.want(9, 0..6);
        assert_eq!(peer.next(4), Some((9, 0..1)));
        assert_eq!(peer.next(4), Some((3, 5..9)));
        peer.want(4, 0..2);
        peer.forget(4);
        assert_eq!(peer.next(4), Some((8, 1..4)));
        assert_eq!(peer.next(9), Some((9, 1..6)));
        assert_eq!((peer.next(4), peer.runs), (None, 0));
    }

    #[test]
    fn what_waits_is_bounded_and_comes_in_order() {
        let mut peer = Peer::new(0, Nanos::ZERO, 0);
        assert_eq!(peer.want(5, 10..20), 10);
        assert_eq!(peer.want(5, 15..25), 5);
        assert_eq!(peer.want(2, 0..3), 3);
        assert_eq!(peer.not_waiting(5, 8..30), [8..10, 25..30]);
        assert_eq!(peer.next(2), Some((2, 0..2)));
        assert_eq!(peer.next(9), Some((2, 2..3)));
        assert_eq!(peer.next(9), Some((5, 10..19)));
        assert_eq!((peer.waiting(), peer.forget(5), peer.forget(5)), (6, 6, 0));
        assert_eq!((peer.next(9), peer.runs), (None, 0));
        peer.mark_sent(7, 3..6);
        assert_eq!(peer.not_sent(7, 0..9), [0..3, 6..9]);
        let payload = Payload::try_from(1000).unwrap();
        peer.mark_unsent(7, payload, (4_500, 1));
        assert_eq!((peer.not_sent(7, 0..9), peer.sent_runs), (vec![0..3, 4..5, 6..9], 2));
        peer.mark_unsent(7, payload, (0, u64::MAX));
        assert_eq!((peer.not_sent(7, 2..7).first(), peer.sent_runs, peer.sent.len()), (Some(&(2..7)), 0, 0));
        peer.mark_sent(7, 3..6);
        peer.share(5_000);
        let taken: u64 = (0..5000).map(|at| peer.want(7, 2 * at..2 * at + 1)).sum();
        assert_eq!(taken, LEAST_RUNS as u64);
        assert!(peer.memory() < 40_000 && peer.sent_runs == 1);
    }
}
