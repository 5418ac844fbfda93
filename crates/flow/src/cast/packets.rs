//! Which packets of a product are there: in order it takes no memory, out of order a bit a packet.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of the packets of one product.
#[derive(Clone, Debug)]
pub struct Packets {
    count: u64,
    there: u64,
    /// All before this one are there, and this one is not.
    below: u64,
    /// What is there behind it, by chunks of [`CHUNK`]; a chunk without packets has no entry.
    chunks: BTreeMap<u64, Box<[u64; WORDS]>>,
}

impl Packets {
    /// None, of `count`.
    #[must_use]
    pub const fn new(count: u64) -> Self {
        Self { count, there: 0, below: 0, chunks: BTreeMap::new() }
    }

    /// How many there can be.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// How many are there.
    #[must_use]
    pub const fn there(&self) -> u64 {
        self.there
    }

    /// Whether all are there.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.there == self.count
    }

    /// Adds a packet, below the count; false where it is there already.
    pub fn insert(&mut self, index: u64) -> bool {
        debug_assert!(index < self.count, "packet {index} of {}", self.count);
        if self.contains(index) {
            return false;
        }
        self.there += 1;
        if index == self.below && self.chunks.is_empty() {
            self.below += 1;
            return true;
        }
        let words = self.chunks.entry(index / CHUNK).or_insert_with(|| Box::new([0; WORDS]));
        words[(index % CHUNK / 64) as usize] |= 1 << (index % 64);
        if index == self.below {
            self.advance();
        }
        true
    }

    /// Whether a packet is there.
    #[must_use]
    pub fn contains(&self, index: u64) -> bool {
        index < self.below
            || self
                .chunks
                .get(&(index / CHUNK))
                .is_some_and(|words| words[(index % CHUNK / 64) as usize] & (1 << (index % 64)) != 0)
    }

    /// The first run of packets within `range` that are not there.
    #[must_use]
    pub fn missing(&self, range: Range<u64>) -> Option<Range<u64>> {
        let end = range.end.min(self.count);
        let start = self.find(range.start.max(self.below), end, false);
        (start < end).then(|| start..self.find(start, end, true))
    }

    /// The first packet from `from` to `end` that is, or is not, there; `end` where there is none.
    fn find(&self, from: u64, end: u64, there: bool) -> u64 {
        let mut at = from;
        while at < end {
            let Some(words) = self.chunks.get(&(at / CHUNK)) else {
                if !there {
                    return at;
                }
                // Nothing up to the next chunk that has something.
                at = self.chunks.range(at / CHUNK..).next().map_or(end, |(chunk, _)| chunk * CHUNK);
                continue;
            };
            let word = words[(at % CHUNK / 64) as usize];
            let bits = (if there { word } else { !word }) >> (at % 64);
            if bits != 0 {
                return end.min(at + u64::from(bits.trailing_zeros()));
            }
            at = (at / 64 + 1) * 64;
        }
        end
    }

    fn advance(&mut self) {
        self.below = self.find(self.below, self.count, false);
        while let Some(first) = self.chunks.first_entry()
            && (first.key() + 1) * CHUNK <= self.below
        {
            first.remove();
        }
        // What is left of the chunk that `below` is in may be nothing: then packets in order are cheap again.
        if self.there == self.below {
            self.chunks.clear();
        }
    }
}

/// Packets a chunk: 512 bytes, so that a single loss costs little.
const CHUNK: u64 = 4096;
const WORDS: usize = CHUNK as usize / 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_with_holes(
            count in 1u64..10_000,
            steps in proptest::collection::vec((0u64..10_000, 1u64..300), 1..60),
            from in 0u64..10_000, len in 0u64..10_000,
        ) {
            let (mut ours, mut theirs) = (Packets::new(count), BTreeSet::new());
            for (start, len) in steps {
                for index in start..(start + len).min(count) {
                    prop_assert_eq!(ours.insert(index), theirs.insert(index));
                }
            }
            prop_assert_eq!(ours.there(), theirs.len() as u64);
            let end = (from + len).min(count);
            let mut missing = Vec::new();
            let mut at = from;
            while let Some(run) = ours.missing(at..end) {
                prop_assert!(run.start < run.end && run.end <= end);
                at = run.end;
                missing.extend(run);
            }
            let expected: Vec<_> = (from..end).filter(|index| !theirs.contains(index)).collect();
            prop_assert_eq!(missing, expected);
        }
    }

    #[test]
    fn packets_in_order_take_no_memory_also_after_a_gap_was_filled() {
        let mut packets = Packets::new(100_000);
        for index in (0..50_000).filter(|index| index % 7_000 != 3) {
            assert!(packets.insert(index));
        }
        assert!(!packets.chunks.is_empty());
        assert_eq!(packets.missing(0..100_000), Some(3..4));
        for index in (0..50_000).filter(|index| index % 7_000 == 3) {
            assert!(packets.insert(index));
        }
        assert!(packets.chunks.is_empty());
        assert_eq!(packets.missing(0..100_000), Some(50_000..100_000));
        assert!((50_000..100_000).all(|index| packets.insert(index)));
        assert!(packets.is_full() && packets.missing(0..100_000).is_none());
    }
}
