//! A receiver from its start to its end: it finds sessions, takes part in them, and comes back to those that it was cut off from.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use farlink_host::abstract_socket::{Sole, take};
use farlink_host::clock::{monotonic, rfc3339_now};
use farlink_host::process;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_host::scheduling::{Scheduling, urgent_in_turn};
use farlink_mover::chain;
use farlink_mover::connection::Emulated;
use farlink_mover::facts;
use farlink_mover::secure::{Credentials, Trusted};
use farlink_wire::cast::SessionId;
use farlink_wire::cast::control::{Join, Wanted, Welcome};
use farlink_wire::path::readable;
use farlink_wire::quantity::Nanos;
use farlink_wire::record::Outcome;
use farlink_wire::refusal::Cause;

use super::attendance::{Attendance, Departure};
use super::hearing::Hearing;
use super::left_open::LeftOpen;
use super::record::Course;
use super::strangers::Strangers;
use super::{Finished, Notice, Plan, Progress, UNHEARD};
use crate::contact::{Overheard, join, overhear, resolve};
use crate::error::CastError;
use crate::group::Group;
use crate::line::Line;
use crate::record::Frame;
use crate::storage::{Storage, place};

/// Takes part in the group's sessions until `stop` is raised, or in one with [`Plan::once`].
pub fn run(plan: &Plan, stop: &Wake, tell: &mut dyn FnMut(Notice<'_>)) -> Finished {
    let mut reception = match Reception::open(plan, stop) {
        Ok(reception) => reception,
        Err(error) => return failed(error),
    };
    // Threads that begin later are ordinary ones.
    let scheduling = plan.realtime.then(urgent_in_turn);
    reception.realtime = scheduling.as_ref().map(Scheduling::is_realtime);
    let (asked, granted) = reception.hearing.buffer();
    tell(Notice::Ready { asked, granted, scheduling });
    loop {
        let finished = reception.session(tell);
        let goes_on =
            !plan.once && !finished.interrupted && finished.error.as_ref().is_none_or(CastError::is_passing);
        if !goes_on {
            reception.give_up_cut_off();
            return finished;
        }
        tell(Notice::Ended(Box::new(finished)));
    }
}

fn failed(error: CastError) -> Finished {
    Finished { error: Some(error), ..Finished::default() }
}

/// Sees to it that no other receiver of the group on this host writes to the directory `into`, whatever it is called. One that was killed may take a
/// moment to be gone.
fn alone(group: Group, into: &[u8], stop: &Wake) -> Result<Option<Sole>, CastError> {
    let Ok(found) = fs::metadata(OsStr::from_bytes(into)) else { return Ok(None) };
    let name = format!("farlink-cast/{group}/{:x}-{:x}", found.dev(), found.ino());
    let until = monotonic().after(GONE_WITHIN);
    loop {
        match take(&name) {
            Ok(Some(sole)) => return Ok(Some(sole)),
            Ok(None) => {}
            // Where that is forbidden nobody guards against it.
            Err(_) => return Ok(None),
        }
        if wait_for(stop, Interest::Read, stop, TRIED_EVERY).map_err(CastError::Wait)? != Waited::Over {
            // It ends as one that was interrupted.
            return Ok(None);
        }
        if monotonic() >= until {
            return Err(CastError::Occupied { group, directory: readable(into) });
        }
    }
}

/// How long a receiver that was killed may take to be gone.
const GONE_WITHIN: Nanos = Nanos(1_000_000_000);

/// How often it is looked whether it is.
const TRIED_EVERY: Nanos = Nanos(50_000_000);

struct Reception<'a> {
    plan: &'a Plan,
    stop: &'a Wake,
    hearing: Hearing,
    storage: Storage,
    /// Whether real-time scheduling was granted, where it was asked for.
    realtime: Option<bool>,
    /// What senders tell it from others of this host by.
    number: u64,
    place: Option<u64>,
    /// The session that it was part of, to its end.
    ended: Option<SessionId>,
    /// What it wants of the session that it was part of last.
    wanted: Option<Wanted>,
    /// Since when it is in none: what is sent meanwhile is nothing old.
    waits_since: Nanos,
    /// And the one whose sender it gave up, with what others had left open: when that is there again, everything that came is there.
    cut_off: Option<(Attendance, LeftOpen)>,
    strangers: Strangers,
    /// How often an address of a sender that was named was tried in vain.
    tried: usize,
    /// Why the sender that was tried last is not joined, where that stays so.
    refused: Option<String>,
    /// Whether it was known once where the sender is that was named.
    is_named: bool,
    /// How many this process may have.
    descriptors: u64,
    /// No other receiver of the group writes to the same directory.
    _sole: Option<Sole>,
    /// Until when a first session is waited for.
    wait_until: Option<Nanos>,
}

