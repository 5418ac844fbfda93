//! Sleeping without being late: how long an engine may sleep, and what its waking cost.
//!
//! An idle processor takes its time to wake: 50-100 µs in a virtual machine, which a round trip over an idle
//! connection would pay four times. So an engine that sleeps long wakes a little early and watches the clock for
//! the rest; and a packet that woke it is taken to have come as much earlier as waking is known to take. Under load
//! neither happens: then there is no time to sleep long.

use farlink_wire::quantity::Nanos;

/// What an engine knows of its sleep. Drive it in this order: [`before`](Self::before) each wait,
/// [`after`](Self::after) it, [`arrival`](Self::arrival) for each packet read then.
#[derive(Debug)]
pub(crate) struct Sleep {
    /// How late a timer wakes, a moving average.
    latency: Nanos,
    /// When the present or last sleep began.
    began: Nanos,
    /// When it should end, where it is a long one.
    until: Option<Nanos>,
    /// The delivery for which a long sleep ends early.
    watched: Option<Nanos>,
    /// When the packet that ended a long sleep came.
    woken_at: Option<Nanos>,
    /// The latest arrival told: arrivals never go back.
    told: Nanos,
}

impl Default for Sleep {
    fn default() -> Self {
        Self {
            latency: Nanos(MOST_LATENCY.0 / 2),
            began: Nanos::ZERO,
            until: None,
            watched: None,
            woken_at: None,
            told: Nanos::ZERO,
        }
    }
}

impl Sleep {
    /// How long to wait at `now` for a delivery that is `due`; `None` is for as long as it takes.
    pub(crate) fn before(&mut self, now: Nanos, due: Option<Nanos>) -> Option<Nanos> {
        self.began = now;
        self.until = None;
        let Some(due) = due else {
            self.until = Some(Nanos::MAX);
            return None;
        };
        let left = due.since(now);
        if left > LONG {
            let wait = Nanos(left.0 - (self.latency.0 * 3 / 2).min(MOST_LATENCY.0));
            self.until = Some(now.after(wait));
            self.watched = Some(due);
            return Some(wait);
        }
        // The rest of a long sleep is spent awake. Other short waits are slept through: under load there is
        // always one, and the hosts need the processor.
        if self.watched == Some(due) { Some(Nanos::ZERO) } else { Some(left) }
    }

    /// The wait is over at `now`, by something to read or by itself.
    pub(crate) fn after(&mut self, now: Nanos, is_readable: bool) {
        self.woken_at = None;
        let Some(until) = self.until else { return };
        let slept = now.since(self.began);
        if !is_readable {
            let late = now.since(until).0.min(MOST_LATENCY.0);
            self.latency = Nanos((self.latency.0 * 15 + late) / 16);
        } else if slept > LONG {
            self.woken_at = Some(Nanos(now.0 - self.latency.0.min(MOST_CREDIT.0)));
        }
    }

    /// When a packet that was read at `now` came.
    pub(crate) fn arrival(&mut self, now: Nanos) -> Nanos {
        self.told = self.told.max(self.woken_at.take().unwrap_or(now));
        self.told
    }
}

/// A sleep from which waking is noticeable; under load, sleeps are shorter.
const LONG: Nanos = Nanos(110_000);

/// A wake-up later than this says something of the machine's other work, not of waking.
const MOST_LATENCY: Nanos = Nanos(100_000);

/// What a packet is believed to have come earlier at most. A round trip is corrected twice, so none is shorter
/// than was asked by more than 0.1 ms.
const MOST_CREDIT: Nanos = Nanos(50_000);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Long sleeps whose timers wake `late`.
    fn used_to(late: u64) -> Sleep {
        let mut sleep = Sleep::default();
        for round in 1..200 {
            let now = Nanos(round * 10 * MS);
            let wait = sleep.before(now, Some(now.after(Nanos(5 * MS)))).unwrap();
            sleep.after(Nanos(now.0 + wait.0 + late), false);
        }
        sleep
    }

    #[test]
    fn a_long_sleep_ends_early_by_what_waking_takes_and_the_rest_is_watched() {
        let mut sleep = used_to(40_000);
        let due = Some(Nanos(9_005 * MS));
        let wait = sleep.before(Nanos(9_000 * MS), due).unwrap();
        assert!((5 * MS - 62_000..5 * MS - 58_000).contains(&wait.0), "{wait}");
        sleep.after(Nanos(9_000 * MS + wait.0 + 40_000), false);
        assert_eq!(sleep.before(Nanos(9_000 * MS + wait.0 + 40_000), due), Some(Nanos::ZERO));
    }

    #[test]
    fn a_short_wait_is_slept_through() {
        let mut sleep = used_to(40_000);
        assert_eq!(sleep.before(Nanos(9_000 * MS), Some(Nanos(9_000 * MS + 52_000))), Some(Nanos(52_000)));
    }

    #[test]
    fn a_packet_that_ended_a_long_sleep_came_before_the_engine_woke() {
        let mut sleep = used_to(40_000);
        assert_eq!(sleep.before(Nanos(9_000 * MS), None), None);
        sleep.after(Nanos(9_010 * MS), true);
        let came = sleep.arrival(Nanos(9_010 * MS + 100));
        assert!((39_000..=41_000).contains(&(9_010 * MS - came.0)), "{came}");
        assert_eq!(
            sleep.arrival(Nanos(9_010 * MS + 200)),
            Nanos(9_010 * MS + 200),
            "the next was read as it came"
        );
    }

    #[test]
    fn arrivals_never_go_back() {
        let mut sleep = used_to(40_000);
        let before = sleep.arrival(Nanos(9_000 * MS));
        sleep.before(Nanos(9_000 * MS), None);
        sleep.after(Nanos(9_000 * MS + 160_000), true);
        assert!(sleep.arrival(Nanos(9_000 * MS + 160_000)) >= before);
    }

    #[test]
    fn one_stall_of_the_machine_does_not_change_what_waking_takes() {
        let mut sleep = used_to(40_000);
        let now = Nanos(9_000 * MS);
        let wait = sleep.before(now, Some(now.after(Nanos(5 * MS)))).unwrap();
        sleep.after(Nanos(now.0 + wait.0 + 50 * MS), false);
        assert!(sleep.latency < Nanos(45_000), "{}", sleep.latency);
    }
}
