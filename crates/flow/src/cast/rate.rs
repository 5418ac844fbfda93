//! Finds the highest rate at which hardly anything has to be sent again, while products are sent at it.
//!
//! The rate grows by a quarter at a time for as long as receivers lose little, and doubles while they lose nothing and are near. Of a rate
//! that was too high it is known what arrived, which is what the path carries: a little less is tried next. A rate that is good, and close
//! to one that was not, stays; it looks upward now and then by a step, and by more where that was good, and gives way where the path has
//! become worse. What is judged is the loss of the receivers but for the worst quarter: those that lose at any rate keep nobody from theirs.
//! Nor do those that hear nothing for seconds in which others do: they were stopped, or the group does not reach them.
//!
//! Where a lower rate loses as much as a higher one did, it is not the rate that loses: that share is left out of account from then on, and
//! looked at again by going down for once. Where this host does not send as fast as it may, though products wait, what it did send is its
//! rate.
//!
//! A rate is good when reports say so, which takes some tenths of a second. That a higher rate than a good one is bad, NACKs say within
//! a round trip; and where a queue takes what is too much, that packets come ever later. Then the good one is gone back to at once, and, when
//! the queue is empty, what is between the two is looked at.

use std::collections::BTreeMap;

use farlink_wire::cast::control::Report;
use farlink_wire::quantity::{BitsPerSec, Nanos};

mod judgement;
mod least;
mod reports;
mod sent;

use judgement::Phase;
use reports::Reports;
use sent::Sent;

/// Looks for a rate.
///
/// Drive it so: [`Self::on_sent`] and [`Self::on_idle`] for what leaves, at once, [`Self::on_join`] and [`Self::on_report`] for what receivers
/// say, then [`Self::poll`], which says a rate when it changes; come again by [`Self::deadline`].
#[derive(Clone, Debug)]
pub struct RateFinder {
    least: u64,
    most: u64,
    rate: u64,
    phase: Phase,
    trial: Trial,
    sent: Sent,
    receivers: BTreeMap<u32, Reports>,
    /// When one of them said last that more packets could have come.
    heard: Nanos,
    /// How long reports lag behind what is sent.
    lag: Nanos,
    /// When there was nothing to send last.
    idle_at: Option<Nanos>,
    /// The share that is lost at any rate.
    base: f64,
    /// The trial before, where that was bad.
    before: Option<Bad>,
    /// Trials in a row in which this host did not send as fast as it might.
    slow: u8,
    /// How long a rate that was found is kept before a higher one is tried.
    look_up: Nanos,
    /// The rate that was found last, when a higher one was tried.
    found: u64,
    /// Whether one was, and the path has not changed since.
    has_found: bool,
    /// Trials in a row in which a queue stood that did not become shorter, and whether the rate is lower already because of that.
    standing: u8,
    is_lowered: bool,
}

/// One rate that is being tried.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// From when on reports tell of this rate, but for those of the worst quarter that come from further away; how much of that is `lag`.
    from: Nanos,
    lag: Nanos,
    /// Bytes on the wire since it began, and when it did.
    sent: u64,
    began: Nanos,
    /// The rate before, where that was lower and good: what is lost from this one's beginning on is due to it.
    raised: Option<u64>,
}

/// A trial that was bad.
#[derive(Clone, Copy, Debug)]
struct Bad {
    rate: u64,
    loss: f64,
    /// What arrived of it, bits per second.
    carried: f64,
    /// What was going on when it was tried.
    phase: Phase,
}

impl RateFinder {
    /// Begins at `start`, and stays between `least` and `most`. Reports lag by at most `lag`, and a round trip: a report's interval, and what
    /// queues hold.
    #[must_use]
    pub fn new(least: BitsPerSec, start: BitsPerSec, most: BitsPerSec, lag: Nanos, now: Nanos) -> Self {
        let (least, most) = (least.get().min(most.get()), most.get());
        Self {
            least,
            most,
            rate: start.get().clamp(least, most),
            phase: Phase::Climb,
            trial: Trial { from: now.after(lag), lag, sent: 0, began: now, raised: None },
            sent: Sent::default(),
            receivers: BTreeMap::new(),
            heard: Nanos::ZERO,
            lag,
            idle_at: None,
            base: 0.0,
            before: None,
            slow: 0,
            look_up: FIRST_LOOK_UP,
            found: 0,
            has_found: false,
            standing: 0,
            is_lowered: false,
        }
    }

