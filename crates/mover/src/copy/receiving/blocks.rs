//! Blocks of files, at the receiver: written, checked, and the file stored with the last of them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use farlink_flow::arrivals::Block as Came;
use farlink_flow::digest::{self, BlockHasher};
use farlink_wire::entry::Digest;
use farlink_wire::frame::block_bytes;
use farlink_wire::message::copy::{Unit, Verdict};

use super::{Incoming, Payload, Receiving};
use crate::copy::CopyError;
use crate::copy::file_event::Became;
use crate::copy::target::TargetError;
use crate::copy::timing::Stage;

impl Receiving {
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
    /// failed, and the file was given up, or all is over.
    pub(crate) fn write(
        &self,
        incoming: &Incoming,
        (index, stream): (u32, u32),
        offset: u64,
        piece: &[u8],
    ) -> bool {
        if !self.wait_until_proven(incoming) {
            return false;
        }
        let written = self.timing.during(Stage::Disk, || {
            let mut writers = incoming.writers();
            let closed = incoming.closed.read().unwrap_or_else(PoisonError::into_inner);
            // Looked at in turn: what is there was proven, and is not written to any more.
            if *closed || !self.wants(incoming.frame.file, index) {
                return Ok(());
            }
            // What was there of it from before is so no longer, as a whole.
            incoming.forget(index);
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

    /// The file cannot be stored for now. What is proven of it stays: the disk was full, say, and there is room the next time.
    pub(super) fn fail(&self, incoming: &Incoming, error: &TargetError) {
        incoming.store.leave();
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
            Ok(true) => {
                incoming.is_new.store(true, Ordering::Relaxed);
                self.mark(incoming, &[(index, 1)], Some(digest), unit)?
            }
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
    pub(super) fn arrived(
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
    pub(super) fn arrived_quietly(
        &self,
        incoming: &Arc<Incoming>,
        index: u32,
        digest: Digest,
    ) -> Result<(), CopyError> {
        if self.mark_quietly(incoming, index, digest)? {
            self.store(incoming);
        }
        Ok(())
    }

    /// The same, but for what is to be done where it was the last, which is told.
    pub(super) fn mark_quietly(
        &self,
        incoming: &Incoming,
        index: u32,
        digest: Digest,
    ) -> Result<bool, CopyError> {
        if let Ok(mut digests) = incoming.digests.lock()
            && let Some(place) = digests.blocks.get_mut(index as usize)
        {
            *place = digest;
        }
        let file = incoming.frame.file;
        let came = self.state().arrivals.on_block(file, index);
        match came {
            Came::Unknown => Err(CopyError::NoSuchBlock { file, index }),
            came => Ok(came == Came::Last),
        }
    }

    /// All blocks are there: the file gets its name.
    pub(super) fn store(&self, incoming: &Arc<Incoming>) {
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
            self.timing.during(Stage::Disk, || self.put_in_place(incoming))
        };
        let verdict = match stored {
            Ok(verdict) => verdict,
            Err(error) => return self.fail(incoming, &error),
        };
        let mut state = self.state();
        state.files.remove(&number);
        if verdict != Verdict::Wanted {
            let is_newer = verdict == Verdict::Newer;
            state.leave_standing(self.manner.report, &incoming.frame, is_newer, true);
            drop(state);
            return self.settle();
        }
        if !state.close(number) {
            // The sender gave it up meanwhile, and counts it.
            drop(state);
            return self.settle();
        }
        state.outbox.stored.push((number, digest));
        let bytes = incoming.frame.size();
        let what = Became::stored(incoming.is_new.load(Ordering::Relaxed));
        state.close_name(self.manner.report, &incoming.frame.entry, bytes, digest, what);
        drop(state);
        self.settle();
    }

    /// Gives a file, which is whole, its name, unless something stands there by now that stays: it may have come since the file was wanted.
    fn put_in_place(&self, incoming: &Incoming) -> Result<Verdict, TargetError> {
        let (target, entry) = (&self.manner.target, &incoming.frame.entry);
        let verdict = self.verdict(entry)?;
        if verdict == Verdict::Wanted {
            incoming.store.finish(target, entry)?;
        } else {
            incoming.store.abandon();
        }
        Ok(verdict)
    }
}
