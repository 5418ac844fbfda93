//! The rate that several connections over one path may send at together, sought from what the path delivers.
//!
//! Connections that start together double together: over a long round trip they have filled the path's queue, and lost what comes after it,
//! before any of them can know. But what arrives while a queue stands arrives at the path's rate, also in a burst of slow start that is a
//! small part of a window. That rate, shared among the connections, is a ceiling under which they go on doubling until the path is full, and
//! no more. Afterwards the ceiling follows the path: it gives way to queues that it can drain, looks higher where none stands, and is lifted
//! where queues stand whatever it does, for they are then others'.

use std::collections::VecDeque;

use farlink_wire::quantity::{BitsPerSec, Nanos};

/// What the connections of one path say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When they said so.
    pub at: Nanos,
    /// Payload that has arrived since the beginning, all together, bytes.
    pub delivered: u64,
    /// A round trip lately, their mean.
    pub rtt: Nanos,
    /// The least round trip of all.
    pub least_rtt: Nanos,
}

/// Seeks and holds the ceiling of one path.
#[derive(Clone, Debug)]
pub struct Ceiling {
    /// Those of the last round trip and a little more, oldest first.
    samples: VecDeque<Sample>,
    phase: Phase,
    /// When the phase began, and when anything was heard first.
    since: Nanos,
    began: Option<Nanos>,
    /// Round trips since then.
    rounds: u64,
    /// When something arrived last, and from when on a queue has stood without an end.
    moved: Option<Nanos>,
    stood: Option<Nanos>,
    /// The highest rate known to be carried, bits per second.
    level: f64,
    /// How much higher the next look goes, a part of the level.
    gain: f64,
    /// Rounds to hold before that look.
    patience: u32,
    /// Looks in a row that brought no queue.
    good: u32,
    /// Drains in a row that drained nothing.
    strikes: u32,
    /// Whether a queue has told the level.
    is_told: bool,
}

/// What becomes of the ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// No more bits a second than these, all connections together.
    Held(BitsPerSec),
    /// As the congestion controls of the connections see fit.
    Lifted,
}

/// What the ceiling is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No queue was seen yet, and there is none.
    Seeking,
    /// It is the level.
    Holding,
    /// It is below the level, until a queue is gone.
    Draining,
    /// It is above the level, to see whether a queue comes.
    Looking,
    /// There is none any more.
    Lifted,
}

impl Default for Ceiling {
    fn default() -> Self {
        Self {
            samples: VecDeque::new(),
            phase: Phase::Seeking,
            since: Nanos::ZERO,
            began: None,
            rounds: 0,
            moved: None,
            stood: None,
            level: 0.0,
            gain: 0.0,
            patience: FIRST_PATIENCE,
            good: 0,
            strikes: 0,
            is_told: false,
        }
    }
}

