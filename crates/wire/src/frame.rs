//! What a data connection of a file transfer carries, from the sender to the receiver.
//!
//! After the preamble (and TLS, where data are encrypted) come frames: a head of [`Head::LEN`] bytes (what it is, and the length of
//! its body, big endian), the body, and behind the body of a [`Block`] its payload and the payload's digest, which is thus computed
//! while the payload leaves. Any frame may come on any connection: what a block belongs to is said on a connection before its first
//! block of that file, and so no connection waits for another.
//!
//! A value that was decoded is within its bounds: nothing behind this module checks them again.

use crate::entry::{Digest, Entry, Kind, Metadata};
use crate::path::{PathError, RelativePath};
use crate::rest::{Rest, Short};

/// Largest file that travels in a pack, bytes.
pub const MOST_PACKED: u64 = 256 * 1024;

/// Content that a pack is filled to, bytes.
pub const PACK_BYTES: usize = 1024 * 1024;

/// Most entries of a pack.
pub const MOST_ENTRIES: usize = 4096;

/// Least and most bytes of a block: powers of two, so that a block is a subtree of BLAKE3.
pub const BLOCK_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(1 << 26);

/// Blocks that a file should have at most: so many digests are kept of it.
const MANY_BLOCKS: u64 = 1 << 18;

/// Bytes of a block of a file of `size` bytes: 1 MiB to 256 GiB, and from there as many as keep it at 262,144 blocks.
#[must_use]
pub fn block_bytes(size: u64) -> u64 {
    let even = size.div_ceil(MANY_BLOCKS).next_power_of_two();
    even.clamp(*BLOCK_BYTES.start(), *BLOCK_BYTES.end())
}

/// The first bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is.
    pub what: What,
    /// Bytes of its body.
    pub length: u32,
}

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// A [`File`].
    File = 1,
    /// A [`Block`].
    Block = 2,
    /// [`Holes`].
    Holes = 3,
    /// A [`Pack`] with content.
    Pack = 4,
    /// A [`Pack`] without content: which of these does the receiver not have?
    Offer = 5,
    /// Nothing more comes on this connection.
    End = 6,
}

impl What {
    /// Most bytes of a body.
    const fn most(self) -> usize {
        match self {
            Self::File => 12 + MOST_ENTRY,
            Self::Block => Block::LEN,
            Self::Holes => Holes::MOST_LEN,
            // The last entry may be as large as any.
            Self::Pack | Self::Offer => PACK_BYTES + MOST_PACKED as usize + MOST_ENTRIES * 64 + MOST_ENTRY,
            Self::End => 0,
        }
    }
}

impl Head {
    /// Bytes on the wire.
    pub const LEN: usize = 5;
    /// Bytes of the longest body.
    pub const MOST_BODY: usize = What::Pack.most();

    /// As bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let [a, b, c, d] = self.length.to_be_bytes();
        [self.what as u8, a, b, c, d]
    }

    /// The head that `bytes` are.
    ///
    /// # Errors
    /// [`FrameError::Kind`], [`FrameError::TooLong`].
    pub fn decode(bytes: [u8; Self::LEN]) -> Result<Self, FrameError> {
        let [kind, a, b, c, d] = bytes;
        let kinds = [What::File, What::Block, What::Holes, What::Pack, What::Offer, What::End];
        let what = kinds.into_iter().find(|what| *what as u8 == kind).ok_or(FrameError::Kind { kind })?;
        let length = u32::from_be_bytes([a, b, c, d]);
        if length as usize > what.most() {
            return Err(FrameError::TooLong { what, length });
        }
        Ok(Self { what, length })
    }
}

/// A file that comes in blocks. It is said on every connection before its first block there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its number in this transfer, by which blocks name it.
    pub file: u32,
    /// Its name, metadata and size.
    pub entry: Entry,
    /// Whether it has holes: the receiver leaves zeros out.
    pub sparse: bool,
}

/// A part of a file. Its payload follows, and then its digest: the chaining value of its subtree; of a file's only block the file's
/// digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The file.
    pub file: u32,
    /// Which block of it, from 0.
    pub index: u32,
    /// Bytes of payload.
    pub length: u32,
}

/// Blocks of a file in which there is nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holes {
    /// The file.
    pub file: u32,
    /// First block and number of blocks of each, ascending, none of them empty.
    pub runs: Vec<(u32, u32)>,
}

/// Small files, symbolic links and directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack<'a> {
    /// Its number in this transfer.
    pub pack: u32,
    /// What is in it.
    pub items: Vec<Item<'a>>,
}

