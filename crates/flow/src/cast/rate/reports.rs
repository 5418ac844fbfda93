//! What a receiver has said of the rate that is being tried.

use farlink_wire::quantity::Nanos;

use super::TARGET;
use super::least::Least;

/// A receiver's counts, how late packets come, and what it lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reports {
    /// The number of the first packet that it could receive.
    first: u64,
    /// At the first report of this trial.
    base: Option<(u64, u64)>,
    newest: (u64, u64),
    /// When it said last that more packets could have come.
    heard: Nanos,
    /// How far away it is, and was when this trial began.
    rtt: Nanos,
    away: Nanos,
    /// Of the first packet that the newest report and the one before it did not know of yet: how long ago it had left when they were made.
    ages: [Nanos; 2],
    /// Of the newest report before this trial, and reports since.
    before: Nanos,
    reports: u32,
    least: Least<Nanos>,
    /// From its clock when it said something to this end's when that came, nanoseconds: the clocks have nothing in common.
    way: Least<i64>,
    /// Bytes that it asked for in this trial for the first time.
    asked: u64,
    /// It joined in this trial: what it lacks was sent before.
    is_new: bool,
}

impl Reports {
    /// Of a receiver that counts packets from number `first` on, and joined after others `heard` something last.
    pub(super) fn new(first: u64, heard: Nanos) -> Self {
        Self { first, heard, is_new: true, ..Self::default() }
    }

    /// The number of the first packet that it does not know of, where it could have received `packets`.
    pub(super) const fn number(&self, packets: u64) -> u64 {
        self.first.saturating_add(packets)
    }

    /// It could have received `packets`, and the next to leave has number `next`. Where that is more than has left since it joined, it counts
    /// from before that, as one does that was cut off and came back: it is taken to know of everything that has left, and does once
    /// nothing is under way.
    pub(super) const fn know(&mut self, next: u64, packets: u64) {
        if self.number(packets) > next {
            self.first = next.saturating_sub(packets);
        }
    }

    /// Of `counts` it could have received the first, in packets, and did not receive the second.
    pub(super) fn take(&mut self, now: Nanos, counts: (u64, u64), rtt: Nanos, is_of_trial: bool) {
        if counts.0 != self.newest.0 || self.heard == Nanos::ZERO {
            self.heard = now;
        }
        self.newest = counts;
        self.rtt = rtt;
        if is_of_trial && self.base.is_none() {
            self.base = Some(self.newest);
        }
    }

    /// By how much later than others a report came that it made at `at` of its clock: what is lost of a control connection comes again, and
    /// what is behind that waits.
    pub(super) fn delay(&mut self, now: Nanos, at: Nanos) -> Nanos {
        let way = now.0.wrapping_sub(at.0).cast_signed();
        self.way.note(now, way);
        let delay = self.way.get().map_or(0, |least| way.saturating_sub(least).max(0).cast_unsigned());
        if delay > STOPPED.0 {
            // Its clock stood still, as a suspended machine's does.
            self.way.set(way);
            return Nanos::ZERO;
        }
        Nanos(delay)
    }

    /// The first packet that its report did not know of had left so long ago when that was made.
    pub(super) fn wait(&mut self, now: Nanos, age: Nanos) {
        self.ages = [age, self.ages[0]];
        self.reports = self.reports.saturating_add(1);
        // Nothing is known sooner than a round trip after it left: who says after a pause that nothing is missing says nothing
        // of how long packets are under way.
        self.least.note(now, age.max(self.rtt));
    }

    /// It asked for so many bytes for the first time.
    pub(super) const fn ask(&mut self, bytes: u64) {
        if !self.is_new {
            self.asked = self.asked.saturating_add(bytes);
        }
    }

    /// Another trial begins.
    pub(super) const fn begin(&mut self) {
        (self.base, self.asked, self.is_new) = (None, 0, false);
        (self.before, self.reports) = (self.ages[0], 0);
        self.away = self.rtt;
    }

    /// When it heard something of the group last, as far as it said so.
    pub(super) const fn heard(&self) -> Nanos {
        self.heard
    }

    /// Bytes that it asked for in this trial.
    pub(super) const fn asked(&self) -> u64 {
        self.asked
    }

    /// How far away it is.
    pub(super) const fn rtt(&self) -> Nanos {
        self.rtt
    }

    /// How far away it was when this trial began.
    pub(super) const fn away(&self) -> Nanos {
        self.away
    }

    /// By how much packets have come later in this trial, report by report.
    pub(super) fn growth(&self) -> Nanos {
        if self.reports < 2 {
            return Nanos::ZERO;
        }
        let [newest, before] = self.ages.map(|age| age.since(self.before));
        // One that is late alone is the fault of somebody's processor.
        newest.min(Nanos(4 * before.0))
    }

    /// How much later packets come than they do when nothing stands in their way.
    pub(super) fn queue(&self) -> Nanos {
        self.ages[0].min(self.ages[1]).since(self.at_best())
    }

    /// And how much later they came when this trial began.
    pub(super) fn stood(&self) -> Nanos {
        self.before.since(self.at_best())
    }

    fn at_best(&self) -> Nanos {
        self.least.get().unwrap_or_default()
    }

    /// Whether they come sooner than before this trial.
    pub(super) fn is_falling(&self) -> bool {
        self.ages[0].after(FALLING) < self.before
    }

    /// What stands in the way of packets is none of ours.
    pub(super) fn accept(&mut self) {
        self.least.set(self.ages[0].min(self.ages[1]));
    }

    /// The share that was lost in this trial, once that is certain where `base` is lost at any rate, or so many packets tell of it.
    pub(super) fn loss(&self, base: f64, enough: u64) -> Option<f64> {
        let (from, newest) = (self.base?, self.newest);
        let packets = newest.0.saturating_sub(from.0);
        let lost = newest.1.saturating_sub(from.1);
        let share = lost as f64 / packets.max(1) as f64;
        let clear = lost as f64 > 4.0 * TARGET * ENOUGH as f64 && share > 2.0 * base + 4.0 * TARGET;
        let spotless = lost == 0 && packets >= FEW;
        (packets >= enough || spotless || clear).then_some(share)
    }
}

/// Packets that tell a share of [`TARGET`] from twice as much: 20 losses against 40, which chance makes of each other once in a thousand
/// times.
pub(super) const ENOUGH: u64 = 4000;

/// Packets of which none may be lost by chance, with a share of [`TARGET`], but once in 150 times.
pub(super) const FEW: u64 = 1000;

/// Longer than a report that comes at all waits for what was lost before it.
const STOPPED: Nanos = Nanos(3_000_000_000);

/// By how much sooner packets come where a queue empties.
const FALLING: Nanos = Nanos(1_000_000);
