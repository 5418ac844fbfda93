//! BLAKE3 over the blocks of a file, in any order: a block is a subtree, and the subtrees merge to the file's standard digest.
//!
//! The tree is section 2.1 of the BLAKE3 paper: a left subtree is the largest power of two of chunks that leaves something for the right.

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use farlink_wire::entry::Digest;

/// Hashes one block of a file.
#[derive(Clone, Debug)]
pub struct BlockHasher {
    hasher: Hasher,
    whole: bool,
}

impl BlockHasher {
    /// Of block `index` of a file of `size` bytes in blocks of `block_bytes`, a power of two of at least 1024.
    #[must_use]
    pub fn new(size: u64, block_bytes: u64, index: u32) -> Self {
        debug_assert!(block_bytes.is_power_of_two() && block_bytes >= blake3::CHUNK_LEN as u64);
        let mut hasher = Hasher::new();
        let offset = u64::from(index) * block_bytes;
        if offset > 0 {
            hasher.set_input_offset(offset);
        }
        Self { hasher, whole: size <= block_bytes }
    }

    /// Takes the next bytes of it.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Its chaining value; of a file's only block the file's digest.
    #[must_use]
    pub fn finish(&self) -> Digest {
        if self.whole {
            Digest(*self.hasher.finalize().as_bytes())
        } else {
            Digest(self.hasher.finalize_non_root())
        }
    }
}

/// Of all `bytes` of block `index`.
#[must_use]
pub fn block(size: u64, block_bytes: u64, index: u32, bytes: &[u8]) -> Digest {
    let mut hasher = BlockHasher::new(size, block_bytes, index);
    hasher.update(bytes);
    hasher.finish()
}

/// The standard digest of a small file.
#[must_use]
pub fn whole(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// The standard digest of a file whose blocks have `digests`, in their order. `None` where there are none.
#[must_use]
pub fn root(digests: &[Digest]) -> Option<Digest> {
    match digests {
        [] => None,
        [only] => Some(*only),
        several => {
            let (left, right) = several.split_at(left_blocks(several.len()));
            Some(Digest(*merge_subtrees_root(&merged(left), &merged(right), Mode::Hash).as_bytes()))
        }
    }
}

fn merged(digests: &[Digest]) -> [u8; 32] {
    match digests {
        [only] => only.0,
        several => {
            let (left, right) = several.split_at(left_blocks(several.len()));
            merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
        }
    }
}

/// Blocks of the left subtree of `count`, at least two: the largest power of two below it.
fn left_blocks(count: usize) -> usize {
    count.next_power_of_two() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    #[test]
    fn blocks_in_any_order_merge_to_the_standard_digest() {
        for size in [1usize, 1023, 1024, 4095, 4096, 4097, 8192, 12_288, 50_000, 65_536, 65_537, 200_000] {
            let bytes: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
            let blocks: Vec<_> = bytes.chunks(BLOCK as usize).enumerate().collect();
            let mut digests = vec![Digest::default(); blocks.len()];
            for (index, bytes) in blocks.into_iter().rev() {
                digests[index] = block(size as u64, BLOCK, index as u32, bytes);
            }
            assert_eq!(root(&digests), Some(whole(&bytes)), "{size} bytes");
        }
        assert_eq!(root(&[]), None);
    }

    #[test]
    fn the_same_bytes_elsewhere_have_another_digest() {
        let zeros = [0; BLOCK as usize];
        assert_ne!(block(3 * BLOCK, BLOCK, 0, &zeros), block(3 * BLOCK, BLOCK, 1, &zeros));
    }
}
