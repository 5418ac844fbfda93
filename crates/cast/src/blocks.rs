//! The digest of a product whose bytes come in any order, block by block.

use std::collections::BTreeMap;

use farlink_flow::digest::{BlockHasher, root, whole};
use farlink_wire::entry::Digest;

/// Which bytes of which blocks came, and the digests of those that are whole.
///
/// Bytes that come in order within their block are hashed at once. A block of which some come behind a hole is read again when it is whole.
#[derive(Debug)]
pub(crate) struct Blocks {
    size: u64,
    block: u64,
    digests: Vec<Option<Digest>>,
    begun: BTreeMap<u32, Begun>,
}

#[derive(Debug)]
struct Begun {
    /// Of all that came, as long as that was in order: with loss most blocks of a large file may be begun.
    hasher: Option<Box<BlockHasher>>,
    /// Bytes that came.
    came: u64,
}

/// A block that has become whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Which.
    pub(crate) index: u32,
    /// Its digest; `None` where it must be read again, and [`Blocks::set`].
    pub(crate) digest: Option<Digest>,
}

impl Blocks {
    /// Of `size` bytes in blocks of `block`, a power of two of at least 1024.
    pub(crate) fn new(size: u64, block: u64) -> Self {
        let count = size.div_ceil(block) as usize;
        Self { size, block, digests: vec![None; count], begun: BTreeMap::new() }
    }

    /// Bytes came that had not come before.
    pub(crate) fn take(&mut self, mut at: u64, mut bytes: &[u8]) -> Vec<Whole> {
        let mut finished = Vec::new();
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(self.within_block(at, bytes.len()));
            if !self.is_whole(at) {
                finished.extend(self.add(at, part));
            }
            at += part.len() as u64;
            bytes = rest;
        }
        finished
    }

    /// How many of the `length` bytes at `at` are in the block of the first.
    pub(crate) fn within_block(&self, at: u64, length: usize) -> usize {
        length.min((self.block - at % self.block) as usize)
    }

    /// Whether a block ends before this byte.
    pub(crate) const fn is_end(&self, at: u64) -> bool {
        at.is_multiple_of(self.block) || at == self.size
    }

    /// Whether the block of a byte is whole.
    pub(crate) fn is_whole(&self, at: u64) -> bool {
        self.digests.get((at / self.block) as usize).is_none_or(Option::is_some)
    }

    fn add(&mut self, at: u64, part: &[u8]) -> Option<Whole> {
        let (size, block) = (self.size, self.block);
        let (index, at) = ((at / block) as u32, at % block);
        let (from, end) = self.span(index);
        let length = end - from;
        let begun = self.begun.entry(index).or_insert_with(|| Begun {
            hasher: Some(Box::new(BlockHasher::new(size, block, index))),
            came: 0,
        });
        match &mut begun.hasher {
            Some(hasher) if at == begun.came => hasher.update(part),
            hasher => *hasher = None,
        }
        begun.came += part.len() as u64;
        if begun.came < length {
            return None;
        }
        let begun = self.begun.remove(&index)?;
        let digest = begun.hasher.map(|hasher| hasher.finish());
        if let Some(digest) = digest {
            self.set(index, digest);
        }
        Some(Whole { index, digest })
    }

    /// A block is whole, and has this digest.
    pub(crate) fn set(&mut self, index: u32, digest: Digest) {
        if let Some(place) = self.digests.get_mut(index as usize) {
            *place = Some(digest);
        }
    }

    /// First byte of a block, and the one behind it.
    pub(crate) fn span(&self, index: u32) -> (u64, u64) {
        let from = u64::from(index) * self.block;
        (from, (from + self.block).min(self.size))
    }

    /// One that hashes a whole block.
    pub(crate) fn hasher(&self, index: u32) -> BlockHasher {
        BlockHasher::new(self.size, self.block, index)
    }

    /// The digest of all, once all blocks are whole.
    pub(crate) fn digest(&self) -> Option<Digest> {
        if self.digests.is_empty() {
            return Some(whole(&[]));
        }
        root(&self.digests.iter().copied().collect::<Option<Vec<_>>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of `content` in pieces of `piece` bytes, in this order.
    fn digest(content: &[u8], piece: usize, order: &[usize]) -> Option<Digest> {
        let mut blocks = Blocks::new(content.len() as u64, 1024);
        for index in order {
            let from = index * piece;
            let bytes = &content[from..content.len().min(from + piece)];
            for finished in blocks.take(from as u64, bytes) {
                if finished.digest.is_none() {
                    let (from, end) = blocks.span(finished.index);
                    let mut hasher = blocks.hasher(finished.index);
                    hasher.update(&content[from as usize..end as usize]);
                    blocks.set(finished.index, hasher.finish());
                }
            }
        }
        blocks.digest()
    }

    #[test]
    fn pieces_in_any_order_have_the_standard_digest() {
        let content: Vec<u8> = (0..10_007_u32).map(|at| (at * 7 + at / 256) as u8).collect();
        let expected = Some(whole(&content));
        let count = content.len().div_ceil(700);
        let forward: Vec<_> = (0..count).collect();
        let backward: Vec<_> = (0..count).rev().collect();
        let mixed: Vec<_> = (0..count).map(|at| at * 4 % count).collect();
        assert_eq!(mixed.iter().collect::<std::collections::BTreeSet<_>>().len(), count);
        for order in [&forward, &backward, &mixed] {
            assert_eq!(digest(&content, 700, order), expected);
        }
        assert_eq!(digest(&content, 700, &forward[1..]), None);
        assert_eq!(digest(&[], 700, &[]), Some(whole(&[])));
    }

    #[test]
    fn a_block_with_a_hole_keeps_no_hasher() {
        let mut blocks = Blocks::new(4096, 1024);
        assert!(blocks.take(0, &[1; 100]).is_empty() && blocks.take(1024 + 100, &[1; 100]).is_empty());
        assert!(blocks.take(2048, &[1; 100]).is_empty() && blocks.take(2048 + 200, &[1; 100]).is_empty());
        assert_eq!([0, 1, 2].map(|index| blocks.begun[&index].hasher.is_some()), [true, false, false]);
        let whole = |blocks: &mut Blocks, at, count: usize| blocks.take(at, &vec![1; count])[0].digest;
        assert!(whole(&mut blocks, 100, 924).is_some(), "in order");
        blocks.take(1024 + 200, &[1; 824]);
        assert_eq!(whole(&mut blocks, 1024, 100), None);
    }
}
