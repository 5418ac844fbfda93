//! A set of numbers that are mostly given out and mostly come back in order: as runs, it stays small.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, kept as runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// First of each run, and the one behind its last; runs neither touch nor overlap.
    runs: BTreeMap<u32, u64>,
    count: u64,
}

impl Numbers {
    /// Adds `number`; false where it is there already.
    pub fn insert(&mut self, number: u32) -> bool {
        let (mut start, mut end) = (number, u64::from(number) + 1);
        if let Some((&before, &stop)) = self.runs.range(..=number).next_back() {
            if stop > u64::from(number) {
                return false;
            }
            if stop == u64::from(number) {
                start = before;
            }
        }
        if let Some(stop) = u32::try_from(end).ok().and_then(|next| self.runs.remove(&next)) {
            end = stop;
        }
        self.runs.insert(start, end);
        self.count += 1;
        self.check();
        true
    }

    /// Whether `number` is in it.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        self.runs.range(..=number).next_back().is_some_and(|(_, &stop)| stop > u64::from(number))
    }

    /// The runs that it is kept as, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs.iter().map(|(first, stop)| u64::from(*first)..*stop)
    }

    /// All from `first` on that are in it, in order.
    pub fn iter_from(&self, first: u32) -> impl Iterator<Item = u32> {
        self.ranges().flat_map(move |run| run.start.max(first.into())..run.end).map(|number| number as u32)
    }

    /// How many runs it is kept as: memory is for these.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// How many are in it.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    fn check(&self) {
        debug_assert_eq!(
            self.runs.iter().map(|(first, stop)| stop - u64::from(*first)).sum::<u64>(),
            self.count,
            "runs hold as many as were added"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(numbers in proptest::collection::vec(prop_oneof![0u32..40, Just(u32::MAX), Just(u32::MAX - 1)], 0..80)) {
            let (mut ours, mut theirs) = (Numbers::default(), HashSet::new());
            for number in numbers {
                prop_assert_eq!(ours.insert(number), theirs.insert(number));
                prop_assert_eq!(ours.count(), theirs.len() as u64);
            }
            prop_assert_eq!(ours.iter_from(0).collect::<HashSet<_>>(), theirs.clone());
            prop_assert!(ours.iter_from(0).is_sorted());
            let later = theirs.iter().filter(|number| **number >= 20).count();
            prop_assert_eq!(ours.iter_from(20).count(), later);
            prop_assert_eq!(ours.ranges().map(|run| run.end - run.start).sum::<u64>(), ours.count());
            for number in (0..45).chain([u32::MAX, u32::MAX - 1, u32::MAX - 2]) {
                prop_assert_eq!(ours.contains(number), theirs.contains(&number));
            }
        }
    }

    #[test]
    fn numbers_in_order_are_one_run() {
        let mut numbers = Numbers::default();
        assert!((0..1000).chain(1001..2000).all(|number| numbers.insert(number)));
        assert_eq!(numbers.runs(), 2);
        assert!(numbers.insert(1000));
        assert_eq!((numbers.runs(), numbers.count()), (1, 2000));
    }
}
