//! Where a receiver's products go: to files beneath a directory, or nowhere.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use farlink_host::beneath::Directory;
use farlink_host::whereabouts::Whereabouts;
use farlink_mover::chain;
use farlink_mover::copy::store::Store;
use farlink_mover::copy::target::{Destination, Held, Target, TargetError, TargetOptions};
use farlink_wire::cast::Announcement;
use farlink_wire::entry::{Digest, Entry, Kind, Metadata};
use farlink_wire::path::RelativePath;
use farlink_wire::quantity::Nanos;

use crate::blocks::Blocks;
use crate::error::CastError;
use crate::group::Group;
use crate::stopwatch::Stopwatch;

mod hashed;
mod large;

use hashed::Hashed;
use large::Large;

/// Where content goes.
#[derive(Debug)]
pub(crate) enum Storage {
    /// Its digest is compared, and that is all.
    Nowhere,
    /// Beneath a directory, in which directories there, how long writing took, and where the directory is, as far as can be told.
    Beneath(Box<Target>, RefCell<BTreeSet<RelativePath>>, Stopwatch, Option<Whereabouts>),
}

/// Whether a product may be kept in memory until it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InMemory {
    Yes,
    No,
}

/// A product that is being stored.
#[derive(Debug)]
pub(crate) struct Item {
    entry: Entry,
    size: u64,
    /// Bytes that were there from an earlier attempt.
    found: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// It goes nowhere.
    Hashed(Hashed),
    /// Little enough to be kept here until it is whole.
    Small(Vec<u8>),
    /// More than that.
    Large(Large),
}

impl Storage {
    /// Beneath `directory`, where that is one.
    pub(crate) fn open(directory: Option<&[u8]>, group: Group) -> Result<Self, CastError> {
        let Some(path) = directory else { return Ok(Self::Nowhere) };
        let root = Directory::open(Path::new("/")).map_err(CastError::Root)?;
        // The same partial files are found again, whatever session they are of.
        let mut key = [0; 16];
        key.copy_from_slice(&blake3::hash(format!("farlink cast {group}").as_bytes()).as_bytes()[..16]);
        let destination = Destination { path: path.to_vec(), several: true, above: Vec::new() };
        // No entries tell of directories: those that come are as usual, and those that stand there stay as their owner has them.
        let options =
            TargetOptions { parents: 0o777, is_again: true, opens_up: false, ..TargetOptions::default() };
        let target = Target::open(&Arc::new(root), &destination, key, options)?;
        target.check_right()?;
        let whereabouts = Whereabouts::of(Path::new(OsStr::from_bytes(path))).ok();
        Ok(Self::Beneath(Box::new(target), RefCell::default(), Stopwatch::default(), whereabouts))
    }

