//! A directory in which files are looked at by their names, as they appear.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use farlink_host::beneath::{Directory, Links, Tree};
use farlink_wire::path::RelativePath;

use super::{Filter, Found, SourceError, SourcePath, Walk};

/// A source that is not walked through: what is beneath it is looked at when somebody says that it is there.
#[derive(Debug)]
pub struct Standing<'f> {
    walk: Walk<'f>,
    tree: Arc<Tree>,
    /// What names at the receiver begin with.
    prefix: RelativePath,
}

impl<'f> Standing<'f> {
    /// The directory `source`, a path beneath `base`.
    ///
    /// # Errors
    /// [`SourceError`] where it cannot be opened.
    pub fn new(base: &Arc<Directory>, source: &SourcePath, filter: &'f Filter) -> Result<Self, SourceError> {
        let (directory, name) = source.split();
        let failed = |error| SourceError::new("open", source.to_string(), error);
        let top = base.open_dir(directory, Links::Follow).map_err(failed)?;
        let prefix = RelativePath::new(name.unwrap_or_default())
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidFilename, error)))?;
        let walk = Walk::new(&[], filter);
        Ok(Self { walk, tree: Arc::new(Tree::new(top)), prefix })
    }

    /// What is there under the name `path`, beneath the directory; `None` where the filter leaves it out.
    pub fn look(&mut self, path: &Path) -> Option<Found> {
        let mut within = self.prefix.clone();
        if let Some(parent) = path.parent() {
            for name in parent.iter() {
                match within.join(name.as_bytes()) {
                    Ok(joined) => within = joined,
                    Err(error) => {
                        let source = io::Error::new(io::ErrorKind::InvalidFilename, error);
                        let error = SourceError::new("send", path.display().to_string(), source);
                        return Some(Found::Failed { path: within, error });
                    }
                }
            }
        }
        let found = self.walk.look(&self.tree, &within, path.file_name()?.as_bytes());
        // What is in a directory is told by itself.
        self.walk.levels.clear();
        found
    }
}

#[cfg(test)]
mod tests {
    use farlink_wire::entry::Kind;

    use super::*;

    #[test]
    fn a_file_has_the_name_that_a_walk_gives_it() {
        let top = std::env::temp_dir().join(format!("farlink-standing-{}", std::process::id()));
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::fs::write(top.join("a/b/file"), "content").unwrap();
        let base = Arc::new(Directory::open(Path::new("/")).unwrap());
        let filter = Filter::new(&[]).unwrap();
        let mut shown = Vec::new();
        for end in ["a", "a/"] {
            let source = SourcePath::new(top.join(end).as_os_str().as_bytes()).unwrap();
            let mut standing = Standing::new(&base, &source, &filter).unwrap();
            match standing.look(Path::new("b/file")) {
                Some(Found::Entry(entry, handle)) => {
                    assert_eq!(entry.kind, Kind::File { size: 7 });
                    assert_eq!(handle.open().unwrap().size(), 7);
                    shown.push(entry.path.to_string());
                }
                other => panic!("{other:?}"),
            }
            assert!(matches!(standing.look(Path::new("b/none")), Some(Found::Failed { .. })));
        }
        std::fs::remove_dir_all(&top).unwrap();
        assert_eq!(shown, ["a/b/file", "b/file"]);
    }
}
