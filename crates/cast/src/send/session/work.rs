//! The loop of a session's thread: hears, sends, shows, and waits for the next of these.

use std::os::fd::AsFd;
use std::sync::mpsc::TryRecvError;

use farlink_flow::cast::sender::Send;
use farlink_host::clock::{monotonic, rfc3339_now};
use farlink_host::datagram::MOST_AT_ONCE;
use farlink_host::precise::wait_readable;
use farlink_host::readiness::Wake;
use farlink_wire::cast::packet::Data;
use farlink_wire::quantity::Nanos;

use super::ending::INTERRUPTED;
use super::rivals::Age;
use super::{Session, Times};
use crate::error::CastError;
use crate::send::Notice;

/// What the loop keeps from one round to the next.
struct Round {
    /// Until when the session is silent, and until when it may have to give way to another.
    quiet_until: Nanos,
    young_until: Nanos,
    /// When the group is to hear of the session next, and the user of how it goes.
    beacon_at: Nanos,
    shown_at: Nanos,
    ready: Vec<bool>,
    /// What comes from others to the group.
    others: Vec<u8>,
}

impl Round {
    fn new(now: Nanos) -> Self {
        let quiet_until = now.after(QUIET);
        Self {
            quiet_until,
            young_until: now.after(YOUNG),
            beacon_at: quiet_until,
            shown_at: now,
            ready: Vec::new(),
            others: vec![0; MOST_AT_ONCE],
        }
    }

    fn age(&self, now: Nanos) -> Age {
        match now {
            now if now < self.quiet_until => Age::Silent,
            now if now < self.young_until => Age::Young,
            _ => Age::Established,
        }
    }
}