    /// Checks that the directory has its path still: what is stored in it is stored where nobody looks for it otherwise.
    pub(crate) fn check_is_there(&self) -> Result<(), CastError> {
        match self {
            Self::Beneath(.., Some(whereabouts)) if !whereabouts.is_there() => {
                Err(CastError::Moved { directory: whereabouts.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Removes what a receiver of this group that was killed left under temporary names, where products have gone to since the last time.
    pub(crate) fn remove_leftovers(&self) {
        if let Self::Beneath(target, directories, ..) = self {
            target.remove_leftovers_in(directories.take().into_iter());
        }
    }

    /// How long writing took so far; `None` where nothing is written.
    pub(crate) const fn written_for(&self) -> Option<Nanos> {
        match self {
            Self::Nowhere => None,
            Self::Beneath(_, _, writing, _) => Some(writing.total()),
        }
    }

    /// Begins to store a product, in memory where that `may` be and it is little; says which of its content is there from before, too.
    /// `go_on` is called while that is read, which may take minutes, and says whether to.
    pub(crate) fn begin(
        &self,
        announcement: Announcement,
        size: u64,
        may: InMemory,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(Item, Vec<Range<u64>>), TargetError> {
        let entry = entry(announcement, size);
        let item = |entry, content| Item { entry, size, found: 0, content };
        let target = match self {
            Self::Nowhere => return Ok((item(entry, Content::Hashed(Hashed::new(size))), Vec::new())),
            Self::Beneath(target, directories, ..) => {
                let mut directories = directories.borrow_mut();
                if let Some(parent) = entry.path.parent()
                    && directories.len() < MOST_DIRECTORIES
                {
                    directories.insert(parent);
                }
                // It lives for as long as the feed, and directories may be moved away meanwhile.
                target.look_anew();
                target
            }
        };
        let block = block_bytes(size);
        let held = held(target, &entry, block);
        if may == InMemory::Yes && held.is_none() && size <= MOST_SMALL {
            let content = Content::Small(vec![0; size as usize]);
            return Ok((item(entry, content), Vec::new()));
        }
        let store = match held {
            Some(held) => Store::standing(held, entry.clone(), block, false),
            None => Store::Partial(Box::new(target.partial(&entry, block, false)?)),
        };
        Item::of(store, entry, size, go_on)
    }

    /// What stands where a product is to go, of its size and with its time, as a product that came whole; `None` where there is none such.
    /// Whether it has the product's content is found when it is [finished](Self::finish). `go_on` is called as in [`Self::begin`].
    pub(crate) fn standing(
        &self,
        announcement: Announcement,
        size: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Item>, TargetError> {
        let Self::Beneath(target, ..) = self else { return Ok(None) };
        let (entry, block) = (entry(announcement, size), block_bytes(size));
        target.look_anew();
        let Some(held) = held(target, &entry, block) else { return Ok(None) };
        let store = Store::standing(held, entry.clone(), block, false);
        Item::of(store, entry, size, go_on).map(|(item, _)| Some(item))
    }

    /// Writes bytes of the content that had not come before.
    pub(crate) fn write(&self, item: &mut Item, at: u64, bytes: &[u8]) -> Result<(), TargetError> {
        match (&mut item.content, self) {
            (Content::Small(content), _) => {
                content[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
            }
            (Content::Hashed(hashed), _) => hashed.add(at, bytes),
            (Content::Large(large), Self::Beneath(target, _, writing, _)) => {
                let (mut at, mut rest) = (at, bytes);
                while !rest.is_empty() {
                    let (part, behind) = rest.split_at(large.blocks.within_block(at, rest.len()));
                    // What was proven stays as it is: also where a packet brings a part of it again.
                    if !large.blocks.is_whole(at) {
                        large.add((target, writing), at, part)?;
                    }
                    at += part.len() as u64;
                    rest = behind;
                }
            }
            // There is none such.
            (Content::Large(_), Self::Nowhere) => {}
        }
        Ok(())
    }

    /// Everything came: gives the product its name, if it has this digest; says whether it has.
    pub(crate) fn finish(&self, item: &mut Item, digest: Digest) -> Result<bool, TargetError> {
        match (&mut item.content, self) {
            (Content::Hashed(hashed), _) => Ok(hashed.digest() == Some(digest)),
            (Content::Small(content), Self::Beneath(target, _, writing, _)) => {
                if farlink_flow::digest::whole(content) != digest {
                    return Ok(false);
                }
                target.look_anew();
                writing.time(|| target.put(&item.entry, content))?;
                Ok(true)
            }
            (Content::Large(large), Self::Beneath(target, _, writing, _)) => {
                large.flush((target, writing))?;
                if large.blocks.digest() != Some(digest) {
                    return Ok(false);
                }
                writing.time(|| large.store.finish(target, &item.entry))?;
                Ok(true)
            }
            (Content::Small(_) | Content::Large(_), Self::Nowhere) => Ok(false),
        }
    }

    /// The product was damaged, and all of it comes again.
    pub(crate) fn begin_again(item: &mut Item) {
        item.found = 0;
        match &mut item.content {
            Content::Hashed(hashed) => *hashed = Hashed::new(item.size),
            Content::Small(_) => {}
            Content::Large(large) => {
                large.store.take_nothing_over();
                large.begin_again(Blocks::new(item.size, block_bytes(item.size)));
            }
        }
    }

    /// The product is not stored after all.
    pub(crate) fn abandon(item: &Item) {
        if let Content::Large(large) = &item.content {
            large.store.abandon();
        }
    }
}

impl Item {
    /// One that goes to `store`, with the ranges of its content that are there.
    fn of(
        store: Store,
        entry: Entry,
        size: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(Self, Vec<Range<u64>>), TargetError> {
        let mut blocks = Blocks::new(size, block_bytes(size));
        let mut found = Vec::new();
        for (index, digest) in store.proven(&mut |_| go_on())? {
            blocks.set(index, digest);
            let (from, end) = blocks.span(index);
            found.push(from..end);
        }
        Ok((
            Self { entry, size, found: 0, content: Content::Large(Large::new(Box::new(store), blocks)) },
            found,
        ))
    }

    /// Nothing more of it comes to this process. What is proven of it stays for the next one; where nothing is, nothing stays.
    pub(crate) fn leave(&self) {
        if let Content::Large(large) = &self.content {
            large.store.leave();
        }
    }

    /// Its name.
    pub(crate) fn path(&self) -> String {
        self.entry.path.to_string()
    }

    /// Whether it is the file that stood there already.
    pub(crate) fn stood(&self) -> bool {
        matches!(&self.content, Content::Large(large) if large.store.is_as_found())
    }

    /// Bytes of its content.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// So many of them were there from an earlier attempt.
    pub(crate) const fn note_found(&mut self, bytes: u64) {
        self.found = bytes;
    }

    /// Those that were not, of one that is whole.
    pub(crate) fn came(&self) -> u64 {
        if self.stood() { 0 } else { self.size.saturating_sub(self.found) }
    }

    /// Whether it has the partial file of its name, or may come to have it.
    pub(crate) const fn has_file(&self) -> bool {
        self.kept().is_none()
    }

    /// Bytes that are kept in memory for it; `None` where it has a file.
    pub(crate) const fn kept(&self) -> Option<u64> {
        match &self.content {
            // It takes next to nothing.
            Content::Hashed(_) => Some(0),
            Content::Small(content) => Some(content.len() as u64),
            Content::Large(_) => None,
        }
    }
}

/// A number for what is beneath `directory`, whatever way leads there: of one that is started again the same.
pub(crate) fn place(directory: &[u8]) -> u64 {
    let path = Path::new(OsStr::from_bytes(directory));
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let digest = blake3::hash(path.as_os_str().as_bytes());
    let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// What is stored. Whoever sends to many is not to have anything run as the user of each.
fn entry(announcement: Announcement, size: u64) -> Entry {
    let Announcement { path, metadata } = announcement;
    let metadata = Metadata { mode: metadata.mode & RIGHTS, ..metadata };
    Entry { path, kind: Kind::File { size }, metadata }
}

/// What stands where `entry` is to go, of its size and with its time.
fn held(target: &Target, entry: &Entry, block: u64) -> Option<Held> {
    target.held(entry, block).filter(|held| held.has_time_of(&entry.metadata))
}

/// What to tell the sender.
pub(crate) fn reason(error: &TargetError) -> String {
    chain(error)
}

/// Bytes of a block: what is proven and sent again as a whole after a break, and a million of them at most.
fn block_bytes(size: u64) -> u64 {
    (size >> 20).next_power_of_two().max(1 << 20)
}

/// Products that are kept in memory until they are whole, bytes: most of those of a feed.
pub(crate) const MOST_SMALL: u64 = 256 * 1024;

/// Directories that are looked through at the end of a session.
const MOST_DIRECTORIES: usize = 65_536;

/// Bits of a mode that are rights: neither set-user-ID nor set-group-ID, nor sticky.
const RIGHTS: u16 = 0o777;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use farlink_wire::entry::Metadata;

    use super::*;

    /// A directory to store in and another beside it, which are gone when the test ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("storage-{name}-{}", std::process::id()));
            for directory in ["in", "out"] {
                fs::create_dir_all(path.join(directory)).unwrap();
            }
            fs::write(path.join("out/secret"), "theirs").unwrap();
            Self(path)
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.join(path)
        }

        fn storage(&self) -> Storage {
            let group = "239.1.1.1:7000".parse().unwrap();
            Storage::open(Some(self.at("in").as_os_str().as_bytes()), group).unwrap()
        }

        /// Whether nothing was written beside the directory.
        fn is_kept_in(&self) -> bool {
            let outside = fs::read_dir(self.at("out")).unwrap().count();
            let about = fs::read_dir(&self.0).unwrap().count();
            (outside, about) == (1, 2) && fs::read(self.at("out/secret")).unwrap() == b"theirs"
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn announcement(path: &str) -> Announcement {
        let metadata = Metadata { mode: 0o640, mtime_s: 1_600_000_000, mtime_ns: 5 };
        Announcement { path: RelativePath::new(path).unwrap(), metadata }
    }

    fn content(size: usize) -> Vec<u8> {
        (0..size as u32).map(|at| (at ^ (at >> 9)) as u8).collect()
    }

    /// Has a product stored whose parts come last one first; says whether its digest was right.
    fn store(storage: &Storage, path: &str, content: &[u8], digest: Digest) -> Result<bool, TargetError> {
        let (mut item, found) =
            storage.begin(announcement(path), content.len() as u64, InMemory::Yes, &mut || true)?;
        assert!(found.is_empty());
        for (index, part) in content.chunks(50_000).enumerate().rev() {
            storage.write(&mut item, index as u64 * 50_000, part)?;
        }
        let done = storage.finish(&mut item, digest);
        if !matches!(done, Ok(true)) {
            Storage::abandon(&item);
        }
        done
    }

    fn right(storage: &Storage, path: &str, content: &[u8]) -> Result<bool, TargetError> {
        store(storage, path, content, farlink_flow::digest::whole(content))
    }

    /// One that is kept in memory until it is whole, and one that goes to a partial file.
    const SIZES: [usize; 2] = [1000, 1_300_000];

    #[test]
    fn what_comes_after_a_directory_was_moved_away_has_a_new_one_as_others_would_make_it() {
        let scratch = Scratch::new("moved");
        let storage = scratch.storage();
        for size in [10, 300_000] {
            let content = content(size);
            let name = format!("radar/{size}");
            for kept in ["in/radar.old", "in/radar"] {
                assert!(store(&storage, &name, &content, farlink_flow::digest::whole(&content)).unwrap());
                if kept == "in/radar.old" {
                    fs::rename(scratch.at("in/radar"), scratch.at(kept)).unwrap();
                }
                assert_eq!(fs::read(scratch.at(kept).join(size.to_string())).unwrap(), content);
            }
            fs::create_dir(scratch.at("in/like")).unwrap();
            let mode = |name: &str| fs::metadata(scratch.at(name)).unwrap().permissions().mode();
            assert_eq!(mode("in/radar"), mode("in/like"));
            for directory in ["in/radar.old", "in/radar", "in/like"] {
                fs::remove_dir_all(scratch.at(directory)).unwrap();
            }
        }
    }

    #[test]
    fn what_comes_in_any_order_has_its_name_when_its_digest_is_right_and_not_before() {
        let scratch = Scratch::new("order");
        let storage = scratch.storage();
        for size in SIZES {
            let content = content(size);
            let path = format!("a/b/{size}");
            assert!(!store(&storage, &path, &content, Digest([1; 32])).unwrap());
            assert!(!scratch.at("in").join(&path).exists());
            assert!(right(&storage, &path, &content).unwrap());
            assert_eq!(fs::read(scratch.at("in").join(&path)).unwrap(), content);
        }
        // No partial file and no journal.
        assert_eq!(fs::read_dir(scratch.at("in/a/b")).unwrap().count(), 2);
    }

    #[test]
    fn a_name_behind_a_link_out_of_the_directory_is_refused() {
        let scratch = Scratch::new("behind");
        let storage = scratch.storage();
        symlink("../out", scratch.at("in/link")).unwrap();
        symlink(scratch.at("out"), scratch.at("in/absolute")).unwrap();
        for size in SIZES {
            for name in ["link/new", "link/secret", "link/deep/er", "absolute/new"] {
                let refused = right(&storage, name, &content(size)).unwrap_err();
                assert!(matches!(refused, TargetError::LinkInTheWay { .. }), "{name}: {refused}");
            }
        }
        assert!(scratch.is_kept_in());
    }

    #[test]
    fn a_link_where_the_file_belongs_is_replaced_and_not_followed() {
        let scratch = Scratch::new("replaced");
        let storage = scratch.storage();
        for size in SIZES {
            let place = scratch.at("in").join(size.to_string());
            symlink("../out/secret", &place).unwrap();
            assert!(right(&storage, &size.to_string(), &content(size)).unwrap());
            assert!(fs::symlink_metadata(&place).unwrap().is_file());
            assert_eq!(fs::read(&place).unwrap(), content(size));
        }
        assert!(scratch.is_kept_in());
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let scratch = Scratch::new("way");
        let storage = scratch.storage();
        fs::create_dir(scratch.at("in/directory")).unwrap();
        fs::write(scratch.at("in/file"), "").unwrap();
        for size in SIZES {
            let said = |name| reason(&right(&storage, name, &content(size)).unwrap_err());
            assert!(said("directory").contains("in/directory"), "{}", said("directory"));
            assert!(said("file/below").contains("in/file"), "{}", said("file/below"));
        }
        assert_eq!(fs::read_dir(scratch.at("in")).unwrap().count(), 2);
    }

    #[test]
    fn what_was_proven_before_is_found_again() {
        let scratch = Scratch::new("again");
        let content = content(3 << 20);
        let mut blocks = content.chunks(1 << 20);
        {
            let storage = scratch.storage();
            let (mut item, _) =
                storage.begin(announcement("x"), content.len() as u64, InMemory::Yes, &mut || true).unwrap();
            storage.write(&mut item, 0, blocks.next().unwrap()).unwrap();
            // Half of a block is not proven.
            storage.write(&mut item, 1 << 20, &blocks.next().unwrap()[..1000]).unwrap();
        }
        let storage = scratch.storage();
        let mut went_on = 0;
        let (mut item, found) = storage
            .begin(announcement("x"), content.len() as u64, InMemory::Yes, &mut || {
                went_on += 1;
                true
            })
            .unwrap();
        assert!(went_on > 0, "the sender is to hear of an end that reads for long");
        assert_eq!(found, std::slice::from_ref(&(0..1 << 20)));
        storage.write(&mut item, 1 << 20, &content[1 << 20..]).unwrap();
        assert!(storage.finish(&mut item, farlink_flow::digest::whole(&content)).unwrap());
        assert_eq!(fs::read(scratch.at("in/x")).unwrap(), content);
    }

    #[test]
    fn what_a_killed_receiver_was_writing_is_removed_at_the_end() {
        let scratch = Scratch::new("leftover");
        let storage = scratch.storage();
        assert!(right(&storage, "a/b/c", &content(1000)).unwrap());
        fs::create_dir(scratch.at("in/a/b/d")).unwrap();
        let Storage::Beneath(target, ..) = &storage else { panic!("it goes nowhere") };
        let temporary = format!("{}00000000.tmp", target.temporary_prefix());
        for directory in ["in", "in/a/b", "in/a/b/d"] {
            fs::write(scratch.at(directory).join(&temporary), "half").unwrap();
        }
        fs::write(scratch.at("in/a/b/.farlink-0123456700000000.tmp"), "somebody else's").unwrap();
        storage.remove_leftovers();
        let there = |directory: &str| scratch.at(directory).join(&temporary).exists();
        assert!(!there("in") && !there("in/a/b"));
        assert!(there("in/a/b/d"), "nothing was stored there");
        assert!(scratch.at("in/a/b/.farlink-0123456700000000.tmp").exists());
    }

    #[test]
    fn what_goes_nowhere_has_its_digest_compared() {
        let content = content(3 * 64 * 1024 + 5);
        let digest = farlink_flow::digest::whole(&content);
        assert!(store(&Storage::Nowhere, "x", &content, digest).unwrap());
        assert!(!store(&Storage::Nowhere, "x", &content[1..], digest).unwrap());
        // In order, in packets; and what was damaged comes again.
        let begun =
            Storage::Nowhere.begin(announcement("x"), content.len() as u64, InMemory::Yes, &mut || true);
        let (mut item, _) = begun.unwrap();
        for damage in [1, 0] {
            for (index, part) in content.chunks(8916).enumerate() {
                let mut part = part.to_vec();
                part[0] ^= damage;
                Storage::Nowhere.write(&mut item, index as u64 * 8916, &part).unwrap();
            }
            assert_eq!(Storage::Nowhere.finish(&mut item, digest).unwrap(), damage == 0);
            Storage::begin_again(&mut item);
        }
    }

    #[test]
    fn a_directory_has_one_number_whatever_way_leads_there() {
        let scratch = Scratch::new("place");
        symlink("in", scratch.at("way")).unwrap();
        let number = |path: &str| place(scratch.at(path).as_os_str().as_bytes());
        assert_eq!((number("in"), number("in/../in/")), (number("way"), number("in")));
        assert_ne!(number("in"), number("out"));
        assert_ne!(number("not there"), number("neither there"));
    }
}