/// One entry of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its name, kind and metadata.
    pub entry: Entry,
    /// Of a file its digest.
    pub digest: Digest,
    /// Of a file what is in it; nothing in an offer.
    pub content: &'a [u8],
}

impl File {
    /// Appends the whole frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        framed(What::File, out, |out| {
            out.extend(self.file.to_be_bytes());
            out.push(u8::from(self.sparse));
            put_entry(&self.entry, out);
        });
    }

    /// The file of a frame's body.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let mut rest = Rest(body);
        let file = rest.u32()?;
        let sparse = match rest.u8()? {
            0 => false,
            1 => true,
            _ => return Err(FrameError::Malformed { what: "a file's flags" }),
        };
        let entry = rest.entry()?;
        rest.end()?;
        match entry.kind {
            Kind::File { size } if size > 0 && size <= MOST_FILE => Ok(Self { file, entry, sparse }),
            _ => Err(FrameError::Malformed { what: "what comes in blocks is no file that could" }),
        }
    }

    /// Bytes of the file.
    #[must_use]
    pub const fn size(&self) -> u64 {
        match self.entry.kind {
            Kind::File { size } => size,
            _ => 0,
        }
    }
}

impl Block {
    /// Bytes of the body on the wire.
    pub const LEN: usize = 12;

    /// The whole frame but for its payload and the digest.
    #[must_use]
    pub fn encode(&self) -> [u8; Head::LEN + Self::LEN] {
        let mut bytes = [0; Head::LEN + Self::LEN];
        let head = Head { what: What::Block, length: Self::LEN as u32 };
        bytes[..5].copy_from_slice(&head.encode());
        bytes[5..9].copy_from_slice(&self.file.to_be_bytes());
        bytes[9..13].copy_from_slice(&self.index.to_be_bytes());
        bytes[13..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// The block of a frame's body.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let mut rest = Rest(body);
        let (file, index, length) = (rest.u32()?, rest.u32()?, rest.u32()?);
        rest.end()?;
        if length == 0 || u64::from(length) > *BLOCK_BYTES.end() {
            return Err(FrameError::Malformed { what: "a block's length" });
        }
        Ok(Self { file, index, length })
    }
}

impl Holes {
    /// Most runs of one frame; more are sent as several.
    pub const MOST: usize = 4096;
    const MOST_LEN: usize = 4 + 8 * Self::MOST;

    /// Appends the whole frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        framed(What::Holes, out, |out| {
            out.extend(self.file.to_be_bytes());
            for (first, count) in &self.runs {
                out.extend(first.to_be_bytes());
                out.extend(count.to_be_bytes());
            }
        });
    }

    /// The holes of a frame's body.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let mut rest = Rest(body);
        let file = rest.u32()?;
        let mut runs = Vec::with_capacity(rest.0.len() / 8);
        let mut from = 0;
        while !rest.0.is_empty() {
            let (first, count) = (rest.u32()?, rest.u32()?);
            let end = first.checked_add(count);
            match end {
                Some(end) if count > 0 && first >= from => from = end,
                _ => return Err(FrameError::Malformed { what: "holes that are not in order" }),
            }
            runs.push((first, count));
        }
        Ok(Self { file, runs })
    }
}

impl<'a> Pack<'a> {
    /// Appends the head and the number of a pack to `out`: items follow by [`Self::add`], and [`Self::close`] ends it.
    pub fn open(what: What, pack: u32, out: &mut Vec<u8>) {
        out.extend(Head { what, length: 0 }.encode());
        out.extend(pack.to_be_bytes());
    }

    /// Appends an entry; `content` stays empty in an offer.
    pub fn add(entry: &Entry, digest: Digest, content: &[u8], out: &mut Vec<u8>) {
        put_entry(entry, out);
        if matches!(entry.kind, Kind::File { .. }) {
            out.extend(digest.0);
            out.extend(content);
        }
    }

    /// Writes its length into the head of the pack that begins at `from` and ends with `out`.
    pub fn close(from: usize, out: &mut [u8]) {
        let length = (out.len() - from - Head::LEN) as u32;
        debug_assert!(length as usize <= Head::MOST_BODY, "a pack of {length} bytes");
        out[from + 1..from + Head::LEN].copy_from_slice(&length.to_be_bytes());
    }