/// When a session began for this end.
struct Begun {
    at: Nanos,
    emulated: Option<Emulated>,
    cpu: Nanos,
    written: Nanos,
}

impl Begun {
    fn now(storage: &Storage) -> Self {
        Self {
            at: monotonic(),
            emulated: Emulated::of_this_host(),
            cpu: process::cpu_of_process(),
            written: storage.written_for().unwrap_or_default(),
        }
    }
}

/// A session that was joined, and where.
struct Joined {
    line: Line,
    welcome: Box<Welcome>,
    at: SocketAddr,
}

impl<'a> Reception<'a> {
    fn open(plan: &'a Plan, stop: &'a Wake) -> Result<Self, CastError> {
        // Before it waits: what is wrong with them is no matter of who comes.
        plan.credentials.as_ref().map(Credentials::check).transpose()?;
        let hearing = Hearing::join(plan)?;
        // Last: it may make the directory.
        let storage = Storage::open(plan.into.as_deref(), plan.group)?;
        let number = u64::from_be_bytes(process::random().map_err(CastError::Wait)?);
        let place = plan.into.as_deref().map(place);
        let sole = plan.into.as_deref().map(|into| alone(plan.group, into, stop)).transpose()?;
        let strangers = Strangers::default();
        // Of a large product that is not whole yet there is a file.
        let descriptors = process::raise_descriptor_limit(u64::MAX).unwrap_or(USUAL_DESCRIPTORS);
        let (realtime, ended, wanted) = (None, None, None);
        let (tried, refused) = (0, None);
        Ok(Self {
            plan,
            stop,
            hearing,
            storage,
            realtime,
            number,
            place,
            ended,
            wanted,
            waits_since: monotonic(),
            cut_off: None,
            strangers,
            tried,
            refused,
            is_named: false,
            descriptors,
            _sole: sole.flatten(),
            wait_until: plan.wait.map(|wait| monotonic().after(wait)),
        })
    }

