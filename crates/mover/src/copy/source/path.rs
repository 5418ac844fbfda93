//! A source as the user names it.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::copy::pattern::is_pattern;
use farlink_wire::path::{RelativePath, bytes_of, readable};
use serde::{Deserialize, Serialize};

/// A path on the host that sends: a file, a link or a tree by its own name, or where it ends in `/`, `/.` or `/..` what is in a directory.
///
/// It is the user's own word: it may lead through `..` and links, within what the sending host lets be read. As text it is written as a
/// [`RelativePath`] is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SourcePath {
    bytes: Vec<u8>,
    /// Whether it is a [pattern](crate::copy::pattern).
    is_pattern: bool,
}

impl SourcePath {
    /// The source that `bytes` name, from the root of what may be read.
    ///
    /// # Errors
    /// [`SourcePathError`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, SourcePathError> {
        let bytes = bytes.into();
        let refuse = |reason| SourcePathError { path: readable(&bytes), reason };
        if bytes.is_empty() {
            return Err(refuse("it is empty"));
        }
        if bytes.len() > RelativePath::MOST {
            return Err(refuse("it is longer than 4095 bytes"));
        }
        if bytes.contains(&0) {
            return Err(refuse("it contains a NUL"));
        }
        Ok(Self { bytes, is_pattern: false })
    }

    /// As [`new`](Self::new), and where it is a pattern it stands for what is like it.
    pub(in crate::copy) fn pattern(bytes: Vec<u8>) -> Result<Self, SourcePathError> {
        let is_pattern = is_pattern(&bytes);
        Ok(Self { is_pattern, ..Self::new(bytes)? })
    }

    /// Whether it stands for what is like it.
    pub(super) const fn is_pattern(&self) -> bool {
        self.is_pattern
    }

    /// As it was named.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The name that it has at the receiver; `None` where what is in it is copied, or what is like it.
    #[must_use]
    pub fn base_name(&self) -> Option<&[u8]> {
        self.split().1.filter(|_| !self.is_pattern)
    }

    /// As a path of this host, where it is absolute.
    #[must_use]
    pub fn to_path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.bytes))
    }

    /// The directory to open, relative to the root of what may be read, and the name in it; `None` where it is the directory itself.
    pub(super) fn split(&self) -> (&[u8], Option<&[u8]>) {
        let start = self.bytes.iter().position(|byte| *byte != b'/').unwrap_or(self.bytes.len());
        let path = &self.bytes[start..];
        let name = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        match &path[name..] {
            b"" | b"." | b".." => (path, None),
            last => (&path[..name], Some(last)),
        }
    }
}

impl fmt::Display for SourcePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&readable(&self.bytes))
    }
}

impl From<SourcePath> for String {
    fn from(path: SourcePath) -> Self {
        readable(&path.bytes)
    }
}

impl TryFrom<String> for SourcePath {
    type Error = SourcePathError;

    fn try_from(text: String) -> Result<Self, SourcePathError> {
        Self::new(bytes_of(&text))
    }
}

/// Why something is no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the source {path:?} is refused: {reason}")]
pub struct SourcePathError {
    /// As given, readable.
    pub path: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// `path` from the root, where it is from the working directory.
pub(in crate::copy) fn absolute(path: &[u8]) -> io::Result<Vec<u8>> {
    if path.starts_with(b"/") {
        return Ok(path.to_vec());
    }
    let here = std::env::current_dir()?;
    let mut whole = here.into_os_string().into_vec();
    whole.push(b'/');
    whole.extend(path);
    Ok(whole)
}

/// A path without what changes nothing in it: components that are empty or `.`, but for the last.
pub(in crate::copy) fn plain(path: &[u8]) -> Vec<u8> {
    let components: Vec<_> = path.split(|byte| *byte == b'/').collect();
    let last = components.len() - 1;
    let counts = |at: usize, component: &[u8]| at == 0 || at == last || !matches!(component, b"" | b".");
    let kept: Vec<_> = (0..)
        .zip(components)
        .filter(|(at, component)| counts(*at, component))
        .map(|(_, component)| component)
        .collect();
    kept.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_copied_by_its_name_or_by_what_is_in_it() {
        let table: [(&str, &str, Option<&str>); 9] = [
            ("/data/run", "data/", Some("run")),
            ("run", "", Some("run")),
            ("//data//run", "data//", Some("run")),
            ("/data/run/", "data/run/", None),
            ("/data/run/.", "data/run/.", None),
            ("/data/..", "data/..", None),
            ("/data/../x", "data/../", Some("x")),
            ("/", "", None),
            (".", ".", None),
        ];
        for (path, directory, name) in table {
            let source = SourcePath::new(path).unwrap();
            assert_eq!(source.split(), (directory.as_bytes(), name.map(str::as_bytes)), "{path}");
        }
        for bad in ["", "a\0b", &"a".repeat(4096)] {
            assert!(SourcePath::new(bad).is_err());
        }
    }

    #[test]
    fn it_survives_being_sent() {
        let source = SourcePath::new(b"/a\xff%\n/".to_vec()).unwrap();
        let text = serde_json::to_string(&source).unwrap();
        assert_eq!(serde_json::from_str::<SourcePath>(&text).unwrap(), source);
    }
}
