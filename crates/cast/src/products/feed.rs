//! A directory whose files are sent as they appear.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farlink_host::beneath::{Directory, Links, Status, is_link_in_the_way, is_out_of_descriptors, status_of};
use farlink_host::watch::Watcher;
use farlink_mover::copy::source::SourcePath;
use farlink_wire::path::RelativePath;

use super::NotSent;

/// A directory that is watched, and what appeared in it and was not looked at.
pub(super) struct Feed {
    /// None where nothing more is to appear.
    watcher: Option<Watcher>,
    top: Arc<Top>,
    /// What names at the receiver begin with.
    prefix: RelativePath,
    /// In the order in which it appeared, none of it twice: what it is like is found when its turn comes.
    appeared: VecDeque<Arc<Path>>,
    waiting: HashSet<Arc<Path>>,
    /// Names of which what there is now is to be sent in the place of what could not be sent any more.
    replacing: HashSet<Arc<Path>>,
    /// How many may wait before it is looked which of them are there still.
    most: usize,
}

/// What there is under a name that appeared.
#[derive(Debug)]
pub(super) enum Seen {
    /// A file, which is open.
    File {
        name: RelativePath,
        place: Place,
        file: File,
        status: Status,
    },
    NotSent(NotSent),
    /// It is gone again, as one that has another name until it is complete.
    Nothing,
}

/// A file beneath the directory that is watched.
#[derive(Clone, Debug)]
pub(super) struct Place {
    top: Arc<Top>,
    path: Arc<Path>,
}

/// The directory itself, by the one that it is in and its name there. Held open it could not be seen to be removed: inotify(7) tells of that
/// when nobody has it any more.
#[derive(Debug)]
struct Top {
    within: Directory,
    name: PathBuf,
}

impl Feed {
    /// Watches `source`, an absolute path.
    ///
    /// # Errors
    /// Why it cannot be watched.
    pub(super) fn new(source: &SourcePath) -> Result<Self, String> {
        let real = source.to_path().canonicalize().map_err(|error| error.to_string())?;
        let (above, name) = match (real.parent(), real.file_name()) {
            (Some(above), Some(name)) => (above, PathBuf::from(name)),
            _ => (&*real, PathBuf::new()),
        };
        let within = Directory::open(above).map_err(|error| format!("open {}: {error}", above.display()))?;
        let prefix =
            RelativePath::new(source.base_name().unwrap_or_default()).map_err(|error| error.to_string())?;
        let watcher = Watcher::new(&real).map_err(|error| error.to_string())?;
        let top = Arc::new(Top { within, name });
        let (appeared, waiting, replacing) = (VecDeque::new(), HashSet::new(), HashSet::new());
        Ok(Self { watcher: Some(watcher), top, prefix, appeared, waiting, replacing, most: MOST_WAITING })
    }

