//! What a sender has in hand: files that go in blocks, and packs of what is small.

use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use farlink_host::page_cache::has_pages;
use farlink_host::sparse;
use farlink_wire::entry::{Digest, Entry, Kind};
use farlink_wire::frame::{File, block_bytes};
use farlink_wire::message::copy::Lack;

use super::file_event::{Became, FileEvent};
use super::source::{Handle, SourceError, SourceFile};
use crate::budget::{self, Budget, Portion};

/// A file that goes in blocks.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// As it is said to the receiver.
    pub(crate) frame: File,
    /// Blocks in which there is nothing: first and number, ascending.
    pub(crate) holes: Vec<(u32, u32)>,
    origin: Origin,
    /// Whether anything of it went to the receiver, which had not all of it.
    is_new: AtomicBool,
    /// Whether something of it arrived as another than it was when it was read.
    is_restless: AtomicBool,
    /// Bytes of it that are known to be there.
    there: AtomicU64,
    /// What takes memory while it is open: what is on its way of it, and what the receiver has of it.
    portion: Option<Portion>,
}

/// Where a file's bytes come from.
#[derive(Debug)]
enum Origin {
    /// A file that the walk found, opened by whoever needs it first.
    File { handle: Handle, open: OnceLock<SourceFile> },
    /// A device without end.
    Endless(fs::File),
}

impl Outgoing {
    pub(crate) fn new(
        frame: File,
        handle: Handle,
        opened: Option<SourceFile>,
        holes: Vec<(u32, u32)>,
    ) -> Self {
        let open = opened.map_or_else(OnceLock::new, OnceLock::from);
        Self {
            frame,
            holes,
            origin: Origin::File { handle, open },
            is_new: AtomicBool::new(false),
            is_restless: AtomicBool::new(false),
            there: AtomicU64::new(0),
            portion: None,
        }
    }

    /// The beginning of a device without end.
    pub(crate) const fn endless(frame: File, device: fs::File) -> Self {
        let (is_new, is_restless) = (AtomicBool::new(false), AtomicBool::new(false));
        let origin = Origin::Endless(device);
        let there = AtomicU64::new(0);
        Self { frame, holes: Vec::new(), origin, is_new, is_restless, there, portion: None }
    }

    /// Something of it goes to the receiver.
    pub(crate) fn on_sent(&self) {
        self.is_new.store(true, Ordering::Relaxed);
    }

    /// What became of it when it is stored.
    pub(crate) fn stored(&self) -> Became {
        Became::stored(self.is_new.load(Ordering::Relaxed))
    }

    /// Takes of `budget` what it takes while it is open; false where there is not so much left.
    pub(crate) fn charge(&mut self, budget: &Budget) -> bool {
        self.portion = budget.take(budget::of_blocks(self.blocks()));
        self.portion.is_some()
    }

    /// Opens it, where nobody has.
    ///
    /// # Errors
    /// What becomes of it where it cannot be.
    pub(crate) fn open(&self) -> Result<(), Became> {
        match &self.origin {
            Origin::File { handle, open } => {
                source(handle, open).map(drop).map_err(|error| Became::unread(&error))
            }
            Origin::Endless(_) => Ok(()),
        }
    }

    /// Fills `piece` from `offset` on.
    ///
    /// # Errors
    /// What becomes of it where it cannot.
    pub(crate) fn read(&self, offset: u64, piece: &mut [u8]) -> Result<(), Became> {
        let read = match &self.origin {
            Origin::File { handle, open } => source(handle, open)
                .and_then(|source| source.read_at(offset, piece))
                .map_err(|error| Became::unread(&error))?,
            Origin::Endless(device) => sparse::read_at(device, 0, piece)
                .map_err(|error| Became::Lacking(Lack::Failed, error.to_string()))?,
        };
        if read == piece.len() {
            Ok(())
        } else {
            Err(Became::Lacking(Lack::Abandoned, "it became shorter while it was read".to_owned()))
        }
    }

    /// The file itself, where what was read of it can be sent as its pages: not once that came to something else.
    pub(crate) fn pages(&self) -> Option<&fs::File> {
        match &self.origin {
            Origin::File { handle, open } if !self.is_restless.load(Ordering::Relaxed) => {
                source(handle, open).ok().map(SourceFile::file).filter(|file| has_pages(file))
            }
            Origin::File { .. } | Origin::Endless(_) => None,
        }
    }

    /// Something of it arrived damaged: perhaps by the network, or by who writes to it after it was read, of which its time may tell late or never.
    /// From now on what is read of it is what is sent.
    pub(crate) fn on_damaged(&self) {
        self.is_restless.store(true, Ordering::Relaxed);
    }

