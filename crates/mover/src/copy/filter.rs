//! Which names of a tree are copied: include and exclude patterns in rsync's order and with its meaning (rsync(1), "PATTERN MATCHING RULES").
//!
//! `*`, `?` and `[a-z]` match within a name, `**` also across `/`. A pattern with a `/` within it, or `**`, matches the end of a path,
//! any other a name; one that begins with `/` matches the whole path from the root of the transfer; one that ends in `/` matches
//! directories only, and one that ends in `/***` a directory and all that is in it.

use std::sync::Arc;

use farlink_host::beneath::{Directory, Links, Node, Status};
use farlink_wire::message::copy::{Place, Rule};
use farlink_wire::path::{PathError, RelativePath};
use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

/// Rules, of which the first that matches a name decides; a name that none matches is copied.
///
/// What is in a directory that is left out is not looked at.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    globs: GlobSet,
    /// The rule of each glob, ascending.
    rules: Vec<Compiled>,
    /// The names that are looked at, where those are listed.
    names: Option<Arc<[RelativePath]>>,
    /// What is copied to, beneath which directory, where that is on this host.
    destination: Option<(Arc<Directory>, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug)]
struct Compiled {
    include: bool,
    directories_only: bool,
}

impl Filter {
    /// Most rules of one transfer.
    pub const MOST_RULES: usize = 1000;
    /// Most bytes of a pattern.
    pub const MOST_PATTERN: usize = 1000;

    /// The filter that `rules` are.
    ///
    /// # Errors
    /// [`FilterError`] naming the pattern.
    pub fn new(rules: &[Rule]) -> Result<Self, FilterError> {
        if rules.len() > Self::MOST_RULES {
            return Err(FilterError::TooMany { rules: rules.len() });
        }
        let mut globs = GlobSetBuilder::new();
        let mut compiled = Vec::with_capacity(rules.len());
        for Rule { include, pattern } in rules {
            if pattern.len() > Self::MOST_PATTERN {
                return Err(FilterError::TooLong { length: pattern.len() });
            }
            let refused =
                |reason: &str| FilterError::Pattern { pattern: pattern.clone(), reason: reason.into() };
            let translated = Translated::of(pattern).map_err(refused)?;
            for (place, glob) in translated.globs.iter().enumerate() {
                let built = GlobBuilder::new(glob)
                    .literal_separator(true)
                    .backslash_escape(true)
                    .empty_alternates(true)
                    .build()
                    .map_err(|error| refused(&error.kind().to_string()))?;
                globs.add(built);
                // Of one that is of a directory and what is in it, the first is of the directory.
                let directories_only =
                    translated.directories_only || (place == 0 && translated.globs.len() > 1);
                compiled.push(Compiled { include: *include, directories_only });
            }
        }
        let globs =
            globs.build().map_err(|error| FilterError::TooComplex { reason: error.kind().to_string() })?;
        Ok(Self { globs, rules: compiled, names: None, destination: None })
    }

    /// The same, where only `names` and what is in them are looked at; all where those are absent.
    ///
    /// # Errors
    /// [`FilterError::Name`].
    pub fn only(mut self, names: Option<&[Place]>) -> Result<Self, FilterError> {
        let path = |name: &Place| RelativePath::new(name.as_bytes());
        let paths = names.map(|names| names.iter().map(path).collect::<Result<Arc<[_]>, _>>());
        self.names = paths.transpose()?;
        Ok(self)
    }

    /// The same, but for `path` beneath `root`, which is what is copied to: it may be in what is copied.
    pub(super) fn without(mut self, root: &Arc<Directory>, path: Vec<u8>) -> Self {
        self.destination = Some((Arc::clone(root), path));
        self
    }

    /// Whether this is what is copied to. It may have been made since the copy began.
    pub(super) fn is_destination(&self, status: &Status) -> bool {
        let Some((root, path)) = &self.destination else { return false };
        let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        let path = &path[start..];
        let found = if status.node == Node::Directory {
            root.open_dir(path, Links::Follow).and_then(|directory| directory.own_status())
        } else {
            // What takes the place of a symbolic link is not what that leads to.
            let name = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
            let (parent, name) = path.split_at(name);
            root.open_dir(parent, Links::Follow).and_then(|directory| directory.status(name))
        };
        found.is_ok_and(|found| found.is_same_file(status))
    }

    /// The names that alone are looked at, where those are listed.
    pub(super) fn names(&self) -> Option<&[RelativePath]> {
        self.names.as_deref()
    }

