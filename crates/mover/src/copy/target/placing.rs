//! Where an entry belongs: what the destination is, and the names beneath it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use farlink_host::beneath::{Directory, Links, Node, Tree};
use farlink_wire::entry::{Entry, Kind};
use farlink_wire::path::{RelativePath, readable};

use super::{Asked, TargetError, TargetOptions};

/// A destination as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Beneath the root of what may be written. It is the user's own word: it may lead through links and `..`.
    pub path: Vec<u8>,
    /// Whether it must be a directory, whatever it looks like: there are several sources, or what is in a directory is copied.
    pub several: bool,
    /// What stands before `path` where it is told of: the root of what may be written, as far as the path leads through it.
    pub above: Vec<u8>,
}

/// The destination: a directory, or where its name only tells that it may be one, undecided until the first entry comes.
#[derive(Debug)]
pub(super) struct Placing {
    /// What the destination is in, and its name there; `None` where it was found as a directory.
    outer: Option<(Arc<Directory>, Vec<u8>)>,
    inside: OnceLock<Tree>,
    /// What the whole path of the destination is beneath.
    containment: Arc<Directory>,
    path: Vec<u8>,
    several: bool,
    /// Whether it can only be a directory.
    is_directory: bool,
    /// Whether it was made here, and whether anything was ever to be in it: otherwise it is nobody's wish, and goes again.
    is_made: AtomicBool,
    is_wanted: AtomicBool,
    shown: String,
    /// Permission bits of directories that are missing on the way to an entry.
    parents: u16,
    asked: Option<Arc<Asked>>,
}

/// Where one entry belongs.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) directory: Arc<Directory>,
    pub(super) name: Vec<u8>,
    /// The whole path, readable.
    pub(super) shown: String,
}

