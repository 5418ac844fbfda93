//! What became of one name, for a person, a manifest or a program.

use farlink_wire::entry::Digest;

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
    /// It is nothing that can be copied, such as a FIFO.
    Skipped(String),
    /// It was not copied, though it should have been.
    Failed(String),
    /// Likewise: it was begun, and could not be read to its end as it was then. Another time it may.
    Abandoned(String),
}

impl Became {
    /// Why it was not copied, though it should have been.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(reason) | Self::Abandoned(reason) => Some(reason),
            Self::Copied | Self::Same | Self::Skipped(_) => None,
        }
    }
}
