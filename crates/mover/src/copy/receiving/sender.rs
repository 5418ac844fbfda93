//! What the sender says, as far as it is no data.

use std::sync::Arc;

use farlink_wire::message::copy::{Copy, Unit};

use super::chores::Chore;
use super::{Receiving, block_length};
use crate::copy::CopyError;
use crate::copy::file_event::{Became, FileEvent};

impl Receiving {
    /// Takes a message of the sender; true where it was the last.
    pub(crate) fn on_message(self: &Arc<Self>, message: Copy) -> Result<bool, CopyError> {
        match message {
            // What it is called, and why, comes by itself where that is of interest here.
            Copy::Abandon { file, keep, .. } => self.on_abandon(file, keep)?,
            Copy::Same(units) => {
                for unit in units {
                    self.on_same(unit)?;
                }
            }
            Copy::Skipped { path, reason, failed, again } => {
                let what = Became::not_sent(reason.to_string(), failed, again);
                let mut state = self.state();
                state.failed += u64::from(failed);
                if self.manner.report {
                    let path = path.to_string();
                    state.events.push(FileEvent { path, bytes: 0, digest: None, what });
                }
            }
            Copy::Extent { entries, bytes } => self.state().of = Some((entries, bytes)),
            Copy::Total { files, packs, entries, bytes } => {
                let mut state = self.state();
                state.of = Some((entries, bytes));
                state.arrivals.on_total(files, packs);
                drop(state);
                self.settle_later();
            }
            // The receiver finds out by itself what it lacks.
            Copy::Lost(_) => {}
            Copy::Sent(_) => return Ok(true),
            _ => return Err(CopyError::OutOfPlace { what: "what only a receiver says" }),
        }
        Ok(false)
    }

    fn on_abandon(self: &Arc<Self>, file: u32, keep: bool) -> Result<(), CopyError> {
        let mut state = self.state();
        self.check_numbers(&state)?;
        let incoming = state.files.remove(&file);
        // It would keep its descriptor until those before it were looked at, which may take long.
        state.unproven.retain(|waiting| waiting.frame.file != file);
        state.entries += u64::from(state.arrivals.on_closed(file));
        drop(state);
        match incoming {
            // What was written of it is the source's as it is still: the next run goes on from there.
            Some(incoming) if keep => incoming.store.leave(),
            Some(incoming) => incoming.store.abandon(),
            None => {}
        }
        self.settle_later();
        Ok(())
    }

    /// The sender has the same block.
    fn on_same(self: &Arc<Self>, unit: Unit) -> Result<(), CopyError> {
        let Unit::Block(file, index) = unit else {
            return Err(CopyError::OutOfPlace { what: "a pack that is the same" });
        };
        let Some(incoming) = self.state().files.get(&file).map(Arc::clone) else { return Ok(()) };
        // Nobody writes to it meanwhile.
        let writers = incoming.writers();
        let Some(digest) = incoming.forget(index) else {
            if self.wants(file, index) {
                // Another connection began to bring it, too: what is there is neither the one nor the other.
                self.state().outbox.damaged.push(unit);
                self.wake.raise();
            }
            return Ok(());
        };
        self.state().done += block_length(&incoming.frame, index);
        let last = self.mark_quietly(&incoming, index, digest)?;
        drop(writers);
        if last {
            self.later(Chore::Store(incoming));
        }
        Ok(())
    }
}
