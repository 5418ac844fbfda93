//! Where a directory is that is held open for as long as a feed goes on: somebody may move it, or put another in its place.

use std::fmt;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A path, and what it led to.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    path: PathBuf,
    /// `None` where that cannot be told.
    identity: Option<(u64, u64)>,
}

impl Whereabouts {
    /// Those of the directory that `path` leads to now.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: fs::metadata(path).ok().as_ref().map(identity) }
    }

    /// Whether the path leads to it still, as far as can be told.
    pub(super) fn is_there(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(found) => self.identity.is_none_or(|before| before == identity(&found)),
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
    }
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

/// What tells a directory from another of its name.
fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}
