//! How the connections of a path that was used before get up to its rate at once, and let go of it where it is not the same any more.
//!
//! RFC 9959 (Convergence of Congestion Control from Retained State) has the phases and their names. In `Reconnaissance` the connections
//! send what any would, until that has arrived over a round trip like the one that was saved. Then they jump to half the rate that was
//! saved, which is `Unvalidated` until a round trip and a little more has brought most of it, and neither a loss nor a queue. With the first
//! of these they retreat to what arrived.

use core::num::NonZeroU64;

use farlink_wire::quantity::{BitsPerSec, Nanos};

use crate::ceiling::{Sample, standing};

/// What connections over one path do together.
#[derive(Clone, Debug)]
pub struct CarefulResume {
    rate: BitsPerSec,
    rtt: Nanos,
    is_full: bool,
    phase: Phase,
    /// When the phase began; of [`Phase::Reconnaissance`], when something had arrived first.
    since: Option<Nanos>,
    /// The first sample of what was sent by the jump.
    answered: Option<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Reconnaissance,
    Unvalidated,
    Retreat,
    Over,
}

/// What the connections met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Something was lost that they sent.
    pub lost: bool,
    /// A jump can be made.
    pub can: bool,
    /// They had less to send than they might.
    pub is_idle: bool,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The path is not as it was: the connections begin as any others.
    Decline,
    /// Send so much a second, all connections together, from now on.
    Jump(BitsPerSec),
    /// That arrived: the rate that was saved is the path's, where that is known.
    Confirm(Option<BitsPerSec>),
    /// It did not: no more than so much a second, until [`Step::Release`].
    Retreat(BitsPerSec),
    /// From now on the congestion controls of the connections know better; also where there was too little to send for the jump to show anything.
    Release,
}

impl CarefulResume {
    /// Of a path that carried `rate` over round trips of `rtt`, and no more where it `is_full` then; `None` where the first windows carry nearly as much as half of that.
    #[must_use]
    pub fn new(rate: BitsPerSec, rtt: Nanos, is_full: bool) -> Option<Self> {
        let pays = rtt >= SHORTEST && half(rate).bytes_in(rtt) >= LEAST_JUMP;
        pays.then_some(Self { rate, rtt, is_full, phase: Phase::Reconnaissance, since: None, answered: None })
    }

    /// Takes what the connections say, and of what they `met`.
    pub fn on_sample(&mut self, sample: Sample, met: Met) -> Option<Step> {
        let Met { lost, can, is_idle } = met;
        let least = sample.least_rtt;
        let queue = sample.rtt.since(least) >= standing(least);
        match self.phase {
            Phase::Reconnaissance if lost => self.end(Step::Decline),
            Phase::Reconnaissance if sample.delivered == 0 => None,
            Phase::Reconnaissance => {
                let waited = sample.at.since(*self.since.get_or_insert(sample.at));
                if !is_like(self.rtt, least) || waited > least {
                    return self.end(Step::Decline);
                }
                if queue || !can {
                    return None;
                }
                self.turn(Phase::Unvalidated, sample.at);
                Some(Step::Jump(half(self.rate)))
            }
            Phase::Unvalidated => {
                let since = self.since.unwrap_or(sample.at);
                let arrived = self.arrived(sample);
                if lost {
                    return self.retreat(sample.at, arrived);
                }
                if sample.at.since(since) < least {
                    return None;
                }
                let heard = sample.at.since(self.answered.get_or_insert(sample).at);
                if heard < Nanos(least.0 / VALIDATED_AFTER) {
                    return None;
                }
                if queue {
                    return self.retreat(sample.at, arrived);
                }
                if arrived.get() >= half(self.rate).get() / 2 {
                    return self.end(Step::Confirm(self.is_full.then_some(self.rate)));
                }
                // It comes slowly: so it was sent, or its host has no time.
                if heard < Nanos(least.0 / PATIENCE) {
                    return None;
                }
                if is_idle { self.end(Step::Release) } else { self.retreat(sample.at, arrived) }
            }
            // What was sent by the jump, and what followed it, has been heard of.
            Phase::Retreat if sample.at.since(self.since.unwrap_or(sample.at)).0 >= 2 * least.0 => {
                self.end(Step::Release)
            }
            Phase::Retreat | Phase::Over => None,
        }
    }

    /// Whether connections send, or may soon, what was not shown to arrive.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Reconnaissance | Phase::Unvalidated)
    }

    /// Somebody else knows what the path carries: nothing more is to be done.
    pub fn give_up(&mut self) {
        self.phase = Phase::Over;
    }

    /// The rate at which the jump has arrived, between a quarter of it and all.
    fn arrived(&self, sample: Sample) -> BitsPerSec {
        let jump = half(self.rate).get();
        let rate = self.answered.map_or(0.0, |first| {
            let bits = sample.delivered.saturating_sub(first.delivered) as f64 * 8.0;
            bits * 1e9 / sample.at.since(first.at).0.max(1) as f64
        });
        BitsPerSec::new((rate as u64).clamp(jump / 4, jump)).unwrap_or(LEAST)
    }

    fn retreat(&mut self, at: Nanos, arrived: BitsPerSec) -> Option<Step> {
        self.turn(Phase::Retreat, at);
        Some(Step::Retreat(arrived))
    }

    fn turn(&mut self, phase: Phase, at: Nanos) {
        self.phase = phase;
        self.since = Some(at);
    }

    fn end(&mut self, step: Step) -> Option<Step> {
        self.phase = Phase::Over;
        Some(step)
    }
}

/// Whether a round trip of `least` is that which was `saved`, more or less. Where it is shorter, half the window would be a higher rate; where it is
/// longer, the way is another, or a queue stands on it.
#[must_use]
pub fn is_like(saved: Nanos, least: Nanos) -> bool {
    let quarter = Nanos(saved.0 / 4);
    (saved.since(quarter)..=saved.after(quarter)).contains(&least)
}

/// RFC 9959, section 3.2: the jump is to half of what was saved.
fn half(rate: BitsPerSec) -> BitsPerSec {
    BitsPerSec::new(rate.get() / 2).unwrap_or(LEAST)
}

/// The round trip below which slow start is over before anything could be done about it.
const SHORTEST: Nanos = Nanos(25_000_000);

/// Bytes of a jump: twice what 16 connections send at first over an MTU of 9000, and as many several times over one of 1500.
const LEAST_JUMP: u64 = 3 << 20;

/// What no rate is less than.
const LEAST: BitsPerSec = BitsPerSec(NonZeroU64::MIN);

/// The part of a round trip for which answers to the jump must come well, and that in which half of it must have come.
const VALIDATED_AFTER: u64 = 8;
const PATIENCE: u64 = 2;

#[cfg(test)]
mod tests;
