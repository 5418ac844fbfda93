//! The client's part of a file transfer: from a plan to its record.

use std::collections::VecDeque;
use std::sync::Arc;

use farlink_flow::streams::Path;
use farlink_flow::timetable::Timetable;
use farlink_host::beneath::Directory;
use farlink_host::clock::{monotonic, rfc3339_before};
use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_host::socket;
use farlink_wire::entry::Digest;
use farlink_wire::message::copy::{
    Accept, Account, MOST_SOURCES, Place, Protect, Request, Rule, SavedPath, Secret,
};
use farlink_wire::message::{Arrival, MAX_MESSAGE, Streams, Token, Way};
use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos};
use farlink_wire::record::Outcome;

use super::conversation::{End, Party, Talk, talk};
use super::filter::Filter;
use super::ledger::Ledger;
use super::lost::Lost;
use super::manner::Manner;
use super::names::Names;
use super::pattern::{Pattern, is_pattern};
use super::plan::{Finished, Listener, Notice, Plan, Progress};
use super::receiving::{self, Receiving};
use super::redial::{Redial, Redialled};
use super::samples::{self, Samples};
use super::saved_paths::SavedPaths;
use super::sender_account::sender_account;
use super::sending::{Sending, Tally};
use super::source::{SourcePath, absolute};
use super::target::{Asked, Destination, Target, TargetOptions};
use super::unfinished::Mark;
use super::{CopyError, bottleneck, record, supply};
use crate::budget::Budget;
use crate::connection::Emulated;
use crate::far::ThisEnd;
use crate::far::opened::Opened;
use crate::record::name_hosts;
use crate::{chain, facts};

/// Carries `plan` out. Raise `stop` to end it early; `listener` is told how it goes.
pub fn run(plan: &Plan, stop: &Wake, listener: &mut dyn Listener) -> Finished {
    // Streams, files that are proven, and what asks for them: what is not granted is missed where it is needed.
    let _ = process::raise_descriptor_limit(u64::MAX);
    let names = Names::of(plan);
    let mark = Mark::of(names.command);
    let was_begun = mark.is_set();
    let mut resume = plan.resume.unwrap_or(was_begun);
    mark.set();
    let mut ledger = Ledger::new(plan, listener);
    let (mut attempt, mut breaks) = (0, 0);
    let outcome = loop {
        let outcome = Attempt { plan, rules: &plan.rules, names, resume, stop }.run(&mut ledger);
        let outcome = outcome.map_err(|error| if plan.far.is_local() { error.of_here() } else { error });
        if std::mem::take(&mut ledger.went_on) {
            // However often a copy of days is broken: what `--retries` bounds are attempts that come to nothing.
            attempt = 0;
        }
        match outcome {
            Err(error)
                // That nobody is there, or nobody has room, is told at once to who has just begun.
                if (error.is_passing() || breaks > 0 && (error.is_unreached() || error.is_put_off()))
                    && attempt < plan.retries
                    && !stop.is_raised() =>
            {
                attempt += 1;
                breaks += 1;
                ledger.warn(format!("{}; attempt {} of {}", chain(&error), attempt + 1, plan.retries + 1));
                resume = true;
                pause(attempt, stop);
                ledger.begin_again();
            }
            other => break other,
        }
    };
    ledger.summary.retries = breaks;
    let outcome = match outcome {
        // Ctrl-C reaches what carries the connection, too, and that may be heard of first.
        Err(error) if stop.is_raised() && (error.is_passing() || !ledger.begun) => Ok(true),
        other => other,
    };
    let mut interrupted = matches!(outcome, Ok(true));
    if plan.retries > 0 && matches!(outcome, Ok(false)) && !stop.is_raised() {
        interrupted = try_again(plan, names, stop, &mut ledger);
    }
    ledger.tell_what_failed();
    let error = outcome.err();
    if error.is_none() && !interrupted && ledger.summary.failed == 0 {
        mark.clear();
    }
    let Ledger { mut record, summary, begun, .. } = ledger;
    if !begun && !was_begun && !interrupted && error.as_ref().is_none_or(|error| !error.is_passing()) {
        // It was refused, or none of the names could be read: nothing is there to be taken up.
        mark.clear();
    }
    record.outcome = match (&error, interrupted) {
        (Some(_), _) => Outcome::Failed,
        (None, true) => Outcome::Interrupted,
        (None, false) if summary.failed > 0 => Outcome::Failed,
        (None, false) => Outcome::Ok,
    };
    record.error = error.as_ref().map(|error| chain(error));
    if record.error.is_none() && summary.failed > 0 {
        record.error =
            Some(format!("{} of {} names were not copied", summary.failed, summary.failed + summary.entries));
    }
    Finished { record, summary, error, begun }
}

