//! Files that are said, at the receiver: where they go, and what is there of them already.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Waited, wait_for};
use farlink_wire::entry::Digest;
use farlink_wire::frame::{File, block_bytes};
use farlink_wire::message::copy::{Copy, MOST_PROVEN, ProvenBlock, Verdict};
use farlink_wire::quantity::Nanos;

use super::{Digests, Incoming, Receiving};
use crate::budget::{self, Portion};
use crate::copy::CopyError;
use crate::copy::store::Store;
use crate::copy::target::TargetError;
use crate::copy::timing::Stage;

impl Receiving {
    /// The file that `frame` says; `None` where it is stored or given up already. What is there of it from before may not be proven yet:
    /// nothing is written sooner.
    pub(crate) fn open(self: &Arc<Self>, frame: File) -> Result<Option<Arc<Incoming>>, CopyError> {
        let number = frame.file;
        let bytes = block_bytes(frame.size());
        let blocks = frame.size().div_ceil(bytes) as u32;
        // One file is opened at a time: another connection that says the same file finds it open.
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        self.check_numbers(&state)?;
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
            let verdict = self.verdict(&frame.entry)?;
            if verdict != Verdict::Wanted {
                return Ok(Err(verdict));
            }
            let portion = self.manner.budget.take(budget::of_blocks(blocks));
            let portion = portion.ok_or_else(|| TargetError::memory(&frame.entry))?;
            let store = self.store_of(&frame, bytes)?;
            // What is large takes its time, and other files need not wait for it.
            let proven = if store.is_unproven() { None } else { Some(store.proven(&mut |_| true)?) };
            Ok::<_, TargetError>(Ok((store, proven, portion)))
        });
        match opened {
            Ok(Ok((store, proven, portion))) => self.begin(frame, blocks, store, proven, portion),
            Err(error) if error.is_final() => Err(error.into()),
            not_opened => {
                let (mut state, report) = (self.state(), self.manner.report);
                match not_opened {
                    _ if state.close_given_up(number) => {}
                    Ok(Err(verdict)) => {
                        let is_newer = verdict == Verdict::Newer;
                        state.leave_standing(report, &frame, is_newer, false);
                    }
                    Err(error) => state.give_up(report, number, &frame.entry, &error),
                    Ok(Ok(_)) => {}
                }
                drop(state);
                self.settle();
                Ok(None)
            }
        }
    }

    /// Blocks of the file may come from now on; `proven` are those that are there, as far as that is known.
    pub(super) fn begin(
        self: &Arc<Self>,
        frame: File,
        blocks: u32,
        store: Store,
        proven: Option<Vec<(u32, Digest)>>,
        portion: Portion,
    ) -> Result<Option<Arc<Incoming>>, CopyError> {
        let number = frame.file;
        let there = proven.iter().flatten().copied().collect();
        let blocks = vec![Digest::default(); blocks as usize];
        let incoming = Arc::new(Incoming {
            frame,
            store,
            digests: Mutex::new(Digests { blocks, proven: there, complete: true }),
            is_proven: AtomicBool::new(proven.is_some()),
            closed: RwLock::default(),
            turn: Mutex::default(),
            spoiled: AtomicU32::new(0),
            zeros: Mutex::default(),
            is_new: AtomicBool::new(false),
            _portion: portion,
        });
        let mut state = self.state();
        if state.given_up.contains(&number) {
            drop(state);
            // What an earlier run wrote is for the next one to judge.
            incoming.store.leave();
            self.state().close_given_up(number);
            self.settle();
            return Ok(None);
        }
        state.files.insert(number, Arc::clone(&incoming));
        drop(state);
        match proven {
            Some(proven) => self.tell_proven(number, &proven),
            None => self.prove_later(&incoming)?,
        }
        Ok(Some(incoming))
    }

    /// Where the content of the file goes.
    fn store_of(&self, frame: &File, bytes: u64) -> Result<Store, TargetError> {
        if let Some(sink) = &self.manner.sink {
            return Ok(Store::Sink(sink.try_clone().map_err(TargetError::sink)?));
        }
        let target = &self.manner.target;
        if self.manner.resume
            && let Some(held) = target.held(&frame.entry, bytes)
        {
            return Ok(Store::standing(held, frame.entry.clone(), bytes, frame.sparse));
        }
        // The far end of an attempt that broke may not have heard yet that nobody is left: through ssh each has its own.
        let until = self.began.after(UNHEARD.max(self.manner.patience.after(A_WHILE)));
        loop {
            let opened = target.partial(&frame.entry, bytes, frame.sparse);
            let is_to_wait =
                matches!(opened, Err(TargetError::Busy { .. })) && self.manner.resume && self.manner.lingers;
            if is_to_wait
                && monotonic() < until
                && let Ok(Waited::Over) = wait_for(&self.halt, Interest::Read, &self.halt, BREATH)
            {
                continue;
            }
            return Ok(Store::Partial(Box::new(opened?)));
        }
    }

    /// Says what is there of a file from before. Nothing, too, is said: the sender may wait for it.
    pub(super) fn tell_proven(&self, file: u32, proven: &[(u32, Digest)]) {
        let block = |&(index, digest): &(u32, Digest)| ProvenBlock { index, digest };
        let mut state = self.state();
        let mut chunks = proven.chunks(MOST_PROVEN).peekable();
        if chunks.peek().is_none() {
            state.outbox.say(Copy::Proven { file, blocks: Vec::new(), last: true });
        }
        while let Some(chunk) = chunks.next() {
            let (blocks, last) = (chunk.iter().map(block).collect(), chunks.peek().is_none());
            state.outbox.say(Copy::Proven { file, blocks, last });
        }
        drop(state);
        self.wake.raise();
    }
}

/// Files that may be open at a time: as many as a sender keeps open, and those that were just stored.
const MOST_OPEN: usize = 1024;

/// Blocks of all files that are open: their digests are 128 MiB.
const MOST_BLOCKS: u64 = 1 << 22;

/// How long a far end may not hear that its client is gone, from then on when the next attempt's begins, at least: as long as it waits, mostly.
const UNHEARD: Nanos = Nanos(35_000_000_000);

/// What it takes to end beyond that.
const A_WHILE: Nanos = Nanos(5_000_000_000);

/// Between two looks at whether it has let go of a file.
const BREATH: Nanos = Nanos(200_000_000);
