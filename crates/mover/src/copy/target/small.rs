//! Small files and symbolic links: written under a temporary name beside the final one, and renamed.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, PathBuf};

use farlink_host::beneath::{Node, set_mtime, status_of};
use farlink_host::{disk, sparse};
use farlink_wire::entry::{Digest, Entry, Kind};
use farlink_wire::path::RelativePath;

use super::metadata::Refused;
use super::placing::Place;
use super::{Target, TargetError};

impl Target {
    /// Puts the file of `entry`, whose whole content is `content`, at its place. Where that fails nothing is left of it.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn put(&self, entry: &Entry, content: &[u8]) -> Result<(), TargetError> {
        self.placed(entry, |place| {
            self.with_temporary(&place, &entry.path, |temporary| {
                let mut file = place.directory.create_new(temporary)?;
                // Tells `remove_leftovers` that it is none. Where the file system has no locks, none is taken for a leftover either.
                let _ = file.try_lock();
                file.write_all(content)?;
                for again in (0..WRITES).rev() {
                    if !self.options.read_back {
                        break;
                    }
                    disk::forget(&file)?;
                    let found = content_digest(&place.directory.open_read(temporary)?)?;
                    if found.0 == *blake3::hash(content).as_bytes() {
                        break;
                    }
                    if again == 0 {
                        let error =
                            "it reads back from the disk otherwise than it was written: look at the disk";
                        return Err(io::Error::other(error));
                    }
                    sparse::write_at(&file, 0, content)?;
                }
                let refused = self.set_metadata(&file, &entry.metadata)?;
                if self.options.fsync { file.sync_all() } else { disk::settle(&file) }?;
                Ok(refused)
            })
        })
    }

    /// Makes the symbolic link of `entry`, saying exactly what it said at the source.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn symlink(&self, entry: &Entry) -> Result<(), TargetError> {
        let Kind::Symlink { target } = &entry.kind else { return Ok(()) };
        let (seconds, nanoseconds) = (entry.metadata.mtime_s, entry.metadata.mtime_ns);
        self.placed(entry, |place| {
            if place.directory.read_link(&place.name).is_ok_and(|there| there == *target) {
                let set = place.directory.set_mtime_of(&place.name, seconds, nanoseconds);
                self.remove_partial(&place, &entry.path);
                return match Refused::of("time", set, false) {
                    Ok(refused) => refused.map_or(Ok(()), |refused| Err(refused.at(&place.shown))),
                    Err(error) => Err(TargetError::of("set the time of", &place.shown, error)),
                };
            }
            if is_last_of(&place, target) {
                return Err(TargetError::LedTo { path: place.shown });
            }
            self.with_temporary(&place, &entry.path, |temporary| {
                place.directory.symlink(target, temporary)?;
                Refused::of("time", place.directory.set_mtime_of(temporary, seconds, nanoseconds), false)
            })
        })
    }

    /// Whether the file of `entry` is there already with the content that has `digest`. Then its mode and time are set right, too, and what an
    /// earlier run left of another version beside it is removed.
    #[must_use]
    pub fn holds(&self, entry: &Entry, digest: Digest) -> bool {
        let Kind::File { size } = entry.kind else { return false };
        if digest == Digest::default() {
            return false;
        }
        let held = |place: &Place| -> io::Result<bool> {
            let status = place.directory.status(&place.name)?;
            // The cheap questions first: most files that differ differ in these, and nothing but a file is ever opened.
            if status.node != Node::File || status.size != size {
                return Ok(false);
            }
            let file = place.directory.open_read(&place.name)?;
            if self.options.read_back {
                disk::forget(&file)?;
            }
            if !status_of(&file)?.is_same_file(&status) || content_digest(&file)? != digest {
                return Ok(false);
            }
            let metadata = &entry.metadata;
            if (status.mtime_s, status.mtime_ns) != (metadata.mtime_s, metadata.mtime_ns) {
                set_mtime(&file, metadata.mtime_s, metadata.mtime_ns)?;
            }
            if status.mode != metadata.mode & self.options.mode_mask
                && self.set_metadata(&file, metadata)?.is_some()
            {
                return Ok(false);
            }
            self.remove_partial(place, &entry.path);
            if self.options.fsync {
                file.sync_all()?;
            }
            Ok(true)
        };
        // What cannot be looked at or set right is sent again, and then replaced.
        self.placing.place(entry).is_ok_and(|place| held(&place).unwrap_or(false))
    }

    /// Has `make` make something under a temporary name, and gives it the name of `place`, which is `path`: also where `make` tells of something that the
    /// file system does not keep, which is the error then.
    fn with_temporary(
        &self,
        place: &Place,
        path: &RelativePath,
        make: impl Fn(&[u8]) -> io::Result<Option<Refused>>,
    ) -> Result<(), TargetError> {
        let mut attempts = 0;
        let (temporary, refused) = loop {
            let temporary = self.temporary_name();
            attempts += 1;
            match make(&temporary) {
                Ok(refused) => break (temporary, refused),
                // Another's name, not to be removed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts < MOST_ATTEMPTS => {}
                Err(error) => {
                    let _ = place.directory.unlink(&temporary);
                    return Err(TargetError::of("write", &place.shown, error));
                }
            }
        };
        if let Err(error) = place.directory.rename(&temporary, &place.directory, &place.name) {
            let _ = place.directory.unlink(&temporary);
            return Err(TargetError::of("put in its place", &place.shown, error));
        }
        self.remove_partial(place, path);
        if self.options.fsync {
            place
                .directory
                .sync()
                .map_err(|error| TargetError::of("write to the disk", &place.shown, error))?;
        }
        refused.map_or(Ok(()), |refused| Err(refused.at(&place.shown)))
    }
}

/// Whether `place` is a file that has no other name, and its own is what a link there would lead to that says `target`. That goes by the words alone:
/// what is on the way may be another by the end of a copy, or be on a file system that does not answer.
pub(super) fn is_last_of(place: &Place, target: &[u8]) -> bool {
    let stands = place.directory.status(&place.name);
    if !stands.is_ok_and(|stands| stands.node == Node::File && !stands.has_other_names) {
        return false;
    }
    let Ok(directory) = place.directory.path() else { return false };
    let mut led_to = PathBuf::new();
    // What is absolute takes the place of the directory.
    for component in directory.join(OsStr::from_bytes(target)).components() {
        match component {
            Component::ParentDir => drop(led_to.pop()),
            Component::CurDir => {}
            other => led_to.push(other),
        }
    }
    led_to == directory.join(OsStr::from_bytes(&place.name))
}

/// The BLAKE3 digest of what is in `file`.
fn content_digest(mut file: &std::fs::File) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Digest(*hasher.finalize().as_bytes())),
            Ok(read) => hasher.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
    }
}

/// That so many unguessable names are taken means that something else is wrong.
const MOST_ATTEMPTS: u32 = 16;

/// How often a file is written that does not read back as it should.
const WRITES: u32 = 3;
