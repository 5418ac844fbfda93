//! Products that will not be stored, and why as far as that is kept.

use std::collections::BTreeMap;

use farlink_wire::message::Text;

use crate::numbers::Numbers;

/// They are kept as runs: a feed that goes on for months to a disk that is full has many.
#[derive(Clone, Debug, Default)]
pub(super) struct Failed {
    /// Those that the sender said cannot be had.
    lost: Numbers,
    /// Those that this end could not store.
    here: Numbers,
    reasons: BTreeMap<u32, Text>,
}

impl Failed {
    /// The sender cannot send it.
    pub(super) fn lose(&mut self, product: u32) {
        self.lost.insert(product);
    }

    /// This end cannot store it.
    pub(super) fn insert(&mut self, product: u32, reason: Text) {
        self.here.insert(product);
        if self.reasons.len() < MOST_REASONS {
            self.reasons.insert(product, reason);
        }
    }

    pub(super) fn contains(&self, product: u32) -> bool {
        self.lost.contains(product) || self.here.contains(product)
    }

    /// Those that the sender is to hear of, each with its reason.
    pub(super) fn here(&self) -> impl Iterator<Item = (u32, Text)> {
        self.here.iter().map(|product| (product, self.reasons.get(&product).cloned().unwrap_or_default()))
    }
}

/// Reasons that are kept.
const MOST_REASONS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_full_for_months_takes_no_more_memory_than_for_a_day() {
        let mut failed = Failed::default();
        for product in 0..100_000 {
            if product % 1000 == 0 {
                failed.lose(product);
            } else {
                failed.insert(product, Text::from("the disk is full".to_owned()));
            }
        }
        assert!(failed.contains(0) && failed.contains(99_999) && !failed.contains(100_000));
        assert_eq!((failed.here.runs(), failed.reasons.len()), (100, MOST_REASONS));
        assert_eq!(failed.here().count(), 99_900);
        let first = failed.here().next().unwrap();
        assert_eq!((first.0, first.1.to_string()), (1, "the disk is full".to_owned()));
    }
}
