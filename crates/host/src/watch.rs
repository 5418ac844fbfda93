//! Files that appear in a directory: inotify(7), for a whole tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::libc;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use nix::sys::signal::{SigHandler, Signal, signal};

use crate::whereabouts::{Whereabouts, is_gone};

/// Watches a directory, and every directory beneath it.
#[derive(Debug)]
pub struct Watcher {
    inotify: Inotify,
    top: PathBuf,
    /// Which directory the top was.
    whereabouts: Whereabouts,
    /// Directories, from the top's own path on.
    directories: BTreeMap<WatchDescriptor, PathBuf>,
    /// Those that could not be watched from the beginning, until that is said.
    refused: Vec<(PathBuf, String)>,
    /// All that happened before has been read.
    drained: SystemTime,
}

/// What was known before a directory is looked through again.
struct Before {
    /// The directories that were watched.
    directories: BTreeMap<WatchDescriptor, PathBuf>,
    /// What was complete in them by then has been told.
    drained: SystemTime,
}

/// What has appeared since it was asked before.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Appeared {
    /// Files that were closed after somebody wrote to them, or that were moved, or linked, to where they are: paths beneath the top, in the
    /// order in which that happened, none of them twice.
    pub files: Vec<PathBuf>,
    /// Files that were made, and of which it is not known whether anything more is told: where one is being written, and has had another name
    /// before, the kernel tells that name when it is complete, or none.
    pub begun: Vec<PathBuf>,
    /// Directories in which files may have appeared that are not among these, and why.
    pub missed: Vec<(PathBuf, String)>,
    /// Whether the top is no more, or is elsewhere: nothing more comes from there.
    pub is_over: bool,
}

impl Watcher {
    /// Watches `top`. Names that begin with a dot are passed over, as those of files that are not complete often do. Directories beneath it
    /// that cannot be watched are among what is [missed](Appeared::missed) first.
    ///
    /// # Errors
    /// The kernel's: no such directory, no right to read it, or more directories than one user may watch
    /// (`fs.inotify.max_user_watches`).
    pub fn new(top: &Path) -> io::Result<Self> {
        // Whoever opens a file for writing while this looks whether somebody does, has that said by it.
        // SAFETY: to ignore a signal runs no code of ours.
        unsafe { signal(Signal::SIGIO, SigHandler::SigIgn) }?;
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let (directories, refused, drained) = (BTreeMap::new(), Vec::new(), SystemTime::now());
        let whereabouts = Whereabouts::of(top)?;
        let mut watcher = Self { inotify, top: top.to_owned(), whereabouts, directories, refused, drained };
        let mut missed = Vec::new();
        watcher.enter(Path::new(""), None, &mut |_| {}, &mut missed)?;
        if let Some(none_left) = missed.iter().position(|(_, error)| is_out_of_watches(error)) {
            return Err(missed.swap_remove(none_left).1);
        }
        watcher.refused = missed.into_iter().map(named).collect();
        Ok(watcher)
    }

