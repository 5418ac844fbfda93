//! Which blocks of a file with holes may hold something.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A bit for each block. There is memory for those parts of the file alone that anything was said of: how long a file is, is what a peer
/// says of it.
#[derive(Debug)]
pub(super) struct Touched {
    parts: Vec<OnceLock<Part>>,
    /// What the bits are of which nothing was said.
    unsaid: AtomicBool,
}

type Part = Box<[AtomicU64; WORDS]>;

impl Touched {
    /// All of `blocks` blocks, or none.
    pub(super) fn new(blocks: u32, all: bool) -> Self {
        let parts = (0..u64::from(blocks).div_ceil(PART)).map(|_| OnceLock::new()).collect();
        Self { parts, unsaid: AtomicBool::new(all) }
    }

    /// Only those of `blocks`. Nothing else may be said meanwhile.
    pub(super) fn keep(&self, blocks: impl Iterator<Item = u32>) {
        self.unsaid.store(false, Ordering::Relaxed);
        for word in self.parts.iter().filter_map(OnceLock::get).flat_map(|part| part.iter()) {
            word.store(0, Ordering::Relaxed);
        }
        blocks.for_each(|index| {
            self.touch(index.into());
        });
    }

    /// From now on block `index` may; returns whether it might have before.
    pub(super) fn touch(&self, index: u64) -> bool {
        let (part, word, bit) = place(index);
        let fill = if self.unsaid.load(Ordering::Relaxed) { u64::MAX } else { 0 };
        let words = self.parts[part]
            .get_or_init(|| Box::new([const { AtomicU64::new(0) }; WORDS].map(|_| fill.into())));
        words[word].fetch_or(bit, Ordering::Relaxed) & bit != 0
    }

    pub(super) fn is_touched(&self, index: u64) -> bool {
        let (part, word, bit) = place(index);
        self.parts[part].get().map_or_else(
            || self.unsaid.load(Ordering::Relaxed),
            |words| words[word].load(Ordering::Relaxed) & bit != 0,
        )
    }
}

/// Where the bit of block `index` is.
fn place(index: u64) -> (usize, usize, u64) {
    ((index / PART) as usize, (index % PART / 64) as usize, 1 << (index % 64))
}

/// Words of a part: with the file's largest number of blocks, what is kept where nothing was said is a mebibyte.
const WORDS: usize = 512;

/// Blocks of a part.
const PART: u64 = 64 * WORDS as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_touched_once_it_was_and_memory_is_for_those() {
        let touched = Touched::new(u32::MAX, false);
        for index in [0, 63, 64, PART - 1, PART, u64::from(u32::MAX) - 1] {
            assert!(!touched.is_touched(index) && !touched.touch(index));
            assert!(touched.is_touched(index) && touched.touch(index));
        }
        assert!(!touched.is_touched(65) && !touched.is_touched(PART + 1));
        assert_eq!(touched.parts.iter().filter(|part| part.get().is_some()).count(), 3);
    }

    #[test]
    fn of_an_earlier_run_all_are_touched_until_it_was_looked_at() {
        let touched = Touched::new(100_000, true);
        assert!(touched.is_touched(99_999) && touched.touch(5) && touched.is_touched(6));
        touched.keep([7, 70_000].into_iter());
        let found: Vec<_> = (0..100_000).filter(|index| touched.is_touched(*index)).collect();
        assert_eq!(found, [7, 70_000]);
    }
}
