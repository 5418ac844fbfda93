//! One name, one source: where several sources have something of the same name, the first has it.

use std::collections::{HashMap, HashSet};

use farlink_wire::path::RelativePath;

use super::SourcePath;

/// Who has which name, of the sources that can have the same ones.
#[derive(Debug, Default)]
pub(super) struct Once {
    /// Names of sources that several have; what is in a directory may have any, so that all sources are looked at then.
    shared: HashSet<Vec<u8>>,
    all: bool,
    /// What was found of them so far, 16 bytes each.
    names: HashSet<u128>,
}

/// What is to be done with something that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing had its name before.
    First,
    /// It is a directory, and so was what had its name before: what is in both goes into one.
    Merged,
    /// Something had its name before.
    Later,
}

impl Once {
    pub(super) fn new<'a>(sources: impl Iterator<Item = &'a SourcePath>) -> Self {
        let mut counts: HashMap<Vec<u8>, usize> = HashMap::new();
        let (mut count, mut contents) = (0, false);
        for source in sources {
            // What is like a pattern may be in several directories.
            count += 1 + usize::from(source.is_pattern());
            match source.base_name() {
                Some(name) => *counts.entry(name.to_vec()).or_default() += 1,
                None => contents = true,
            }
        }
        let shared = counts.into_iter().filter(|(_, many)| *many > 1).map(|(name, _)| name).collect();
        Self { shared, all: contents && count > 1, names: HashSet::new() }
    }

    /// Whether several sources can have `path`.
    pub(super) fn is_shared(&self, path: &RelativePath) -> bool {
        let first = path.as_bytes().split(|byte| *byte == b'/').next().unwrap_or_default();
        self.all || self.shared.contains(first)
    }

    /// Whose turn it is with `path`, which is now known to be had.
    pub(super) fn turn(&mut self, path: &RelativePath, is_directory: bool) -> Turn {
        if !self.is_shared(path) {
            return Turn::First;
        }
        let digest = blake3::hash(path.as_bytes());
        let half = digest.as_bytes().first_chunk().copied().unwrap_or_default();
        // The lowest bit says what it is, the others stand for the name.
        let name = u128::from_be_bytes(half) | 1;
        let [own, other] = if is_directory { [name, name - 1] } else { [name - 1, name] };
        if self.names.contains(&other) {
            return Turn::Later;
        }
        match (self.names.insert(own), is_directory) {
            (true, _) => Turn::First,
            (false, true) => Turn::Merged,
            (false, false) => Turn::Later,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once(sources: &[&str]) -> Once {
        let sources: Vec<_> = sources.iter().map(|source| SourcePath::new(*source).unwrap()).collect();
        Once::new(sources.iter())
    }

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    #[test]
    fn the_first_has_a_name_and_directories_are_merged() {
        let mut once = once(&["/a/", "/b/"]);
        let turns = [
            ("x", false, Turn::First),
            ("x", false, Turn::Later),
            ("x", true, Turn::Later),
            ("d", true, Turn::First),
            ("d", true, Turn::Merged),
            ("d", false, Turn::Later),
            ("d/x", false, Turn::First),
        ];
        for (name, is_directory, turn) in turns {
            assert_eq!(once.turn(&path(name), is_directory), turn, "{name}");
        }
    }

    #[test]
    fn sources_of_different_names_are_not_remembered() {
        let mut apart = once(&["/a/x", "/a/y", "/b/z", "/c/z"]);
        for name in ["x", "x/1", "y"] {
            assert_eq!(apart.turn(&path(name), false), Turn::First);
        }
        assert!(apart.names.is_empty());
        assert_eq!(apart.turn(&path("z"), true), Turn::First);
        assert_eq!(apart.turn(&path("z/1"), false), Turn::First);
        assert_eq!(apart.turn(&path("z"), true), Turn::Merged);
        assert_eq!(apart.turn(&path("z/1"), false), Turn::Later);
        let mut single = once(&["/a/"]);
        assert_eq!(single.turn(&path("x"), false), Turn::First);
        assert!(single.names.is_empty());
    }
}
