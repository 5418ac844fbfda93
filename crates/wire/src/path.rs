//! Names of files as the far end sends them: relative, and without a way out of the directory they are relative to.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A path beneath a directory that both ends know: no root, no `..`, no `.`, no empty component, no NUL. The empty path is that
/// directory itself.
///
/// Unix names are bytes: what is not UTF-8 is kept. As text (in messages, records and on screens) the bytes that are not UTF-8, control
/// characters and `%` are written `%XX`.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelativePath(Vec<u8>);

impl RelativePath {
    /// Most bytes of a path: Linux's `PATH_MAX` less its NUL.
    pub const MOST: usize = 4095;
    /// Most bytes of a component: `NAME_MAX` of every Linux file system that is in use.
    pub const MOST_COMPONENT: usize = 255;

    /// The path that `bytes` are.
    ///
    /// # Errors
    /// [`PathError`] where a receiver must not follow it.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, PathError> {
        let bytes = bytes.into();
        if bytes.len() > Self::MOST {
            let path = readable(&bytes[..SHOWN]) + "…";
            return Err(PathError { path, reason: "it is longer than 4095 bytes" });
        }
        let refuse = |reason| PathError { path: readable(&bytes), reason };
        if bytes.contains(&0) {
            return Err(refuse("it contains a NUL"));
        }
        if bytes.first() == Some(&b'/') {
            return Err(refuse("it is absolute"));
        }
        if bytes.is_empty() {
            return Ok(Self(bytes));
        }
        for component in bytes.split(|byte| *byte == b'/') {
            match component {
                b"" => return Err(refuse("it has an empty component")),
                b"." => return Err(refuse("it has a component \".\"")),
                b".." => return Err(refuse("it has a component \"..\"")),
                long if long.len() > Self::MOST_COMPONENT => {
                    return Err(refuse("a component is longer than 255 bytes"));
                }
                _ => {}
            }
        }
        Ok(Self(bytes))
    }

    /// The directory itself.
    #[must_use]
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// Whether it is the directory itself.
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Its bytes, components separated by `/`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its components, outermost first.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|component| !component.is_empty())
    }

    /// Its last component; `None` of the directory itself.
    #[must_use]
    pub fn name(&self) -> Option<&[u8]> {
        self.components().next_back()
    }

    /// What it is in; `None` of the directory itself.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let cut = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Some(Self(self.0[..cut].to_vec()))
    }

    /// `name` in it.
    ///
    /// # Errors
    /// [`PathError`], also where `name` has more than one component.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        if name.is_empty() || name.contains(&b'/') {
            return Err(PathError { path: readable(name), reason: "a name has one component" });
        }
        let mut bytes = self.0.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend(name);
        Self::new(bytes)
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "." } else { "" })?;
        f.write_str(&readable(&self.0))
    }
}

impl fmt::Debug for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", readable(&self.0))
    }
}

impl From<RelativePath> for String {
    fn from(path: RelativePath) -> Self {
        readable(&path.0)
    }
}

impl TryFrom<String> for RelativePath {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        Self::new(bytes_of(&text))
    }
}

/// `bytes` as text that can be read and turned back by [`bytes_of`]: what is not UTF-8, control characters, those that turn the
/// direction of what follows (UAX #9), and `%` as `%XX`.
#[must_use]
pub fn readable(bytes: &[u8]) -> String {
    use fmt::Write;
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() || turns(character) || character == '%' {
                let mut buffer = [0; 4];
                for byte in character.encode_utf8(&mut buffer).bytes() {
                    let _ = write!(text, "%{byte:02X}");
                }
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Whether what stands around `character` is shown in another order.
const fn turns(character: char) -> bool {
    matches!(character, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// The bytes that [`readable`] wrote as `text`. A `%` without two hexadecimal digits behind it is itself.
#[must_use]
pub fn bytes_of(text: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut rest = text.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        match (first, digit(others.first()), digit(others.get(1))) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &others[2..];
            }
            _ => bytes.push(*first),
        }
    }
    bytes
}

/// Why a path was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path {path:?} is refused: {reason}")]
pub struct PathError {
    /// As given, readable.
    pub path: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Bytes that are shown of a path that is too long.
const SHOWN: usize = 80;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_turns_a_line_about_is_written_out() {
        assert_eq!(readable("a\u{202E}b\u{2067}ü".as_bytes()), "a%E2%80%AEb%E2%81%A7ü");
        assert_eq!(readable(b"50%\n\xff"), "50%25%0A%FF");
    }

    #[test]
    fn no_path_leads_out() {
        for bad in ["/etc/passwd", "..", "a/../../b", "a//b", "./a", "a/.", "a/", "/", "a\0b"] {
            assert!(RelativePath::new(bad).is_err(), "{bad:?}");
        }
        assert!(RelativePath::new("a".repeat(256)).is_err());
        assert!(RelativePath::new(vec![b'a'; 255]).is_ok());
        assert!(RelativePath::new("a/".repeat(2048) + "a").is_err());
    }

    #[test]
    fn a_path_has_components_a_name_and_a_parent() {
        let path = RelativePath::new("a/b..c/...").unwrap();
        assert_eq!(path.components().collect::<Vec<_>>(), [&b"a"[..], b"b..c", b"..."]);
        assert_eq!(path.parent().unwrap().parent().unwrap().parent(), Some(RelativePath::root()));
        assert_eq!(path.parent().unwrap().join(b"...").unwrap(), path);
        assert_eq!(RelativePath::root().join(b"x").unwrap().as_bytes(), b"x");
        assert!(path.join(b"..").is_err() && path.join(b"x/y").is_err() && path.join(b"").is_err());
        assert_eq!(RelativePath::root().to_string(), ".");
    }

    proptest! {
        #[test]
        fn text_gives_the_bytes_back(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(bytes_of(&readable(&bytes)), bytes);
        }
    }
}
