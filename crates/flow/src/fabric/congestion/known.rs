//! A rate that is guaranteed: it is taken, and not searched for.

use farlink_wire::quantity::{BitsPerSec, Nanos};

use super::{Congestion, MOST_WINDOW};
use crate::fabric::outgoing::MOST_KEPT;

/// Sends at the rate that the path is known to have, whatever is lost on the way.
#[derive(Clone, Copy, Debug)]
pub struct Known(pub BitsPerSec);

impl Congestion for Known {
    fn window(&self, rtt: Option<Nanos>) -> u64 {
        let full = rtt.map_or(0, |rtt| self.0.bytes_in(rtt.after(LATE)));
        full.clamp(MOST_WINDOW, MOST_KNOWN)
    }

    fn rate(&self, _rtt: Option<Nanos>) -> Option<BitsPerSec> {
        Some(self.0)
    }
}

/// What acknowledgements may be late by: what the two hosts' schedulers take, and a queue of some milliseconds.
const LATE: Nanos = Nanos(20_000_000);

/// Bytes under way at most: with what is repaired behind them they are what is kept for a path at most. 180 ms of 10 Gb/s.
const MOST_KNOWN: u64 = MOST_KEPT as u64 / 8 * 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_holds_what_the_rate_has_under_way() {
        let window =
            |rate: u64, ms: u64| Known(BitsPerSec::new(rate).unwrap()).window(Some(Nanos(ms * 1_000_000)));
        assert_eq!(window(10_000_000_000, 1), MOST_WINDOW);
        assert_eq!(window(10_000_000_000, 80), 125_000_000);
        assert_eq!(window(2_000_000_000, 366), 96_500_000);
        assert_eq!(window(100_000_000_000, 366), MOST_KNOWN);
        assert_eq!(Known(BitsPerSec::new(1).unwrap()).window(None), MOST_WINDOW);
    }
}
