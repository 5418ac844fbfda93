//! The receiving end of a file transfer: what has come, what is stored, and what is to be said of it.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use farlink_flow::arrivals::{Arrivals, Block as Came};
use farlink_flow::digest::{self, BlockHasher};
use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_wire::entry::{Digest, Entry};
use farlink_wire::frame::{File, block_bytes};
use farlink_wire::message::copy::{Copy, Finished, MOST_PROVEN, ProvenBlock, Rejected, Rejection, Unit};
use farlink_wire::quantity::Nanos;

use super::CopyError;
use super::file_event::{Became, FileEvent};
use super::store::Store;
use super::target::{Target, TargetError};
use super::timing::{Stage, Timing};
use super::worker::Shared;
use crate::chain;

mod holes;
mod outbox;
mod packs;
mod progress;
mod read_back;
mod sender;
mod writers;

use outbox::Outbox;
use writers::Writers;

/// How the receiving end goes about it.
#[derive(Debug)]
pub(crate) struct Manner {
    /// Where it writes.
    pub(crate) target: Target,
    /// Where everything goes, where that is a device that keeps nothing.
    pub(crate) sink: Option<fs::File>,
    /// Look at what has the final name before it is sent.
    pub(crate) resume: bool,
    /// Hash what comes, and check it.
    pub(crate) verify: bool,
    /// The secret of frames' tags, where they have some.
    pub(crate) seal: Option<[u8; 32]>,
    /// Whether what becomes of each name is of interest here.
    pub(crate) report: bool,
    /// Length of a sample.
    pub(crate) interval: Nanos,
}

/// The receiving end. Its threads and the conversation share it.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) manner: Manner,
    pub(crate) timing: Timing,
    began: Nanos,
    state: Mutex<State>,
    opening: Mutex<()>,
    wake: Wake,
    /// Raised when all threads are to end.
    pub(crate) halt: Wake,
}

#[derive(Debug, Default)]
struct State {
    arrivals: Arrivals,
    files: HashMap<u32, Arc<Incoming>>,
    outbox: Outbox,
    events: Vec<FileEvent>,
    samples: Vec<u64>,
    reported: Vec<u64>,
    bytes: u64,
    done: u64,
    entries: u64,
    failed: u64,
    of: Option<(u64, u64)>,
    last: Nanos,
    lost: Vec<u32>,
    /// Connections that were, and those that ended.
    streams: usize,
    finished: bool,
    over: bool,
    failure: Option<CopyError>,
    buffer: u64,
}

/// A file of which blocks come.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) frame: File,
    store: Store,
    digests: Mutex<Digests>,
    /// Whether it has its final name: nothing is written then. Held for reading while something is.
    closed: RwLock<bool>,
    /// Whose turn it is to write, of those who do: the kernel lets one thread write a file at a time, and has the others wait at a cost.
    turn: Mutex<Writers>,
    /// How often the disk had something else than was written.
    spoiled: AtomicU32,
}

#[derive(Debug, Default)]
struct Digests {
    blocks: Vec<Digest>,
    /// What was there before, until the sender says that it is the same.
    proven: HashMap<u32, Digest>,
    /// Whether every block was hashed.
    complete: bool,
}

impl Incoming {
    fn writers(&self) -> MutexGuard<'_, Writers> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a block's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// It is written, and its digest is this.
    Written(Digest),
    /// It could not be written, and its file was given up.
    Dropped,
}

