//! Runs of packets in which something was missing, by when they are to be looked at again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use farlink_wire::quantity::Nanos;

/// A run in which something was missing when it was last looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// When it is to be looked at.
    pub(super) at: Nanos,
    /// Of which product.
    pub(super) product: u32,
    /// Its packets.
    pub(super) packets: Range<u64>,
    /// How often they were asked for.
    pub(super) tries: u32,
    /// When last.
    pub(super) asked: Nanos,
}

impl Gap {
    /// One that was not asked for yet.
    const fn new(at: Nanos, product: u32, packets: Range<u64>) -> Self {
        Self { at, product, packets, tries: 0, asked: Nanos::ZERO }
    }
}

/// Gaps of all products.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    /// When, product and first packet; then the packet behind the last, how often it was asked for, and when last.
    due: BTreeMap<(Nanos, u32, u64), (u64, u32, Nanos)>,
    /// The same by product: first packet, and when.
    of: BTreeSet<(u32, u64, Nanos)>,
}

impl Gaps {
    /// When the first is to be looked at.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.due.first_key_value().map(|((at, ..), _)| *at)
    }

    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    /// Whether there is room for none more.
    pub(super) fn is_full(&self) -> bool {
        self.due.len() >= MOST_GAPS
    }

    /// Adds one that was not asked for yet.
    pub(super) fn insert(&mut self, at: Nanos, product: u32, packets: Range<u64>) {
        self.put(Gap::new(at, product, packets));
    }

    /// Adds one; of two that begin together the longer one stays.
    pub(super) fn put(&mut self, gap: Gap) {
        let Gap { at, product, packets, tries, asked } = gap;
        let end = self.due.entry((at, product, packets.start)).or_insert((packets.end, tries, asked));
        end.0 = end.0.max(packets.end);
        self.of.insert((product, packets.start, at));
        self.check();
    }

    /// Takes the first out, where it is due.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<Gap> {
        let entry = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((at, product, start), (end, tries, asked)) = entry.remove_entry();
        self.of.remove(&(product, start, at));
        self.check();
        Some(Gap { at, product, packets: start..end, tries, asked })
    }

    /// Takes all of a product out.
    pub(super) fn forget(&mut self, product: u32) {
        let its = (product, 0, Nanos::ZERO)..=(product, u64::MAX, Nanos::MAX);
        while let Some(&(_, start, at)) = self.of.range(its.clone()).next() {
            self.of.remove(&(product, start, at));
            self.due.remove(&(at, product, start));
        }
        self.check();
    }

    /// The whole of a product is looked at now, and its gaps no longer one by one.
    pub(super) fn replace(&mut self, product: u32, now: Nanos) {
        self.forget(product);
        self.insert(now, product, 0..u64::MAX);
    }

    /// Those of a product that were not asked for yet are looked at now.
    pub(super) fn hurry(&mut self, product: u32) {
        let its = (product, 0, Nanos::ZERO)..=(product, u64::MAX, Nanos::MAX);
        let all: Vec<_> = self.of.range(its).map(|(_, start, at)| (*at, product, *start)).collect();
        for key in all {
            if let Some((end, 0, _)) = self.due.get(&key).copied() {
                self.due.remove(&key);
                self.of.remove(&(product, key.2, key.0));
                self.insert(Nanos::ZERO, product, key.2..end);
            }
        }
    }

    /// All are looked at now, as if for the first time.
    pub(super) fn all_due(&mut self, now: Nanos) {
        self.of.clear();
        let all = std::mem::take(&mut self.due);
        all.into_iter().for_each(|((_, product, start), (end, ..))| self.insert(now, product, start..end));
    }

    /// Those that were asked for before `asked` are looked at now: their answer has come, or will not.
    pub(super) fn answered(&mut self, now: Nanos, asked: Nanos) {
        let late: Vec<_> = self
            .due
            .iter()
            .filter(|((due, ..), (_, tries, at))| *due > now && *tries > 0 && *at < asked)
            .map(|(key, value)| (*key, *value))
            .collect();
        for ((at, product, start), (end, tries, asked)) in late {
            self.due.remove(&(at, product, start));
            self.of.remove(&(product, start, at));
            self.put(Gap { at: now, product, packets: start..end, tries, asked });
        }
    }

    fn check(&self) {
        debug_assert_eq!(self.due.len(), self.of.len());
    }
}

/// Gaps that are remembered: 2 MiB. Those that come after them are found when there is room.
pub(super) const MOST_GAPS: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_found_by_time_and_by_product() {
        let mut gaps = Gaps::default();
        for product in 0..3 {
            gaps.insert(Nanos(30), product, 10..20);
            gaps.insert(Nanos(u64::from(product)), product, 40..50);
        }
        assert_eq!(gaps.due(), Some(Nanos(0)));
        gaps.forget(0);
        gaps.replace(2, Nanos(5));
        let taken = std::iter::from_fn(|| gaps.take_due(Nanos(29)));
        let taken: Vec<_> = taken.map(|gap| (gap.at.0, gap.product, gap.packets)).collect();
        assert_eq!(taken, [(1, 1, 40..50), (5, 2, 0..u64::MAX)]);
        assert_eq!(gaps.due.len(), 1);
        gaps.all_due(Nanos(7));
        assert_eq!(gaps.take_due(Nanos(7)), Some(Gap::new(Nanos(7), 1, 10..20)));
        assert_eq!(gaps.due(), None);
    }

    #[test]
    fn what_was_not_asked_for_yet_may_be_hurried() {
        let mut gaps = Gaps::default();
        gaps.insert(Nanos(50), 1, 1..9);
        gaps.insert(Nanos(50), 2, 1..9);
        gaps.put(Gap { tries: 1, ..Gap::new(Nanos(40), 1, 0..1) });
        gaps.hurry(1);
        assert_eq!(gaps.take_due(Nanos(1)), Some(Gap::new(Nanos::ZERO, 1, 1..9)));
        assert_eq!(gaps.take_due(Nanos(39)), None);
        assert_eq!(gaps.due.len(), 2);
    }

    #[test]
    fn what_was_asked_for_long_enough_ago_is_looked_at_when_it_is_answered() {
        let mut gaps = Gaps::default();
        for (product, tries, asked) in [(0, 0, 0), (1, 1, 3), (2, 2, 8)] {
            gaps.put(Gap { tries, asked: Nanos(asked), ..Gap::new(Nanos(90), product, 0..9) });
        }
        gaps.answered(Nanos(10), Nanos(8));
        assert_eq!(gaps.take_due(Nanos(10)).map(|gap| (gap.product, gap.tries)), Some((1, 1)));
        assert_eq!(gaps.take_due(Nanos(10)), None);
    }
}
