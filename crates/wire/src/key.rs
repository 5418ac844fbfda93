//! Public keys as text, and the lines of the files that name them: who may do what here (`authorized_keys`), and which far ends
//! are what they claim to be (`known_hosts`).
//!
//! ```text
//! farlink-ed25519 BASE64                                       a public key
//! read=/data write="/in box" farlink-ed25519 BASE64 comment    a line of authorized_keys
//! dtn2.example.org:5210 farlink-ed25519 BASE64 comment         a line of known_hosts
//! ```
//!
//! Empty lines and lines that begin with `#` say nothing.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

mod authorized;
mod known;

pub use authorized::{Authorized, Grant};
pub use known::KnownHost;

/// A public key: Ed25519 (RFC 8032), 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// The word before the key's base64.
    pub const KIND: &str = "farlink-ed25519";

    /// The key whose base64 is `text`.
    fn from_base64(text: &str) -> Result<Self, KeyError> {
        let decoded = STANDARD.decode(text).map_err(|_| KeyError::NotBase64)?;
        let length = decoded.len();
        decoded.try_into().map(Self).map_err(|_| KeyError::Length { length })
    }

    /// The key at the start of `words`.
    fn from_words<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Self, KeyError> {
        match words.next() {
            Some(Self::KIND) => {}
            Some(other) => return Err(KeyError::Kind { found: shown(other) }),
            None => return Err(KeyError::Missing),
        }
        Self::from_base64(words.next().ok_or(KeyError::Missing)?)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Self::KIND, STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut words = text.split_whitespace();
        let key = Self::from_words(&mut words)?;
        match words.next() {
            None => Ok(key),
            Some(more) => Err(KeyError::After { found: shown(more) }),
        }
    }
}

impl TryFrom<String> for PublicKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

/// The lines of a file that say something, each with its number, from 1.
///
/// # Errors
/// The first that does not read, with its number.
pub fn lines<T: FromStr<Err = KeyError>>(text: &str) -> Result<Vec<(usize, T)>, LineError> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let spoken = numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    spoken
        .map(|(line, text)| match text.parse() {
            Ok(read) => Ok((line, read)),
            Err(reason) => Err(LineError { line, reason }),
        })
        .collect()
}

/// A line that does not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LineError {
    /// Which, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: KeyError,
}

/// Why words are no key, or no line of a file of keys. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No key at all.
    #[error("the key is missing: write \"{kind} BASE64\", as `farlink keygen --show` prints it", kind = PublicKey::KIND)]
    Missing,
    /// A key of another kind, or no key.
    #[error("{found:?} is no kind of key: write \"{kind} BASE64\", as `farlink keygen --show` prints it", kind = PublicKey::KIND)]
    Kind {
        /// What stands there.
        found: String,
    },
    /// Not base64.
    #[error("the key is not base64: copy it whole, as `farlink keygen --show` prints it")]
    NotBase64,
    /// Base64 of another length.
    #[error(
        "the key has {length} bytes where 32 are one: copy it whole, as `farlink keygen --show` prints it"
    )]
    Length {
        /// Bytes that it has.
        length: usize,
    },
    /// Words after a key that stands alone.
    #[error("{found:?} follows the key: leave it out")]
    After {
        /// The first of them.
        found: String,
    },
    /// An option that nobody knows.
    #[error("{found:?} is no option: write read=/DIRECTORY or write=/DIRECTORY before the key")]
    Option {
        /// What stands there.
        found: String,
    },
    /// A directory that is no absolute path, or leads elsewhere.
    #[error("{found:?} is no directory to grant: write an absolute path without \"..\"")]
    Directory {
        /// What stands there.
        found: String,
    },
    /// A quotation without an end.
    #[error("a quotation does not end: write \" at its end")]
    Unquoted,
    /// A key alone, where a host stands before it.
    #[error("a key without a host: write HOST, HOST:PORT or [IPV6]:PORT before it")]
    NoHost,
    /// A name that is no host.
    #[error("{found:?} is no host: write HOST, HOST:PORT or [IPV6]:PORT before the key")]
    Host {
        /// What stands there.
        found: String,
    },
}

/// `word` as an error may show it: no control character, and not the whole of a long one.
fn shown(word: &str) -> String {
    word.chars().map(|c| if c.is_control() { ' ' } else { c }).take(60).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) const KEY: &str = "farlink-ed25519 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    #[test]
    fn a_key_is_two_words() {
        let key: PublicKey = format!("  {KEY}\n").parse().unwrap();
        assert_eq!((key, key.to_string().as_str()), (PublicKey([1; 32]), KEY));
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<PublicKey>(&json).unwrap(), key);
    }

    #[test]
    fn what_is_no_key_is_told_with_the_mend() {
        for (text, said) in [
            ("", "the key is missing: write \"farlink-ed25519 BASE64\""),
            ("farlink-ed25519", "the key is missing"),
            ("ssh-ed25519 AAAA", "\"ssh-ed25519\" is no kind of key"),
            ("farlink-ed25519 A?A=", "the key is not base64: copy it whole"),
            ("farlink-ed25519 AAAA", "the key has 3 bytes where 32 are one"),
            (&format!("{KEY} me"), "\"me\" follows the key: leave it out"),
            ("\u{1b}[2J x", "\" [2J\" is no kind of key"),
        ] {
            let error = text.parse::<PublicKey>().unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn a_line_that_does_not_read_is_named() {
        let good = format!("# mine\n\n  {KEY}\n");
        assert_eq!(lines::<PublicKey>(&good).unwrap(), [(3, PublicKey([1; 32]))]);
        let error = lines::<PublicKey>(&format!("{good}{KEY} x\n")).unwrap_err();
        assert_eq!(error.to_string(), "line 4: \"x\" follows the key: leave it out");
    }

    proptest! {
        #[test]
        fn every_key_reads_back(bytes in any::<[u8; 32]>()) {
            prop_assert_eq!(PublicKey(bytes).to_string().parse(), Ok(PublicKey(bytes)));
        }

        #[test]
        fn no_text_makes_the_decoders_panic(text in "\\PC{0,120}") {
            let _ = (text.parse::<PublicKey>(), text.parse::<Authorized>(), text.parse::<KnownHost>());
        }
    }
}
