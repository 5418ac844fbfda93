//! What a client remembers of copies that have not ended well: that they were begun, and whether they came to their end.
//!
//! A copy that was never begun sends at once. One that was asks first what is there, which costs a round trip and saves what would be
//! sent during it. Where that is forgotten (another user, a home that cannot be written, a season later) what is whole there is sent again, and
//! of a file that was begun only what is missing.

use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use super::names::Names;
use super::state;

/// What earlier attempts of a copy have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// There were none, or the last ended well.
    Nothing,
    /// What was begun and did not come to its end.
    Begun,
    /// All but some names, at the end.
    Lacking,
}

impl Left {
    /// Whether the next attempt, an `update` or not, is to compare what is there. What came to its end and lacks some names has left no others that
    /// look as they should and are not: an update need not.
    pub(crate) const fn asks_to_compare(self, update: bool) -> bool {
        match self {
            Self::Nothing => false,
            Self::Begun => true,
            Self::Lacking => !update,
        }
    }
}

/// The mark of one command, beside those of others that copy from and to the same places.
#[derive(Debug)]
pub(crate) struct Mark {
    path: Option<PathBuf>,
    /// How the names of all these begin.
    copy: String,
    /// Locked while the command runs.
    file: Option<File>,
}

impl Mark {
    /// The mark of the command that `names` name.
    pub(crate) fn of(names: Names) -> Self {
        Self::within(state::directory().map(|directory| directory.join("unfinished")), names)
    }

    fn within(directory: Option<PathBuf>, names: Names) -> Self {
        let [copy, command] = [names.key, names.command].map(u128::from_be_bytes);
        let copy = format!("{copy:032x}-");
        let path = directory.map(|directory| directory.join(format!("{copy}{command:032x}")));
        Self { path, copy, file: None }
    }

    /// What earlier attempts have left.
    pub(crate) fn left(&self) -> Left {
        // One that says nothing was begun, too: its disk was full.
        match self.path.as_ref().map(fs::read) {
            Some(Ok(said)) if said == LACKING => Left::Lacking,
            Some(Ok(_)) => Left::Begun,
            Some(Err(_)) | None => Left::Nothing,
        }
    }