    /// Whether it is as the walk found it.
    ///
    /// # Errors
    /// What becomes of it where it is not.
    pub(crate) fn check(&self) -> Result<(), Became> {
        let unchanged = match &self.origin {
            Origin::File { handle, open } => {
                let source = source(handle, open).map_err(|error| Became::unread(&error))?;
                source.is_unchanged().map_err(|error| Became::Lacking(Lack::Abandoned, error.to_string()))?
            }
            Origin::Endless(_) => true,
        };
        if unchanged { Ok(()) } else { Err(Became::changed()) }
    }

    /// Whether it is no longer what the walk found, as far as that can be told.
    pub(crate) fn is_changed(&self) -> bool {
        match &self.origin {
            Origin::File { handle, open } => {
                source(handle, open).is_ok_and(|source| matches!(source.is_unchanged(), Ok(false)))
            }
            Origin::Endless(_) => false,
        }
    }

    /// Bytes of a block.
    pub(crate) fn block_bytes(&self) -> u64 {
        block_bytes(self.frame.size())
    }

    /// Its blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.frame.size().div_ceil(self.block_bytes()) as u32
    }

    /// Bytes of the blocks that are holes.
    pub(crate) fn hole_bytes(&self) -> u64 {
        let whole = |count: u32| u64::from(count.saturating_sub(1)) * self.block_bytes();
        self.holes.iter().map(|(first, count)| whole(*count) + self.block_length(first + count - 1)).sum()
    }

    /// Bytes of block `index`; none behind the end.
    pub(crate) fn block_length(&self, index: u32) -> u64 {
        let from = u64::from(index) * self.block_bytes();
        self.frame.size().saturating_sub(from).min(self.block_bytes())
    }

    /// Block `index` is there: its bytes.
    pub(crate) fn on_there(&self, index: u32) -> u64 {
        let bytes = self.block_length(index);
        self.there.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Block `index` is there no longer: its bytes.
    pub(crate) fn on_gone(&self, index: u32) -> u64 {
        let bytes = self.block_length(index);
        self.there.fetch_sub(bytes, Ordering::Relaxed);
        bytes
    }

    /// Bytes of content, holes not counted, of which it is not known that they are there.
    pub(crate) fn rest(&self) -> u64 {
        let content = self.frame.size() - self.hole_bytes();
        content.saturating_sub(self.there.load(Ordering::Relaxed))
    }

    /// What became of it.
    pub(crate) fn event(&self, digest: Option<Digest>, what: Became) -> FileEvent {
        FileEvent {
            bytes: self.frame.size(),
            digest,
            ..FileEvent::of(self.frame.entry.path.to_string(), what)
        }
    }
}

fn source<'a>(handle: &Handle, open: &'a OnceLock<SourceFile>) -> Result<&'a SourceFile, SourceError> {
    if let Some(open) = open.get() {
        return Ok(open);
    }
    let opened = handle.open()?;
    Ok(open.get_or_init(|| opened))
}

/// Blocks of a file of `size` bytes that no extent of `data` touches: first and number, ascending.
pub(crate) fn holes(size: u64, data: impl Iterator<Item = Range<u64>>) -> Vec<(u32, u32)> {
    let bytes = block_bytes(size);
    let blocks = size.div_ceil(bytes);
    let mut holes = Vec::new();
    let mut free = 0;
    for Range { start, end } in data.filter(|extent| !extent.is_empty()) {
        let (first, behind) = (start / bytes, end.div_ceil(bytes));
        if first > free {
            holes.push((free as u32, (first - free) as u32));
        }
        free = free.max(behind);
    }
    if blocks > free {
        holes.push((free as u32, (blocks - free) as u32));
    }
    holes
}

/// A pack of small files, symbolic links and directories; or an offer of one.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) entries: Vec<(Entry, Option<Handle>)>,
    pub(crate) offer: bool,
    read: Mutex<Read>,
}

/// What was learned by reading it.
#[derive(Debug, Default)]
struct Read {
    /// Digest of each entry; `None` of what could not be read.
    digests: Vec<Option<Digest>>,
    /// Those that could not be read, by whoever read them first.
    failed: HashSet<usize>,
    wanted: Vec<(u32, u32)>,
    /// Those of the others that are newer at the receiver.
    newer: Vec<(u32, u32)>,
}

impl Planned {
    pub(crate) fn new(entries: Vec<(Entry, Option<Handle>)>) -> Self {
        Self { entries, offer: false, read: Mutex::default() }
    }

    /// The same, as an offer or not.
    pub(crate) fn offered(self, offer: bool) -> Self {
        Self { offer, ..self }
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of content.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.iter().map(|(entry, _)| size(entry)).sum()
    }

    /// It was read, and these are the digests of its entries.
    pub(crate) fn on_read(&self, digests: Vec<Option<Digest>>) {
        let mut read = self.read();
        read.failed.extend((0..).zip(&digests).filter(|(_, digest)| digest.is_none()).map(|(at, _)| at));
        read.digests = digests;
    }

