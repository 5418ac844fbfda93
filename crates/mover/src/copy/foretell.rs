//! What a copy would copy, and nothing copied.

use std::sync::Arc;

use farlink_host::beneath::Directory;
use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
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
use super::plan::{Notice, Plan};
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

/// Each name that `plan` would copy, and each that it would not for a reason; `notice` is told one at a time, until `stop` is raised.
///
/// # Errors
/// Where the far end cannot be asked.
pub fn foretell(plan: &Plan, stop: &Wake, notice: &mut dyn FnMut(Notice)) -> Result<Foretold, CopyError> {
    let mut foretold = Foretold::default();
    let mut count = |told: Notice| {
        if let Notice::File(event) = &told {
            match event.what {
                Became::Copied | Became::Same => foretold.entries += 1,
                Became::Skipped(_) => {}
                Became::Failed(_) | Became::Abandoned(_) => foretold.failed += 1,
            }
        }
        notice(told);
    };
    let whole = ask(plan, stop, &mut count)?;
    foretold.interrupted = !whole;
    Ok(foretold)
}

/// The names, as above; false where it was ended before the last.
fn ask(plan: &Plan, stop: &Wake, tell: &mut dyn FnMut(Notice)) -> Result<bool, CopyError> {
    // It is nobody's to take over.
    let names = Names { command: random()?, ..Names::default() };
    let attempt = Attempt { plan, rules: &plan.rules, names, resume: false, stop };
    if plan.way == Way::Forward {
        if let Prepared::Sources(sources, filter) = attempt.prepare()? {
            return Ok(walk(&sources, &filter, plan.length, |event| {
                tell(Notice::File(event));
                !stop.is_raised()
            }));
        }
        return Ok(!stop.is_raised());
    }
    let request = Request { dry_run: true, ..attempt.request(farlink_wire::message::Token(random()?)) };
    let opened =
        plan.far.open(&request, attempt.this_end(), stop, &mut |text| tell(Notice::Warning(text)))?;
    let Some(opened) = opened else { return Ok(false) };
    let mut control = opened.control;
    loop {
        let until = monotonic().after(plan.patience.get());
        match control.next(until, stop)? {
            Some(Message::Copy(Copy::Foretold { path, bytes })) => {
                let (path, what) = (path.to_string(), Became::Copied);
                tell(Notice::File(FileEvent { path, bytes, digest: None, what }));
            }
            Some(Message::Copy(Copy::Skipped { path, reason, failed, again })) => {
                let what = Became::not_sent(reason.to_string(), failed, again);
                tell(Notice::File(FileEvent { path: path.to_string(), bytes: 0, digest: None, what }));
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

/// The server's part: says what it would send.
pub(super) fn tell(
    control: &mut Control,
    sources: &[(Arc<Directory>, SourcePath)],
    filter: &Filter,
    length: Option<Bytes>,
    patience: Nanos,
) -> Result<(), CopyError> {
    let mut failure = None;
    let (mut entries, mut total) = (0, 0);
    walk(sources, filter, length, |event| {
        let Ok(path) = Place::new(bytes_of(&event.path)) else { return true };
        let message = event.message().unwrap_or_else(|| {
            entries += 1;
            total += event.bytes;
            Copy::Foretold { path, bytes: event.bytes }
        });
        failure = control.send_patiently(&Message::Copy(message), patience).err();
        failure.is_none()
    });
    if let Some(error) = failure {
        return Err(error.into());
    }
    control.send_patiently(
        &Message::Copy(Copy::Total { files: 0, packs: 0, entries, bytes: total }),
        patience,
    )?;
    Ok(())
}

/// Hands what would become of each name to `tell`, until it says that it is enough; false where it did.
fn walk(
    sources: &[(Arc<Directory>, SourcePath)],
    filter: &Filter,
    length: Option<Bytes>,
    mut tell: impl FnMut(FileEvent) -> bool,
) -> bool {
    if let Some(Bytes(length)) = length {
        return sources.iter().all(|(base, source)| {
            let (path, bytes, what) = match supply::endless(base, source, length) {
                Ok((entry, _)) => (entry.path.to_string(), size(&entry), Became::Copied),
                Err(reason) => (source.to_string(), 0, Became::Failed(reason)),
            };
            tell(FileEvent { path, bytes, digest: None, what })
        });
    }
    Walk::new(sources, filter).all(|found| {
        let (path, bytes, what) = match found {
            Found::Entry(entry, _) => (entry.path.to_string(), size(&entry), Became::Copied),
            Found::Skipped { path, what } => (path.to_string(), 0, Became::Skipped(what.to_string())),
            Found::LeftOut { path, why } => (path.to_string(), 0, Became::Skipped(why.to_owned())),
            Found::Failed { path, error } => (path.to_string(), 0, Became::Failed(chain(&error))),
        };
        tell(FileEvent { path, bytes, digest: None, what })
    })
}
