//! Which product has a name: what appears in a directory may be sent once more before everybody has it, and the newer of the two is meant.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use farlink_wire::path::RelativePath;

use crate::name::{Name, name};

/// Names of products of which another may still come, or be unfinished.
#[derive(Debug, Default)]
pub(super) struct Newest {
    /// Products that are not whole, of which there are as many as there may be files and memory for, by name too.
    unfinished: BTreeMap<u32, Name>,
    by_name: BTreeSet<(Name, u32)>,
    /// The newest that is stored of a name of which an older one may come, by number too.
    stored: HashMap<Name, u32>,
    by_number: BTreeMap<u32, Name>,
    /// All products before this one are stored, or never will be.
    open: u32,
}

impl Newest {
    /// Of a session whose products before `first` never come.
    pub(super) fn from(first: u32) -> Self {
        Self { open: first, ..Self::default() }
    }

    /// The name of a product is known; false where a newer one of that name is stored.
    pub(super) fn announce(&mut self, product: u32, path: &RelativePath) -> bool {
        let name = name(path);
        if self.stored.get(&name).is_some_and(|newer| *newer > product) {
            return false;
        }
        self.unfinished.insert(product, name);
        self.by_name.insert((name, product));
        true
    }

    /// The others of a product's name that are not whole.
    pub(super) fn others(&self, product: u32) -> Vec<u32> {
        let Some(name) = self.unfinished.get(&product) else { return Vec::new() };
        let all = self.by_name.range((*name, 0)..=(*name, u32::MAX)).map(|(_, other)| *other);
        all.filter(|other| *other != product).collect()
    }

    /// Whether a newer one of its name is not whole.
    pub(super) fn has_newer(&self, product: u32) -> bool {
        self.others(product).last().is_some_and(|newest| *newest > product)
    }

    /// A product is stored; `is_done` says whether one is that, or never will be. Says which older ones of its name nobody needs any more.
    pub(super) fn on_stored(&mut self, product: u32, is_done: impl Fn(u32) -> bool) -> Vec<u32> {
        let older = self.others(product).into_iter().filter(|other| *other < product).collect();
        if let Some(name) = self.unfinished.remove(&product) {
            self.by_name.remove(&(name, product));
            if let Some(before) = self.stored.insert(name, product) {
                self.by_number.remove(&before);
            }
            self.by_number.insert(product, name);
        }
        while is_done(self.open) {
            self.open += 1;
        }
        // No older one of these names can come; and of very many the oldest are given up.
        while let Some(first) = self.by_number.first_entry()
            && (*first.key() < self.open || self.stored.len() > MOST_STORED)
        {
            if let Some((_, name)) = self.by_number.pop_first() {
                self.stored.remove(&name);
            }
        }
        older
    }

    /// A product will not be stored: an older one of its name is better than none.
    pub(super) fn on_failed(&mut self, product: u32) {
        if let Some(name) = self.unfinished.remove(&product) {
            self.by_name.remove(&(name, product));
        }
    }
}

/// Names of stored products that are remembered for one that is still to come: 20 MB. It may be of gigabytes, and the others small.
const MOST_STORED: usize = if cfg!(test) { 100 } else { 262_144 };

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    #[test]
    fn the_newest_of_a_name_has_it_when_it_is_stored_and_not_before() {
        let mut newest = Newest::from(2);
        assert!(newest.announce(3, &path("a")) && newest.announce(2, &path("b")));
        assert!(newest.announce(6, &path("a")) && newest.announce(4, &path("a")));
        assert_eq!((newest.others(4), newest.others(2)), (vec![3, 6], vec![]));
        assert!(newest.has_newer(4) && !newest.has_newer(6));
        // One that is lost leaves the name to those before it.
        newest.on_failed(6);
        assert!(newest.has_newer(3) && !newest.has_newer(4));
        assert!(newest.announce(7, &path("a")));
        // One that is stored has the name as long as an older one may come.
        assert_eq!(newest.on_stored(7, |product| [6, 7].contains(&product)), [3, 4]);
        [3, 4].into_iter().for_each(|older| newest.on_failed(older));
        assert!(!newest.announce(5, &path("a")));
        assert!(newest.announce(8, &path("a")) && !newest.has_newer(8));
        newest.on_failed(8);
        assert!(!newest.announce(5, &path("a")));
    }

    #[test]
    fn nothing_is_remembered_of_what_comes_in_order_and_little_of_what_does_not() {
        let mut newest = Newest::from(0);
        let mut done = BTreeSet::new();
        for product in 0..1000 {
            newest.announce(product, &path(&product.to_string()));
            done.insert(product);
            newest.on_stored(product, |product| done.contains(&product));
            assert!(newest.unfinished.is_empty() && newest.stored.is_empty());
        }
        // Product 1000 takes long.
        newest.announce(1000, &path("large"));
        for product in 1001..3000 {
            newest.announce(product, &path(&product.to_string()));
            done.insert(product);
            newest.on_stored(product, |product| done.contains(&product));
        }
        assert_eq!((newest.stored.len(), newest.by_number.len()), (MOST_STORED, MOST_STORED));
        assert!(newest.announce(3000, &path("large")));
        done.insert(3000);
        assert_eq!(newest.on_stored(3000, |product| done.contains(&product)), [1000]);
        newest.on_failed(1000);
        done.insert(1000);
        newest.on_stored(3000, |product| done.contains(&product));
        assert!(newest.unfinished.is_empty() && newest.by_name.is_empty());
        assert!(newest.stored.is_empty() && newest.by_number.is_empty());
    }
}
