//! How many connections move a file where nobody says: by what its path holds.

use core::num::NonZeroU16;

use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos};

/// What is known of a path when its first connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// A round trip; absent until one was measured.
    pub rtt: Option<Nanos>,
    /// Bits that are to move in a second, all connections together; absent where nobody set a limit.
    pub rate: Option<BitsPerSec>,
    /// Most bytes that the kernel lets one connection have on its way.
    pub window: Option<Bytes>,
    /// Processors of this host.
    pub cores: u32,
    /// Whether windows begin with what the path carried before ([`crate::careful_resume`]), and need not grow.
    pub is_known: bool,
}

impl Path {
    /// Connections to open at once, before a round trip was measured: as many as most paths take.
    #[must_use]
    pub fn first(&self) -> NonZeroU16 {
        Self { rtt: None, ..*self }.streams()
    }

    /// Connections to have opened when none has answered for `waited`: as many as a round trip takes of which that is a part.
    #[must_use]
    pub fn ahead(&self, waited: Nanos) -> NonZeroU16 {
        let rtt = Nanos(waited.0.saturating_mul(FORESIGHT));
        Self { rtt: Some(rtt), ..*self }.streams().clamp(self.first(), MOST_AHEAD.max(self.first()))
    }

    /// Connections to move data by.
    #[must_use]
    pub fn streams(&self) -> NonZeroU16 {
        let wanted = match self.rtt.map(|rtt| self.on_its_way(rtt)) {
            None => LEAST,
            // There is no window to grow. One reads while another sends, and more than processors wait for each other.
            Some(bytes) if bytes <= SMALL && self.needed(bytes) <= FEW => {
                u64::from(self.cores).clamp(FEW, LEAST)
            }
            Some(bytes) => {
                let share = if self.is_known { KNOWN_SHARE } else { SHARE };
                bytes.div_ceil(share).clamp(LEAST, MOST).max(self.needed(bytes)).min(MOST_NEEDED)
            }
        };
        NonZeroU16::new(wanted as u16).unwrap_or(NonZeroU16::MIN)
    }

    /// What is on its way when the path is full.
    fn on_its_way(&self, rtt: Nanos) -> u64 {
        let rate = self.rate.map_or(USUAL_RATE, BitsPerSec::get);
        u64::try_from(u128::from(rate) * u128::from(rtt.0) / 8_000_000_000).unwrap_or(u64::MAX)
    }

    /// The fewest connections whose windows together hold `bytes`.
    fn needed(&self, bytes: u64) -> u64 {
        self.window.map_or(1, |window| bytes.div_ceil(window.0.max(1)))
    }
}

/// Bits per second, where nobody says: those of the connections that this is made for.
const USUAL_RATE: u64 = 10_000_000_000;

/// Bytes of a path that are no window to speak of: a round trip of 5 ms at 10 Gb/s.
const SMALL: u64 = 6 << 20;

/// Connections at least.
const FEW: u64 = 2;

/// Connections at least of a path that is not small: a loss on one costs an eighth of the rate.
const LEAST: u64 = 8;

/// Bytes that a connection's window grows to: slow start doubles it once a round trip, all of them at a time. 2 GiB over 91.6 ms of
/// 10 Gb/s took 2.97 s by 8 connections, 2.76 by 16 and 2.72 by 32.
const SHARE: u64 = 7 << 20;

/// The same where there is no slow start: 2 GiB over 366 ms took 3.9 s by 8 connections and 4.2 by 32, each of which has a thread.
const KNOWN_SHARE: u64 = 64 << 20;

/// Connections at most for the sake of slow start.
const MOST: u64 = 32;

/// How many times longer than the wait so far a round trip is taken to be. Connections that begin together, and not one after the other for as
/// long as it lasts, send bursts together, which show what the path carries before it is full ([`crate::ceiling`]).
const FORESIGHT: u64 = 4;

/// Connections at most before a round trip is known: there may be nobody.
const MOST_AHEAD: NonZeroU16 = NonZeroU16::new(MOST as u16).unwrap();

/// Connections at most for the sake of small windows.
const MOST_NEEDED: u64 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    const DUAL: Path = Path { rtt: None, rate: None, window: None, cores: 2, is_known: false };

    fn over(rtt_us: u64, path: Path) -> u16 {
        Path { rtt: Some(Nanos(rtt_us * 1_000)), ..path }.streams().get()
    }

    #[test]
    fn a_longer_round_trip_takes_more() {
        let counts = [400, 11_800, 91_600, 183_000, 366_000].map(|rtt| over(rtt, DUAL));
        assert_eq!(counts, [2, 8, 16, 32, 32]);
        assert_eq!(DUAL.first().get(), 8);
    }

    #[test]
    fn where_windows_need_not_grow_fewer_do() {
        let known = Path { is_known: true, ..DUAL };
        assert_eq!([400, 91_600, 366_000].map(|rtt| over(rtt, known)), [2, 8, 8]);
        let fast = Path { rate: BitsPerSec::new(100_000_000_000), ..known };
        assert_eq!([91_600, 366_000].map(|rtt| over(rtt, fast)), [18, 32]);
        assert_eq!(over(366_000, Path { window: Some(Bytes(16 << 20)), ..known }), 28);
    }

    #[test]
    fn who_waits_for_long_has_opened_what_that_takes() {
        let counts = [0, 4, 12, 25, 50, 5_000].map(|ms| DUAL.ahead(Nanos(ms * 1_000_000)).get());
        assert_eq!(counts, [8, 8, 9, 18, 32, 32]);
        let small = Path { window: Some(Bytes(64 << 10)), ..DUAL };
        assert_eq!(small.ahead(Nanos(100_000_000)).get(), 32);
    }

    #[test]
    fn over_a_short_path_there_are_as_many_as_processors() {
        let counts = [1, 2, 6, 8, 96].map(|cores| over(400, Path { cores, ..DUAL }));
        assert_eq!(counts, [2, 2, 6, 8, 8]);
    }

    #[test]
    fn what_is_limited_to_little_needs_no_more_than_a_short_path() {
        let limit = |rate| Path { rate: BitsPerSec::new(rate), ..DUAL };
        assert_eq!(over(366_000, limit(100_000_000)), 2);
        assert_eq!(over(366_000, limit(2_000_000_000)), 13);
        assert_eq!(over(91_600, limit(100_000_000_000)), 32);
    }

    #[test]
    fn small_windows_hold_the_path_together() {
        let window = |bytes| Path { window: Some(Bytes(bytes)), ..DUAL };
        assert_eq!(over(91_600, window(3 << 20)), 37);
        assert_eq!(over(366_000, window(64 << 10)), 128);
        assert_eq!(over(4_000, window(1 << 20)), 8);
        assert_eq!(over(400, window(3 << 20)), 2);
        assert_eq!(over(400, window(0)), 128);
    }

    #[test]
    fn nothing_overflows() {
        let path = Path {
            rtt: Some(Nanos::MAX),
            rate: BitsPerSec::new(u64::MAX),
            window: Some(Bytes(1)),
            cores: 0,
            is_known: false,
        };
        assert_eq!(path.streams().get(), 128);
    }
}
