//! Which names a copy takes: `--include`, `--exclude` and files of both, as rsync's.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ArgMatches;
use farlink_wire::message::copy::Rule;
use farlink_wire::path::readable;

/// Every rule that was given, by word or by file, in the order in which they were.
pub(super) fn of(matches: &ArgMatches) -> anyhow::Result<Vec<Rule>> {
    let mut rules = Vec::new();
    let is_input = |id: &&str| given::<PathBuf>(matches, id).any(|(_, file)| file.as_os_str() == "-");
    let inputs: Vec<_> =
        ["include_from", "exclude_from", "files_from"].into_iter().filter(is_input).collect();
    if let [one, other, ..] = inputs[..] {
        let [one, other] = [one, other].map(|id| id.replace('_', "-"));
        bail!("standard input cannot be what both --{one} and --{other} read: write one of them to a file");
    }
    for (id, include) in [("include", true), ("exclude", false)] {
        for (at, pattern) in given::<String>(matches, id) {
            rules.push((at, vec![Rule { include, pattern: pattern.clone() }]));
        }
    }
    for (id, include) in [("include_from", true), ("exclude_from", false)] {
        for (at, file) in given::<PathBuf>(matches, id) {
            rules.push((at, read(file, include, matches.get_flag("from0"))?));
        }
    }
    rules.sort_by_key(|(at, _)| *at);
    Ok(rules.into_iter().flat_map(|(_, rules)| rules).collect())
}

fn given<'a, T>(matches: &'a ArgMatches, id: &str) -> impl Iterator<Item = (usize, &'a T)>
where
    T: Clone + Send + Sync + 'static,
{
    let places = matches.indices_of(id).into_iter().flatten();
    places.zip(matches.get_many::<T>(id).into_iter().flatten())
}

/// The rules of `file`, `-` being standard input.
fn read(file: &Path, include: bool, by_nul: bool) -> anyhow::Result<Vec<Rule>> {
    let mut bytes = Vec::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        fs::read(file).map(|read| bytes = read)
    };
    read.with_context(|| format!("read the patterns in {}", file.display()))?;
    let rule =
        |line| rule(line, include).with_context(|| format!("a pattern in {} is refused", file.display()));
    lines(&bytes, by_nul).filter(|line| !is_comment(line)).map(rule).collect()
}

/// What a file lists, one a line, or behind each a NUL. Lines end with a carriage return, too.
pub(super) fn lines(bytes: &[u8], by_nul: bool) -> impl Iterator<Item = &[u8]> {
    let ends = move |byte: &u8| if by_nul { *byte == b'\0' } else { matches!(byte, b'\n' | b'\r') };
    bytes.split(ends).filter(|line| !line.is_empty())
}

/// Of rules whatever ends a line, and of names where a NUL does not, as rsync has it.
pub(super) const fn is_comment(line: &[u8]) -> bool {
    matches!(line, [b'#' | b';', ..])
}

/// A sign and a space before a pattern say what it does, whatever the file is for, as rsync has it.
fn rule(line: &[u8], include: bool) -> anyhow::Result<Rule> {
    let (include, pattern) = match line {
        [b'+', b' ', pattern @ ..] => (true, pattern),
        [b'-', b' ', pattern @ ..] => (false, pattern),
        pattern => (include, pattern),
    };
    if pattern.is_empty() {
        bail!("\"{}\" has no pattern behind its sign", readable(line));
    }
    if pattern == b"!" {
        bail!("\"!\" forgets rules in rsync's files, and does not here: leave out what it would forget");
    }
    let Ok(pattern) = str::from_utf8(pattern) else {
        bail!("\"{}\" is not UTF-8: write ? or * for those bytes", readable(pattern));
    };
    Ok(Rule { include, pattern: pattern.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_rsync_has_them() {
        let lines = |by_nul| lines(b"a\r\nb\n\nc\0d", by_nul).collect::<Vec<_>>();
        assert_eq!(lines(false), [&b"a"[..], b"b", b"c\0d"]);
        assert_eq!(lines(true), [&b"a\r\nb\n\nc"[..], b"d"]);
    }

    #[test]
    fn a_sign_says_what_a_line_does_whatever_the_file_is_for() {
        let rules = [("+ a", true, "a"), ("- a b", false, "a b"), ("-a", true, "-a"), ("+", true, "+")];
        for (line, include, pattern) in rules {
            let pattern = pattern.to_owned();
            assert_eq!(rule(line.as_bytes(), true).unwrap(), Rule { include, pattern });
        }
        assert!(!rule(b"a", false).unwrap().include);
        assert!(rule(b"- ", false).unwrap_err().to_string().contains("no pattern"));
        assert!(rule(b"!", false).unwrap_err().to_string().contains("forgets"));
        assert!(rule(b"a\xff", false).unwrap_err().to_string().contains("UTF-8"));
    }
}
