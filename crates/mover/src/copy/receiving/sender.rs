//! What the sender says, as far as it is no data.

use std::sync::Arc;

use farlink_wire::message::copy::{Copy, Unit};

use super::chores::Chore;
use super::{Incoming, Receiving, block_length};
use crate::copy::CopyError;
use crate::copy::file_event::{Became, FileEvent};

impl Receiving {
    /// Takes a message of the sender.
    pub(crate) fn on_message(self: &Arc<Self>, message: Copy) -> Result<(), CopyError> {
        match message {
            // What it is called, and why, comes by itself where that is of interest here.
            Copy::Abandon { file, keep, .. } => self.on_abandon(file, keep)?,
            Copy::Same(units) => {
                for unit in units {
                    self.on_same(unit)?;
                }
            }
            Copy::Skipped { path, lack, reason } => {
                let what = Became::Lacking(lack, reason.to_string());
                let mut state = self.state();
                state.failed += u64::from(what.failure().is_some());
                if self.manner.report {
                    let path = path.to_string();
                    state.events.push(FileEvent::of(path, what).far());
                }
            }
            Copy::Extent { entries, bytes } => self.state().of = Some((entries, bytes)),
            Copy::Total { files, packs, entries, bytes } => {
                let mut state = self.state();
                // It is said again when the sender has heard that everything is there.
                state.knows_what_lacks = state.finished;
                state.of = Some((entries, bytes));
                state.arrivals.on_total(files, packs);
                drop(state);
                self.settle_later();
            }
            // The receiver finds out by itself what it lacks.
            Copy::Lost(_) => {}
            _ => return Err(CopyError::OutOfPlace { what: "what only a receiver says" }),
        }
        Ok(())
    }

    fn on_abandon(self: &Arc<Self>, file: u32, keep: bool) -> Result<(), CopyError> {
        let mut state = self.state();
        self.check_numbers(&state)?;
        let incoming = state.files.remove(&file);
        // It would keep its descriptor until those before it were looked at, which may take long.
        state.unproven.retain(|waiting| waiting.frame.file != file);
        state.lacks = true;
        if state.arrivals.is_open(file) {
            state.given_up.insert(file);
            if incoming.is_none() {
                // Whoever opens it closes it.
                return Ok(());
            }
        }
        drop(state);
        match incoming {
            // What was written of it is the source's as it is still: the next run goes on from there.
            Some(incoming) if keep => incoming.store.leave(),
            Some(incoming) => incoming.store.abandon(),
            None => {}
        }
        // Behind that: directories are finished when the last of their names is.
        let mut state = self.state();
        if !state.close_given_up(file) {
            // Its name came later, or never.
            state.entries += u64::from(state.arrivals.on_closed(file));
        }
        drop(state);
        self.settle_later();
        Ok(())
    }

    /// The sender has the same block.
    fn on_same(self: &Arc<Self>, unit: Unit) -> Result<(), CopyError> {
        let Unit::Block(file, index) = unit else {
            return Err(CopyError::OutOfPlace { what: "a pack that is the same" });
        };
        let Some(incoming) = self.state().files.get(&file).map(Arc::clone) else { return Ok(()) };
        // Whoever writes to it may first have to copy all that stood there.
        let Ok(writers) = incoming.turn.try_lock() else {
            // Each is said once, and no file has as many.
            if self.state().chores.len() > MOST_SAID {
                return Err(CopyError::OutOfPlace { what: "the same blocks again and again" });
            }
            self.later(Chore::Same(Arc::clone(&incoming), index));
            return Ok(());
        };
        let last = self.take_over(&incoming, index)?;
        drop(writers);
        if last {
            self.later(Chore::Store(incoming));
        }
        Ok(())
    }

    /// The same, when whoever writes to the file has done so.
    pub(super) fn on_same_later(&self, incoming: &Arc<Incoming>, index: u32) {
        let writers = incoming.writers();
        // That there is such a block was known before.
        let last = self.take_over(incoming, index).unwrap_or(false);
        drop(writers);
        if last {
            self.store(incoming);
        }
    }

    /// A block that was there stays: whether it was the last. Nobody writes to the file meanwhile.
    fn take_over(&self, incoming: &Incoming, index: u32) -> Result<bool, CopyError> {
        let file = incoming.frame.file;
        let Some(digest) = incoming.forget(index) else {
            if self.wants(file, index) {
                // Another connection began to bring it, too: what is there is neither the one nor the other.
                let mut state = self.state();
                if state.outbox.damaged.len() > MOST_SAID {
                    return Err(CopyError::OutOfPlace { what: "the same blocks again and again" });
                }
                state.outbox.damaged.push(Unit::Block(file, index));
                drop(state);
                self.wake.raise();
            }
            return Ok(false);
        };
        self.state().done += block_length(&incoming.frame, index);
        self.mark_quietly(incoming, index, digest)
    }
}

/// Blocks that are said to be the same, and wait: more than a file has, and little memory.
const MOST_SAID: usize = 1 << 20;