    /// What becomes readable when something appears.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watcher.as_ref().map(Watcher::as_fd)
    }

    /// Something has appeared.
    pub(super) fn notice(&mut self, tell: &mut dyn FnMut(NotSent)) {
        let Some(watcher) = &mut self.watcher else { return };
        let failed = |path: &Path, reason| NotSent { path: path.display().to_string(), reason, failed: true };
        match watcher.read() {
            Ok(appeared) => {
                for path in appeared.files.into_iter().map(Arc::<Path>::from) {
                    if self.waiting.insert(Arc::clone(&path)) {
                        self.appeared.push_back(path);
                    }
                }
                for (path, reason) in appeared.missed {
                    tell(failed(&path, reason));
                }
                if appeared.is_over {
                    tell(failed(watcher.top(), OVER.to_owned()));
                    self.watcher = None;
                }
            }
            Err(error) => {
                tell(failed(watcher.top(), format!("watch it: {error}")));
                self.watcher = None;
            }
        }
        self.forget_what_is_gone();
    }

    /// Where many wait, as there is nobody to have them: the names of files that were deleted meanwhile are not kept. So there are not
    /// many more than files.
    fn forget_what_is_gone(&mut self) {
        if self.appeared.len() <= self.most {
            return;
        }
        let mut appeared = std::mem::take(&mut self.appeared);
        appeared.retain(|path| {
            let is_there = self.replacing.contains(path) || !matches!(self.look(path), Some(Seen::Nothing));
            if !is_there {
                self.waiting.remove(path);
            }
            is_there
        });
        self.most = MOST_WAITING.max(2 * appeared.len());
        self.appeared = appeared;
    }

    /// Nothing more is to appear than what has by now.
    pub(super) fn cease(&mut self, tell: &mut dyn FnMut(NotSent)) {
        self.notice(tell);
        self.watcher = None;
    }

    /// How many files have appeared and had no turn.
    pub(super) fn waiting(&self) -> usize {
        let is_lacking = |path: &Arc<Path>| match self.look(path) {
            Some(Seen::Nothing) => self.replacing.contains(path),
            Some(Seen::NotSent(lack)) => lack.failed || self.replacing.contains(path),
            Some(Seen::File { .. }) | None => true,
        };
        self.appeared.iter().filter(|path| is_lacking(path)).count()
    }

    /// Whether nothing more is to appear, and everything that has was looked at.
    pub(super) fn has_ceased(&self) -> bool {
        self.watcher.is_none() && self.appeared.is_empty()
    }

    /// Whether what is under the name of a file now has still its turn to come: then it is to be sent in its place.
    pub(super) fn replaces(&mut self, place: &Place) -> bool {
        let replaces = self.waiting.contains(&place.path);
        if replaces {
            self.replacing.insert(Arc::clone(&place.path));
        }
        replaces
    }

    /// What there is under the next name that appeared; `None` where there is none now, or no descriptor to look at it.
    pub(super) fn next(&mut self) -> Option<Seen> {
        let path = self.appeared.pop_front()?;
        let Some(seen) = self.look(&path) else {
            self.appeared.push_front(path);
            return None;
        };
        self.waiting.remove(&path);
        let is_none = matches!(seen, Seen::Nothing | Seen::NotSent(NotSent { failed: false, .. }));
        Some(match self.replacing.remove(&path) && is_none {
            true => {
                Seen::NotSent(NotSent { path: self.shown(&path), reason: REPLACED.to_owned(), failed: true })
            }
            false => seen,
        })
    }

    /// What people call it.
    fn shown(&self, path: &Path) -> String {
        let named = path.iter().try_fold(self.prefix.clone(), |within, name| within.join(name.as_bytes()));
        named.map_or_else(|_| path.display().to_string(), |name| name.to_string())
    }

    fn look(&self, path: &Arc<Path>) -> Option<Seen> {
        let named = path.iter().try_fold(self.prefix.clone(), |within, name| within.join(name.as_bytes()));
        let name = match named {
            Ok(name) => name,
            Err(error) => {
                let path = path.display().to_string();
                return Some(Seen::NotSent(NotSent { path, reason: error.to_string(), failed: true }));
            }
        };
        let place = Place { top: Arc::clone(&self.top), path: Arc::clone(path) };
        let not_sent =
            |reason: String, failed| Some(Seen::NotSent(NotSent { path: name.to_string(), reason, failed }));
        match place.open().and_then(|file| Ok((status_of(&file)?, file))) {
            Ok((status, file)) => Some(Seen::File { name, place, file, status }),
            Err(error) if is_out_of_descriptors(&error) => None,
            // What it was in is no directory any more.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Some(Seen::Nothing)
            }
            Err(error) if is_link_in_the_way(&error) => not_sent("a symbolic link".to_owned(), false),
            // It says what it is.
            Err(error) if error.kind() == ErrorKind::InvalidInput => not_sent(error.to_string(), false),
            Err(error) => not_sent(format!("open it: {error}"), true),
        }
    }
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

/// Names that may wait without a look at whether there are such files: some 15 MB, and a look of tenths of a second.
const MOST_WAITING: usize = if cfg!(test) { 8 } else { 65_536 };

const REPLACED: &str =
    "it was replaced before all receivers had it, and what was to be sent in its place is no file any more";

