//! A limit that follows the time of day.

use core::str::FromStr;

use farlink_wire::quantity::{BitsPerSec, Nanos, QuantityError};

/// Which rate holds from when on, every day the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable {
    /// When each begins, by the time of day, and what holds from then on; no limit where absent. In order, and at least one.
    entries: Vec<(Nanos, Option<BitsPerSec>)>,
}

impl Timetable {
    /// What holds at this time since midnight. Before the first entry of a day it is the last one's of the day before.
    #[must_use]
    pub fn at(&self, time: Nanos) -> Option<BitsPerSec> {
        let begun = self.entries.iter().rev().find(|(begin, _)| *begin <= time);
        begun.or(self.entries.last()).and_then(|(_, rate)| *rate)
    }

    /// As [`Self::mean`], of those times alone that had a limit; none where none had.
    #[must_use]
    pub fn mean_of_limited(&self, time: Nanos, span: Nanos) -> Option<BitsPerSec> {
        let rates: Vec<_> = self.during(time, span).flatten().collect();
        mean(&rates)
    }

    /// The mean of what held for `span` until `time` since midnight, to within a hundredth of that; none where there was a time without a limit.
    #[must_use]
    pub fn mean(&self, time: Nanos, span: Nanos) -> Option<BitsPerSec> {
        mean(&self.during(time, span).collect::<Option<Vec<_>>>()?)
    }

    /// What held in each hundredth of `span` until `time` since midnight.
    fn during(&self, time: Nanos, span: Nanos) -> impl Iterator<Item = Option<BitsPerSec>> {
        const PARTS: u64 = 100;
        (0..PARTS).map(move |part| {
            let before = Nanos(span.0 / (2 * PARTS) * (2 * part + 1) % DAY.0);
            self.at(Nanos((time.0 + DAY.0 - before.0) % DAY.0))
        })
    }

    /// The greatest rate of the day; none where there is a time without a limit.
    #[must_use]
    pub fn greatest(&self) -> Option<BitsPerSec> {
        self.entries.iter().map(|(_, rate)| *rate).collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

fn mean(rates: &[BitsPerSec]) -> Option<BitsPerSec> {
    let sum = rates.iter().map(|rate| u128::from(rate.get())).sum::<u128>();
    BitsPerSec::new(sum.checked_div(rates.len() as u128)? as u64)
}

/// One rate for all day.
impl From<BitsPerSec> for Timetable {
    fn from(rate: BitsPerSec) -> Self {
        Self { entries: vec![(Nanos::ZERO, Some(rate))] }
    }
}

/// A rate, or for each time from which on one holds `HH:MM,RATE`, with blanks between them; `off` is no limit.
impl FromStr for Timetable {
    type Err = TimetableError;

    fn from_str(text: &str) -> Result<Self, TimetableError> {
        if !text.contains(',') {
            return Ok(text.parse::<BitsPerSec>()?.into());
        }
        let mut entries = Vec::new();
        for word in text.split_whitespace() {
            let (time, rate) =
                word.split_once(',').ok_or_else(|| TimetableError::NoTime { word: word.to_owned() })?;
            let begin =
                since_midnight(time).ok_or_else(|| TimetableError::Time { given: time.to_owned() })?;
            let rate = if rate == "off" { None } else { Some(rate.parse::<BitsPerSec>()?) };
            if entries.iter().any(|(other, _)| *other == begin) {
                return Err(TimetableError::Twice { given: time.to_owned() });
            }
            entries.push((begin, rate));
        }
        entries.sort_by_key(|(begin, _)| *begin);
        Ok(Self { entries })
    }
}

/// `HH:MM` or `HH:MM:SS`.
fn since_midnight(text: &str) -> Option<Nanos> {
    let mut seconds = 0;
    let mut parts = 0;
    for (part, bound) in text.split(':').zip([24, 60, 60]) {
        let number: u64 =
            Some(part).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()?;
        if part.len() > 2 || number >= bound {
            return None;
        }
        seconds = seconds * 60 + number;
        parts += 1;
    }
    let seconds = match parts {
        2 => seconds * 60,
        3 => seconds,
        _ => return None,
    };
    (text.split(':').count() == parts).then_some(Nanos(seconds * 1_000_000_000))
}

/// Why a text is no timetable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TimetableError {
    /// A rate that is none.
    #[error(transparent)]
    Rate(#[from] QuantityError),
    /// An entry without a time.
    #[error("{word:?} says no time: write each as in 08:00,2gbit or 18:00,off, with blanks between them")]
    NoTime {
        /// The entry.
        word: String,
    },
    /// A time that is none.
    #[error("{given:?} is no time of day: write it as in 08:00 or 23:59:59")]
    Time {
        /// As given.
        given: String,
    },
    /// Two entries of one time.
    #[error("{given} stands twice in the timetable")]
    Twice {
        /// As given.
        given: String,
    },
}

/// From one midnight to the next.
const DAY: Nanos = Nanos(86_400_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(hours: u64) -> Nanos {
        Nanos(hours * 3_600_000_000_000)
    }

    fn rate(bits: u64) -> Option<BitsPerSec> {
        BitsPerSec::new(bits)
    }

    #[test]
    fn a_rate_holds_all_day() {
        let table: Timetable = "2gbit".parse().unwrap();
        assert_eq!([table.at(Nanos::ZERO), table.at(hour(23)), table.greatest()], [rate(2_000_000_000); 3]);
    }

    #[test]
    fn what_began_last_holds_also_past_midnight() {
        let table: Timetable = "18:00,off 08:30,100mbit 12:00:30,1gbit".parse().unwrap();
        assert_eq!(table.at(hour(3)), None);
        assert_eq!(table.at(Nanos(hour(9).0 - 1)), rate(100_000_000));
        assert_eq!(table.at(hour(12)), rate(100_000_000));
        assert_eq!(table.at(hour(13)), rate(1_000_000_000));
        assert_eq!(table.at(hour(18)), None);
        assert_eq!(table.greatest(), None);
        let limited: Timetable = "08:00,1mbit 20:00,5mbit".parse().unwrap();
        assert_eq!((limited.at(hour(1)), limited.greatest()), (rate(5_000_000), rate(5_000_000)));
        // Half of it at either rate, past midnight too, and three days of which half is at the greater one.
        assert_eq!(limited.mean(hour(21), hour(2)), rate(3_000_000));
        assert_eq!(limited.mean(hour(1), hour(2)), rate(5_000_000));
        assert_eq!(limited.mean_of_limited(hour(21), hour(2)), rate(3_000_000));
        // A time without a limit counts for nothing, and for all where there is no other.
        assert_eq!(table.mean_of_limited(hour(19), hour(2)), table.mean(hour(17), hour(1)));
        assert_eq!(table.mean_of_limited(hour(19), hour(1)), None);
        assert_eq!(limited.mean(hour(8), hour(72)), rate(3_000_000));
        assert_eq!(
            [table.mean(hour(17), hour(1)), table.mean(hour(19), hour(2))],
            [rate(1_000_000_000), None]
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("2", "no unit"),
            ("off", "off"),
            ("08:00,2", "no unit"),
            ("24:00,1gbit", "24:00"),
            ("08:60,1gbit", "08:60"),
            ("8,1gbit", "\"8\""),
            ("08:00:00:00,1gbit", "08:00:00:00"),
            ("+8:00,1gbit", "+8:00"),
            ("08:00,1gbit 1gbit", "\"1gbit\" says no time"),
            ("08:00,1gbit 8:00,off", "twice"),
            (",", "\"\""),
        ] {
            let error = text.parse::<Timetable>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
