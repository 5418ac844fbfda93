//! Directories: made at once so that something can be put in them, given their mode and time when nothing more will be.

use std::io;
use std::sync::PoisonError;

use farlink_host::beneath::{Directory, Links};
use farlink_host::namespace;
use farlink_wire::entry::{Entry, Metadata};
use farlink_wire::message::copy::Lack;
use farlink_wire::path::RelativePath;

use super::{Target, TargetError};

/// What the directories of a transfer will be, packed: 24 bytes and the path of each. Each of them is on the disk: one that a peer says
/// again and again takes no more memory than one that it says once.
#[derive(Debug, Default)]
pub(super) struct Directories {
    paths: Vec<u8>,
    rows: Vec<Row>,
    /// How many there were when it was last looked for those that were said twice.
    distinct: usize,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    start: u64,
    mtime_s: i64,
    mtime_ns: u32,
    length: u16,
    mode: u16,
}

impl Row {
    /// In what way it is not as it should be, where it could not be finished.
    const fn lack(&self) -> Lack {
        if self.mtime_ns == AS_IT_IS { Lack::Failed } else { Lack::Unfinished }
    }
}

impl Directories {
    /// Keeps what the directory `path` will be, with [`AS_IT_IS`] for nanoseconds but for its time; false where there are more than can be
    /// kept.
    fn add(&mut self, path: &RelativePath, metadata: &Metadata) -> bool {
        if self.rows.len() >= MANY.max(2 * self.distinct) {
            self.compact();
        }
        let &Metadata { mode, mtime_s, mtime_ns } = metadata;
        let (start, length) = (self.paths.len() as u64, path.as_bytes().len() as u16);
        self.rows.push(Row { start, mtime_s, mtime_ns, length, mode });
        self.paths.extend(path.as_bytes());
        self.distinct <= MOST
    }

    /// Sorts them, what is in a directory before that directory; of one that was said twice the last counts.
    fn compact(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        // What is in a directory has its path and more. The sort is stable: the last said comes last.
        rows.sort_by(|one, other| self.bytes(other).cmp(self.bytes(one)));
        rows.dedup_by(|later, kept| {
            let same = self.bytes(later) == self.bytes(kept);
            if same {
                *kept = *later;
            }
            same
        });
        let mut paths = Vec::with_capacity(rows.iter().map(|row| usize::from(row.length)).sum());
        for row in &mut rows {
            let start = paths.len() as u64;
            paths.extend(self.bytes(row));
            row.start = start;
        }
        rows.shrink_to_fit();
        (self.paths, self.distinct, self.rows) = (paths, rows.len(), rows);
    }

    /// The directories that were said so far.
    pub(super) fn paths(&self) -> impl Iterator<Item = RelativePath> {
        self.rows.iter().map(|row| self.path(row))
    }

    fn path(&self, row: &Row) -> RelativePath {
        // It was a path when it was added.
        RelativePath::new(self.bytes(row)).unwrap_or_default()
    }

    fn bytes(&self, row: &Row) -> &[u8] {
        let start = row.start as usize;
        &self.paths[start..start + usize::from(row.length)]
    }
}

