//! A product that the sender holds: how far its first pass is, who has it, and what is lacking.

use std::collections::BTreeMap;
use std::ops::Range;

use farlink_wire::cast::{MOST_STREAM, Payload, Shape};
use farlink_wire::quantity::Nanos;

use super::archive::Archive;
use super::lacking::Lacking;

/// How long a product is held after its first pass for those who lack something of it. Past that they are told that it is gone, and
/// catch up by unicast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hold {
    /// At least so long: a multiple of the time that a product of 40 kB takes is nothing.
    pub floor: Nanos,
    /// And so many times as long as the first pass took.
    pub of_multicast: f64,
    /// And so many of the longest round trip to a receiver.
    pub of_rtt: f64,
}

impl Default for Hold {
    /// Half a minute; ten times the first pass; twenty round trips, which are five rounds of repair.
    fn default() -> Self {
        Self { floor: Nanos(30_000_000_000), of_multicast: 10.0, of_rtt: 20.0 }
    }
}

impl Hold {
    /// How long, where the first pass took `multicast` and the longest round trip is `rtt`.
    #[must_use]
    pub fn time(&self, multicast: Nanos, rtt: Nanos) -> Nanos {
        let scaled = |time: Nanos, by: f64| Nanos::from_secs_f64(time.as_secs_f64() * by);
        self.floor.max(scaled(multicast, self.of_multicast)).max(scaled(rtt, self.of_rtt))
    }
}

/// A product that is sent, or was sent and is not with everybody yet.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) shape: Shape,
    /// Packets of its stream.
    pub(super) packets: u64,
    /// Those of the first pass that were sent.
    pub(super) sent: u64,
    /// Packets of parity that the block before `sent` still has to get.
    pub(super) parity_left: u16,
    pub(super) begun: Option<Nanos>,
    /// Until when it is held: from the end of the first pass on.
    pub(super) until: Option<Nanos>,
    pub(super) lacking: Lacking,
    /// Where the next repair to the group is looked for.
    pub(super) cursor: u64,
    /// What was sent to the group again lately: first packet, the one behind the last, and when.
    recent: BTreeMap<u64, (u64, Nanos)>,
    /// So many may be there before those are looked for that are old.
    most_recent: usize,
    /// Receivers that have it, or want it no longer, by their places.
    settled: Vec<u64>,
    /// Receivers that take part and have not.
    pub(super) waiting: u32,
}

impl Held {
    pub(super) fn new(shape: Shape, payload: Payload, receivers: u32) -> Self {
        Self {
            shape,
            packets: shape.packets(payload),
            sent: 0,
            parity_left: 0,
            begun: None,
            until: None,
            lacking: Lacking::default(),
            cursor: 0,
            recent: BTreeMap::new(),
            most_recent: MOST_RECENT,
            settled: Vec::new(),
            waiting: receivers,
        }
    }

    /// Whether its first pass is over.
    pub(super) const fn is_passed(&self) -> bool {
        self.sent == self.packets && self.parity_left == 0
    }

    /// The packets that a range of bytes touches, as far as they were sent.
    pub(super) fn touched(&self, payload: Payload, (offset, length): (u64, u64)) -> Range<u64> {
        let payload = u64::from(payload.get());
        let end = (offset + length).min(MOST_STREAM).div_ceil(payload).min(self.sent);
        (offset / payload).min(end)..end
    }

    /// These packets leave for the group again; the farthest receiver is `rtt` away.
    pub(super) fn repeat(&mut self, now: Nanos, packets: Range<u64>, rtt: Nanos) {
        packets.clone().for_each(|packet| self.lacking.none(packet));
        self.cursor = packets.end;
        self.recent.insert(packets.start, (packets.end, now));
        if self.recent.len() > self.most_recent {
            self.recent.retain(|_, (_, at)| now.since(*at) <= rtt);
            // Those that stay are not looked at for each that comes.
            self.most_recent = MOST_RECENT.max(2 * self.recent.len());
        }
    }

    /// Those of some packets that are not on their way to the group, as far as a receiver that is `rtt` away can have known. A few runs.
    pub(super) fn not_repeated(&self, now: Nanos, packets: Range<u64>, rtt: Nanos) -> Vec<Range<u64>> {
        let (mut runs, mut from) = (Vec::new(), packets.start);
        let before = self.recent.range(..packets.start).next_back();
        for (start, (end, at)) in before.into_iter().chain(self.recent.range(packets.clone())) {
            if *end > from && now.since(*at) <= rtt {
                runs.push(from..(*start).max(from));
                from = *end;
            }
        }
        runs.push(from..packets.end.max(from));
        runs.retain(|run| !run.is_empty());
        runs
    }

