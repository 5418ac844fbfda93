//! What is there of files from before, looked at one file after another beside the connections: a large one takes minutes, in which
//! blocks of others come.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::{Incoming, Receiving};
use crate::copy::CopyError;
use crate::copy::timing::Stage;
use crate::copy::worker;

impl Receiving {
    /// Has `incoming` looked at when it is its turn.
    pub(super) fn prove_later(self: &Arc<Self>, incoming: &Arc<Incoming>) -> Result<(), CopyError> {
        let mut state = self.state();
        state.unproven.push_back(Arc::clone(incoming));
        if std::mem::replace(&mut state.proving, true) {
            return Ok(());
        }
        drop(state);
        let its = Arc::clone(self);
        worker::start(self, "farlink-prove", move || its.prove())
            .map_err(|source| CopyError::System { attempt: "start a thread", source })
    }

    /// Looks at all that wait for it, until none is left or nothing is of interest any more.
    pub(super) fn prove(&self) {
        while let Some(incoming) = self.next_unproven() {
            self.wait_to_be_heard();
            let number = incoming.frame.file;
            let mut go_on = |_: u64| self.is_of_interest(number);
            let proven = self.timing.during(Stage::Disk, || incoming.store.proven(&mut go_on));
            match proven {
                Ok(proven) => {
                    if let Ok(mut digests) = incoming.digests.lock() {
                        digests.proven = proven.iter().copied().collect();
                    }
                    incoming.is_proven.store(true, Ordering::Release);
                    self.tell_proven(number, &proven);
                }
                Err(_) if !self.is_of_interest(number) => {}
                Err(error) => {
                    // What it is stays as it is, for a run that can read it.
                    let mut state = self.state();
                    state.files.remove(&number);
                    state.give_up(self.manner.report, number, &incoming.frame.entry, &error);
                    drop(state);
                    self.settle();
                }
            }
            // Who waits looks with the state in hand, and then waits: it is told after that, or sees it.
            drop(self.state());
            self.changed.notify_all();
        }
    }

    fn next_unproven(&self) -> Option<Arc<Incoming>> {
        let mut state = self.state();
        let next = if state.over { None } else { state.unproven.pop_front() };
        if next.is_none() {
            state.unproven.clear();
            state.proving = false;
        }
        next
    }

    /// Whether the transfer goes on, and the file is neither stored nor given up.
    pub(super) fn is_of_interest(&self, file: u32) -> bool {
        let state = self.state();
        !state.over && state.arrivals.is_open(file)
    }

    /// Waits until it is known what is there of a file from before; false where the transfer ends first.
    pub(super) fn wait_until_proven(&self, incoming: &Incoming) -> bool {
        if incoming.is_proven.load(Ordering::Acquire) {
            return true;
        }
        let file = incoming.frame.file;
        let mut state = self.state();
        while !incoming.is_proven.load(Ordering::Acquire) && !state.over && state.arrivals.is_open(file) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.over
    }
}
