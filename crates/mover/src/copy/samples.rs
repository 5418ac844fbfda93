//! What came when: for the record, and for who looks on.

use farlink_wire::message::{Arrival, MAX_ENTRIES};
use farlink_wire::quantity::{BitsPerSec, Nanos};

/// Bytes that came in each interval, and what of them was told: as many intervals as a record has.
#[derive(Debug, Default)]
pub(super) struct Samples {
    came: Vec<u64>,
    told: Vec<u64>,
    /// Of those before it everything was told.
    untold: usize,
}

impl Samples {
    /// Bytes came in that interval: threads that have read the clock may be overtaken.
    pub(super) fn add(&mut self, at: u64, bytes: u64) {
        let Ok(at) = usize::try_from(at) else { return };
        if at >= MOST_SAMPLES {
            return;
        }
        if self.came.len() <= at {
            self.came.resize(at + 1, 0);
        }
        self.came[at] = self.came[at].saturating_add(bytes);
        self.untold = self.untold.min(at);
    }

    /// What came since this was asked last, as much of it as a message has room for.
    pub(super) fn take_news(&mut self) -> Vec<Arrival> {
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

    /// Bytes of each interval.
    pub(super) fn into_column(self) -> Vec<u64> {
        self.came
    }
}

/// Bits a second in the fastest round trip and a quarter that `samples` show, bytes an `interval` each, of which the first may have come an
/// interval before; `None` where nothing came.
pub(super) fn fastest(samples: &[u64], interval: Nanos, rtt: Nanos) -> Option<BitsPerSec> {
    let count = (rtt.0 + rtt.0 / 4).div_ceil(interval.0.max(1)).max(1) as usize;
    let most = samples.windows(count).map(|window| window.iter().sum::<u64>()).max()?;
    let time = u128::from(interval.0) * (count as u128 + 1);
    BitsPerSec::new((u128::from(most) * 8_000_000_000 / time.max(1)) as u64)
}

/// A day of intervals of 100 ms, as many as a record has.
const MOST_SAMPLES: usize = 864_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn news(all: &mut Samples) -> Vec<(u32, u64)> {
        all.take_news().iter().map(|arrival| (arrival.index, arrival.bytes)).collect()
    }

    #[test]
    fn each_byte_is_told_once_also_one_that_is_late() {
        let mut all = Samples::default();
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
        let mut all = Samples::default();
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
        let mut all = Samples::default();
        for at in [MOST_SAMPLES as u64, u64::MAX] {
            all.add(at, 1);
        }
        assert_eq!((news(&mut all), all.came.len()), (Vec::new(), 0));
        all.add(MOST_SAMPLES as u64 - 1, 1);
        assert_eq!(news(&mut all), [(MOST_SAMPLES as u32 - 1, 1)]);
    }

    #[test]
    fn the_fastest_round_trip_of_samples_is_no_shorter_than_that() {
        let (interval, rtt) = (Nanos(100_000_000), Nanos(200_000_000));
        let samples = [0, 1_000_000, 5_000_000, 3_000_000, 0];
        // Three intervals are a quarter more than two.
        assert_eq!(fastest(&samples, interval, rtt), BitsPerSec::new(180_000_000));
        assert_eq!(fastest(&samples[..2], interval, rtt), None);
        assert_eq!(fastest(&[0; 5], interval, rtt), None);
    }
}
