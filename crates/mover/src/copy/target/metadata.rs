//! Mode and time, which are given to what is whole: a file system that keeps neither is no reason to lose the content.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;

use farlink_host::beneath::{is_not_kept, set_mtime, status_of};
use farlink_wire::entry::Metadata;

use super::{Target, TargetError};

/// What the file system does not let be set.
#[derive(Debug)]
pub(super) struct Refused {
    what: &'static str,
    source: io::Error,
}

impl Refused {
    /// What was to be set was refused, and is not so anyway: otherwise `Ok(None)`.
    ///
    /// # Errors
    /// What is no refusal, but a failure.
    pub(super) fn of(what: &'static str, set: io::Result<()>, is_so: bool) -> io::Result<Option<Self>> {
        match set {
            Err(source) if is_not_kept(&source) => Ok((!is_so).then_some(Self { what, source })),
            set => set.map(|()| None),
        }
    }

    /// As the error of the file, link or directory `path`, which is there.
    pub(super) fn at(self, path: &str) -> TargetError {
        TargetError::Refused { what: self.what, path: path.to_owned(), source: self.source }
    }
}

impl Target {
    /// Gives `file` the mode and the time of `metadata`: what of that the file system does not let be set.
    pub(super) fn set_metadata(&self, file: &File, metadata: &Metadata) -> io::Result<Option<Refused>> {
        set_metadata(file, metadata, metadata.mode & self.options.mode_mask)
    }
}

/// Gives `file` the mode `mode` and the time of `metadata`: what of that the file system does not let be set.
pub(super) fn set_metadata(file: &File, metadata: &Metadata, mode: u16) -> io::Result<Option<Refused>> {
    let set = file.set_permissions(Permissions::from_mode(mode.into()));
    let is_so = set.is_err() && status_of(file)?.mode == mode;
    let mode = Refused::of("mode", set, is_so)?;
    let time = Refused::of("time", set_mtime(file, metadata.mtime_s, metadata.mtime_ns), false)?;
    Ok(match (mode, time) {
        (Some(mode), Some(_)) => Some(Refused { what: "mode and time", ..mode }),
        (mode, time) => mode.or(time),
    })
}
