//! What takes long at the receiver and the conversation does not wait for, so that the far end hears of it meanwhile: files that are stored with
//! their last block, and what is done when all are.

use std::sync::Arc;

use super::{Incoming, Receiving};
use crate::copy::worker;

/// Something to be done.
#[derive(Debug)]
pub(super) enum Chore {
    /// All blocks of a file are there.
    Store(Arc<Incoming>),
    /// A block is what was there before, of a file that somebody writes to.
    Same(Arc<Incoming>, u32),
    /// All files may be.
    Settle,
}

impl Receiving {
    /// Has `chore` done when those before it are.
    pub(super) fn later(self: &Arc<Self>, chore: Chore) {
        let mut state = self.state();
        state.chores.push_back(chore);
        if std::mem::replace(&mut state.at_chores, true) {
            return;
        }
        drop(state);
        let its = Arc::clone(self);
        if worker::start(self, "farlink-store", move || its.do_chores()).is_err() {
            // Where there is no thread for it the far end waits.
            self.do_chores();
        }
    }

    /// Finishes where everything is there. A sender may say so any number of times: one chore does for all.
    pub(super) fn settle_later(self: &Arc<Self>) {
        self.changed.notify_all();
        let mut state = self.state();
        let is_due = !state.finished && state.arrivals.is_complete();
        if is_due && !std::mem::replace(&mut state.settles, true) {
            drop(state);
            self.later(Chore::Settle);
        }
    }

    pub(super) fn do_chores(&self) {
        while let Some(chore) = self.next_chore() {
            match chore {
                Chore::Store(incoming) => self.store(&incoming),
                Chore::Same(incoming, index) => self.on_same_later(&incoming, index),
                Chore::Settle => self.settle(),
            }
            self.wake.raise();
        }
    }

    fn next_chore(&self) -> Option<Chore> {
        let mut state = self.state();
        if state.over {
            state.chores.clear();
        }
        let next = state.chores.pop_front();
        state.settles &= !matches!(next, Some(Chore::Settle));
        state.at_chores = next.is_some();
        next
    }
}
