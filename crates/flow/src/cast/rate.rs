//! Finds the highest rate at which hardly anything has to be sent again, while products are sent at it.
//!
//! The rate grows by a quarter at a time for as long as receivers lose little. Of a rate that was too high it is known what arrived, which is what the path
//! carries: a little less is tried next. A rate that is good, and close to one that was not, stays; it looks upward now and then by a step,
//! and gives way where the path has become worse. What is judged is the loss of the receivers but for the worst quarter: those that lose at any rate keep nobody from theirs.
//!
//! A rate is good when reports say so, which takes some tenths of a second. That a higher rate than a good one is bad, NACKs say within
//! a round trip; what arrives of it two reports say.

use std::collections::BTreeMap;

use farlink_wire::quantity::{BitsPerSec, Nanos};

/// Looks for a rate.
///
/// Drive it so: [`Self::on_sent`] for what leaves, [`Self::on_report`] for what receivers say, then [`Self::poll`], which says a rate
/// when it changes; come again by [`Self::deadline`].
#[derive(Clone, Debug)]
pub struct RateFinder {
    least: u64,
    most: u64,
    rate: u64,
    phase: Phase,
    trial: Trial,
    receivers: BTreeMap<u32, Reports>,
    /// How long reports lag behind what is sent.
    lag: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Nothing was bad yet.
    Climb,
    /// The rate is between one that was good and one that was bad.
    Narrow { good: u64, bad: u64 },
    /// At the highest that was good: since when, and how often it has been bad in a row.
    Hold { since: Nanos, bad: u8 },
}

/// One rate that is being tried.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// From when on reports tell of this rate.
    from: Nanos,
    /// Bytes on the wire since it began, and when it did.
    sent: u64,
    began: Nanos,
    /// Whether the rate before was lower and good: what is lost from its beginning on is due to this one.
    raised: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reports {
    /// At the first report of this trial.
    base: Option<(u64, u64)>,
    newest: (u64, u64),
    rtt: Nanos,
    /// Bytes that it asked for in this trial for the first time.
    asked: u64,
}

impl RateFinder {
    /// Begins at `start`, and stays between `least` and `most`. Reports lag by at most `lag`, and a round trip: a report's interval, and what
    /// queues hold.
    #[must_use]
    pub fn new(least: BitsPerSec, start: BitsPerSec, most: BitsPerSec, lag: Nanos, now: Nanos) -> Self {
        let (least, most) = (least.get().min(most.get()), most.get());
        let trial = Trial { from: now.after(lag), sent: 0, began: now, raised: false };
        let rate = start.get().clamp(least, most);
        Self { least, most, rate, phase: Phase::Climb, trial, receivers: BTreeMap::new(), lag }
    }

    /// The rate to send at.
    #[must_use]
    pub fn rate(&self) -> BitsPerSec {
        // Never zero: it is a rate or more than one.
        BitsPerSec::new(self.rate).unwrap_or(BitsPerSec(std::num::NonZeroU64::MIN))
    }

