//! The client's part of a file transfer: from a plan to its record, over as many attempts as it takes.

use farlink_host::clock::monotonic;
use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_wire::quantity::Nanos;
use farlink_wire::record::Outcome;

use super::attempt::Attempt;
use super::ledger::Ledger;
use super::names::Names;
use super::plan::{Finished, Listener, Plan};
use super::unfinished::{Left, Mark, Other};
use crate::chain;

/// Carries `plan` out. Raise `stop` to end it early; `listener` is told how it goes.
pub fn run(plan: &Plan, stop: &Wake, listener: &mut dyn Listener) -> Finished {
    // Streams, files that are proven, and what asks for them: what is not granted is missed where it is needed.
    let _ = process::raise_descriptor_limit(u64::MAX);
    let names = Names::of(plan);
    let mut mark = Mark::of(names);
    let (left, others) = (mark.left(), mark.of_others());
    let mut resume =
        plan.resume.unwrap_or_else(|| left.asks_to_compare(plan.update) || plan.update && !others.is_empty());
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
    // What an attempt that broke has left of names that fail since was not compared.
    let mut is_known = left != Left::Begun && breaks == 0;
    if plan.retries > 0 && matches!(outcome, Ok(false)) && !stop.is_raised() {
        let tried = try_again(plan, names, stop, &mut ledger);
        interrupted = tried == Tried::Interrupted;
        is_known &= tried == Tried::Through;
    }
    ledger.tell_what_failed();
    let error = outcome.err();
    match (&error, interrupted) {
        (None, false) if ledger.summary.failed == 0 => {
            mark.clear();
            if plan.is_whole() {
                // What they selected was among it.
                others.iter().for_each(Other::clear);
            }
        }
        (None, false) if is_known => mark.lacks_names(),
        _ => {}
    }
    let Ledger { mut record, summary, begun, start, .. } = ledger;
    let was_refused = !interrupted && error.as_ref().is_none_or(|error| !error.is_passing());
    if !begun && (start.is_none() || was_refused) {
        // Nobody was reached, or it was refused, or none of the names could be read: nothing is there to be taken up but what was before.
        match left {
            Left::Nothing => mark.clear(),
            Left::Lacking => mark.lacks_names(),
            Left::Begun => {}
        }
    }
    record.outcome = match (&error, interrupted) {
        (Some(_), _) => Outcome::Failed,
        (None, true) => Outcome::Interrupted,
        (None, false) if summary.failed > 0 => Outcome::Failed,
        (None, false) => Outcome::Ok,
    };
    if summary.skipped > 0 {
        record.extra.insert("skipped".to_owned(), summary.skipped.into());
    }
    if summary.newer > 0 {
        record.extra.insert("newer".to_owned(), summary.newer.into());
    }
    record.error = error.as_ref().map(|error| chain(error));
    if record.error.is_none() && summary.failed > 0 {
        record.error =
            Some(format!("{} of {} names were not copied", summary.failed, summary.failed + summary.entries));
    }
    Finished { record, summary, error, begun }
}

/// How trying once more has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    /// What there is to be known of each name is known.
    Through,
    Interrupted,
    Broken,
}

/// Tries what failed once more, by itself and as often as attempts may come to nothing.
fn try_again(plan: &Plan, names: Names, stop: &Wake, ledger: &mut Ledger<'_>) -> Tried {
    let bottleneck = ledger.summary.bottleneck;
    let most = plan.retries.min(MOST_AGAIN);
    for attempt in 1..=most {
        let Some((count, rules)) = ledger.again.begin(most - attempt) else { return Tried::Through };
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
            Ok(true) => return Tried::Interrupted,
            Ok(false) => {}
            // Ctrl-C reaches what carries the connection, too.
            Err(error) if stop.is_raised() && error.is_passing() => return Tried::Interrupted,
            Err(error) => {
                ledger.warn(chain(&error));
                return Tried::Broken;
            }
        }
    }
    Tried::Through
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
