//! What a receiver has said of the rate that is being tried.

use farlink_wire::quantity::Nanos;

use super::TARGET;

/// A receiver's counts, and what it lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reports {
    /// At the first report of this trial.
    base: Option<(u64, u64)>,
    newest: (u64, u64),
    rtt: Nanos,
    /// Bytes that it asked for in this trial for the first time.
    asked: u64,
}

impl Reports {
    /// It could have received so many packets, and did not receive `lost` of them.
    pub(super) fn take(&mut self, packets: u64, lost: u64, rtt: Nanos, is_of_trial: bool) {
        self.newest = (packets, lost);
        self.rtt = rtt;
        if is_of_trial && self.base.is_none() {
            self.base = Some(self.newest);
        }
    }

    /// It asked for so many bytes for the first time.
    pub(super) const fn ask(&mut self, bytes: u64) {
        self.asked = self.asked.saturating_add(bytes);
    }

    /// Another trial begins.
    pub(super) const fn begin(&mut self) {
        (self.base, self.asked) = (None, 0);
    }

    /// What it says from now on counts.
    pub(super) const fn rebase(&mut self) {
        self.base = None;
    }

    /// Bytes that it asked for in this trial.
    pub(super) const fn asked(&self) -> u64 {
        self.asked
    }

    /// How far away it is.
    pub(super) const fn rtt(&self) -> Nanos {
        self.rtt
    }

    /// The share that was lost in this trial, once that is certain enough where `base` is lost at any rate.
    pub(super) fn loss(&self, base: f64) -> Option<f64> {
        let (from, newest) = (self.base?, self.newest);
        let packets = newest.0.saturating_sub(from.0);
        let lost = newest.1.saturating_sub(from.1);
        let share = lost as f64 / packets.max(1) as f64;
        let clear = lost as f64 > 4.0 * TARGET * ENOUGH as f64 && share > 2.0 * base + 4.0 * TARGET;
        let spotless = lost == 0 && packets >= SPOTLESS;
        (packets >= ENOUGH || spotless || clear).then_some(share)
    }
}

/// Packets that tell a share of [`TARGET`] from twice as much: 20 losses against 40, which chance makes of each other once in a thousand
/// times.
pub(super) const ENOUGH: u64 = 4000;

/// Packets of which none may be lost by chance, with a share of [`TARGET`], but once in 150 times.
const SPOTLESS: u64 = 1000;
