//! How far a receiver is: for samples, for a person, for the record.

use farlink_wire::message::copy::Copy;
use farlink_wire::message::{Arrival, MAX_ENTRIES};
use farlink_wire::quantity::BitsPerSec;

use super::{MOST_UNTOLD, Receiving};
use crate::copy::file_event::FileEvent;
use crate::copy::record::MOST_SAMPLES;
use crate::copy::sending::Tally;

impl Receiving {
    /// What arrived since this was asked last, by interval.
    pub(crate) fn take_arrivals(&self) -> Vec<Arrival> {
        self.state().by_interval.take_news()
    }

    /// Bytes that arrived, by interval.
    pub(crate) fn take_samples(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().by_interval).came
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

/// Bytes that came in each interval, and what of them was told: as many intervals as a record has.
#[derive(Debug, Default)]
pub(super) struct ByInterval {
    came: Vec<u64>,
    told: Vec<u64>,
    /// Of those before it everything was told.
    untold: usize,
}

impl ByInterval {
    /// Bytes came in that interval: threads that have read the clock may be overtaken.
    pub(super) fn add(&mut self, at: u64, bytes: u64) {
        let Ok(at) = usize::try_from(at) else { return };
        if at >= MOST_SAMPLES {
            return;
        }
        if self.came.len() <= at {
            self.came.resize(at + 1, 0);
        }
        self.came[at] += bytes;
        self.untold = self.untold.min(at);
    }

    /// What came since this was asked last, as much of it as a message has room for.
    fn take_news(&mut self) -> Vec<Arrival> {
        self.told.resize(self.came.len(), 0);
        let mut news = Vec::new();
        while self.untold < self.came.len() && news.len() < MAX_ENTRIES {
            let (came, told) = (self.came[self.untold], &mut self.told[self.untold]);
            if came > *told {
                news.push(Arrival { index: self.untold as u32, bytes: came - *told });
                *told = came;
            }
            self.untold += 1;
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(all: &mut ByInterval) -> Vec<(u32, u64)> {
        all.take_news().iter().map(|arrival| (arrival.index, arrival.bytes)).collect()
    }

    #[test]
    fn each_byte_is_told_once_also_one_that_is_late() {
        let mut all = ByInterval::default();
        assert_eq!(news(&mut all), []);
        all.add(0, 10);
        all.add(3, 5);
        assert_eq!(news(&mut all), [(0, 10), (3, 5)]);
        all.add(3, 1);
        all.add(4, 2);
        all.add(1, 7);
        assert_eq!(news(&mut all), [(1, 7), (3, 1), (4, 2)]);
        assert_eq!(news(&mut all), []);
        assert_eq!(all.came, [10, 7, 0, 6, 2]);
    }

    #[test]
    fn a_message_has_room_for_so_many_and_the_next_for_the_others() {
        let mut all = ByInterval::default();
        let most = MAX_ENTRIES as u64;
        (0..most + 3).for_each(|at| all.add(at, 1));
        assert_eq!(all.take_news().len(), MAX_ENTRIES);
        assert_eq!(
            news(&mut all),
            [(MAX_ENTRIES as u32, 1), (MAX_ENTRIES as u32 + 1, 1), (MAX_ENTRIES as u32 + 2, 1)]
        );
    }

    #[test]
    fn what_comes_after_a_day_needs_no_memory() {
        let mut all = ByInterval::default();
        for at in [MOST_SAMPLES as u64, u64::MAX] {
            all.add(at, 1);
        }
        assert_eq!((news(&mut all), all.came.len()), (Vec::new(), 0));
        all.add(MOST_SAMPLES as u64 - 1, 1);
        assert_eq!(news(&mut all), [(MOST_SAMPLES as u32 - 1, 1)]);
    }
}
