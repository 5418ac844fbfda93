//! Other traffic that takes its share of the link's rate and queue.

use std::fmt;
use std::str::FromStr;

use farlink_wire::quantity::{BitsPerSec, Nanos, QuantityError};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Background traffic as asked for: full-sized packets, evenly spaced, that no congestion slows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// Rate while it sends, framing included.
    pub rate: BitsPerSec,
    /// Mean length of its on and of its off periods, both exponential; `None` sends all the time.
    pub on_off: Option<Nanos>,
}

impl Background {
    /// Its mean rate, bits per second.
    #[must_use]
    pub fn mean_bps(&self) -> u64 {
        if self.on_off.is_some() { self.rate.get() / 2 } else { self.rate.get() }
    }
}

impl fmt::Display for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.on_off {
            None => write!(f, "{}", self.rate),
            Some(period) => write!(f, "{},on-off:{period}", self.rate),
        }
    }
}

/// Why a background was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BackgroundError {
    /// The rate or the period is none.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Not of any form.
    #[error(
        "{text:?} is no background load: write 3gbit, or 3gbit,on-off:100ms (mean length of the periods)"
    )]
    Form {
        /// As given.
        text: String,
    },
    /// Periods in which next to no packet comes.
    #[error(
        "{text:?}: periods must be {least} or longer at that rate, for a packet now and then to come in one"
    )]
    Short {
        /// As given.
        text: String,
        /// The shortest.
        least: Nanos,
    },
}

impl FromStr for Background {
    type Err = BackgroundError;

    fn from_str(text: &str) -> Result<Self, BackgroundError> {
        let form = || BackgroundError::Form { text: text.to_owned() };
        let Some((rate, shape)) = text.split_once(',') else {
            return Ok(Self { rate: text.parse()?, on_off: None });
        };
        let period: Nanos = shape.strip_prefix("on-off:").ok_or_else(form)?.parse()?;
        if period == Nanos::ZERO {
            return Err(form());
        }
        let rate: BitsPerSec = rate.parse()?;
        // Each period is a step, of which a packet may take a thousand.
        let least = SHORTEST_PERIOD.max(Nanos(rate.time_for(1500).0 / 1000));
        if period < least {
            return Err(BackgroundError::Short { text: text.to_owned(), least });
        }
        Ok(Self { rate, on_off: Some(period) })
    }
}

/// The shortest mean length of periods: half a million of them a second take the processor a few milliseconds.
const SHORTEST_PERIOD: Nanos = Nanos(1_000);

/// The traffic as it runs: when the next packet comes.
#[derive(Debug)]
pub(crate) struct Source {
    asked: Background,
    spacing: Nanos,
    next: Nanos,
    /// When the present on period ends.
    off_at: Nanos,
}

impl Source {
    /// Starts at `now` with packets of `wire_len` bytes, framing included.
    pub(crate) fn new(asked: Background, wire_len: u32, now: Nanos, random: &mut Pcg64Mcg) -> Self {
        let spacing = Nanos(asked.rate.time_for(u64::from(wire_len)).0.max(1));
        let off_at = asked.on_off.map_or(Nanos::MAX, |mean| now.after(exponential(mean, random)));
        Self { asked, spacing, next: now, off_at }
    }

    /// The arrival of the next packet, where that is not after `now`.
    pub(crate) fn poll(&mut self, now: Nanos, random: &mut Pcg64Mcg) -> Option<Nanos> {
        while self.next > self.off_at {
            self.pause(self.asked.on_off?, random);
        }
        let at = self.next;
        (at <= now).then(|| {
            self.next = at.after(self.spacing);
            at
        })
    }

    /// Passes over what comes before `until`, but for at most one packet: for spans in which nobody else sends, so that no one
    /// meets it. Gives how many packets that were.
    pub(crate) fn skip(&mut self, until: Nanos, random: &mut Pcg64Mcg) -> u64 {
        let mut passed = 0;
        if let Some(mean) = self.asked.on_off {
            // Of very many periods the mean is known.
            let many = until.since(self.off_at).0.saturating_sub(mean.0.saturating_mul(MOST_PERIODS));
            passed += many / (2 * self.spacing.0);
            (self.next, self.off_at) = (self.next.after(Nanos(many)), self.off_at.after(Nanos(many)));
        }
        while let Some(mean) = self.asked.on_off.filter(|_| self.off_at < until) {
            if self.next <= self.off_at {
                let count = self.off_at.since(self.next).0 / self.spacing.0 + 1;
                self.next = self.next.after(Nanos(count * self.spacing.0));
                passed += count;
            }
            self.pause(mean, random);
        }
        let behind = until.since(self.next).0 / self.spacing.0;
        self.next = self.next.after(Nanos(behind * self.spacing.0));
        passed + behind
    }

