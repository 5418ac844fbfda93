//! Products that will not be stored, and why as far as that is kept.

use std::collections::BTreeMap;
use std::ops::Range;

use farlink_wire::cast::AnnouncementError;
use farlink_wire::message::Text;

use crate::numbers::Numbers;

/// Why a product is not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It has a name or metadata that must not be.
    #[error(transparent)]
    Refused(#[from] AnnouncementError),
    /// Its content has another digest, also after it was sent once more.
    #[error("its content does not have its digest, though it was sent twice")]
    Damaged,
    /// The sender cannot send it any more.
    #[error("the sender cannot send it: {0}")]
    Lost(Text),
    /// This end cannot store it.
    #[error("{0}")]
    Here(Text),
}

/// They are kept as runs: a feed that goes on for months to a disk that is full has many.
#[derive(Clone, Debug, Default)]
pub(super) struct Failed {
    /// Those that the sender said cannot be had.
    lost: Numbers,
    /// Those that this end could not store.
    here: Numbers,
    /// Of the latest of these.
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
        self.reasons.insert(product, reason);
        if self.reasons.len() > MOST_REASONS {
            self.reasons.pop_first();
        }
    }

    /// All of them, as runs.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.lost.ranges().chain(self.here.ranges())
    }

    /// Those from `first` on that the sender is to hear of: the latest with their reasons.
    pub(super) fn here(&self, first: u32) -> impl Iterator<Item = (u32, Text)> {
        let reason = |product: &u32| self.reasons.get(product).cloned().unwrap_or_default();
        self.here.iter_from(first).map(move |product| (product, reason(&product)))
    }
}

/// Reasons that are kept: of as many as may have failed since the sender could last be told.
const MOST_REASONS: usize = 1024;

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
        assert_eq!(failed.ranges().map(|run| run.end - run.start).sum::<u64>(), 100_000);
        assert_eq!((failed.here.runs(), failed.reasons.len()), (100, MOST_REASONS));
        assert_eq!(failed.here(0).count(), 99_900);
        let first = failed.here(50_000).next().unwrap();
        assert_eq!((first.0, first.1.to_string()), (50_001, String::new()));
        let last = failed.here(0).last().unwrap();
        assert_eq!((last.0, last.1.to_string()), (99_999, "the disk is full".to_owned()));
    }
}
