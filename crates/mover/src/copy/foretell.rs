//! What a copy would copy, and nothing copied.

use std::collections::VecDeque;
use std::sync::Arc;

use farlink_host::beneath::Directory;
use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_wire::message::copy::{Copy, Lack, Request};
use farlink_wire::message::{Message, Streams, Way};
use farlink_wire::quantity::Nanos;

use super::CopyError;
use super::attempt::{Attempt, Prepared, check, random};
use super::file_event::{Became, FileEvent};
use super::filter::Filter;
use super::judging::{Asking, judged};
use super::ledger::Halves;
use super::names::Names;
use super::plan::{Listener, Notice, Plan};
use super::source::SourcePath;
use super::target::Target;
use super::telling::{self, Name, SIGN, Tour};
use super::unfinished::{Left, Mark};
use crate::control::{Control, ControlError};
use crate::far::ThisEnd;
use crate::far::opened::Opened;

/// What a copy would come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// Names that would be copied; what would stay as it stands is none of them.
    pub copied: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Names that would be there.
    pub entries: u64,
    /// Names that would not, for a reason that is an error.
    pub failed: u64,
    /// It was ended before all names were told.
    pub interrupted: bool,
}

/// Each name that `plan` would copy, and each that it would not for a reason; `listener` is told one at a time, until `stop` is raised. Where
/// it is behind, this waits for it.
///
/// # Errors
/// Where the far end cannot be asked.
pub fn foretell(plan: &Plan, stop: &Wake, listener: &mut dyn Listener) -> Result<Foretold, CopyError> {
    let mut counting = Counting {
        foretold: Foretold::default(),
        halves: Halves::default(),
        failed_last: String::new(),
        listener,
    };
    let whole = ask(plan, stop, &mut counting)?;
    Ok(Foretold { interrupted: !whole, ..counting.foretold })
}

/// Who counts what is told, and has it told.
struct Counting<'a> {
    foretold: Foretold,
    halves: Halves,
    /// What failed last: what is found wrong in a directory is told right behind it.
    failed_last: String,
    listener: &'a mut dyn Listener,
}

impl Counting<'_> {
    fn hear(&mut self, notice: Notice) {
        if let Notice::File(event) = &notice {
            match event.what {
                Became::Copied => {
                    self.foretold.entries += 1;
                    self.foretold.copied += 1;
                    self.foretold.bytes += event.bytes;
                }
                Became::Same | Became::Newer => self.foretold.entries += 1,
                Became::Lacking(Lack::Skipped | Lack::Later, _) => {}
                // It is not even there: one failure, and none that was said to be copied.
                Became::Lacking(Lack::Unfinished, _) if self.failed_last == event.path => {}
                Became::Lacking(Lack::Unfinished, _) => {
                    let is_news = u64::from(self.halves.add(&event.path));
                    self.foretold.failed += is_news;
                    // It was said to be copied.
                    self.foretold.entries = self.foretold.entries.saturating_sub(is_news);
                    self.foretold.copied = self.foretold.copied.saturating_sub(is_news);
                }
                Became::Lacking(..) => {
                    self.foretold.failed += 1;
                    self.failed_last.clone_from(&event.path);
                }
            }
        }
        self.listener.hear(notice);
    }

    /// Waits while the listener is behind, and calls `meanwhile` often; false where `stop` was raised.
    fn wait(
        &self,
        stop: &Wake,
        meanwhile: &mut dyn FnMut() -> Result<(), ControlError>,
    ) -> Result<bool, ControlError> {
        let mut next_sign = monotonic().after(SIGN);
        while self.listener.is_behind() {
            let waited = wait_for(stop, Interest::Read, stop, BREATH).map_err(ControlError::Wait)?;
            if waited != Waited::Over {
                return Ok(false);
            }
            if monotonic() >= next_sign {
                next_sign = monotonic().after(SIGN);
                meanwhile()?;
            }
        }
        Ok(true)
    }
}

/// The names, as above; false where it was ended before the last.
fn ask(plan: &Plan, stop: &Wake, counting: &mut Counting<'_>) -> Result<bool, CopyError> {
    if plan.update {
        let compared = "files that are as old and as long are compared by the copy itself, and more may be copied than is listed here";
        let was_broken_off = || {
            let mark = Mark::of(Names::of(plan));
            mark.left() == Left::Begun || !mark.of_others().is_empty()
        };
        if plan.resume == Some(true) {
            counting.hear(Notice::Warning(format!("with --resume {compared}")));
        } else if was_broken_off() {
            counting.hear(Notice::Warning(format!("this copy was broken off before: {compared}")));
        }
    }
    // It is nobody's to take over.
    let names = Names { command: random()?, ..Names::default() };
    let attempt = Attempt { plan, rules: &plan.rules, names, resume: false, stop };
    if plan.way == Way::Reverse {
        let target = attempt.here()?;
        return come_from(&attempt, target.as_ref(), counting);
    }
    let Prepared::Sources(sources, filter) = attempt.prepare()? else { return Ok(true) };
    if plan.update && !plan.far.is_local() {
        return go_to(&attempt, &sources, &filter, counting);
    }
    let target = if plan.far.is_local() { attempt.here()? } else { None };
    let over = || stop.is_raised();
    let mut went_on = Ok(true);
    let tour = Tour { sources: &sources, filter: &filter, length: plan.length, update: plan.update };
    telling::walk(tour, &over, |name| {
        went_on = judged(name, target.as_ref()).and_then(|event| {
            counting.hear(Notice::File(event));
            Ok(counting.wait(stop, &mut || Ok(()))?)
        });
        matches!(went_on, Ok(true))
    });
    went_on?;
    Ok(!stop.is_raised())
}