    /// Whether the search is over, until the path changes.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Hold { .. })
    }

    /// So many bytes have left for the group, with every header.
    pub const fn on_sent(&mut self, bytes: u64) {
        self.trial.sent += bytes;
    }

    /// A receiver that is `rtt` away could have received `packets` since it joined, and did not receive `lost` of them.
    pub fn on_report(&mut self, now: Nanos, receiver: u32, packets: u64, lost: u64, rtt: Nanos) {
        let reports = self.receivers.entry(receiver).or_default();
        reports.newest = (packets, lost);
        reports.rtt = rtt;
        if now >= self.trial.from && reports.base.is_none() {
            reports.base = Some(reports.newest);
        }
    }

    /// A receiver asked for so many bytes that it had not asked for before.
    pub fn on_nack(&mut self, receiver: u32, bytes: u64) {
        let asked = &mut self.receivers.entry(receiver).or_default().asked;
        *asked = asked.saturating_add(bytes);
    }

    /// A receiver has left.
    pub fn on_leave(&mut self, receiver: u32) {
        self.receivers.remove(&receiver);
    }

    /// A new rate, where there is one.
    pub fn poll(&mut self, now: Nanos) -> Option<BitsPerSec> {
        if self.is_too_high() {
            // The queue is full: from now on what arrives is what the path carries.
            self.trial = Trial { from: now, raised: false, ..self.trial };
            self.receivers.values_mut().for_each(|reports| reports.base = None);
        }
        let loss = self.loss(now)?;
        let filled = self.trial.sent as f64 * 8.0
            >= FILLED * self.rate as f64 * now.since(self.trial.began).as_secs_f64();
        let good = loss <= TARGET;
        // What was not sent at this rate says nothing good of it.
        if good && !filled {
            self.begin(now, self.rate);
            return None;
        }
        let before = self.rate;
        let next = self.judge(now, good, loss);
        self.begin(now, next);
        if good && next > before {
            // Nothing of before is in the way.
            let from = Nanos(self.trial.from.0 - self.lag.0).after(SOON.min(self.lag));
            self.trial = Trial { raised: true, from, ..self.trial };
        }
        (next != before).then(|| self.rate())
    }

    /// Whether NACKs say so already.
    fn is_too_high(&self) -> bool {
        if !self.trial.raised {
            return false;
        }
        let mut asked: Vec<u64> = self.receivers.values().map(|reports| reports.asked).collect();
        asked.sort_unstable();
        let worst = self.counted().checked_sub(1).and_then(|place| asked.get(place).copied()).unwrap_or(0);
        worst > CLEAR && worst as f64 > 4.0 * TARGET * self.trial.sent as f64
    }

    /// Receivers whose loss matters: all but the worst quarter.
    fn counted(&self) -> usize {
        self.receivers.len() - self.receivers.len() / 4
    }

    /// When to come again, at the latest, where reports come in.
    #[must_use]
    pub const fn deadline(&self) -> Nanos {
        self.trial.from
    }

    fn judge(&mut self, now: Nanos, is_good: bool, loss: f64) -> u64 {
        let rate = self.rate;
        match self.phase {
            Phase::Climb if is_good && rate >= self.most => self.settle(now, rate),
            Phase::Hold { bad, since } if !is_good && (bad + 1 < BAD_IN_A_ROW || rate <= self.least) => {
                self.phase = Phase::Hold { since, bad: (bad + 1).min(BAD_IN_A_ROW) };
                rate
            }
            _ if !is_good => self.give_way(now, loss),
            Phase::Climb => ((rate as f64 * CLIMB) as u64).min(self.most),
            Phase::Narrow { bad, .. } => {
                self.phase = Phase::Narrow { good: rate, bad };
                self.narrow(now)
            }
            Phase::Hold { since, .. } => {
                self.phase = Phase::Hold { since, bad: 0 };
                if now.since(since) < LOOK_UP || rate >= self.most {
                    return rate;
                }
                // One step: where it is good, the search goes on from there.
                let step = ((rate as f64 * STEP) as u64).min(self.most);
                self.phase = Phase::Narrow { good: rate, bad: (step + step / 16).min(self.most) };
                step
            }
        }
    }

    /// The rate was too high: what arrives of it is what the path carries.
    fn give_way(&mut self, now: Nanos, loss: f64) -> u64 {
        if self.rate <= self.least {
            return self.settle(now, self.least);
        }
        let carried = self.rate as f64 * (1.0 - loss);
        let next = ((carried * MARGIN) as u64).clamp(self.least, self.most);
        // Where far less arrives than of the rate before, it may have been a burst of something else: the search goes on from there.
        let beyond =
            if carried * CLIMB * BEYOND > self.rate as f64 { carried * BEYOND } else { self.rate as f64 };
        self.phase = Phase::Narrow { good: next, bad: (beyond as u64).clamp(next, self.rate) };
        next
    }

    /// The next rate between what was good and what was bad.
    fn narrow(&mut self, now: Nanos) -> u64 {
        let Phase::Narrow { good, bad } = self.phase else { return self.rate };
        if bad as f64 <= CLOSE * good as f64 {
            return self.settle(now, good);
        }
        (good as f64 * bad as f64).sqrt() as u64
    }

    const fn settle(&mut self, now: Nanos, rate: u64) -> u64 {
        self.phase = Phase::Hold { since: now, bad: 0 };
        rate
    }

    fn begin(&mut self, now: Nanos, rate: u64) {
        self.rate = rate;
        let rtt = self.receivers.values().map(|reports| reports.rtt).max().unwrap_or_default();
        self.trial = Trial { from: now.after(self.lag).after(rtt), sent: 0, began: now, raised: false };
        self.receivers.values_mut().for_each(|reports| (reports.base, reports.asked) = (None, 0));
    }

    /// The greatest loss of the receivers but for the worst quarter, as soon as enough packets tell of it.
    fn loss(&self, now: Nanos) -> Option<f64> {
        if now < self.trial.from {
            return None;
        }
        let mut losses: Vec<f64> = self.receivers.values().filter_map(Reports::loss).collect();
        let needed = self.counted();
        if losses.len() < needed.max(1) {
            return None;
        }
        losses.sort_by(f64::total_cmp);
        losses.get(needed - 1).copied()
    }
}