const OVER: &str = "it was moved or removed while it was watched: nothing that appears under its name now is sent; \
                    end this session, and watch it in another";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;

    use super::*;

    /// A directory that is watched, and another beside it, which are gone when the test ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("feed-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("top")).unwrap();
            fs::create_dir_all(path.join("beside")).unwrap();
            Self(path)
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.join(path)
        }

        fn feed(&self, end: &str) -> Feed {
            let source = SourcePath::new(self.at(end).as_os_str().as_bytes()).unwrap();
            Feed::new(&source).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Names and contents of what appeared.
    fn seen(feed: &mut Feed) -> Vec<(String, String)> {
        feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
        let mut all = Vec::new();
        while let Some(seen) = feed.next() {
            match seen {
                Seen::File { name, mut file, status, place } => {
                    let mut content = String::new();
                    file.read_to_string(&mut content).unwrap();
                    assert_eq!(status.size, content.len() as u64);
                    assert!(status_of(&place.open().unwrap()).unwrap().is_same_file(&status));
                    all.push((name.to_string(), content));
                }
                Seen::NotSent(not_sent) => panic!("{not_sent:?}"),
                Seen::Nothing => {}
            }
        }
        all
    }

    fn pair(name: &str, content: &str) -> (String, String) {
        (name.to_owned(), content.to_owned())
    }

    #[test]
    fn the_names_of_files_that_are_gone_do_not_pile_up() {
        let scratch = Scratch::new("rotated");
        let mut feed = scratch.feed("top/");
        for number in 0..100 {
            let name = scratch.at(&format!("top/{number}"));
            fs::write(&name, "x").unwrap();
            feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
            if number % 50 > 0 {
                fs::remove_file(&name).unwrap();
            }
            assert!(feed.appeared.len() <= 9 && feed.waiting.len() == feed.appeared.len());
        }
        let names: Vec<_> = seen(&mut feed).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["0", "50"]);
    }

    #[test]
    fn a_file_has_the_name_that_a_walk_gives_it() {
        let scratch = Scratch::new("names");
        std::os::unix::fs::symlink("top", scratch.at("link")).unwrap();
        for (source, name) in [("top", "top/a/b"), ("top/", "a/b"), ("link", "link/a/b"), ("link/", "a/b")] {
            let mut feed = scratch.feed(source);
            fs::create_dir(scratch.at("top/a")).unwrap();
            fs::write(scratch.at("top/a/b"), "content").unwrap();
            assert_eq!(seen(&mut feed), [pair(name, "content")]);
            fs::remove_dir_all(scratch.at("top/a")).unwrap();
        }
    }

    #[test]
    fn a_directory_that_is_renamed_and_made_again_is_another_one() {
        let scratch = Scratch::new("again");
        fs::create_dir_all(scratch.at("top/a/b")).unwrap();
        let mut feed = scratch.feed("top");
        fs::write(scratch.at("top/a/b/x"), "old").unwrap();
        assert_eq!(seen(&mut feed), [pair("top/a/b/x", "old")]);
        for to in ["beside/a", "top/c"] {
            fs::rename(scratch.at("top/a"), scratch.at(to)).unwrap();
            fs::create_dir_all(scratch.at("top/a/b")).unwrap();
            assert!(seen(&mut feed).iter().all(|(name, _)| name.starts_with("top/c/")));
            fs::write(scratch.at("top/a/b/x"), format!("newer than {to}")).unwrap();
            fs::write(scratch.at("top/a/b/y"), "new").unwrap();
            let newer = pair("top/a/b/x", &format!("newer than {to}"));
            assert_eq!(seen(&mut feed), [newer, pair("top/a/b/y", "new")]);
        }
    }

    #[test]
    fn what_had_another_name_before_it_was_complete_is_no_failure() {
        let scratch = Scratch::new("part");
        let mut feed = scratch.feed("top");
        fs::create_dir(scratch.at("top/a")).unwrap();
        assert_eq!(seen(&mut feed), []);
        fs::write(scratch.at("top/a/x.part"), "content").unwrap();
        fs::rename(scratch.at("top/a/x.part"), scratch.at("top/a/x")).unwrap();
        // And where all of the directory was such.
        fs::write(scratch.at("top/a/y"), "more").unwrap();
        fs::rename(scratch.at("top/a"), scratch.at("top/b")).unwrap();
        fs::write(scratch.at("top/a"), "a file").unwrap();
        assert_eq!(
            seen(&mut feed),
            [pair("top/b/x", "content"), pair("top/b/y", "more"), pair("top/a", "a file")]
        );
    }

    #[test]
    fn what_was_finished_before_the_watching_was_ended_is_sent() {
        let scratch = Scratch::new("ended");
        let mut feed = scratch.feed("top");
        fs::write(scratch.at("top/x"), "content").unwrap();
        feed.cease(&mut |not_sent| panic!("{not_sent:?}"));
        fs::write(scratch.at("top/y"), "too late").unwrap();
        assert!(feed.watched().is_none() && !feed.has_ceased() && feed.waiting() == 1);
        assert_eq!(seen(&mut feed), [pair("top/x", "content")]);
        assert!(feed.has_ceased());
    }

    #[test]
    fn what_appears_again_before_its_turn_is_looked_at_once() {
        let scratch = Scratch::new("turns");
        let mut feed = scratch.feed("top");
        for content in ["one", "two", "three"] {
            fs::write(scratch.at("top/x"), content).unwrap();
            feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
        }
        assert_eq!((feed.appeared.len(), feed.waiting.len()), (1, 1));
        assert_eq!(seen(&mut feed), [pair("top/x", "three")]);
        assert!(feed.waiting.is_empty());
    }

    #[test]
    fn what_was_to_be_sent_in_the_place_of_another_and_is_gone_is_a_failure() {
        let scratch = Scratch::new("replacing");
        let mut feed = scratch.feed("top");
        let place = |feed: &mut Feed| {
            fs::write(scratch.at("top/x"), "one").unwrap();
            feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
            match feed.next() {
                Some(Seen::File { place, .. }) => place,
                other => panic!("{other:?}"),
            }
        };
        let its = place(&mut feed);
        assert!(!feed.replaces(&its));
        // One that waits, and is sent.
        fs::write(scratch.at("top/x"), "two").unwrap();
        feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
        assert!(feed.replaces(&its));
        assert_eq!(seen(&mut feed), [pair("top/x", "two")]);
        assert!(feed.replacing.is_empty());
        // One that waits, and is deleted before its turn.
        fs::write(scratch.at("top/x"), "two").unwrap();
        feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
        assert!(feed.replaces(&its));
        fs::remove_file(scratch.at("top/x")).unwrap();
        assert_eq!(feed.waiting(), 1);
        match feed.next() {
            Some(Seen::NotSent(not_sent)) => assert_eq!((&*not_sent.path, not_sent.failed), ("top/x", true)),
            other => panic!("{other:?}"),
        }
        assert!(feed.next().is_none() && feed.replacing.is_empty());
    }

    #[test]
    fn what_is_no_file_is_named() {
        let scratch = Scratch::new("kinds");
        let mut feed = scratch.feed("top");
        std::os::unix::fs::symlink("/etc/passwd", scratch.at("beside/link")).unwrap();
        fs::rename(scratch.at("beside/link"), scratch.at("top/link")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(scratch.at("beside/socket")).unwrap());
        fs::rename(scratch.at("beside/socket"), scratch.at("top/socket")).unwrap();
        feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
        for name in ["top/link", "top/socket"] {
            match feed.next() {
                Some(Seen::NotSent(not_sent)) => {
                    assert_eq!((&*not_sent.path, not_sent.failed), (name, false));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(feed.next().is_none());
    }

    #[test]
    fn a_top_that_is_moved_or_removed_ends_it_and_is_named() {
        for is_moved in [true, false] {
            let scratch = Scratch::new(if is_moved { "moved" } else { "removed" });
            let mut feed = scratch.feed("top");
            fs::write(scratch.at("top/x"), "content").unwrap();
            let looked_at = {
                feed.notice(&mut |not_sent| panic!("{not_sent:?}"));
                feed.next()
            };
            assert!(matches!(looked_at, Some(Seen::File { .. })));
            drop(looked_at);
            if is_moved {
                fs::rename(scratch.at("top"), scratch.at("beside/top")).unwrap();
            } else {
                fs::remove_dir_all(scratch.at("top")).unwrap();
            }
            fs::create_dir(scratch.at("top")).unwrap();
            let mut told = Vec::new();
            feed.notice(&mut |not_sent| told.push(not_sent));
            assert_eq!(told.len(), 1);
            let top = scratch.at("top").canonicalize().unwrap();
            assert_eq!((told[0].path.as_str(), told[0].failed), (top.to_str().unwrap(), true));
            assert!(told[0].reason.contains("moved or removed") && feed.has_ceased());
        }
    }
}
