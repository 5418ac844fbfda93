//! A product that is too large to be kept in memory: written and hashed as it comes.

use farlink_mover::copy::store::Store;
use farlink_mover::copy::target::{Target, TargetError};
use farlink_wire::entry::Digest;

use crate::blocks::Blocks;
use crate::stopwatch::Stopwatch;

/// Beneath which directory it goes, and what times that.
pub(super) type Kept<'a> = (&'a Target, &'a Stopwatch);

/// What is hashed block by block. Bytes are hashed and written many at a time: a packet's alone take several times as long.
#[derive(Debug)]
pub(super) struct Large {
    /// Where it goes.
    pub(super) store: Box<Store>,
    pub(super) blocks: Blocks,
    /// What came last, in order, and where it belongs.
    waiting: Vec<u8>,
    waiting_at: u64,
}

impl Large {
    pub(super) const fn new(store: Box<Store>, blocks: Blocks) -> Self {
        Self { store, blocks, waiting: Vec::new(), waiting_at: 0 }
    }

    /// Nothing of what came is right: all of it comes again.
    pub(super) fn begin_again(&mut self, blocks: Blocks) {
        self.waiting = Vec::new();
        self.blocks = blocks;
    }

    /// Takes a part of a block that had not come before.
    pub(super) fn add(&mut self, to: Kept<'_>, at: u64, part: &[u8]) -> Result<(), TargetError> {
        if self.waiting_at + self.waiting.len() as u64 != at {
            self.put_away(to)?;
            self.waiting_at = at;
        } else if self.waiting.len() >= WRITE {
            self.flush(to)?;
        }
        self.waiting.extend_from_slice(part);
        if self.blocks.is_end(at + part.len() as u64) {
            self.put_away(to)?;
        }
        Ok(())
    }

    /// Writes and hashes what waits, which is of one block.
    pub(super) fn flush(&mut self, (target, writing): Kept<'_>) -> Result<(), TargetError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let at = self.waiting_at;
        writing.time(|| self.store.write_at(target, at, &self.waiting))?;
        for finished in self.blocks.take(at, &self.waiting) {
            let digest = match finished.digest {
                Some(digest) => digest,
                None => read_again(&self.store, &self.blocks, finished.index)?,
            };
            self.blocks.set(finished.index, digest);
            self.store.note(finished.index, digest)?;
        }
        self.waiting_at = at + self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    /// As [`Self::flush`], where nothing that follows may come for long: thousands of files may be unfinished at a time.
    fn put_away(&mut self, to: Kept<'_>) -> Result<(), TargetError> {
        self.flush(to)?;
        if self.waiting.capacity() > KEPT {
            self.waiting = Vec::new();
        }
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

/// Bytes of room that an unfinished file keeps for what comes next: a few packets'.
const KEPT: usize = 16 * 1024;

/// Bytes that are written at once.
const WRITE: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use farlink_wire::cast::Announcement;
    use farlink_wire::entry::Metadata;
    use farlink_wire::path::RelativePath;

    use super::*;
    use crate::storage::{Content, InMemory, Storage};

    #[test]
    fn a_file_that_waits_for_what_was_lost_keeps_no_room_for_what_came() {
        let into = std::env::temp_dir().join(format!("large-room-{}", std::process::id()));
        std::fs::create_dir(&into).unwrap();
        let group = "239.1.1.1:7000".parse().unwrap();
        let storage = Storage::open(Some(into.as_os_str().as_bytes()), group).unwrap();
        let metadata = Metadata { mode: 0o644, mtime_s: 0, mtime_ns: 0 };
        let announcement = Announcement { path: RelativePath::new("x").unwrap(), metadata };
        let mut item = storage.begin(announcement, 3 << 20, InMemory::No, &mut || true).unwrap().0;
        let room = |item: &crate::storage::Item| match &item.content {
            Content::Large(large) => large.waiting.capacity(),
            other => panic!("{other:?}"),
        };
        let mut write = |at: u64, packets: u64| {
            (0..packets).for_each(|packet| storage.write(&mut item, at + packet * 1024, &[7; 1024]).unwrap());
            room(&item)
        };
        assert!(write(0, 200) > KEPT, "what comes in order is written together");
        assert!(write(500 << 10, 1) <= KEPT, "a packet was lost");
        assert!(write(1 << 20, 1024) <= KEPT, "the block is whole");
        drop(item);
        std::fs::remove_dir_all(into).unwrap();
    }
}