impl Session<'_> {
    pub(super) fn work(
        &mut self,
        stop: &Wake,
        tell: &mut dyn FnMut(Notice<'_>),
        times: &mut Times,
    ) -> Result<(), CastError> {
        let mut round = Round::new(monotonic());
        loop {
            let Some(heard) = self.hear_some(tell) else { return Ok(()) };
            // Nobody is silent, or gone for good, of whom a word waits.
            let all_heard = heard < HEARD_AT_ONCE;
            self.hear_rivals(tell)?;
            // Who is there already is heard before anything is sent, and asked whether it is a session.
            let now = monotonic();
            let is_quiet = now < round.quiet_until || (self.rivals.is_asking() && now < round.young_until);
            if !is_quiet && self.may_begin(now, tell)? {
                self.begin(times);
                self.supply(tell)?;
            }
            if now >= self.idle_until {
                self.send_later()?;
                self.tell_begun(tell);
            }
            let mut is_busy = self.send_some(is_quiet, tell)?;
            for not_sent in self.not_sent.drain(..) {
                tell(Notice::NotSent(not_sent));
            }
            let now = monotonic();
            let is_announced = !is_quiet && (self.is_alone() || now < round.young_until);
            if is_announced && now >= round.beacon_at {
                // So that receivers find this host, and a session that begins now finds the group in use.
                self.send(Send::Status(self.machine.position()))?;
                round.beacon_at = now.after(BEACON);
            }
            self.account_for_sent(now);
            if heard > 0
                && let Some(rate) = self.tempo.adjust(now)
            {
                self.machine.set_rate(rate);
            }
            if now >= round.shown_at {
                round.shown_at = now.after(OFTEN);
                if all_heard {
                    self.dismiss_silent(now, tell);
                }
                self.show(times, tell);
                if !self.has_begun {
                    self.look_whether_there(tell);
                }
            }
            if self.progress.is_all && self.machine.is_complete() {
                times.last.get_or_insert(now);
            } else {
                times.last = None;
            }
            if all_heard {
                self.lost.retain(|(_, until)| *until > now);
                if self.is_deserted() {
                    self.tell_unsent(tell);
                    return Ok(());
                }
            }
            let mut deadline = round.shown_at;
            if is_quiet {
                let is_asking = self.rivals.is_asking();
                deadline = deadline.min(if is_asking { round.young_until } else { round.quiet_until });
            } else {
                let is_idle = now < self.idle_until;
                let next = if is_idle { Some(self.idle_until) } else { self.machine.deadline() };
                deadline = deadline.min(next.unwrap_or(Nanos::MAX));
                if is_announced {
                    deadline = deadline.min(round.beacon_at);
                }
                is_busy |= !is_idle && !self.later.is_empty();
            }
            is_busy |= !all_heard;
            let pause = if is_busy { Nanos::ZERO } else { deadline.since(monotonic()) };
            if self.wait(stop, (now, pause), &mut round, tell)? {
                return Ok(());
            }
        }
    }

    /// Takes what the door has told, [`HEARD_AT_ONCE`] at most: packets do not wait for more than that. How much it was; `None` where the
    /// door has failed, which says why.
    fn hear_some(&mut self, tell: &mut dyn FnMut(Notice<'_>)) -> Option<u32> {
        for heard in 0..HEARD_AT_ONCE {
            match self.hearing.next() {
                Ok((receiver, said)) => self.hear(receiver, said, tell),
                Err(TryRecvError::Empty) => return Some(heard),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        Some(HEARD_AT_ONCE)
    }

    /// Notes that it begins: as many are there as it waits for.
    fn begin(&mut self, times: &mut Times) {
        self.has_begun = true;
        if times.first.is_none() {
            times.started = rfc3339_now();
            times.first = Some(monotonic());
        }
    }

    /// Sends what the machine says, and no more at once than lets it hear in between; whether there is more to send now.
    fn send_some(&mut self, is_quiet: bool, tell: &mut dyn FnMut(Notice<'_>)) -> Result<bool, CastError> {
        let mut repairs = 0;
        for _ in 0..BETWEEN {
            let now = monotonic();
            let may_send = !is_quiet && now >= self.idle_until;
            let Some(send) = (if may_send { self.machine.poll(now) } else { None }) else {
                return Ok(false);
            };
            let is_repair =
                matches!(send, Send::Repair { .. } | Send::Data { header: Data { repair: true, .. }, .. });
            self.send(send)?;
            self.tell_begun(tell);
            repairs += u32::from(is_repair);
            // A product that has just come does not wait for many repairs.
            if repairs >= REPAIRS_BETWEEN {
                break;
            }
        }
        Ok(true)
    }

    /// Says which product has begun to leave, where one has.
    fn tell_begun(&mut self, tell: &mut dyn FnMut(Notice<'_>)) {
        if let Some((product, at)) = self.begun.take() {
            tell(Notice::Begun { path: self.products.path(product), at });
        }
    }

    /// Tells what seeks the rate of every packet that has left, before a receiver can tell of it.
    fn account_for_sent(&mut self, now: Nanos) {
        let sent = self.machine.totals().group_wire;
        self.tempo.on_sent(now, sent, self.sealer.next(), self.machine.idle_at());
    }

    /// Whether no receiver is there.
    fn is_alone(&self) -> bool {
        self.progress.peers.values().all(|peer| !peer.is_there)
    }

    /// Whether nobody is there any more, nor waited for: what has appeared waits for receivers only as long as more may. Where nothing can appear
    /// any more that receivers were waited for, they are waited for no longer.
    fn is_deserted(&self) -> bool {
        let may_come = self.products.watched().is_some();
        if self.has_begun {
            self.is_alone() && self.lost.is_empty() && !may_come
        } else {
            self.plan.watches_alone() && !may_come
        }
    }

    /// Looks whether a directory that is watched is there still: as long as nothing is sent nobody else does.
    fn look_whether_there(&mut self, tell: &mut dyn FnMut(Notice<'_>)) {
        let lacks = &mut self.lacks;
        self.products.look_whether_there(&mut |not_sent| {
            *lacks |= not_sent.failed;
            tell(Notice::NotSent(not_sent));
        });
    }

    /// Waits for something to hear, in a round that began `now`, and for `pause` at most; heeds the user, and says whether the session is over by that.
    fn wait(
        &mut self,
        stop: &Wake,
        (now, pause): (Nanos, Nanos),
        round: &mut Round,
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> Result<bool, CastError> {
        // Once it has been heeded, the user's word is not waited for again, but another.
        let at_once = self.plan.at_once.as_ref().unwrap_or(&self.wake);
        let heeded = if self.ceased { at_once.as_fd() } else { stop.as_fd() };
        let mut waited = vec![self.wake.as_fd(), heeded, self.sockets.others.as_fd()];
        waited.extend(self.products.watched());
        wait_readable(&waited, Some(pause), &mut round.ready).map_err(CastError::Wait)?;
        let is_ready = |place: usize| round.ready.get(place) == Some(&true);
        let (is_heeded, comes_from_others, appears) = (is_ready(1), is_ready(2), is_ready(3));
        if self.ceased && self.plan.at_once.as_ref().is_some_and(Wake::is_raised) {
            self.interrupted = true;
            self.break_off(INTERRUPTED.to_owned());
            return Ok(true);
        }
        if is_heeded && !self.ceased && self.heed_user(tell) {
            return Ok(true);
        }
        if appears {
            let lacks = &mut self.lacks;
            self.products.notice(&mut |not_sent| {
                *lacks |= not_sent.failed;
                tell(Notice::NotSent(not_sent));
            });
        }
        self.wake.lower();
        if comes_from_others {
            let age = round.age(now);
            self.overhear(&mut round.others, age, tell)?;
        }
        Ok(false)
    }

    /// The user wants it to end: what has appeared in a directory that is watched is sent; says whether the session is over now.
    fn heed_user(&mut self, tell: &mut dyn FnMut(Notice<'_>)) -> bool {
        // What has appeared by now is counted, too.
        self.cease(tell);
        if self.plan.watch.is_some() && self.has_begun {
            tell(Notice::Ceased);
            return false;
        }
        let is_lacking = self.tell_unsent(tell);
        // Ctrl-C is how a directory is watched no longer: where nothing appeared in it nobody lacks anything.
        if self.plan.watches_alone() && self.products.count() == 0 && !is_lacking {
            self.end_of_nothing();
        } else {
            self.interrupted = !is_lacking;
            self.break_off(INTERRUPTED.to_owned());
        }
        true
    }
}

/// What receivers said that is dealt with between two packets.
const HEARD_AT_ONCE: u32 = 64;

/// Decisions of the machine between two looks at what came in.
const BETWEEN: u32 = 32;

/// And runs of repairs: with 1,500 bytes each they take 0.5 ms of 100 Mb/s.
const REPAIRS_BETWEEN: u32 = 4;

/// How long a session listens before it sends: longer than [`BEACON`], so that it hears one that has begun before.
const QUIET: Nanos = Nanos(250_000_000);

/// How often the group hears of a session that is young, or that nobody has joined.
const BEACON: Nanos = Nanos(200_000_000);

/// How long a session gives way to another on the same group: one that is older is heard each second at least, also when it has
/// nothing to send.
const YOUNG: Nanos = Nanos(2_500_000_000);

/// How often progress is told.
const OFTEN: Nanos = Nanos(200_000_000);
