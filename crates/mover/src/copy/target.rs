//! What is copied to: final names that appear complete or not at all, beneath one directory and nowhere else.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farlink_host::beneath::{Directory, Node, status_of};
use farlink_host::{process, signal};
use farlink_wire::entry::Entry;
use farlink_wire::path::RelativePath;

use directories::Directories;
use placing::{Place, Placing};

pub use asked::Asked;
pub use error::TargetError;
pub use held::Held;
pub use partial::Partial;
pub use placing::Destination;

mod asked;
mod directories;
mod error;
mod foreseen;
mod held;
mod metadata;
mod partial;
mod placing;
mod small;
mod standing;

/// The receiver's end of a transfer in its file system. Its methods are called by any number of threads at once.
///
/// No name that a peer sends is followed through a symbolic link or out of the destination, and none is ever a device.
#[derive(Debug)]
pub struct Target {
    placing: Placing,
    options: TargetOptions,
    key: [u8; 16],
    directories: Mutex<Directories>,
    /// What the names of this command's temporary files begin with.
    prefix: String,
    /// Numbers of temporary names, from one that nobody can guess.
    numbers: AtomicU32,
}

/// How a receiver writes.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// Whether a file is on the disk, not in memory only, before it has its final name.
    pub fsync: bool,
    /// Whether it is read again from there, too.
    pub read_back: bool,
    /// Permission bits that are kept.
    pub mode_mask: u16,
    /// Permission bits of a directory that no entry tells of, less the process's umask: ours alone, where entries that come later say them.
    pub parents: u16,
    /// Whether an earlier run may have left partial files: they are removed where what comes needs none. To look for them costs two looks a name.
    pub is_again: bool,
    /// Whether directories of ours that are for reading only are opened up for what comes, until [`Target::finish_directories`].
    pub opens_up: bool,
    /// Which files stay as they stand, whatever comes.
    pub stays: Stays,
    /// A directory, by its device and number, that keeps its mode and time where it is the one at the top.
    pub kept: Option<(u64, u64)>,
    /// What may come, of a client that pulls; `None` where the other end decides.
    pub asked: Option<Arc<Asked>>,
}

/// Which files stay as they stand at the destination, whatever comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// None does.
    None,
    /// Those that are newer.
    Newer,
    /// Those that are newer, or as old and as long: what an attempt that did not end well has left could look so, and not be on the disk.
    Current,
}

impl Stays {
    /// Where an `update` was asked for, and after an attempt that did not end well where `is_again`.
    #[must_use]
    pub const fn of(update: bool, is_again: bool) -> Self {
        match (update, is_again) {
            (false, _) => Self::None,
            (true, true) => Self::Newer,
            (true, false) => Self::Current,
        }
    }
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self {
            fsync: false,
            read_back: false,
            mode_mask: 0o7777,
            parents: 0o700,
            is_again: false,
            opens_up: true,
            stays: Stays::None,
            kept: None,
            asked: None,
        }
    }
}

impl Target {
    /// Opens `destination`, which lies beneath `containment`. The same `key` finds the partial files of an earlier transfer that did
    /// not come to its end.
    ///
    /// Of the destination only the last component is made, here or (where only the entries tell whether it is a directory) with the
    /// first of them.
    ///
    /// # Errors
    /// [`TargetError`], [`TargetError::NoParent`] among them.
    pub fn open(
        containment: &Arc<Directory>,
        destination: &Destination,
        key: [u8; 16],
        options: TargetOptions,
    ) -> Result<Self, TargetError> {
        let target = Self::find(containment, destination, key, options)?;
        target.begin()?;
        Ok(target)
    }

    /// As [`open`](Self::open), and nothing is made before [`begin`](Self::begin).
    ///
    /// # Errors
    /// As above.
    pub fn find(
        containment: &Arc<Directory>,
        destination: &Destination,
        key: [u8; 16],
        options: TargetOptions,
    ) -> Result<Self, TargetError> {
        // One that is too long is that file's failure.
        let _ = signal::survive_long_files();
        let placing = Placing::open(containment, destination, &options)?;
        let random = process::random()
            .map_err(|source| TargetError::of("draw a number for", placing.shown(), source))?;
        let numbers = AtomicU32::new(u32::from_ne_bytes(random));
        let prefix = format!("{HIDDEN}{}", &blake3::hash(&key).to_hex()[..8]);
        Ok(Self { placing, options, key, directories: Mutex::default(), prefix, numbers })
    }