    /// One session: its record, and how it ended.
    fn session(&mut self, tell: &mut dyn FnMut(Notice<'_>)) -> Finished {
        let (mut begun, mut left) = (Begun::now(&self.storage), LeftOpen::default());
        let mut attendance = None;
        let done = self.attend(&mut attendance, &mut begun, &mut left, tell);
        let is_cut_off = !self.plan.once && matches!(done, Err(CastError::Gone { .. }));
        if !is_cut_off {
            attendance.iter().for_each(Attendance::give_up);
        }
        self.storage.remove_leftovers();
        if !is_cut_off {
            self.waits_since = monotonic();
        }
        let mut lacks = false;
        if let (Ok(true) | Err(CastError::BrokenOff { .. }), Some(attendance)) = (&done, &attendance) {
            self.ended = Some(attendance.welcome.session);
            lacks = tell_left(&left, tell);
        }
        let finished = self.finished(&begun, attendance.as_ref(), done, lacks);
        if is_cut_off {
            self.cut_off = attendance.map(|attendance| (attendance, left));
        }
        finished
    }

    /// Of the session that it was cut off from nothing more comes.
    fn give_up_cut_off(&mut self) {
        if let Some((attendance, _)) = self.cut_off.take() {
            attendance.give_up();
        }
    }

    /// What came of a session.
    fn finished(
        &self,
        begun: &Begun,
        attendance: Option<&Attendance>,
        done: Result<bool, CastError>,
        lacks: bool,
    ) -> Finished {
        let (progress, welcome, times) = match attendance {
            Some(attendance) => (attendance.progress(), Some(&attendance.welcome), attendance.times()),
            None => (Progress::default(), None, None),
        };
        let seed = attendance.map(|attendance| attendance.seed);
        let duration = times.as_ref().and_then(|times| Some(times.last?.since(times.first?)));
        let samples = attendance.map(|attendance| attendance.samples.of(duration));
        let (interrupted, error) = match done {
            // There was none.
            Ok(false) if attendance.is_none() => {
                return Finished { interrupted: true, ..Finished::default() };
            }
            Err(error @ CastError::NoSession { .. }) => return failed(error),
            Ok(true) => (false, None),
            Ok(false) => (true, None),
            Err(error) => (false, Some(error)),
        };
        let outcome = match &error {
            None if interrupted => Outcome::Interrupted,
            None if progress.tally.failed == 0 && !lacks => Outcome::Ok,
            _ => Outcome::Failed,
        };
        let words = match &error {
            Some(error) => Some(chain(error)),
            None if outcome == Outcome::Failed && lacks => {
                Some("products of a session before it are not stored, as far as is known".to_owned())
            }
            None if outcome == Outcome::Failed => {
                let products = if progress.tally.failed == 1 { "product is" } else { "products are" };
                Some(format!("{} {products} not stored", progress.tally.failed))
            }
            None => None,
        };
        let record = Course {
            plan: self.plan,
            welcome,
            seed,
            frame: Frame {
                started: times.as_ref().map_or_else(rfc3339_now, |times| times.started.clone()),
                setup: times.as_ref().map(|times| times.first.unwrap_or(times.joined).since(begun.at)),
                duration,
                outcome,
                error: words,
            },
            progress: &progress,
            buffer: self.hearing.buffer(),
            realtime: self.realtime,
            written: self.storage.written_for().map(|written| written.since(begun.written)),
            samples: samples.unwrap_or_default(),
            cpu: process::cpu_of_process().since(begun.cpu),
            before: begun.emulated.as_ref(),
        }
        .record();
        Finished { record, progress, lacks, interrupted, error }
    }

    /// Takes part in one session, also where it is cut off from it meanwhile; false where the user ended it.
    fn attend(
        &mut self,
        attendance: &mut Option<Attendance>,
        begun: &mut Begun,
        left: &mut LeftOpen,
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> Result<bool, CastError> {
        let Some(mut joined) = self.find(None, tell)? else { return Ok(false) };
        if let Some((mut before, open)) = self.cut_off.take() {
            *left = open;
            if before.welcome.session == joined.welcome.session {
                before.begin_part();
                *attendance = Some(before);
            } else {
                // Its sender was started again meanwhile.
                before.give_up();
                left.add(before.unfinished(), before.missing());
            }
        }
        loop {
            let again = match attendance {
                Some(before) if before.welcome.session == joined.welcome.session => {
                    before.come_back(&joined.welcome);
                    true
                }
                _ => {
                    // Another session, since the sender was started again: what is proven is found in the files.
                    if let Some(before) = attendance.take() {
                        let missing = before.missing();
                        let done = match missing {
                            0 => Ok(true),
                            _ => Err(CastError::Superseded { at: joined.at, missing }),
                        };
                        before.give_up();
                        left.add(before.unfinished(), missing);
                        tell(Notice::Ended(Box::new(self.finished(begun, Some(&before), done, false))));
                        *begun = Begun::now(&self.storage);
                    }
                    *attendance = Some(Attendance::new(&joined.welcome, self.descriptors)?);
                    false
                }
            };
            let Some(present) = attendance else { return Ok(true) };
            let Welcome { session, wanted, first, .. } = present.welcome;
            self.wanted = Some(Wanted { session, first: wanted });
            tell(Notice::Joined { at: joined.at, again, skipped: wanted });
            if first > wanted && !again {
                let path = format!("products {wanted} to {}", first - 1);
                let reason = "the sender has forgotten them: they were too long ago".to_owned();
                tell(Notice::NotStored { path, reason });
            }
            let mut tell_stored = |notice: Notice<'_>| {
                if let Notice::Stored { path, .. } = &notice {
                    left.on_stored(path);
                }
                tell(notice);
            };
            let line = &mut joined.line;
            match present.work(self.plan, &mut self.hearing, &self.storage, line, self.stop, &mut tell_stored)
            {
                Ok(Departure::Complete) => return Ok(true),
                Ok(Departure::Stopped) => return Ok(false),
                Err(error @ (CastError::Talk { .. } | CastError::Silent { .. })) => {
                    let reason = chain(&error);
                    tell(Notice::Lost { at: joined.at, reason });
                    // It may have been gone for as long as its silence was borne.
                    self.waits_since = Nanos(monotonic().0.saturating_sub(self.plan.patience.0));
                    let again = Some((present.welcome.session, joined.at));
                    let Some(found) = self.find(again, tell)? else { return Ok(false) };
                    joined = found;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// `time`, or what is left of it in which a first session is waited for.
    fn shortened(&self, time: Nanos) -> Nanos {
        self.wait_until.map_or(time, |until| time.min(until.since(monotonic())))
    }

    /// Whether a session is waited for any longer.
    fn may_wait(&self) -> Result<(), CastError> {
        match self.plan.wait {
            Some(after) if self.wait_until.is_some_and(|until| monotonic() >= until) => {
                let refused = self.refused.clone();
                Err(CastError::NoSession { group: self.plan.group, after, refused })
            }
            _ => Ok(()),
        }
    }

    /// Where the sender is: `again` where it was, or the one that was named, or one that is heard; and whether it is known or heard that it
    /// has a session to join. `None` where the user ended it.
    fn whereabouts(
        &mut self,
        again: Option<(SessionId, SocketAddr)>,
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> Result<Option<(SocketAddr, bool)>, CastError> {
        if let Some((_, at)) = again {
            return Ok(Some((at, true)));
        }
        // A session's packets leave from the port of its control connections, which is the group's.
        let port = self.plan.group.address().port();
        let Some(from) = &self.plan.from else {
            let wanted = |from: SocketAddr| {
                from.port() == port && !self.strangers.is_left_alone(monotonic(), from.ip())
            };
            // After a session, the next may be long in coming.
            let mut is_told = self.ended.is_some();
            loop {
                let quiet = self.shortened(UNHEARD);
                match overhear(self.hearing.socket(), self.ended, &wanted, self.stop, quiet)? {
                    Overheard::From(at) => return Ok(Some((at, true))),
                    Overheard::Stopped => return Ok(None),
                    Overheard::Nothing => self.hearing.join_again(self.plan),
                }
                self.may_wait()?;
                if !std::mem::replace(&mut is_told, true) {
                    tell(self.plan.unheard(UNHEARD, None));
                }
            }
        };
        let resolve = || resolve(from, self.plan.group, self.tried);
        if self.ended.is_none() {
            return resolve().map(|at| Some((at, true)));
        }
        // A session that has ended may still be there, for others. Where the group does not reach this end the next is not heard: then it
        // is asked for.
        loop {
            match overhear(self.hearing.socket(), self.ended, &|_| true, self.stop, ASKED)? {
                Overheard::From(_) => return resolve().map(|at| Some((at, true))),
                Overheard::Stopped => return Ok(None),
                Overheard::Nothing => {
                    self.hearing.join_again(self.plan);
                    // Nothing says yet that there is anything to find there.
                    if let Ok(at) = resolve() {
                        return Ok(Some((at, false)));
                    }
                }
            }
        }
    }

    /// Joins a session: `again` the one that it was cut off from, or its sender's next. `None` where the user ended it.
    fn find(
        &mut self,
        again: Option<(SessionId, SocketAddr)>,
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> Result<Option<Joined>, CastError> {
        let plan = self.plan;
        // Anybody can send packets that seem to come from anywhere, or have the address of one that is away: one that the user has not named
        // ends nothing, whatever it says.
        let is_unnamed = plan.from.is_none();
        let is_heard = again.is_none() && is_unnamed;
        let mut told = BTreeSet::new();
        let gone = again.map(|(_, at)| (at, monotonic().after(plan.patience)));
        loop {
            self.may_wait()?;
            let (at, is_there) = match self.whereabouts(again, tell) {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(None),
                // A name that was known once will be again, when the network is there, or whoever knows names.
                Err(error @ CastError::Resolve { .. }) if self.is_named => {
                    let reason = chain(&error);
                    if told.len() < MOST_TOLD && told.insert(reason.clone()) {
                        tell(Notice::Waiting { reason });
                    }
                    match wait_for(self.stop, Interest::Read, self.stop, AGAIN).map_err(CastError::Wait)? {
                        Waited::Over => continue,
                        Waited::Ready | Waited::Stopped => return Ok(None),
                    }
                }
                Err(error) => return Err(error),
            };
            self.is_named = true;
            let patience = if is_heard || !is_there { plan.patience.min(HEARD) } else { plan.patience };
            // One that is there as the time ends is given a moment all the same.
            let patience = self.shortened(patience).max(AGAIN);
            let host = plan.from.clone().unwrap_or_else(|| at.ip().to_string());
            let request = Join {
                place: self.place,
                again: again.map(|(session, _)| session),
                group: Some(plan.group.address()),
                ended: self.ended,
                since: plan.since,
                wanted: self.wanted,
                ..Join::new(facts::host(), self.number)
            };
            let trusted = plan.credentials.as_ref().map(|all| all.trust(&host, at.port())).transpose();
            if is_heard {
                let is_known = trusted.as_ref().is_ok_and(|all| all.as_ref().is_none_or(Trusted::is_known));
                if trusted.is_ok() && !self.strangers.may_be_asked(monotonic(), at.ip(), is_known) {
                    continue;
                }
            }
            let mut pause = AGAIN;
            let trusted = match trusted {
                // Keys that were there at the start, and are not just now.
                Err(error) if again.is_some() && is_unnamed => Err(error.into()),
                trusted => Ok(trusted?),
            };
            match trusted.and_then(|trusted| {
                join(at, trusted.as_ref(), (request, self.waits_since), patience, self.stop)
            }) {
                Ok(None) => return Ok(None),
                Ok(Some((line, welcome))) => {
                    self.wait_until = None;
                    return Ok(Some(Joined { line, welcome, at }));
                }
                Err(error @ CastError::Wait(_)) => return Err(error),
                // It was that session's sender that was heard, or nobody.
                Err(CastError::Refused { refusal, .. }) if refusal.cause == Cause::Complete => pause = ENDED,
                Err(error) if !error.is_passing() && !is_unnamed => return Err(error),
                // It may not be there yet, or no more: a user that waits can end it.
                Err(error) => {
                    self.tried = self.tried.wrapping_add(1);
                    let is_refused = matches!(error, CastError::Refused { .. });
                    if is_refused {
                        pause = FULL;
                    }
                    let reason = chain(&error);
                    match error {
                        // Nobody is there any more who would.
                        CastError::Connect { .. } => self.refused = None,
                        _ if is_refused || !error.is_passing() => {
                            self.refused = Some(reason.clone()).filter(|_| !error.is_passing());
                        }
                        _ => {}
                    }
                    // That nobody is there who was not heard either is nothing new.
                    let is_news = !error.is_passing() || again.is_none() && (is_there || is_refused);
                    if is_news && told.len() < MOST_TOLD && told.insert(reason.clone()) {
                        tell(Notice::Waiting { reason });
                    }
                }
            }
            if is_heard {
                self.strangers.add(monotonic(), at.ip());
            }
            if let Some((at, until)) = gone
                && monotonic() >= until
            {
                return Err(CastError::Gone { at, after: plan.patience });
            }
            let pause = self.shortened(pause);
            match wait_for(self.stop, Interest::Read, self.stop, pause).map_err(CastError::Wait)? {
                Waited::Over => {}
                Waited::Ready | Waited::Stopped => return Ok(None),
            }
        }
    }
}

/// Says what sessions before left open; whether there is any of that.
fn tell_left(left: &LeftOpen, tell: &mut dyn FnMut(Notice<'_>)) -> bool {
    let mut lacks = false;
    for path in left.names().map(str::to_owned) {
        lacks = true;
        let reason = "the sender was started again, and sent it no more".to_owned();
        tell(Notice::NotStored { path, reason });
    }
    let nameless = left.nameless();
    if nameless > 0 {
        lacks = true;
        let (products, their) =
            if nameless == 1 { ("product", "its name") } else { ("products", "their names") };
        let path = format!("{nameless} {products} of a session before");
        let reason = format!(
            "{their} had not come when the sender was started again, and nothing says that they came since"
        );
        tell(Notice::NotStored { path, reason });
    }
    lacks
}

/// Between two attempts to reach a sender.
const AGAIN: Nanos = Nanos(200_000_000);

/// And where a sender is still busy with the session that has ended for this end.
const ENDED: Nanos = Nanos(2_000_000_000);

/// And where a sender has no room, or does not want this end.
const FULL: Nanos = Nanos(1_000_000_000);

/// For how long nothing comes after a session, not even of that one, until a sender that was named is asked for its next: something is sent
/// to the group each second.
const ASKED: Nanos = UNHEARD;

/// How long a host that was only heard of may take to let this end in: a few round trips of the longest paths.
const HEARD: Nanos = Nanos(5_000_000_000);

/// Reasons that are told.
const MOST_TOLD: usize = 16;

/// What a process may have where nobody said otherwise.
const USUAL_DESCRIPTORS: u64 = 1024;