impl Receiving {
    pub(crate) fn new(manner: Manner, wake: Wake, halt: Wake) -> Arc<Self> {
        let began = monotonic();
        let (timing, state, opening) = (Timing::new(), Mutex::default(), Mutex::default());
        Arc::new(Self { manner, timing, began, state, opening, wake, halt })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // What streams bring.

    /// The file that `frame` says; `None` where it is stored or given up already.
    pub(crate) fn open(&self, frame: File) -> Result<Option<Arc<Incoming>>, CopyError> {
        let number = frame.file;
        let bytes = block_bytes(frame.size());
        let blocks = frame.size().div_ceil(bytes) as u32;
        // One file is opened at a time: another connection that says the same file finds it open.
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        if let Some(known) = state.files.get(&number) {
            return if known.frame == frame {
                Ok(Some(Arc::clone(known)))
            } else {
                Err(CopyError::Contradiction)
            };
        }
        if state.arrivals.open_files() > MOST_OPEN
            || state.arrivals.open_blocks() + u64::from(blocks) > MOST_BLOCKS
        {
            return Err(CopyError::OutOfPlace { what: "more files at a time than were agreed" });
        }
        if !state.arrivals.on_file(number, blocks) {
            return Ok(None);
        }
        drop(state);
        let opened = self.timing.during(Stage::Disk, || {
            let store = match &self.manner.sink {
                Some(sink) => Store::Sink(sink.try_clone().map_err(TargetError::sink)?),
                None if self.manner.resume => match self.manner.target.held(&frame.entry, bytes) {
                    Some(held) => Store::standing(held, frame.entry.clone(), bytes, frame.sparse),
                    None => self.partial(&frame, bytes)?,
                },
                None => self.partial(&frame, bytes)?,
            };
            // Before any block is written.
            let proven = store.proven(&mut |_| self.wake.raise())?;
            Ok::<_, TargetError>((store, proven))
        });
        match opened {
            Ok((store, proven)) => {
                let blocks = vec![Digest::default(); blocks as usize];
                let digests = Digests { blocks, proven: proven.iter().copied().collect(), complete: true };
                let incoming = Arc::new(Incoming {
                    frame,
                    store,
                    digests: Mutex::new(digests),
                    closed: RwLock::default(),
                    turn: Mutex::default(),
                    spoiled: AtomicU32::new(0),
                });
                let mut state = self.state();
                if !state.arrivals.is_open(number) {
                    // The sender gave it up meanwhile.
                    drop(state);
                    incoming.store.abandon();
                    return Ok(None);
                }
                state.files.insert(number, Arc::clone(&incoming));
                drop(state);
                self.tell_proven(number, &proven);
                Ok(Some(incoming))
            }
            // Nothing more of such a sender is obeyed.
            Err(error @ TargetError::Unexpected { .. }) => Err(error.into()),
            Err(error) => {
                self.state().give_up(self.manner.report, number, &frame.entry, &error);
                self.settle();
                Ok(None)
            }
        }
    }

    fn partial(&self, frame: &File, bytes: u64) -> Result<Store, TargetError> {
        let partial = self.manner.target.partial(&frame.entry, bytes, frame.sparse)?;
        Ok(Store::Partial(Box::new(partial)))
    }

    /// Says what is there of a file from before. Nothing, too, is said: the sender may wait for it.
    fn tell_proven(&self, file: u32, proven: &[(u32, Digest)]) {
        let block = |&(index, digest): &(u32, Digest)| ProvenBlock { index, digest };
        let mut state = self.state();
        let mut chunks = proven.chunks(MOST_PROVEN).peekable();
        if chunks.peek().is_none() {
            state.outbox.other.push(Copy::Proven { file, blocks: Vec::new(), last: true });
        }
        while let Some(chunk) = chunks.next() {
            let (blocks, last) = (chunk.iter().map(block).collect(), chunks.peek().is_none());
            state.outbox.other.push(Copy::Proven { file, blocks, last });
        }
        drop(state);
        self.wake.raise();
    }

    /// Whether a block is still of interest.
    pub(crate) fn wants(&self, file: u32, index: u32) -> bool {
        !self.state().arrivals.has(file, index)
    }

    /// Hasher of a block.
    pub(crate) fn hasher(incoming: &Incoming, index: u32) -> BlockHasher {
        let size = incoming.frame.size();
        BlockHasher::new(size, block_bytes(size), index)
    }

    /// Writes a piece of block `index` that `stream` brings, unless another connection has brought the block meanwhile; false where that
    /// failed, and the file was given up.
    pub(crate) fn write(
        &self,
        incoming: &Incoming,
        (index, stream): (u32, u32),
        offset: u64,
        piece: &[u8],
    ) -> bool {
        let written = self.timing.during(Stage::Disk, || {
            let mut writers = incoming.writers();
            let closed = incoming.closed.read().unwrap_or_else(PoisonError::into_inner);
            // Looked at in turn: what is there was proven, and is not written to any more.
            if *closed || !self.wants(incoming.frame.file, index) {
                return Ok(());
            }
            if writers.on_write(index, stream) {
                incoming.store.write_at(&self.manner.target, offset, piece)
            } else {
                incoming.store.write_beside(&self.manner.target, offset, piece)
            }
        });
        match written {
            Ok(()) => true,
            Err(error) => {
                self.fail(incoming, &error);
                false
            }
        }
    }

    /// A block that is there has come again: it was not heard that it is.
    pub(crate) fn on_again(&self, file: u32, index: u32) {
        self.state().outbox.acknowledged.push(Unit::Block(file, index));
        self.wake.raise();
    }

    fn fail(&self, incoming: &Incoming, error: &TargetError) {
        incoming.store.abandon();
        let mut state = self.state();
        let number = incoming.frame.file;
        state.files.remove(&number);
        state.give_up(self.manner.report, number, &incoming.frame.entry, error);
        drop(state);
        self.settle();
    }

    /// `stream` has brought a block whole: `said` is the digest that came behind it.
    pub(crate) fn on_block(
        &self,
        incoming: &Arc<Incoming>,
        (index, stream): (u32, u32),
        payload: Payload,
        said: Digest,
    ) -> Result<(), CopyError> {
        let unit = Unit::Block(incoming.frame.file, index);
        let digest = match payload {
            // The sender gave the file up, and says so.
            Payload::Written(_) if said == Digest::ABSENT => return Ok(()),
            Payload::Written(digest) => digest,
            Payload::Dropped => return Ok(()),
        };
        // Until it is said to be there, nobody else writes to it.
        let mut writers = incoming.writers();
        let disturbed = writers.on_end(index, stream);
        if !self.wants(incoming.frame.file, index) {
            drop(writers);
            self.on_again(incoming.frame.file, index);
            return Ok(());
        }
        let last = match self.is_well(incoming, index, digest, said, disturbed) {
            Ok(true) => self.mark(incoming, &[(index, 1)], Some(digest), unit)?,
            Ok(false) => {
                self.state().outbox.damaged.push(unit);
                false
            }
            Err(error) => {
                drop(writers);
                self.fail(incoming, &error);
                return Ok(());
            }
        };
        drop(writers);
        if last {
            self.store(incoming);
        }
        self.wake.raise();
        Ok(())
    }

    /// Whether a block that was written is what it should be; then the journal says so. Where another connection has written to it
    /// meanwhile, what came is not what is there: it is read again.
    fn is_well(
        &self,
        incoming: &Incoming,
        index: u32,
        digest: Digest,
        said: Digest,
        disturbed: bool,
    ) -> Result<bool, TargetError> {
        if !self.manner.verify {
            return Ok(true);
        }
        if digest != said
            || disturbed && !self.timing.during(Stage::Disk, || incoming.store.holds(index, digest))?
        {
            return Ok(false);
        }
        incoming.store.note(index, digest)?;
        Ok(true)
    }

    /// `stream` brings no more of block `index`, also where it broke.
    pub(crate) fn on_end_of_block(incoming: &Incoming, index: u32, stream: u32) {
        incoming.writers().on_end(index, stream);
    }

    /// Blocks are there: written, or nothing is in them.
    fn arrived(
        &self,
        incoming: &Arc<Incoming>,
        runs: &[(u32, u32)],
        digest: Option<Digest>,
        unit: Unit,
    ) -> Result<(), CopyError> {
        if self.mark(incoming, runs, digest, unit)? {
            self.store(incoming);
        }
        self.wake.raise();
        Ok(())
    }

    /// The same, but for what is to be done where these were the last, which is told.
    fn mark(
        &self,
        incoming: &Incoming,
        runs: &[(u32, u32)],
        digest: Option<Digest>,
        unit: Unit,
    ) -> Result<bool, CopyError> {
        let file = incoming.frame.file;
        if let Ok(mut digests) = incoming.digests.lock() {
            for index in runs.iter().flat_map(|(first, count)| *first..first.saturating_add(*count)) {
                match (digests.blocks.get_mut(index as usize), digest) {
                    (Some(place), Some(digest)) => *place = digest,
                    (Some(_), None) => digests.complete = false,
                    (None, _) => return Err(CopyError::NoSuchBlock { file, index }),
                }
            }
        }
        let mut last = false;
        let mut state = self.state();
        for index in runs.iter().flat_map(|(first, count)| *first..first.saturating_add(*count)) {
            match state.arrivals.on_block(file, index) {
                Came::Unknown => return Err(CopyError::NoSuchBlock { file, index }),
                came => last |= came == Came::Last,
            }
        }
        if digest.is_some() {
            state.outbox.acknowledged.push(unit);
        }
        Ok(last)
    }

    /// A block is there that nobody waits to hear of.
    fn arrived_quietly(&self, incoming: &Arc<Incoming>, index: u32, digest: Digest) -> Result<(), CopyError> {
        if let Ok(mut digests) = incoming.digests.lock()
            && let Some(place) = digests.blocks.get_mut(index as usize)
        {
            *place = digest;
        }
        let file = incoming.frame.file;
        let came = self.state().arrivals.on_block(file, index);
        match came {
            Came::Unknown => Err(CopyError::NoSuchBlock { file, index }),
            Came::Last => {
                self.store(incoming);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// All blocks are there: the file gets its name.
    fn store(&self, incoming: &Arc<Incoming>) {
        let number = incoming.frame.file;
        let digest = match incoming.digests.lock() {
            Ok(digests) if self.manner.verify && digests.complete => digest::root(&digests.blocks),
            _ => None,
        };
        let stored = {
            let mut closed = incoming.closed.write().unwrap_or_else(PoisonError::into_inner);
            if !self.reads_back(incoming) {
                return;
            }
            *closed = true;
            self.timing
                .during(Stage::Disk, || incoming.store.finish(&self.manner.target, &incoming.frame.entry))
        };
        if let Err(error) = stored {
            self.fail(incoming, &error);
            return;
        }
        let mut state = self.state();
        state.files.remove(&number);
        state.arrivals.on_closed(number);
        state.outbox.stored.push((number, digest));
        let bytes = incoming.frame.size();
        state.close_name(self.manner.report, &incoming.frame.entry, bytes, digest, Became::Copied);
        drop(state);
        self.settle();
    }

    /// Bytes came.
    pub(crate) fn on_bytes(&self, bytes: usize) {
        let now = monotonic();
        let at = (now.since(self.began).0 / self.manner.interval.0) as usize;
        let mut state = self.state();
        if state.samples.len() <= at {
            state.samples.resize(at + 1, 0);
        }
        state.samples[at] += bytes as u64;
        state.bytes += bytes as u64;
        state.last = now;
    }

    /// A connection came.
    pub(crate) fn on_stream(&self) {
        self.state().streams += 1;
    }

    /// A connection has a receive buffer of `buffer` bytes.
    pub(crate) fn on_buffer(&self, buffer: u64) {
        let mut state = self.state();
        state.buffer = state.buffer.max(buffer);
    }

    /// A connection broke.
    pub(crate) fn on_lost(&self, stream: u32) {
        let mut state = self.state();
        state.streams = state.streams.saturating_sub(1);
        if state.finished || state.over {
            return;
        }
        state.lost.push(stream);
        state.outbox.other.push(Copy::Lost(stream));
        drop(state);
        self.wake.raise();
    }

    /// Streams that were lost since this was asked last.
    pub(crate) fn take_lost(&self) -> Vec<u32> {
        std::mem::take(&mut self.state().lost)
    }

    /// All threads have ended: partial files that are left are for whoever comes next, now and not when the last thread is gone.
    pub(crate) fn let_go(&self) {
        self.state().files.clear();
    }

    /// Why it cannot go on, where a thread found out; once.
    pub(crate) fn take_failure(&self) -> Option<CopyError> {
        self.state().failure.take()
    }

    /// Finishes where everything is there.
    fn settle(&self) {
        let mut state = self.state();
        if state.finished || !state.arrivals.is_complete() {
            return;
        }
        state.finished = true;
        drop(state);
        let failed = self.timing.during(Stage::Disk, || {
            self.manner.target.remove_leftovers();
            self.manner.target.finish_directories()
        });
        let mut state = self.state();
        for (path, error) in failed {
            let reason = chain(&error);
            state
                .outbox
                .rejected
                .push(Rejection { of: Rejected::Directory, reason: reason.as_str().to_owned().into() });
            state.failed += 1;
            if self.manner.report {
                let path = path.to_string();
                state.events.push(FileEvent { path, bytes: 0, digest: None, what: Became::Failed(reason) });
            }
        }
        let (bytes, last, buffer) = (state.bytes, state.last, state.buffer);
        let since_last = if last == Nanos::ZERO { Nanos::ZERO } else { monotonic().since(last) };
        let stages = self.timing.stages();
        state.outbox.other.push(Copy::Finished(Finished { bytes, since_last, stages, buffer }));
        drop(state);
        self.wake.raise();
    }

    /// What is to be said to the sender.
    pub(crate) fn take_messages(&self) -> Vec<Copy> {
        std::mem::take(&mut self.state().outbox).into_messages()
    }
}

impl Shared for Receiving {
    fn timing(&self) -> &Timing {
        &self.timing
    }

    fn abort(&self, failure: Option<CopyError>) {
        self.halt.raise();
        let mut state = self.state();
        state.over = true;
        if state.failure.is_none() {
            state.failure = failure;
        }
        drop(state);
        self.wake.raise();
    }
}

impl State {
    fn give_up(&mut self, report: bool, number: u32, entry: &Entry, error: &TargetError) {
        if !self.arrivals.on_closed(number) {
            return;
        }
        let reason = chain(error);
        self.outbox.rejected.push(Rejection { of: Rejected::File(number), reason: reason.clone().into() });
        self.close_name(report, entry, super::outgoing::size(entry), None, Became::Failed(reason));
    }

    fn close_name(&mut self, report: bool, entry: &Entry, bytes: u64, digest: Option<Digest>, what: Became) {
        self.entries += 1;
        self.failed += u64::from(what.failure().is_some());
        if report {
            self.events.push(FileEvent { path: entry.path.to_string(), bytes, digest, what });
        }
    }
}

/// Bytes of block `index` of a file; none behind its end.
pub(crate) fn block_length(frame: &File, index: u32) -> u64 {
    let bytes = block_bytes(frame.size());
    frame.size().saturating_sub(u64::from(index) * bytes).min(bytes)
}

/// Files that may be open at a time: as many as a sender keeps open, and those that were just stored.
const MOST_OPEN: usize = 1024;

/// Blocks of all files that are open: their digests are 128 MiB.
const MOST_BLOCKS: u64 = 1 << 22;

#[cfg(test)]
mod tests;