    /// Whether it was read: what of it could not be is known.
    pub(crate) fn is_read(&self) -> bool {
        self.read().digests.len() == self.entries.len()
    }

    /// Entry `at` cannot be read; false where that is known, as of a pack that two connections send.
    pub(crate) fn fail(&self, at: usize) -> bool {
        self.read().failed.insert(at)
    }

    /// Whether entry `at` could not be read.
    pub(crate) fn failed(&self, at: usize) -> bool {
        self.read().failed.contains(&at)
    }

    /// What became of its entries, if that is `what` of them all.
    pub(crate) fn events(&self, what: &Became) -> Vec<FileEvent> {
        let read = self.read();
        let event = |(at, (entry, _)): (usize, &(Entry, _))| FileEvent {
            bytes: size(entry),
            digest: digest_of(entry, read.digests.get(at).copied().flatten()),
            ..FileEvent::of(entry.path.to_string(), what.clone())
        };
        self.entries.iter().enumerate().map(event).collect()
    }

    /// Entry `at`.
    pub(crate) fn event(&self, at: usize) -> Option<FileEvent> {
        let (entry, _) = self.entries.get(at)?;
        let (path, bytes) = (entry.path.to_string(), size(entry));
        Some(FileEvent { bytes, ..FileEvent::of(path, Became::Copied) })
    }

    /// The receiver wants these, too; false where they are not of it, or not behind those that it wanted before.
    pub(crate) fn want(&self, runs: &[(u32, u32)]) -> bool {
        self.add(&mut self.read().wanted, runs)
    }

    /// The receiver has newer ones of these; false as of [`want`](Self::want).
    pub(crate) fn leave(&self, runs: &[(u32, u32)]) -> bool {
        self.add(&mut self.read().newer, runs)
    }

    fn add(&self, to: &mut Vec<(u32, u32)>, runs: &[(u32, u32)]) -> bool {
        for (first, count) in runs {
            let behind = to.last().map_or(0, |(first, count)| first + count);
            let end = u64::from(*first) + u64::from(*count);
            if *count == 0 || *first < behind || end > self.entries.len() as u64 {
                return false;
            }
            to.push((*first, *count));
        }
        true
    }

    fn is_among(runs: &[(u32, u32)], at: usize) -> bool {
        runs.iter().any(|(first, count)| (*first..first.saturating_add(*count)).contains(&(at as u32)))
    }

    /// What the receiver has already, of an offer that it has answered, by its place there.
    pub(crate) fn unwanted(&self) -> Vec<(u32, FileEvent)> {
        let (wanted, newer) = {
            let read = self.read();
            (read.wanted.clone(), read.newer.clone())
        };
        let mut events = self.events(&Became::Same);
        let newer_ones = events.iter_mut().enumerate().filter(|(at, _)| Self::is_among(&newer, *at));
        newer_ones.for_each(|(_, event)| event.what = Became::Newer);
        let events = events.into_iter().enumerate();
        let same = |(at, _): &(usize, FileEvent)| !Self::is_among(&wanted, *at) && !self.failed(*at);
        events.filter(same).map(|(at, event)| (at as u32, event)).collect()
    }

    /// A pack of what the receiver wants of an offer that it has answered.
    pub(crate) fn wanted(&self) -> Self {
        let wanted = self.read().wanted.clone();
        let entries = self.entries.iter().enumerate();
        let entries = entries.filter(|(at, _)| Self::is_among(&wanted, *at) && !self.failed(*at));
        Self::new(entries.map(|(_, (entry, handle))| (entry.clone(), handle.clone())).collect())
    }
}

/// Bytes of content of `entry`.
pub(crate) fn size(entry: &Entry) -> u64 {
    match entry.kind {
        Kind::File { size } => size,
        _ => 0,
    }
}

fn digest_of(entry: &Entry, digest: Option<Digest>) -> Option<Digest> {
    // Zeros stand for what was not hashed.
    digest.filter(|digest| matches!(entry.kind, Kind::File { .. }) && *digest != Digest::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn only_blocks_without_any_data_are_holes() {
        let of = |size, data: &[(u64, u64)]| holes(size, data.iter().map(|(start, end)| *start..*end));
        assert_eq!(of(10 * MIB, &[]), [(0, 10)]);
        assert_eq!(of(10 * MIB, &[(0, 10 * MIB)]), []);
        assert_eq!(
            of(10 * MIB - 5, &[(3 * MIB + 4096, 3 * MIB + 8192), (5 * MIB, 7 * MIB)]),
            [(0, 3), (4, 1), (7, 3)]
        );
        assert_eq!(of(3 * MIB, &[(MIB - 1, MIB + 1)]), [(2, 1)]);
    }
}