/// Tries what failed once more, by itself and as often as attempts may come to nothing; true where that was interrupted.
fn try_again(plan: &Plan, names: Names, stop: &Wake, ledger: &mut Ledger<'_>) -> bool {
    let bottleneck = ledger.summary.bottleneck;
    let most = plan.retries.min(MOST_AGAIN);
    for attempt in 1..=most {
        let Some((count, rules)) = ledger.again.begin(most - attempt) else { return false };
        // Whoever writes to it takes his time.
        pause(attempt, stop);
        let what = if count == 1 { "a file that was".to_owned() } else { format!("{count} files that were") };
        ledger.warn(format!("trying once more {what} not read to the end"));
        let before = ledger.record.clone();
        let outcome = Attempt { plan, rules: &rules, names, resume: true, stop }.run(ledger);
        ledger.summary.bottleneck = bottleneck;
        // What both ends took is that of the transfer, and not of these few.
        let record = &mut ledger.record;
        (record.cpu_s, record.disk_s) = (before.cpu_s, before.disk_s);
        (record.retransmits, record.buffers) = (before.retransmits, before.buffers);
        ledger.record.files = Some(ledger.summary.entries.max(before.files.unwrap_or(0)));
        match outcome {
            Ok(true) => return true,
            Ok(false) => {}
            // Ctrl-C reaches what carries the connection, too.
            Err(error) if stop.is_raised() && error.is_passing() => return true,
            Err(error) => {
                ledger.warn(chain(&error));
                return false;
            }
        }
    }
    false
}

/// How often: each is a way to the far end, and a file that is always written to is never copied.
const MOST_AGAIN: u32 = 3;

/// Waits before attempt `attempt`: 1, 2, 4, ... seconds, no longer than 30.
fn pause(attempt: u32, stop: &Wake) {
    let until = monotonic()
        .after(Nanos(1_000_000_000 << attempt.saturating_sub(1).min(5)).min(Nanos(30_000_000_000)));
    while monotonic() < until && !stop.is_raised() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// One attempt at a plan.
pub(super) struct Attempt<'a> {
    pub(super) plan: &'a Plan,
    /// What is copied of its sources.
    pub(super) rules: &'a [Rule],
    pub(super) names: Names,
    pub(super) resume: bool,
    pub(super) stop: &'a Wake,
}

