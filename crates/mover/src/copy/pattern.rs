//! A source's name that stands for several: what a shell would have made of it, on a host where none reads it.

use std::io;

use farlink_host::beneath::{Directory, Links};
use farlink_wire::message::copy::Rule;
use farlink_wire::path::RelativePath;
use farlink_wire::quantity::Bytes;

use super::filter::Filter;

/// A component of a path, and what else it stands for: with `*` or `?` in it, names that are like it, as a shell has it. `[a-z]` counts
/// beside these alone: files are called so.
#[derive(Clone, Debug)]
pub struct Pattern {
    name: Vec<u8>,
    like: Option<Filter>,
}

impl Pattern {
    /// What `component` stands for. One that is no text, or that no shell would read as a pattern, stands for itself.
    #[must_use]
    pub fn of(component: &[u8]) -> Self {
        let is_pattern = component.iter().any(|byte| matches!(byte, b'*' | b'?'));
        let text = std::str::from_utf8(component).ok().filter(|_| is_pattern);
        let rule = text.map(|text| Rule { include: false, pattern: format!("/{text}") });
        let like = rule.and_then(|rule| Filter::new(&[rule]).ok());
        Self { name: component.to_vec(), like }
    }

    /// Whether it may stand for several.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.like.is_some()
    }

    /// Whether it stands for `name`. What begins with a dot is hidden from a `*`.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let is_hidden = name.starts_with(b".") && !self.name.starts_with(b".");
        let is_like = |like: &Filter| {
            RelativePath::new(name).is_ok_and(|path| !is_hidden && !like.admits(&path, false))
        };
        name == self.name || self.like.as_ref().is_some_and(is_like)
    }
}

/// Whether a component of `path` may stand for several.
pub(super) fn is_pattern(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|component| Pattern::of(component).is_open())
}

/// The paths beneath `base` that `path` stands for, by name; itself where something is called so, or nothing is like it. It gives up where
/// `over` says so, which is asked before each directory.
///
/// # Errors
/// Where the directory of a first pattern cannot be listed, or more than 100,000 names are meant, or such as take more than 16 MiB.
pub(super) fn expand(base: &Directory, path: &[u8], over: &dyn Fn() -> bool) -> io::Result<Vec<Vec<u8>>> {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    let mut found = vec![Vec::new()];
    // Whether names were found by a pattern, and not looked at since.
    let mut unseen = false;
    for component in path[start..].split_inclusive(|byte| *byte == b'/') {
        let pattern = Pattern::of(component.strip_suffix(b"/").unwrap_or(component));
        if pattern.is_open() {
            found = matching(base, found, &pattern, component.ends_with(b"/"), over)?;
            unseen = false;
        } else {
            check(found.len(), found.iter().map(|path| path.len() + component.len()).sum())?;
            found.iter_mut().for_each(|path| path.extend(component));
            unseen = true;
        }
    }
    if unseen {
        found.retain(|path| over() || is_there(base, path));
    }
    if found.is_empty() {
        found.push(path.to_vec());
    }
    Ok(found)
}

/// What is in the directories `within` and `pattern` stands for: directories alone, where something is to be in them.
fn matching(
    base: &Directory,
    within: Vec<Vec<u8>>,
    pattern: &Pattern,
    directories: bool,
    over: &dyn Fn() -> bool,
) -> io::Result<Vec<Vec<u8>>> {
    let slash: &[u8] = if directories { b"/" } else { b"" };
    let is_single = within.len() == 1;
    let (mut found, mut bytes) = (Vec::new(), 0);
    for path in within.into_iter().take_while(|_| !over()) {
        let of = |name: &[u8]| [&path, name, slash].concat();
        let opened = base.open_dir(&path, Links::Follow);
        if opened.as_ref().is_ok_and(|directory| directory.status(&pattern.name).is_ok()) {
            let path = of(&pattern.name);
            bytes += path.len();
            found.push(path);
            check(found.len(), bytes)?;
            continue;
        }
        let listed = opened.and_then(|directory| directory.list().map(|names| (directory, names)));
        let (directory, names) = match listed {
            Ok(listed) => listed,
            Err(error) if is_single => return Err(error),
            Err(_) => continue,
        };
        let is_meant = |name: &&[u8]| {
            pattern.matches(name) && (!directories || directory.open_dir(name, Links::Follow).is_ok())
        };
        for name in names.iter().filter(is_meant) {
            let path = of(name);
            bytes += path.len();
            found.push(path);
            check(found.len(), bytes)?;
        }
    }
    Ok(found)
}

