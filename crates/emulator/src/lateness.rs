//! How late packets left against when they were due: whether the emulator kept up.

use farlink_wire::quantity::Nanos;

/// Counts by lateness: 16 buckets an octave, so that a bucket's bounds lie 6% apart at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lateness {
    counts: Vec<u64>,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS] }
    }
}

impl Lateness {
    /// Counts one packet that left `late` after it was due.
    pub fn count(&mut self, late: Nanos) {
        self.counts[bucket(late.0)] += 1;
    }

    /// The counts that are not zero, each with its bucket's upper bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(index, count)| (Nanos(upper(index)), *count))
    }
}

/// Lateness above which a run says more of the emulator than of the connection: 0.25 ms or 1% of the
/// one-way delay, whichever is more.
#[must_use]
pub fn overrun_limit(one_way: Nanos) -> Nanos {
    Nanos((one_way.0 / 100).max(250_000))
}

fn bucket(nanos: u64) -> usize {
    let units = nanos / UNIT;
    if units < SUB {
        return units as usize;
    }
    let octave = units.ilog2() - SUB.ilog2();
    let index = u64::from(octave) * SUB + (units >> octave);
    (index as usize).min(BUCKETS - 1)
}

fn upper(index: usize) -> u64 {
    let index = index as u64;
    let (octave, units) = if index < 2 * SUB { (0, index) } else { (index / SUB - 1, index % SUB + SUB) };
    ((units + 1) << octave) * UNIT
}

/// The finest difference: 100 ns.
const UNIT: u64 = 100;
const SUB: u64 = 16;
/// Up to 100 ns × 2^31: more than three minutes.
const BUCKETS: usize = 28 * SUB as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_below_its_bound_and_not_below_the_one_before() {
        for nanos in
            [0, 99, 100, 1599, 1600, 3199, 3200, 250_000, 250_001, 1_000_000, 366_000_000, 10_000_000_000]
        {
            let index = bucket(nanos);
            assert!(nanos < upper(index), "{nanos} in {index}");
            assert!(index == 0 || nanos >= upper(index - 1), "{nanos} in {index}");
            assert!(upper(index) as f64 <= (nanos as f64).max(1600.0) * 1.07, "{nanos}: {}", upper(index));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn counts_what_was_counted() {
        let mut lateness = Lateness::default();
        [10, 20, 5000].into_iter().for_each(|nanos| lateness.count(Nanos(nanos)));
        let buckets: Vec<_> = lateness.buckets().collect();
        assert_eq!(buckets, [(Nanos(100), 2), (Nanos(upper(bucket(5000))), 1)]);
    }

    #[test]
    fn the_limit_grows_with_the_delay() {
        assert_eq!(overrun_limit(Nanos(200_000)), Nanos(250_000));
        assert_eq!(overrun_limit(Nanos(183_000_000)), Nanos(1_830_000));
    }
}
