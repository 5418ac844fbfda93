//! The path that is to be filled.

use std::fmt;
use std::str::FromStr;

use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos, QuantityError};

/// A path through the network: what bears on how much must be under way to fill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkPath {
    /// Round-trip time, never zero.
    rtt: Nanos,
    /// The rate of its narrowest link.
    rate: BitsPerSec,
}

/// Why a path was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PathError {
    /// One of the two is missing, or there is a third.
    #[error("{text:?} is not a path: write its round-trip time and its rate, as in {EXAMPLE}")]
    NotTwo {
        /// As given.
        text: String,
    },
    /// One of the two is none.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Nothing is that near.
    #[error("path {text:?}: a round trip takes more than zero: write it as in {EXAMPLE}")]
    NoTime {
        /// As given.
        text: String,
    },
    /// Nothing on Earth or near it is that far.
    #[error("path {text:?}: a round trip takes at most {}: write it as in {EXAMPLE}", MOST_RTT)]
    TooLong {
        /// As given.
        text: String,
    },
}

impl NetworkPath {
    /// A path; `None` where it has no length.
    #[must_use]
    pub fn new(rtt: Nanos, rate: BitsPerSec) -> Option<Self> {
        (Nanos::ZERO < rtt && rtt <= MOST_RTT).then_some(Self { rtt, rate })
    }

    /// Round-trip time.
    #[must_use]
    pub const fn rtt(self) -> Nanos {
        self.rtt
    }

    /// The rate of its narrowest link.
    #[must_use]
    pub const fn rate(self) -> BitsPerSec {
        self.rate
    }

    /// The bandwidth-delay product: what must be under way, at least one byte.
    #[must_use]
    pub fn product(self) -> Bytes {
        let bits = u128::from(self.rate.get()) * u128::from(self.rtt.0);
        Bytes(u64::try_from(bits.div_ceil(8_000_000_000)).unwrap_or(u64::MAX))
    }

    /// What is lost of the rate, bits per second, where no more than `window` bytes are ever under way: a window
    /// passes once a round trip (RFC 7323, 1.1). `None` where nothing is.
    #[must_use]
    pub fn lost_to(self, window: u64) -> Option<u64> {
        if window >= self.product().0 {
            return None;
        }
        let rate = u128::from(window) * 8_000_000_000 / u128::from(self.rtt.0);
        Some(self.rate.get().saturating_sub(u64::try_from(rate).unwrap_or(u64::MAX))).filter(|&lost| lost > 0)
    }
}

impl Default for NetworkPath {
    /// 10 Gb/s around 100 ms: a circuit across an ocean.
    fn default() -> Self {
        Self { rtt: Nanos(100_000_000), rate: TEN_GIGABITS }
    }
}

impl fmt::Display for NetworkPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at RTT {}", self.rate, self.rtt)
    }
}

impl FromStr for NetworkPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let (rtt, rate) = match text.split(',').collect::<Vec<_>>()[..] {
            [rtt, rate] => (rtt, rate),
            _ => return Err(PathError::NotTwo { text: text.to_owned() }),
        };
        let (rtt, rate) = (rtt.parse()?, rate.parse()?);
        if rtt == Nanos::ZERO {
            return Err(PathError::NoTime { text: text.to_owned() });
        }
        Self::new(rtt, rate).ok_or_else(|| PathError::TooLong { text: text.to_owned() })
    }
}

const EXAMPLE: &str = "91.6ms,10gbit";

/// An hour, as for an emulated connection.
const MOST_RTT: Nanos = Nanos(3_600_000_000_000);

const TEN_GIGABITS: BitsPerSec = BitsPerSec::new(10_000_000_000).expect("is not zero");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_path() {
        let path: NetworkPath = "91.6ms,10gbit".parse().unwrap();
        assert_eq!((path.rtt(), path.rate().get()), (Nanos(91_600_000), 10_000_000_000));
        assert_eq!(path.product(), Bytes(114_500_000));
        assert_eq!(path.to_string(), "10gbit at RTT 91.6ms");
    }

    #[test]
    fn refuses_what_is_none_and_says_the_mend() {
        for (text, words) in [
            ("", "91.6ms,10gbit"),
            ("91.6ms", "91.6ms,10gbit"),
            ("91.6ms,10gbit,1%", "91.6ms,10gbit"),
            ("0ms,10gbit", "more than zero"),
            ("2h,10gbit", "at most 3600s"),
        ] {
            let said = text.parse::<NetworkPath>().unwrap_err().to_string();
            assert!(said.contains(words) && said.contains(&format!("{text:?}")), "{said}");
        }
        assert!(matches!("91.6,10gbit".parse::<NetworkPath>(), Err(PathError::Quantity(_))));
        assert!(matches!("91.6ms,0gbit".parse::<NetworkPath>(), Err(PathError::Quantity(_))));
        assert!(matches!("10gbit,91.6ms".parse::<NetworkPath>(), Err(PathError::Quantity(_))));
    }

    #[test]
    fn a_window_passes_once_a_round_trip() {
        let path: NetworkPath = "100ms,1gbit".parse().unwrap();
        assert_eq!(path.lost_to(524_288), Some(1_000_000_000 - 41_943_040));
        assert_eq!(path.lost_to(12_500_000), None);
        assert_eq!(path.lost_to(0), Some(1_000_000_000));
    }

    proptest::proptest! {
        #[test]
        fn never_panics_on_any_text(text in ".{0,30}") {
            let _ = text.parse::<NetworkPath>();
        }

        #[test]
        fn a_wider_window_never_loses_more(
            rtt in 1u64..=3_600_000_000_000, rate in 1u64..=10_000_000_000_000, window in 0u64..1 << 40, more in 0u64..1 << 40,
        ) {
            let path = NetworkPath::new(Nanos(rtt), BitsPerSec::new(rate).unwrap()).unwrap();
            let lost = |window| path.lost_to(window).unwrap_or(0);
            proptest::prop_assert!(lost(window + more) <= lost(window));
            proptest::prop_assert!(lost(window) <= rate);
            proptest::prop_assert_eq!(lost(path.product().0), 0);
        }
    }
}
