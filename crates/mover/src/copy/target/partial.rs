//! A file that comes in blocks, in any order and perhaps in several runs: written under a name of its own beside the final one, with a
//! journal of what was written, and renamed when it is whole.

use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, PoisonError};

use farlink_flow::digest::BlockHasher;
use farlink_host::beneath::{Directory, Node, Status, is_link_in_the_way, is_without_locks, status_of};
use farlink_host::{disk, namespace, sparse};
use farlink_wire::entry::{Digest, Entry, Kind};
use farlink_wire::journal::{Journal, Row};
use farlink_wire::path::RelativePath;

use super::metadata::set_metadata;
use super::placing::Place;
use super::{Target, TargetError, is_still};

use touched::Touched;
use written::Written;

mod touched;
mod written;

/// A file that is not whole yet. Any thread may write any block.
///
/// A block is written from its beginning to its end, as often as it comes; then [`Self::note`] says so in the journal. When this is
/// dropped, both files stay for the next run.
#[derive(Debug)]
pub struct Partial {
    file: Locked,
    place: Place,
    name: Vec<u8>,
    size: u64,
    block_bytes: u64,
    journal: Mutex<Written>,
    /// What an earlier run claims to have written, until it was looked at.
    claims: Mutex<Option<Vec<Row>>>,
    /// Where zeros are left out: the blocks that may hold something.
    touched: Option<Touched>,
    fsync: bool,
    read_back: bool,
    mode_mask: u16,
}

/// A file that is locked, until this is dropped: by then also for a process that was forked meanwhile, and has it, too.
#[derive(Debug)]
struct Locked(File);

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // A file system without locks has none to lose.
        let _ = self.0.unlock();
    }
}

impl Target {
    /// Opens the partial file of `entry`, or begins one; the disk is reserved for it, unless it is `sparse`: then zeros are left out.
    /// One that was begun from another version of the source, or in other blocks, is begun anew.
    ///
    /// # Errors
    /// [`TargetError`]: [`TargetError::Busy`] where another copy is writing it.
    pub fn partial(&self, entry: &Entry, block_bytes: u64, sparse: bool) -> Result<Partial, TargetError> {
        let size = if let Kind::File { size } = entry.kind { size } else { 0 };
        let journal = Journal::new(size, &entry.metadata, block_bytes)
            .map_err(|source| TargetError::Blocks { path: entry.path.to_string(), source })?;
        let names = self.partial_names(&entry.path);
        self.placed(entry, |place| {
            self.open_partial(place, names.clone(), journal, (size, block_bytes), sparse)
        })
    }

    /// Removes what an earlier run left of another version of `path`, which has come since and needed no partial file; unless somebody is
    /// writing it.
    pub(super) fn remove_partial(&self, place: &Place, path: &RelativePath) {
        if !self.options.is_again {
            return;
        }
        let (name, journal) = self.partial_names(path);
        let directory = &place.directory;
        let unlink = |name: &[u8]| drop(directory.unlink(name));
        let opened = match directory.open_write(&name) {
            // It may have had its mode already.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => directory.open_read(&name),
            opened => opened,
        };
        match opened {
            // Locked until both are gone: nobody else takes them up meanwhile.
            Ok(file) => {
                if file.try_lock().is_ok() && is_still(directory, &name, &file).unwrap_or(false) {
                    unlink(&journal);
                    unlink(&name);
                }
            }
            // A run may have ended between the last two steps of `Partial::finish`.
            Err(error) if error.kind() == io::ErrorKind::NotFound => unlink(&journal),
            Err(_) => {}
        }
    }

    fn open_partial(
        &self,
        place: Place,
        (name, journal_name): (Vec<u8>, Vec<u8>),
        journal: Journal,
        (size, block_bytes): (u64, u64),
        sparse: bool,
    ) -> Result<Partial, TargetError> {
        if place.directory.status(&place.name).is_ok_and(|status| status.node == Node::Directory) {
            return Err(TargetError::DirectoryInTheWay { path: place.shown });
        }
        let (file, found) = self.locked(&place, &name)?;
        let failed = |error| TargetError::of("open the partial file of", &place.shown, error);
        let journal_file = match self.own_file(&place, &journal_name) {
            Ok((file, _)) => file,
            Err(error) => {
                if !found {
                    let _ = place.directory.unlink(&name);
                }
                return Err(failed(error));
            }
        };
        let mut written = Written::new(journal_file, journal_name, journal);
        let claims = if found { written.resume(&file, size).map_err(failed)? } else { None };
        let resumed = claims.is_some();
        let prepared = prepare(&file, &mut written, resumed, size, sparse);
        let touched = sparse.then(|| Touched::new(journal.blocks(), resumed));
        let partial = Partial {
            file,
            place,
            name,
            size,
            block_bytes,
            journal: Mutex::new(written),
            claims: Mutex::new(claims),
            touched,
            fsync: self.options.fsync,
            read_back: self.options.read_back,
            mode_mask: self.options.mode_mask,
        };
        if let Err(error) = prepared {
            if !resumed {
                partial.abandon();
            }
            return Err(partial.failed("reserve room for", error));
        }
        Ok(partial)
    }

