//! From the walk over the sources to what there is to send.

use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use farlink_host::beneath::Directory;
use farlink_wire::entry::{Entry, Kind, Metadata};
use farlink_wire::frame::{File, MOST_ENTRIES, MOST_FILE, MOST_PACKED, PACK_BYTES};
use farlink_wire::message::copy::Lack;
use farlink_wire::path::{RelativePath, bytes_of};
use farlink_wire::quantity::Bytes;

use super::CopyError;
use super::file_event::{Became, FileEvent};
use super::filter::Filter;
use super::outgoing::{Outgoing, Planned, holes, size};
use super::sending::Sending;
use super::source::{Found, Handle, SourceFile, SourcePath, Walk};
use super::worker::Shared;
use crate::chain;

/// Walks to the end, or until the transfer is over.
fn supply(sending: &Sending, sources: &[(Arc<Directory>, SourcePath)], filter: &Filter, length: Option<u64>) {
    let mut pack = Pack::of(FIRST_PACK);
    if let Some(length) = length {
        for (base, source) in sources {
            match endless(base, source, length) {
                Ok((entry, device)) => {
                    let frame = |file| File { file, entry, sparse: false };
                    sending.supply_file(|file| Outgoing::endless(frame(file), device));
                }
                Err(reason) => lack(sending, source.to_string(), Became::Lacking(Lack::Failed, reason)),
            }
        }
        sending.supply_ends();
        return;
    }
    let over = || sending.is_over();
    let mut walk = Walk::new(sources, filter).until(&over);
    while let Some(found) = walk.next() {
        // What is said of names that are not copied waits for who listens, too.
        if !matches!(found, Found::Entry(..)) && !sending.wait_for_room() {
            return;
        }
        match found {
            Found::Entry(entry, handle) => match entry.kind {
                Kind::File { size } if size > MOST_FILE => {
                    let reason = format!("larger than {}, the most that a file may have", Bytes(MOST_FILE));
                    lack(sending, entry.path.to_string(), Became::Lacking(Lack::Failed, reason));
                }
                Kind::File { size } if size > MOST_PACKED => {
                    // The directory that it is in has its mode by then.
                    if pack.has_directories && !pack.leave(sending) || !sending.wait_for_room() {
                        return;
                    }
                    supply_file(sending, entry, handle);
                }
                _ => {
                    if pack.is_full(&entry) && !pack.leave(sending) {
                        return;
                    }
                    pack.add(entry, handle);
                }
            },
            Found::Skipped { path, what } => {
                lack(sending, path.to_string(), Became::Lacking(Lack::Skipped, what.to_string()));
            }
            Found::LeftOut { path, why } => {
                lack(sending, path.to_string(), Became::Lacking(why.lack(), why.to_string()));
            }
            Found::Failed { path, lack: how, error } => {
                lack(sending, path.to_string(), Became::Lacking(how, chain(&error)));
            }
        }
        // Sources that are each beneath a directory of their own have that open until they have arrived.
        if walk.has_many_open() && !(pack.leave(sending) && sending.wait_until(|| !walk.has_many_open())) {
            return;
        }
    }
    if pack.leave(sending) {
        sending.supply_ends();
    }
}

/// A name that is not copied; a client that is not the sender is told.
pub(crate) fn lack(sending: &Sending, path: String, what: Became) {
    sending.supply_lacks(FileEvent::of(path, what));
}

pub(super) fn supply_file(sending: &Sending, entry: Entry, handle: Handle) {
    // What has holes is opened at once, to know where; all others when their first block is read.
    if !handle.is_sparse() {
        sending
            .supply_file(|file| Outgoing::new(File { file, entry, sparse: false }, handle, None, Vec::new()));
        return;
    }
    let opened = handle.open().map_err(|error| Became::unread(&error));
    let opened = opened.and_then(|source| {
        let holes = holes_of(&source, size(&entry))
            .map_err(|error| Became::Lacking(Lack::Failed, format!("find the holes: {error}")))?;
        // What was cut since the walk found it looks like a hole, and nothing of a hole is read that would tell.
        match source.is_unchanged() {
            Ok(true) => Ok((holes, source)),
            Ok(false) => Err(Became::changed()),
            Err(error) => Err(Became::Lacking(Lack::Abandoned, error.to_string())),
        }
    });
    match opened {
        Ok((holes, source)) => {
            let frame = |file| File { file, entry, sparse: true };
            sending.supply_file(|file| Outgoing::new(frame(file), handle, Some(source), holes));
        }
        Err(what) => lack(sending, entry.path.to_string(), what),
    }
}