    /// The directory.
    #[must_use]
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Whether the directory has its path still, as far as can be told. That one was removed in which somebody has a file open the kernel tells
    /// once that is closed.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.whereabouts.is_there()
    }

    /// What has appeared; does not wait for anything.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self) -> io::Result<Appeared> {
        let mut appeared = Appeared { missed: std::mem::take(&mut self.refused), ..Appeared::default() };
        let (mut seen, mut overflowed) = (BTreeSet::new(), false);
        loop {
            let now = SystemTime::now();
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => {
                    if overflowed {
                        // Once, however often: what happens meanwhile is read next time.
                        let before = appeared.files.len();
                        self.look_again(&mut appeared);
                        let new = appeared.files.split_off(before);
                        appeared.files.extend(new.into_iter().filter(|path| seen.insert(path.clone())));
                    }
                    self.drained = now;
                    return Ok(appeared);
                }
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            for event in events {
                // More changed at once than the kernel keeps (fs.inotify.max_queued_events).
                overflowed |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                let before = appeared.files.len();
                self.take(&event, &mut appeared);
                let new = appeared.files.split_off(before);
                appeared.files.extend(new.into_iter().filter(|path| seen.insert(path.clone())));
            }
        }
    }

    fn take(&mut self, event: &InotifyEvent, appeared: &mut Appeared) {
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            let gone = self.directories.remove(&event.wd);
            appeared.is_over |= gone.is_some_and(|path| path.as_os_str().is_empty());
            return;
        }
        // Of the top alone: what is in it has other paths now.
        if event.mask.contains(AddWatchFlags::IN_MOVE_SELF) {
            appeared.is_over = true;
            return;
        }
        let (Some(directory), Some(name)) = (self.directories.get(&event.wd), &event.name) else { return };
        if is_hidden(name) {
            return;
        }
        let path = directory.join(name);
        if !event.mask.contains(AddWatchFlags::IN_ISDIR) {
            let is_complete =
                event.mask.intersects(AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO);
            if is_complete || is_complete_from_the_beginning(&self.top.join(&path)) {
                appeared.files.push(path);
            } else if event.mask.contains(AddWatchFlags::IN_CREATE) {
                appeared.begun.push(path);
            }
        } else if event.mask.intersects(AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO) {
            let (mut files, mut missed) = (Vec::new(), Vec::new());
            self.enter_child(&path, None, &mut |file| files.push(file), &mut missed);
            appeared.files.append(&mut files);
            appeared.missed.extend(missed.into_iter().map(named));
        } else if event.mask.contains(AddWatchFlags::IN_MOVED_FROM) {
            self.leave(&path);
        }
    }

    /// Looks the top through for what the kernel did not tell: directories that are not watched, or have other paths, and files that are
    /// newer than what was told before.
    fn look_again(&mut self, appeared: &mut Appeared) {
        let directories = std::mem::take(&mut self.directories);
        let before = Before { directories, drained: self.drained };
        let (mut files, mut missed) = (Vec::new(), Vec::new());
        if let Err(error) =
            self.enter(Path::new(""), Some(&before), &mut |file| files.push(file), &mut missed)
        {
            appeared.is_over |= is_gone(&error);
            appeared.missed.push((self.top.clone(), error.to_string()));
        }
        for (watch, path) in &before.directories {
            if !self.directories.contains_key(watch) {
                // Another directory has the top's path, or none.
                appeared.is_over |= path.as_os_str().is_empty();
                let _ = self.inotify.rm_watch(*watch);
            }
        }
        if appeared.is_over {
            // What was found is not what was watched.
            return;
        }
        appeared.files.append(&mut files);
        appeared.missed.extend(missed.into_iter().map(named));
    }

    /// Watches a directory and those beneath it no longer: they have another path, or are not beneath the top any more.
    fn leave(&mut self, directory: &Path) {
        let beneath = |(_, path): &(&WatchDescriptor, &PathBuf)| path.starts_with(directory);
        let watches: Vec<_> = self.directories.iter().filter(beneath).map(|(watch, _)| *watch).collect();
        for watch in watches {
            self.directories.remove(&watch);
            // It may have been removed since.
            let _ = self.inotify.rm_watch(watch);
        }
    }

    /// As [`Self::enter`], of a directory that may be gone, or refused, while those beside it are not.
    fn enter_child(
        &mut self,
        directory: &Path,
        before: Option<&Before>,
        tell: &mut dyn FnMut(PathBuf),
        missed: &mut Vec<Missed>,
    ) {
        if let Err(error) = self.enter(directory, before, tell, missed)
            && !is_gone(&error)
        {
            missed.push((self.top.join(directory), error));
        }
    }

    /// Watches a directory and those beneath it, and says which files are complete in them, and of what beneath it that cannot be said. Of
    /// directories that were watched `before` it says those that are new.
    fn enter(
        &mut self,
        directory: &Path,
        before: Option<&Before>,
        tell: &mut dyn FnMut(PathBuf),
        missed: &mut Vec<Missed>,
    ) -> io::Result<()> {
        let mut mask = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_ONLYDIR;
        if directory.as_os_str().is_empty() {
            mask |= AddWatchFlags::IN_MOVE_SELF;
        }
        let at = self.top.join(directory);
        let watch = self.inotify.add_watch(&at, mask)?;
        self.directories.insert(watch, directory.to_owned());
        let told =
            before.filter(|before| before.directories.get(&watch).is_some_and(|path| path == directory));
        let is_new = |entry: &fs::DirEntry| told.is_none_or(|before| is_changed_since(entry, before.drained));
        // What comes from now on is told by the kernel.
        let (mut entries, mut unread) = (Vec::new(), None);
        for entry in fs::read_dir(&at)? {
            match entry {
                Ok(entry) => entries.push(entry),
                Err(error) => unread = Some(error),
            }
        }
        missed.extend(unread.map(|error| (at, error)));
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries.iter().filter(|entry| !is_hidden(&entry.file_name())) {
            let path = directory.join(entry.file_name());
            let kind = match entry.file_type() {
                Ok(kind) => kind,
                Err(error) if is_gone(&error) => continue,
                Err(error) => {
                    missed.push((self.top.join(path), error));
                    continue;
                }
            };
            if kind.is_dir() {
                self.enter_child(&path, before, tell, missed);
            } else if kind.is_file()
                && is_new(entry)
                && !File::open(entry.path()).is_ok_and(|file| is_written(&file))
            {
                tell(path);
            }
        }
        Ok(())
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// A directory beneath the top that is not watched, or a file of which it is not known whether it is one, and why.
type Missed = (PathBuf, io::Error);

fn named((path, error): Missed) -> (PathBuf, String) {
    (path, error.to_string())
}

/// Whether what was created there is not to be written first: a symbolic link, or another name of a file. Where somebody writes to that still, the
/// kernel tells it of the name that it has there alone. The name that it had before may be gone by now: then it is one to which nobody writes.
fn is_complete_from_the_beginning(path: &Path) -> bool {
    let has_no_writer = || File::open(path).is_ok_and(|file| has_writer(&file) == Some(false));
    fs::symlink_metadata(path).is_ok_and(|metadata| {
        // An empty one may have been made just now, by who has yet to open it for writing.
        let may_be_whole = || metadata.len() > 0 && has_no_writer();
        metadata.is_symlink() || metadata.is_file() && (metadata.nlink() > 1 || may_be_whole())
    })
}

/// Whether there are more directories than one user may watch: then the next one is refused as well.
fn is_out_of_watches(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSPC)
}

