//! What would become of a name, by what stands there: nothing is made or changed.

use std::io;

use farlink_host::beneath::{self, Status};
use farlink_wire::entry::{Entry, Kind, Metadata};
use farlink_wire::message::copy::{Node, Verdict};
use farlink_wire::path::RelativePath;

use super::standing::is_as_old;
use super::{Stays, Target};

impl Target {
    /// What would become of `path`, a name of so many `bytes` of content that stands for `node`. A directory that is as old, and a link that says the
    /// same, are taken for current, though a copy makes them again. What cannot be looked at is taken for wanted: a copy says what is wrong.
    #[must_use]
    pub fn foresee(&self, path: &RelativePath, bytes: u64, node: &Node) -> Verdict {
        if self.options.stays == Stays::None {
            return Verdict::Wanted;
        }
        self.look_at(path, bytes, node).unwrap_or(Verdict::Wanted)
    }

    fn look_at(&self, path: &RelativePath, bytes: u64, node: &Node) -> io::Result<Verdict> {
        let is_directory = matches!(node, Node::Directory(..));
        let is_as_it_comes = |status: &Status, seconds, nanoseconds| {
            status.node == beneath::Node::Directory && is_as_old(status, &at(seconds, nanoseconds))
        };
        let judged = |is_current| Ok(if is_current { Verdict::Current } else { Verdict::Wanted });
        if path.is_root() {
            return match (node, self.placing.tree()) {
                (Node::Directory(seconds, nanoseconds), Some(tree)) => {
                    judged(is_as_it_comes(&tree.top().own_status()?, *seconds, *nanoseconds))
                }
                _ => judged(false),
            };
        }
        let Some((directory, name)) = self.placing.look(path, is_directory)? else {
            return judged(false);
        };
        let is_current = match node {
            Node::File(seconds, nanoseconds) => {
                let status = directory.status(&name)?;
                let metadata = at(*seconds, *nanoseconds);
                let entry = Entry { path: path.clone(), kind: Kind::File { size: bytes }, metadata };
                return Ok(self.verdict(&status, &entry));
            }
            Node::Directory(seconds, nanoseconds) => {
                is_as_it_comes(&directory.status(&name)?, *seconds, *nanoseconds)
            }
            Node::Symlink(says) => directory.read_link(&name)? == says.as_bytes(),
        };
        judged(is_current)
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
        let link = |says: &str| Node::Symlink(Place::new(says).unwrap());
        for (path, bytes, node, wanted) in [
            ("d", 0, Node::Directory(1000, 7), Verdict::Current),
            ("d", 0, Node::Directory(1000, 8), Verdict::Wanted),
            ("d", 0, Node::File(1000, 7), Verdict::Wanted),
            ("d/x", 3, Node::File(1000, 7), Verdict::Current),
            ("d/x", 4, Node::File(1000, 7), Verdict::Wanted),
            ("d/x", 4, Node::File(1000, 6), Verdict::Newer),
            ("d/x", 3, Node::File(1000, 8), Verdict::Wanted),
            ("d/x", 0, Node::Directory(1000, 7), Verdict::Wanted),
            ("d/l", 0, link("x"), Verdict::Current),
            ("d/l", 0, link("y"), Verdict::Wanted),
            ("d/x", 0, link("x"), Verdict::Wanted),
            // Through a link nobody looks.
            ("d/l/x", 3, Node::File(1000, 7), Verdict::Wanted),
            ("e/x", 3, Node::File(1000, 7), Verdict::Wanted),
            ("d/x/y", 3, Node::File(1000, 7), Verdict::Wanted),
        ] {
            let path = RelativePath::new(path.as_bytes()).unwrap();
            assert_eq!(target.foresee(&path, bytes, &node), wanted, "{path} {bytes} {node:?}");
        }
        assert!(!scratch.0.join("e").exists());
        // A file under a name of its own, and a directory that is not there.
        let x = RelativePath::new(b"x").unwrap();
        let named = scratch.find("d/x", false, options.clone()).unwrap();
        assert_eq!(named.foresee(&x, 3, &Node::File(1000, 7)), Verdict::Current);
        let made = scratch.find("d/new", true, options).unwrap();
        assert_eq!(made.foresee(&x, 3, &Node::File(1000, 7)), Verdict::Wanted);
        assert_eq!(fs::read_dir(scratch.0.join("d")).unwrap().count(), 2);
    }
}
