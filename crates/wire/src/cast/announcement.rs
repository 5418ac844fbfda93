//! What a product is: the head of its stream.

use crate::entry::Metadata;
use crate::path::{PathError, RelativePath};
use crate::rest::{Rest, Short};

/// The name and metadata of a product. Its size follows from its [`super::Shape`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Where it goes, beneath the receiver's directory: no way out of it, and a name.
    pub path: RelativePath,
    /// Its metadata.
    pub metadata: Metadata,
}

impl Announcement {
    /// Least bytes on the wire: fixed fields and a name of one.
    pub const LEAST: usize = FIXED + 1;
    /// Most bytes on the wire.
    pub const MOST: usize = FIXED + RelativePath::MOST;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED + self.path.as_bytes().len());
        bytes.push(VERSION);
        bytes.extend(self.metadata.mode.to_be_bytes());
        bytes.extend(self.metadata.mtime_s.to_be_bytes());
        bytes.extend(self.metadata.mtime_ns.to_be_bytes());
        bytes.extend(self.path.as_bytes());
        bytes
    }

    /// The announcement that `bytes` are, all of them.
    ///
    /// # Errors
    /// [`AnnouncementError`] where a receiver must not store such a product.
    pub fn decode(bytes: &[u8]) -> Result<Self, AnnouncementError> {
        let mut rest = Rest(bytes);
        let version = rest.u8()?;
        if version != VERSION {
            return Err(AnnouncementError::Version { version });
        }
        let (mode, mtime_s, mtime_ns) = (rest.u16()?, rest.u64()? as i64, rest.u32()?);
        if mode > 0o7777 || mtime_ns >= 1_000_000_000 {
            return Err(AnnouncementError::Metadata);
        }
        let path = RelativePath::new(rest.0)?;
        if path.is_root() {
            return Err(AnnouncementError::NoName);
        }
        Ok(Self { path, metadata: Metadata { mode, mtime_s, mtime_ns } })
    }
}

/// Why a product must not be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnouncementError {
    /// It ends too early.
    #[error("an announcement that ends too early")]
    Short,
    /// Of another version than ours.
    #[error("an announcement of version {version}, where this end speaks {VERSION}")]
    Version {
        /// As it claims.
        version: u8,
    },
    /// Permission bits or nanoseconds that cannot be.
    #[error("an announcement with impossible permissions or times")]
    Metadata,
    /// Nothing to store it as.
    #[error("an announcement without a name")]
    NoName,
    /// A name that is not to be followed.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl From<Short> for AnnouncementError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

/// Of this layout.
const VERSION: u8 = 1;
const FIXED: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(path: &str) -> Announcement {
        let metadata = Metadata { mode: 0o644, mtime_s: -5, mtime_ns: 999_999_999 };
        Announcement { path: RelativePath::new(path).unwrap(), metadata }
    }

    #[test]
    fn an_announcement_survives_the_wire() {
        let ours = announcement("radar/KTLX_2026.ar2v");
        assert_eq!(Announcement::decode(&ours.encode()), Ok(ours));
        assert_eq!(announcement("a").encode().len(), Announcement::LEAST);
    }

    #[test]
    fn a_name_that_leaves_the_directory_is_refused() {
        let mut bytes = announcement("x").encode();
        for bad in [&b"/etc/passwd"[..], b"../x", b"a/../../x", b"a//x", b"a\0x"] {
            bytes.truncate(FIXED);
            bytes.extend(bad);
            assert!(matches!(Announcement::decode(&bytes), Err(AnnouncementError::Path(_))), "{bad:?}");
        }
        bytes.truncate(FIXED);
        assert_eq!(Announcement::decode(&bytes), Err(AnnouncementError::NoName));
        bytes.truncate(FIXED - 1);
        assert_eq!(Announcement::decode(&bytes), Err(AnnouncementError::Short));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let ours = announcement("x").encode();
        for (at, byte) in [(0, 2), (1, 0xff), (11, 0xff)] {
            let mut bytes = ours.clone();
            bytes[at] = byte;
            assert!(Announcement::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