    /// The rate to send at.
    #[must_use]
    pub fn rate(&self) -> BitsPerSec {
        // Never zero: it is a rate or more than one.
        BitsPerSec::new(self.rate).unwrap_or(BitsPerSec(std::num::NonZeroU64::MIN))
    }

    /// Whether a rate was found, until the path changes: it is held, or one above or below it is looked at for once.
    #[must_use]
    pub const fn has_found(&self) -> bool {
        self.has_found
    }

    /// So many bytes have left for the group, with every header, and the next packet has number `next`.
    pub fn on_sent(&mut self, now: Nanos, bytes: u64, next: u64) {
        self.trial.sent += bytes;
        self.sent.note(now, next);
    }

    /// A receiver takes part, and counts packets from number `first` on.
    pub fn on_join(&mut self, receiver: u32, first: u64) {
        self.receivers.insert(receiver, Reports::new(first, self.heard));
    }

    /// At `at` nothing waited to be sent for the first time.
    pub const fn on_idle(&mut self, at: Nanos) {
        self.idle_at = Some(at);
    }

    /// A receiver said how it fares.
    pub fn on_report(&mut self, now: Nanos, receiver: u32, report: &Report) {
        let Report { packets, lost, rtt, at, .. } = *report;
        let Trial { from, lag, began, .. } = self.trial;
        let reports = self.receivers.entry(receiver).or_default();
        let delay = reports.delay(now, at);
        let is_of_trial = now.since(delay) >= from.max(began.after(lag).after(reports.away()));
        reports.take(now, (packets, lost), rtt, is_of_trial);
        self.heard = self.heard.max(reports.heard());
        reports.know(self.sent.next(), packets);
        reports.wait(now, self.sent.age(now, reports.number(packets)).since(delay));
    }

    /// A receiver asked for so many bytes that it had not asked for before.
    pub fn on_nack(&mut self, receiver: u32, bytes: u64) {
        self.receivers.entry(receiver).or_default().ask(bytes);
    }

    /// A receiver has left.
    pub fn on_leave(&mut self, receiver: u32) {
        self.receivers.remove(&receiver);
    }

    /// A new rate, where there is one.
    pub fn poll(&mut self, now: Nanos) -> Option<BitsPerSec> {
        if let Some(before) = self.trial.raised
            && (self.is_lossy() || self.but_the_worst(Reports::growth) >= GROWN)
        {
            let next = self.step_back(before);
            self.begin(now, next);
            return Some(self.rate());
        }
        let loss = self.loss(now)?;
        let sent = self.sent(now);
        let good = loss <= self.tolerated();
        let is_idle = self.idle_at.is_some_and(|at| at >= self.trial.began);
        // What was not sent at this rate says nothing good of it.
        if good && is_idle && (sent as f64) < FILLED * self.rate as f64 {
            self.begin(now, self.rate);
            return None;
        }
        let (before, phase) = (self.rate, self.phase);
        let next = match self.look_at_queue(good) {
            Queue::Gone => self.judge(now, good, loss, if is_idle { self.rate } else { sent }),
            Queue::Empties => before,
            Queue::Stands => self.lower(),
        };
        // A rate of which nothing new is said is the last step still.
        let is_open = next == before && self.phase == phase;
        let raised = self.trial.raised.filter(|_| is_open);
        self.begin(now, next);
        self.trial.raised = raised;
        if good && next > before {
            self.trial.raised = Some(before);
            if self.phase == Phase::Climb {
                // Nothing of before is in the way, and a queue that grows now does so faster at the next rate.
                self.trial.lag = SOON.min(self.lag);
                self.trial.from = Nanos(self.trial.from.0 - self.lag.0).after(self.trial.lag);
            }
        }
        (next != before).then(|| self.rate())
    }

    /// When to come again, at the latest, where reports come in.
    #[must_use]
    pub const fn deadline(&self) -> Nanos {
        self.trial.from
    }

    /// Whether NACKs say already that it loses.
    fn is_lossy(&self) -> bool {
        let worst = self.but_the_worst(Reports::asked);
        // Of what is lost at any rate, with what was sent before this trial, and asked for only now.
        let usual = 2.0 * self.base * self.trial.sent as f64;
        worst as f64 > CLEAR as f64 + usual && worst as f64 > usual + 4.0 * TARGET * self.trial.sent as f64
    }

