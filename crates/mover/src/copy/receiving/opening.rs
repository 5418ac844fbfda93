//! Files that are said, at the receiver: where they go, and what is there of them already.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use farlink_wire::entry::Digest;
use farlink_wire::frame::{File, block_bytes};
use farlink_wire::message::copy::{Copy, MOST_PROVEN, ProvenBlock};

use super::{Digests, Incoming, Receiving};
use crate::copy::CopyError;
use crate::copy::store::Store;
use crate::copy::target::TargetError;
use crate::copy::timing::Stage;

impl Receiving {
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
}

/// Files that may be open at a time: as many as a sender keeps open, and those that were just stored.
const MOST_OPEN: usize = 1024;

/// Blocks of all files that are open: their digests are 128 MiB.
const MOST_BLOCKS: u64 = 1 << 22;