impl Attempt<'_> {
    /// True where it was interrupted.
    fn run(&self, ledger: &mut Ledger<'_>) -> Result<bool, CopyError> {
        let plan = self.plan;
        if ledger.record.id.is_empty() {
            ledger.record.id = format!("{:032x}", u128::from_be_bytes(random()?));
        }
        let earlier = record::Before::of(&ledger.record);
        let wake = Wake::new().map_err(CopyError::wait)?;
        // What is wrong here is said before anybody is called.
        let prepared = self.prepare()?;
        let token = Token(random()?);
        let mut request = self.request(token);
        check(&request)?;
        if plan.protect == Protect::Integrity {
            let (left, right) = (random()?, random()?);
            let mut secret = [0; 32];
            secret[..16].copy_from_slice(&left);
            secret[16..].copy_from_slice(&right);
            request.secret = Some(Secret(Digest(secret)));
        }
        let before = Emulated::of_this_host();
        let opened = plan
            .far
            .open(&request, self.this_end(request.saved), self.stop, &mut |warning| ledger.warn(warning))?;
        let Some(Opened { control, data, late, line, early }) = opened else { return Ok(true) };
        // Let go of behind the control connection: what ssh started ends then, and waits for the end of that.
        let way = Arc::clone(&line);
        let mut redial = Redial::new(line, wake.clone())?;
        let mut control = control;
        let start = monotonic();
        let rtt = control.least_rtt().unwrap_or_default();
        if ledger.start.is_none() {
            ledger.start = Some(start);
            ledger.record.setup_s = Some(start.since(ledger.began).as_secs_f64());
            ledger.record.started = rfc3339_before(Nanos::ZERO);
            ledger.record.rtt_s = Some(rtt).filter(|rtt| *rtt > Nanos::ZERO).map(Nanos::as_secs_f64);
        }
        let seal = request.secret.map(|secret| secret.0.0);
        let end = match prepared {
            Prepared::Sources(sources, filter) => {
                let manner = Manner::of(&request, seal, true, &control, Budget::unbounded());
                let sending = Sending::new(manner, wake.clone(), Wake::new().map_err(CopyError::wait)?)
                    .map_err(CopyError::wait)?;
                supply::start(&sending, sources, filter, plan.length)
                    .map_err(|source| CopyError::System { attempt: "start a thread", source })?;
                End::Sender(sending)
            }
            Prepared::Target(target, sink) => {
                // Not before: where nobody is reached, nothing is made.
                target.begin()?;
                let interval = plan.interval.get();
                let manner = receiving::Manner {
                    target,
                    sink,
                    resume: self.resume,
                    verify: plan.verify,
                    seal,
                    report: true,
                    interval,
                    budget: Budget::unbounded(),
                };
                End::Receiver(Receiving::new(manner, wake.clone(), Wake::new().map_err(CopyError::wait)?))
            }
        };
        let mut count = data.len();
        for (number, channel) in data {
            end.join(number, channel).inspect_err(|_| end.abort())?;
        }
        count += late.map_or(0, |late| redial.expect(late));
        let mut client = Client {
            ledger,
            redial,
            end: &end,
            next: count as u32,
            replaced: VecDeque::new(),
            most_replaced: MOST_REPLACED.max(2 * count),
            samples: Samples::default(),
            plan,
            limit: request.limit,
            host: None,
            start,
        };
        let talked = talk(&mut control, &end, &wake, &[self.stop], plan.patience.get(), &mut client, early)
            .map_err(|error| way.explained(error));
        // What ssh started lives until all is done, and with it the way by which connections are dialled.
        let Client { samples, host, .. } = client;
        if !matches!(&talked, Ok(talk) if !talk.interrupted) {
            // Whoever is still there is told.
            let reason = match &talked {
                Err(error) => chain(error),
                Ok(_) => "interrupted".to_owned(),
            };
            let _ = control.send(&farlink_wire::message::Message::Failed(reason.into()));
        }
        let interval = plan.interval.get();
        end.abort();
        end.wait();
        let samples = match &end {
            End::Receiver(receiving) => receiving.take_samples(),
            End::Sender(_) => samples.into_column(),
        };
        // What was under way is there by now, or is not.
        ledger.on_events(end.take_events());
        let tally = tally(&end);
        if talked.is_ok() {
            ledger.listener.hear(Notice::Progress(progress(&tally, ledger.start.unwrap_or(start))));
        }
        ledger.begun |= tally.acknowledged > 0 || tally.entries > 0;
        ledger.went_on |= tally.acknowledged > ledger.farthest;
        ledger.farthest = ledger.farthest.max(tally.acknowledged);
        let talk = talked.as_ref().ok();
        let first = ledger.start.unwrap_or(start);
        let near = facts::host();
        if let Some(accept) = &host {
            name_hosts(&mut ledger.record, plan.way, &near, &accept.host);
        }
        // The first sample may have met a late packet: by now there are others.
        let rtt = control.least_rtt().map_or(rtt, |later| later.min(rtt));
        record::close(
            &mut ledger.record,
            &earlier,
            talk,
            &record::Course { first, attempt: start, rtt, interval, samples: &samples, way: plan.way, tally },
        );
        ledger.record.streams = Some(count as u32);
        if let Some(Talk { account: Some(account), finished: Some(finished), .. }) = talk {
            let saw = (plan.way == Way::Reverse).then(|| samples::fastest(&samples, interval, rtt)).flatten();
            SavedPaths::of(plan).keep(request.saved, account, saw);
            let cores = (near.cores, host.as_ref().map_or(near.cores, |accept| accept.host.cores));
            let whole = Nanos::from_secs_f64(ledger.record.duration_s.unwrap_or(0.0));
            let took = Nanos(whole.0.saturating_sub(start.since(first).0));
            let judged = bottleneck::judge(took, account, finished, cores);
            // Within one process there is no network.
            ledger.summary.bottleneck =
                Some(judged).filter(|judged| !(plan.far.is_local() && judged.is_network()));
        }
        if let Some(before) = before {
            record::describe(&mut ledger.record, &before, &control);
        }
        Ok(talked?.interrupted)
    }

    pub(super) fn prepare(&self) -> Result<Prepared, CopyError> {
        let plan = self.plan;
        let root = Directory::open(std::path::Path::new("/")).map(Arc::new);
        let root = root.map_err(|source| CopyError::System { attempt: "open the root directory", source })?;
        let mut filter = Filter::new(self.rules)?.only(plan.names.as_deref())?;
        match plan.way {
            Way::Forward => {
                if plan.far.is_local() {
                    let path = absolute(plan.destination.as_bytes()).map_err(CopyError::working_directory)?;
                    if root.open_sink(&path).is_err() {
                        // What cannot be a destination is refused by a dry run, too.
                        let destination = Destination { path: path.clone(), several: self.several() };
                        Target::find(&root, &destination, self.names.key, TargetOptions::default())?;
                    }
                    filter = filter.without(&root, path);
                }
                let mut sources = Vec::new();
                for place in &plan.sources {
                    sources.push((
                        Arc::clone(&root),
                        SourcePath::new(absolute(place.as_bytes()).map_err(CopyError::working_directory)?)?,
                    ));
                }
                Ok(Prepared::Sources(sources, filter))
            }
            Way::Reverse => {
                let options = TargetOptions {
                    fsync: plan.fsync,
                    read_back: plan.read_back,
                    asked: Some(Arc::new(Asked::new(expected(&plan.sources), filter))),
                    ..TargetOptions::default()
                };
                let destination = Destination {
                    path: absolute(plan.destination.as_bytes()).map_err(CopyError::working_directory)?,
                    several: self.several(),
                };
                let sink = root.open_sink(&destination.path).ok();
                let target = Target::find(&root, &destination, self.names.key, options)?;
                Ok(Prepared::Target(target, sink))
            }
        }
    }

    /// Whether the destination can only be a directory.
    fn several(&self) -> bool {
        let sources = &self.plan.sources;
        let contents = |place: &Place| {
            SourcePath::new(place.as_bytes()).is_ok_and(|source| source.base_name().is_none())
        };
        let is_far = self.plan.way == Way::Reverse;
        let open = |place: &Place| is_far && is_pattern(place.as_bytes());
        sources.len() > 1 || sources.iter().any(|place| contents(place) || open(place))
    }

    /// What this end knows of the way to the other. The shares of a circuit are fixed before anything is measured.
    pub(super) fn this_end(&self, saved: Option<SavedPath>) -> ThisEnd {
        let plan = self.plan;
        let is_open = plan.streams.is_none() && plan.declared.is_none();
        ThisEnd { bind: plan.bind, path: is_open.then(|| path_of(plan, saved)) }
    }

    pub(super) fn request(&self, token: Token) -> Request {
        let plan = self.plan;
        let forward = plan.way == Way::Forward;
        let saved = SavedPaths::of(plan).recall();
        Request {
            token,
            way: plan.way,
            sources: if forward { Vec::new() } else { plan.sources.clone() },
            destination: forward.then(|| plan.destination.clone()),
            several: self.several(),
            key: Token(self.names.key),
            command: Some(Token(self.names.command)),
            resume: self.resume,
            dry_run: false,
            rules: if forward { Vec::new() } else { self.rules.to_vec() },
            names: plan.names.clone().filter(|_| !forward),
            length: plan.length,
            protect: plan.protect,
            secret: None,
            verify: plan.verify,
            fsync: plan.fsync,
            read_back: plan.read_back,
            limit: plan.limit_now(),
            streams: plan.streams.unwrap_or_else(|| first_streams(plan, saved)),
            congestion: plan.congestion.clone(),
            declared: plan.declared,
            buffer: plan.buffer,
            saved,
            interval: plan.interval,
            patience: plan.patience,
            host: facts::host(),
        }
    }
}