    /// Whether something stands in the way of packets that are sent at a rate which loses as little as a good one.
    fn look_at_queue(&mut self, is_good: bool) -> Queue {
        let stands = self.but_the_worst(Reports::queue) >= GROWN;
        if !is_good || !stands {
            self.standing = 0;
            self.is_lowered &= stands;
            return Queue::Gone;
        }
        let stays = |reports: &Reports| if reports.is_falling() { Nanos::ZERO } else { reports.queue() };
        if self.but_the_worst(stays) < GROWN {
            self.standing = 0;
            return Queue::Empties;
        }
        if self.is_lowered {
            // It does not go away at a lower rate: it is somebody else's, or the path is longer now.
            self.receivers.values_mut().for_each(Reports::accept);
            self.is_lowered = false;
            return Queue::Gone;
        }
        self.standing += 1;
        if self.standing < STANDING_IN_A_ROW { Queue::Empties } else { Queue::Stands }
    }

    /// Of what each receiver says, the greatest but for those of the worst quarter.
    fn but_the_worst<T: Ord + Default>(&self, of: impl Fn(&Reports) -> T) -> T {
        let mut all: Vec<T> = self.hearing().map(of).collect();
        all.sort_unstable();
        all.truncate(self.counted());
        all.pop().unwrap_or_default()
    }

    /// Receivers whose loss matters: all but the worst quarter, which those are among that hear nothing.
    fn counted(&self) -> usize {
        (self.receivers.len() - self.receivers.len() / 4).min(self.hearing().count())
    }

    /// All but those that have heard nothing for long when another did. Where nobody hears anything, that is the rate's fault, or nothing is
    /// sent.
    fn hearing(&self) -> impl Iterator<Item = &Reports> {
        self.receivers.values().filter(|reports| self.heard.since(reports.heard()) < DEAF)
    }

    /// Bits per second that have left in this trial: a burst more than the rate at most.
    fn sent(&self, now: Nanos) -> u64 {
        let time = now.since(self.trial.began).as_secs_f64();
        (self.trial.sent as f64 * 8.0 / time.max(1e-3)).min(self.rate as f64) as u64
    }

    fn begin(&mut self, now: Nanos, rate: u64) {
        self.rate = rate;
        let (lag, rtt) = (self.lag, self.but_the_worst(Reports::rtt));
        self.trial = Trial { from: now.after(lag).after(rtt), lag, sent: 0, began: now, raised: None };
        self.receivers.values_mut().for_each(Reports::begin);
    }

    /// The greatest loss of the receivers but for the worst quarter, as soon as enough packets tell of it.
    fn loss(&self, now: Nanos) -> Option<f64> {
        if now < self.trial.from {
            return None;
        }
        let losses = self.hearing().filter_map(|reports| reports.loss(self.base, self.enough()));
        let mut losses: Vec<f64> = losses.collect();
        let (needed, unknown) = (self.counted(), self.hearing().count() - losses.len());
        if losses.len() < needed.max(1) {
            return None;
        }
        losses.sort_by(f64::total_cmp);
        let loss = *losses.get(needed - 1)?;
        if unknown == 0 || loss <= self.tolerated() {
            return Some(loss);
        }
        // Those of which it is not known yet may lose less than the worst of these.
        let least = losses.get(needed.checked_sub(1 + unknown)?).copied();
        least.filter(|least| *least > self.tolerated())
    }
}

/// Whether a queue stands in the way of packets.
enum Queue {
    Gone,
    /// It becomes shorter, or may.
    Empties,
    Stands,
}

/// The greatest share that may be sent again: what VCMTP's authors call a loss that does not matter.
const TARGET: f64 = 0.005;

/// Bytes that a receiver must have asked for until that counts: some 80 packets of 1,500 bytes.
const CLEAR: u64 = 120_000;

/// By how much later packets must come so that a queue is believed in: more than a busy processor delays two reports in a row.
const GROWN: Nanos = Nanos(10_000_000);

/// Trials in a row in which one must have stood.
const STANDING_IN_A_ROW: u8 = 2;

/// After what time in which others hear something it is not the rate that keeps a receiver from it: something is sent to the group each second,
/// and of groups of thousands each says how it fares that often.
const DEAF: Nanos = Nanos(3_000_000_000);

/// How much of a rate must have been sent, where there was not always something to send, so that it counts as tried.
const FILLED: f64 = 0.8;

/// After what time, and a round trip, a report can tell of a rate that is higher than a good one.
const SOON: Nanos = Nanos(30_000_000);

/// How long a rate is kept before a higher one is tried: at first, and where that was bad again and again.
const FIRST_LOOK_UP: Nanos = Nanos(2_000_000_000);
const LAST_LOOK_UP: Nanos = Nanos(30_000_000_000);

#[cfg(test)]
mod tests;
