//! What a copy would copy, and nothing copied.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use farlink_host::beneath::Directory;
use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_wire::message::copy::{Copy, Place, Request};
use farlink_wire::message::{Message, Way};
use farlink_wire::path::bytes_of;
use farlink_wire::quantity::{Bytes, Nanos};

use super::CopyError;
use super::client::{Attempt, Prepared, random};
use super::file_event::{Became, FileEvent};
use super::filter::Filter;
use super::names::Names;
use super::outgoing::size;
use super::plan::{Listener, Notice, Plan};
use super::source::{Found, SourcePath, Walk};
use super::supply;
use crate::chain;
use crate::control::{Control, ControlError};

/// What a copy would come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// Names that would be copied.
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
    let mut counting = Counting { foretold: Foretold::default(), listener };
    let whole = ask(plan, stop, &mut counting)?;
    Ok(Foretold { interrupted: !whole, ..counting.foretold })
}

/// Who counts what is told, and has it told.
struct Counting<'a> {
    foretold: Foretold,
    listener: &'a mut dyn Listener,
}

impl Counting<'_> {
    fn hear(&mut self, notice: Notice) {
        if let Notice::File(event) = &notice {
            match event.what {
                Became::Copied | Became::Same => self.foretold.entries += 1,
                Became::Skipped(_) => {}
                Became::Failed(_) | Became::Abandoned(_) => self.foretold.failed += 1,
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
    // It is nobody's to take over.
    let names = Names { command: random()?, ..Names::default() };
    let attempt = Attempt { plan, rules: &plan.rules, names, resume: false, stop };
    if plan.way == Way::Forward {
        if let Prepared::Sources(sources, filter) = attempt.prepare()? {
            let over = || stop.is_raised();
            let mut waited = Ok(true);
            walk(&sources, &filter, plan.length, &over, |event| {
                counting.hear(Notice::File(event));
                waited = counting.wait(stop, &mut || Ok(()));
                matches!(waited, Ok(true))
            });
            waited?;
        }
        return Ok(!stop.is_raised());
    }
    let request = Request { dry_run: true, ..attempt.request(farlink_wire::message::Token(random()?)) };
    let opened = plan.far.open(&request, attempt.this_end(request.saved), stop, &mut |text| {
        counting.hear(Notice::Warning(text));
    })?;
    let Some(opened) = opened else { return Ok(false) };
    let (mut control, mut early) = (opened.control, opened.early);
    loop {
        // The far end waits as long as it hears from here.
        if !counting.wait(stop, &mut || control.send(&Message::Alive))? {
            return Ok(false);
        }
        let until = monotonic().after(plan.patience.get());
        let message = match early.pop_front() {
            Some(message) => Some(message),
            None => control.next(until, stop)?,
        };
        match message {
            Some(Message::Copy(Copy::Foretold { path, bytes })) => {
                let (path, what) = (path.to_string(), Became::Copied);
                counting.hear(Notice::File(FileEvent { path, bytes, digest: None, what }));
            }
            Some(Message::Copy(Copy::Skipped { path, reason, failed, again })) => {
                let what = Became::not_sent(reason.to_string(), failed, again);
                counting.hear(Notice::File(FileEvent {
                    path: path.to_string(),
                    bytes: 0,
                    digest: None,
                    what,
                }));
            }
            Some(Message::Copy(Copy::Total { .. })) => return Ok(true),
            None => return Ok(false),
            Some(Message::Alive | Message::Copy(Copy::Accept(_))) => {}
            Some(Message::Failed(reason) | Message::Refuse(reason)) => {
                return Err(CopyError::FarEnd { reason });
            }
            Some(other) => return Err(ControlError::out_of_place(&other).into()),
        }
    }
}

/// The server's part: says what it would send, until one of `stops` is raised. A walk may find nothing for long: that this end lives is said
/// meanwhile.
pub(super) fn tell(
    control: &mut Control,
    sources: &[(Arc<Directory>, SourcePath)],
    filter: &Filter,
    length: Option<Bytes>,
    patience: Nanos,
    stops: &[&Wake],
) -> Result<(), CopyError> {
    let over = AtomicBool::new(false);
    let (say, said) = sync_channel(AHEAD);
    thread::scope(|scope| {
        let over = &over;
        let walker = move || {
            let is_over = || over.load(Ordering::Relaxed);
            let whole = || walk(sources, filter, length, &is_over, |event| say.send(Some(event)).is_ok());
            // That it ended is said: a walk that panicked did not come to its end.
            if catch_unwind(AssertUnwindSafe(whole)).is_ok() {
                let _ = say.send(None);
            }
        };
        scope.spawn(walker);
        let told = hand_on(control, &said, patience, stops);
        over.store(true, Ordering::Relaxed);
        drop(said);
        told
    })
}

/// Says what the walk says, to its end.
fn hand_on(
    control: &mut Control,
    said: &Receiver<Option<FileEvent>>,
    patience: Nanos,
    stops: &[&Wake],
) -> Result<(), CopyError> {
    let (mut entries, mut total) = (0, 0);
    let mut next_sign = monotonic().after(SIGN);
    loop {
        let message = match said.recv_timeout(Duration::from_nanos(SIGN.0)) {
            Ok(Some(event)) => {
                let Ok(path) = Place::new(bytes_of(&event.path)) else { continue };
                Message::Copy(event.message().unwrap_or_else(|| {
                    entries += 1;
                    total += event.bytes;
                    Copy::Foretold { path, bytes: event.bytes }
                }))
            }
            Err(RecvTimeoutError::Timeout) => Message::Alive,
            Ok(None) => break,
            Err(RecvTimeoutError::Disconnected) => return Err(CopyError::Panicked),
        };
        control.send_patiently(&message, patience)?;
        if monotonic() >= next_sign {
            next_sign = monotonic().after(SIGN);
            // It has nothing to say, but may have left.
            while control.poll()?.is_some() {}
            if stops.iter().any(|stop| stop.is_raised()) {
                return Ok(());
            }
        }
    }
    let total = Copy::Total { files: 0, packs: 0, entries, bytes: total };
    control.send_patiently(&Message::Copy(total), patience)?;
    // Whoever is done hangs up, and what has not left by then is lost.
    Ok(control.flush_patiently(0, patience)?)
}

/// Hands what would become of each name to `tell`, until that says that it is enough, or `over` that nobody listens.
fn walk(
    sources: &[(Arc<Directory>, SourcePath)],
    filter: &Filter,
    length: Option<Bytes>,
    over: &dyn Fn() -> bool,
    mut tell: impl FnMut(FileEvent) -> bool,
) {
    if let Some(Bytes(length)) = length {
        sources.iter().all(|(base, source)| {
            let (path, bytes, what) = match supply::endless(base, source, length) {
                Ok((entry, _)) => (entry.path.to_string(), size(&entry), Became::Copied),
                Err(reason) => (source.to_string(), 0, Became::Failed(reason)),
            };
            tell(FileEvent { path, bytes, digest: None, what }) && !over()
        });
        return;
    }
    Walk::new(sources, filter).until(over).all(|found| {
        let (path, bytes, what) = match found {
            Found::Entry(entry, _) => (entry.path.to_string(), size(&entry), Became::Copied),
            Found::Skipped { path, what } => (path.to_string(), 0, Became::Skipped(what.to_string())),
            Found::LeftOut { path, why } => (path.to_string(), 0, Became::Skipped(why.to_owned())),
            Found::Failed { path, error } => (path.to_string(), 0, Became::Failed(chain(&error))),
        };
        tell(FileEvent { path, bytes, digest: None, what })
    });
}

/// How often it says that it is alive, and looks whether it is to end.
const SIGN: Nanos = Nanos(200_000_000);

/// How long it waits at once for who is behind.
const BREATH: Nanos = Nanos(5_000_000);

/// Names that a walk is ahead of what is said.
const AHEAD: usize = 1000;
