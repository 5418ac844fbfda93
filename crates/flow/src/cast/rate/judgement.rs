//! What a trial says of its rate, and which rate is tried next.

use farlink_wire::quantity::Nanos;

use super::reports::{ENOUGH, FEW, Reports};
use super::{Bad, FIRST_LOOK_UP, GROWN, LAST_LOOK_UP, RateFinder, TARGET};

/// How far the search is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    /// Nothing was bad yet.
    Climb,
    /// The rate is between one that was good and one that was bad.
    Narrow { good: u64, bad: u64 },
    /// At the highest that was good: since when, how often it has been bad in a row, and whether a lower one is to be looked at next, as it
    /// may be the rate after all that loses.
    Hold { since: Nanos, bad: u8, doubtful: bool },
    /// Above one that was found, by such a share of it.
    Reach { good: u64, step: f64 },
    /// Below one that was found and that loses what counts as lost at any rate.
    Doubt { above: u64 },
}

impl RateFinder {
    /// The share that may be lost at a good rate: beside what is lost at any, and what chance makes of that.
    pub(super) fn tolerated(&self) -> f64 {
        let likely = if self.is_climbing() { self.base.max(TARGET) } else { self.base };
        self.base + TARGET + 3.0 * (likely * (1.0 - likely) / self.enough() as f64).sqrt()
    }

    /// Packets that tell of a rate. While it climbs each is so far from the last that what a path does not carry is a large part of it: a path
    /// that loses at any rate is not to be waited for at each.
    pub(super) const fn enough(&self) -> u64 {
        if self.is_climbing() || self.before.is_some() { FEW } else { ENOUGH }
    }

    const fn is_climbing(&self) -> bool {
        matches!(self.phase, Phase::Climb)
    }

    /// The rate after one that `is_good`, or loses too much; `sent` is what this host sent of it.
    pub(super) fn judge(&mut self, now: Nanos, is_good: bool, loss: f64, sent: u64) -> u64 {
        let rate = self.rate;
        if let Phase::Doubt { above } = self.phase {
            return self.resolve(now, loss, above);
        }
        if !is_good {
            return self.judge_bad(now, loss);
        }
        self.before = None;
        if self.base > 0.0 {
            self.base = if loss <= TARGET { 0.0 } else { self.base + WEIGHT * (loss - self.base) };
        }
        if let Some(slower) = self.judge_slow(now, sent) {
            return slower;
        }
        match self.phase {
            Phase::Climb if rate >= self.most => self.settle(now, rate),
            Phase::Climb if loss == 0.0 && self.but_the_worst(Reports::rtt) <= NEAR => {
                self.above(rate, LEAP - 1.0)
            }
            Phase::Climb => self.above(rate, CLIMB - 1.0),
            Phase::Narrow { bad, .. } => {
                self.phase = Phase::Narrow { good: rate, bad };
                self.narrow(now)
            }
            Phase::Reach { .. } if rate >= self.most => self.settle(now, rate),
            // It was not the path, but something that is over.
            Phase::Reach { step, .. } => {
                let is_far = rate as f64 >= CHANGED * self.found as f64;
                let step = if is_far { (2.0 * step).min(CLIMB - 1.0) } else { step };
                self.phase = Phase::Reach { good: rate, step };
                self.above(rate, step)
            }
            Phase::Hold { since, doubtful, .. } => {
                self.phase = Phase::Hold { since, bad: 0, doubtful };
                if now.since(since) < self.look_up {
                    return rate;
                }
                if doubtful && self.base > 0.0 {
                    self.phase = Phase::Doubt { above: rate };
                    return ((rate as f64 * DOUBT) as u64).max(self.least);
                }
                if rate >= self.most {
                    return self.settle(now, rate);
                }
                self.phase = Phase::Reach { good: rate, step: STEP };
                self.found = rate;
                // Where nothing higher is found, it is looked for more seldom.
                self.look_up = Nanos(2 * self.look_up.0).min(LAST_LOOK_UP);
                self.above(rate, STEP)
            }
            Phase::Doubt { .. } => rate,
        }
    }

    fn judge_bad(&mut self, now: Nanos, loss: f64) -> u64 {
        let rate = self.rate;
        if let Phase::Hold { bad, since, doubtful } = self.phase
            && (bad + 1 < BAD_IN_A_ROW || rate <= self.least)
        {
            self.phase = Phase::Hold { since, bad: (bad + 1).min(BAD_IN_A_ROW), doubtful };
            return rate;
        }
        if let Some(before) = self.before.take()
            && rate as f64 <= before.carried
            && loss >= SAME * before.loss
        {
            // It is not the rate that loses: on from where it was.
            self.base = loss.min(before.loss);
            self.phase = match before.phase {
                Phase::Hold { .. } => Phase::Hold { since: now, bad: 0, doubtful: true },
                other => other,
            };
            return before.rate;
        }
        self.give_way(now, loss)
    }

    /// Where this host does not send as fast as it may, though it has enough to send: the rate that it can send at.
    fn judge_slow(&mut self, now: Nanos, sent: u64) -> Option<u64> {
        let share = sent as f64 / self.rate as f64;
        let is_slow = match self.phase {
            Phase::Hold { .. } => share < MUCH_LESS,
            _ => share < LESS,
        };
        if !is_slow {
            self.slow = 0;
            return None;
        }
        self.slow += 1;
        if self.slow < SLOW_IN_A_ROW {
            return Some(self.rate);
        }
        self.slow = 0;
        let next = match self.phase {
            Phase::Reach { good, .. } | Phase::Narrow { good, .. } => sent.max(good),
            _ => sent,
        };
        self.look_up = Nanos(2 * self.look_up.0).min(LAST_LOOK_UP);
        Some(self.settle(now, next.clamp(self.least, self.rate)))
    }

