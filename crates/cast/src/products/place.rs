//! A file beneath a directory that is watched.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farlink_host::beneath::{Directory, Links};

/// A file beneath the directory that is watched.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) top: Arc<Top>,
    pub(super) path: Arc<Path>,
}

/// The directory itself, by the one that it is in and its name there. Held open it could not be seen to be removed: inotify(7) tells of that
/// when nobody has it any more.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) within: Directory,
    pub(super) name: PathBuf,
}

impl Place {
    /// Opens the regular file. The way there is looked for each time: a directory that was renamed, and made again, is another one.
    pub(super) fn open(&self) -> io::Result<File> {
        let name = self.path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let directory = self.top.name.join(self.path.parent().unwrap_or(Path::new("")));
        let directory = self.top.within.open_dir(directory.as_os_str().as_bytes(), Links::Refuse)?;
        directory.open_read(name.as_bytes())
    }
}