/// The first `length` bytes of the device that `source` names.
pub(super) fn endless(
    base: &Directory,
    source: &SourcePath,
    length: u64,
) -> Result<(Entry, fs::File), String> {
    let path = bytes_of(&source.to_string());
    let device = base.open_endless(&path).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => {
            "it is not /dev/zero, /dev/random or /dev/urandom: leave out --length".to_owned()
        }
        _ => error.to_string(),
    })?;
    let name = source.base_name().ok_or("it has no name")?;
    let path = RelativePath::new(name).map_err(|error| error.to_string())?;
    let metadata = Metadata { mode: 0o644, mtime_s: 0, mtime_ns: 0 };
    Ok((Entry { path, kind: Kind::File { size: length.max(1) }, metadata }, device))
}

/// Blocks of a file of `size` bytes that are holes. Its extents may be very many, and are not kept.
fn holes_of(source: &SourceFile, size: u64) -> std::io::Result<Vec<(u32, u32)>> {
    let mut failure = None;
    let data = source.data_extents().map_while(|extent| extent.map_err(|error| failure = Some(error)).ok());
    let holes = holes(size, data);
    failure.map_or(Ok(holes), Err)
}

/// A pack that is being filled.
#[derive(Debug)]
struct Pack {
    entries: Vec<(Entry, Option<Handle>)>,
    bytes: u64,
    has_directories: bool,
    /// Bytes that it is filled to, and how many left before it.
    most: u64,
    before: u32,
}

impl Pack {
    /// The first, filled to `most` bytes.
    fn of(most: u64) -> Self {
        Self { entries: Vec::new(), bytes: 0, has_directories: false, most, before: 0 }
    }

    /// Whether `entry` belongs into the next.
    fn is_full(&self, entry: &Entry) -> bool {
        self.entries.len() == MOST_ENTRIES
            || !self.entries.is_empty() && self.bytes + weight(entry) > self.most
    }

    fn add(&mut self, entry: Entry, handle: Handle) {
        self.bytes += weight(&entry);
        self.has_directories |= entry.kind == Kind::Directory;
        let handle = matches!(entry.kind, Kind::File { .. }).then_some(handle);
        self.entries.push((entry, handle));
    }

    /// Hands over what is in it; false where the transfer is over.
    fn leave(&mut self, sending: &Sending) -> bool {
        let before = self.before + u32::from(!self.entries.is_empty());
        let most = if before < FIRST_PACKS { FIRST_PACK } else { PACK_BYTES as u64 };
        let Self { entries, .. } = std::mem::replace(self, Self { before, ..Self::of(most) });
        if !sending.wait_for_room() {
            return false;
        }
        if !entries.is_empty() {
            sending.supply_pack(Planned::new(entries), sending.manner.resume);
        }
        true
    }
}

/// Bytes that the first packs are filled to, and how many those are: a connection sends as much in its first round trip, and there may be as many
/// connections ([`farlink_flow::streams`]). A few small files so leave by all of them at once, and not by one in three round trips.
const FIRST_PACK: u64 = 64 << 10;
const FIRST_PACKS: u32 = 32;

/// Bytes of `entry` in a pack: 27 of numbers, its digest, its name, its target, its content.
fn weight(entry: &Entry) -> u64 {
    let target = match &entry.kind {
        Kind::Symlink { target } => target.len() as u64,
        _ => 0,
    };
    27 + 32 + entry.path.as_bytes().len() as u64 + target + size(entry)
}

/// The walk in a thread of its own, over each source beneath its base.
pub(crate) fn start(
    sending: &Arc<Sending>,
    sources: Vec<(Arc<Directory>, SourcePath)>,
    filter: Filter,
    length: Option<Bytes>,
) -> std::io::Result<()> {
    let sending = Arc::clone(sending);
    let walker = std::thread::Builder::new().name("farlink-walk".to_owned());
    let whole = move || {
        let _counted = sending.timing.count();
        let length = length.map(|length| length.0);
        // Who waits for the end of a walk that panicked would wait for ever.
        let walked = catch_unwind(AssertUnwindSafe(|| supply(&sending, &sources, &filter, length)));
        if walked.is_err() {
            sending.abort(Some(CopyError::Panicked));
        }
    };
    walker.spawn(whole).map(drop)
}