impl Ceiling {
    /// Takes what the connections say, also where nothing has arrived since they did so last, and returns what changes.
    pub fn on_sample(&mut self, sample: Sample) -> Option<Change> {
        if sample.least_rtt == Nanos::ZERO {
            return None;
        }
        let began = *self.began.get_or_insert(sample.at);
        self.rounds = sample.at.since(began).0 / sample.least_rtt.0;
        let has_moved = self.samples.back().is_none_or(|last| sample.delivered > last.delivered);
        self.samples.push_back(sample);
        let kept = Nanos(sample.least_rtt.0 + sample.least_rtt.0 / 4);
        while self.samples.get(1).is_some_and(|second| sample.at.since(second.at) >= kept) {
            self.samples.pop_front();
        }
        let queue = sample.rtt.since(sample.least_rtt);
        let stands = queue >= standing(sample.least_rtt);
        if self.moved.is_none_or(|moved| sample.at.since(moved) > kept) {
            // What is said of round trips is as old as what came last.
            self.stood = None;
        }
        if has_moved {
            self.moved = Some(sample.at);
        }
        self.stood = if stands { self.stood.or(Some(sample.at)) } else { None };
        if !has_moved {
            return None;
        }
        let round = sample.at.since(self.since) >= sample.least_rtt;
        match self.phase {
            Phase::Seeking if stands => self.find(sample),
            Phase::Holding if stands && round && self.is_filled(sample, FILLED) => self.drain(sample, queue),
            Phase::Holding if !stands && self.is_time(sample) => {
                self.turn(Phase::Looking, sample.at, self.level * (1.0 + self.gain))
            }
            Phase::Looking if stands => {
                self.gain = (self.gain / 2.0).max(LEAST_GAIN);
                self.patience = (self.patience * 2).min(MOST_PATIENCE);
                self.drain(sample, queue)
            }
            // What left a round trip ago, and since for as long as a queue takes, brought none.
            Phase::Looking if sample.at.since(self.since) >= self.shown_after(sample.least_rtt) => {
                if !self.is_filled(sample, SOME) {
                    // Nor was there much that could have.
                    return self.turn(Phase::Holding, sample.at, self.level);
                }
                self.level *= 1.0 + self.gain;
                self.gain = (self.gain * 2.0).min(1.0);
                self.patience = FIRST_PATIENCE;
                self.good += 1;
                if self.good >= MOST_GOOD {
                    // What was found was not the path's rate.
                    self.phase = Phase::Seeking;
                    return Some(Change::Lifted);
                }
                self.turn(Phase::Holding, self.since, self.level)
            }
            Phase::Draining if !stands => {
                self.strikes = 0;
                self.turn(Phase::Holding, sample.at, self.level)
            }
            // What left under the lower ceiling has been acknowledged for a round trip.
            Phase::Draining if sample.at.since(self.since).0 >= 2 * sample.least_rtt.0 => {
                if !self.is_filled(sample, FILLED) {
                    // What stands was not sent under this ceiling.
                    self.strikes = 0;
                    return self.turn(Phase::Holding, sample.at, self.level);
                }
                self.strikes += 1;
                if self.strikes >= MOST_STRIKES { self.lift() } else { self.drain(sample, queue) }
            }
            _ => None,
        }
    }

    /// `bps` is known to be carried over round trips of `least_rtt`, as of now: it is held until a queue says otherwise, or none does where
    /// it is looked for. Returns what is held.
    pub fn hold(&mut self, bps: BitsPerSec, now: Nanos, least_rtt: Nanos) -> BitsPerSec {
        self.level = bps.get() as f64;
        self.gain = first_gain(least_rtt);
        (self.good, self.strikes, self.patience) = (0, 0, FIRST_PATIENCE);
        self.phase = Phase::Holding;
        self.since = now;
        bps
    }

    /// The path's rate, bits a second, where a queue has told it; what is only [held](Self::hold) is not.
    #[must_use]
    pub fn level(&self) -> Option<u64> {
        let is_known = self.is_told && !matches!(self.phase, Phase::Seeking | Phase::Lifted);
        is_known.then_some(self.level as u64)
    }

    /// Bits a second that arrived in the last round trip and a quarter, for what waits for a busy host comes faster afterwards; zero while none
    /// has passed.
    #[must_use]
    pub fn lately(&self, least_rtt: Nanos) -> u64 {
        let both = self.samples.front().zip(self.samples.back());
        let long = both.filter(|(first, last)| last.at.since(first.at) >= least_rtt);
        long.map_or(0, |(first, last)| rate(first, last) as u64)
    }

    /// Whether four times what arrived in the last round trip may be more than half of what the path carries, as far as its bursts have shown; not
    /// while none was seen. A path whose rate is known is near enough.
    #[must_use]
    pub fn is_near(&self, least_rtt: Nanos) -> bool {
        let shown = self.fastest(span(least_rtt)).zip(self.rate_over(least_rtt));
        !matches!(self.phase, Phase::Seeking) || shown.is_some_and(|(fastest, whole)| FAR * whole > fastest)
    }

