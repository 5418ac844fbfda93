//! What would become of names, as the end tells it that would send them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use farlink_host::beneath::Directory;
use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_wire::message::Message;
use farlink_wire::message::copy::{Copy, Lack, Place};
use farlink_wire::path::bytes_of;
use farlink_wire::quantity::{Bytes, Nanos};

use super::CopyError;
use super::file_event::{Became, FileEvent};
use super::filter::Filter;
use super::outgoing::size;
use super::source::{Found, SourcePath, Walk};
use super::supply;
use crate::chain;
use crate::control::Control;

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
pub(super) fn walk(
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
                Err(reason) => (source.to_string(), 0, Became::Lacking(Lack::Failed, reason)),
            };
            tell(FileEvent { path, bytes, digest: None, what }) && !over()
        });
        return;
    }
    Walk::new(sources, filter).until(over).all(|found| {
        let (path, bytes, what) = match found {
            Found::Entry(entry, _) => (entry.path.to_string(), size(&entry), Became::Copied),
            Found::Skipped { path, what } => {
                (path.to_string(), 0, Became::Lacking(Lack::Skipped, what.to_string()))
            }
            Found::LeftOut { path, why } => {
                (path.to_string(), 0, Became::Lacking(why.lack(), why.to_string()))
            }
            Found::Failed { path, lack, error } => {
                (path.to_string(), 0, Became::Lacking(lack, chain(&error)))
            }
        };
        tell(FileEvent { path, bytes, digest: None, what })
    });
}

/// How often it says that it is alive, and looks whether it is to end.
pub(super) const SIGN: Nanos = Nanos(200_000_000);

/// Names that a walk is ahead of what is said.
const AHEAD: usize = 1000;
