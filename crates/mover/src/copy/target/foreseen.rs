//! What would become of a name, by what stands there: nothing is made or changed.

use std::io;
use std::sync::Arc;

use farlink_host::beneath::{self, Directory};
use farlink_wire::entry::{Entry, Kind, Metadata};
use farlink_wire::message::copy::{Node, Verdict};
use farlink_wire::path::RelativePath;

use super::small::is_last_of;
use super::standing::is_as_old;
use super::{Destination, Stays, Target, TargetError, TargetOptions};

impl Target {
    /// As [`Self::find`], for what is only foreseen; `None` where it is a device, to which everything goes.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn foreseeing(
        containment: &Arc<Directory>,
        destination: &Destination,
        key: [u8; 16],
        options: TargetOptions,
    ) -> Result<Option<Self>, TargetError> {
        if !destination.several && containment.open_sink(&destination.path).is_ok() {
            return Ok(None);
        }
        Self::find(containment, destination, key, options).map(Some)
    }

    /// What would become of `path`, a name of so many `bytes` of content that stands for `node`. A directory that is as old, and a link that says the
    /// same, are taken for current, though a copy makes them again. Where nothing stays, all is wanted that nothing is in the way of.
    ///
    /// # Errors
    /// [`TargetError`]: what is in the way, as far as that can be seen.
    pub fn foresee(&self, path: &RelativePath, bytes: u64, node: &Node) -> Result<Verdict, TargetError> {
        let verdict = self.foreseen(path, bytes, node)?;
        Ok(if self.options.stays == Stays::None { Verdict::Wanted } else { verdict })
    }

    fn foreseen(&self, path: &RelativePath, bytes: u64, node: &Node) -> Result<Verdict, TargetError> {
        let judged = |is_current| Ok(if is_current { Verdict::Current } else { Verdict::Wanted });
        let is_directory = matches!(node, Node::Directory(..));
        let place = if path.is_root() { None } else { self.placing.look(path, is_directory)? };
        let (status, shown) = match (&place, self.placing.tree()) {
            (Some(place), _) => (place.directory.status(&place.name), place.shown.clone()),
            (None, Some(tree)) if path.is_root() => {
                (tree.top().own_status(), self.placing.shown().to_owned())
            }
            (None, _) => return Ok(Verdict::Wanted),
        };
        let status = match status {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Verdict::Wanted),
            status => status.map_err(|error| TargetError::of("look at", shown.clone(), error))?,
        };
        match (node, status.node) {
            (Node::Directory(seconds, nanoseconds), beneath::Node::Directory) => {
                judged(is_as_old(&status, &at(*seconds, *nanoseconds)))
            }
            (Node::Directory(..), beneath::Node::Symlink) => Err(TargetError::LinkInTheWay { path: shown }),
            (Node::Directory(..), _) => Err(TargetError::FileInTheWay { path: shown }),
            (_, beneath::Node::Directory) => Err(TargetError::DirectoryInTheWay { path: shown }),
            (Node::File(seconds, nanoseconds), _) => {
                let metadata = at(*seconds, *nanoseconds);
                let entry = Entry { path: path.clone(), kind: Kind::File { size: bytes }, metadata };
                Ok(self.verdict(&status, &entry))
            }
            (Node::Symlink(says), _) => match &place {
                Some(place) if is_last_of(place, says.as_bytes()) => Err(TargetError::LedTo { path: shown }),
                Some(place) => {
                    let there = place.directory.read_link(&place.name);
                    judged(there.is_ok_and(|there| there == says.as_bytes()))
                }
                None => judged(false),
            },
        }
    }
}

