//! Where a directory is that is held open, or watched, for long: somebody may move it, or put another in its place.

use std::fmt;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A path, and what it led to.
#[derive(Debug)]
pub struct Whereabouts {
    path: PathBuf,
    identity: (u64, u64),
}

impl Whereabouts {
    /// Those of the directory that `path` leads to now.
    ///
    /// # Errors
    /// As stat(2).
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(&fs::metadata(path)?) })
    }

    /// Whether the path leads to it still, as far as can be told.
    #[must_use]
    pub fn is_there(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(found) => identity(&found) == self.identity,
            Err(error) => !is_gone(&error),
        }
    }
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

/// Whether a path leads nowhere, or no longer through directories.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// What tells a directory from another of its name.
fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}