/// How far it is, of what began at `start`.
fn progress(tally: &Tally, start: Nanos) -> Progress {
    let &Tally { acknowledged, entries, of_entries, of_bytes, known, .. } = tally;
    let seconds = monotonic().since(start).as_secs_f64();
    // What came twice counts once.
    let bytes = if known { acknowledged.min(of_bytes) } else { acknowledged };
    Progress { bytes, of_bytes, entries, of_entries, known, seconds }
}

/// Refuses what the far end would not read, before anybody is called.
pub(super) fn check(request: &Request) -> Result<(), CopyError> {
    if request.sources.len() > MOST_SOURCES {
        return Err(CopyError::ManySources { count: request.sources.len(), most: MOST_SOURCES });
    }
    let bytes = serde_json::to_vec(request).map_or(0, |words| words.len());
    // What is around it, and added to it later, is short.
    let most = MAX_MESSAGE - 1024;
    if bytes > most { Err(CopyError::LongRequest { bytes, most }) } else { Ok(()) }
}

/// Bits that nobody foresees.
pub(super) fn random() -> Result<[u8; 16], CopyError> {
    process::random().map_err(|source| CopyError::System { attempt: "draw a random number", source })
}

/// What was looked at before the far end is called.
pub(super) enum Prepared {
    Sources(Vec<(Arc<Directory>, SourcePath)>, Filter),
    Target(Target, Option<std::fs::File>),
}