const fn at(mtime_s: i64, mtime_ns: u32) -> Metadata {
    Metadata { mode: 0, mtime_s, mtime_ns }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::time::{Duration, UNIX_EPOCH};

    use farlink_wire::message::copy::Place;

    use super::super::TargetOptions;
    use super::super::tests::Scratch;
    use super::*;

    #[test]
    fn what_would_become_of_a_name_is_told_and_nothing_made() {
        let scratch = Scratch::new("foreseen");
        let options = TargetOptions { stays: Stays::Current, ..TargetOptions::default() };
        let target = scratch.find("", true, options.clone()).unwrap();
        let old = |name: &str| {
            let file = File::open(scratch.0.join(name)).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::new(1000, 7)).unwrap();
        };
        fs::create_dir(scratch.0.join("d")).unwrap();
        fs::write(scratch.0.join("d/x"), "abc").unwrap();
        symlink("x", scratch.0.join("d/l")).unwrap();
        ["d/x", "d"].iter().for_each(|name| old(name));
        fs::write(scratch.0.join("d/last"), "z").unwrap();
        old("d");
        let link = |says: &str| Node::Symlink(Place::new(says).unwrap());
        let judged = |target: &Target, path: &str, bytes, node: &Node| {
            let path = RelativePath::new(path.as_bytes()).unwrap();
            target.foresee(&path, bytes, node).map_err(|error| error.to_string())
        };
        for (path, bytes, node, wanted) in [
            ("d", 0, Node::Directory(1000, 7), Ok(Verdict::Current)),
            ("d", 0, Node::Directory(1000, 8), Ok(Verdict::Wanted)),
            ("d", 0, Node::File(1000, 7), Err("a directory is in the way")),
            ("d", 0, link("x"), Err("a directory is in the way")),
            ("d/x", 3, Node::File(1000, 7), Ok(Verdict::Current)),
            ("d/x", 4, Node::File(1000, 7), Ok(Verdict::Wanted)),
            ("d/x", 4, Node::File(1000, 6), Ok(Verdict::Newer)),
            ("d/x", 3, Node::File(1000, 8), Ok(Verdict::Wanted)),
            ("d/x", 0, Node::Directory(1000, 7), Err("a file is in the way")),
            ("d/l", 0, Node::Directory(1000, 7), Err("a symbolic link is in the way")),
            ("d/l", 0, link("x"), Ok(Verdict::Current)),
            ("d/l", 0, link("y"), Ok(Verdict::Wanted)),
            ("d/x", 0, link("y"), Ok(Verdict::Wanted)),
            ("d/last", 0, link("last"), Err("is what the symbolic link leads to")),
            // Through a link nobody looks.
            ("d/l/x", 3, Node::File(1000, 7), Err("a symbolic link is in the way")),
            ("e/x", 3, Node::File(1000, 7), Ok(Verdict::Wanted)),
            ("d/x/y", 3, Node::File(1000, 7), Err("a file is in the way")),
        ] {
            match (judged(&target, path, bytes, &node), wanted) {
                (Err(said), Err(wanted)) => assert!(said.contains(wanted), "{path} {node:?}: {said}"),
                (judged, wanted) => {
                    assert_eq!(judged, wanted.map_err(str::to_owned), "{path} {bytes} {node:?}");
                }
            }
        }
        assert!(!scratch.0.join("e").exists());
        // Of what is only asked whether it can be there, nothing stays.
        let plain = scratch.find("", true, TargetOptions::default()).unwrap();
        assert_eq!(judged(&plain, "d/x", 3, &Node::File(1000, 7)), Ok(Verdict::Wanted));
        assert!(
            judged(&plain, "d", 0, &Node::File(1000, 7)).unwrap_err().contains("a directory is in the way")
        );
        // A file under a name of its own, a directory that is not there, and one that cannot be.
        let find = |path, several| scratch.find(path, several, options.clone()).unwrap();
        let file = Node::File(1000, 7);
        assert_eq!(judged(&find("d/x", false), "x", 3, &file), Ok(Verdict::Current));
        assert_eq!(judged(&find("d/new", true), "x", 3, &file), Ok(Verdict::Wanted));
        let beneath = judged(&find("d/x", false), "s/x", 3, &file).unwrap_err();
        assert!(beneath.contains("a file is in the way"), "{beneath}");
        assert_eq!(fs::read_dir(scratch.0.join("d")).unwrap().count(), 3);
    }
}
