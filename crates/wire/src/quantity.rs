//! Quantities with their units: in types, and as people write them (`10gbit`, `91.6ms`, `2GiB`, `1%`).
//!
//! A bare number where the unit would be a guess is refused; so are zero and absurd values.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A span of time, or an instant as a span since an epoch that the caller chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const MAX: Self = Self(u64::MAX);

    /// The span of `seconds`, rounded to a nanosecond; negative and not-a-number give zero.
    #[must_use]
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u64)
    }

    /// The span in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self + other`, staying at [`Self::MAX`].
    #[must_use]
    pub fn after(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// How long after `earlier` this is; zero where it is before.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0 => (0.0, "s"),
            n if n >= 1_000_000_000 => (n as f64 / 1e9, "s"),
            n if n >= 1_000_000 => (n as f64 / 1e6, "ms"),
            n if n >= 1_000 => (n as f64 / 1e3, "us"),
            n => (n as f64, "ns"),
        };
        write!(f, "{}{unit}", trimmed(value))
    }
}

impl FromStr for Nanos {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (value, unit) = split(text, Kind::Time)?;
        let scale = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" | "sec" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3600e9,
            "d" => 86_400e9,
            _ => return Err(Kind::Time.unknown(text, unit)),
        };
        Ok(Self(scaled(text, Kind::Time, value, scale, 1e18)?))
    }
}

/// A rate in bits per second, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BitsPerSec(pub NonZeroU64);

impl BitsPerSec {
    /// A rate of `bits` per second; `None` for zero.
    #[must_use]
    pub const fn new(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Bits per second.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Time to put `len` bytes on the wire, and the remainder to carry to the next packet:
    /// rounding each one up would run 1.2% slow for 84 bytes at 10 Gb/s.
    #[must_use]
    pub fn serialise(self, len: u32, carried: Carry) -> (Nanos, Carry) {
        let scaled = u64::from(len) * 8_000_000_000 + carried.0;
        (Nanos(scaled / self.get()), Carry(scaled % self.get()))
    }

    /// Bytes that leave in `time`, rounded down.
    #[must_use]
    pub fn bytes_in(self, time: Nanos) -> u64 {
        (u128::from(self.get()) * u128::from(time.0) / 8_000_000_000) as u64
    }

    /// Time for `bytes`, rounded up.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Nanos {
        let scaled = u128::from(bytes) * 8_000_000_000;
        Nanos(u64::try_from(scaled.div_ceil(u128::from(self.get()))).unwrap_or(u64::MAX))
    }
}

/// What [`BitsPerSec::serialise`] could not express in whole nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carry(u64);

impl fmt::Display for BitsPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.get() {
            n if n >= 1_000_000_000 => (n as f64 / 1e9, "gbit"),
            n if n >= 1_000_000 => (n as f64 / 1e6, "mbit"),
            n if n >= 1_000 => (n as f64 / 1e3, "kbit"),
            n => (n as f64, "bit"),
        };
        write!(f, "{}{unit}", trimmed(value))
    }
}

impl FromStr for BitsPerSec {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (value, written) = split(text, Kind::Rate)?;
        let unit = written.to_ascii_lowercase();
        let unit = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).unwrap_or(&unit);
        // By a capital B people mean bytes: eight times as much.
        if let ("kb" | "mb" | "gb" | "tb", Some(b'B')) = (unit, written.as_bytes().get(1)) {
            let bits = format!("{}{}bit", trimmed(value * 8.0), &unit[..1]);
            return Err(QuantityError::OfBytes { text: text.to_owned(), bits });
        }
        let scale = match unit {
            "bit" => 1.0,
            "kbit" | "kb" => 1e3,
            "mbit" | "mb" => 1e6,
            "gbit" | "gb" => 1e9,
            "tbit" | "tb" => 1e12,
            _ => return Err(Kind::Rate.unknown(text, unit)),
        };
        let bits = scaled(text, Kind::Rate, value, scale, 10e12)?;
        Self::new(bits).ok_or_else(|| Kind::Rate.zero(text))
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            n if n >= 1 << 40 => (n as f64 / (1u64 << 40) as f64, "TiB"),
            n if n >= 1 << 30 => (n as f64 / (1u64 << 30) as f64, "GiB"),
            n if n >= 1 << 20 => (n as f64 / (1u64 << 20) as f64, "MiB"),
            n if n >= 1 << 10 => (n as f64 / (1u64 << 10) as f64, "KiB"),
            n => (n as f64, "B"),
        };
        write!(f, "{}{unit}", trimmed(value))
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (value, unit) = split(text, Kind::Size)?;
        let scale = match unit.to_ascii_lowercase().as_str() {
            "b" | "byte" | "bytes" => 1.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            "kib" => 1024.0,
            "mib" => 1024.0 * 1024.0,
            "gib" => 1024.0 * 1024.0 * 1024.0,
            "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => return Err(Kind::Size.unknown(text, unit)),
        };
        Ok(Self(scaled(text, Kind::Size, value, scale, MOST_BYTES)?))
    }
}

