//! How much came in each tenth of a second.

use farlink_wire::quantity::Nanos;

/// Bytes by intervals from the first of them on. Of a session that goes on for long the intervals are longer.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    begun: Option<Nanos>,
    interval: Nanos,
    bytes: Vec<u64>,
}

impl Samples {
    pub(super) const fn new() -> Self {
        Self { begun: None, interval: INTERVAL, bytes: Vec::new() }
    }

    /// So many bytes came.
    pub(super) fn add(&mut self, now: Nanos, bytes: u64) {
        let begun = *self.begun.get_or_insert(now);
        let mut index = now.since(begun).0 / self.interval.0;
        while index >= MOST {
            self.interval = Nanos(2 * self.interval.0);
            self.bytes = self.bytes.chunks(2).map(|pair| pair.iter().sum()).collect();
            index /= 2;
        }
        let index = index as usize;
        if self.bytes.len() <= index {
            self.bytes.resize(index + 1, 0);
        }
        self.bytes[index] += bytes;
    }

    /// When each interval ended, in seconds, and what came in it; the last ended with the transfer, where it took `duration`.
    pub(super) fn of(&self, duration: Option<Nanos>) -> Vec<(f64, u64)> {
        let end = |index: usize| {
            let end = Nanos(self.interval.0 * (index as u64 + 1));
            duration.map_or(end, |duration| end.min(duration)).as_secs_f64()
        };
        self.bytes.iter().enumerate().map(|(index, bytes)| (end(index), *bytes)).collect()
    }
}

/// As that of the records of other transfers.
const INTERVAL: Nanos = Nanos(100_000_000);

/// Intervals of a record: an hour of them, a megabyte of its line.
const MOST: u64 = 36_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_came_is_counted_where_it_came() {
        let mut samples = Samples::new();
        assert_eq!(samples.of(None), []);
        for (at, bytes) in [(1000, 1), (1099, 2), (1100, 4), (1350, 8)] {
            samples.add(Nanos(at * MS), bytes);
        }
        assert_eq!(samples.of(None), [(0.1, 3), (0.2, 4), (0.3, 0), (0.4, 8)]);
        assert_eq!(samples.of(Some(Nanos(360 * MS))).last(), Some(&(0.36, 8)));
    }

    #[test]
    fn a_long_session_has_longer_intervals_and_no_more_of_them() {
        let mut samples = Samples::new();
        let hours = 30;
        for second in 0..hours * 3600 {
            samples.add(Nanos(second * 1000 * MS), 1);
        }
        let all = samples.of(None);
        assert!(all.len() as u64 <= MOST);
        assert_eq!(all.iter().map(|(_, bytes)| bytes).sum::<u64>(), hours * 3600);
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!((all.last().unwrap().0 - (hours * 3600) as f64).abs() < 10.0);
    }
}
