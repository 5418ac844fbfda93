//! BLAKE3 over the blocks of a file, in any order: a block is a subtree, and the subtrees merge to the file's standard digest.
//!
//! The tree is section 2.1 of the BLAKE3 paper: a left subtree is the largest power of two of chunks that leaves something for the right.

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use farlink_wire::entry::Digest;

mod subtrees;

pub use subtrees::Subtrees;

/// BLAKE3 of bytes that come in pieces of any length. The processor's vectors take sixteen chunks at a time, and what is left of a chunk
/// goes by itself, four times as slowly: so short pieces are gathered first.
#[derive(Clone, Debug, Default)]
pub struct Gathering {
    hasher: Hasher,
    /// Less than `GATHERED` bytes.
    held: Vec<u8>,
}

impl Gathering {
    /// Of bytes whose first is that far within a file, a multiple of what a subtree begins at.
    fn at(offset: u64) -> Self {
        let mut hasher = Hasher::new();
        if offset > 0 {
            hasher.set_input_offset(offset);
        }
        Self { hasher, held: Vec::new() }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        if !self.held.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(GATHERED - self.held.len()));
            self.held.extend_from_slice(part);
            bytes = rest;
            if self.held.len() < GATHERED {
                return;
            }
            self.hasher.update(&self.held);
            self.held.clear();
        }
        let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % GATHERED);
        self.hasher.update(whole);
        self.held.extend_from_slice(rest);
    }

    /// With all that came.
    fn all(&self) -> Hasher {
        let mut hasher = self.hasher.clone();
        hasher.update(&self.held);
        hasher
    }

    /// The standard digest of all that came.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest(*self.all().finalize().as_bytes())
    }
}

/// Hashes one block of a file.
#[derive(Clone, Debug)]
pub struct BlockHasher {
    gathering: Gathering,
    whole: bool,
}

impl BlockHasher {
    /// Of block `index` of a file of `size` bytes in blocks of `block_bytes`, a power of two of at least 1024.
    #[must_use]
    pub fn new(size: u64, block_bytes: u64, index: u32) -> Self {
        debug_assert!(block_bytes.is_power_of_two() && block_bytes >= blake3::CHUNK_LEN as u64);
        Self { gathering: Gathering::at(u64::from(index) * block_bytes), whole: size <= block_bytes }
    }

    /// Takes the next bytes of it.
    pub fn update(&mut self, bytes: &[u8]) {
        self.gathering.update(bytes);
    }

    /// Its chaining value; of a file's only block the file's digest.
    #[must_use]
    pub fn finish(&self) -> Digest {
        if self.whole { self.gathering.digest() } else { Digest(self.gathering.all().finalize_non_root()) }
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

/// Sixteen chunks, bytes: one pass of vectors of 512 bits. Bytes that come 1416 at a time were hashed at 0.9 GB/s one by one and at 4.0 so,
/// 8916 at a time at 1.6 and 4.3, where whole megabytes take 4.1; more than 16 KiB brought nothing. See
/// `docs/decisions/2026-11-24-receive-room.md`.
const GATHERED: usize = 16 << 10;

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
    fn pieces_of_any_length_have_the_digest_of_all_of_them() {
        let bytes: Vec<u8> = (0..200_000).map(|at| (at * 31 % 251) as u8).collect();
        for lengths in [[1, 1], [1416, 1416], [8916, 62_412], [16_384, 16_384], [16_383, 2], [40_000, 1]] {
            let (mut gathering, mut rest) = (Gathering::default(), bytes.as_slice());
            for length in lengths.into_iter().cycle() {
                let (piece, behind) = rest.split_at(rest.len().min(length));
                gathering.update(piece);
                // Also before the end.
                if rest.len() > 199_000 || behind.is_empty() {
                    let came = &bytes[..bytes.len() - behind.len()];
                    assert_eq!(gathering.digest(), whole(came), "{lengths:?}, {} bytes", came.len());
                }
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
        }
    }

    #[test]
    fn the_same_bytes_elsewhere_have_another_digest() {
        let zeros = [0; BLOCK as usize];
        assert_ne!(block(3 * BLOCK, BLOCK, 0, &zeros), block(3 * BLOCK, BLOCK, 1, &zeros));
    }
}
