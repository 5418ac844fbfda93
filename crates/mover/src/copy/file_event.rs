//! What became of one name, for a person, a manifest or a program.

use std::io;

use farlink_wire::entry::Digest;
use farlink_wire::message::copy::{Copy, Place};
use farlink_wire::path::bytes_of;

use super::source::SourceError;
use crate::chain;

/// What became of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEvent {
    /// The name, beneath the destination, as [`farlink_wire::path::readable`] writes it.
    pub path: String,
    /// Bytes of content.
    pub bytes: u64,
    /// The standard BLAKE3 digest, where content was hashed.
    pub digest: Option<Digest>,
    /// What became of it.
    pub what: Became,
}

/// What became of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Became {
    /// It was copied.
    Copied,
    /// It was there already, with the same content.
    Same,
    /// It is nothing that can be copied, such as a FIFO, or an earlier source has its name.
    Skipped(String),
    /// It was not copied, though it should have been.
    Failed(String),
    /// Likewise: it was begun, and could not be read to its end as it was then. Another time it may.
    Abandoned(String),
    /// A directory that was said to be copied is there, without the mode or the time that it should have.
    Unfinished(String),
}

impl FileEvent {
    /// What it is to a client that receives: of a name that is not copied; what is copied it sees itself.
    #[must_use]
    pub fn message(&self) -> Option<Copy> {
        let (reason, failed, again) = match &self.what {
            Became::Copied | Became::Same => return None,
            Became::Skipped(reason) => (reason, false, false),
            Became::Failed(reason) | Became::Unfinished(reason) => (reason, true, false),
            Became::Abandoned(reason) => (reason, true, true),
        };
        let path = Place::new(bytes_of(&self.path)).ok()?;
        Some(Copy::Skipped { path, reason: reason.clone().into(), failed, again })
    }
}

impl Became {
    /// What a file became that the far end says it does not send.
    #[must_use]
    pub fn not_sent(reason: String, failed: bool, again: bool) -> Self {
        match (failed, again) {
            (false, _) => Self::Skipped(reason),
            (true, false) => Self::Failed(reason),
            (true, true) => Self::Abandoned(reason),
        }
    }

    /// What a file became that has its name, and of which something came, where it is new.
    #[must_use]
    pub const fn stored(is_new: bool) -> Self {
        if is_new { Self::Copied } else { Self::Same }
    }

    /// What a file became that could not be read: what is not there, or may not be read, will not be another time.
    #[must_use]
    pub fn unread(error: &SourceError) -> Self {
        match error.source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Self::Failed(chain(error)),
            _ => Self::Abandoned(chain(error)),
        }
    }

    /// What a file became that is no longer what the walk found.
    #[must_use]
    pub fn changed() -> Self {
        Self::Abandoned("it was changed while it was read".to_owned())
    }

    /// Why it was not copied, though it should have been.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(reason) | Self::Abandoned(reason) | Self::Unfinished(reason) => Some(reason),
            Self::Copied | Self::Same | Self::Skipped(_) => None,
        }
    }
}
