//! What became of one name, for a person, a manifest or a program.

use std::io;

use farlink_wire::entry::Digest;
use farlink_wire::message::copy::{Copy, Lack, Place, Verdict};
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
    /// Whether the reason, where it lacks, is of the other end.
    pub is_far: bool,
}

/// What became of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Became {
    /// It was copied.
    Copied,
    /// It was there already, with the same content or, where that is not looked at, as old and as long.
    Same,
    /// What was there already is newer, and stays.
    Newer,
    /// It is not there as it is at the source: in what way, and why.
    Lacking(Lack, String),
}

impl FileEvent {
    /// Of a name without content, as far as it is known.
    #[must_use]
    pub const fn of(path: String, what: Became) -> Self {
        Self { path, bytes: 0, digest: None, what, is_far: false }
    }

    /// The same, for a reason of the other end.
    #[must_use]
    pub fn far(self) -> Self {
        Self { is_far: true, ..self }
    }

    /// What it is to a client that receives: of a name that is not copied; what is copied it sees itself.
    #[must_use]
    pub fn message(&self) -> Option<Copy> {
        let Became::Lacking(lack, reason) = &self.what else { return None };
        let path = Place::new(bytes_of(&self.path)).ok()?;
        Some(Copy::Skipped { path, lack: *lack, reason: reason.clone().into() })
    }
}

impl Became {
    /// What becomes of a file of which the receiver has judged so.
    #[must_use]
    pub const fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Wanted => Self::Copied,
            Verdict::Current => Self::Same,
            Verdict::Newer => Self::Newer,
        }
    }

    /// What a file became that the receiver refused with this `lack`, where that says that another stays.
    #[must_use]
    pub const fn standing(lack: Lack) -> Option<Self> {
        match lack {
            Lack::Current => Some(Self::Same),
            Lack::Newer => Some(Self::Newer),
            _ => None,
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
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                Self::Lacking(Lack::Failed, chain(error))
            }
            _ => Self::Lacking(Lack::Abandoned, chain(error)),
        }
    }

    /// What a file became that is no longer what the walk found.
    #[must_use]
    pub fn changed() -> Self {
        Self::Lacking(Lack::Abandoned, "it was changed while it was read".to_owned())
    }

    /// What a file becomes that has content and no size.
    #[must_use]
    pub fn of_no_size() -> Self {
        let reason = "it has content, and its size is 0, as of files in /proc: copy what cat says of it";
        Self::Lacking(Lack::Failed, reason.to_owned())
    }

    /// Why it was not copied, though it should have been.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Copied | Self::Same | Self::Newer | Self::Lacking(Lack::Skipped | Lack::Later, _) => None,
            Self::Lacking(_, reason) => Some(reason),
        }
    }
}