    /// The partial file `name`, locked, and whether it was there.
    fn locked(&self, place: &Place, name: &[u8]) -> Result<(Locked, bool), TargetError> {
        let failed = |error| TargetError::of("open the partial file of", &place.shown, error);
        for _ in 0..MOST_ATTEMPTS {
            let (file, found) = self.own_file(place, name).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(TargetError::Busy { path: place.shown.clone() }),
                // A file system without locks: then nobody guards against two copies of the same at once.
                Err(TryLockError::Error(error)) if is_without_locks(&error) => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            let file = Locked(file);
            // Whoever held the lock may have renamed or removed it meanwhile.
            if is_still(&place.directory, name, &file).map_err(failed)? {
                return Ok((file, found));
            }
        }
        Err(failed(io::ErrorKind::ResourceBusy.into()))
    }

    /// The file `name`, which only we write, and whether it was there. What else has that name is removed.
    fn own_file(&self, place: &Place, name: &[u8]) -> io::Result<(File, bool)> {
        for _ in 0..MOST_ATTEMPTS {
            match place.directory.open_write(name) {
                Ok(file) => {
                    let status = status_of(&file)?;
                    // A second name may be that of somebody's file; another owner may change it under our hands.
                    if !status.has_other_names
                        && (status.owner == namespace::user()
                            || status.owner == self.owner_of_ours(&place.directory)?)
                    {
                        return Ok((file, true));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match place.directory.create_new(name) {
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                        made => return made.map(|file| (file, false)),
                    }
                }
                // It may have had its mode already.
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied && let_in(&place.directory, name) =>
                {
                    continue;
                }
                Err(error) if is_foreign(&error) => {}
                Err(error) => return Err(error),
            }
            match place.directory.unlink(name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Whose a file is that we make in `directory`: a network file system may show all of them as another's.
    fn owner_of_ours(&self, directory: &Directory) -> io::Result<u32> {
        let name = self.temporary_name();
        let made = directory.create_new(&name)?;
        let owner = status_of(&made).map(|status| status.owner);
        let _ = directory.unlink(&name);
        owner
    }
}

/// Lets us write to the file `name`, which is ours and for reading only; whether that could be done.
fn let_in(directory: &Directory, name: &[u8]) -> bool {
    let is_ours = |status: &Status| {
        status.node == Node::File && status.owner == namespace::user() && status.mode & OWNERS != OWNERS
    };
    directory.status(name).is_ok_and(|status| is_ours(&status) && !status.has_other_names)
        && directory.set_mode_of(name, OWNERS).is_ok()
}

/// The mode of what only its owner may read and write.
const OWNERS: u16 = 0o600;

impl Partial {
    /// The blocks that an earlier run wrote, with their digests: each was read again and has the digest that the journal claims.
    /// `progress` is told of bytes that were read, and says whether to go on. Call it before anything is written.
    ///
    /// # Errors
    /// [`TargetError`], also where it does not go on: what the journal claims stays as it is.
    pub fn proven(&self, progress: &mut dyn FnMut(u64) -> bool) -> Result<Vec<(u32, Digest)>, TargetError> {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut claims) = claims else { return Ok(Vec::new()) };
        let mut buffer = vec![0; READ_BYTES];
        let mut ended = None;
        claims.retain(|row| {
            let proof = if ended.is_some() { Ok(None) } else { self.look_at(row, &mut buffer, progress) };
            proof.unwrap_or_else(|error| {
                ended = Some(error);
                None
            }) == Some(true)
        });
        if let Some(error) = ended {
            return Err(self.failed("read again", error));
        }
        if let Some(touched) = &self.touched {
            // What is not proven may be anything, and zeros that come for it are left out.
            self.clear_between(&claims, progress).map_err(|error| self.failed("make holes in", error))?;
            touched.keep(claims.iter().map(|row| row.index));
        }
        Ok(claims.into_iter().map(|row| (row.index, row.digest)).collect())
    }

    /// Whether a block is what `row` says; `None` where the disk does not say: it may take it anew.
    ///
    /// # Errors
    /// Where `progress` ended it.
    fn look_at(
        &self,
        row: &Row,
        buffer: &mut [u8],
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Option<bool>> {
        let mut goes_on = true;
        let proof = self.is_proven(row, buffer, &mut |bytes| {
            goes_on = progress(bytes);
            goes_on
        });
        match proof {
            Ok(proof) => Ok(Some(proof)),
            Err(error) if !goes_on => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Whether an earlier run claims to have written any of it, which was not looked at.
    #[must_use]
    pub fn is_unproven(&self) -> bool {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.as_ref().is_some_and(|claims| !claims.is_empty())
    }

    /// Writes `bytes`, a part of one block, at `offset`.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        self.write(offset, bytes, true)
    }

    /// The same, while somebody else writes the block, too: what is there of it stays, as it may be the other's.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn write_beside(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        self.write(offset, bytes, false)
    }

    fn write(&self, offset: u64, bytes: &[u8], alone: bool) -> Result<(), TargetError> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.size) {
            return Err(self.failed("write beyond the end of", io::ErrorKind::InvalidInput.into()));
        }
        let written = || match &self.touched {
            None => sparse::write_at(&self.file, offset, bytes),
            Some(touched) => {
                if offset.is_multiple_of(self.block_bytes) {
                    let index = offset / self.block_bytes;
                    // Where it comes again, zeros that are left out now must not leave what came before.
                    if touched.touch(index) && alone {
                        self.clear(index, index + 1, &mut |_| true)?;
                    }
                }
                sparse::write_data_at(&self.file, offset, bytes)
            }
        };
        written().map_err(|error| self.failed("write", error))
    }

    /// Reads what was written at `offset` again, until `buffer` is full or the file ends; how much that was.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TargetError> {
        sparse::read_at(&self.file, offset, buffer).map_err(|error| self.failed("read again", error))
    }

    /// Makes sure that there is nothing in the `count` blocks from `first`.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn leave_out(&self, first: u32, count: u32) -> Result<(), TargetError> {
        let end = u64::from(first) + u64::from(count);
        if end > self.size.div_ceil(self.block_bytes) {
            return Err(self.failed("write beyond the end of", io::ErrorKind::InvalidInput.into()));
        }
        let cleared = match &self.touched {
            None => self.clear(first.into(), end, &mut |_| true),
            // A file that zeros are left out of began empty: most of what is to be empty is.
            Some(touched) => (first.into()..end)
                .filter(|index| touched.is_touched(*index))
                .try_for_each(|index| self.clear(index, index + 1, &mut |_| true)),
        };
        cleared.map_err(|error| self.failed("make holes in", error))
    }

