//! What a receiver could not do.

use std::io;

use farlink_host::beneath::{is_link_in_the_way, leads_out};
use farlink_host::shell::quoted;
use farlink_wire::entry::Entry;
use farlink_wire::journal::JournalError;
use farlink_wire::message::copy::Lack;

/// Why something is not at its place.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The system refused.
    #[error("{attempt} {path}")]
    System {
        /// What was tried.
        attempt: &'static str,
        /// With what, readable.
        path: String,
        /// As the kernel said it.
        source: io::Error,
    },
    /// All of it is there, under its final name, without something that belongs to it.
    #[error("{path} is there, but its {what} cannot be set")]
    Refused {
        /// What is not as it is at the source.
        what: &'static str,
        /// What is there, readable.
        path: String,
        /// As the kernel said it.
        source: io::Error,
    },
    /// Two copies of the same at once.
    #[error("another farlink is writing {path}: wait for it to end, or end it")]
    Busy {
        /// What both write.
        path: String,
    },
    /// Somebody took away the name of what was written.
    #[error("the partial file of {path} was removed or replaced while it was written: copy it again")]
    Replaced {
        /// The final name.
        path: String,
    },
    /// A file or link would have to take the place of a directory.
    #[error("a directory is in the way at {path}: move it away, or choose another name")]
    DirectoryInTheWay {
        /// Where.
        path: String,
    },
    /// The destination has another path now, or none.
    #[error(
        "{path} leads to another directory than when the copy began, or to none: what was copied is in the one that it led to"
    )]
    Moved {
        /// The path that it had.
        path: String,
    },
    /// Something else is where a directory must be.
    #[error("a file is in the way to {path}: move it away, or choose another name")]
    FileInTheWay {
        /// What should be a directory, or in one.
        path: String,
    },
    /// The destination itself cannot be the directory that it has to be: nothing can be copied to it.
    #[error(transparent)]
    Destination(Box<Self>),
    /// A link in the place of what it leads to, which nothing else has.
    #[error(
        "{path} is what the symbolic link leads to that would take its place: move it away, or choose another name"
    )]
    LedTo {
        /// What would be gone.
        path: String,
    },
    /// A link that is not followed.
    #[error("a symbolic link is in the way to {path}: links in the destination are not followed")]
    LinkInTheWay {
        /// What would be reached through it.
        path: String,
    },
    /// A name that leads elsewhere.
    #[error("{path} leads out of the directory that may be written")]
    Outside {
        /// As given.
        path: String,
    },
    /// More than the last component of the destination is missing.
    #[error("the directory {directory} is not there: make it with `mkdir -p {}`", quoted(directory))]
    NoParent {
        /// What is missing.
        directory: String,
    },
    /// The far end sends what it was not asked for.
    #[error("the far end sent {path}, which was not asked for")]
    Unexpected {
        /// Its name.
        path: String,
    },
    /// More than any tree has.
    #[error("more than {most} directories in one transfer: copy them in parts")]
    TooManyDirectories {
        /// How many may be.
        most: usize,
    },
    /// Something that comes in blocks and is no file of blocks.
    #[error("receive {path} in blocks")]
    Blocks {
        /// Its name.
        path: String,
        /// What is wrong with it.
        source: JournalError,
    },
    /// Others have the memory that it would take.
    #[error(
        "there is no memory left for {path} where it goes: copy it later, or give `farlink serve` there more (--memory)"
    )]
    Memory {
        /// Its name.
        path: String,
    },
    /// What is on the disk is not what was written there.
    #[error(
        "{path} reads back from the disk otherwise than it was written, first in block {index}: look at the disk, and run the same \
             command again, which sends again what is damaged"
    )]
    Disk {
        /// The final name.
        path: String,
        /// The first block that differs.
        index: u32,
    },
    /// A partial file that somebody else has cut or lengthened.
    #[error("the partial file of {path} has {found} bytes instead of {size}: copy it again")]
    Size {
        /// The final name.
        path: String,
        /// Bytes of it.
        found: u64,
        /// Bytes that it should have.
        size: u64,
    },
}

impl TargetError {
    /// Whether no other entry can be written either, or is to be.
    pub(in crate::copy) const fn is_final(&self) -> bool {
        matches!(self, Self::Unexpected { .. } | Self::Destination(_))
    }

    /// In what way a name is not there that was to be stored.
    pub(in crate::copy) const fn lack(&self) -> Lack {
        match self {
            Self::Refused { .. } => Lack::Bare,
            _ => Lack::Failed,
        }
    }

    /// A device that keeps nothing took nothing.
    pub(in crate::copy) fn sink(source: io::Error) -> Self {
        Self::of("write to", "the device", source)
    }

    /// Others have the memory that `entry` would take.
    pub(in crate::copy) fn memory(entry: &Entry) -> Self {
        Self::Memory { path: entry.path.to_string() }
    }

    /// What `source` means for `path`.
    pub(super) fn of(attempt: &'static str, path: impl Into<String>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::IsADirectory => Self::DirectoryInTheWay { path },
            io::ErrorKind::NotADirectory => Self::FileInTheWay { path },
            _ if is_link_in_the_way(&source) => Self::LinkInTheWay { path },
            _ if leads_out(&source) => Self::Outside { path },
            _ => Self::System { attempt, path, source },
        }
    }
}
