//! BLAKE3 over a file whose bytes come in any order, and are kept nowhere: what is whole is hashed, and siblings merge.

use std::collections::BTreeMap;

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use farlink_wire::entry::Digest;

use super::whole;

/// Which bytes of a file came, and the digests of its subtrees that are whole.
///
/// A leaf, 8 KiB, of which a part is missing is kept until it is whole; of everything else a digest is. Bytes in order take room
/// for as many digests as the tree is high, and each hole for a leaf at its either end and as many again.
#[derive(Debug)]
pub struct Subtrees {
    size: u64,
    /// By their first byte: none has a sibling of its span beside it, but for the root's children.
    there: BTreeMap<u64, Subtree>,
    /// By their first byte.
    begun: BTreeMap<u64, Begun>,
}

#[derive(Clone, Copy, Debug)]
struct Subtree {
    /// Bytes that it would have were the file endless: a power of two, a leaf's at least.
    span: u64,
    digest: [u8; 32],
}

/// A leaf of which something came.
#[derive(Debug)]
struct Begun {
    bytes: Box<[u8]>,
    came: usize,
}

impl Subtrees {
    /// Of a file of `size` bytes, of which nothing came.
    #[must_use]
    pub const fn new(size: u64) -> Self {
        Self { size, there: BTreeMap::new(), begun: BTreeMap::new() }
    }

    /// Bytes came, of which none had come before. They are hashed fastest where they begin and end between leaves, several at a time.
    pub fn take(&mut self, mut at: u64, mut bytes: &[u8]) {
        debug_assert!(at + bytes.len() as u64 <= self.size, "{} bytes at {at} of {}", bytes.len(), self.size);
        while !bytes.is_empty() {
            let length = self.whole_at(at, bytes.len());
            let (part, rest) = bytes.split_at(length.unwrap_or_else(|| self.within_leaf(at, bytes.len())));
            match length {
                Some(_) => self.hash(at, part),
                None => self.begin(at, part),
            }
            at += part.len() as u64;
            bytes = rest;
        }
    }

    /// The standard digest of the file, once everything came.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        if self.size == 0 {
            return Some(whole(&[]));
        }
        let mut end = 0;
        for (from, subtree) in &self.there {
            if *from != end {
                return None;
            }
            end += subtree.span;
        }
        if end < self.size {
            return None;
        }
        let mut from_right = self.there.values().rev();
        let mut digest = from_right.next()?.digest;
        let mut left = from_right.next();
        while let Some(subtree) = left {
            left = from_right.next();
            digest = match left {
                Some(_) => merge_subtrees_non_root(&subtree.digest, &digest, Mode::Hash),
                None => *merge_subtrees_root(&subtree.digest, &digest, Mode::Hash).as_bytes(),
            };
        }
        Some(Digest(digest))
    }

    /// How many of `length` bytes at `at` are the largest whole subtree that begins there, and is not all of a file of several leaves.
    fn whole_at(&self, at: u64, length: usize) -> Option<usize> {
        let end = at + length as u64;
        let is_whole = |span: u64| at.is_multiple_of(span) && (at + span).min(self.size) <= end;
        if !is_whole(LEAF) {
            return None;
        }
        let mut span = LEAF;
        // What ends with the file within a subtree has another shape than one.
        while is_whole(2 * span) && at + 2 * span <= self.size && 2 * span < self.size {
            span *= 2;
        }
        Some((span.min(self.size - at)) as usize)
    }

    /// How many of `length` bytes at `at` are of the leaf of the first.
    fn within_leaf(&self, at: u64, length: usize) -> usize {
        length.min((LEAF - at % LEAF) as usize)
    }

    /// A part of a leaf came.
    fn begin(&mut self, at: u64, part: &[u8]) {
        let (from, offset) = (at - at % LEAF, (at % LEAF) as usize);
        let length = LEAF.min(self.size - from) as usize;
        let begun = self
            .begun
            .entry(from)
            .or_insert_with(|| Begun { bytes: vec![0; length].into_boxed_slice(), came: 0 });
        begun.bytes[offset..offset + part.len()].copy_from_slice(part);
        begun.came += part.len();
        if begun.came == length
            && let Some(leaf) = self.begun.remove(&from)
        {
            self.hash(from, &leaf.bytes);
        }
    }

    /// A subtree is whole.
    fn hash(&mut self, from: u64, bytes: &[u8]) {
        if self.size <= LEAF {
            let Digest(digest) = whole(bytes);
            self.there.insert(0, Subtree { span: LEAF, digest });
            return;
        }
        let mut hasher = Hasher::new();
        if from > 0 {
            hasher.set_input_offset(from);
        }
        let digest = hasher.update(bytes).finalize_non_root();
        let span = (bytes.len() as u64).next_power_of_two().max(LEAF);
        self.merge(from, Subtree { span, digest });
    }

    /// Puts a subtree to the others, and two that are siblings together, up to the root's children.
    fn merge(&mut self, mut from: u64, mut subtree: Subtree) {
        loop {
            let span = subtree.span;
            let is_left = from.is_multiple_of(2 * span);
            let sibling = if is_left { from + span } else { from - span };
            let is_root = from.min(sibling) == 0 && 2 * span >= self.size;
            let other = match self.there.get(&sibling) {
                Some(other) if other.span == span && !is_root => other.digest,
                _ => {
                    self.there.insert(from, subtree);
                    return;
                }
            };
            self.there.remove(&sibling);
            let (left, right) = if is_left { (&subtree.digest, &other) } else { (&other, &subtree.digest) };
            let digest = merge_subtrees_non_root(left, right, Mode::Hash);
            (from, subtree) = (from.min(sibling), Subtree { span: 2 * span, digest });
        }
    }
}

