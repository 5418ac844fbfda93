//! Where packets wait: chunks of memory that are filled one packet after another and used again when the
//! last packet in them has gone.
//!
//! The chunk that was freed last is filled next, so that a short connection stays within the processor's
//! cache; a long one grows by chunks that were touched before time mattered.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};

use farlink_host::pages::Pages;
use farlink_host::{process, tun};
use farlink_wire::superpacket::SuperPacket;

/// The packets of one engine.
#[derive(Debug)]
pub(crate) struct Arena {
    regions: Vec<Pages>,
    chunks: Vec<Chunk>,
    free: Vec<usize>,
    current: usize,
    /// Bytes used of the current chunk.
    used: usize,
    frames: Vec<Frame>,
    free_frames: Vec<u32>,
    spare: Receiver<Pages>,
}

/// Sends memory to an [`Arena`] from threads that have the time to make it.
pub(crate) type Spare = Sender<Pages>;

#[derive(Debug)]
struct Chunk {
    region: usize,
    start: usize,
    /// Frames in it that are still needed.
    frames: u32,
}

/// A packet as it was read.
#[derive(Debug)]
struct Frame {
    chunk: usize,
    /// Its IP packet within the region.
    bytes: Range<usize>,
    packet: Option<SuperPacket>,
    /// Deliveries to come.
    needed: u32,
}

impl Arena {
    /// An empty arena, and where to send memory for it.
    pub(crate) fn new() -> (Self, Spare) {
        let (sender, spare) = channel();
        let arena = Self {
            regions: Vec::new(),
            chunks: Vec::new(),
            free: Vec::new(),
            current: 0,
            // As if full: the first packet takes a chunk.
            used: CHUNK,
            frames: Vec::new(),
            free_frames: Vec::new(),
            spare,
        };
        (arena, sender)
    }

    /// Room for one read.
    ///
    /// # Errors
    /// As mmap(2), where the memory sent was not enough.
    pub(crate) fn room(&mut self) -> io::Result<&mut [u8]> {
        if self.chunks.is_empty() || CHUNK - self.used < tun::MOST {
            self.take_chunk()?;
        }
        let chunk = &self.chunks[self.current];
        let from = chunk.start + self.used;
        Ok(&mut self.regions[chunk.region][from..chunk.start + CHUNK])
    }

    /// Keeps `bytes` of the room, an IP packet, for `needed` deliveries.
    pub(crate) fn keep(&mut self, bytes: Range<usize>, packet: SuperPacket, needed: u32) -> u32 {
        let chunk = &mut self.chunks[self.current];
        chunk.frames += 1;
        let from = chunk.start + self.used;
        let frame = Frame {
            chunk: self.current,
            bytes: from + bytes.start..from + bytes.end,
            packet: Some(packet),
            needed,
        };
        self.used += bytes.end.next_multiple_of(CACHE_LINE);
        if let Some(id) = self.free_frames.pop() {
            self.frames[id as usize] = frame;
            return id;
        }
        self.frames.push(frame);
        self.frames.len() as u32 - 1
    }

    /// The number that [`Self::keep`] will give next.
    pub(crate) fn next_id(&self) -> u32 {
        self.free_frames.last().copied().unwrap_or(self.frames.len() as u32)
    }

    /// A kept packet's bytes, and what is known of it.
    pub(crate) fn packet(&self, id: u32) -> Option<(&[u8], &SuperPacket)> {
        let frame = &self.frames[id as usize];
        let bytes = &self.regions[self.chunks[frame.chunk].region][frame.bytes.clone()];
        Some((bytes, frame.packet.as_ref()?))
    }

    /// One delivery of the packet is done, and `more` are to come of it.
    pub(crate) fn release(&mut self, id: u32, more: u32) {
        let frame = &mut self.frames[id as usize];
        frame.needed = frame.needed + more - 1;
        if frame.needed > 0 {
            return;
        }
        frame.packet = None;
        self.free_frames.push(id);
        let chunk = &mut self.chunks[frame.chunk];
        chunk.frames -= 1;
        if chunk.frames == 0 {
            if frame.chunk == self.current {
                self.used = 0;
            } else {
                self.free.push(frame.chunk);
            }
        }
    }