/// A probability: at least 0, at most 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fraction(f64);

impl Fraction {
    /// A fraction, where `value` is one.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// As a number from 0 to 1.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Ten decimals: a loss of one in a thousand million is still shown, and 0.07 is not 7.000000000000001%.
        write!(f, "{}%", (self.0 * 1e12).round() / 1e10)
    }
}

impl FromStr for Fraction {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let bare = text.trim();
        let (number, scale) = match bare.strip_suffix('%') {
            Some(percent) => (percent, 0.01),
            None => (bare, 1.0),
        };
        let value: f64 = number.trim().parse().map_err(|_| Kind::Fraction.not_a_number(text))?;
        Self::new(value * scale).ok_or_else(|| QuantityError::NotAFraction { text: text.to_owned() })
    }
}

/// Why a quantity was refused. Each message names the value, the reason and the mend.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum QuantityError {
    /// No number at the start.
    #[error("{text:?} is not a {kind}: write a number and its unit, as in {example}")]
    NotANumber {
        /// As given.
        text: String,
        /// What was expected.
        kind: &'static str,
        /// One that would do.
        example: &'static str,
    },
    /// A number alone.
    #[error("{text:?} has no unit: write it as in {example}")]
    NoUnit {
        /// As given.
        text: String,
        /// One that would do.
        example: &'static str,
    },
    /// A unit of something else.
    #[error("{text:?} is not a {kind}: unit {unit:?} is none of {units}")]
    UnknownUnit {
        /// As given.
        text: String,
        /// What was expected.
        kind: &'static str,
        /// The unit as given.
        unit: String,
        /// Those that would do.
        units: &'static str,
    },
    /// A rate in bytes.
    #[error("{text:?} is of bytes, and a rate is of bits: write it as {bits}")]
    OfBytes {
        /// As given.
        text: String,
        /// The same in bits.
        bits: String,
    },
    /// Less than nothing.
    #[error("{text:?} is below zero, which no {kind} is: write one as in {example}")]
    Negative {
        /// As given.
        text: String,
        /// What was expected.
        kind: &'static str,
        /// One that would do.
        example: &'static str,
    },
    /// Zero where nothing would ever happen.
    #[error("{text:?} is zero: a {kind} is more than that, as in {example}")]
    Zero {
        /// As given.
        text: String,
        /// What was expected.
        kind: &'static str,
        /// One that would do.
        example: &'static str,
    },
    /// Beyond anything that can be meant.
    #[error("{text:?} is out of range: a {kind} is at most {most}")]
    OutOfRange {
        /// As given.
        text: String,
        /// What was expected.
        kind: &'static str,
        /// The bound.
        most: &'static str,
    },
    /// Below 0 or above 1.
    #[error("{text:?} is not a share: write 0% to 100%, or 0 to 1")]
    NotAFraction {
        /// As given.
        text: String,
    },
}

#[derive(Clone, Copy)]
enum Kind {
    Time,
    Rate,
    Size,
    Fraction,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Rate => "rate",
            Self::Size => "size",
            Self::Fraction => "share",
        }
    }

    const fn example(self) -> &'static str {
        match self {
            Self::Time => "91.6ms",
            Self::Rate => "10gbit",
            Self::Size => "2GiB",
            Self::Fraction => "1% or 0.01",
        }
    }

    const fn units(self) -> &'static str {
        match self {
            Self::Time => "ns, us, ms, s, min, h, d",
            Self::Rate => "bit, kbit, mbit, gbit, tbit (per second)",
            Self::Size => "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB",
            Self::Fraction => "%",
        }
    }

    const fn most(self) -> &'static str {
        match self {
            Self::Time => "31 years",
            Self::Rate => "10tbit",
            Self::Size => "1048576TiB",
            Self::Fraction => "100%",
        }
    }

    fn unknown(self, text: &str, unit: &str) -> QuantityError {
        QuantityError::UnknownUnit {
            text: text.to_owned(),
            kind: self.name(),
            unit: unit.to_owned(),
            units: self.units(),
        }
    }

    fn not_a_number(self, text: &str) -> QuantityError {
        QuantityError::NotANumber { text: text.to_owned(), kind: self.name(), example: self.example() }
    }

    fn zero(self, text: &str) -> QuantityError {
        QuantityError::Zero { text: text.to_owned(), kind: self.name(), example: self.example() }
    }
}

/// The largest size: 2^60. A whole number of the largest unit, so that what is shown, which is rounded, never is above it.
const MOST_BYTES: f64 = (1u64 << 60) as f64;

