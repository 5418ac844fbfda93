//! Names of a tree that were listed, and the directories above them.

use std::collections::{BTreeSet, VecDeque};

use farlink_wire::path::RelativePath;

/// What is still to be looked at of the names that were listed.
#[derive(Debug)]
pub(super) struct Listed {
    names: VecDeque<RelativePath>,
    /// Directories above names, as far as they were looked at.
    above: BTreeSet<RelativePath>,
}

/// What is to be looked at next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A directory above a name: itself, and nothing of what is in it.
    Above(RelativePath),
    /// A name.
    Name(RelativePath),
}

impl Listed {
    /// Those of `names` that are in none of the others.
    pub(super) fn new(names: &[RelativePath]) -> Self {
        let all: BTreeSet<_> = names.iter().collect();
        let covered = |name: &RelativePath| ancestors(name).any(|above| all.contains(&above));
        let names = all.iter().filter(|name| !covered(name)).map(|name| (*name).clone()).collect();
        Self { names, above: BTreeSet::from([RelativePath::root()]) }
    }

    /// What is to be looked at next, each once.
    pub(super) fn next(&mut self) -> Option<Next> {
        let name = self.names.front()?;
        // The outermost first.
        let unseen = ancestors(name).filter(|above| !self.above.contains(above)).last();
        if let Some(above) = unseen {
            self.above.insert(above.clone());
            return Some(Next::Above(above));
        }
        self.names.pop_front().map(Next::Name)
    }

    /// Nothing that is in `directory`, which was the next above, is looked at.
    pub(super) fn leave_out(&mut self, directory: &RelativePath) {
        // They are in order: those that are in it come next.
        while self.names.front().is_some_and(|name| ancestors(name).any(|above| above == *directory)) {
            self.names.pop_front();
        }
    }
}

/// The directories that `path` is in, the innermost first.
fn ancestors(path: &RelativePath) -> impl Iterator<Item = RelativePath> {
    std::iter::successors(path.parent(), RelativePath::parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    #[test]
    fn each_name_comes_once_behind_the_directories_above_it() {
        let mut listed = Listed::new(&["a/b/c", "a/b", "x", "a/d/e", "x", "a/b-c"].map(path));
        let found: Vec<_> = std::iter::from_fn(|| listed.next()).collect();
        let above = |text: &str| Next::Above(path(text));
        let name = |text: &str| Next::Name(path(text));
        assert_eq!(found, [above("a"), name("a/b"), name("a/b-c"), above("a/d"), name("a/d/e"), name("x")]);
        let mut listed = Listed::new(&["a-b", "a/b/c", "a/b/d", "a/b-c", "a/c"].map(path));
        let found: Vec<_> = std::iter::from_fn(|| {
            let next = listed.next()?;
            if next == above("a/b") {
                listed.leave_out(&path("a/b"));
            }
            Some(next)
        })
        .collect();
        assert_eq!(found, [name("a-b"), above("a"), name("a/b-c"), above("a/b"), name("a/c")]);
        // The tree itself is all of it.
        assert_eq!(Listed::new(&[path("a"), RelativePath::root()]).next(), Some(Next::Name(path(""))));
    }
}
