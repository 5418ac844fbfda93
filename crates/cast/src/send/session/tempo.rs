//! The rate of a session: as it was named, or as it is found.

use std::cmp::Ordering;

use farlink_flow::cast::rate::RateFinder;
use farlink_wire::cast::Position;
use farlink_wire::cast::control::{Report, Want};
use farlink_wire::quantity::{BitsPerSec, Nanos};

use crate::send::Rate;

/// How fast the group is sent to.
#[derive(Debug)]
pub(super) enum Tempo {
    Fixed(BitsPerSec),
    Found {
        finder: Box<RateFinder>,
        /// Bytes to the group that the finder knows of.
        told: u64,
    },
}

impl Tempo {
    pub(super) fn new(rate: Rate, now: Nanos) -> Self {
        match rate {
            Rate::Fixed(rate) => Self::Fixed(rate),
            Rate::Found { most } => {
                let rate = |bits| BitsPerSec::new(bits).unwrap_or(most);
                let finder = RateFinder::new(rate(LEAST), rate(START), most, LAG, now);
                Self::Found { finder: Box::new(finder), told: 0 }
            }
        }
    }

    /// The rate now.
    pub(super) fn rate(&self) -> BitsPerSec {
        match self {
            Self::Fixed(rate) => *rate,
            Self::Found { finder, .. } => finder.rate(),
        }
    }

    /// Whether it was found; `None` of one that was named.
    pub(super) const fn was_found(&self) -> Option<bool> {
        match self {
            Self::Fixed(_) => None,
            Self::Found { finder, .. } => Some(finder.has_found()),
        }
    }

    /// So many bytes have been sent to the group in all, the next packet has number `next`, and nothing waited for its first pass last at
    /// `idle_at`.
    pub(super) fn on_sent(&mut self, now: Nanos, sent: u64, next: u64, idle_at: Nanos) {
        if let Self::Found { finder, told } = self {
            finder.on_idle(idle_at);
            finder.on_sent(now, sent - std::mem::replace(told, sent), next);
        }
    }

    /// A new rate, where there is one, after something was heard.
    pub(super) fn adjust(&mut self, now: Nanos) -> Option<BitsPerSec> {
        match self {
            Self::Found { finder, .. } => finder.poll(now),
            Self::Fixed(_) => None,
        }
    }

    /// A receiver takes part, and counts packets from number `first` on.
    pub(super) fn on_join(&mut self, receiver: u32, first: u64) {
        if let Self::Found { finder, .. } = self {
            finder.on_join(receiver, first);
        }
    }

    /// A receiver says how it fares.
    pub(super) fn on_report(&mut self, now: Nanos, receiver: u32, report: &Report) {
        if let Self::Found { finder, .. } = self {
            finder.on_report(now, receiver, report);
        }
    }

    /// A receiver that joined at `joined` lacks something of products with so long a `stream`. What was sent before it came it did not lose.
    pub(super) fn on_nack(
        &mut self,
        receiver: u32,
        joined: Position,
        wants: &[Want],
        stream: impl Fn(u32) -> Option<u64>,
    ) {
        if let Self::Found { finder, .. } = self {
            let first = wants.iter().filter(|want| !want.again && !want.catch_up);
            let bytes = first.map(|want| wanted(want, joined, stream(want.product).unwrap_or(0))).sum();
            finder.on_nack(receiver, bytes);
        }
    }

    /// A receiver is there no longer.
    pub(super) fn on_leave(&mut self, receiver: u32) {
        if let Self::Found { finder, .. } = self {
            finder.on_leave(receiver);
        }
    }
}

/// Bytes that a receiver wants of a stream, behind where it joined: of a product of which it knows nothing, all that there may be.
fn wanted(want: &Want, joined: Position, stream: u64) -> u64 {
    let from = match want.product.cmp(&joined.product) {
        Ordering::Less => stream,
        Ordering::Equal => joined.offset,
        Ordering::Greater => 0,
    };
    let within = |(offset, length): &(u64, u64)| {
        offset.saturating_add(*length).min(stream).saturating_sub((*offset).max(from))
    };
    want.ranges.iter().map(within).sum()
}

/// The lowest rate that is sent at, bits per second.
const LEAST: u64 = 1_000_000;

/// The rate that the search begins with.
const START: u64 = 100_000_000;

/// How long reports lag behind what is sent, but for the round trip: their interval, and a queue of as long.
const LAG: Nanos = Nanos(200_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_stream_nobody_wants_more_than_there_is() {
        let at = |product, offset| Position { product, offset };
        let want = |ranges: &[_]| Want { product: 0, again: false, catch_up: false, ranges: ranges.to_vec() };
        assert_eq!(wanted(&want(&[(0, u64::MAX)]), at(0, 0), 700), 700);
        assert_eq!(wanted(&want(&[(0, 100), (300, 100), (650, 100), (900, 10)]), at(0, 0), 700), 250);
        assert_eq!(wanted(&want(&[(0, 100)]), at(0, 0), 0), 0);
        // What had been sent when it came it did not lose.
        let wants = want(&[(0, 100), (300, 100)]);
        assert_eq!([at(0, 350), at(0, 900), at(1, 0)].map(|joined| wanted(&wants, joined, 700)), [50, 0, 0]);
    }
}