    fn take_chunk(&mut self) -> io::Result<()> {
        if self.chunks.get(self.current).is_some_and(|chunk| chunk.frames == 0) {
            self.used = 0;
            return Ok(());
        }
        if self.free.is_empty() {
            let region = match self.spare.try_recv() {
                Ok(region) => region,
                Err(_) => Pages::new(CHUNK)?,
            };
            let first = self.chunks.len();
            let count = region.len() / CHUNK;
            let region_at = self.regions.len();
            self.chunks.extend((0..count).map(|i| Chunk { region: region_at, start: i * CHUNK, frames: 0 }));
            self.regions.push(region);
            self.free.extend((first..first + count).rev());
        }
        self.current = self.free.pop().unwrap_or_default();
        self.used = 0;
        Ok(())
    }
}

/// Makes `bytes` of touched memory and sends it, until all is sent or nobody takes it; no more than half of what the machine has free, of which each of
/// `engines` has its part: the rest is mapped when it is needed, where it is.
pub(crate) fn feed(spare: &Spare, bytes: u64, engines: u64) {
    let bytes = process::memory_available().map_or(bytes, |free| bytes.min(free / 2 / engines));
    for _ in 0..bytes.div_ceil(REGION as u64) {
        let Ok(mut pages) = Pages::new(REGION) else { return };
        pages.prefault();
        if spare.send(pages).is_err() {
            return;
        }
    }
}

/// What is filled and freed as one: a huge page. At least 31 super-packets, so little is left over at its end.
const CHUNK: usize = 2 << 20;

/// What is made and sent as one: about 5 ms of work.
const REGION: usize = 32 << 20;

/// Frames start on their own.
const CACHE_LINE: usize = 64;

#[cfg(test)]
mod tests {
    use farlink_wire::vnet::VnetHeader;

    use super::*;

    fn keep(arena: &mut Arena, len: usize, fill: u8) -> u32 {
        let room = arena.room().unwrap();
        assert!(room.len() >= tun::MOST);
        room[..len].fill(fill);
        room[0] = 0x45;
        let packet = SuperPacket::parse(VnetHeader::default(), &room[..len]).unwrap();
        let next = arena.next_id();
        let id = arena.keep(0..len, packet, 1);
        assert_eq!(id, next);
        id
    }

    #[test]
    fn packets_stay_as_they_were_until_released() {
        let (mut arena, _spare) = Arena::new();
        let ids: Vec<_> = (0..200u8).map(|fill| keep(&mut arena, 60_000, fill)).collect();
        for (fill, &id) in ids.iter().enumerate() {
            let (bytes, _) = arena.packet(id).unwrap();
            assert!(bytes.len() == 60_000 && bytes[1..].iter().all(|&byte| byte == fill as u8));
        }
        let chunks = arena.chunks.len();
        ids.into_iter().for_each(|id| arena.release(id, 0));
        (0..200u8).for_each(|fill| _ = keep(&mut arena, 60_000, fill));
        assert_eq!(arena.chunks.len(), chunks, "freed chunks are used again");
    }

    #[test]
    fn a_short_connection_stays_in_one_chunk() {
        let (mut arena, _spare) = Arena::new();
        for _ in 0..10_000 {
            let id = keep(&mut arena, 60_000, 1);
            arena.release(id, 0);
        }
        assert_eq!(arena.chunks.len(), 1);
    }

    #[test]
    fn one_late_packet_holds_its_chunk_alone() {
        let (mut arena, _spare) = Arena::new();
        let late = keep(&mut arena, 60_000, 9);
        for _ in 0..10_000 {
            let id = keep(&mut arena, 60_000, 1);
            arena.release(id, 0);
        }
        assert_eq!(arena.packet(late).unwrap().0[1], 9);
        assert!(arena.chunks.len() <= 2);
    }

    #[test]
    fn takes_the_memory_that_was_sent() {
        let (mut arena, spare) = Arena::new();
        feed(&spare, 1, 2);
        let _ = keep(&mut arena, 100, 0);
        assert_eq!((arena.regions.len(), arena.chunks.len()), (1, REGION / CHUNK));
    }

    #[test]
    fn more_deliveries_keep_a_packet() {
        let (mut arena, _spare) = Arena::new();
        let id = keep(&mut arena, 100, 0);
        arena.release(id, 3);
        arena.release(id, 0);
        arena.release(id, 0);
        assert!(arena.packet(id).is_some());
        arena.release(id, 0);
        assert!(arena.packet(id).is_none());
    }
}