    /// Says in the journal that block `index` was written, and is what has `digest`.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn note(&self, index: u32, digest: Digest) -> Result<(), TargetError> {
        let mut written = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        written.add(&Row { index, digest }).map_err(|error| self.failed("write the journal of", error))
    }

    /// Whether [`read_back`](Self::read_back) was asked for.
    #[must_use]
    pub const fn reads_back(&self) -> bool {
        self.read_back
    }

    /// Has it on the disk, reads it from there and compares it with the digests of its blocks: those that are something else. A block
    /// that was not hashed has none. `progress` is told of the bytes that were read, and ends it where it is false.
    ///
    /// # Errors
    /// [`TargetError`], also where `progress` ended it.
    pub fn read_back(
        &self,
        digests: &[Digest],
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<u32>, TargetError> {
        disk::forget(&self.file).map_err(|error| self.lost(error))?;
        let mut buffer = vec![0; READ_BYTES];
        let mut spoiled = Vec::new();
        for (index, digest) in (0..).zip(digests.iter().copied()) {
            let is_well = |proof| proof == Some(true);
            if digest != Digest::default()
                && !self
                    .look_at(&Row { index, digest }, &mut buffer, progress)
                    .map(is_well)
                    .map_err(|error| self.failed("read again", error))?
            {
                spoiled.push(index);
            }
        }
        Ok(spoiled)
    }

    /// Gives the file, which is whole, its mode, its time and its name, and removes the journal.
    ///
    /// # Errors
    /// [`TargetError`]: [`TargetError::DirectoryInTheWay`] where a directory has the name, and [`TargetError::Refused`] where all is done
    /// but what the file system does not keep.
    pub fn finish(&self, entry: &Entry) -> Result<(), TargetError> {
        let found = status_of(&self.file).map_err(|error| self.failed("look at", error))?.size;
        if found != self.size {
            return Err(TargetError::Size { path: self.place.shown.clone(), found, size: self.size });
        }
        if self.fsync {
            // Now, as it may take long: a file that already has its mode may not be opened again if this is its end.
            self.sync()?;
        }
        let directory = &self.place.directory;
        let refused = set_metadata(&self.file, &entry.metadata, entry.metadata.mode & self.mode_mask)
            .map_err(|error| self.failed("set the mode and time of", error))?;
        if self.fsync {
            self.sync()?;
        } else {
            disk::settle(&self.file).map_err(|error| self.lost(error))?;
        }
        // Whoever may write to the directory may have put another file in its place.
        if !is_still(directory, &self.name, &self.file).map_err(|error| self.failed("look at", error))? {
            return Err(TargetError::Replaced { path: self.place.shown.clone() });
        }
        if let Err(error) = directory.rename(&self.name, directory, &self.place.name) {
            // So that the next run may open it.
            let _ = self.file.set_permissions(Permissions::from_mode(0o600));
            return Err(self.failed("put in its place", error));
        }
        let _ = directory.unlink(self.journal.lock().unwrap_or_else(PoisonError::into_inner).name());
        if self.fsync {
            directory.sync().map_err(|error| self.failed("write to the disk", error))?;
        }
        refused.map_or(Ok(()), |refused| Err(refused.at(&self.place.shown)))
    }

    /// Nothing more of it comes in this run. What was noted in the journal stays for the next one; where nothing was, this is as
    /// [`Self::abandon`].
    pub fn leave(&self) {
        if !self.journal.lock().unwrap_or_else(PoisonError::into_inner).has_rows() {
            self.abandon();
        }
    }

    /// Has all of it on the disk.
    fn sync(&self) -> Result<(), TargetError> {
        self.file.sync_all().map_err(|error| self.lost(error))
    }

    /// What was written did not get to the disk. Nothing of it is kept for the next run: the kernel has what it could not write in memory,
    /// as if it were written (fsync(2)), so that all of it would be proven there.
    fn lost(&self, error: io::Error) -> TargetError {
        self.abandon();
        self.failed("write to the disk", error)
    }

    /// Removes what there is of the file, and its journal. The disk has its room again when this is dropped.
    pub fn abandon(&self) {
        let _ = self.place.directory.unlink(&self.name);
        let _ =
            self.place.directory.unlink(self.journal.lock().unwrap_or_else(PoisonError::into_inner).name());
    }

    /// Whether block `index`, as it is now, has `digest`.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn holds(&self, index: u32, digest: Digest) -> Result<bool, TargetError> {
        self.is_proven(&Row { index, digest }, &mut vec![0; READ_BYTES], &mut |_| true)
            .map_err(|error| self.failed("read again", error))
    }

    fn is_proven(
        &self,
        row: &Row,
        buffer: &mut [u8],
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<bool> {
        let mut hasher = BlockHasher::new(self.size, self.block_bytes, row.index);
        let mut from = u64::from(row.index) * self.block_bytes;
        let end = self.size.min(from + self.block_bytes);
        while from < end {
            let part = buffer.len().min((end - from) as usize);
            let read = sparse::read_at(&self.file, from, &mut buffer[..part])?;
            hasher.update(&buffer[..read]);
            if !progress(read as u64) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if read < part {
                return Ok(false);
            }
            from += part as u64;
        }
        Ok(hasher.finish() == row.digest)
    }

    /// Makes holes of the blocks that are not among `kept`, which are in order.
    fn clear_between(&self, kept: &[Row], progress: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
        let blocks = self.size.div_ceil(self.block_bytes);
        let mut from = 0;
        for index in kept.iter().map(|row| u64::from(row.index)).chain([blocks]) {
            if index > from {
                self.clear(from, index, progress)?;
            }
            from = index + 1;
        }
        Ok(())
    }

    /// Makes zeros of the blocks from `first` to before `end`: a hole, where there can be one. Where none can be made again, what is one
    /// stays one. `progress` is as in [`Self::proven`].
    fn clear(&self, first: u64, end: u64, progress: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
        let (from, end) = (first * self.block_bytes, self.size.min(end * self.block_bytes));
        if from >= end || sparse::punch(&self.file, from, end - from)? {
            return Ok(());
        }
        sparse::zero(&self.file, from, end, progress)
    }

    fn failed(&self, attempt: &'static str, error: io::Error) -> TargetError {
        TargetError::of(attempt, &self.place.shown, error)
    }
}

/// Makes `file` as long as it will be, and empty where it is not resumed.
fn prepare(file: &File, written: &mut Written, resumed: bool, size: u64, sparse: bool) -> io::Result<()> {
    if !resumed {
        // The journal first: it must never speak of a file that is not there.
        written.begin()?;
        file.set_len(0)?;
    }
    if sparse { file.set_len(size) } else { sparse::preallocate(file, size).map(|_| ()) }
}

/// Whether a name could not be opened because it is no file that we made.
fn is_foreign(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied)
        || is_link_in_the_way(error)
}

/// What is read at once: large enough to hash at full speed, and it stays in a processor's cache.
const READ_BYTES: usize = 256 << 10;

/// A name that is taken away and made again that often is made by somebody who means harm.
const MOST_ATTEMPTS: u32 = 16;

#[cfg(test)]
mod tests;