    /// The pack, or where `what` is [`What::Offer`] the offer, of a frame's body.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode(what: What, body: &'a [u8]) -> Result<Self, FrameError> {
        let mut rest = Rest(body);
        let pack = rest.u32()?;
        let mut items = Vec::new();
        while !rest.0.is_empty() {
            if items.len() == MOST_ENTRIES {
                return Err(FrameError::Malformed { what: "more entries than a pack may have" });
            }
            let entry = rest.entry()?;
            let (mut digest, mut content) = (Digest::default(), &[][..]);
            if let Kind::File { size } = entry.kind {
                if size > MOST_PACKED {
                    return Err(FrameError::Malformed { what: "a file too large for a pack" });
                }
                digest = rest.digest()?;
                if what == What::Pack {
                    content = rest.take(size as usize)?;
                }
            }
            items.push(Item { entry, digest, content });
        }
        Ok(Self { pack, items })
    }
}

/// Appends an orderly end of a connection to `out`.
pub fn encode_end(out: &mut Vec<u8>) {
    out.extend(Head { what: What::End, length: 0 }.encode());
}

fn framed(what: What, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let from = out.len();
    out.extend(Head { what, length: 0 }.encode());
    body(out);
    Pack::close(from, out);
}

fn put_entry(entry: &Entry, out: &mut Vec<u8>) {
    let kind = match &entry.kind {
        Kind::File { .. } => 0,
        Kind::Directory => 1,
        Kind::Symlink { .. } => 2,
    };
    out.push(kind);
    out.extend(entry.metadata.mode.to_be_bytes());
    out.extend(entry.metadata.mtime_s.to_be_bytes());
    out.extend(entry.metadata.mtime_ns.to_be_bytes());
    out.extend((entry.path.as_bytes().len() as u16).to_be_bytes());
    out.extend(entry.path.as_bytes());
    match &entry.kind {
        Kind::File { size } => out.extend(size.to_be_bytes()),
        Kind::Directory => {}
        Kind::Symlink { target } => {
            out.extend((target.len() as u16).to_be_bytes());
            out.extend(target);
        }
    }
}

impl Rest<'_> {
    fn digest(&mut self) -> Result<Digest, FrameError> {
        Ok(Digest(self.array()?))
    }

    fn entry(&mut self) -> Result<Entry, FrameError> {
        let kind = self.u8()?;
        let mode = self.u16()?;
        if mode > 0o7777 {
            return Err(FrameError::Malformed { what: "permission bits" });
        }
        let (mtime_s, mtime_ns) = (self.u64()? as i64, self.u32()?);
        if mtime_ns >= 1_000_000_000 {
            return Err(FrameError::Malformed { what: "nanoseconds" });
        }
        let length = self.u16()?;
        let path = RelativePath::new(self.take(length.into())?)?;
        let kind = match kind {
            0 => Kind::File { size: self.u64()? },
            1 => Kind::Directory,
            2 => {
                let length = usize::from(self.u16()?);
                let target = self.take(length)?.to_vec();
                if length == 0 || length > RelativePath::MOST || target.contains(&0) {
                    return Err(FrameError::Malformed { what: "a symbolic link's target" });
                }
                Kind::Symlink { target }
            }
            _ => return Err(FrameError::Malformed { what: "a kind of entry" }),
        };
        if path.is_root() && kind != Kind::Directory {
            return Err(FrameError::Malformed { what: "a file without a name" });
        }
        Ok(Entry { path, kind, metadata: Metadata { mode, mtime_s, mtime_ns } })
    }

    fn end(&self) -> Result<(), FrameError> {
        if self.is_empty() { Ok(()) } else { Err(FrameError::Malformed { what: "bytes behind the end" }) }
    }
}

impl From<Short> for FrameError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

/// Bytes of the longest entry: fixed fields, a path and a target.
const MOST_ENTRY: usize = 27 + 2 * RelativePath::MOST;

/// Bytes of the largest file, 128 TiB: 2 Mi blocks, whose digests are 64 MiB at either end.
pub const MOST_FILE: u64 = 1 << 47;

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Of no kind that there is.
    #[error("a frame of the unknown kind {kind}")]
    Kind {
        /// As it claims.
        kind: u8,
    },
    /// Longer than any of its kind.
    #[error("a frame of kind {what:?} of {length} bytes, where {} is the most", what.most())]
    TooLong {
        /// Its kind.
        what: What,
        /// As it claims.
        length: u32,
    },
    /// It ends before what it should contain.
    #[error("a frame that ends too early")]
    Short,
    /// Out of bounds.
    #[error("a malformed frame: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
    },
    /// A path that is not to be followed.
    #[error(transparent)]
    Path(#[from] PathError),
}

#[cfg(test)]
mod tests;
