//! The last few repairs of a product: they are sent twice where another round of repair would cost more than that.
//!
//! A round of repair costs a round trip and the time in which NACKs are collected, for one packet as for thousands. Where a product is
//! repaired to a large group, a few of the packets that are repaired in one round are lost by somebody again, and a few of those in the
//! next. While nothing else is to be sent, what is few goes to the group once more, before anybody can say that it is still lacking.

use std::ops::Range;

use farlink_wire::quantity::Nanos;

/// What was sent to the group again lately, of one product, as long as it is little.
#[derive(Debug, Default)]
pub(super) struct Tail {
    product: u32,
    /// In the order in which they left; the last first when they are sent once more.
    runs: Vec<Range<u64>>,
    packets: u64,
    /// When the last of them left.
    at: Nanos,
    /// Whether they are being sent once more.
    is_repeated: bool,
}

impl Tail {
    /// These packets of a product of `all` packets leave for the group again; the farthest receiver is `rtt` away.
    pub(super) fn note(&mut self, now: Nanos, product: u32, packets: &Range<u64>, (all, rtt): (u64, Nanos)) {
        if self.product != product || self.is_repeated || now.since(self.at) > rtt {
            *self = Self { product, ..Self::default() };
        }
        self.at = now;
        self.packets += packets.end - packets.start;
        if self.packets > all / LITTLE {
            self.runs = Vec::new();
        } else {
            self.runs.push(packets.clone());
        }
    }

    /// The next run that is to be sent once more, to a group whose receivers lose a share of `loss` and are `rtt` away at most; `None` where
    /// that is not worth it, or is known to be lacking by now where it is.
    pub(super) fn next(&mut self, now: Nanos, rtt: Nanos, loss: f64) -> Option<(u32, Range<u64>)> {
        if !self.is_repeated {
            if now.since(self.at) > rtt.max(SOON) {
                return None;
            }
            // Each is lacking at two receivers at least.
            if self.packets as f64 * loss < LIKELY {
                return None;
            }
            self.is_repeated = true;
            self.runs.reverse();
        }
        self.runs.pop().map(|run| (self.product, run))
    }
}

/// Little is a packet of so many of the product.
const LITTLE: u64 = 32;

/// How soon it is known at the earliest what is lacking still: receivers and the sender take their time beside the round trip.
const SOON: Nanos = Nanos(10_000_000);

/// How many of the packets must be likely to be lacking still.
const LIKELY: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Nanos = Nanos(100_000_000);
    const ALL: u64 = 3200;

    fn repeated(tail: &mut Tail, loss: f64) -> Vec<(u32, Range<u64>)> {
        std::iter::from_fn(|| tail.next(tail.at.after(RTT), RTT, loss)).collect()
    }

    #[test]
    fn little_is_sent_once_more_and_no_more_than_that() {
        let mut tail = Tail::default();
        tail.note(Nanos(10), 7, &(5..25), (ALL, RTT));
        tail.note(Nanos(20), 7, &(40..50), (ALL, RTT));
        assert_eq!(repeated(&mut tail, 0.001), [], "nobody is likely to lack any of it");
        assert_eq!(repeated(&mut tail, 0.01), [(7, 5..25), (7, 40..50)]);
        assert_eq!(repeated(&mut tail, 0.01), []);
        tail.note(Nanos(30), 7, &(60..80), (ALL, RTT));
        assert_eq!(repeated(&mut tail, 0.01), [(7, 60..80)], "what was repeated is not part of it any more");
    }

    #[test]
    fn masses_and_what_is_long_past_are_not() {
        let mut tail = Tail::default();
        tail.note(Nanos(10), 7, &(0..90), (ALL, RTT));
        tail.note(Nanos(20), 7, &(90..120), (ALL, RTT));
        tail.note(Nanos(30), 7, &(0..20), (ALL, RTT));
        assert_eq!(repeated(&mut tail, 0.01), [], "nor the end of masses");
        // Whoever lacked it has said so.
        tail.note(RTT.after(Nanos(31)), 7, &(20..40), (ALL, RTT));
        assert_eq!(tail.next(Nanos(2 * RTT.0 + 32), RTT, 0.01), None, "this, too");
        assert_eq!(repeated(&mut tail, 0.01), [(7, 20..40)]);
        tail.note(RTT.after(Nanos(40)), 7, &(0..20), (ALL, RTT));
        tail.note(RTT.after(Nanos(41)), 8, &(0..30), (ALL, RTT));
        assert_eq!(repeated(&mut tail, 0.01), [(8, 0..30)]);
    }
}
