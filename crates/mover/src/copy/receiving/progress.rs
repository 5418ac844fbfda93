//! How far a receiver is: for samples, for a person, for the record.

use farlink_wire::message::Arrival;
use farlink_wire::message::copy::Copy;
use farlink_wire::quantity::BitsPerSec;

use super::{MOST_UNTOLD, Receiving};
use crate::copy::file_event::FileEvent;
use crate::copy::sending::Tally;

impl Receiving {
    /// What arrived since this was asked last, by interval.
    pub(crate) fn take_arrivals(&self) -> Vec<Arrival> {
        self.state().samples.take_news()
    }

    /// Bytes that arrived, by interval.
    pub(crate) fn take_samples(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().samples).into_column()
    }

    /// Asks the sender to send no more bits per second than `limit` from now on.
    pub(crate) fn ask_to_hold(&self, limit: Option<BitsPerSec>) {
        self.state().outbox.say(Copy::Limit(limit));
    }

    /// Connections that are at work.
    pub(crate) fn streams(&self) -> usize {
        self.state().streams
    }

    /// What became of names since this was asked last.
    pub(crate) fn take_events(&self) -> Vec<FileEvent> {
        let events = std::mem::take(&mut self.state().events);
        if events.len() > MOST_UNTOLD {
            self.changed.notify_all();
        }
        events
    }

    /// How much is done.
    pub(crate) fn tally(&self) -> Tally {
        let state = self.state();
        let (of_entries, of_bytes) = state.of.unwrap_or_default();
        Tally {
            acknowledged: state.bytes + state.done,
            same: state.done,
            sent: state.bytes,
            entries: state.entries,
            failed: state.failed,
            of_entries,
            of_bytes,
            known: state.of.is_some(),
        }
    }
}