impl Target {
    /// Makes the directory of `entry`, or finds it. Until [`Self::finish_directories`] its owner may do everything in it.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn directory(&self, entry: &Entry) -> Result<(), TargetError> {
        let mode = entry.metadata.mode & self.options.mode_mask;
        let mut metadata = Metadata { mode, ..entry.metadata };
        if entry.path.is_root() {
            self.placing.expect(entry)?;
            let tree = self.placing.become_directory()?;
            let failed = |error| TargetError::of("look at", self.placing.shown(), error);
            let found = tree.top().own_status().map_err(failed)?;
            if self.options.kept == Some((found.device, found.inode)) {
                metadata = Metadata { mode: found.mode, mtime_s: 0, mtime_ns: AS_IT_IS };
            } else {
                let _ = prepare(tree.top(), mode);
            }
        } else {
            self.placed(entry, |place| {
                let failed = |error| TargetError::of("make the directory", place.shown.clone(), error);
                match place.directory.make_dir(&place.name, mode | OWNERS) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        let found = place.directory.open_dir(&place.name, Links::Refuse).map_err(failed)?;
                        let _ = prepare(&found, mode);
                        Ok(())
                    }
                    made => made.map_err(failed),
                }
            })?;
        }
        if self.directories.lock().unwrap_or_else(PoisonError::into_inner).add(&entry.path, &metadata) {
            Ok(())
        } else {
            Err(TargetError::TooManyDirectories { most: MOST })
        }
    }

    /// Lets us write in the directories that `path` is in, those of the transfer that are ours: they may be said behind what is in them.
    /// Where they are not said at all they have their modes back at the end. Whether there was anything to let us in by.
    pub(super) fn open_up_to(&self, path: &RelativePath) -> bool {
        let Some(tree) = self.placing.tree() else { return false };
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ours = false;
        let mut above: Vec<_> = std::iter::successors(path.parent(), RelativePath::parent).collect();
        above.retain(|above| !above.is_root() || self.placing.is_several());
        for above in above.into_iter().rev() {
            let Ok(directory) = tree.directory(&above) else { break };
            match open_up(&directory) {
                Ok(Some(mode)) => {
                    ours = true;
                    let metadata = Metadata { mode, mtime_s: 0, mtime_ns: AS_IT_IS };
                    let _ = directories.add(&above, &metadata);
                }
                // Another thread did it meanwhile.
                Ok(None) => ours = true,
                Err(_) => {}
            }
        }
        ours
    }

    /// Gives those back their modes that were opened up for what is beneath them, of a transfer that does not come to its end.
    pub(in crate::copy) fn leave_directories(&self) {
        let mut directories =
            std::mem::take(&mut *self.directories.lock().unwrap_or_else(PoisonError::into_inner));
        directories.compact();
        let Some(tree) = self.placing.tree() else { return };
        for row in directories.rows.iter().filter(|row| row.mtime_ns == AS_IT_IS) {
            // Unless it is another's by now. Who takes the copy up opens it again.
            let is_open = |it: &Directory| it.own_status().is_ok_and(|now| now.mode == row.mode | OWNERS);
            if let Ok(directory) = tree.directory(&directories.path(row))
                && is_open(&directory)
            {
                let _ = directory.set_mode(row.mode);
            }
        }
    }

    /// Gives the directories of the transfer their modes and times, the deepest first: nothing may be put in them after this. Returns
    /// those that it could not be done with, in what way and why: each once, whether it was said or opened for what is beneath it.
    pub fn finish_directories(&self) -> Vec<(RelativePath, Lack, TargetError)> {
        let mut directories =
            std::mem::take(&mut *self.directories.lock().unwrap_or_else(PoisonError::into_inner));
        directories.compact();
        // The deepest come first.
        let root = directories.rows.last().filter(|row| row.length == 0).map_or(Lack::Failed, Row::lack);
        let mut failed = Vec::new();
        if self.options.fsync
            && let Err(error) = self.placing.sync()
        {
            let shown = self.placing.shown();
            failed.push((RelativePath::root(), root, TargetError::of("write to the disk", shown, error)));
        }
        if let Err(moved) = self.placing.check_is_there()
            && failed.is_empty()
        {
            failed.push((RelativePath::root(), root, moved));
        }
        if directories.rows.is_empty() {
            self.placing.withdraw();
            return failed;
        }
        // By their names as they are now: one that somebody has moved away is not given what belongs to another.
        self.placing.forget();
        let tree = match self.placing.become_directory() {
            Ok(tree) => tree,
            Err(error) => return vec![(RelativePath::root(), root, error)],
        };
        for row in &directories.rows {
            let path = directories.path(row);
            let finished = || {
                let directory = tree.directory(&path)?;
                let syncing = self.options.fsync.then(|| directory.syncing()).transpose()?;
                // One that is another's may be as it should be.
                let found = directory.own_status()?;
                if row.mtime_ns != AS_IT_IS && (found.mtime_s, found.mtime_ns) != (row.mtime_s, row.mtime_ns)
                {
                    directory.set_mtime(row.mtime_s, row.mtime_ns)?;
                }
                // Last: it may take away the right to do anything here.
                if found.mode != row.mode {
                    directory.set_mode(row.mode)?;
                }
                syncing.map_or(Ok(()), |syncing| syncing.sync_all())
            };
            // Its destination has failed once where it is on no disk, too.
            if let Err(error) = finished()
                && !(path.is_root() && failed.first().is_some_and(|(its, ..)| its.is_root()))
            {
                let shown = self.placing.show(&path);
                failed.push((path, row.lack(), TargetError::of("set the mode and time of", shown, error)));
            }
        }
        failed
    }
}

/// Lets the owner of a directory that was there write in it, where that is who we are, and others do no more than its `mode` lets them:
/// what is put in it is not to be seen by more people while it is copied, nor after a copy that was cut short.
fn prepare(directory: &Directory, mode: u16) -> io::Result<()> {
    let status = directory.own_status()?;
    if status.owner != namespace::user() {
        return Ok(());
    }
    // What is put in it has its group, where that is so.
    let prepared = status.mode & (mode | BEYOND_RIGHTS) | OWNERS;
    if status.mode == prepared { Ok(()) } else { directory.set_mode(prepared) }
}

/// Lets the owner of a directory that was there write in it, where that is who we are: the mode that it had, where it is another now. What
/// cannot be written in will be said of what should be put there.
fn open_up(directory: &Directory) -> io::Result<Option<u16>> {
    let status = directory.own_status()?;
    if status.owner != namespace::user() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if status.mode & OWNERS == OWNERS {
        return Ok(None);
    }
    directory.set_mode(status.mode | OWNERS)?;
    Ok(Some(status.mode))
}

/// Instead of nanoseconds: the time stays what it is. No time has as many.
const AS_IT_IS: u32 = u32::MAX;

/// Bits of a mode that are no rights: set-user-ID, set-group-ID and sticky.
const BEYOND_RIGHTS: u16 = 0o7000;

/// What the owner needs to put something in a directory.
const OWNERS: u16 = 0o700;

/// So many are kept before it is looked for those that were said twice: about a megabyte.
const MANY: usize = 1 << 15;

/// Most directories of a transfer: more than one file system has in practice, and below two gigabytes of memory with usual paths.
const MOST: usize = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_said_without_end_is_kept_once() {
        let mut directories = Directories::default();
        let path = |number: usize| RelativePath::new(format!("a/{number}")).unwrap();
        for number in 0..20 * MANY {
            let metadata = Metadata { mtime_s: number as i64, ..Metadata::default() };
            assert!(directories.add(&path(number % 7), &metadata));
        }
        assert!(directories.rows.len() <= MANY && directories.paths.len() <= 3 * MANY);
        directories.add(&path(70), &Metadata::default());
        directories.add(&RelativePath::new("a").unwrap(), &Metadata::default());
        directories.compact();
        let paths: Vec<_> = directories.paths().map(|path| path.to_string()).collect();
        assert_eq!(paths, ["a/70", "a/6", "a/5", "a/4", "a/3", "a/2", "a/1", "a/0", "a"]);
        let last = (0..20 * MANY).rev().find(|number| number % 7 == 0).unwrap();
        assert_eq!(directories.rows[7].mtime_s, last as i64);
    }
}
