//! Where a receiver's products go: to files beneath a directory, or nowhere.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use farlink_host::beneath::Directory;
use farlink_mover::chain;
use farlink_mover::copy::store::Store;
use farlink_mover::copy::target::{Destination, Target, TargetError, TargetOptions};
use farlink_wire::cast::Announcement;
use farlink_wire::entry::{Digest, Entry, Kind};

use crate::blocks::Blocks;
use crate::error::CastError;
use crate::group::Group;

/// Where content goes.
#[derive(Debug)]
pub(crate) enum Storage {
    /// Its digest is compared, and that is all.
    Nowhere,
    /// Beneath a directory.
    Beneath(Box<Target>),
}

/// A product that is being stored.
#[derive(Debug)]
pub(crate) struct Item {
    entry: Entry,
    size: u64,
    block: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// Little enough to be kept here until it is whole.
    Small(Vec<u8>),
    /// A file, and what came behind the last write to it.
    File { store: Box<Store>, blocks: Blocks, waiting: Vec<u8>, waiting_at: u64 },
    /// Nothing is kept but what cannot be hashed yet.
    Hashed(Blocks),
}

impl Storage {
    /// Beneath `directory`, where that is one.
    pub(crate) fn open(directory: Option<&[u8]>, group: Group) -> Result<Self, CastError> {
        let Some(path) = directory else { return Ok(Self::Nowhere) };
        let root = Directory::open(Path::new("/")).map_err(CastError::Root)?;
        // The same partial files are found again, whatever session they are of.
        let mut key = [0; 16];
        key.copy_from_slice(&blake3::hash(format!("farlink cast {group}").as_bytes()).as_bytes()[..16]);
        let destination = Destination { path: path.to_vec(), several: true };
        let options = TargetOptions::default();
        Ok(Self::Beneath(Box::new(Target::open(&Arc::new(root), &destination, key, options)?)))
    }

    /// Begins to store a product; says which of its content is there from before, too.
    pub(crate) fn begin(
        &self,
        announcement: Announcement,
        size: u64,
    ) -> Result<(Item, Vec<Range<u64>>), TargetError> {
        let Announcement { path, metadata } = announcement;
        let entry = Entry { path, kind: Kind::File { size }, metadata };
        let item = |entry, block, content| Item { entry, size, block, content };
        let target = match self {
            Self::Nowhere => {
                let blocks = Blocks::new(size, HASHED_BLOCK);
                return Ok((item(entry, HASHED_BLOCK, Content::Hashed(blocks)), Vec::new()));
            }
            Self::Beneath(target) => target,
        };
        let block = block_bytes(size);
        let held = target.held(&entry, block).filter(|held| held.has_time_of(&entry.metadata));
        if held.is_none() && size <= MOST_SMALL {
            let content = Content::Small(vec![0; size as usize]);
            return Ok((item(entry, block, content), Vec::new()));
        }
        let store = match held {
            Some(held) => Store::standing(held, entry.clone(), block, false),
            None => Store::Partial(Box::new(target.partial(&entry, block, false)?)),
        };
        let mut blocks = Blocks::new(size, block);
        let mut found = Vec::new();
        for (index, digest) in store.proven(&mut |_| {})? {
            blocks.set(index, digest);
            let (from, end) = blocks.span(index);
            found.push(from..end);
        }
        let content = Content::File { store: Box::new(store), blocks, waiting: Vec::new(), waiting_at: 0 };
        Ok((item(entry, block, content), found))
    }

    /// Writes bytes of the content that had not come before.
    pub(crate) fn write(&self, item: &mut Item, at: u64, bytes: &[u8]) -> Result<(), TargetError> {
        match &mut item.content {
            Content::Small(content) => {
                content[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            Content::Hashed(blocks) => {
                blocks.take(at, bytes, true);
                Ok(())
            }
            Content::File { store, blocks, waiting, waiting_at } => {
                let Self::Beneath(target) = self else { return Ok(()) };
                let (mut at, mut rest) = (at, bytes);
                while !rest.is_empty() {
                    let (part, behind) = rest.split_at(blocks.within_block(at, rest.len()));
                    // What was proven stays as it is: also where a packet brings a part of it again.
                    if !blocks.is_whole(at) {
                        if *waiting_at + waiting.len() as u64 != at || waiting.len() >= WRITE {
                            flush(target, store, waiting, *waiting_at)?;
                            *waiting_at = at;
                        }
                        waiting.extend_from_slice(part);
                        for finished in blocks.take(at, part, false) {
                            flush(target, store, waiting, *waiting_at)?;
                            let digest = match finished.digest {
                                Some(digest) => digest,
                                None => read_again(store, blocks, finished.index)?,
                            };
                            blocks.set(finished.index, digest);
                            store.note(finished.index, digest)?;
                        }
                    }
                    at += part.len() as u64;
                    rest = behind;
                }
                Ok(())
            }
        }
    }

    /// Everything came: gives the product its name, if it has this digest; says whether it has.
    pub(crate) fn finish(&self, item: &mut Item, digest: Digest) -> Result<bool, TargetError> {
        match (&mut item.content, self) {
            (Content::Hashed(blocks), _) => Ok(blocks.digest() == Some(digest)),
            (Content::Small(content), Self::Beneath(target)) => {
                if farlink_flow::digest::whole(content) != digest {
                    return Ok(false);
                }
                target.put(&item.entry, content)?;
                Ok(true)
            }
            (Content::File { store, blocks, waiting, waiting_at }, Self::Beneath(target)) => {
                flush(target, store, waiting, *waiting_at)?;
                if blocks.digest() != Some(digest) {
                    return Ok(false);
                }
                store.finish(target, &item.entry)?;
                Ok(true)
            }
            (_, Self::Nowhere) => Ok(false),
        }
    }

    /// The product was damaged, and all of it comes again.
    pub(crate) fn begin_again(item: &mut Item) {
        match &mut item.content {
            Content::Small(_) => {}
            Content::Hashed(blocks) => *blocks = Blocks::new(item.size, item.block),
            Content::File { blocks, waiting, .. } => {
                waiting.clear();
                *blocks = Blocks::new(item.size, item.block);
            }
        }
    }

    /// The product is not stored after all.
    pub(crate) fn abandon(item: &Item) {
        if let Content::File { store, .. } = &item.content {
            store.abandon();
        }
    }
}

impl Item {
    /// Its name.
    pub(crate) fn path(&self) -> String {
        self.entry.path.to_string()
    }

    /// Bytes of its content.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }
}

/// What to tell the sender.
pub(crate) fn reason(error: &TargetError) -> String {
    chain(error)
}

/// Writes what waits.
fn flush(target: &Target, store: &Store, waiting: &mut Vec<u8>, at: u64) -> Result<(), TargetError> {
    if !waiting.is_empty() {
        store.write_at(target, at, waiting)?;
        waiting.clear();
    }
    Ok(())
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

/// Bytes of a block: what is proven and sent again as a whole after a break, and a million of them at most.
fn block_bytes(size: u64) -> u64 {
    (size >> 20).next_power_of_two().max(1 << 20)
}

/// Products that are kept in memory until they are whole, bytes: most of those of a feed.
const MOST_SMALL: u64 = 256 * 1024;

/// Bytes of a block where nothing is kept: of those with a hole, what came behind it waits in memory.
const HASHED_BLOCK: u64 = 8 * 1024;

/// Bytes that are written at once.
const WRITE: usize = 256 * 1024;
