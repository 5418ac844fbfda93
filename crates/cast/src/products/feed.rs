//! A directory whose files are sent as they appear.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farlink_host::beneath::{Directory, Status, is_link_in_the_way, is_out_of_descriptors, status_of};
use farlink_host::clock::monotonic;
use farlink_host::watch::{Watcher, has_writer, is_written};
use farlink_mover::copy::source::SourcePath;
use farlink_wire::path::{PathError, RelativePath};
use farlink_wire::quantity::Nanos;

use super::NotSent;
use super::place::{Place, Top};
use super::source::is_unchanged;

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
    /// Names of which what there is now is to be sent in the place of what could not be sent any more. Those that do not wait are being written:
    /// the kernel tells when they are complete.
    replacing: HashSet<Arc<Path>>,
    /// Those that have got a turn without a word of the kernel's, since that had one last.
    looked_again: HashSet<Arc<Path>>,
    /// When it is looked next whether those are being written still: where one was renamed meanwhile, or has several names, the kernel tells
    /// another name.
    looks_at: Nanos,
    /// Those that were made and not complete by then, and whether nobody was writing to them when it was looked last. Mostly the kernel
    /// tells when they are.
    begun: HashMap<Arc<Path>, bool>,
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
    /// Nothing to send, though it cannot be read, or was to be sent in the place of another: receivers have neither.
    Lacking {
        name: RelativePath,
        reason: String,
    },
    /// It is gone again, as one that has another name until it is complete.
    Nothing,
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
        Ok(Self {
            watcher: Some(watcher),
            top,
            prefix,
            appeared: VecDeque::new(),
            waiting: HashSet::new(),
            replacing: HashSet::new(),
            looked_again: HashSet::new(),
            looks_at: Nanos::ZERO,
            begun: HashMap::new(),
            most: MOST_WAITING,
        })
    }

    /// What becomes readable when something appears.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watcher.as_ref().map(Watcher::as_fd)
    }

    /// Something has appeared.
    pub(super) fn notice(&mut self, tell: &mut dyn FnMut(NotSent)) {
        let Some(watcher) = &mut self.watcher else { return };
        let failed = |path: &Path, reason| NotSent { path: path.display().to_string(), reason, failed: true };
        let (read, top) = (watcher.read(), &watcher.top().to_owned());
        match read {
            Ok(appeared) => {
                let room = MOST_WAITING.saturating_sub(self.begun.len());
                self.begun.extend(appeared.begun.into_iter().take(room).map(|path| (Arc::from(path), false)));
                for path in appeared.files.into_iter().map(Arc::<Path>::from) {
                    self.looked_again.remove(&path);
                    self.begun.remove(&path);
                    self.have_wait(path);
                }
                for (path, reason) in appeared.missed {
                    tell(failed(&path, reason));
                }
                if appeared.is_over {
                    tell(failed(top, OVER.to_owned()));
                    self.end();
                }
            }
            Err(error) => {
                tell(failed(top, format!("watch it: {error}")));
                self.end();
            }
        }
        self.forget_what_is_gone();
    }

    /// Has a name wait for its turn, once.
    fn have_wait(&mut self, path: Arc<Path>) {
        if self.waiting.insert(Arc::clone(&path)) {
            self.appeared.push_back(path);
        }
    }

    /// Nothing more appears, nor is any file complete that is being written.
    fn end(&mut self) {
        self.watcher = None;
        let unheard: Vec<_> = self.replacing.difference(&self.waiting).cloned().collect();
        unheard.into_iter().for_each(|path| self.have_wait(path));
        // There is no other look.
        self.begun.values_mut().for_each(|is_at_rest| *is_at_rest = true);
        self.look_at_begun();
        self.begun = HashMap::new();
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
        self.end();
    }

    /// How many files have appeared and had no turn.
    pub(super) fn waiting(&self) -> usize {
        let is_lacking = |path: &Arc<Path>| match self.look(path) {
            Some(Seen::Nothing) => self.replacing.contains(path),
            Some(Seen::NotSent(lack)) => lack.failed || self.replacing.contains(path),
            Some(Seen::File { .. } | Seen::Lacking { .. }) | None => true,
        };
        self.appeared.iter().filter(|path| is_lacking(path)).count()
    }

    /// Whether nothing more is to appear, and everything that has was looked at.
    pub(super) fn has_ceased(&self) -> bool {
        self.watcher.is_none() && self.appeared.is_empty()
    }

    /// Whether what is under the name of a file now is to be sent in its place: it has still its turn to come, or is being written, or gets a
    /// turn, as it is not what it was `then`. Of the last the kernel says nothing, as where somebody sets its time when it is complete.
    pub(super) fn replaces(&mut self, place: &Place, then: &Status) -> bool {
        self.is_replaced(&place.path, |now| !is_unchanged(now, then))
    }

    /// The same of a file that was `name`d, and may be in here: where it is, it is the same file, or another is to come under its name.
    pub(super) fn replaces_named(&mut self, name: &RelativePath, then: &Status) -> bool {
        let Some(path) = self.path_of(name) else { return false };
        self.is_replaced(&path, |now| now.is_same_file(then) && !is_unchanged(now, then))
    }

    fn is_replaced(&mut self, path: &Arc<Path>, is_changed: impl Fn(&Status) -> bool) -> bool {
        let is_to_come = self.waiting.contains(path) || self.replacing.contains(path);
        let replaces = is_to_come || self.looks_again_at(path, is_changed);
        if replaces {
            self.replacing.insert(Arc::clone(path));
        }
        replaces
    }

    /// Has a name wait for a turn of which the kernel said nothing, once until it does, where there `is_changed` a file.
    fn looks_again_at(&mut self, path: &Arc<Path>, is_changed: impl Fn(&Status) -> bool) -> bool {
        let looks = self.watcher.is_some()
            && !self.looked_again.contains(path)
            && matches!(self.look(path), Some(Seen::File { status, .. }) if is_changed(&status));
        if looks {
            if self.looked_again.len() >= MOST_WAITING {
                self.looked_again.clear();
            }
            self.looked_again.insert(Arc::clone(path));
            self.have_wait(Arc::clone(path));
        }
        looks
    }

    /// Where a file of that name would be in here.
    fn path_of(&self, name: &RelativePath) -> Option<Arc<Path>> {
        let name = Path::new(OsStr::from_bytes(name.as_bytes()));
        let path = name.strip_prefix(OsStr::from_bytes(self.prefix.as_bytes())).ok()?;
        Some(Arc::from(path))
    }

    /// What there is under the next name that appeared; `None` where there is none now, or no descriptor to look at it.
    pub(super) fn next(&mut self) -> Option<Seen> {
        if self.appeared.is_empty()
            && let Some(over) = self.look_after()
        {
            return Some(over);
        }
        let path = self.appeared.pop_front()?;
        let Some(seen) = self.look(&path) else {
            self.appeared.push_front(path);
            return None;
        };
        self.waiting.remove(&path);
        if !self.replacing.contains(&path) {
            return Some(match (seen, self.name_of(&path)) {
                // Receivers are told, too, that they lack it.
                (Seen::NotSent(NotSent { failed: true, reason, .. }), Ok(name)) => {
                    Seen::Lacking { name, reason }
                }
                (seen, _) => seen,
            });
        }
        if self.watcher.is_some() && matches!(&seen, Seen::File { file, .. } if is_written(file)) {
            return Some(Seen::Nothing);
        }
        self.replacing.remove(&path);
        let reason = match &seen {
            Seen::File { .. } => return Some(seen),
            Seen::NotSent(NotSent { failed: true, reason, .. }) => reason.clone(),
            _ => REPLACED.to_owned(),
        };
        // A product has had the name.
        Some(self.name_of(&path).map_or(seen, |name| Seen::Lacking { name, reason }))
    }

    /// Has those wait again, now and then, that were being written and are not any more; says that the directory is gone, where it is.
    pub(super) fn look_after(&mut self) -> Option<Seen> {
        let now = monotonic();
        if now < self.looks_at {
            return None;
        }
        self.looks_at = now.after(NOW_AND_THEN);
        let is_at_rest = |path: &&Arc<Path>| !matches!(self.look(path), Some(Seen::File { file, .. }) if is_written(&file));
        let at_rest: Vec<_> = self.replacing.difference(&self.waiting).filter(is_at_rest).cloned().collect();
        at_rest.into_iter().for_each(|path| self.have_wait(path));
        self.look_at_begun();
        let gone = self.watcher.as_ref().filter(|watcher| !watcher.is_there())?;
        let path = gone.top().display().to_string();
        self.end();
        Some(Seen::NotSent(NotSent { path, reason: OVER.to_owned(), failed: true }))
    }

    /// Has those wait that were made and that nobody writes to any more, in two looks: by the second the kernel has told what it tells.
    fn look_at_begun(&mut self) {
        for (path, was_at_rest) in std::mem::take(&mut self.begun) {
            let is_written = match self.look(&path) {
                Some(Seen::File { file, .. }) => has_writer(&file),
                Some(_) => None,
                // There may be a descriptor the next time.
                None => Some(true),
            };
            match is_written {
                Some(false) if was_at_rest => self.have_wait(path),
                Some(is_written) => {
                    self.begun.insert(path, !is_written);
                }
                // It is gone, or only the kernel knows.
                None => {}
            }
        }
    }

    /// What receivers call it.
    fn name_of(&self, path: &Path) -> Result<RelativePath, PathError> {
        path.iter().try_fold(self.prefix.clone(), |within, name| within.join(name.as_bytes()))
    }

    fn look(&self, path: &Arc<Path>) -> Option<Seen> {
        let name = match self.name_of(path) {
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

/// How often files are looked at that are being written.
const NOW_AND_THEN: Nanos = Nanos(1_000_000_000);

/// Names that may wait without a look at whether there are such files: some 15 MB, and a look of tenths of a second.
const MOST_WAITING: usize = if cfg!(test) { 8 } else { 65_536 };

const REPLACED: &str =
    "it was replaced before all receivers had it, and what was to be sent in its place is no file any more";

const OVER: &str = "it was moved or removed while it was watched: nothing that appears under its name now is sent; \
                    this session ends, watch it in another";

#[cfg(test)]
mod tests;
