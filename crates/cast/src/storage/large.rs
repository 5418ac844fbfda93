//! A product that is too large to be kept in memory: written and hashed as it comes.

use farlink_mover::copy::store::Store;
use farlink_mover::copy::target::TargetError;
use farlink_wire::entry::Digest;

use super::Storage;
use crate::blocks::Blocks;

/// What is hashed block by block. Bytes are hashed and written many at a time: a packet's alone take several times as long.
#[derive(Debug)]
pub(super) struct Large {
    /// Where it goes; nothing is kept but what cannot be hashed yet, where that is absent.
    pub(super) store: Option<Box<Store>>,
    pub(super) blocks: Blocks,
    /// What came last, in order, and where it belongs.
    waiting: Vec<u8>,
    waiting_at: u64,
}

impl Large {
    pub(super) const fn new(store: Option<Box<Store>>, blocks: Blocks) -> Self {
        Self { store, blocks, waiting: Vec::new(), waiting_at: 0 }
    }

    /// Nothing of what came is right: all of it comes again.
    pub(super) fn begin_again(&mut self, blocks: Blocks) {
        self.waiting.clear();
        self.blocks = blocks;
    }

    /// Takes a part of a block that had not come before.
    pub(super) fn add(&mut self, storage: &Storage, at: u64, part: &[u8]) -> Result<(), TargetError> {
        if self.waiting_at + self.waiting.len() as u64 != at || self.waiting.len() >= WRITE {
            self.flush(storage)?;
            self.waiting_at = at;
        }
        self.waiting.extend_from_slice(part);
        if self.blocks.is_end(at + part.len() as u64) {
            self.flush(storage)?;
        }
        Ok(())
    }

    /// Writes and hashes what waits, which is of one block.
    pub(super) fn flush(&mut self, storage: &Storage) -> Result<(), TargetError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let at = self.waiting_at;
        let kept = match storage {
            Storage::Beneath(target, _, writing) => self.store.as_deref().zip(Some((target, writing))),
            Storage::Nowhere => None,
        };
        if let Some((store, (target, writing))) = kept {
            writing.time(|| store.write_at(target, at, &self.waiting))?;
        }
        for finished in self.blocks.take(at, &self.waiting, kept.is_none()) {
            let Some((store, _)) = kept else { continue };
            let digest = match finished.digest {
                Some(digest) => digest,
                None => read_again(store, &self.blocks, finished.index)?,
            };
            self.blocks.set(finished.index, digest);
            store.note(finished.index, digest)?;
        }
        self.waiting_at = at + self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }
}

/// The digest of a block that did not come in order.
fn read_again(store: &Store, blocks: &Blocks, index: u32) -> Result<Digest, TargetError> {
    let (mut from, end) = blocks.span(index);
    let mut hasher = blocks.hasher(index);
    let mut buffer = vec![0; WRITE];
    while from < end {
        let part = buffer.len().min((end - from) as usize);
        let read = store.read_at(from, &mut buffer[..part])?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        from += read as u64;
    }
    Ok(hasher.finish())
}

/// Bytes that are written at once.
const WRITE: usize = 256 * 1024;