/// The first components of what may come: the last ones of the sources. `None` where what is in one of them is asked for, under
/// names that nobody knows beforehand.
fn expected(sources: &[Place]) -> Option<Vec<Pattern>> {
    let name = |place: &Place| {
        let name = place.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        (!matches!(name, b"" | b"." | b"..")).then(|| Pattern::of(name))
    };
    sources.iter().map(name).collect()
}

/// Connections of a circuit where nobody asked for a number, since their shares of the rate are fixed: one reads while the other sends.
pub const CIRCUIT_STREAMS: u32 = 2;

/// Connections that are opened at once where nobody asked for a number.
fn first_streams(plan: &Plan, saved: Option<SavedPath>) -> Streams {
    let count = match saved {
        _ if plan.declared.is_some() => CIRCUIT_STREAMS,
        // They are counted again when the round trip is known.
        Some(SavedPath { rtt, .. }) => Path { rtt: Some(rtt), ..path_of(plan, saved) }.streams().get().into(),
        None => path_of(plan, saved).first().get().into(),
    };
    Streams::try_from(count).unwrap_or_else(|_| unreachable!("it is within the bounds of streams"))
}

/// What is known before anything is measured. Both ends have the settings of this one, as far as it knows.
fn path_of(plan: &Plan, saved: Option<SavedPath>) -> Path {
    let window = plan.buffer.map(|buffer| buffer.get().into()).or_else(socket::greatest_window).map(Bytes);
    Path {
        rtt: None,
        rate: plan.limit.as_ref().and_then(Timetable::greatest),
        window,
        cores: process::cores(),
        is_known: saved.is_some(),
    }
}

