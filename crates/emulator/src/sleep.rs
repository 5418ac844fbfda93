//! Sleeping without being late: how long an engine may sleep, and what its waking cost.
//!
//! An idle processor takes its time to wake: 50-100 µs in a virtual machine, which a round trip over an idle
//! connection would pay four times. So an engine that sleeps long wakes a little early and watches the clock for
//! the rest; and a packet that woke it is taken to have come as much earlier as waking is known to take. Under load
//! neither happens: then there is no time to sleep long. There each packet and each delivery would wake it, at the
//! cost of the hosts on the same processors: so it rests between two looks, as a network card joins its interrupts.

use farlink_wire::quantity::Nanos;

/// What an engine knows of its sleep. Drive it in this order: [`rest`](Self::rest), and where there is none
/// [`before`](Self::before) each wait, [`after`](Self::after) it, [`arrival`](Self::arrival) for each packet read then
/// and [`worked`](Self::worked) for each delivery.
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
    /// When the last wait or rest ended.
    woke: Nanos,
    /// Whether there was something to do since.
    has_worked: bool,
    /// How long it has waited since it had something to do.
    waited: Nanos,
    /// Whether the last wait was a rest.
    has_rested: bool,
    /// How much it has to do: one more for each time soon after the last, half for each such time that it waited longer, and for each rest in vain.
    load: u32,
    /// From one look to the next, where there is work all the time.
    pause: Nanos,
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
            woke: Nanos::ZERO,
            has_worked: false,
            waited: Nanos::ZERO,
            has_rested: false,
            load: 0,
            pause: Nanos::ZERO,
        }
    }
}

impl Sleep {
    /// Packets take `one_way` at least, and the shortest `queue` is empty in this time: both bound how long a rest may be.
    pub(crate) fn heed(&mut self, one_way: Nanos, queue: Nanos) {
        let pause = Nanos((one_way.0 / PAUSE_PART).min(queue.0 / QUEUE_PART).min(MOST_PAUSE.0));
        self.pause = if pause < LEAST_PAUSE { Nanos::ZERO } else { pause };
    }

    /// How long to rest at `now`, whatever comes or becomes `due` meanwhile; `None` is to wait for it. What is due already is not rested on:
    /// a turn leaves some of it where there is much.
    pub(crate) fn rest(&mut self, now: Nanos, due: Option<Nanos>) -> Option<Nanos> {
        if self.has_worked {
            // It counts what it waited, not how long its work took.
            let gap = self.waited.0 / (SOON * self.pause.0).max(1);
            self.load = if gap == 0 { MOST_LOAD.min(self.load + 1) } else { self.load >> gap.min(31) };
            self.waited = Nanos::ZERO;
        } else if self.has_rested {
            self.load /= 2;
        } else {
            // It woke for nothing, or to watch for a delivery.
            return None;
        }
        self.has_rested = false;
        if self.load < BUSY || due.is_some_and(|due| due <= now) {
            return None;
        }
        self.began = now;
        let left = self.woke.after(self.pause).since(now);
        (left.0 > 0).then_some(left)
    }

    /// The rest is over at `now`.
    pub(crate) fn after_rest(&mut self, now: Nanos) {
        self.waited = self.waited.after(now.since(self.began));
        self.woken_at = None;
        self.watched = None;
        self.woke = now;
        self.has_worked = false;
        self.has_rested = true;
    }

