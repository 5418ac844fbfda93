//! Loss that has nothing to do with what is sent.

use super::Round;

/// The share of datagrams that a path loses of itself: the least that was lost in any of the last `REMEMBERED` rounds, or what was lost all
/// the same when less was sent. Where there is a queue, loss tells of that, and nothing is learnt.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnLoss {
    shares: [f64; REMEMBERED],
    next: usize,
    /// The share that the last answer was to.
    answered: Option<f64>,
    was_its_own: bool,
    /// Of rounds too short to tell a share by.
    known: u32,
    lost: u32,
    queued: bool,
}

impl OwnLoss {
    /// A round ended, in which there was a queue or not: whether more was lost than the path loses of itself.
    pub(super) fn on_round(&mut self, round: &Round, queued: bool) -> bool {
        self.known += round.known;
        self.lost += round.lost;
        self.queued |= queued;
        self.was_its_own = false;
        if self.known < LEAST_KNOWN {
            return false;
        }
        let share = f64::from(self.lost) / f64::from(self.known);
        let answered = self.answered.take();
        if !self.queued && answered.is_some_and(|before| share > before * ITS_OWN) {
            self.shares.fill(share);
            self.was_its_own = true;
        }
        let least = self.shares.iter().copied().fold(1.0, f64::min);
        let expected = (1.5 * least + 0.01) * f64::from(self.known);
        // Of few datagrams a few more may be lost by chance: by three deviations not.
        let too_many = f64::from(self.lost) > expected + 3.0 * f64::from(self.lost).sqrt();
        self.answered = too_many.then_some(share);
        if !self.queued {
            self.shares[self.next] = share;
            self.next = (self.next + 1) % REMEMBERED;
        }
        (self.known, self.lost, self.queued) = (0, 0, false);
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