    /// Whether there are rules.
    pub(super) const fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Whether `path` is copied, as far as the rules go.
    #[must_use]
    pub fn admits(&self, path: &RelativePath, is_dir: bool) -> bool {
        if self.rules.is_empty() || path.is_root() {
            return true;
        }
        let matched = self.globs.matches_candidate(&Candidate::from_bytes(path.as_bytes()));
        let rules = matched.into_iter().filter_map(|glob| Some((glob, self.rules.get(glob)?)));
        let first = rules.filter(|(_, rule)| is_dir || !rule.directories_only).min_by_key(|(glob, _)| *glob);
        first.is_none_or(|(_, rule)| rule.include)
    }
}

/// A pattern in the words of `globset`.
#[derive(Debug)]
struct Translated {
    /// Any of which matches.
    globs: Vec<String>,
    directories_only: bool,
}

impl Translated {
    fn of(pattern: &str) -> Result<Self, &'static str> {
        let (body, anchored) = pattern.strip_prefix('/').map_or((pattern, false), |rest| (rest, true));
        let (body, with_content) = body.strip_suffix("/***").map_or((body, false), |rest| (rest, true));
        let (body, directories_only) = body.strip_suffix('/').map_or((body, false), |rest| (rest, true));
        if body.is_empty() {
            return Err("it matches nothing");
        }
        // rsync puts a "/" before what "**/" is matched with: so it matches at the root as well.
        let body = if anchored { body } else { body.strip_prefix("**/").unwrap_or(body) };
        let start = if anchored { "" } else { "**/" };
        let glob = format!("{start}{}", translate(body)?);
        let mut globs = vec![glob];
        if with_content {
            globs.push(format!("{}/{ANYTHING}", globs[0]));
        }
        Ok(Self { globs, directories_only })
    }
}

/// What is between the slashes that have a meaning of their own.
fn translate(body: &str) -> Result<String, &'static str> {
    // rsync(1): a backslash is one where there is nothing that it could escape.
    let escapes = body.contains(['*', '?', '[']);
    let mut glob = String::with_capacity(body.len() + 16);
    let mut rest = body.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '*' => {
                let mut stars = 1;
                while rest.next_if_eq(&'*').is_some() {
                    stars += 1;
                }
                glob.push_str(if stars > 1 { ANYTHING } else { "*" });
            }
            '?' => glob.push('?'),
            '[' => class(&mut rest, &mut glob)?,
            '\\' if escapes => {
                glob.push('\\');
                glob.push(rest.next().ok_or("there is nothing behind its last \"\\\"")?);
            }
            '\\' | '{' | '}' | ',' | ']' | '!' => glob.extend(['\\', character]),
            other => glob.push(other),
        }
    }
    Ok(glob)
}

/// A class of characters, behind its `[`.
fn class(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, glob: &mut String) -> Result<(), &'static str> {
    glob.push('[');
    let negated = rest.next_if(|next| matches!(next, '!' | '^')).is_some();
    if negated {
        glob.push('!');
    }
    // A "]" in front is a member.
    let mut members = String::from_iter(rest.next_if_eq(&']'));
    if negated {
        // No class matches what is between two names.
        members.push('/');
    }
    loop {
        match rest.next() {
            None => return Err("its \"[\" has no \"]\""),
            Some(']') => break,
            Some('[') if rest.peek() == Some(&':') => {
                return Err("classes with a name, such as [:alpha:], are not known: write [a-zA-Z]");
            }
            Some('\\') => return Err("a \"\\\" within \"[ ]\" is not known"),
            Some('/') => return Err("a \"/\" within \"[ ]\" matches nothing"),
            Some(member) => members.push(member),
        }
    }
    glob.push_str(&members);
    glob.push(']');
    Ok(())
}

/// What `**` matches: any characters, with or without `/` among them. `globset` has its `**` between slashes only.
const ANYTHING: &str = "{*,*/**/*}";

