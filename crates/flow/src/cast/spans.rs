//! A set of packets as runs: what one receiver waits for.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers as runs, which neither touch nor overlap.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// First of each, and the one behind its last.
    runs: BTreeMap<u64, u64>,
    total: u64,
}

impl Spans {
    /// How many numbers are in it.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// How many runs they are.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds what of `range` is not in it.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        let first = self.runs.range(..start).next_back().filter(|(_, stop)| **stop >= start);
        let from = first.map_or(start, |(&first, _)| first);
        let joined: Vec<_> = self.runs.range(from..=end).map(|(&first, &stop)| (first, stop)).collect();
        for (first, stop) in joined {
            self.runs.remove(&first);
            self.total -= stop - first;
            start = start.min(first);
            end = end.max(stop);
        }
        self.runs.insert(start, end);
        self.total += end - start;
        self.check();
    }

    /// What of `range` is not in it, in order.
    #[must_use]
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut missing, mut from) = (Vec::new(), range.start);
        let before = self.runs.range(..range.start).next_back();
        for (start, end) in before.into_iter().chain(self.runs.range(range.clone())) {
            missing.push(from..*start);
            from = from.max(*end);
        }
        missing.push(from..range.end);
        missing.retain(|run| !run.is_empty());
        missing
    }

    /// Whether `number` is in it.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        self.runs.range(..=number).next_back().is_some_and(|(_, end)| *end > number)
    }

    /// The runs, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs.iter().map(|(start, end)| *start..*end)
    }

    /// Takes what of `range` is in it out, and says how many numbers that were.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let before = self.runs.range(..range.start).next_back().filter(|(_, end)| **end > range.start);
        let from = before.map_or(range.start, |(start, _)| *start);
        let cut: Vec<_> = self.runs.range(from..range.end).map(|(start, end)| *start..*end).collect();
        let total = self.total;
        for run in cut {
            self.runs.remove(&run.start);
            self.total -= run.end - run.start;
            for rest in [run.start..range.start.min(run.end), range.end.max(run.start)..run.end] {
                if !rest.is_empty() {
                    self.total += rest.end - rest.start;
                    self.runs.insert(rest.start, rest.end);
                }
            }
        }
        self.check();
        total - self.total
    }

    /// Takes the first run out, or its first `most` numbers.
    pub fn pop(&mut self, most: u64) -> Option<Range<u64>> {
        let (start, end) = self.runs.pop_first()?;
        let cut = end.min(start.saturating_add(most));
        if cut < end {
            self.runs.insert(cut, end);
        }
        self.total -= cut - start;
        self.check();
        Some(start..cut)
    }

    fn check(&self) {
        let sum = || self.runs.iter().map(|(start, end)| end - start).sum::<u64>();
        debug_assert!(self.runs.len() > 100 || self.total == sum());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_taken_out_is_in_it_no_more(
            ranges in proptest::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 0..40),
        ) {
            let (mut ours, mut theirs) = (Spans::default(), BTreeSet::new());
            for (adds, start, len) in ranges {
                if adds {
                    ours.insert(start..start + len);
                    theirs.extend(start..start + len);
                } else {
                    let there = (start..start + len).filter(|at| theirs.remove(at)).count() as u64;
                    prop_assert_eq!(ours.remove(start..start + len), there);
                }
                prop_assert_eq!(ours.total(), theirs.len() as u64);
                prop_assert_eq!(ours.iter().flatten().collect::<BTreeSet<_>>(), theirs.clone());
                prop_assert!((0..80).all(|at| ours.contains(at) == theirs.contains(&at)));
            }
        }

        #[test]
        fn it_is_a_set(
            ranges in proptest::collection::vec((0u64..60, 0u64..12), 0..30),
            most in prop_oneof![1u64..9, Just(u64::MAX)],
        ) {
            let (mut ours, mut theirs) = (Spans::default(), BTreeSet::new());
            for (start, len) in ranges {
                ours.insert(start..start + len);
                theirs.extend(start..start + len);
                prop_assert_eq!(ours.total(), theirs.len() as u64);
                let touching = ours.runs.iter().zip(ours.runs.keys().skip(1)).any(|((_, end), next)| end >= next);
                prop_assert!(!touching, "{:?}", ours);
                let missing: Vec<_> = ours.missing(20..50).into_iter().flatten().collect();
                prop_assert_eq!(missing, (20..50).filter(|at| !theirs.contains(at)).collect::<Vec<_>>());
            }
            let mut popped = Vec::new();
            while let Some(run) = ours.pop(most) {
                prop_assert!(run.end - run.start <= most);
                popped.extend(run);
            }
            prop_assert_eq!(popped, theirs.into_iter().collect::<Vec<_>>());
            prop_assert!(ours.is_empty() && ours.total() == 0);
        }
    }
}
