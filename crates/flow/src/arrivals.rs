//! What a receiver of files has: which blocks of which files, which packs, and whether that is all.

use std::collections::HashMap;

use crate::numbers::Numbers;

/// What a receiver has. Blocks and packs may come in any order, and twice.
///
/// ```text
/// on_file ─► on_block … Last ─► (the file is stored) ─► on_closed
/// on_pack
/// on_total ─► is_complete
/// ```
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    open: HashMap<u32, Blocks>,
    closed: Numbers,
    packs: Numbers,
    total: Option<(u32, u32)>,
}

/// What a block is to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// There was none of this number; others are missing.
    New,
    /// There was none of this number, and no other is missing.
    Last,
    /// It is there already, or its file is no longer open.
    Again,
    /// Its file has no such block, or was never opened.
    Unknown,
}

#[derive(Clone, Debug)]
struct Blocks {
    there: Vec<u64>,
    count: u32,
    missing: u32,
}

impl Arrivals {
    /// A file of `blocks` blocks, at least one; false where it was known.
    pub fn on_file(&mut self, file: u32, blocks: u32) -> bool {
        if self.closed.contains(file) || self.open.contains_key(&file) {
            return false;
        }
        let there = vec![0; blocks.div_ceil(64) as usize];
        self.open.insert(file, Blocks { there, count: blocks, missing: blocks });
        true
    }

    /// A block is written.
    pub fn on_block(&mut self, file: u32, index: u32) -> Block {
        let Some(blocks) = self.open.get_mut(&file) else {
            return if self.closed.contains(file) { Block::Again } else { Block::Unknown };
        };
        if index >= blocks.count {
            return Block::Unknown;
        }
        let (word, bit) = (&mut blocks.there[(index / 64) as usize], 1 << (index % 64));
        if *word & bit != 0 {
            return Block::Again;
        }
        *word |= bit;
        blocks.missing -= 1;
        if blocks.missing == 0 { Block::Last } else { Block::New }
    }

    /// A block that was written is not there after all: it must come again.
    pub fn on_spoiled(&mut self, file: u32, index: u32) {
        let Some(blocks) = self.open.get_mut(&file).filter(|blocks| index < blocks.count) else { return };
        let (word, bit) = (&mut blocks.there[(index / 64) as usize], 1 << (index % 64));
        blocks.missing += u32::from(*word & bit != 0);
        *word &= !bit;
    }

    /// Whether a block is written, or no longer of interest.
    #[must_use]
    pub fn has(&self, file: u32, index: u32) -> bool {
        match self.open.get(&file) {
            Some(blocks) => {
                index < blocks.count && blocks.there[(index / 64) as usize] & (1 << (index % 64)) != 0
            }
            None => self.closed.contains(file),
        }
    }

    /// A file is stored, or never will be; false where that was known.
    pub fn on_closed(&mut self, file: u32) -> bool {
        self.open.remove(&file);
        self.closed.insert(file)
    }

    /// A pack is stored; false where that was known.
    pub fn on_pack(&mut self, pack: u32) -> bool {
        self.packs.insert(pack)
    }

    /// Whether a pack is stored.
    #[must_use]
    pub fn has_pack(&self, pack: u32) -> bool {
        self.packs.contains(pack)
    }

    /// There are so many files and packs.
    pub fn on_total(&mut self, files: u32, packs: u32) {
        self.total = Some((files, packs));
    }

    /// Whether a file was said, and is neither stored nor given up.
    #[must_use]
    pub fn is_open(&self, file: u32) -> bool {
        self.open.contains_key(&file)
    }

    /// Files that are neither stored nor given up.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.open.len()
    }

    /// Blocks of these files, those that are there included.
    #[must_use]
    pub fn open_blocks(&self) -> u64 {
        self.open.values().map(|blocks| u64::from(blocks.count)).sum()
    }

    /// Runs of the numbers of files and packs that are done with: memory is for these. An offer, which is no pack, leaves one out.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.closed.runs() + self.packs.runs()
    }

    /// Whether everything is stored or given up.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.total.is_some_and(|(files, packs)| {
            self.closed.count() >= u64::from(files) && self.packs.count() >= u64::from(packs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_in_any_order_and_twice() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.on_block(1, 0), Block::Unknown);
        assert!(arrivals.on_file(1, 130));
        assert!(!arrivals.on_file(1, 130));
        for index in (1..130).rev() {
            assert_eq!(arrivals.on_block(1, index), Block::New);
            assert_eq!(arrivals.on_block(1, index), Block::Again);
        }
        assert!(!arrivals.has(1, 0) && arrivals.has(1, 129));
        assert_eq!(arrivals.on_block(1, 130), Block::Unknown);
        assert_eq!(arrivals.on_block(1, 0), Block::Last);
        assert!(arrivals.on_closed(1) && !arrivals.on_closed(1));
        assert_eq!(arrivals.on_block(1, 5), Block::Again);
        assert!(!arrivals.on_file(1, 130));
    }

    #[test]
    fn what_the_disk_spoiled_must_come_again() {
        let mut arrivals = Arrivals::default();
        arrivals.on_file(0, 70);
        (0..70).for_each(|index| assert_ne!(arrivals.on_block(0, index), Block::Again));
        // Twice of one, and of one that there is not.
        [68, 3, 68, 70].into_iter().for_each(|index| arrivals.on_spoiled(0, index));
        assert!(!arrivals.has(0, 68) && !arrivals.has(0, 3) && arrivals.has(0, 4));
        assert_eq!(arrivals.on_block(0, 68), Block::New);
        assert_eq!(arrivals.on_block(0, 3), Block::Last);
    }

    #[test]
    fn all_is_there_when_the_total_is() {
        let mut arrivals = Arrivals::default();
        arrivals.on_file(0, 1);
        assert!(arrivals.on_pack(0) && !arrivals.on_pack(0));
        assert!(!arrivals.is_complete());
        arrivals.on_total(2, 1);
        arrivals.on_closed(0);
        assert!(!arrivals.is_complete());
        assert_eq!(arrivals.runs(), 2);
        // Given up before any of it came.
        arrivals.on_closed(1);
        assert!(arrivals.is_complete());
    }
}