    /// Something was delivered.
    pub(crate) fn worked(&mut self) {
        self.has_worked = true;
    }

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
        let slept = now.since(self.began);
        self.waited = self.waited.after(slept);
        self.woke = now;
        self.has_worked = false;
        self.woken_at = None;
        let Some(until) = self.until else { return };
        if !is_readable {
            let late = now.since(until).0.min(MOST_LATENCY.0);
            self.latency = Nanos((self.latency.0 * 15 + late) / 16);
        } else if slept > LONG {
            self.woken_at = Some(Nanos(now.0 - self.latency.0.min(MOST_CREDIT.0)));
        }
    }

    /// When a packet that was read at `now` came.
    pub(crate) fn arrival(&mut self, now: Nanos) -> Nanos {
        self.has_worked = true;
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

/// Of the shortest way, a rest: what leaves or comes late by it is well within what counts as an overrun, 1%.
const PAUSE_PART: u64 = 250;

/// Of the shortest queue, a rest: what came meanwhile meets it at once, as a burst of this length.
const QUEUE_PART: u64 = 8;

/// Rests longer than this bring little more, and would send in bursts what came evenly.
const MOST_PAUSE: Nanos = Nanos(200_000);

/// Rests shorter than this save nothing.
const LEAST_PAUSE: Nanos = Nanos(20_000);

/// Within so many rests of its last work, work is soon: what the other direction's rests cause, and what these hold back, comes once in each.
const SOON: u64 = 3;

/// A load from which it rests: a few packets in a row are delivered to the microsecond.
const BUSY: u32 = 8;

/// The most: after four rests without anything to do there is none any more.
const MOST_LOAD: u32 = 64;

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

    /// What a sleep that heeds 50 ms does where a packet comes each `gap` for a second: its rests, of so many wakes.
    fn under_load(gap: u64) -> (u32, u32) {
        let mut sleep = used_to(40_000);
        sleep.heed(Nanos(50 * MS), Nanos::MAX);
        let (mut now, mut next) = (9_000 * MS, 9_000 * MS);
        let (mut rests, mut wakes) = (0, 0);
        while now < 10_000 * MS {
            wakes += 1;
            if let Some(rest) = sleep.rest(Nanos(now), None) {
                rests += 1;
                now += rest.0;
                sleep.after_rest(Nanos(now));
            } else {
                sleep.before(Nanos(now), None);
                now = now.max(next);
                sleep.after(Nanos(now), true);
            }
            while next <= now {
                assert!(now - next <= 200_000, "{} ns late", now - next);
                sleep.arrival(Nanos(now));
                next += gap;
            }
        }
        (rests, wakes)
    }

    #[test]
    fn where_each_packet_would_wake_it_it_rests_and_takes_several_at_once() {
        let (rests, wakes) = under_load(10_000);
        assert!(wakes <= 1_000_000 / 200 + 20, "{wakes}");
        assert!(rests >= wakes - 20, "{rests} of {wakes}");
    }

    #[test]
    fn where_as_much_comes_as_the_other_direction_rests_it_rests_too() {
        let (rests, wakes) = under_load(190_000);
        assert!(rests > wakes / 2, "{rests} of {wakes}");
    }

    #[test]
    fn what_comes_seldom_is_taken_as_it_comes() {
        assert_eq!(under_load(620_000).0, 0);
    }

    #[test]
    fn behind_a_long_load_there_are_four_rests_without_anything_to_do_at_most() {
        let mut sleep = used_to(40_000);
        sleep.heed(Nanos(50 * MS), Nanos::MAX);
        let mut now = 9_000 * MS;
        let mut rests = 0;
        for turn in 0..1_000 {
            if let Some(rest) = sleep.rest(Nanos(now), None) {
                rests += u32::from(turn >= 500);
                now += rest.0;
                sleep.after_rest(Nanos(now));
            } else {
                sleep.before(Nanos(now), Some(Nanos(now + 100_000)));
                now += 100_000;
                sleep.after(Nanos(now), false);
            }
            if turn < 500 {
                sleep.worked();
            }
        }
        // The first of them ends what there was to do before it.
        assert!((1..=5).contains(&rests), "{rests}");
    }

    #[test]
    fn what_comes_after_an_idle_while_is_watched_for_however_great_the_load_was() {
        let mut sleep = used_to(40_000);
        sleep.heed(Nanos(50 * MS), Nanos::MAX);
        let mut now = 9_000 * MS;
        for _ in 0..500 {
            // Its work takes longer than a rest, so there is none.
            assert_eq!(sleep.rest(Nanos(now), None), None);
            sleep.before(Nanos(now), None);
            sleep.after(Nanos(now), true);
            sleep.arrival(Nanos(now));
            now += 300_000;
        }
        let due = Nanos(now + 50 * MS);
        assert_eq!(sleep.rest(Nanos(now), Some(due)), None);
        let wait = sleep.before(Nanos(now), Some(due)).unwrap();
        sleep.after(Nanos(now + wait.0), false);
        assert_eq!(sleep.rest(Nanos(now + wait.0), Some(due)), None);
        assert_eq!(sleep.before(Nanos(now + wait.0), Some(due)), Some(Nanos::ZERO));
        sleep.after(due, false);
        sleep.worked();
        assert_eq!(sleep.rest(due, None), None, "that was one packet in 50 ms");
    }

    #[test]
    fn after_a_short_load_one_rest_in_vain_is_the_last() {
        let mut sleep = used_to(40_000);
        sleep.heed(Nanos(50 * MS), Nanos::MAX);
        let mut now = 9_000 * MS;
        while sleep.rest(Nanos(now), None).is_none() {
            sleep.before(Nanos(now), None);
            now += 1_000;
            sleep.after(Nanos(now), true);
            sleep.arrival(Nanos(now));
        }
        assert_eq!(sleep.rest(Nanos(now), Some(Nanos(now))), None, "something is due");
        assert!(sleep.rest(Nanos(now), Some(Nanos(now + 1))).is_some());
        sleep.after_rest(Nanos(now + 200_000));
        assert_eq!(sleep.rest(Nanos(now + 200_000), None), None);
        sleep.worked();
        assert_eq!(sleep.rest(Nanos(now + 200_000), None), None, "it is no load any more");
    }

    #[test]
    fn short_ways_have_no_rests() {
        let mut sleep = used_to(40_000);
        sleep.heed(Nanos(200_000), Nanos::MAX);
        assert_eq!(sleep.pause, Nanos::ZERO);
        sleep.heed(Nanos(10 * MS), Nanos::MAX);
        assert_eq!(sleep.pause, Nanos(40_000));
    }

    #[test]
    fn what_a_rest_gathers_fills_no_queue() {
        let mut sleep = used_to(40_000);
        sleep.heed(Nanos(50 * MS), Nanos(50 * MS));
        assert_eq!(sleep.pause, Nanos(200_000));
        sleep.heed(Nanos(50 * MS), Nanos(MS));
        assert_eq!(sleep.pause, Nanos(125_000));
        sleep.heed(Nanos(50 * MS), Nanos(100_000));
        assert_eq!(sleep.pause, Nanos::ZERO);
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