    pub(super) fn is_settled(&self, place: u32) -> bool {
        self.settled.get(place as usize / 64).is_some_and(|word| word & (1 << (place % 64)) != 0)
    }

    /// A receiver has it; false where that was known.
    pub(super) fn settle(&mut self, place: u32) -> bool {
        if self.is_settled(place) {
            return false;
        }
        let word = place as usize / 64;
        if self.settled.len() <= word {
            self.settled.resize(word + 1, 0);
        }
        self.settled[word] |= 1 << (place % 64);
        self.waiting -= 1;
        true
    }

    /// A receiver takes part from now on, in a place that another may have had.
    pub(super) fn admit(&mut self, place: u32) {
        if let Some(word) = self.settled.get_mut(place as usize / 64) {
            *word &= !(1 << (place % 64));
        }
        self.waiting += 1;
    }

    /// Bytes that it takes beside itself.
    pub(super) fn memory(&self) -> u64 {
        self.lacking.memory() + 8 * self.settled.len() as u64 + 48 * self.recent.len() as u64
    }
}

/// Runs that were sent again after which those that are too old to matter are forgotten: 48 KiB a product.
const MOST_RECENT: usize = 1024;

/// The bytes of a stream that a run of packets has.
pub(super) fn bytes(shape: Shape, payload: Payload, packets: &Range<u64>) -> (u64, u64) {
    let payload = u64::from(payload.get());
    let offset = packets.start * payload;
    (offset, (packets.end * payload).min(shape.stream()) - offset)
}

/// The stream of a product that can still be had.
pub(super) fn shape(archive: &Archive, held: &BTreeMap<u32, Held>, product: u32) -> Option<Shape> {
    archive.get(product).or_else(|| held.get(&product).map(|held| held.shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_held_for_the_longest_of_three_times() {
        let hold = Hold { floor: Nanos(1_000), of_multicast: 2.0, of_rtt: 3.0 };
        assert_eq!(hold.time(Nanos(10), Nanos(10)), Nanos(1_000));
        assert_eq!(hold.time(Nanos(600), Nanos(10)), Nanos(1_200));
        assert_eq!(hold.time(Nanos(600), Nanos(500)), Nanos(1_500));
    }

    #[test]
    fn a_place_that_is_taken_again_has_nothing() {
        let payload = Payload::try_from(1000).unwrap();
        let mut held = Held::new(Shape::new(20, 10_000).unwrap(), payload, 2);
        assert!(held.settle(70) && !held.settle(70) && held.waiting == 1);
        held.admit(70);
        assert!(!held.is_settled(70) && held.waiting == 2);
    }

    #[test]
    fn what_is_on_its_way_to_the_group_is_not_sent_again() {
        let payload = Payload::try_from(1000).unwrap();
        let mut held = Held::new(Shape::new(20, 100_000).unwrap(), payload, 1);
        held.repeat(Nanos(100), 10..20, Nanos(50));
        held.repeat(Nanos(140), 25..26, Nanos(50));
        assert_eq!(held.not_repeated(Nanos(150), 5..30, Nanos(50)), [5..10, 20..25, 26..30]);
        assert_eq!(held.not_repeated(Nanos(150), 12..18, Nanos(50)), []);
        assert_eq!(held.not_repeated(Nanos(150), 15..22, Nanos(50)).first(), Some(&(20..22)));
        // A receiver that is near knows already that it lost what was sent first.
        assert_eq!(held.not_repeated(Nanos(150), 5..30, Nanos(20)), [5..25, 26..30]);
        for packet in 0..5_000 {
            held.repeat(Nanos(1_000 + packet), packet % 90..packet % 90 + 1, Nanos(50));
        }
        assert!(held.memory() < 60_000);
    }

    #[test]
    fn ranges_of_bytes_touch_packets_that_were_sent() {
        let payload = Payload::try_from(1000).unwrap();
        let mut held = Held::new(Shape::new(20, 10_000).unwrap(), payload, 1);
        assert_eq!(held.packets, 11);
        assert!(held.touched(payload, (0, MOST_STREAM)).is_empty());
        held.sent = 11;
        assert_eq!(held.touched(payload, (0, MOST_STREAM)), 0..11);
        assert_eq!(held.touched(payload, (999, 2)), 0..2);
        assert_eq!(held.touched(payload, (MOST_STREAM - 1, 1)).count(), 0);
        assert_eq!(bytes(held.shape, payload, &(9..11)), (9_000, 1_052));
    }
}