fn tally(end: &End) -> Tally {
    match end {
        End::Sender(sending) => sending.tally(),
        End::Receiver(receiving) => receiving.tally(),
    }
}

/// The client's part in a conversation.
struct Client<'a, 'l> {
    ledger: &'a mut Ledger<'l>,
    redial: Redial,
    end: &'a End,
    /// Number of the next connection.
    next: u32,
    /// When connections were replaced of late, and how many may be.
    replaced: VecDeque<Nanos>,
    most_replaced: usize,
    samples: Samples,
    plan: &'a Plan,
    /// What holds now.
    limit: Option<BitsPerSec>,
    host: Option<Accept>,
    start: Nanos,
}

impl Party for Client<'_, '_> {
    fn observe(&mut self, end: &End, arrivals: &[Arrival]) {
        for arrival in arrivals {
            self.samples.add(arrival.index.into(), arrival.bytes);
        }
        if !self.ledger.listener.is_behind() {
            self.ledger.on_events(end.take_events());
        }
        let limit = self.plan.limit_now();
        if limit != self.limit {
            self.limit = limit;
            end.hold(limit);
        }
        let progress = progress(&tally(end), self.ledger.start.unwrap_or(self.start));
        self.ledger.listener.hear(Notice::Progress(progress));
    }

    fn replace(&mut self, end: &End, lost: Vec<Lost>) -> Result<(), CopyError> {
        for lost in lost {
            let now = monotonic();
            self.replaced.retain(|at| now.since(*at) < LATELY);
            self.replaced.push_back(now);
            if self.replaced.len() > self.most_replaced {
                return Err(CopyError::NoStream { why: lost.why });
            }
            self.redial.ask(lost, self.next);
            self.next += 1;
        }
        let redialled = self.redial.take();
        let mut why = None;
        for Redialled { lost, number, outcome } in redialled {
            let outcome = match outcome {
                Ok(channel) => {
                    end.join(number, channel).map_err(|error| ("the one in its place cannot be used", error))
                }
                Err(error) => Err(("no other can be had", error)),
            };
            match (lost, outcome) {
                (None, Ok(())) => {}
                (None, Err((_, error))) => {
                    let error = chain(&error);
                    self.ledger.warn(format!("data connection {number} cannot be had: {error}"));
                    why = Some(error);
                }
                (Some(Lost { stream, why }), Ok(())) => {
                    self.ledger
                        .warn(format!("data connection {stream} broke ({why}): another takes its place"));
                }
                (Some(lost), Err((what, error))) => {
                    let Lost { stream, why: broke } = lost;
                    let error = chain(&error);
                    self.ledger
                        .warn(format!("data connection {stream} broke ({broke}), and {what}: {error}"));
                    why = Some(broke);
                }
            }
        }
        match why {
            Some(why) if end.streams() == 0 && !self.redial.is_going() => Err(CopyError::NoStream { why }),
            _ => Ok(()),
        }
    }

    fn account(&mut self) -> Account {
        sender_account(self.end)
    }

    fn leaves_first(&self) -> bool {
        true
    }

    fn accepted(&mut self, accept: Accept) {
        self.host = Some(accept);
    }
}

/// Connections that are replaced within so long before it is given up; all of them twice, where there are more.
const MOST_REPLACED: usize = 64;
const LATELY: Nanos = Nanos(600_000_000_000);