    /// Makes the destination, where it can only be a directory and is not there.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn begin(&self) -> Result<(), TargetError> {
        self.placing.begin()
    }

    /// Checks that something may be put in the destination, a directory that is not opened up for that, or perhaps in one that is in it. What is
    /// full may have room later.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn check_right(&self) -> Result<(), TargetError> {
        let directory = self.placing.become_directory()?.top();
        let name = self.temporary_name();
        let error = match directory.create_new(&name) {
            Ok(_) => {
                let _ = directory.unlink(&name);
                return Ok(());
            }
            Err(error) => error,
        };
        let is_lasting =
            matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem);
        let is_directory =
            |name: &[u8]| directory.status(name).is_ok_and(|each| each.node == Node::Directory);
        let has_none = directory.list().is_ok_and(|names| !names.iter().any(is_directory));
        if !is_lasting || !has_none {
            return Ok(());
        }
        Err(TargetError::of("write in", self.placing.shown(), error))
    }

    /// Nothing more comes: where nothing ever did, a destination that was made for it goes again.
    pub(crate) fn withdraw(&self) {
        self.placing.withdraw();
    }

    /// Looks the way to the next entry up by its names, though directories on it may be open: somebody may have given theirs to others.
    pub fn look_anew(&self) {
        self.placing.forget();
    }

    /// Does `attempt` where `entry` belongs, and once more where a directory that was held open turned out to be gone, or one that is ours
    /// was for reading only: as an earlier run left it, whose source's is.
    fn placed<T>(
        &self,
        entry: &Entry,
        attempt: impl Fn(Place) -> Result<T, TargetError>,
    ) -> Result<T, TargetError> {
        let tried = || attempt(self.placing.place(entry)?);
        match tried() {
            Err(TargetError::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.placing.forget();
                tried()
            }
            Err(TargetError::System { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied
                    && self.options.opens_up
                    && self.open_up_to(&entry.path) =>
            {
                tried()
            }
            other => other,
        }
    }

    /// The names of the partial file of `path`, and of its journal.
    fn partial_names(&self, path: &RelativePath) -> (Vec<u8>, Vec<u8>) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.key).update(path.as_bytes());
        let hex = &hasher.finalize().to_hex()[..16];
        (format!("{HIDDEN}{hex}{PARTIAL}").into_bytes(), format!("{HIDDEN}{hex}{JOURNAL}").into_bytes())
    }

    /// A name for a temporary file that this process has not used.
    fn temporary_name(&self) -> Vec<u8> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        format!("{}{number:08x}{TEMPORARY}", self.prefix).into_bytes()
    }

    /// What the names of this command's temporary files begin with.
    #[must_use]
    pub fn temporary_prefix(&self) -> &str {
        &self.prefix
    }

    /// Removes what an earlier run of the same command, or this one, left under temporary names in the directories that were said so far
    /// and is not being written by anyone. Call it before [`Self::finish_directories`]. Returns how much it was.
    pub fn remove_leftovers(&self) -> usize {
        let directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        self.remove_leftovers_in(directories.paths())
    }

    /// As [`Self::remove_leftovers`], at the destination and in these directories beneath it.
    pub fn remove_leftovers_in(&self, directories: impl Iterator<Item = RelativePath>) -> usize {
        let leftover = |name: &[u8]| {
            let middle = name
                .strip_prefix(self.prefix.as_bytes())
                .and_then(|rest| rest.strip_suffix(TEMPORARY.as_bytes()));
            middle.is_some_and(|number| number.len() == 8)
        };
        let mut removed = 0;
        self.placing.each_directory(directories, |directory| {
            let Ok(names) = directory.list() else { return };
            let found = names.iter().filter(|name| leftover(name));
            removed += found.filter(|name| remove_unused(directory, name)).count();
        });
        removed
    }
}

/// Removes a temporary file or link, unless somebody is writing it.
fn remove_unused(directory: &Directory, name: &[u8]) -> bool {
    let unused = match directory.status(name).map(|status| status.node) {
        // One that got its mode already may be for reading only.
        Ok(Node::File) => directory
            .open_write(name)
            .or_else(|_| directory.open_read(name))
            .is_ok_and(|file| file.try_lock().is_ok()),
        // A link is made and renamed at once: that it is still there means that nobody will.
        Ok(Node::Symlink) => true,
        _ => false,
    };
    unused && directory.unlink(name).is_ok()
}

/// Whether `name` in `directory` is still `file`.
fn is_still(directory: &Directory, name: &[u8], file: &File) -> io::Result<bool> {
    match directory.status(name) {
        Ok(named) => Ok(named.is_same_file(&status_of(file)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether `name` is that of a partial file, of its journal, or of a temporary one: what some copy has not finished.
pub(super) fn is_unfinished(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(HIDDEN.as_bytes()) else { return false };
    let Some((hex, ending)) = rest.split_at_checked(16) else { return false };
    let endings = [PARTIAL, JOURNAL, TEMPORARY];
    hex.iter().all(u8::is_ascii_hexdigit) && endings.iter().any(|each| each.as_bytes() == ending)
}

/// What the names of partial and temporary files begin with. They are short: the longest final name has one, too.
const HIDDEN: &str = ".farlink-";

/// What the names of partial files, of their journals and of temporary files end with.
const PARTIAL: &str = ".part";
const JOURNAL: &str = ".journal";
const TEMPORARY: &str = ".tmp";

#[cfg(test)]
pub(super) mod tests;