impl Reports {
    /// The share that was lost in this trial, once that is certain enough.
    fn loss(&self) -> Option<f64> {
        let (base, newest) = (self.base?, self.newest);
        let packets = newest.0.saturating_sub(base.0);
        let lost = newest.1.saturating_sub(base.1);
        let clear = lost as f64 > 4.0 * TARGET * ENOUGH as f64;
        let spotless = lost == 0 && packets >= SPOTLESS;
        (packets >= ENOUGH || spotless || clear).then(|| lost as f64 / packets.max(1) as f64)
    }
}

/// The greatest share that may be sent again: what VCMTP's authors call a loss that does not matter.
const TARGET: f64 = 0.005;

/// Packets that tell a share of [`TARGET`] from twice as much: 20 losses against 40, which chance makes of each other once in a thousand
/// times.
const ENOUGH: u64 = 4000;

/// Packets of which none may be lost by chance, with a share of [`TARGET`], but once in 150 times.
const SPOTLESS: u64 = 1000;

/// By how much the rate grows while nothing was bad: what is lost until a rate is known to be too high is a fifth of it at most.
const CLIMB: f64 = 1.25;

/// Bytes that a receiver must have asked for until that counts: some 80 packets of 1,500 bytes.
const CLEAR: u64 = 120_000;

/// How much of a rate must have been sent so that it counts as tried.
const FILLED: f64 = 0.8;

/// How close a good and a bad rate are when the search ends.
const CLOSE: f64 = 1.07;

/// How far below what arrived of a rate that was too high the next one is, and how far above it a rate is too high for certain.
const MARGIN: f64 = 0.97;
const BEYOND: f64 = 1.03;

/// After what time, and a round trip, a report can tell of a rate that is higher than a good one.
const SOON: Nanos = Nanos(30_000_000);

/// How long a rate is kept before a higher one is tried.
const LOOK_UP: Nanos = Nanos(30_000_000_000);
/// How much higher.
const STEP: f64 = 1.05;

