//! Which names a copy takes: `--include`, `--exclude` and files of both, as rsync's.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ArgMatches;
use farlink_wire::message::copy::Rule;
use farlink_wire::path::readable;

use super::list::{content, is_comment, lines};

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
    let bytes = content(file).with_context(|| format!("read the patterns in {}", file.display()))?;
    let rule =
        |line| rule(line, include).with_context(|| format!("a pattern in {} is refused", file.display()));
    lines(&bytes, by_nul).filter(|line| !is_comment(line)).map(rule).collect()
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