    /// Whether connections are to send in bursts, which show the path's rate where it was not found yet.
    #[must_use]
    pub const fn wants_bursts(&self) -> bool {
        matches!(self.phase, Phase::Seeking) && self.rounds < MOST_ROUNDS
    }

    /// How long to wait for the next sample, over a round trip of `rtt`.
    #[must_use]
    pub fn pause(&self, rtt: Nanos) -> Nanos {
        match self.phase {
            Phase::Seeking if self.wants_bursts() => Nanos(span(rtt).0 / 8).max(LEAST_PAUSE),
            _ => Nanos(rtt.0 / 16).clamp(Nanos(LEAST_PAUSE.0 * 4), MOST_PAUSE),
        }
    }

    /// A first queue: what came in the fastest part of the last round trip came at the path's rate. That part was a burst, and not packets that
    /// came late on a busy host, where it lasted, and was much faster than the whole; or the path is full, and the queue stands for long.
    fn find(&mut self, sample: Sample) -> Option<Change> {
        let span = span(sample.least_rtt);
        let level = self.fastest(Nanos(2 * span.0))?;
        if level < LASTS * self.fastest(span)? {
            return None;
        }
        let is_burst = level >= BURST * self.rate_over(sample.least_rtt)?;
        let is_full = self.stood.is_some_and(|since| sample.at.since(since).0 >= sample.least_rtt.0 / 2);
        if !is_burst && !is_full {
            return None;
        }
        self.level = level;
        self.is_told = true;
        self.gain = first_gain(sample.least_rtt);
        (self.good, self.strikes, self.patience) = (0, 0, FIRST_PATIENCE);
        self.turn(Phase::Holding, sample.at, self.level)
    }

    /// Sends so much less for a round trip that the queue is gone then.
    fn drain(&mut self, sample: Sample, queue: Nanos) -> Option<Change> {
        (self.good, self.is_told) = (0, true);
        if self.phase != Phase::Looking {
            self.gain = first_gain(sample.least_rtt);
            // A queue stands, so that what came lately came at the path's rate. Much less of it is news of something else: a loss, others.
            let lately = self.rate_over(sample.least_rtt)?;
            self.level = self.level.min(lately.max(self.level * LEAST_KEPT));
        }
        let part = (queue.0 as f64 / sample.least_rtt.0 as f64).clamp(LEAST_DRAIN, MOST_DRAIN);
        self.turn(Phase::Draining, sample.at, self.level * (1.0 - part))
    }

    fn lift(&mut self) -> Option<Change> {
        self.phase = Phase::Lifted;
        self.samples.clear();
        Some(Change::Lifted)
    }

    fn turn(&mut self, phase: Phase, now: Nanos, bps: f64) -> Option<Change> {
        let bps = BitsPerSec::new(bps as u64)?;
        self.phase = phase;
        self.since = now;
        Some(Change::Held(bps))
    }

    /// Whether it is time to look higher: the ceiling has held for some rounds, and is what bounds the connections.
    fn is_time(&self, sample: Sample) -> bool {
        let rounds = sample.at.since(self.since).0 / sample.least_rtt.0;
        // Connections that are slower than their share keep the others from more than theirs.
        let part = if rounds < LATE { BOUND } else { SOME };
        rounds >= u64::from(self.patience) && self.is_filled(sample, part)
    }

    /// Whether so large a part of the level arrived in the last round trip.
    fn is_filled(&self, sample: Sample, part: f64) -> bool {
        self.rate_over(sample.least_rtt).is_some_and(|rate| rate >= part * self.level)
    }

    /// When a look is over that no queue came of: half as long again after the answers begin as it takes one to stand at the path's rate.
    fn shown_after(&self, least: Nanos) -> Nanos {
        let builds = Nanos((1.5 * standing(least).0 as f64 / self.gain) as u64);
        least.after(builds.min(least))
    }

