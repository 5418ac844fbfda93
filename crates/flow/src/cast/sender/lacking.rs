//! How many receivers lack each packet of a product: a byte a packet, where anything is lost near it.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::cast::repair_policy::MOST_COUNTED;

/// Counts of receivers that lack a packet, as far as it was not sent again since. It stays at 255.
#[derive(Clone, Debug, Default)]
pub(super) struct Lacking {
    chunks: BTreeMap<u64, Chunk>,
}

#[derive(Clone, Debug)]
struct Chunk {
    counts: Box<[u8; CHUNK as usize]>,
    /// No count is greater.
    most: u8,
    /// Packets that somebody lacks.
    pending: u16,
}

impl Lacking {
    /// Whether nobody lacks anything.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes that the counts take.
    pub(super) fn memory(&self) -> u64 {
        self.chunks.len() as u64 * (CHUNK + 64)
    }

    /// One more receiver lacks these. Where it asked for them before, it is counted already, unless they were sent again since.
    pub(super) fn add(&mut self, packets: Range<u64>, again: bool) {
        let mut at = packets.start;
        while at < packets.end {
            let end = packets.end.min((at / CHUNK + 1) * CHUNK);
            let chunk = self.chunks.entry(at / CHUNK).or_insert_with(Chunk::new);
            for count in &mut chunk.counts[within(at)..=within(end - 1)] {
                chunk.pending += u16::from(*count == 0);
                *count = if again { (*count).max(1) } else { count.saturating_add(1) };
                chunk.most = chunk.most.max(*count);
            }
            at = end;
        }
    }

    /// No fewer than lack any one of these.
    pub(super) fn most(&self, packets: Range<u64>) -> u32 {
        let chunks = self.chunks.range(packets.start / CHUNK..packets.end.div_ceil(CHUNK));
        chunks.map(|(_, chunk)| chunk.most.into()).max().unwrap_or(0)
    }

    /// How many receivers lack a packet.
    pub(super) fn count(&self, packet: u64) -> u32 {
        self.chunks.get(&(packet / CHUNK)).map_or(0, |chunk| chunk.counts[within(packet)].into())
    }

    /// One receiver gets a packet.
    pub(super) fn one_less(&mut self, packet: u64) {
        self.change(packet, |count| count.saturating_sub(1));
    }

    /// All receivers get a packet.
    pub(super) fn none(&mut self, packet: u64) {
        self.change(packet, |_| 0);
    }

    /// The first run of packets from `from` on that at least `least` receivers lack, at most `most` packets long.
    pub(super) fn next(&mut self, from: u64, least: u32, most: u64) -> Option<Range<u64>> {
        if least > MOST_COUNTED {
            return None;
        }
        for (number, chunk) in self.chunks.range_mut(from / CHUNK..) {
            if u32::from(chunk.most) < least {
                continue;
            }
            let base = number * CHUNK;
            let skip = from.saturating_sub(base) as usize;
            let wanted = |count: &u8| u32::from(*count) >= least;
            let Some(first) = chunk.counts[skip..].iter().position(wanted) else {
                if skip == 0 {
                    // Counts have fallen since: so much is known of the chunk now.
                    chunk.most = chunk.counts.iter().copied().max().unwrap_or(0);
                }
                continue;
            };
            let start = skip + first;
            let run =
                chunk.counts[start..].iter().take(most as usize).take_while(|count| wanted(count)).count();
            return Some(base + start as u64..base + (start + run) as u64);
        }
        None
    }

    fn change(&mut self, packet: u64, change: impl FnOnce(u8) -> u8) {
        let Some(chunk) = self.chunks.get_mut(&(packet / CHUNK)) else { return };
        let count = &mut chunk.counts[within(packet)];
        let after = change(*count);
        chunk.pending -= u16::from(*count > 0 && after == 0);
        *count = after;
        if chunk.pending == 0 {
            self.chunks.remove(&(packet / CHUNK));
        }
    }
}

impl Chunk {
    fn new() -> Self {
        Self { counts: Box::new([0; CHUNK as usize]), most: 0, pending: 0 }
    }
}

const fn within(packet: u64) -> usize {
    (packet % CHUNK) as usize
}

/// Packets a chunk.
const CHUNK: u64 = 1024;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_counts(
            steps in proptest::collection::vec((0u64..3000, 1u64..1500, any::<bool>(), 0u8..4), 1..40),
            from in 0u64..4000, least in 1u32..6, most in 1u64..50,
        ) {
            let (mut ours, mut theirs) = (Lacking::default(), BTreeMap::<u64, u32>::new());
            for (start, len, again, what) in steps {
                match what {
                    0 => {
                        ours.none(start);
                        theirs.remove(&start);
                    }
                    1 => {
                        ours.one_less(start);
                        let left = theirs.remove(&start).unwrap_or(0).saturating_sub(1);
                        if left > 0 {
                            theirs.insert(start, left);
                        }
                    }
                    _ => {
                        ours.add(start..start + len, again);
                        for packet in start..start + len {
                            let count = theirs.entry(packet).or_default();
                            *count = if again { (*count).max(1) } else { *count + 1 };
                        }
                    }
                }
                prop_assert_eq!(ours.is_empty(), theirs.is_empty());
            }
            prop_assert!((0..4600).all(|packet| ours.count(packet) == theirs.get(&packet).copied().unwrap_or(0)));
            let first = theirs.range(from..).find(|(_, count)| **count >= least).map(|(packet, _)| *packet);
            let run = ours.next(from, least, most);
            prop_assert_eq!(run.as_ref().map(|run| run.start), first);
            if let Some(run) = run {
                prop_assert!(run.end - run.start <= most);
                prop_assert!(run.clone().all(|packet| theirs.get(&packet).is_some_and(|count| *count >= least)));
            }
        }
    }
}
