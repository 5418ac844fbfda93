//! A directory and those beneath it, of which the last that were used stay open.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use farlink_wire::path::RelativePath;

use super::{Directory, Links};

/// A directory in which a peer names things.
///
/// Ten thousand files in one directory cost one resolution of it, not one each. A directory that stays open is the same directory when
/// somebody has put a link in the place of its name: what is written still goes to where it was.
#[derive(Debug)]
pub struct Tree {
    top: Arc<Directory>,
    /// The last used last.
    recent: Mutex<Vec<Recent>>,
}

#[derive(Debug)]
struct Recent {
    path: Box<[u8]>,
    directory: Arc<Directory>,
}

impl Tree {
    /// Directories that stay open: more than are worked in at once, far fewer than the 1024 files that a process may have open by default.
    pub const MOST_OPEN: usize = 48;

    /// The tree beneath `top`.
    #[must_use]
    pub fn new(top: Directory) -> Self {
        Self { top: Arc::new(top), recent: Mutex::default() }
    }

    /// The directory itself.
    #[must_use]
    pub const fn top(&self) -> &Arc<Directory> {
        &self.top
    }

    /// The directory `path`.
    ///
    /// # Errors
    /// As [`Directory::open_dir`], links refused.
    pub fn directory(&self, path: &RelativePath) -> io::Result<Arc<Directory>> {
        self.at(path.as_bytes())
    }

    /// The directory that `path` is in, and its name there; `None` of the directory itself.
    ///
    /// # Errors
    /// As [`Self::directory`].
    pub fn parent<'p>(&self, path: &'p RelativePath) -> io::Result<Option<(Arc<Directory>, &'p [u8])>> {
        let Some(name) = path.name() else { return Ok(None) };
        let bytes = path.as_bytes();
        let parent = &bytes[..(bytes.len() - name.len()).saturating_sub(1)];
        Ok(Some((self.at(parent)?, name)))
    }

    /// Closes what stays open: some of it was found to be gone.
    pub fn forget(&self) {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn at(&self, path: &[u8]) -> io::Result<Arc<Directory>> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.top));
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = recent.iter().rposition(|held| *held.path == *path) {
            // Most uses are of the last one: then nothing moves.
            recent[found..].rotate_left(1);
            return Ok(Arc::clone(recent.last().map_or(&self.top, |held| &held.directory)));
        }
        drop(recent);
        let directory = Arc::new(self.top.open_dir(path, Links::Refuse)?);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == Self::MOST_OPEN {
            recent.remove(0);
        }
        recent.push(Recent { path: path.into(), directory: Arc::clone(&directory) });
        Ok(directory)
    }
}