impl Placing {
    pub(super) fn open(
        containment: &Arc<Directory>,
        destination: &Destination,
        options: &TargetOptions,
    ) -> Result<Self, TargetError> {
        let told = |path: &[u8]| readable(&[&destination.above, path].concat());
        let shown = told(&destination.path);
        let start = destination.path.iter().position(|byte| *byte != b'/').unwrap_or(destination.path.len());
        let path = &destination.path[start..];
        let path = &path[..path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1)];
        let name = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (parent, name) = path.split_at(name);
        // A name that stands for a directory cannot be given to anything else.
        let is_directory =
            destination.several || destination.path.ends_with(b"/") || matches!(name, b"" | b"." | b"..");
        let several = destination.several;
        let placing = |outer| Self {
            outer,
            inside: OnceLock::new(),
            containment: Arc::clone(containment),
            path: path.to_vec(),
            several,
            is_directory,
            is_made: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            shown: shown.clone(),
            parents: options.parents,
            asked: options.asked.clone(),
        };
        match containment.open_dir(path, Links::Follow) {
            Ok(found) => {
                let placing = placing(None);
                let _ = placing.inside.set(Tree::new(found));
                return Ok(placing);
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory && is_directory => {
                return Err(TargetError::FileInTheWay { path: shown });
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(TargetError::of("open", shown, error)),
        }
        let outer = containment.open_dir(parent, Links::Follow).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let missing = told(&destination.path[..start + parent.len()]);
                TargetError::NoParent { directory: missing.trim_end_matches('/').to_owned() }
            }
            _ => TargetError::of("open", told(&destination.path[..start + parent.len()]), error),
        })?;
        Ok(placing(Some((Arc::new(outer), name.to_vec()))))
    }

    /// Makes the destination, where it can only be a directory.
    pub(super) fn begin(&self) -> Result<(), TargetError> {
        if self.is_directory { self.become_directory().map(drop) } else { Ok(()) }
    }

    /// The destination, where it is a directory by now.
    pub(super) fn tree(&self) -> Option<&Tree> {
        self.inside.get()
    }

    /// Whether there are several sources, or what is in a directory is copied: then the destination may be one of those that are said.
    pub(super) const fn is_several(&self) -> bool {
        self.several
    }

    /// The destination, readable.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Where `entry`, which is not the destination itself, belongs. What is missing on the way is made.
    pub(super) fn place(&self, entry: &Entry) -> Result<Place, TargetError> {
        self.expect(entry)?;
        if self.inside.get().is_none()
            && let Some(itself) = self.as_itself(&entry.path, entry.kind == Kind::Directory)
        {
            return Ok(itself);
        }
        let tree = self.become_directory()?;
        let shown = self.show(&entry.path);
        let failed = |error| TargetError::of("reach", shown.clone(), error);
        let found = match tree.parent(&entry.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_parents(tree, &entry.path, self.parents).map_err(failed)?;
                tree.parent(&entry.path).map_err(failed)?
            }
            found => found.map_err(failed)?,
        };
        match found {
            Some((directory, name)) => Ok(Place { directory, name: name.to_vec(), shown }),
            None => Err(TargetError::DirectoryInTheWay { path: shown }),
        }
    }

    /// The destination itself, where that was not found as a directory and `path` can go there.
    fn as_itself(&self, path: &RelativePath, is_directory: bool) -> Option<Place> {
        let (outer, name) = self.outer.as_ref()?;
        let is_it = !is_directory && !self.is_directory && path.components().count() == 1;
        is_it.then(|| Place { directory: Arc::clone(outer), name: name.clone(), shown: self.shown.clone() })
    }

    /// Where `path` is, or nothing where it is in no directory yet: nothing is made.
    pub(super) fn look(&self, path: &RelativePath, is_directory: bool) -> Result<Option<Place>, TargetError> {
        let Some(tree) = self.inside.get() else {
            let itself = self.as_itself(path, is_directory);
            if itself.is_none() {
                self.check_is_free()?;
            }
            return Ok(itself);
        };
        let shown = self.show(path);
        match tree.parent(path) {
            Ok(found) => Ok(found.map(|(directory, name)| Place { directory, name: name.to_vec(), shown })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(TargetError::of("reach", shown, error)),
        }
    }

    /// Checks that nothing stands in the place of a destination that is to be a directory, and was not found as one.
    fn check_is_free(&self) -> Result<(), TargetError> {
        let Some((outer, name)) = &self.outer else { return Ok(()) };
        let path = self.shown.clone();
        let error = match outer.status(name).map(|status| status.node) {
            Err(_) | Ok(Node::Directory) => return Ok(()),
            Ok(Node::Symlink) => TargetError::LinkInTheWay { path },
            Ok(_) => TargetError::FileInTheWay { path },
        };
        Err(TargetError::Destination(Box::new(error)))
    }

    /// The destination as a directory, which it becomes where it was not decided.
    pub(super) fn become_directory(&self) -> Result<&Tree, TargetError> {
        if let Some(tree) = self.inside.get() {
            return Ok(tree);
        }
        let failed = |error| {
            TargetError::Destination(Box::new(TargetError::of(
                "make the directory",
                self.shown.clone(),
                error,
            )))
        };
        // Without an outer directory it was found as one, and `inside` was set.
        let (outer, name) = self.outer.as_ref().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        match outer.make_dir(name, 0o777) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            Err(_) => {}
            Ok(()) => self.is_made.store(true, Ordering::Relaxed),
        }
        let opened = outer.open_dir(name, Links::Refuse).map_err(failed)?;
        Ok(self.inside.get_or_init(|| Tree::new(opened)))
    }

    /// Removes the destination again, where it was made for what never came.
    pub(super) fn withdraw(&self) {
        if let Some((outer, name)) = &self.outer
            && !self.is_wanted.load(Ordering::Relaxed)
            && self.is_made.swap(false, Ordering::Relaxed)
        {
            let _ = outer.remove_dir(name);
        }
    }

    /// Checks that the path of the destination, where that is a directory, leads there still: what is put in it otherwise is where nobody looks
    /// for it.
    pub(super) fn check_is_there(&self) -> Result<(), TargetError> {
        let Some(tree) = self.inside.get() else { return Ok(()) };
        let is_gone = |error: &io::Error| {
            let gone = [
                io::ErrorKind::NotFound,
                io::ErrorKind::NotADirectory,
                // Removed on a server of files, of which its clients were not told.
                io::ErrorKind::StaleNetworkFileHandle,
            ];
            gone.contains(&error.kind())
        };
        let found = self.containment.open_dir(&self.path, Links::Follow);
        let is_there = match found.and_then(|found| Ok((found.own_status()?, tree.top().own_status()?))) {
            Ok((found, ours)) => found.is_same_file(&ours),
            Err(error) => !is_gone(&error),
        };
        if is_there { Ok(()) } else { Err(TargetError::Moved { path: self.shown.clone() }) }
    }

    /// Checks that `entry` was asked for.
    pub(super) fn expect(&self, entry: &Entry) -> Result<(), TargetError> {
        if self.asked.as_ref().is_none_or(|asked| asked.has(entry)) {
            self.is_wanted.store(true, Ordering::Relaxed);
            return Ok(());
        }
        Err(TargetError::Unexpected { path: entry.path.to_string() })
    }

    /// `path` behind the destination, readable.
    pub(super) fn show(&self, path: &RelativePath) -> String {
        match self.shown.as_str() {
            shown if path.is_root() => shown.to_owned(),
            "" | "." => path.to_string(),
            shown => format!("{}/{path}", shown.trim_end_matches('/')),
        }
    }

    /// Waits until the destination is on the disk: its names, and its own where we gave it.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.inside.get().map_or(Ok(()), |tree| tree.top().sync())?;
        self.outer.as_ref().map_or(Ok(()), |(outer, _)| outer.sync())
    }

    /// Lets go of directories that are held open and may be gone.
    pub(super) fn forget(&self) {
        if let Some(tree) = self.inside.get() {
            tree.forget();
        }
    }

    /// Calls `visit` with the directory that the destination is, or is in, and with each of `paths` beneath it that is there.
    pub(super) fn each_directory(
        &self,
        paths: impl Iterator<Item = RelativePath>,
        mut visit: impl FnMut(&Directory),
    ) {
        match (self.inside.get(), &self.outer) {
            (Some(tree), _) => {
                visit(tree.top());
                let below = paths.filter(|path| !path.is_root());
                below.filter_map(|path| tree.directory(&path).ok()).for_each(|directory| visit(&directory));
            }
            (None, Some((outer, _))) => visit(outer),
            (None, None) => {}
        }
    }
}

/// Makes what is missing of the directories that `path` is in.
fn make_parents(tree: &Tree, path: &RelativePath, mode: u16) -> io::Result<()> {
    tree.forget();
    let mut reached = RelativePath::root();
    let Some(parent) = path.parent() else { return Ok(()) };
    for name in parent.components() {
        let within = tree.directory(&reached)?;
        match within.make_dir(name, mode) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        reached =
            reached.join(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidFilename, error))?;
    }
    Ok(())
}
