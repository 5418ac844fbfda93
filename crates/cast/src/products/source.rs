//! Where the content of a product is read.

use std::fs::File;
use std::io;
use std::sync::Arc;

use farlink_host::beneath::{Status, is_out_of_descriptors, status_of};
use farlink_host::sparse;
use farlink_mover::chain;
use farlink_mover::copy::source::{Handle, SourceError, SourceFile};

use super::open_files::OpenFiles;
use super::place::Place;

/// Where the content of a product is.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// In a file that a walk found.
    Found(Handle),
    /// In one that appeared in a directory that is watched, as it was then.
    Appeared(Place, Status),
    /// In one of our own, which has what came through a pipe.
    Piped(Arc<File>),
    /// Nowhere, and why: what was to take the place of another product is no file any more, or a walk cannot look at it. Receivers learn by it that
    /// they lack it.
    Nothing(String),
}

/// A file that is open.
#[derive(Debug)]
pub(super) enum Opened {
    Found(SourceFile),
    /// And as it was when it appeared.
    Appeared(File, Status),
    Piped(Arc<File>),
}

/// Why content was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// There was no descriptor for its file: there may be one soon.
    NoDescriptor,
    /// It cannot be sent.
    Lost(String),
}

impl Unread {
    pub(super) fn of(attempt: &str, error: &io::Error) -> Self {
        if is_out_of_descriptors(error) {
            return Self::NoDescriptor;
        }
        Self::Lost(format!("{attempt}: {error}"))
    }
}

impl From<SourceError> for Unread {
    fn from(error: SourceError) -> Self {
        if is_out_of_descriptors(&error.source) {
            return Self::NoDescriptor;
        }
        Self::Lost(chain(&error))
    }
}

impl Source {
    fn open(&self) -> Result<Opened, Unread> {
        match self {
            Self::Found(handle) => Ok(Opened::Found(handle.open()?)),
            Self::Appeared(place, then) => {
                let opened = place.open().and_then(|file| Ok((status_of(&file)?, file)));
                let (now, file) = opened.map_err(|error| Unread::of("open it", &error))?;
                if !now.is_same_file(then) {
                    return Err(Unread::Lost("another file has its name now".to_owned()));
                }
                Ok(Opened::Appeared(file, *then))
            }
            Self::Piped(file) => Ok(Opened::Piped(Arc::clone(file))),
            Self::Nothing(reason) => Err(Unread::Lost(reason.clone())),
        }
    }

    /// Reads content of the product `number` from `at` on, until `out` is full.
    pub(super) fn read(
        &self,
        number: u32,
        open: &mut OpenFiles<Opened>,
        at: u64,
        out: &mut [u8],
    ) -> Result<(), Unread> {
        let read = match self.opened(number, open)? {
            Opened::Found(file) => file.read_at(at, out)?,
            Opened::Appeared(file, _) => read_at(file, at, out)?,
            Opened::Piped(file) => read_at(file, at, out)?,
        };
        if read < out.len() { Err(Unread::Lost(SHORTER.to_owned())) } else { Ok(()) }
    }

    /// Fails where the file is not as it was found: what was read of it may be of several versions, and its digest would fit that.
    pub(super) fn check(&self, number: u32, open: &mut OpenFiles<Opened>) -> Result<(), Unread> {
        let is_unchanged = match self.opened(number, open)? {
            Opened::Found(file) => file.is_unchanged(),
            Opened::Appeared(file, then) => status_of(file).map(|now| is_unchanged(&now, then)),
            Opened::Piped(_) => return Ok(()),
        };
        match is_unchanged {
            Ok(true) => Ok(()),
            Ok(false) => Err(Unread::Lost(CHANGED.to_owned())),
            Err(error) => Err(Unread::of("look at it", &error)),
        }
    }

    /// Fails where a file that said that it was empty is not: those of the kernel say so, whatever is in them.
    pub(super) fn check_empty(&self, number: u32, open: &mut OpenFiles<Opened>) -> Result<(), Unread> {
        let mut first = [0];
        let read = match self.opened(number, open)? {
            Opened::Found(file) => file.read_at(0, &mut first)?,
            Opened::Appeared(file, _) => read_at(file, 0, &mut first)?,
            Opened::Piped(_) => 0,
        };
        if read == 0 { Ok(()) } else { Err(Unread::Lost(SIZELESS.to_owned())) }
    }

    fn opened<'o>(&self, number: u32, open: &'o mut OpenFiles<Opened>) -> Result<&'o Opened, Unread> {
        open.get(number, || self.open())
    }
}

/// Whether a file that appeared is as it was `then`.
pub(super) fn is_unchanged(now: &Status, then: &Status) -> bool {
    let version = |status: &Status| (status.size, status.mtime_s, status.mtime_ns);
    now.is_same_file(then) && version(now) == version(then)
}

fn read_at(file: &File, at: u64, out: &mut [u8]) -> Result<usize, Unread> {
    sparse::read_at(file, at, out).map_err(|error| Unread::of("read it", &error))
}

const SHORTER: &str = "it became shorter while it was sent";
const SIZELESS: &str = "it does not tell its size: pipe it in as -";
const CHANGED: &str = "it was changed while it was sent";
