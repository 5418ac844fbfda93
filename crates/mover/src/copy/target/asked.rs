//! What a client that pulls has asked for: whatever the far end says, nothing else is given a name.

use std::collections::HashSet;

use farlink_wire::entry::{Entry, Kind};
use farlink_wire::path::RelativePath;

use super::super::filter::Filter;
use super::super::pattern::Pattern;

/// What may come.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What first components are like; `None` where what is in a directory was asked for, under names that nobody knows beforehand.
    first: Option<Vec<Pattern>>,
    filter: Filter,
    listed: Option<Listed>,
}

/// Names that were listed, and the directories that they are in.
#[derive(Clone, Debug)]
struct Listed {
    names: HashSet<RelativePath>,
    above: HashSet<RelativePath>,
}

impl Asked {
    /// What begins with what one of `first` stands for, as far as `filter` admits it and the directories that it is in.
    #[must_use]
    pub fn new(first: Option<Vec<Pattern>>, filter: Filter) -> Self {
        let listed = filter.names().map(|names| Listed {
            names: names.iter().cloned().collect(),
            above: names.iter().flat_map(above).collect(),
        });
        Self { first, filter, listed }
    }

    /// Whether `entry` was asked for.
    pub(super) fn has(&self, entry: &Entry) -> bool {
        let (path, is_dir) = (&entry.path, entry.kind == Kind::Directory);
        let is_first = |first: &Vec<Pattern>| {
            path.components()
                .next()
                .is_some_and(|component| first.iter().any(|pattern| pattern.matches(component)))
        };
        self.first.as_ref().is_none_or(is_first)
            && self.listed.as_ref().is_none_or(|listed| listed.has(path, is_dir))
            && (!self.filter.has_rules()
                || self.filter.admits(path, is_dir)
                    && above(path).all(|directory| self.filter.admits(&directory, true)))
    }
}

impl Listed {
    fn has(&self, path: &RelativePath, is_dir: bool) -> bool {
        self.names.contains(path)
            || is_dir && self.above.contains(path)
            || above(path).any(|directory| self.names.contains(&directory))
    }
}

/// The directories that `path` is in, up to the root.
fn above(path: &RelativePath) -> impl Iterator<Item = RelativePath> {
    std::iter::successors(path.parent(), RelativePath::parent)
}

#[cfg(test)]
mod tests {
    use farlink_wire::message::copy::{Place, Rule};

    use super::super::tests::{directory, file};
    use super::*;

    #[test]
    fn rules_and_lists_hold_for_what_comes_as_for_what_is_sent() {
        let rule = |include, pattern: &str| Rule { include, pattern: pattern.to_owned() };
        let names = [Place::new("a/b").unwrap(), Place::new("c").unwrap()];
        let listed = Asked::new(None, Filter::default().only(Some(&names)).unwrap());
        let ruled = Asked::new(
            None,
            Filter::new(&[rule(true, "keep.o"), rule(false, "*.o"), rule(false, "secret/")]).unwrap(),
        );
        let asked = |asked: &Asked, path: &str| match path.strip_suffix('/') {
            Some(path) => asked.has(&directory(path, 0o755)),
            None => asked.has(&file(path, 1)),
        };
        for (path, by_list, by_rules) in [
            ("/", true, true),
            ("a/", true, true),
            ("a/b", true, true),
            ("a/b/c", true, true),
            ("c/d/e", true, true),
            // In place of a directory that leads to a name.
            ("a", false, true),
            ("a/x", false, true),
            (".bashrc", false, true),
            ("c.o", false, false),
            ("c/keep.o", true, true),
            ("c/d.o/e", true, false),
            ("c/secret/", true, false),
            ("c/secret/keep.o", true, false),
            ("c/secret", true, true),
        ] {
            assert_eq!(asked(&listed, path), by_list, "{path} by the list");
            assert_eq!(asked(&ruled, path), by_rules, "{path} by the rules");
        }
    }
}
