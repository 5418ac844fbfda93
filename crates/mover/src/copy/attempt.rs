//! One attempt at a plan: the far end is called, both ends talk, and what comes of it is noted.

use std::collections::VecDeque;
use std::sync::Arc;

use farlink_host::clock::{monotonic, rfc3339_before, time_of_day};
use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_wire::entry::Digest;
use farlink_wire::message::copy::{Accept, Protect, Request, Rule, SavedPath, Secret};
use farlink_wire::message::{Token, Way};
use farlink_wire::quantity::{BitsPerSec, Nanos};
use farlink_wire::refusal::Refusal;

use super::conversation::{Talk, talk};
use super::end::End;
use super::ledger::Ledger;
use super::manner::Manner;
use super::names::Names;
use super::plan::{Notice, Plan, Progress};
use super::receiving::{self, Receiving};
use super::redial::Redial;
use super::samples::{self, Samples};
use super::saved_paths::SavedPaths;
use super::sending::{Sending, Tally};
use super::{CopyError, bottleneck, record, supply};
use crate::budget::Budget;
use crate::connection::Emulated;
use crate::control::Control;
use crate::facts;
use crate::far::opened::Opened;
use crate::record::name_hosts;

mod client_party;
mod prepared;
mod request;

pub(super) use prepared::Prepared;
pub use request::CIRCUIT_STREAMS;
pub(super) use request::check;

use client_party::{ClientParty, MOST_REPLACED};

/// One attempt at a plan.
pub(super) struct Attempt<'a> {
    pub(super) plan: &'a Plan,
    /// What is copied of its sources.
    pub(super) rules: &'a [Rule],
    pub(super) names: Names,
    pub(super) resume: bool,
    pub(super) stop: &'a Wake,
}

/// How an attempt went.
struct Ended<'a> {
    /// What came in those before it.
    earlier: record::Before,
    /// What was known of the path.
    saved: Option<SavedPath>,
    /// The far end, where it has consented.
    host: Option<Accept>,
    /// When the first byte might leave.
    start: Nanos,
    rtt: Nanos,
    /// Bytes that arrived, by interval.
    samples: Vec<u64>,
    tally: Tally,
    /// Connections that were opened at first.
    count: usize,
    /// Of one that broke there is none.
    talk: Option<&'a Talk>,
}

impl Attempt<'_> {
    /// Carries it out, and adds what comes of it to `ledger`; true where it was interrupted.
    pub(super) fn run(&self, ledger: &mut Ledger<'_>) -> Result<bool, CopyError> {
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
            request.secret = Some(Secret(Digest(random()?)));
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
        let end = self.end(prepared, &request, &control, &wake)?;
        let mut count = data.len();
        for (number, channel) in data {
            end.join(number, channel).inspect_err(|_| end.abort())?;
        }
        count += late.map_or(0, |late| redial.expect(late));
        let mut client = ClientParty {
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
        let ClientParty { samples, host, .. } = client;
        if !matches!(&talked, Ok(talk) if !talk.interrupted) {
            // Whoever is still there is told.
            let refusal = match &talked {
                Err(error) => error.refusal(),
                Ok(_) => Refusal::lasting("interrupted"),
            };
            let _ = control.send(&farlink_wire::message::Message::Failed(refusal));
        }
        end.abort();
        end.wait();
        let samples = match &end {
            End::Receiver(receiving) => receiving.take_samples(),
            End::Sender(_) => samples.into_column(),
        };
        // What was under way is there by now, or is not.
        ledger.on_events(end.take_events());
        let tally = end.tally();
        if talked.is_ok() {
            ledger.listener.hear(Notice::Progress(progress(&tally, ledger.start.unwrap_or(start))));
        }
        ledger.begun |= tally.acknowledged > 0 || tally.entries > 0;
        ledger.went_on |= tally.acknowledged > ledger.farthest;
        ledger.farthest = ledger.farthest.max(tally.acknowledged);
        // The first sample may have met a late packet: by now there are others.
        let rtt = control.least_rtt().map_or(rtt, |later| later.min(rtt));
        let talk = talked.as_ref().ok();
        self.note_in_record(
            ledger,
            &Ended { earlier, saved: request.saved, host, start, rtt, samples, tally, count, talk },
        );
        if let Some(before) = before {
            record::describe(&mut ledger.record, &before, &control);
        }
        Ok(talked?.interrupted)
    }

    /// This end of it: what sends, or what receives.
    fn end(
        &self,
        prepared: Prepared,
        request: &Request,
        control: &Control,
        wake: &Wake,
    ) -> Result<End, CopyError> {
        let plan = self.plan;
        let seal = request.secret.map(|secret| secret.0.0);
        Ok(match prepared {
            Prepared::Sources(sources, filter) => {
                let mut manner = Manner::of(request, seal, true, control, Budget::unbounded());
                if plan.far.is_local() {
                    // Nothing is ever on its way for long: what takes time is to store it.
                    manner.stale = Nanos::MAX;
                }
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
                    resume: request.asks_first(),
                    verify: plan.verify,
                    seal,
                    report: true,
                    interval,
                    patience: plan.patience.get(),
                    lingers: !plan.far.is_local(),
                    budget: Budget::unbounded(),
                };
                End::Receiver(Receiving::new(manner, wake.clone(), Wake::new().map_err(CopyError::wait)?))
            }
        })
    }

    /// Notes what it came to.
    fn note_in_record(&self, ledger: &mut Ledger<'_>, ended: &Ended<'_>) {
        let plan = self.plan;
        let &Ended { start, rtt, talk, .. } = ended;
        let (first, interval, near) = (ledger.start.unwrap_or(start), plan.interval.get(), facts::host());
        if let Some(accept) = &ended.host {
            name_hosts(&mut ledger.record, plan.way, &near, &accept.host);
        }
        let (samples, tally) = (&*ended.samples, ended.tally);
        record::close(
            &mut ledger.record,
            &ended.earlier,
            talk,
            &record::Course { first, attempt: start, rtt, interval, samples, way: plan.way, tally },
        );
        ledger.record.streams = Some(ended.count as u32);
        let Some(Talk { account: Some(account), finished: Some(finished), .. }) = talk else { return };
        let saw = (plan.way == Way::Reverse).then(|| samples::fastest(samples, interval, rtt)).flatten();
        SavedPaths::of(plan).keep(ended.saved, account, saw);
        let cores = (near.cores, ended.host.as_ref().map_or(near.cores, |accept| accept.host.cores));
        let whole = Nanos::from_secs_f64(ledger.record.duration_s.unwrap_or(0.0));
        let took = Nanos(whole.0.saturating_sub(start.since(first).0));
        let limit = plan.limit.as_ref().and_then(|limit| limit.mean(time_of_day(), took));
        let limited = plan.limit.as_ref().and_then(|limit| limit.mean_of_limited(time_of_day(), whole));
        ledger.record.limit_bps = limited.map(BitsPerSec::get);
        let judged = bottleneck::judge(took, account, finished, cores, limit);
        // Within one process there is no network.
        ledger.summary.bottleneck =
            Some(judged).filter(|judged| !(plan.far.is_local() && judged.is_network()));
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

/// Bytes that nobody foresees.
pub(super) fn random<const BYTES: usize>() -> Result<[u8; BYTES], CopyError> {
    process::random().map_err(|source| CopyError::System { attempt: "draw a random number", source })
}
