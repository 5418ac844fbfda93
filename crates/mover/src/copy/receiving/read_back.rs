//! What was written, read again from the disk.

use std::sync::PoisonError;

use super::{Incoming, Receiving};
use crate::copy::timing::Stage;

impl Receiving {
    /// Whether a file whose blocks are all written reads as it should, where that was asked for. One that does not is given up for now:
    /// its partial file stays, and the next run proves what is well in it and asks for the rest.
    pub(super) fn reads_back(&self, incoming: &Incoming) -> bool {
        if !incoming.store.reads_back() {
            return true;
        }
        let digests = incoming.digests.lock().unwrap_or_else(PoisonError::into_inner).blocks.clone();
        let Err(error) = self.timing.during(Stage::Disk, || incoming.store.read_back(&digests)) else {
            return true;
        };
        let mut state = self.state();
        let number = incoming.frame.file;
        state.files.remove(&number);
        state.give_up(self.manner.report, number, &incoming.frame.entry, &error);
        drop(state);
        self.settle();
        false
    }
}
