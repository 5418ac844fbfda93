//! What is copied from: a walk of the trees that were asked for, and the files that it finds.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

use farlink_host::beneath::{
    Directory, Links, Names, Node, Status, Tree, is_link_in_the_way, leads_out, status_of,
};
use farlink_host::sparse::{self, Extents};
use farlink_wire::entry::{Entry, Kind, Metadata};
use farlink_wire::message::copy::Lack;
use farlink_wire::path::{RelativePath, readable};

use super::filter::Filter;
use super::pattern;
use super::target::is_unfinished;

pub use path::{SourcePath, SourcePathError};
pub(in crate::copy) use path::{absolute, plain};

mod listed;
mod once;
mod path;

use listed::{Listed, Next};
use once::{Once, Turn};

/// Directories that sources are beneath, of which each may have some fifty more open.
const MOST_TREES: usize = 500;

/// Why something is not copied that could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// No directory is copied into itself.
    #[error("it is the destination")]
    Destination,
    /// Nor is a source, of which then nothing is copied.
    #[error("it is the destination: name another")]
    Source,
    /// Nothing is copied from the directory that it is copied to: it is there.
    #[error("it would be copied onto itself")]
    OntoItself,
    /// One name has one source.
    #[error("an earlier source has something of this name")]
    Later,
    /// A copy to this place is under way, or was broken off.
    #[error(
        "it is of a copy to this place that is not finished (to copy it all the same, name it as a source)"
    )]
    Unfinished,
}

impl LeftOut {
    /// In what way its name is not there.
    #[must_use]
    pub const fn lack(self) -> Lack {
        match self {
            Self::Destination | Self::OntoItself | Self::Unfinished => Lack::Skipped,
            Self::Later => Lack::Later,
            Self::Source => Lack::Failed,
        }
    }
}

/// What a walk comes upon.
#[derive(Debug)]
pub enum Found {
    /// A file, a directory or a symbolic link. A directory comes before what is in it.
    Entry(Entry, Handle),
    /// What is never copied.
    Skipped {
        /// Its name, as the receiver would have it.
        path: RelativePath,
        /// What it is.
        what: Node,
    },
    /// What is not copied although it could be.
    LeftOut {
        /// Its name, as the receiver would have it.
        path: RelativePath,
        /// Why.
        why: LeftOut,
    },
    /// What could not be looked at. The walk goes on behind it.
    Failed {
        /// Its name, as the receiver would have it; of what has none, of what it is in.
        path: RelativePath,
        /// In what way.
        lack: Lack,
        /// Why.
        error: SourceError,
    },
}

/// A walk through sources, one after the other, depth first, the names of a directory in the order of their bytes.
///
/// It looks no further than it is asked: what it holds is a list of names for each level of depth, and a few open directories.
/// Symbolic links are found, and never followed but for those in the path of a source itself. Of what several sources have under the same
/// name, the first that has it is found, as rsync has it; to know that takes 16 bytes a name, where sources can have the same ones.
#[derive(Debug)]
pub struct Walk<'f> {
    /// Each beneath the root of this host, or of what a peer may read.
    sources: VecDeque<(Arc<Directory>, SourcePath)>,
    once: Once,
    filter: &'f Filter,
    /// The source that is walked through, readable.
    shown: String,
    tree: Option<Arc<Tree>>,
    /// Those that may be open.
    trees: Vec<Weak<Tree>>,
    /// What the last source was beneath, its directory there, and its tree: of a shell's pattern all names have one.
    last: Option<(Arc<Directory>, Vec<u8>, Arc<Tree>)>,
    /// What of it is to be looked at, where that is listed.
    listed: Option<Listed>,
    levels: Vec<Level>,
    over: Option<Over<'f>>,
}

/// Says whether nobody waits any more for what a walk finds.
struct Over<'f>(&'f dyn Fn() -> bool);

impl std::fmt::Debug for Over<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Over").finish_non_exhaustive()
    }
}

