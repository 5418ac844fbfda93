//! Where the blocks of a file go: to a partial file, to nothing, or nowhere as long as the file that is there is the same.

use std::fs::File;
use std::sync::{Mutex, OnceLock, PoisonError};

use farlink_host::sparse;
use farlink_wire::entry::{Digest, Entry};

use super::target::{Held, Partial, Target, TargetError};

/// Where the blocks of a file go.
#[derive(Debug)]
pub(super) enum Store {
    /// A file that gets its name when it is whole.
    Partial(Box<Partial>),
    /// The file that has the name already; a partial file with its content takes its place as soon as a block differs.
    Held(Box<Standing>),
    /// A device that keeps nothing.
    Sink(File),
}

/// A file that stands there already, until something of it differs.
#[derive(Debug)]
pub(super) struct Standing {
    held: Held,
    entry: Entry,
    block_bytes: u64,
    sparse: bool,
    instead: OnceLock<Partial>,
    /// Held while the partial file is made.
    making: Mutex<()>,
}

impl Store {
    /// For `held`, which may be the file that comes.
    pub(super) fn standing(held: Held, entry: Entry, block_bytes: u64, sparse: bool) -> Self {
        let (instead, making) = (OnceLock::new(), Mutex::default());
        Self::Held(Box::new(Standing { held, entry, block_bytes, sparse, instead, making }))
    }

    pub(super) fn proven(&self, progress: &mut dyn FnMut(u64)) -> Result<Vec<(u32, Digest)>, TargetError> {
        match self {
            Self::Partial(partial) => partial.proven(progress),
            Self::Held(standing) => standing.held.proven(progress),
            Self::Sink(_) => Ok(Vec::new()),
        }
    }

    pub(super) fn write_at(&self, target: &Target, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        match self {
            Self::Partial(partial) => partial.write_at(offset, bytes),
            Self::Held(standing) => standing.instead(target)?.write_at(offset, bytes),
            Self::Sink(device) => sparse::write_at(device, 0, bytes).map_err(TargetError::sink),
        }
    }

    pub(super) fn leave_out(&self, target: &Target, first: u32, count: u32) -> Result<(), TargetError> {
        match self {
            Self::Partial(partial) => partial.leave_out(first, count),
            Self::Held(standing) => standing.instead(target)?.leave_out(first, count),
            Self::Sink(_) => Ok(()),
        }
    }

    pub(super) fn note(&self, index: u32, digest: Digest) -> Result<(), TargetError> {
        match self {
            Self::Partial(partial) => partial.note(index, digest),
            Self::Held(standing) => {
                standing.instead.get().map_or(Ok(()), |partial| partial.note(index, digest))
            }
            Self::Sink(_) => Ok(()),
        }
    }

    pub(super) fn finish(&self, target: &Target, entry: &Entry) -> Result<(), TargetError> {
        match self {
            Self::Partial(partial) => partial.finish(entry),
            Self::Held(standing) => match standing.instead.get() {
                Some(partial) => partial.finish(entry),
                None => target.keep(&standing.held, entry),
            },
            Self::Sink(_) => Ok(()),
        }
    }

    pub(super) fn abandon(&self) {
        match self {
            Self::Partial(partial) => partial.abandon(),
            Self::Held(standing) => {
                if let Some(partial) = standing.instead.get() {
                    partial.abandon();
                }
            }
            Self::Sink(_) => {}
        }
    }
}

impl Standing {
    /// The partial file in place of what stands there, with its content: made when it is first needed.
    fn instead(&self, target: &Target) -> Result<&Partial, TargetError> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(partial) = self.instead.get() {
            return Ok(partial);
        }
        let partial = target.partial(&self.entry, self.block_bytes, self.sparse)?;
        if let Err(error) = self.held.content(&mut |offset, piece| partial.write_at(offset, piece)) {
            partial.abandon();
            return Err(error);
        }
        Ok(self.instead.get_or_init(|| partial))
    }
}