/// Bytes of a leaf: some of a packet's.
const LEAF: u64 = 8 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at * 31 % 251) as u8).collect()
    }

    /// The digest of `content` whose pieces, cut at these places, come in this order.
    fn digest(content: &[u8], cuts: &[usize], order: &[usize]) -> Subtrees {
        let mut subtrees = Subtrees::new(content.len() as u64);
        let ends = cuts.iter().copied().chain([content.len()]);
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        let pieces: Vec<_> = starts.zip(ends).collect();
        for (came, index) in order.iter().enumerate() {
            let (from, end) = pieces[*index];
            // Also before the end: nothing is taken for the whole.
            assert!(from == end || came == 0 || subtrees.digest().is_none());
            subtrees.take(from as u64, &content[from..end]);
        }
        subtrees
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_have_the_standard_digest(
            size in prop_oneof![0usize..40_000, (0usize..40).prop_map(|leaves| leaves * LEAF as usize), 0usize..300_000],
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..30),
            seed in any::<u64>(),
        ) {
            let content = content(size);
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(size + 1)).collect();
            cuts.sort_unstable();
            let mut order: Vec<_> = (0..=cuts.len()).collect();
            order.sort_by_key(|index| (*index as u64 + 1).wrapping_mul(seed | 1));
            let last = order.iter().rposition(|index| {
                let from = index.checked_sub(1).map_or(0, |before| cuts[before]);
                from < cuts.get(*index).copied().unwrap_or(size)
            });
            // Empty pieces behind the last one that is not bring nothing.
            order.truncate(last.map_or(1, |last| last + 1));
            let subtrees = digest(&content, &cuts, &order);
            prop_assert_eq!(subtrees.digest(), Some(whole(&content)));
            prop_assert!(subtrees.begun.is_empty());
        }
    }

    #[test]
    fn however_large_a_file_is_its_last_byte_takes_a_leaf() {
        for size in [1, LEAF + 1, 1 << 33, (1 << 33) + 1, 1 << 40, (1 << 47) - 1] {
            let mut subtrees = Subtrees::new(size);
            subtrees.take(size - 1, &[7]);
            assert_eq!(subtrees.there.len() + subtrees.begun.len(), 1);
            assert_eq!(subtrees.digest(), (size == 1).then(|| whole(&[7])), "{size}");
        }
    }

    #[test]
    fn what_comes_in_order_takes_no_room_and_what_is_missing_little() {
        let size = 1 << 24;
        let content = content(size);
        let mut subtrees = Subtrees::new(size as u64);
        let pieces: Vec<_> = content.chunks(8916).enumerate().collect();
        let lost = |index: usize| index % 100 == 7;
        for (index, piece) in pieces.iter().filter(|(index, _)| !lost(*index)) {
            subtrees.take((index * 8916) as u64, piece);
        }
        let holes = pieces.iter().filter(|(index, _)| lost(*index)).count();
        assert!(subtrees.begun.len() <= 2 * holes, "{} leaves", subtrees.begun.len());
        assert!(subtrees.there.len() <= 24 * (holes + 1), "{} subtrees", subtrees.there.len());
        assert_eq!(subtrees.digest(), None);
        for (index, piece) in pieces.iter().filter(|(index, _)| lost(*index)) {
            subtrees.take((index * 8916) as u64, piece);
        }
        assert_eq!(subtrees.digest(), Some(whole(&content)));
        // The root's children.
        assert_eq!((subtrees.there.len(), subtrees.begun.len()), (2, 0));
    }
}