    /// The marks of commands that select otherwise from the same places and were broken off: what they left may be selected now.
    pub(crate) fn of_others(&self) -> Vec<Other> {
        let directory = self.path.as_ref().and_then(|path| path.parent());
        let marks = directory.into_iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten();
        let is_other = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&self.copy) && Some(path) != self.path.as_ref()
        };
        marks.filter_map(|entry| Some(entry.ok()?.path())).filter(is_other).filter_map(Other::of).collect()
    }

    /// It is begun.
    pub(crate) fn set(&mut self) {
        let Some((path, directory)) = self.path.as_ref().and_then(|path| Some((path, path.parent()?))) else {
            return;
        };
        // Where this cannot be done the next attempt sends a round trip's worth again, and an update trusts what looks as it should.
        let _ = fs::create_dir_all(directory);
        // Locked before it says anything: of others what is empty says nothing.
        self.file = locked(path).ok();
        self.write(BEGUN);
        forget_old(directory);
    }

    /// It came to its end, and some names were not copied.
    pub(crate) fn lacks_names(&self) {
        self.write(LACKING);
    }

    fn write(&self, said: &[u8]) {
        if let Some(file) = &self.file {
            // What it said stays where there is no room for more.
            let _ = file.write_all_at(said, 0).and_then(|()| file.set_len(said.len() as u64));
        }
    }

    /// It has ended well.
    pub(crate) fn clear(&self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// The mark of another command that was broken off.
#[derive(Debug)]
pub(crate) struct Other {
    path: PathBuf,
    at: Option<SystemTime>,
}

impl Other {
    /// The one at `path`, where it was broken off and does not run.
    fn of(path: PathBuf) -> Option<Self> {
        // Over NFS only who may write may lock.
        let file = File::options().read(true).write(true).open(&path).ok()?;
        // Not as who runs has it: several may look at a time.
        let runs = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        let is_begun = fs::read(&path).is_ok_and(|said| !said.is_empty() && said != LACKING);
        (!runs && is_begun).then(|| Self { at: changed(&file), path })
    }

    /// What it left is among what has ended well: it is forgotten, unless it was begun again meanwhile.
    pub(crate) fn clear(&self) {
        let Ok(file) = File::options().read(true).write(true).open(&self.path) else { return };
        let runs = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if !runs && changed(&file) == self.at {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn changed(file: &File) -> Option<SystemTime> {
    file.metadata().and_then(|found| found.modified()).ok()
}

/// The file at `path`, made where there is none, and locked, unless the same command runs already.
fn locked(path: &Path) -> io::Result<File> {
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = open()?;
    for _ in 0..MOST_TRIES {
        match file.try_lock() {
            // Whoever only looks has it for no time at all.
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            Err(TryLockError::Error(_)) => break,
            Ok(()) => {
                let place = |found: Metadata| (found.dev(), found.ino());
                // The command before may have ended and taken it away meanwhile.
                if fs::metadata(path)
                    .is_ok_and(|found| file.metadata().is_ok_and(|its| place(its) == place(found)))
                {
                    break;
                }
                file = open()?;
            }
        }
    }
    Ok(file)
}

/// Forgets what nobody has taken up for a long time, and hardly will.
fn forget_old(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let begun = entry.metadata().and_then(|found| found.modified()).ok();
        if begun.and_then(|begun| begun.elapsed().ok()).is_some_and(|age| age > LONG_AGO) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// What the mark of a copy says that was begun.
const BEGUN: &[u8] = b"begun\n";

/// How often a mark is tried to be locked: of the same command that runs already it is not.
const MOST_TRIES: u32 = 20;

/// What the mark of a copy says that came to its end.
const LACKING: &[u8] = b"names are lacking\n";

/// Longer than any copy takes, and than most disks keep a partial file.
const LONG_AGO: Duration = Duration::from_secs(90 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn names(copy: u8, command: u8) -> Names {
        Names { key: [copy; 16], command: [command; 16] }
    }

    #[test]
    fn another_selection_that_was_broken_off_is_known_of_and_one_that_runs_is_not() {
        let directory = std::env::temp_dir().join(format!("farlink-others-{}", std::process::id()));
        let mark = |copy, command| Mark::within(Some(directory.clone()), names(copy, command));
        assert!(mark(0, 0).of_others().is_empty());
        let mut running = mark(0, 1);
        running.set();
        assert!(mark(0, 0).of_others().is_empty());
        assert!(mark(0, 1).of_others().is_empty());
        let path = running.path.clone().unwrap();
        drop(running);
        let [broken_off] = &mark(0, 0).of_others()[..] else { panic!() };
        assert_eq!(broken_off.path, path);
        let mut again = mark(0, 1);
        again.set();
        broken_off.clear();
        assert_eq!(again.left(), Left::Begun, "it runs");
        drop(again);
        mark(0, 0).of_others()[0].clear();
        assert_eq!(mark(0, 1).left(), Left::Nothing);
        mark(0, 1).set();
        assert!(mark(0, 1).of_others().is_empty(), "its own is no other's");
        assert!(mark(1, 0).of_others().is_empty(), "of other places");
        let mut ended = mark(0, 1);
        ended.set();
        ended.lacks_names();
        drop(ended);
        assert!(mark(0, 0).of_others().is_empty(), "it came to its end");
        // Its own that says nothing, as on a disk that is full, was begun; of another that was not seen to.
        fs::write(mark(0, 1).path.unwrap(), "").unwrap();
        assert_eq!((mark(0, 1).left(), mark(0, 0).of_others().len()), (Left::Begun, 0));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_nobody_took_up_in_a_season_is_forgotten() {
        let directory = std::env::temp_dir().join(format!("farlink-unfinished-{}", std::process::id()));
        let mark = |command: u8| Mark::within(Some(directory.clone()), names(0, command));
        mark(0).set();
        let old = File::options().write(true).open(mark(0).path.unwrap()).unwrap();
        old.set_modified(SystemTime::now() - LONG_AGO * 2).unwrap();
        mark(1).set();
        mark(2).set();
        let left = [0, 1, 2].map(|command| mark(command).left());
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(left, [Left::Nothing, Left::Begun, Left::Begun]);
    }

    #[test]
    fn an_update_compares_what_did_not_come_to_its_end() {
        let directory = std::env::temp_dir().join(format!("farlink-lacking-{}", std::process::id()));
        let mut mark = Mark::within(Some(directory.clone()), names(0, 0));
        let asks = |mark: &Mark| [false, true].map(|update| mark.left().asks_to_compare(update));
        assert_eq!(asks(&mark), [false, false]);
        mark.set();
        assert_eq!(asks(&mark), [true, true]);
        mark.lacks_names();
        assert_eq!(asks(&mark), [true, false]);
        // Begun anew.
        mark.set();
        assert_eq!(asks(&mark), [true, true]);
        mark.clear();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(asks(&mark), [false, false]);
    }
}