/// The number and the unit of `text`; the unit is never empty.
fn split(text: &str, kind: Kind) -> Result<(f64, &str), QuantityError> {
    let bare = text.trim();
    // "1e3ms" is a number with an exponent: the unit starts at the first letter that no digit or sign follows.
    let end = bare
        .char_indices()
        .find(|&(at, c)| {
            let exponent = matches!(c, 'e' | 'E')
                && bare[at + 1..]
                    .starts_with(|next: char| next.is_ascii_digit() || matches!(next, '-' | '+'));
            !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+') || exponent)
        })
        .map_or(bare.len(), |(at, _)| at);
    let (number, unit) = bare.split_at(end);
    let value: f64 = number.parse().map_err(|_| kind.not_a_number(text))?;
    match unit.trim() {
        "" => Err(QuantityError::NoUnit { text: text.to_owned(), example: kind.example() }),
        unit => Ok((value, unit)),
    }
}

/// `value × scale` as a whole number from 0 to `most`.
fn scaled(text: &str, kind: Kind, value: f64, scale: f64, most: f64) -> Result<u64, QuantityError> {
    let total = (value * scale).round();
    if total.is_nan() {
        return Err(kind.not_a_number(text));
    }
    if total < 0.0 {
        let (kind, example) = (kind.name(), kind.example());
        return Err(QuantityError::Negative { text: text.to_owned(), kind, example });
    }
    if total > most {
        return Err(QuantityError::OutOfRange {
            text: text.to_owned(),
            kind: kind.name(),
            most: kind.most(),
        });
    }
    Ok(total as u64)
}

/// At most three decimals, no trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!("91.6ms".parse(), Ok(Nanos(91_600_000)));
        assert_eq!("0".parse::<Nanos>().unwrap_err().to_string(), "\"0\" has no unit: write it as in 91.6ms");
        assert_eq!("10gbit".parse(), Ok(BitsPerSec::new(10_000_000_000).unwrap()));
        assert_eq!("9.58464Gb/s".parse(), Ok(BitsPerSec::new(9_584_640_000).unwrap()));
        assert_eq!("2GiB".parse(), Ok(Bytes(2 << 30)));
        assert_eq!("62.5 MB".parse(), Ok(Bytes(62_500_000)));
        assert_eq!("1e3ms".parse(), Ok(Nanos(1_000_000_000)));
        assert_eq!("7d".parse(), Ok(Nanos(604_800_000_000_000)));
        assert_eq!("1%".parse::<Fraction>().unwrap().get(), 0.01);
        assert_eq!("1e-4".parse::<Fraction>().unwrap().get(), 1e-4);
    }

    #[test]
    fn the_largest_of_each_reads_back_from_how_it_is_shown() {
        for text in ["1e9gb", "1048576TiB", "1152921504606846900B"] {
            let size: Bytes = text.parse().unwrap();
            assert!(size.to_string().parse::<Bytes>().is_ok(), "{size}");
        }
        assert!("1048577TiB".parse::<Bytes>().is_err());
        let time: Nanos = "1e9s".parse().unwrap();
        assert_eq!(time.to_string().parse(), Ok(time));
    }

    #[test]
    fn refuses_what_would_be_a_guess_and_says_the_mend() {
        for (text, said) in [
            ("10", "\"10\" has no unit: write it as in 10gbit"),
            ("10g", "\"10g\" is not a rate: unit \"g\" is none of bit, kbit, mbit, gbit, tbit (per second)"),
            ("1.25GB/s", "\"1.25GB/s\" is of bytes, and a rate is of bits: write it as 10gbit"),
            ("100 MBps", "\"100 MBps\" is of bytes, and a rate is of bits: write it as 800mbit"),
            ("fast", "\"fast\" is not a rate: write a number and its unit, as in 10gbit"),
            ("-1gbit", "\"-1gbit\" is below zero, which no rate is: write one as in 10gbit"),
            ("0gbit", "\"0gbit\" is zero: a rate is more than that, as in 10gbit"),
            ("1e9tbit", "\"1e9tbit\" is out of range: a rate is at most 10tbit"),
        ] {
            assert_eq!(text.parse::<BitsPerSec>().unwrap_err().to_string(), said);
        }
        assert!("2G".parse::<Bytes>().is_err());
        assert!("101%".parse::<Fraction>().is_err());
        assert!("nan".parse::<Fraction>().is_err());
    }

    #[test]
    fn serialises_without_drift() {
        let rate: BitsPerSec = "10gbit".parse().unwrap();
        let (mut total, mut carry) = (0, Carry::default());
        for _ in 0..10_000_000 {
            let (time, rest) = rate.serialise(84, carry);
            (total, carry) = (total + time.0, rest);
        }
        assert_eq!(total, 672_000_000);
    }

    proptest::proptest! {
        #[test]
        fn never_panics_on_any_text(text in ".{0,20}") {
            let _ = text.parse::<Nanos>();
            let _ = text.parse::<BitsPerSec>();
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Fraction>();
        }

        #[test]
        fn shown_times_read_back_within_their_decimals(n in 1u64..10_000_000_000_000) {
            let back: Nanos = Nanos(n).to_string().parse().unwrap();
            proptest::prop_assert!((back.0 as f64 - n as f64).abs() / n as f64 <= 1e-3);
        }
    }
}