/// Why rules are no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A listed name that leads elsewhere, or is none.
    #[error("a listed name cannot be copied")]
    Name(#[from] PathError),
    /// More than anyone writes.
    #[error(
        "{rules} include and exclude patterns, where {} are the most: list the names by --files-from",
        Filter::MOST_RULES
    )]
    TooMany {
        /// How many.
        rules: usize,
    },
    /// Longer than any path needs.
    #[error("a pattern of {length} bytes, where {} are the most", Filter::MOST_PATTERN)]
    TooLong {
        /// Its bytes.
        length: usize,
    },
    /// Not understood.
    #[error("the pattern {pattern:?} is refused: {reason}")]
    Pattern {
        /// As given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Together too large to match with.
    #[error("the include and exclude patterns are too complex together ({reason}): use fewer \"**\"")]
    TooComplex {
        /// In the matcher's words.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str]) -> Filter {
        let rule = |text: &&str| Rule { include: text.starts_with('+'), pattern: text[2..].into() };
        Filter::new(&rules.iter().map(rule).collect::<Vec<_>>()).unwrap()
    }

    /// Whether the one pattern `pattern` matches `path`, a directory where that ends in `/`.
    fn matches(pattern: &str, path: &str) -> bool {
        let is_dir = path.ends_with('/');
        let path = RelativePath::new(path.trim_end_matches('/')).unwrap();
        !filter(&[&format!("- {pattern}")]).admits(&path, is_dir)
    }

    #[test]
    fn patterns_mean_what_rsync_says() {
        let table = [
            ("foo", "foo", true),
            ("foo", "a/b/foo", true),
            ("foo", "a/foo/b", false),
            ("/foo", "foo", true),
            ("/foo", "a/foo", false),
            ("foo/bar", "a/foo/bar", true),
            ("foo/bar", "xfoo/bar", false),
            ("foo/", "foo/", true),
            ("foo/", "foo", false),
            ("*.o", "a/b.o", true),
            ("*.o", ".o", true),
            ("*", "a/b", true),
            ("/*", "a", true),
            ("/*", "a/b", false),
            ("/a/*/c", "a/b/c", true),
            ("/a/*/c", "a/b/b/c", false),
            ("/a/**/c", "a/b/b/c", true),
            ("/a/**/c", "a/c", false),
            ("a**z", "x/ab/c/yz", true),
            ("a**z", "az", true),
            ("a**z", "x/bab/cz", false),
            ("**/foo", "a/foo", true),
            ("**/foo", "foo", true),
            ("/**", "a/b", true),
            ("foo/**", "foo/a/b", true),
            ("foo/**", "foo/", false),
            ("/foo/***", "foo/", true),
            ("/foo/***", "foo", false),
            ("foo/***", "a/foo", false),
            ("/foo/***", "foo/a/b", true),
            ("/foo/***", "food", false),
            ("f?o", "fxo", true),
            ("f?o", "f/o", false),
            ("f[!a]o", "f/o", false),
            ("f[!a]o", "fbo", true),
            ("f[^a]o", "fao", false),
            ("f[]x]o", "f]o", true),
            ("f[!]x-]o", "f-o", false),
            ("f[!]x-]o", "f/o", false),
            ("f[!]x-]o", "fyo", true),
            ("[a-c]x", "bx", true),
            ("a{b,c}", "ab", false),
            ("a{b,c}", "a{b,c}", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a\\b", "a\\b", true),
            ("!x", "!x", true),
            ("two words", "two words", true),
            ("new\nline*", "new\nlines", true),
        ];
        for (pattern, path, expected) in table {
            assert_eq!(matches(pattern, path), expected, "{pattern:?} on {path:?}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let filter = filter(&["+ keep.o", "+ */", "- *.o", "- /secret*"]);
        let admits = |path: &str, is_dir| filter.admits(&RelativePath::new(path).unwrap(), is_dir);
        assert!(admits("a/keep.o", false) && !admits("a/b.o", false) && admits("other", false));
        assert!(admits("secret", true) && !admits("secret", false));
        // A rule for directories leaves files to the next.
        assert!(admits("a.o", true) && !admits("a.o", false));
        assert!(Filter::default().admits(&RelativePath::root(), true));
    }

    #[test]
    fn names_that_are_not_text_are_matched_by_bytes() {
        let path = RelativePath::new(b"a\xff.o".to_vec()).unwrap();
        assert!(!filter(&["- *.o"]).admits(&path, false));
        assert!(!filter(&["- a?.o"]).admits(&path, false));
    }

    #[test]
    fn what_is_no_pattern_is_named() {
        for pattern in ["", "/", "//", "a[b", "a*\\", "[[:alpha:]]", "[z-a]", "[a/b]", "[\\]]"] {
            let error = Filter::new(&[Rule { include: false, pattern: pattern.into() }]).unwrap_err();
            assert!(error.to_string().contains(&format!("{pattern:?}")), "{pattern}: {error}");
        }
        let rule = |length| Rule { include: true, pattern: "a".repeat(length) };
        assert_eq!(Filter::new(&[rule(1001)]).unwrap_err(), FilterError::TooLong { length: 1001 });
        assert!(Filter::new(&vec![rule(1); 1000]).is_ok());
        assert_eq!(Filter::new(&vec![rule(1); 1001]).unwrap_err(), FilterError::TooMany { rules: 1001 });
    }

    #[test]
    fn the_costliest_patterns_that_are_allowed_end_in_an_error_or_a_filter() {
        let rule = Rule { include: false, pattern: "a**".repeat(333) };
        match Filter::new(&vec![rule; 50]) {
            Ok(filter) => assert!(filter.admits(&RelativePath::new("b".repeat(200)).unwrap(), false)),
            Err(error) => {
                assert!(
                    matches!(error, FilterError::TooComplex { .. } | FilterError::Pattern { .. }),
                    "{error}"
                );
            }
        }
    }
}
