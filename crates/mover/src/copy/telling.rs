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
use farlink_wire::entry::{Entry, Kind, Metadata};
use farlink_wire::message::Message;
use farlink_wire::message::copy::{Copy, Lack, Node, Place};
use farlink_wire::path::bytes_of;
use farlink_wire::quantity::{Bytes, Nanos};

use super::CopyError;
use super::file_event::{Became, FileEvent};
use super::filter::Filter;
use super::outgoing::size;
use super::source::{Found, Handle, SourcePath, Walk};
use super::supply;
use crate::chain;
use crate::control::Control;

/// A name, and what becomes of it where that is copied which is found.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) event: FileEvent,
    /// What it stands for, of one that would be copied.
    pub(super) node: Option<Node>,
}

/// What is walked through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tour<'a> {
    pub(super) sources: &'a [(Arc<Directory>, SourcePath)],
    pub(super) filter: &'a Filter,
    pub(super) length: Option<Bytes>,
    /// Whether what is there already is left out: of that nothing is read.
    pub(super) update: bool,
}

/// The server's part: says what it would send, until one of `stops` is raised. A walk may find nothing for long: that this end lives is said
/// meanwhile.
pub(super) fn tell(
    control: &mut Control,
    tour: Tour<'_>,
    patience: Nanos,
    stops: &[&Wake],
) -> Result<(), CopyError> {
    walking(tour, |said| hand_on(control, said, patience, stops))
}

/// Has `take` take what a walk says, which goes on beside it: at the end of one that came to its end, `None`.
pub(super) fn walking<T>(tour: Tour<'_>, take: impl FnOnce(&Receiver<Option<Name>>) -> T) -> T {
    let over = AtomicBool::new(false);
    let (say, said) = sync_channel(AHEAD);
    thread::scope(|scope| {
        let over = &over;
        let walker = move || {
            let is_over = || over.load(Ordering::Relaxed);
            let whole = || walk(tour, &is_over, |name| say.send(Some(name)).is_ok());
            // That it ended is said: a walk that panicked did not come to its end.
            if catch_unwind(AssertUnwindSafe(whole)).is_ok() {
                let _ = say.send(None);
            }
        };
        scope.spawn(walker);
        let taken = take(&said);
        over.store(true, Ordering::Relaxed);
        drop(said);
        taken
    })
}

/// Says what the walk says, to its end.
fn hand_on(
    control: &mut Control,
    said: &Receiver<Option<Name>>,
    patience: Nanos,
    stops: &[&Wake],
) -> Result<(), CopyError> {
    let (mut entries, mut total) = (0, 0);
    let mut next_sign = monotonic().after(SIGN);
    loop {
        let message = match said.recv_timeout(Duration::from_nanos(SIGN.0)) {
            Ok(Some(name)) => {
                let Some(message) = name.message() else { continue };
                if matches!(message, Copy::Foretold { .. }) {
                    entries += 1;
                    total += name.event.bytes;
                }
                Message::Copy(message)
            }
            Err(RecvTimeoutError::Timeout) => Message::Alive,
            Ok(None) => break,
            Err(RecvTimeoutError::Disconnected) => return Err(CopyError::Panicked),
        };
        if !control.send_patiently(&message, patience, stops)? {
            return Ok(());
        }
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
    if control.send_patiently(&Message::Copy(total), patience, stops)? {
        // Whoever is done hangs up, and what has not left by then is lost.
        control.flush_patiently(0, patience, stops)?;
    }
    Ok(())
}

/// Hands what would become of each name to `tell`, until that says that it is enough, or `over` that nobody listens.
pub(super) fn walk(tour: Tour<'_>, over: &dyn Fn() -> bool, mut tell: impl FnMut(Name) -> bool) {
    let Tour { sources, filter, length, update } = tour;
    if let Some(Bytes(length)) = length {
        sources.iter().all(|(base, source)| {
            let name = match supply::endless(base, source, length) {
                Ok((entry, _)) => Name::of(&entry),
                Err(reason) => Name::lacking(source.to_string(), Lack::Failed, reason),
            };
            tell(name) && !over()
        });
        return;
    }
    Walk::new(sources, filter).until(over).all(|found| {
        tell(match found {
            Found::Entry(entry, handle) => match (!update).then(|| unread(&entry, &handle)).flatten() {
                None => Name::of(&entry),
                Some(what) => Name::that_becomes(entry.path.to_string(), what),
            },
            Found::Skipped { path, what } => Name::lacking(path.to_string(), Lack::Skipped, what.to_string()),
            Found::LeftOut { path, why } => Name::lacking(path.to_string(), why.lack(), why.to_string()),
            Found::Failed { path, lack, error } => Name::lacking(path.to_string(), lack, chain(&error)),
        })
    });
}

/// What becomes of a file that cannot be read, as far as opening it tells.
fn unread(entry: &Entry, handle: &Handle) -> Option<Became> {
    let Kind::File { size } = entry.kind else { return None };
    match handle.open() {
        Err(error) => Some(Became::unread(&error)),
        Ok(source) => {
            let has_content = size == 0 && matches!(source.read_at(0, &mut [0]), Ok(read) if read > 0);
            has_content.then(Became::of_no_size)
        }
    }
}

impl Name {
    /// One that would be copied.
    fn of(entry: &Entry) -> Self {
        let Metadata { mtime_s, mtime_ns, .. } = entry.metadata;
        let node = match &entry.kind {
            Kind::File { .. } => Some(Node::File(mtime_s, mtime_ns)),
            Kind::Directory => Some(Node::Directory(mtime_s, mtime_ns)),
            Kind::Symlink { target } => Place::new(target.as_slice()).ok().map(Node::Symlink),
        };
        let (path, bytes) = (entry.path.to_string(), size(entry));
        Self { event: FileEvent { bytes, ..FileEvent::of(path, Became::Copied) }, node }
    }

    fn lacking(path: String, lack: Lack, reason: String) -> Self {
        Self::that_becomes(path, Became::Lacking(lack, reason))
    }

    fn that_becomes(path: String, what: Became) -> Self {
        Self { event: FileEvent::of(path, what), node: None }
    }

    /// As it is said to the other end; `None` of what has no name that can be.
    pub(super) fn message(&self) -> Option<Copy> {
        let Some(node) = self.node.clone() else { return self.event.message() };
        let path = Place::new(bytes_of(&self.event.path)).ok()?;
        Some(Copy::Foretold { path, bytes: self.event.bytes, node })
    }
}

/// How often it says that it is alive, and looks whether it is to end.
pub(super) const SIGN: Nanos = Nanos(200_000_000);

/// Names that a walk is ahead of what is said.
const AHEAD: usize = 1000;
