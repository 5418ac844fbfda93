//! The journal beside a partial file: which blocks of it were written, and what they should be.
//!
//! A header of [`Journal::LEN`] bytes, and a row of [`Row::LEN`] bytes for each block, appended when the block had been written; all
//! big endian. A row is a claim, not a proof: whoever resumes hashes the block again. So a row needs no protection but against being
//! half written, and a journal that is lost costs only time.

use crate::entry::{Digest, Metadata};
use crate::frame::{BLOCK_BYTES, MOST_FILE};

/// Whose journal it is: it is of use for the same file in the same blocks only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journal {
    size: u64,
    mtime_s: i64,
    mtime_ns: u32,
    block_bytes: u32,
}

/// One block that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which, from 0.
    pub index: u32,
    /// As a `Block` of the file says it.
    pub digest: Digest,
}

/// What a journal's bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journalled {
    /// Whose they are.
    pub journal: Journal,
    /// The rows that are whole, by block; of several of a block the last.
    pub rows: Vec<Row>,
    /// Bytes up to the end of the last row that is whole: what is behind them was torn.
    pub len: usize,
}

impl Journal {
    /// Bytes of the header.
    pub const LEN: usize = 40;

    /// The journal of a file of `size` bytes that was last modified as `metadata` says, in blocks of `block_bytes`.
    ///
    /// # Errors
    /// [`JournalError::Bounds`] where there is no such file of blocks.
    pub fn new(size: u64, metadata: &Metadata, block_bytes: u64) -> Result<Self, JournalError> {
        let &Metadata { mtime_s, mtime_ns, .. } = metadata;
        let bounds = size > 0
            && size <= MOST_FILE
            && BLOCK_BYTES.contains(&block_bytes)
            && block_bytes.is_power_of_two()
            && size.div_ceil(block_bytes) <= u64::from(u32::MAX)
            && mtime_ns < 1_000_000_000;
        if !bounds {
            return Err(JournalError::Bounds { size, block_bytes });
        }
        Ok(Self { size, mtime_s, mtime_ns, block_bytes: block_bytes as u32 })
    }

    /// How many blocks the file has.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.size.div_ceil(self.block_bytes.into()) as u32
    }

    /// Most bytes of a journal that was ever written: a block has a row of what stood there before, one of what came in its place, and
    /// another where that was found to be wrong.
    #[must_use]
    pub fn most_len(&self) -> u64 {
        Self::LEN as u64 + 3 * Row::LEN as u64 * u64::from(self.blocks())
    }

    /// The header.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.block_bytes.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.mtime_s.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.mtime_ns.to_be_bytes());
        let check = check(OFFSET_BASIS, &bytes[..36]);
        bytes[36..].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    /// A row of this journal.
    #[must_use]
    pub fn encode_row(&self, row: &Row) -> [u8; Row::LEN] {
        let mut bytes = [0; Row::LEN];
        bytes[..4].copy_from_slice(&row.index.to_be_bytes());
        bytes[4..36].copy_from_slice(&row.digest.0);
        let check = check(self.seed(), &bytes[..36]);
        bytes[36..].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    /// What `bytes` say. Rows that are torn or of no block of the file are left out.
    ///
    /// # Errors
    /// [`JournalError`] where the header is of no use.
    pub fn decode(bytes: &[u8]) -> Result<Journalled, JournalError> {
        let (header, tail) = bytes.split_first_chunk::<{ Self::LEN }>().ok_or(JournalError::Short)?;
        let journal = Self::decode_header(header)?;
        let seed = journal.seed();
        let mut rows = Vec::with_capacity(tail.len() / Row::LEN);
        let mut len = Self::LEN;
        for (at, bytes) in tail.as_chunks::<{ Row::LEN }>().0.iter().enumerate() {
            let index = u32_at(bytes, 0);
            if index >= journal.blocks() || u32_at(bytes, 36) != check(seed, &bytes[..36]) {
                continue;
            }
            let mut digest = Digest::default();
            digest.0.copy_from_slice(&bytes[4..36]);
            rows.push(Row { index, digest });
            len = Self::LEN + (at + 1) * Row::LEN;
        }
        // A stable sort: of the rows of a block the last written stays last.
        rows.sort_by_key(|row| row.index);
        rows.dedup_by(|later, kept| {
            let same = later.index == kept.index;
            if same {
                *kept = *later;
            }
            same
        });
        Ok(Journalled { journal, rows, len })
    }

    fn decode_header(bytes: &[u8; Self::LEN]) -> Result<Self, JournalError> {
        if bytes[..8] != MAGIC {
            return Err(JournalError::Magic);
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(JournalError::Version { version });
        }
        if u32_at(bytes, 36) != check(OFFSET_BASIS, &bytes[..36]) {
            return Err(JournalError::Check);
        }
        let u64_at = |at| u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4));
        let (mtime_s, mtime_ns) = (u64_at(24) as i64, u32_at(bytes, 32));
        Self::new(u64_at(16), &Metadata { mode: 0, mtime_s, mtime_ns }, u32_at(bytes, 12).into())
    }

    /// Where the check of a row begins: rows of another file are no rows of this.
    fn seed(&self) -> u32 {
        u32_at(&self.encode(), 36)
    }
}

