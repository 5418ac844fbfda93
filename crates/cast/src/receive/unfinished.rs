//! Products of which something is still to come, as many as there may be files and memory for.

use std::collections::BTreeMap;

use crate::storage::{InMemory, Item, MOST_SMALL};

/// Those of a session.
#[derive(Debug)]
pub(super) struct Unfinished {
    items: BTreeMap<u32, Item>,
    /// Of those, how many have a file, and the most that may be begun.
    files: usize,
    most_files: usize,
    /// Bytes that are kept in memory for the others.
    kept: u64,
}

impl Unfinished {
    /// For a process that may have so many descriptors.
    pub(super) fn new(descriptors: u64) -> Self {
        let most_files = descriptors.saturating_sub(OTHERS) / EACH;
        Self { items: BTreeMap::new(), files: 0, most_files: most_files.max(1) as usize, kept: 0 }
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.items.values().map(Item::path)
    }

    /// Nothing more of them comes to this process.
    pub(super) fn leave(&self) {
        self.items.values().for_each(Item::leave);
    }

    pub(super) fn get_mut(&mut self, product: u32) -> Option<&mut Item> {
        self.items.get_mut(&product)
    }

    /// Whether bytes of a product of `size` can be kept: it was begun, or may be.
    pub(super) fn has_room(&self, product: u32, size: u64) -> bool {
        let needs_file = size > MOST_SMALL || self.in_memory() == InMemory::No;
        !needs_file || self.files < self.most_files || self.has_begun(product)
    }

    /// How many more may be begun of which it is not known how large they are: others may have come by themselves before those that are asked
    /// for. Where no file may be begun there is still one, which may be small; where that turned out to be large, it is waited for: what was
    /// begun is asked for in any case.
    pub(super) const fn room(&self) -> usize {
        let room = self.most_files.saturating_sub(self.files).div_ceil(2);
        if room == 0 && self.files <= self.most_files { 1 } else { room }
    }

    pub(super) fn has_begun(&self, product: u32) -> bool {
        self.items.contains_key(&product)
    }

    /// Where another may be kept.
    pub(super) const fn in_memory(&self) -> InMemory {
        if self.kept < MOST_KEPT { InMemory::Yes } else { InMemory::No }
    }

    pub(super) fn insert(&mut self, product: u32, item: Item) {
        match item.kept() {
            Some(bytes) => self.kept += bytes,
            None => self.files += 1,
        }
        self.items.insert(product, item);
    }

    pub(super) fn remove(&mut self, product: u32) -> Option<Item> {
        let item = self.items.remove(&product)?;
        match item.kept() {
            Some(bytes) => self.kept -= bytes,
            None => self.files -= 1,
        }
        Some(item)
    }
}

/// Bytes of small products that are kept until they are whole; beyond that they have files as well.
const MOST_KEPT: u64 = 256 << 20;

/// Descriptors that a product with a file takes at most (the file, its journal, one that stood there, and the directory of either), and those
/// of everything else.
const EACH: u64 = 5;
const OTHERS: u64 = 64;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use farlink_wire::cast::Announcement;
    use farlink_wire::entry::Metadata;
    use farlink_wire::path::RelativePath;

    use super::*;
    use crate::storage::Storage;

    const LARGE: u64 = MOST_SMALL + 1;

    #[test]
    fn no_more_are_begun_than_there_may_be_files() {
        let directory = std::env::temp_dir().join(format!("unfinished-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let group = "239.1.1.1:7000".parse().unwrap();
        let storage = Storage::open(Some(directory.as_os_str().as_bytes()), group).unwrap();
        let begin = |number: u32, may| {
            let path = RelativePath::new(format!("{number}")).unwrap();
            let metadata = Metadata { mode: 0o644, mtime_s: 0, mtime_ns: 0 };
            storage.begin(Announcement { path, metadata }, 1000, may, &mut || true).unwrap().0
        };
        let mut unfinished = Unfinished::new(OTHERS + 2 * EACH);
        unfinished.insert(9, begin(9, unfinished.in_memory()));
        for product in 0..2 {
            assert!(unfinished.has_room(product, LARGE) && !unfinished.has_begun(product));
            assert_eq!(unfinished.room(), 1);
            unfinished.insert(product, begin(product, InMemory::No));
        }
        assert!(
            unfinished.has_room(0, LARGE) && unfinished.has_room(9, LARGE) && unfinished.has_room(2, 1000)
        );
        assert!(!unfinished.has_room(2, LARGE) && unfinished.room() == 1);
        // The one that might have been small was not: no further one is begun until one is whole.
        unfinished.insert(3, begin(3, InMemory::No));
        assert!(unfinished.room() == 0 && unfinished.has_begun(3));
        unfinished.remove(3);
        assert_eq!(unfinished.room(), 1);
        assert!(unfinished.remove(2).is_none() && unfinished.remove(0).is_some());
        assert!(unfinished.has_room(2, LARGE) && unfinished.room() == 1);
        assert_eq!((unfinished.kept, unfinished.files), (1000, 1));
        assert!(Unfinished::new(10).has_room(0, LARGE), "one at a time there must be");
        // Of files of which nothing is proven nothing is left: there is 1, and what was taken out, 0 and 3. Each has a journal.
        let count = || fs::read_dir(&directory).unwrap().count();
        assert_eq!(count(), 6);
        unfinished.leave();
        assert_eq!(count(), 4);
        drop((unfinished, storage));
        fs::remove_dir_all(directory).unwrap();
    }
}