/// A directory that is being walked through.
#[derive(Debug)]
struct Level {
    path: RelativePath,
    /// Whether it was found itself, rather than merged with one of an earlier source.
    is_news: bool,
    names: Names,
    next: usize,
}

impl<'f> Walk<'f> {
    /// Walks `sources`, which are paths, each beneath a directory: the root of this host, or of what a peer may read.
    #[must_use]
    pub fn new(sources: &[(Arc<Directory>, SourcePath)], filter: &'f Filter) -> Self {
        let once = Once::new(sources.iter().map(|(_, source)| source));
        let sources = sources.iter().cloned().collect();
        let (shown, levels) = (String::new(), Vec::new());
        Self {
            sources,
            once,
            filter,
            shown,
            tree: None,
            trees: Vec::new(),
            last: None,
            listed: None,
            levels,
            over: None,
        }
    }

    /// Ends when `over` says so, which is asked before each name, also of those that the filter leaves out.
    #[must_use]
    pub fn until(self, over: &'f dyn Fn() -> bool) -> Self {
        Self { over: Some(Over(over)), ..self }
    }

    /// What `source` stands for comes next, each by itself.
    fn expand(&mut self, base: &Arc<Directory>, source: &SourcePath) -> Option<Found> {
        let over = || self.over.as_ref().is_some_and(|Over(over)| over());
        let failed = |error| Found::Failed {
            path: source.split().1.and_then(|name| RelativePath::new(name).ok()).unwrap_or_default(),
            lack: Lack::Failed,
            error: SourceError::new("list", source.to_string(), error),
        };
        let meant = pattern::expand(base, source.as_bytes(), &over).and_then(|meant| {
            let paths = meant.into_iter().map(SourcePath::new).collect::<Result<Vec<_>, _>>();
            paths.map_err(io::Error::other)
        });
        match meant {
            Ok(meant) => {
                let meant = meant.into_iter().rev().map(|path| (Arc::clone(base), path));
                meant.for_each(|source| self.sources.push_front(source));
                None
            }
            Err(error) => Some(failed(error)),
        }
    }

    /// Whether very many directories that sources are beneath are open, for what was found there.
    pub(super) fn has_many_open(&mut self) -> bool {
        if self.trees.len() > MOST_TREES {
            self.trees.retain(|tree| tree.strong_count() > 0);
        }
        self.trees.len() > MOST_TREES
    }

    /// The next thing of a source that was not yet looked at.
    fn begin(&mut self, base: &Arc<Directory>, source: &SourcePath) -> Option<Found> {
        let (directory, name) = source.split();
        self.shown = source.to_string();
        let failed = |error| Found::Failed {
            path: name.and_then(|name| RelativePath::new(name).ok()).unwrap_or_default(),
            lack: Lack::Failed,
            error: SourceError::new("open", source.to_string(), error),
        };
        let last = self.last.take().filter(|(its, path, _)| Arc::ptr_eq(its, base) && path == directory);
        let tree = match last.map_or_else(
            || base.open_dir(directory, Links::Follow).map(|top| Arc::new(Tree::new(top))),
            |(_, _, tree)| Ok(tree),
        ) {
            Ok(tree) => tree,
            Err(error) => return Some(failed(error)),
        };
        self.last = Some((Arc::clone(base), directory.to_vec(), Arc::clone(&tree)));
        if self.trees.last().is_none_or(|last| !std::ptr::eq(last.as_ptr(), Arc::as_ptr(&tree))) {
            self.trees.push(Arc::downgrade(&tree));
        }
        self.tree = Some(Arc::clone(&tree));
        let is_onto_itself = tree.top().own_status().is_ok_and(|top| self.filter.is_destination(&top));
        let Some(name) = name else {
            if is_onto_itself {
                let why = self.claim(&tree, RelativePath::root(), true);
                return Some(Found::LeftOut { path: RelativePath::root(), why });
            }
            let found = match tree.top().own_status() {
                Ok(status) => self.found(&tree, RelativePath::root(), status),
                Err(error) => Some(failed(error)),
            };
            self.listed = self.filter.names().map(Listed::new);
            if self.listed.is_some() {
                self.levels.clear();
            }
            return found;
        };
        let path = match RelativePath::new(name) {
            Ok(path) => path,
            Err(error) => return Some(failed(io::Error::new(io::ErrorKind::InvalidFilename, error))),
        };
        match tree.top().status(name) {
            Ok(status) if status.node == Node::Directory && self.filter.is_destination(&status) => {
                Some(Found::LeftOut { path, why: LeftOut::Source })
            }
            Ok(status) if is_onto_itself || self.filter.is_destination(&status) => {
                let why = self.claim(&tree, path.clone(), status.node == Node::Directory);
                Some(Found::LeftOut { path, why })
            }
            Ok(status) => self
                .filter
                .admits(&path, status.node == Node::Directory)
                .then(|| self.found(&tree, path, status))
                .flatten(),
            Err(error) => Some(failed(error)),
        }
    }