/// Trials in a row that must be bad until a rate that was found is given up: one may be a burst of somebody else's.
const BAD_IN_A_ROW: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Nanos = Nanos(300_000_000);

    fn rate(bits: u64) -> BitsPerSec {
        BitsPerSec::new(bits).unwrap()
    }

    /// Receivers that lose what is beyond their capacity, and a share of all; reports each 0.25 s.
    struct Path {
        capacities: Vec<f64>,
        always: Vec<f64>,
        counts: Vec<(f64, f64)>,
        now: Nanos,
        load: f64,
    }

    impl Path {
        fn new(capacities: &[f64], always: &[f64]) -> Self {
            let counts = vec![(0.0, 0.0); capacities.len()];
            Self { capacities: capacities.into(), always: always.into(), counts, now: Nanos::ZERO, load: 1.0 }
        }

        fn run(&mut self, finder: &mut RateFinder, seconds: f64) -> u64 {
            let end = self.now.after(Nanos::from_secs_f64(seconds));
            let (mut changes, step) = (0, 0.25);
            while self.now < end {
                let sending = finder.rate().get() as f64 * self.load;
                finder.on_sent((sending * step / 8.0) as u64);
                self.now = self.now.after(Nanos::from_secs_f64(step));
                for (receiver, counts) in self.counts.iter_mut().enumerate() {
                    let packets = sending * step / 8.0 / 1538.0;
                    let over = (1.0 - self.capacities[receiver] / sending).max(0.0);
                    counts.0 += packets;
                    counts.1 += packets * over.max(self.always[receiver]);
                    finder.on_report(
                        self.now,
                        receiver as u32,
                        counts.0 as u64,
                        counts.1 as u64,
                        Nanos::ZERO,
                    );
                }
                changes += u64::from(finder.poll(self.now).is_some());
            }
            changes
        }
    }

    fn finder() -> RateFinder {
        RateFinder::new(rate(1_000_000), rate(50_000_000), rate(10_000_000_000), LAG, Nanos::ZERO)
    }

    #[test]
    fn it_finds_the_highest_rate_that_is_hardly_lossy() {
        for capacity in [90e6, 633e6, 940e6, 3.7e9] {
            let mut finder = finder();
            let mut path = Path::new(&[capacity], &[0.0005]);
            path.run(&mut finder, 25.0);
            let best = capacity / 0.995;
            let share = finder.rate().get() as f64 / best;
            assert!(finder.is_settled() && (0.95..=1.0).contains(&share), "{capacity}: {share}");
        }
    }

    #[test]
    fn it_stops_where_it_may_not_go_further() {
        let mut finder = finder();
        Path::new(&[40e9], &[0.0]).run(&mut finder, 20.0);
        assert_eq!(finder.rate(), rate(10_000_000_000));
        let mut finder =
            RateFinder::new(rate(10_000_000), rate(50_000_000), rate(1_000_000_000), LAG, Nanos::ZERO);
        Path::new(&[1e6], &[0.0]).run(&mut finder, 60.0);
        assert_eq!(finder.rate(), rate(10_000_000));
    }

    #[test]
    fn it_climbs_from_the_lowest_rate_too() {
        let mut finder = RateFinder::new(rate(1_000_000), rate(1_000_000), rate(4_000_000), LAG, Nanos::ZERO);
        Path::new(&[40e6], &[0.0]).run(&mut finder, 120.0);
        assert_eq!(finder.rate(), rate(4_000_000));
    }

    #[test]
    fn one_that_always_loses_keeps_nobody_from_their_rate() {
        let mut finder = finder();
        let mut path = Path::new(&[900e6, 900e6, 900e6, 900e6], &[0.0, 0.0, 0.3, 0.0]);
        path.run(&mut finder, 25.0);
        assert!(finder.rate().get() > 855_000_000, "{}", finder.rate());
    }

    #[test]
    fn a_path_that_gets_worse_is_noticed_and_one_that_gets_better_too() {
        let mut finder = finder();
        let mut path = Path::new(&[900e6], &[0.0]);
        path.run(&mut finder, 25.0);
        path.capacities[0] = 300e6;
        path.run(&mut finder, 20.0);
        let slower = finder.rate().get() as f64;
        assert!((0.95..=1.005).contains(&(slower / 300e6)), "{slower}");
        path.capacities[0] = 400e6;
        path.run(&mut finder, 600.0);
        let faster = finder.rate().get() as f64;
        assert!((0.95..=1.005).contains(&(faster / 400e6)), "{faster}");
    }

    #[test]
    fn a_rate_that_was_not_used_is_not_taken_for_good() {
        let mut finder = finder();
        let mut path = Path::new(&[900e6], &[0.0]);
        path.load = 0.3;
        assert_eq!(path.run(&mut finder, 60.0), 0);
        assert_eq!(finder.rate(), rate(50_000_000));
    }

    #[test]
    fn that_a_rate_is_too_high_is_heard_at_once() {
        let mut finder = finder();
        let mut path = Path::new(&[90e6], &[0.0]);
        while finder.rate().get() <= 90_000_000 {
            path.run(&mut finder, 0.25);
        }
        // A tenth of that is lost, and asked for: two reports after that say what arrives, though the trial has only begun.
        finder.on_sent(1_250_000);
        finder.on_nack(0, 125_000);
        assert_eq!(finder.poll(path.now), None);
        let (packets, lost) = (path.counts[0].0 as u64, path.counts[0].1 as u64);
        finder.on_report(path.now, 0, packets, lost, Nanos::ZERO);
        assert_eq!(finder.poll(path.now), None);
        finder.on_report(path.now, 0, packets + 4000, lost + 400, Nanos::ZERO);
        let lower = finder.poll(path.now).unwrap().get();
        assert!((84_000_000..90_000_000).contains(&lower), "{lower}");
        // What comes in from before says nothing of the lower rate.
        finder.on_nack(0, 1_000_000);
        assert_eq!(finder.poll(path.now), None);
    }

    #[test]
    fn once_found_the_rate_hardly_moves() {
        let mut finder = finder();
        let mut path = Path::new(&[500e6], &[0.001]);
        path.run(&mut finder, 25.0);
        // A look upward each half minute takes a trial or a few.
        assert!(path.run(&mut finder, 120.0) <= 24);
        assert!((0.95..=1.06).contains(&(finder.rate().get() as f64 / 502e6)), "{}", finder.rate());
    }
}
