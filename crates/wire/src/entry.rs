//! What is copied, beside the content: names, kinds and metadata.

use serde::{Deserialize, Serialize};

use crate::path::RelativePath;

/// A BLAKE3 digest, or the chaining value of a subtree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Bytes of one.
    pub const LEN: usize = 32;
    /// In place of the digest of what the sender could not read: no content has it.
    pub const ABSENT: Self = Self([0xff; Self::LEN]);
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom("a digest is 64 hexadecimal digits");
        if text.len() != 2 * Self::LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut digest = [0; Self::LEN];
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(digest))
    }
}

/// What is kept of a file's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Permission bits, with set-id and sticky: at most `0o7777`.
    pub mode: u16,
    /// Seconds of the modification time, since 1970.
    pub mtime_s: i64,
    /// Nanoseconds of it, less than a second.
    pub mtime_ns: u32,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File {
        /// Bytes.
        size: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// What it says, 1 to 4095 bytes.
        target: Vec<u8>,
    },
}

/// One name that is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where, beneath the destination.
    pub path: RelativePath,
    /// What.
    pub kind: Kind,
    /// Its metadata; of a symbolic link only the times count.
    pub metadata: Metadata,
}