    /// What stays where it is has its names, also those beneath it: what later sources have of these must not take its place. Why it stays there:
    /// an earlier source may have its name.
    fn claim(&mut self, tree: &Tree, path: RelativePath, is_directory: bool) -> LeftOut {
        let mut why = LeftOut::OntoItself;
        let first = path.clone();
        let mut open = vec![(path, is_directory)];
        while let Some((path, is_directory)) = open.pop() {
            if !self.once.is_shared(&path) || self.over.as_ref().is_some_and(|Over(over)| over()) {
                return why;
            }
            if self.once.turn(&path, is_directory) == Turn::Later && path == first {
                why = LeftOut::Later;
            }
            if !is_directory {
                continue;
            }
            // What cannot be looked at cannot be replaced either.
            let Ok(directory) = tree.directory(&path) else { continue };
            let names = directory.list().unwrap_or_default();
            open.extend(names.iter().filter_map(|name| {
                let path = path.join(name).ok()?;
                let is_directory = directory.status(name).ok()?.node == Node::Directory;
                self.filter.admits(&path, is_directory).then_some((path, is_directory))
            }));
        }
        why
    }

    /// The next thing of those that were listed, or of what they are in; `None` behind the last.
    fn look_at_listed(&mut self, tree: &Arc<Tree>) -> Option<Found> {
        loop {
            let next = self.listed.as_mut()?.next()?;
            let (Next::Above(path) | Next::Name(path)) = &next;
            if path.is_root() {
                // It was found before.
                self.levels.push(Level {
                    path: path.clone(),
                    is_news: true,
                    names: Names::default(),
                    next: UNREAD,
                });
                return None;
            }
            let status = tree.parent(path).and_then(|found| match found {
                Some((directory, name)) => directory.status(name),
                None => Err(io::ErrorKind::InvalidInput.into()),
            });
            match (status, &next) {
                (Ok(status), _) if !self.filter.admits(path, status.node == Node::Directory) => {
                    if let (Next::Above(_), Some(listed)) = (&next, &mut self.listed) {
                        listed.leave_out(path);
                    }
                }
                (Ok(status), Next::Above(_)) if status.node == Node::Directory => {
                    let found = self.found(tree, path.clone(), status);
                    self.levels.clear();
                    if let Some(Found::LeftOut { why: LeftOut::Destination, .. }) = &found
                        && let Some(listed) = &mut self.listed
                    {
                        // Nor what is listed beneath it.
                        listed.leave_out(path);
                    }
                    if found.is_some() {
                        return found;
                    }
                }
                // What is beneath it fails, and says why.
                (_, Next::Above(_)) => {}
                (Ok(status), Next::Name(_)) => return self.found(tree, path.clone(), status),
                (Err(error), Next::Name(_)) => {
                    return Some(self.failed("look at", path.clone(), Lack::Failed, error));
                }
            }
        }
    }