    /// Bits a second that came in the last `time`; `None` where that is longer than is known.
    fn rate_over(&self, time: Nanos) -> Option<f64> {
        let last = self.samples.back()?;
        let first = self.samples.iter().rev().find(|sample| last.at.since(sample.at) >= time)?;
        Some(rate(first, last))
    }

    /// Bits a second in the fastest `time` that is known.
    fn fastest(&self, time: Nanos) -> Option<f64> {
        let mut first = 0;
        let mut fastest: Option<f64> = None;
        for last in &self.samples {
            while self.samples.get(first + 1).is_some_and(|next| last.at.since(next.at) >= time) {
                first += 1;
            }
            if last.at.since(self.samples[first].at) >= time {
                let rate = rate(&self.samples[first], last);
                fastest = Some(fastest.map_or(rate, |most| most.max(rate)));
            }
        }
        fastest.filter(|rate| *rate > 0.0)
    }
}

fn rate(first: &Sample, last: &Sample) -> f64 {
    let bits = last.delivered.saturating_sub(first.delivered) as f64 * 8.0;
    bits * 1e9 / last.at.since(first.at).0.max(1) as f64
}

/// Above the least round trip, from when on a queue stands: more than a busy host's noise, less than a burst that an ordinary queue holds.
pub(crate) fn standing(least: Nanos) -> Nanos {
    Nanos(least.0 / 32).clamp(Nanos(5_000_000), Nanos(10_000_000))
}

/// Over how long the rate of a burst is told: one of these at full rate is long before the path is.
fn span(least: Nanos) -> Nanos {
    Nanos(least.0 / 32).clamp(Nanos(4_000_000), Nanos(12_000_000))
}

/// The part of the level that must arrive for the ceiling to be what bounds it: BBR sends 3% less than it may on average.
const BOUND: f64 = 0.85;

/// The part that must after so many round trips.
const SOME: f64 = 0.4;
const LATE: u64 = 8;

/// The part of a rate that twice as long a part of a burst must have: a single late packet has half.
const LASTS: f64 = 0.7;

/// How many times as fast as the round trip that it is of a burst is at least.
const BURST: f64 = 3.0;

/// How many times as fast as the round trip that it is of a burst is at least where four times as much takes no more than half of one.
const FAR: f64 = 8.0;

/// Round trips after which a path whose queue was never seen is not what bounds the connections: 12 double a window from ten segments to
/// 500 MB, and a few more are others'.
const MOST_ROUNDS: u64 = 20;

/// The part of the level that must arrive for a queue to be the ceiling's doing, and not of a burst before it, or of others.
const FILLED: f64 = 0.6;

/// How much higher the first look goes, which is seen a round trip later: where the ceiling is the path's rate the queue is 20 ms longer then. Doubled
/// where it is good, halved where not.
fn first_gain(least: Nanos) -> f64 {
    (20e6 / least.0 as f64).clamp(0.05, 0.4)
}

/// The least of these, a part of the level.
const LEAST_GAIN: f64 = 0.02;

/// Rounds before a look, doubled where one was not good.
const FIRST_PATIENCE: u32 = 1;
const MOST_PATIENCE: u32 = 32;

/// Within this a drain is as deep as the queue is.
const LEAST_DRAIN: f64 = 0.02;
const MOST_DRAIN: f64 = 0.25;

/// The part of the level that a drain leaves at least.
const LEAST_KEPT: f64 = 0.5;

/// Looks in a row after which a rate that was found is not the path's: a burst tells that to a quarter.
const MOST_GOOD: u32 = 3;

/// Drains in a row after which a queue is others'.
const MOST_STRIKES: u32 = 4;

/// Between samples.
const LEAST_PAUSE: Nanos = Nanos(1_000_000);
const MOST_PAUSE: Nanos = Nanos(50_000_000);

#[cfg(test)]
mod tests;
