//! A product as far as it has come.

use std::collections::BTreeMap;
use std::ops::Range;

use farlink_wire::cast::packet::{Data, Parity};
use farlink_wire::cast::{Announcement, AnnouncementError, Part, Payload, Shape};
use farlink_wire::entry::Digest;

use super::{Rebuild, Write, Writes};
use crate::cast::packets::Packets;

/// A product that is neither stored nor given up.
#[derive(Debug)]
pub(super) struct Item {
    /// Known with the first of its packets.
    pub(super) shape: Option<Shape>,
    pub(super) packets: Packets,
    head: Vec<u8>,
    announcement: Option<Announcement>,
    digest: Digest,
    state: State,
    /// What came of the parity of blocks that are not whole, by their first packet.
    parity: BTreeMap<u64, Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// For the first time, or once more because it was damaged.
    Coming { again: bool },
    /// Everything is there, and its digest is compared.
    Checked { again: bool },
}

/// What a frame brought that was not there.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) packets: u64,
    /// Of the stream.
    pub(super) bytes: u64,
    pub(super) writes: Writes,
}

#[derive(Debug)]
struct Block {
    of: u16,
    shards: BTreeMap<u16, Vec<u8>>,
}

impl Default for Item {
    fn default() -> Self {
        Self {
            shape: None,
            packets: Packets::new(0),
            head: Vec::new(),
            announcement: None,
            digest: Digest::default(),
            state: State::Coming { again: false },
            parity: BTreeMap::new(),
        }
    }
}

impl Item {
    /// Whether its stream is so; one of which nothing was known takes it on.
    pub(super) fn fits(&mut self, shape: Shape, payload: Payload) -> bool {
        if self.shape.is_none() {
            self.shape = Some(shape);
            self.packets = Packets::new(shape.packets(payload));
            self.head = vec![0; shape.head().into()];
        }
        self.shape == Some(shape)
    }

    /// Takes those of a frame's packets that were not there: keeps what is not content, and says what is.
    pub(super) fn take(&mut self, data: &Data, packets: Range<u64>, payload: &[u8], full: Payload) -> Taken {
        let full = u64::from(full.get());
        let mut taken = Taken::default();
        let mut from = packets.start;
        while let Some(new) = self.packets.missing(from..packets.end) {
            from = new.end;
            let start = (new.start - packets.start) * full;
            let end = ((new.end - packets.start) * full).min(payload.len() as u64);
            taken.packets += new.end - new.start;
            taken.bytes += end - start;
            for packet in new {
                self.packets.insert(packet);
            }
            let place = data.offset + start;
            self.store(data.shape, place, payload, start as usize..end as usize, &mut taken.writes);
        }
        taken
    }

    /// Keeps of some bytes of `payload`, which begin at `place` in the stream, what is not content, and says what is.
    fn store(&mut self, shape: Shape, place: u64, payload: &[u8], of: Range<usize>, writes: &mut Writes) {
        for (part, range) in shape.parts(place..place + of.len() as u64) {
            let range = of.start + range.start..of.start + range.end;
            let bytes = &payload[range.clone()];
            match part {
                Part::Head(at) => self.head[at..at + bytes.len()].copy_from_slice(bytes),
                Part::Digest(at) => self.digest.0[at..at + bytes.len()].copy_from_slice(bytes),
                Part::Content(at) => writes.push(Write { at, payload: range }),
            }
        }
    }

    /// Whether its announcement is whole.
    pub(super) const fn is_announced(&self) -> bool {
        self.announcement.is_some()
    }

    /// The announcement, once it is whole, and only then.
    pub(super) fn announced(&mut self, payload: Payload) -> Option<Result<Announcement, AnnouncementError>> {
        let head = u64::from(self.shape?.head()).div_ceil(payload.get().into());
        if self.announcement.is_some() || self.packets.missing(0..head).is_some() {
            return None;
        }
        let read = Announcement::decode(&self.head);
        self.announcement = read.as_ref().ok().cloned();
        Some(read)
    }

    /// What is to be compared, once everything is there, and only then.
    pub(super) fn complete(&mut self) -> Option<(Announcement, u64, Digest)> {
        let State::Coming { again } = self.state else { return None };
        let shape = self.shape?;
        if !self.packets.is_full() {
            return None;
        }
        self.state = State::Checked { again };
        Some((self.announcement.clone()?, shape.content(), self.digest))
    }

    /// Whether everything is there, and being compared.
    pub(super) const fn is_checked(&self) -> bool {
        matches!(self.state, State::Checked { .. })
    }

    /// Begins once more; false where it did so before.
    pub(super) fn reset(&mut self) -> bool {
        if matches!(self.state, State::Checked { again: true } | State::Coming { again: true }) {
            return false;
        }
        self.packets = Packets::new(self.packets.count());
        self.state = State::Coming { again: true };
        true
    }

    /// Keeps parity over `packets` where it can be of use and there is `room`; says how many bytes it keeps more.
    pub(super) fn keep_parity(
        &mut self,
        packets: Range<u64>,
        parity: &Parity,
        payload: &[u8],
        room: usize,
    ) -> usize {
        if self.packets.missing(packets.clone()).is_none() || payload.len() > room {
            return 0;
        }
        let block = self
            .parity
            .entry(packets.start)
            .or_insert_with(|| Block { of: parity.of, shards: BTreeMap::new() });
        if block.of != parity.of || block.shards.contains_key(&parity.index) {
            return 0;
        }
        block.shards.insert(parity.index, payload.to_vec());
        payload.len()
    }

    /// How a block can be rebuilt, where that is so; and how many bytes of parity are kept no longer.
    pub(super) fn rebuild(
        &mut self,
        product: u32,
        packets: &Range<u64>,
        payload: Payload,
    ) -> (usize, Option<Rebuild>) {
        let (Some(shape), Some(block)) = (self.shape, self.parity.get(&packets.start)) else {
            return (0, None);
        };
        let there: Vec<u16> = packets
            .clone()
            .filter(|packet| self.packets.contains(*packet))
            .map(|packet| (packet - packets.start) as u16)
            .collect();
        let count = packets.end - packets.start;
        let is_whole = there.len() as u64 == count;
        if !is_whole && (there.len() + block.shards.len()) < count as usize {
            return (0, None);
        }
        let Some(Block { of, shards }) = self.parity.remove(&packets.start) else { return (0, None) };
        let freed = shards.values().map(Vec::len).sum();
        let rebuild = Rebuild {
            product,
            shape,
            offset: packets.start * u64::from(payload.get()),
            packets: count as u16,
            there,
            of,
            parity: shards.into_iter().collect(),
        };
        (freed, (!is_whole).then_some(rebuild))
    }

    /// Packets of parity that are kept for the block that begins with a packet.
    pub(super) fn parity_of(&self, first: u64) -> u64 {
        self.parity.get(&first).map_or(0, |block| block.shards.len() as u64)
    }

    /// Bytes of parity that are kept.
    pub(super) fn kept_parity(&self) -> usize {
        self.parity.values().flat_map(|block| block.shards.values()).map(Vec::len).sum()
    }
}