    /// The on period is over, and the next packet due in the next one: as long after that begins as it would have been after this one's end.
    fn pause(&mut self, mean: Nanos, random: &mut Pcg64Mcg) {
        let left = self.next.since(self.off_at);
        let on_at = self.off_at.after(exponential(mean, random));
        (self.next, self.off_at) = (on_at.after(left), on_at.after(exponential(mean, random)));
    }
}

/// Periods of on and of off that are passed over one by one.
const MOST_PERIODS: u64 = 10_000;

/// An exponential span of mean `mean`, at least a nanosecond.
fn exponential(mean: Nanos, random: &mut Pcg64Mcg) -> Nanos {
    let uniform: f64 = random.random();
    Nanos(((-(1.0 - uniform).ln() * mean.0 as f64) as u64).max(1))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn bits_in_ten_seconds(text: &str) -> f64 {
        let mut random = Pcg64Mcg::seed_from_u64(11);
        let mut source = Source::new(text.parse().unwrap(), 1538, Nanos::ZERO, &mut random);
        let mut packets = 0u32;
        while source.poll(Nanos(10_000_000_000), &mut random).is_some() {
            packets += 1;
        }
        f64::from(packets) * 1538.0 * 8.0 / 10.0
    }

    #[test]
    fn sends_its_mean_rate() {
        assert!((bits_in_ten_seconds("100mbit") / 100e6 - 1.0).abs() < 1e-3);
        assert!((bits_in_ten_seconds("100mbit,on-off:5ms") / 50e6 - 1.0).abs() < 0.1);
        // Also where a period is shorter than the time from packet to packet, which is 0.12 ms.
        assert!((bits_in_ten_seconds("100mbit,on-off:100us") / 50e6 - 1.0).abs() < 0.02);
        assert!((bits_in_ten_seconds("100mbit,on-off:20us") / 50e6 - 1.0).abs() < 0.02);
    }

    #[test]
    fn a_long_pause_is_passed_over_by_the_mean() {
        let mut random = Pcg64Mcg::seed_from_u64(11);
        let mut source = Source::new("100mbit,on-off:1us".parse().unwrap(), 1538, Nanos::ZERO, &mut random);
        let hours = 100 * 3600 * 1_000_000_000u64;
        let passed = source.skip(Nanos(hours), &mut random) as f64;
        assert!((passed * 1538.0 * 8.0 / (hours as f64 * 1e-9) / 50e6 - 1.0).abs() < 0.01, "{passed}");
        assert!(source.poll(Nanos(hours + 1_000_000_000), &mut random).unwrap().0 + 1_000_000 > hours);
    }

    #[test]
    fn skipping_leaves_it_no_earlier_than_asked_but_for_one_packet() {
        let mut random = Pcg64Mcg::seed_from_u64(11);
        let mut source = Source::new("1gbit".parse().unwrap(), 1538, Nanos::ZERO, &mut random);
        source.skip(Nanos(1_000_000_000), &mut random);
        let at = source.poll(Nanos::MAX, &mut random).unwrap();
        assert!(at.0 > 1_000_000_000 - 12_304 && at.0 <= 1_000_000_000, "{at:?}");
    }

    #[test]
    fn skipping_passes_over_as_many_packets_as_stepping() {
        for text in ["1gbit", "1gbit,on-off:5ms"] {
            let (until, end) = (Nanos(1_000_000_000), Nanos(1_200_000_000));
            let counted = |until: Option<Nanos>| {
                let mut random = Pcg64Mcg::seed_from_u64(3);
                let mut source = Source::new(text.parse().unwrap(), 1538, Nanos::ZERO, &mut random);
                let skipped = until.map_or(0, |until| source.skip(until, &mut random));
                let stepped = std::iter::from_fn(|| source.poll(end, &mut random)).count();
                skipped + stepped as u64
            };
            assert!(counted(None) > 40_000);
            assert_eq!(counted(Some(until)), counted(None), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_load() {
        for (text, least) in [("3gbit,on-off:100ns", "1us"), ("1kbit,on-off:1us", "12ms")] {
            let error = text.parse::<Background>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(least), "{error}");
        }
        for text in ["3", "3gbit,bursts", "3gbit,on-off:0ms", ""] {
            assert!(text.parse::<Background>().is_err(), "{text}");
        }
    }
}
