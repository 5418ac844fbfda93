//! What was written, read again from the disk.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use farlink_wire::message::copy::Unit;

use super::{Incoming, Receiving};
use crate::copy::target::TargetError;
use crate::copy::timing::Stage;

impl Receiving {
    /// Whether a file whose blocks are all written reads as it should, where that was asked for. Blocks that do not are asked for again; a
    /// disk that spoils them again and again is believed in the end: the file is given up for now, its partial file stays, and the next
    /// run proves what is well in it and asks for the rest.
    pub(super) fn reads_back(&self, incoming: &Incoming) -> bool {
        if !incoming.store.reads_back() {
            return true;
        }
        let digests = incoming.digests.lock().unwrap_or_else(PoisonError::into_inner).blocks.clone();
        let number = incoming.frame.file;
        let mut go_on = |_: u64| self.is_of_interest(number);
        let error = match self.timing.during(Stage::Disk, || incoming.store.read_back(&digests, &mut go_on)) {
            Err(_) if !self.is_of_interest(number) => return false,
            Ok(spoiled) => {
                let Some(first) = spoiled.first().copied() else { return true };
                if incoming.spoiled.fetch_add(1, Ordering::Relaxed) < MOST_SPOILED {
                    self.ask_again(number, &spoiled);
                    return false;
                }
                TargetError::Disk { path: incoming.frame.entry.path.to_string(), index: first }
            }
            Err(error) => error,
        };
        let mut state = self.state();
        state.files.remove(&number);
        state.give_up(self.manner.report, number, &incoming.frame.entry, &error);
        drop(state);
        self.settle();
        false
    }

    fn ask_again(&self, file: u32, blocks: &[u32]) {
        let mut state = self.state();
        for index in blocks.iter().copied() {
            state.arrivals.on_spoiled(file, index);
            state.outbox.damaged.push(Unit::Block(file, index));
        }
        drop(state);
        self.wake.raise();
    }
}

/// How often blocks of a file are asked for again.
pub(super) const MOST_SPOILED: u32 = 2;
