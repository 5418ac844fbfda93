//! A list of names beneath the source, as rsync's and tar's.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail};
use farlink_wire::message::copy::Place;
use farlink_wire::path::{RelativePath, readable};

/// The names that `file` lists, `-` being standard input: one a line, or behind each a NUL. As with rsync, lines end with a carriage return,
/// too, and those that begin with `#` or `;` are comments: `./#name` is a name.
pub(super) fn read(file: &Path, by_nul: bool) -> anyhow::Result<Vec<Place>> {
    let bytes = content(file).with_context(|| format!("read the list of names {}", file.display()))?;
    places(&bytes, by_nul)
}

/// What `file` has, or standard input where it is `-`.
pub(super) fn content(file: &Path) -> io::Result<Vec<u8>> {
    if file.as_os_str() != "-" {
        return fs::read(file);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
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

/// The source itself stands first in what find(1) says of it: with others behind it, it says nothing.
fn places(bytes: &[u8], by_nul: bool) -> anyhow::Result<Vec<Place>> {
    let (source, others): (Vec<_>, Vec<_>) = names(bytes, by_nul).partition(|name| is_source(name));
    let of = if others.is_empty() { source } else { others };
    of.into_iter().map(place).collect()
}

fn names(bytes: &[u8], by_nul: bool) -> impl Iterator<Item = &[u8]> {
    lines(bytes, by_nul).filter(move |name| by_nul || !is_comment(name))
}

fn is_source(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'/').all(|each| matches!(each, b"" | b"."))
}

/// Whether `names` are few enough to be asked for.
pub(super) fn check_request(names: &[Place]) -> anyhow::Result<()> {
    let bytes: usize = names.iter().map(|name| readable(name.as_bytes()).len() + 3).sum();
    if bytes > MOST_BYTES {
        bail!(
            "the list has {bytes} bytes, and a far source takes {MOST_BYTES}: copy it in parts, or run this command where the source is"
        );
    }
    Ok(())
}

/// `name` as it is beneath the source: slashes in front and behind, and dots, say nothing.
fn place(name: &[u8]) -> anyhow::Result<Place> {
    let components = name.split(|byte| *byte == b'/').filter(|each| !matches!(*each, b"" | b"."));
    let name = components.collect::<Vec<_>>().join(&b'/');
    // Here, where the list is known: the sender would say the same.
    let name = RelativePath::new(name).context("a name of the list is refused")?;
    if name.is_root() {
        bail!("the list names the source itself: leave out --files-from, or name what is in it");
    }
    Ok(Place::new(name.as_bytes())?)
}

/// Bytes of names in a request: half of a message.
const MOST_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_beneath_the_source_whatever_slashes_they_have() {
        for (given, name) in [("a/b", "a/b"), ("/a//b/", "a/b"), ("./a/./b", "a/b"), (" a", " a")] {
            assert_eq!(place(given.as_bytes()).unwrap().as_bytes(), name.as_bytes());
        }
        for (given, said) in [("a/../b", "\"..\""), (".", "the source itself"), ("a\0b", "NUL")] {
            let refused = format!("{:#}", place(given.as_bytes()).unwrap_err());
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn what_find_says_of_a_tree_is_a_list_of_it() {
        let read =
            |bytes| places(bytes, true).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(read(b".\0./a\0./a/b\0").unwrap(), ["a", "a/b"]);
        assert!(read(b".\0./\0").is_err());
        assert!(read(b"").unwrap().is_empty());
    }

    #[test]
    fn lines_end_as_rsync_has_them() {
        let lines = |by_nul| lines(b"a\r\nb\n\nc\0d", by_nul).collect::<Vec<_>>();
        assert_eq!(lines(false), [&b"a"[..], b"b", b"c\0d"]);
        assert_eq!(lines(true), [&b"a\r\nb\n\nc"[..], b"d"]);
    }

    #[test]
    fn comments_are_as_rsync_has_them() {
        let read = |by_nul| names(b"# a\r\nb\r\n;c\n\n./#d\0e", by_nul).collect::<Vec<_>>();
        assert_eq!(read(false), [&b"b"[..], b"./#d\0e"]);
        assert_eq!(read(true), [&b"# a\r\nb\r\n;c\n\n./#d"[..], b"e"]);
    }

    #[test]
    fn a_list_for_a_far_source_fits_a_message() {
        let name = place(&[b'x'; 200]).unwrap();
        assert!(check_request(&vec![name.clone(); 600]).is_ok());
        assert!(check_request(&vec![name; 700]).is_err());
    }
}