    /// The next thing in the innermost directory; `None` where the filter leaves it out.
    fn look(&mut self, tree: &Arc<Tree>, within: &RelativePath, name: &[u8]) -> Option<Found> {
        let path = match within.join(name) {
            Ok(path) => path,
            Err(error) => {
                let source = io::Error::new(io::ErrorKind::InvalidFilename, error);
                let error = SourceError::new("copy", readable(name), source);
                return Some(Found::Failed { path: within.clone(), lack: Lack::Failed, error });
            }
        };
        let status = tree.directory(within).and_then(|directory| directory.status(name));
        match status {
            Ok(status) if !self.filter.admits(&path, status.node == Node::Directory) => None,
            Ok(status) if status.node == Node::File && is_unfinished(name) => {
                Some(Found::LeftOut { path, why: LeftOut::Unfinished })
            }
            Ok(status) => self.found(tree, path, status),
            Err(error) => Some(self.failed("look at", path, Lack::Failed, error)),
        }
    }

    /// What has this status; `None` for a directory that is merged with one of an earlier source.
    fn found(&mut self, tree: &Arc<Tree>, path: RelativePath, status: Status) -> Option<Found> {
        let is_dir = status.node == Node::Directory;
        if is_dir && !path.is_root() && self.filter.is_destination(&status) {
            return Some(Found::LeftOut { path, why: LeftOut::Destination });
        }
        let turn = self.once.turn(&path, is_dir);
        if turn == Turn::Later {
            return Some(Found::LeftOut { path, why: LeftOut::Later });
        }
        let kind = match status.node {
            Node::File => Kind::File { size: status.size },
            Node::Directory => {
                let is_news = turn == Turn::First;
                let level = Level { path: path.clone(), is_news, names: Names::default(), next: UNREAD };
                self.levels.push(level);
                Kind::Directory
            }
            Node::Symlink => match read_link(tree, &path) {
                Ok(target) => Kind::Symlink { target },
                Err(error) => return Some(self.failed("read the symbolic link", path, Lack::Failed, error)),
            },
            what @ (Node::Fifo | Node::Socket | Node::Device) => {
                return Some(Found::Skipped { path, what });
            }
        };
        let metadata =
            Metadata { mode: status.mode_of_a_copy(), mtime_s: status.mtime_s, mtime_ns: status.mtime_ns };
        let handle = Handle { tree: Arc::clone(tree), path: path.clone(), status };
        (turn == Turn::First).then(|| Found::Entry(Entry { path, kind, metadata }, handle))
    }

    fn failed(&self, attempt: &'static str, path: RelativePath, lack: Lack, source: io::Error) -> Found {
        // What is in a directory that was asked for has no name for that.
        let shown = if path.is_root() { self.shown.clone() } else { path.to_string() };
        Found::Failed { path, lack, error: SourceError::new(attempt, shown, source) }
    }
}

impl Iterator for Walk<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            if self.over.as_ref().is_some_and(|over| over.0()) {
                return None;
            }
            let Some(tree) = self.tree.clone() else {
                let (base, source) = self.sources.pop_front()?;
                let found = if source.is_pattern() {
                    self.expand(&base, &source)
                } else {
                    self.begin(&base, &source)
                };
                if let Some(found) = found {
                    return Some(found);
                }
                continue;
            };
            let Some(level) = self.levels.last_mut() else {
                let found = self.look_at_listed(&tree);
                if found.is_none() && self.levels.is_empty() {
                    tree.forget();
                    self.tree = None;
                }
                match found {
                    None => continue,
                    found => return found,
                }
            };
            if level.next == UNREAD {
                level.next = 0;
                match tree.directory(&level.path).and_then(|directory| directory.list()) {
                    Ok(names) => level.names = names,
                    Err(error) => {
                        let path = std::mem::take(&mut level.path);
                        let lack = if level.is_news { Lack::Unfinished } else { Lack::Failed };
                        self.levels.pop();
                        return Some(self.failed("list", path, lack, error));
                    }
                }
            }
            // Taken out for the moment, as what is found may be another level.
            let Some(mut level) = self.levels.pop() else { continue };
            let Some(name) = level.names.at(level.next) else { continue };
            level.next += 1;
            let at = self.levels.len();
            let found = self.look(&tree, &level.path, name);
            self.levels.insert(at, level);
            if found.is_some() {
                return found;
            }
        }
    }
}