/// Refuses so many paths, or such as take so many bytes.
fn check(paths: usize, bytes: usize) -> io::Result<()> {
    if paths <= MOST && bytes <= MOST_BYTES {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it stands for more than {MOST} names, or more than {} of them: copy the directory that they are in, and say which with --include",
        Bytes(MOST_BYTES as u64)
    )))
}

fn is_there(base: &Directory, path: &[u8]) -> bool {
    let name = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (directory, name) = path.split_at(name);
    let opened = base.open_dir(directory, Links::Follow);
    opened.is_ok_and(|directory| name.is_empty() || directory.status(name).is_ok())
}

/// Most names that a pattern may stand for: each is a source of its own.
const MOST: usize = 100_000;

/// Bytes of their paths: all are kept until the last is copied.
const MOST_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::copy::target::tests::Scratch;

    #[test]
    fn patterns_stand_for_what_a_shell_would_find() {
        let table = [
            ("*.h5", "run.h5", true),
            ("*.h5", ".run.h5", false),
            (".*", ".run", true),
            ("run?", "run1", true),
            ("run?", "run", false),
            ("r[0-4]*", "r3", true),
            ("r[0-4]*", "r5", false),
            ("{a,b}*", "a", false),
            ("{a,b}*", "{a,b}c", true),
            ("a*", "a*", true),
            ("[ab]", "[ab]", true),
            ("[ab]", "a", false),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(
                Pattern::of(pattern.as_bytes()).matches(name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
        assert!(Pattern::of(b"\xff*").matches(b"\xff*") && !Pattern::of(b"\xff*").matches(b"\xffa"));
    }

    #[test]
    fn what_takes_too_much_memory_is_refused() {
        let scratch = Scratch::new("pattern-long");
        let deep = vec!["d".repeat(200); 18].join("/");
        let base = Directory::open(&scratch.0).unwrap();
        fs::create_dir_all(scratch.0.join(&deep)).unwrap();
        let of = |number: usize| scratch.0.join(format!("{deep}/{number}"));
        let most = MOST_BYTES / deep.len();
        (0..most - most / 10).for_each(|number| drop(fs::File::create(of(number)).unwrap()));
        let found = || expand(&base, format!("{deep}/*").as_bytes(), &|| false);
        assert_eq!(found().unwrap().len(), most - most / 10);
        (most - most / 10..most).for_each(|number| drop(fs::File::create(of(number)).unwrap()));
        assert!(found().unwrap_err().to_string().contains("more than 16MiB of them"));
        // Nor by what follows it.
        (0..5000).for_each(|number| fs::create_dir(scratch.0.join(format!("w{number}"))).unwrap());
        let beneath = expand(&base, format!("w*/{deep}").as_bytes(), &|| false);
        assert!(beneath.unwrap_err().to_string().contains("more than 16MiB of them"));
    }

    #[test]
    fn a_path_stands_for_what_is_there() {
        let scratch = Scratch::new("pattern");
        for directory in ["a1", "a2", "a3", ".a4", "b?"] {
            fs::create_dir(scratch.0.join(directory)).unwrap();
        }
        for file in ["a1/x.dat", "a1/y.dat", "a2/x.dat", "a5", "b?/z", ".a4/x.dat", "b1"] {
            fs::write(scratch.0.join(file), "").unwrap();
        }
        let base = Directory::open(&scratch.0).unwrap();
        let table: [(&str, &[&str]); 10] = [
            ("a*", &["a1", "a2", "a3", "a5"]),
            ("//a*/x.dat", &["a1/x.dat", "a2/x.dat"]),
            ("a*/*.dat", &["a1/x.dat", "a1/y.dat", "a2/x.dat"]),
            ("a*/", &["a1/", "a2/", "a3/"]),
            ("?[12]/../a5", &["a1/../a5", "a2/../a5"]),
            ("b?", &["b?"]),
            ("b?/z", &["b?/z"]),
            ("c*", &["c*"]),
            ("a*/none", &["a*/none"]),
            ("a1", &["a1"]),
        ];
        for (path, expected) in table {
            let found = expand(&base, path.as_bytes(), &|| false).unwrap();
            let found: Vec<_> = found.iter().map(|path| String::from_utf8_lossy(path)).collect();
            assert_eq!(found, expected, "{path}");
        }
        assert_eq!(expand(&base, b"none/a*", &|| false).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(expand(&base, b"*/*", &|| true).unwrap(), [b"*/*"], "nobody waits for it");
    }
}