/// The far end, asked for what nobody copies; `None` where it was ended before that was there.
fn open(attempt: &Attempt<'_>, counting: &mut Counting<'_>) -> Result<Option<Opened>, CopyError> {
    let request = attempt.request(farlink_wire::message::Token(random()?));
    // Nothing goes on data connections.
    let request = Request { dry_run: true, streams: Streams::ONE, ..request };
    let this_end = ThisEnd { bind: attempt.plan.bind, path: None };
    check(&request)?;
    attempt.plan.far.open(&request, this_end, attempt.stop, &mut |text| {
        counting.hear(Notice::Warning(text));
    })
}

/// Names of `sources` here that would go to another host.
fn go_to(
    attempt: &Attempt<'_>,
    sources: &[(Arc<Directory>, SourcePath)],
    filter: &Filter,
    counting: &mut Counting<'_>,
) -> Result<bool, CopyError> {
    let (stop, patience) = (attempt.stop, attempt.plan.patience.get());
    let Some(Opened { line, control, early, .. }) = open(attempt, counting)? else { return Ok(false) };
    let told = telling::walking(Tour { sources, filter, length: None, update: true }, |said| {
        let mut asking = Asking::new(control, early, patience, said);
        let mut next_sign = monotonic().after(SIGN);
        loop {
            let is_news = asking.turn(&mut |event| counting.hear(Notice::File(event)))?;
            if asking.is_done() {
                return Ok(true);
            }
            if !counting.wait(stop, &mut || asking.live())? {
                return Ok(false);
            }
            if monotonic() >= next_sign {
                next_sign = monotonic().after(SIGN);
                asking.live()?;
            }
            if !is_news {
                asking.wait(stop)?;
            }
            if stop.is_raised() {
                return Ok(false);
            }
        }
    });
    told.map_err(|error| line.explained(error))
}

/// Names that would come from another host, to `target` where that is asked.
fn come_from(
    attempt: &Attempt<'_>,
    target: Option<&Target>,
    counting: &mut Counting<'_>,
) -> Result<bool, CopyError> {
    let (stop, patience) = (attempt.stop, attempt.plan.patience.get());
    let Some(Opened { line, control, early, .. }) = open(attempt, counting)? else { return Ok(false) };
    take_names((control, early), target, (patience, stop), counting).map_err(|error| line.explained(error))
}

/// The names that a far end tells; false where that was ended.
fn take_names(
    (mut control, mut early): (Control, VecDeque<Message>),
    target: Option<&Target>,
    (patience, stop): (Nanos, &Wake),
    counting: &mut Counting<'_>,
) -> Result<bool, CopyError> {
    loop {
        // The far end waits as long as it hears from here.
        if !counting.wait(stop, &mut || control.send(&Message::Alive))? {
            return Ok(false);
        }
        let message = match early.pop_front() {
            Some(message) => Some(message),
            None => control.next(monotonic().after(patience), stop)?,
        };
        match message {
            Some(Message::Copy(Copy::Foretold { path, bytes, node })) => {
                let event = FileEvent { bytes, ..FileEvent::of(path.to_string(), Became::Copied) };
                counting.hear(Notice::File(judged(Name { event, node: Some(node) }, target)?));
            }
            Some(Message::Copy(Copy::Skipped { path, lack, reason })) => {
                let what = Became::Lacking(lack, reason.to_string());
                counting.hear(Notice::File(FileEvent::of(path.to_string(), what).far()));
            }
            Some(Message::Copy(Copy::Total { .. })) => return Ok(true),
            None => return Ok(false),
            Some(Message::Alive | Message::Copy(Copy::Accept(_))) => {}
            Some(Message::Failed(refusal) | Message::Refuse(refusal)) => {
                return Err(CopyError::FarEnd(refusal));
            }
            Some(other) => return Err(ControlError::out_of_place(&other).into()),
        }
    }
}

/// How long it waits at once for who is behind.
const BREATH: Nanos = Nanos(5_000_000);