/// Whether a file was written, or moved to where it is, since then. Where that cannot be told it was.
fn is_changed_since(entry: &fs::DirEntry, time: SystemTime) -> bool {
    // The clock may have been set back.
    let time = time.min(SystemTime::now()) - COARSE;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let changed = entry.metadata().map(|metadata| (metadata.ctime(), metadata.ctime_nsec()));
    changed.map_or(true, |changed| changed >= (since.as_secs() as i64, since.subsec_nanos().into()))
}

/// How far the time that a file has may be behind the clock: a tick of 10 ms, or two seconds on old file systems. What was told within it is
/// told again.
const COARSE: Duration = Duration::from_secs(2);

fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// Whether somebody has a file open for writing, which is open for reading. Where that cannot be told, nobody has.
#[must_use]
pub fn is_written(file: &File) -> bool {
    has_writer(file) == Some(true)
}

/// The same, by whether there is a read lease (fcntl(2)); `None` where that cannot be told, as of another user's file, or over the network.
#[must_use]
pub fn has_writer(file: &File) -> Option<bool> {
    let lease = |kind: libc::c_int| {
        // SAFETY: the descriptor is open for the whole call, which takes an integer.
        let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
        Errno::result(status)
    };
    match lease(libc::F_RDLCK) {
        Ok(_) => {
            let _ = lease(libc::F_UNLCK);
            Some(false)
        }
        Err(Errno::EAGAIN) => Some(true),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A directory of its own, that is removed with this.
    struct Top(PathBuf);

    impl Top {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("farlink-watch-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Top {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn read(watcher: &mut Watcher) -> Vec<String> {
        let appeared = watcher.read().unwrap();
        assert_eq!(appeared.missed, []);
        appeared.files.iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_appears_when_it_is_complete() {
        let top = Top::new("file");
        fs::write(top.0.join("old"), "before").unwrap();
        let mut watcher = Watcher::new(&top.0).unwrap();
        let mut file = File::create(top.0.join("new")).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(read(&mut watcher), [""; 0]);
        drop(file);
        fs::write(top.0.join(".hidden"), "part").unwrap();
        fs::rename(top.0.join(".hidden"), top.0.join("moved")).unwrap();
        assert_eq!(read(&mut watcher), ["new", "moved"]);
    }

    #[test]
    fn another_name_of_a_complete_file_appears_and_so_does_a_symbolic_link() {
        let top = Top::new("links");
        let mut watcher = Watcher::new(&top.0).unwrap();
        fs::write(top.0.join(".part"), "whole").unwrap();
        fs::hard_link(top.0.join(".part"), top.0.join("linked")).unwrap();
        std::os::unix::fs::symlink("linked", top.0.join("symbolic")).unwrap();
        let half = File::create(top.0.join("half")).unwrap();
        // As who publishes a file that must not replace another: by the time that it is looked at it has one name alone.
        fs::write(top.0.join(".only"), "whole").unwrap();
        fs::hard_link(top.0.join(".only"), top.0.join("only")).unwrap();
        fs::remove_file(top.0.join(".only")).unwrap();
        assert_eq!(read(&mut watcher), ["linked", "symbolic", "only"]);
        drop(half);
        assert_eq!(read(&mut watcher), ["half"]);
    }

    #[test]
    fn directories_are_watched_as_they_come() {
        let top = Top::new("tree");
        fs::create_dir(top.0.join("there")).unwrap();
        let mut watcher = Watcher::new(&top.0).unwrap();
        fs::create_dir_all(top.0.join("a/b")).unwrap();
        fs::write(top.0.join("a/b/one"), "1").unwrap();
        fs::write(top.0.join("there/two"), "2").unwrap();
        let half = File::create(top.0.join("a/half")).unwrap();
        assert_eq!(read(&mut watcher), ["a/b/one", "there/two"]);
        drop(half);
        fs::write(top.0.join("a/b/one"), "again").unwrap();
        assert_eq!(read(&mut watcher), ["a/half", "a/b/one"]);
    }

    #[test]
    fn a_directory_that_vanishes_while_its_parent_is_looked_through_hides_nothing_beside_it() {
        let top = Top::new("vanishes");
        let at = |path: &str| top.0.join(path);
        let mut watcher = Watcher::new(&top.0).unwrap();
        fs::create_dir_all(at("new/b")).unwrap();
        fs::create_dir_all(at("new/d")).unwrap();
        for file in ["new/a", "new/c", "new/d/e"] {
            fs::write(at(file), "whole").unwrap();
        }
        let (mut told, mut missed) = (Vec::new(), Vec::new());
        let mut tell = |file: PathBuf| {
            let _ = fs::remove_dir(at("new/b"));
            told.push(file);
        };
        watcher.enter(Path::new("new"), None, &mut tell, &mut missed).unwrap();
        assert_eq!(told, ["new/a", "new/c", "new/d/e"].map(PathBuf::from));
        assert!(missed.is_empty());
    }

    #[test]
    fn a_directory_that_cannot_be_watched_is_named_and_the_others_are_watched() {
        let top = Top::new("refused");
        let at = |path: &str| top.0.join(path);
        // The superuser may read everything, but no path of more than 4095 bytes.
        let (long, mut deep) = ("n".repeat(250), at("tree/deep"));
        while deep.as_os_str().len() < 3700 {
            deep.push(&long);
        }
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir_all(at("b").join(&long).join(&long)).unwrap();
        fs::rename(at("b"), deep.join("b")).unwrap();
        fs::create_dir(at("tree/z")).unwrap();
        fs::write(at("tree/y"), "whole").unwrap();
        for is_there in [true, false] {
            if !is_there {
                fs::rename(at("tree"), at(".tree")).unwrap();
            }
            let mut watcher = Watcher::new(&top.0).unwrap();
            if !is_there {
                fs::rename(at(".tree"), at("tree")).unwrap();
            }
            let appeared = watcher.read().unwrap();
            let [(path, _)] = &appeared.missed[..] else { panic!("{:?}", appeared.missed) };
            assert!(path.starts_with(deep.join("b")));
            let expected: &[PathBuf] = if is_there { &[] } else { &[PathBuf::from("tree/y")] };
            assert_eq!(appeared.files, expected);
            fs::write(at("tree/z/later"), "whole").unwrap();
            assert_eq!(read(&mut watcher), ["tree/z/later"]);
            fs::remove_file(at("tree/z/later")).unwrap();
        }
    }

    /// Has more happen in a directory than the kernel keeps.
    fn overflow(directory: &Path) {
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let [one, two] = [".one", ".two"].map(|name| directory.join(name));
        fs::write(&one, "").unwrap();
        for _ in 0..most.trim().parse::<u32>().unwrap() / 4 + 10 {
            fs::rename(&one, &two).unwrap();
            fs::rename(&two, &one).unwrap();
        }
    }

    #[test]
    fn what_happened_after_more_than_the_kernel_keeps_is_found() {
        let (top, beside) = (Top::new("overflow"), Top::new("overflow-beside"));
        let at = |path: &str| top.0.join(path);
        fs::create_dir_all(at("there/deep")).unwrap();
        for file in ["old", "there/old", "there/deep/old"] {
            fs::write(at(file), "before").unwrap();
        }
        fs::create_dir(at("leaves")).unwrap();
        std::thread::sleep(2 * COARSE);
        let mut watcher = Watcher::new(&top.0).unwrap();
        fs::write(at("told"), "whole").unwrap();
        overflow(&top.0);
        fs::write(at("there/new"), "whole").unwrap();
        fs::write(at("old"), "again").unwrap();
        fs::create_dir(at("made")).unwrap();
        fs::write(at("made/inside"), "whole").unwrap();
        fs::write(beside.0.join("part"), "older").unwrap();
        fs::rename(beside.0.join("part"), at("moved")).unwrap();
        fs::rename(at("there/deep"), at("deep")).unwrap();
        fs::rename(at("leaves"), beside.0.join("leaves")).unwrap();
        let half = File::create(at("half")).unwrap();
        let mut found = read(&mut watcher);
        assert_eq!(found.remove(0), "told");
        found.sort_unstable();
        assert_eq!(found, ["deep/old", "made/inside", "moved", "old", "there/new"]);
        // From now on it is told by the kernel again.
        drop(half);
        for path in ["made/later", "deep/later", "there/later"] {
            fs::write(at(path), "whole").unwrap();
        }
        fs::write(beside.0.join("leaves/theirs"), "").unwrap();
        assert_eq!(read(&mut watcher), ["half", "made/later", "deep/later", "there/later"]);
    }

    #[test]
    fn a_top_that_left_unheard_is_over() {
        for is_made_again in [false, true] {
            let top = Top::new("unheard");
            let inner = top.0.join("inner");
            fs::create_dir(&inner).unwrap();
            let mut watcher = Watcher::new(&inner).unwrap();
            overflow(&inner);
            fs::rename(&inner, top.0.join("elsewhere")).unwrap();
            if is_made_again {
                fs::create_dir(&inner).unwrap();
                fs::write(inner.join("x"), "whole").unwrap();
            }
            let appeared = watcher.read().unwrap();
            assert!(appeared.is_over && appeared.files.is_empty(), "{appeared:?}");
        }
    }

    #[test]
    fn it_says_when_the_top_is_gone() {
        let top = Top::new("gone");
        let inner = top.0.join("inner");
        fs::create_dir(&inner).unwrap();
        let mut watcher = Watcher::new(&inner).unwrap();
        fs::remove_dir(&inner).unwrap();
        assert!(watcher.read().unwrap().is_over);
        assert!(Watcher::new(&inner).is_err());
    }
    #[test]
    fn it_says_when_the_top_is_elsewhere() {
        let top = Top::new("elsewhere");
        let inner = top.0.join("inner");
        fs::create_dir(&inner).unwrap();
        let mut watcher = Watcher::new(&inner).unwrap();
        fs::rename(&inner, top.0.join("moved")).unwrap();
        fs::create_dir(&inner).unwrap();
        assert!(watcher.read().unwrap().is_over);
    }

    #[test]
    fn what_is_in_a_directory_that_was_moved_has_its_new_path_or_none() {
        let (top, beside) = (Top::new("moved"), Top::new("beside"));
        let at = |path: &str| top.0.join(path);
        fs::create_dir_all(at("a/deep")).unwrap();
        fs::create_dir_all(at("ab")).unwrap();
        let mut watcher = Watcher::new(&top.0).unwrap();
        // Out of the tree, and another in its place.
        fs::rename(at("a"), beside.0.join("a")).unwrap();
        fs::create_dir_all(at("a/deep")).unwrap();
        assert_eq!(read(&mut watcher), [""; 0]);
        fs::write(beside.0.join("a/deep/theirs"), "").unwrap();
        fs::write(beside.0.join("a/theirs"), "").unwrap();
        fs::write(at("a/deep/ours"), "").unwrap();
        assert_eq!(read(&mut watcher), ["a/deep/ours"]);
        // Within it: what was there is there under another name.
        fs::rename(at("a"), at("b")).unwrap();
        fs::write(at("b/deep/new"), "").unwrap();
        fs::write(at("ab/one"), "").unwrap();
        assert_eq!(read(&mut watcher), ["b/deep/new", "b/deep/ours", "ab/one"]);
        fs::write(at("b/deep/new"), "again").unwrap();
        assert_eq!(read(&mut watcher), ["b/deep/new"]);
    }
}