impl Row {
    /// Bytes of one.
    pub const LEN: usize = 8 + Digest::LEN;
}

/// Why a journal is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// It ends within the header.
    #[error("a journal that ends too early")]
    Short,
    /// It is something else.
    #[error("no journal of a partial file")]
    Magic,
    /// Of a later or earlier farlink.
    #[error("a journal of version {version}, where {VERSION} is known")]
    Version {
        /// As it claims.
        version: u32,
    },
    /// Its header was damaged.
    #[error("a journal whose header is damaged")]
    Check,
    /// No file has such blocks.
    #[error("a journal of {size} bytes in blocks of {block_bytes}")]
    Bounds {
        /// As it claims, bytes.
        size: u64,
        /// As it claims.
        block_bytes: u64,
    },
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// FNV-1a, 32 bits (draft-eastlake-fnv, section 2): tells what was torn from what was written, and zeros from both.
fn check(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME))
}

const OFFSET_BASIS: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

const MAGIC: [u8; 8] = *b"farlinkj";

/// Of the layout.
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const MTIME: Metadata = Metadata { mode: 0o644, mtime_s: -1, mtime_ns: 999_999_999 };

    fn journal() -> Journal {
        Journal::new((5 << 20) + 1, &MTIME, 1 << 20).unwrap()
    }

    fn row(index: u32, fill: u8) -> Row {
        Row { index, digest: Digest([fill; 32]) }
    }

    fn written(rows: &[Row]) -> Vec<u8> {
        let journal = journal();
        let mut bytes = journal.encode().to_vec();
        rows.iter().for_each(|row| bytes.extend(journal.encode_row(row)));
        bytes
    }

    #[test]
    fn the_last_row_of_a_block_counts() {
        let bytes = written(&[row(5, 1), row(0, 2), row(5, 3)]);
        let read = Journal::decode(&bytes).unwrap();
        assert_eq!(
            read,
            Journalled { journal: journal(), rows: vec![row(0, 2), row(5, 3)], len: bytes.len() }
        );
        assert_eq!(journal().blocks(), 6);
    }

    #[test]
    fn a_torn_tail_costs_only_itself() {
        let whole = written(&[row(1, 1), row(2, 2)]);
        for cut in Journal::LEN..whole.len() {
            let read = Journal::decode(&whole[..cut]).unwrap();
            assert_eq!(read.rows.len(), (cut - Journal::LEN) / Row::LEN, "{cut}");
            assert_eq!(read.len, Journal::LEN + read.rows.len() * Row::LEN);
        }
        // What a disk that lost its power leaves: the length without the bytes.
        let zeros = [&whole[..], &[0; 100]].concat();
        assert_eq!(Journal::decode(&zeros).unwrap().len, whole.len());
    }

    #[test]
    fn a_damaged_row_costs_only_itself() {
        let mut bytes = written(&[row(1, 1), row(2, 2), row(3, 3)]);
        bytes[Journal::LEN + Row::LEN + 7] ^= 1;
        assert_eq!(Journal::decode(&bytes).unwrap().rows, [row(1, 1), row(3, 3)]);
        // A block that the file does not have, and a row of another file's journal.
        let other = Journal::new(9 << 20, &MTIME, 1 << 20).unwrap();
        let mut bytes = written(&[row(6, 1)]);
        bytes.extend(other.encode_row(&row(1, 1)));
        let read = Journal::decode(&bytes).unwrap();
        assert_eq!((read.rows, read.len), (vec![], Journal::LEN));
    }

    #[test]
    fn a_header_that_is_of_no_use_is_refused() {
        let good = written(&[]);
        assert_eq!(Journal::decode(&good[..39]), Err(JournalError::Short));
        let damaged = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 0x80;
            Journal::decode(&bytes).unwrap_err()
        };
        assert_eq!(damaged(0), JournalError::Magic);
        assert_eq!(damaged(11), JournalError::Version { version: 0x81 });
        assert_eq!(damaged(20), JournalError::Check);
        for (size, block_bytes) in
            [(0, 1 << 20), (1 << 57, 1 << 20), (1, 3 << 20), (1, 1 << 19), (1, 1 << 27)]
        {
            assert_eq!(
                Journal::new(size, &MTIME, block_bytes),
                Err(JournalError::Bounds { size, block_bytes })
            );
        }
        assert!(Journal::new(MOST_FILE, &MTIME, 1 << 26).is_ok());
    }
}