    /// The rate was too high, and one that was good is gone back to: `before`, or where a queue had begun to grow then, a lower one.
    pub(super) fn step_back(&mut self, before: u64) -> u64 {
        let good = match self.phase {
            Phase::Reach { .. } => self.found,
            Phase::Climb if self.but_the_worst(Reports::stood) >= Nanos(GROWN.0 / 4) => {
                ((before as f64 / CLIMB) as u64).max(self.least)
            }
            _ => before,
        };
        self.phase = Phase::Narrow { good, bad: self.rate };
        self.before = None;
        good
    }

    /// A queue stands, and would for ever: it empties at a lower rate.
    pub(super) fn lower(&mut self) -> u64 {
        let next = ((self.rate as f64 * LOWER) as u64).max(self.least);
        self.phase = Phase::Narrow { good: next, bad: self.rate };
        (self.standing, self.is_lowered, self.before, self.has_found) = (0, true, None, false);
        next
    }

    /// The rate was too high: what arrives of it is what the path carries.
    fn give_way(&mut self, now: Nanos, loss: f64) -> u64 {
        if self.rate <= self.least {
            return self.settle(now, self.least);
        }
        self.has_found &= !matches!(self.phase, Phase::Hold { .. });
        let excess = ((loss - self.base) / (1.0 - self.base)).max(0.0);
        let carried = self.rate as f64 * (1.0 - excess);
        self.before = Some(Bad { rate: self.rate, loss, carried, phase: self.phase });
        let mut next = ((carried * MARGIN) as u64).clamp(self.least, self.most);
        if let Phase::Reach { good, step } = self.phase
            && step <= STEP
        {
            // That it was good until now is known for longer.
            next = next.max((good as f64 * MARGIN) as u64);
        }
        // Where far less arrives than of the rate before, it may have been a burst of something else: the search goes on from there.
        let beyond =
            if carried * CLIMB * BEYOND > self.rate as f64 { carried * BEYOND } else { self.rate as f64 };
        self.phase = Phase::Narrow { good: next, bad: (beyond as u64).clamp(next, self.rate.max(next)) };
        next
    }

    /// Whether the rate above loses what would be lost at any.
    fn resolve(&mut self, now: Nanos, loss: f64, above: u64) -> u64 {
        // What would be lost at this rate, were it because of the rate.
        let due = (1.0 - above as f64 * (1.0 - self.base) / self.rate as f64).max(0.0);
        if loss <= TARGET {
            // It does not.
            self.base = 0.0;
            self.phase = Phase::Narrow { good: self.rate, bad: above };
            return self.narrow(now);
        }
        if loss < due + SAME * (self.base - due) {
            // It is the rate after all, and this one is too high as well.
            self.base = 0.0;
            return self.give_way(now, loss);
        }
        self.phase = Phase::Hold { since: now, bad: 0, doubtful: false };
        above
    }

    /// The next rate between what was good and what was bad.
    fn narrow(&mut self, now: Nanos) -> u64 {
        let Phase::Narrow { good, bad } = self.phase else { return self.rate };
        if bad as f64 <= CLOSE * good as f64 {
            return self.settle(now, good);
        }
        (good as f64 * bad as f64).sqrt() as u64
    }

    fn settle(&mut self, now: Nanos, rate: u64) -> u64 {
        if rate as f64 >= CHANGED * self.found as f64 {
            self.look_up = FIRST_LOOK_UP;
        }
        self.phase = Phase::Hold { since: now, bad: 0, doubtful: true };
        self.has_found = true;
        rate
    }

    fn above(&self, rate: u64, share: f64) -> u64 {
        ((rate as f64 * (1.0 + share)) as u64).min(self.most)
    }
}

/// By how much the rate grows while nothing was bad: what is lost until a rate is known to be too high is a fifth of it at most.
const CLIMB: f64 = 1.25;

/// By how much where nothing was lost and receivers are near, so that a step too far is taken back after little was lost.
const LEAP: f64 = 2.0;
const NEAR: Nanos = Nanos(25_000_000);

/// How close a good and a bad rate are when the search ends.
const CLOSE: f64 = 1.03;

/// How much lower a rate is at which a queue empties: 10 ms of it in a fifth of a second.
const LOWER: f64 = 0.95;

/// By how much more than was found before a path has changed.
const CHANGED: f64 = 1.1;

/// How far below what arrived of a rate that was too high the next one is, and how far above it a rate is too high for certain.
const MARGIN: f64 = 0.97;
const BEYOND: f64 = 1.03;

/// How much higher a rate is that is looked at above one that was found, as a share of it: at first.
const STEP: f64 = 0.05;

/// Where a lower rate loses such a part of what a higher one did, or more, it is not the rate that loses: a queue that overflows loses
/// nothing of what is below what it lets through.
const SAME: f64 = 0.6;

/// How much lower that is looked at to see whether it is the rate.
const DOUBT: f64 = 0.85;

/// How much a trial says of what is lost at any rate.
const WEIGHT: f64 = 0.25;

/// How much of a rate a host must send that has enough to send: of one that is tried, and of one that was found.
const LESS: f64 = 0.93;
const MUCH_LESS: f64 = 0.8;

/// Trials in a row that must be so until that is believed: one may be somebody else's.
const BAD_IN_A_ROW: u8 = 2;
const SLOW_IN_A_ROW: u8 = 2;