fn read_link(tree: &Tree, path: &RelativePath) -> io::Result<Vec<u8>> {
    let (directory, name) = tree.parent(path)?.ok_or(io::ErrorKind::InvalidInput)?;
    directory.read_link(name)
}

/// Something that a walk found, to be opened when its turn comes. It holds no descriptor of its own.
#[derive(Clone, Debug)]
pub struct Handle {
    tree: Arc<Tree>,
    path: RelativePath,
    status: Status,
}

impl Handle {
    /// Whether it is a file that may have holes.
    #[must_use]
    pub const fn is_sparse(&self) -> bool {
        self.status.is_sparse()
    }

    /// Its name, as the receiver has it.
    #[must_use]
    pub const fn path(&self) -> &RelativePath {
        &self.path
    }

    /// As the walk found it.
    #[must_use]
    pub const fn status(&self) -> &Status {
        &self.status
    }

    /// Opens the regular file.
    ///
    /// # Errors
    /// [`SourceError`], also where it is not the file any more that the walk found.
    pub fn open(&self) -> Result<SourceFile, SourceError> {
        let opened = || {
            let (directory, name) = self.tree.parent(&self.path)?.ok_or(io::ErrorKind::IsADirectory)?;
            let file = directory.open_read(name)?;
            if status_of(&file)?.is_same_file(&self.status) {
                return Ok(file);
            }
            Err(io::Error::other("another file has its name now"))
        };
        let file = opened().map_err(|source| self.error("open", source))?;
        Ok(SourceFile { file, handle: self.clone() })
    }

    fn error(&self, attempt: &'static str, source: io::Error) -> SourceError {
        SourceError::new(attempt, self.path.to_string(), source)
    }
}

/// An open file that is copied. Any thread may read any part of it.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    handle: Handle,
}

impl SourceFile {
    /// The file itself.
    #[must_use]
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Bytes, as the walk found it.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.handle.status.size
    }

    /// Reads from `offset` until `buffer` is full or the file ends; returns how much it was.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, SourceError> {
        sparse::read_at(&self.file, offset, buffer).map_err(|source| self.handle.error("read", source))
    }

    /// Where it may have anything but zeros, ascending.
    pub fn data_extents(&self) -> impl Iterator<Item = io::Result<Range<u64>>> {
        Extents::new(&self.file, self.size())
    }

    /// Whether it is as the walk found it: what was read in between is then the file as it was at one time, as far as size and
    /// modification time can tell.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn is_unchanged(&self) -> io::Result<bool> {
        let (now, then) = (status_of(&self.file)?, &self.handle.status);
        let same_time = (now.mtime_s, now.mtime_ns) == (then.mtime_s, then.mtime_ns);
        Ok(now.is_same_file(then) && now.size == then.size && same_time)
    }
}

/// What could not be done with a source.
#[derive(Debug, thiserror::Error)]
#[error("{attempt} {path}")]
pub struct SourceError {
    /// What was tried.
    pub attempt: &'static str,
    /// With what, readable.
    pub path: String,
    /// As the kernel said it.
    pub source: io::Error,
}

impl SourceError {
    fn new(attempt: &'static str, path: String, source: io::Error) -> Self {
        let source = match source {
            // The kernel's words speak of something else.
            out if leads_out(&out) => io::Error::other("it leads out of the directory that may be read"),
            link if is_link_in_the_way(&link) => {
                io::Error::other("a symbolic link has taken its place, or is in the way")
            }
            other => other,
        };
        Self { attempt, path, source }
    }
}

/// Stands in `Level::next` for a directory whose names were not yet asked for.
const UNREAD: usize = usize::MAX;

#[cfg(test)]
mod tests;
