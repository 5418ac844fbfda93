//! What the congestion control `circuit` asks of a host, of a rate that is declared: what a stream's share may be, and how large
//! its socket's buffer must be (`bpf/circuit.bpf.c`).

use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos};

/// One stream's share of a declared rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(BitsPerSec);

/// Why a rate cannot be held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// More than anybody carries.
    #[error("circuits are held up to {}, not {declared}", MOST)]
    TooFast {
        /// As declared.
        declared: BitsPerSec,
    },
    /// More than the program can count.
    #[error("one stream holds up to {}: share {declared} among more, as in --streams {}", MOST_SHARE, .declared.get().div_ceil(MOST_SHARE.get()))]
    TooFastForOne {
        /// As declared.
        declared: BitsPerSec,
    },
    /// Less than the program can pace.
    #[error(
        "one stream holds {} or more, and {streams} cannot share {declared}: declare more, or use fewer",
        LEAST_SHARE
    )]
    TooSlow {
        /// As declared.
        declared: BitsPerSec,
        /// How many share it.
        streams: u32,
    },
}

impl Share {
    /// That of each of `streams`, which share `declared`.
    ///
    /// # Errors
    /// [`ShareError`].
    pub fn of(declared: BitsPerSec, streams: u32) -> Result<Self, ShareError> {
        let share = BitsPerSec::new(declared.get() / u64::from(streams.max(1)));
        match share.filter(|share| *share >= LEAST_SHARE) {
            _ if declared > MOST => Err(ShareError::TooFast { declared }),
            None => Err(ShareError::TooSlow { declared, streams }),
            Some(share) if share > MOST_SHARE => Err(ShareError::TooFastForOne { declared }),
            Some(share) => Ok(Self(share)),
        }
    }

    /// Bits a second.
    #[must_use]
    pub const fn rate(self) -> BitsPerSec {
        self.0
    }

    /// What may be under way over a round trip of `rtt`: the program's greatest window. With less of a buffer the rate is not held.
    #[must_use]
    pub fn window(self, rtt: Nanos) -> Bytes {
        Bytes(self.0.bytes_in(rtt.after(MARGIN)))
    }

    /// The buffer that is asked for over a round trip of `rtt`: room for as much again, which comes while a loss is repaired.
    #[must_use]
    pub fn buffer(self, rtt: Nanos) -> Bytes {
        let twice = Nanos(rtt.0.saturating_mul(2)).after(MARGIN);
        Bytes(self.0.bytes_in(twice)).clamp(LEAST_BUFFER, MOST_BUFFER)
    }

    /// The buffer that is asked for while the round trip is not known: [`Self::buffer`] of any on Earth. No memory is taken that is not
    /// needed.
    #[must_use]
    pub fn buffer_at_first(self) -> Bytes {
        self.buffer(LONGEST)
    }

    /// How many streams that share the same rate as `streams` such have windows that are large enough over a round trip of `rtt`;
    /// `None` where these are enough.
    #[must_use]
    pub fn streams_needed(self, streams: u32, rtt: Nanos) -> Option<u64> {
        let window = self.window(rtt);
        let needed = || (u128::from(window.0) * u128::from(streams)).div_ceil(u128::from(MOST_BUFFER.0));
        (window > MOST_BUFFER).then(|| u64::try_from(needed()).unwrap_or(u64::MAX))
    }
}

/// The most that a circuit's socket asks for. The kernel doubles it into an `int`, and offers half of that as a window; a window is
/// at most 65,535 × 2^14 bytes (RFC 7323, 2.3).
pub const MOST_BUFFER: Bytes = Bytes(1023 << 20);

/// Three super-packets, which leave at once, and the acknowledgement of them: what a kernel grants everybody by default is less by
/// little (`net.core.rmem_max`), and does for slow circuits.
const LEAST_BUFFER: Bytes = Bytes(256 << 10);

/// `MARGIN_US` of the program: what its window holds beyond rate × RTT.
const MARGIN: Nanos = Nanos(20_000_000);

/// Longer than any round trip between two places on Earth, by a satellite too.
const LONGEST: Nanos = Nanos(1_000_000_000);

/// The fastest Ethernet with hosts on it (IEEE 802.3bs).
const MOST: BitsPerSec = BitsPerSec::new(400_000_000_000).expect("is not zero");

/// The program counts what could be caught up with, 50 ms of the rate, in 31 bits: 343 Gb/s.
const MOST_SHARE: BitsPerSec = BitsPerSec::new(340_000_000_000).expect("is not zero");

/// What the program falls back to at the least. The kernel takes a pacing rate of 0 for none at all.
const LEAST_SHARE: BitsPerSec = BitsPerSec::new(100_000).expect("is not zero");

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn share(text: &str, streams: u32) -> Result<Share, ShareError> {
        Share::of(text.parse().unwrap(), streams)
    }

    #[test]
    fn a_near_slow_circuit_needs_little_and_a_far_fast_one_much() {
        let near = share("1gbit", 1).unwrap();
        assert_eq!(
            (near.window(Nanos(10 * MS)), near.buffer(Nanos(10 * MS))),
            (Bytes(3_750_000), Bytes(5_000_000))
        );
        let far = share("100gbit", 10).unwrap();
        assert_eq!(far.window(Nanos(366 * MS)), Bytes(482_500_000));
        assert_eq!(far.buffer(Nanos(366 * MS)), Bytes(940_000_000));
        assert_eq!(share("1mbit", 1).unwrap().buffer(Nanos(MS)), LEAST_BUFFER);
        assert_eq!(share("100gbit", 1).unwrap().buffer(Nanos(366 * MS)), MOST_BUFFER);
    }

    #[test]
    fn before_the_round_trip_is_known_there_is_room_for_any() {
        for (rate, streams) in [("1gbit", 1), ("10gbit", 10), ("100gbit", 10)] {
            let share = share(rate, streams).unwrap();
            assert!(share.buffer_at_first() >= share.buffer(Nanos(366 * MS)), "{rate}");
        }
        assert_eq!(share("10gbit", 1).unwrap().buffer_at_first(), MOST_BUFFER);
    }

    #[test]
    fn what_one_window_cannot_do_several_can() {
        let one = share("100gbit", 1).unwrap();
        assert_eq!(one.streams_needed(1, Nanos(366 * MS)), Some(5));
        assert_eq!(share("100gbit", 5).unwrap().streams_needed(5, Nanos(366 * MS)), None);
        assert_eq!(one.streams_needed(1, Nanos(10 * MS)), None);
    }

    #[test]
    fn a_share_that_cannot_be_held_is_refused_with_the_bound() {
        for (rate, streams, words) in [
            ("1kbit", 512, "100kbit or more"),
            ("10mbit", 512, "declare more, or use fewer"),
            ("10tbit", 512, "up to 400gbit"),
            ("400gbit", 1, "--streams 2"),
        ] {
            let said = share(rate, streams).unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
        assert!(share("100kbit", 1).is_ok() && share("400gbit", 2).is_ok());
    }
}
