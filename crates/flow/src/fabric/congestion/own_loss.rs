//! Loss that has nothing to do with what is sent.

use super::Round;

/// The share of datagrams that a path loses of itself: what was lost while little was sent, the least that was lost in any of the last
/// `REMEMBERED` samples, or what was lost all the same when less was sent. Where there is a queue, loss tells of that, and nothing is learnt.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnLoss {
    shares: [f64; REMEMBERED],
    /// Whether there was a sample of when little was sent.
    learnt: bool,
    next: usize,
    /// The share that the last answer was to.
    answered: Option<f64>,
    was_its_own: bool,
    sample: Sample,
}

/// Rounds that are too short to tell a share by, and those that are not.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    known: u32,
    lost: u32,
    queued: bool,
    limited: bool,
}

impl OwnLoss {
    /// A round ended, in which there was a queue or not: whether more was lost than the path loses of itself.
    pub(super) fn on_round(&mut self, round: &Round, queued: bool) -> bool {
        self.sample.known += round.known;
        self.sample.lost += round.lost;
        self.sample.queued |= queued;
        self.sample.limited |= round.limited;
        self.was_its_own = false;
        if self.sample.known < LEAST_KNOWN {
            return false;
        }
        let Sample { known, lost, queued, limited } = std::mem::take(&mut self.sample);
        let share = f64::from(lost) / f64::from(known);
        let answered = self.answered.take();
        if !queued && answered.is_some_and(|before| share > before * ITS_OWN) {
            self.shares.fill(share);
            self.was_its_own = true;
        }
        if !queued && !limited && !self.learnt {
            self.shares.fill(share);
            self.learnt = true;
        }
        let least = self.shares.iter().copied().fold(1.0, f64::min);
        let expected = (1.5 * least + 0.01) * f64::from(known);
        // Of few datagrams a few more may be lost by chance: by three deviations not. Whoever sends little has nothing to send less of.
        let too_many = limited && f64::from(lost) > expected + 3.0 * f64::from(lost).sqrt();
        self.answered = too_many.then_some(share);
        if !queued {
            self.shares[self.next] = share;
            self.next = (self.next + 1) % REMEMBERED;
        }
        too_many
    }

    /// Whether the last round showed that what was answered was the path's own.
    pub(super) const fn was_its_own(&self) -> bool {
        self.was_its_own
    }
}

const REMEMBERED: usize = 8;

/// A third less under way takes more than a third of the loss that it made.
const ITS_OWN: f64 = 0.7;

/// Datagrams by which a share of lost ones is told.
const LEAST_KNOWN: u32 = 40;

#[cfg(test)]
mod tests {
    use farlink_wire::quantity::Nanos;

    use super::*;

    fn round(known: u32, lost: u32, limited: bool) -> Round {
        Round { now: Nanos::ZERO, arrived: 0, known, lost, rtt: Nanos(1), limited, paced: false }
    }

    #[test]
    fn what_is_lost_while_little_is_sent_is_the_paths_own() {
        let mut loss = OwnLoss::default();
        for _ in 0..20 {
            assert!(!loss.on_round(&round(4, 1, false), false));
        }
        assert!(!loss.on_round(&round(130, 30, true), false));
        assert!(loss.on_round(&round(130, 90, true), false));
    }

    #[test]
    fn with_a_queue_nothing_is_learnt() {
        let mut loss = OwnLoss::default();
        for _ in 0..20 {
            assert!(loss.on_round(&round(130, 30, true), true));
            assert!(!loss.was_its_own());
        }
        // What stays without one is its own.
        assert!(loss.on_round(&round(130, 30, true), false) || loss.was_its_own());
        assert!(!loss.on_round(&round(130, 30, true), false));
    }
}
