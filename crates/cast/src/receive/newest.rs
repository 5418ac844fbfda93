//! Which product has a name: what appears in a directory may be sent once more before everybody has it, and the newer of the two is meant.

use std::collections::{BTreeMap, HashMap};

use farlink_wire::path::RelativePath;

/// Names of products of which an older one may still come, or be unfinished.
#[derive(Debug, Default)]
pub(super) struct Newest {
    products: HashMap<Name, u32>,
    /// The same by their numbers: those that are not whole, of which there are as many as there may be files and memory for.
    unfinished: BTreeMap<u32, Name>,
    /// And those that are stored.
    stored: BTreeMap<u32, Name>,
    /// All products before this one are stored, or never will be.
    open: u32,
}

/// What stands for a name, in less memory: no two names have the same.
type Name = [u8; 16];

/// What the name of a product means for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is the newest of its name.
    Newest {
        /// The one that had the name before, where that is remembered.
        before: Option<u32>,
    },
    /// A newer one has the name.
    Superseded,
}

impl Newest {
    /// Of a session whose products before `first` never come.
    pub(super) fn from(first: u32) -> Self {
        Self { open: first, ..Self::default() }
    }

    /// The name of a product is known.
    pub(super) fn announce(&mut self, product: u32, path: &RelativePath) -> Turn {
        let name = name(path);
        let before = self.products.get(&name).copied();
        if before.is_some_and(|newer| newer > product) {
            return Turn::Superseded;
        }
        if let Some(older) = before {
            self.unfinished.remove(&older);
            self.stored.remove(&older);
        }
        self.products.insert(name, product);
        self.unfinished.insert(product, name);
        Turn::Newest { before }
    }

    /// A product is stored; `is_done` says whether one is that, or never will be.
    pub(super) fn on_stored(&mut self, product: u32, is_done: impl Fn(u32) -> bool) {
        if let Some(name) = self.unfinished.remove(&product) {
            self.stored.insert(product, name);
        }
        while is_done(self.open) {
            self.open += 1;
        }
        // No older one of these names can come; and of very many the oldest are given up.
        while let Some(first) = self.stored.first_entry()
            && (*first.key() < self.open || self.stored.len() > MOST_STORED)
        {
            if let Some((_, name)) = self.stored.pop_first() {
                self.products.remove(&name);
            }
        }
    }

    /// A product will not be stored: an older one of its name is better than none.
    pub(super) fn on_failed(&mut self, product: u32) {
        if let Some(name) = self.unfinished.remove(&product) {
            self.products.remove(&name);
        }
    }
}

fn name(path: &RelativePath) -> Name {
    let digest = blake3::hash(path.as_bytes());
    digest.as_bytes().first_chunk().copied().unwrap_or_default()
}

/// Names of stored products that are remembered for one that is still to come: 20 MB. It may be of gigabytes, and the others small.
const MOST_STORED: usize = if cfg!(test) { 100 } else { 262_144 };

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    #[test]
    fn the_newest_of_a_name_has_it_whatever_comes_first() {
        let mut newest = Newest::from(2);
        let fresh = Turn::Newest { before: None };
        assert_eq!(newest.announce(3, &path("a")), fresh);
        assert_eq!(newest.announce(2, &path("b")), fresh);
        assert_eq!(newest.announce(6, &path("a")), Turn::Newest { before: Some(3) });
        assert_eq!(newest.announce(4, &path("a")), Turn::Superseded);
        // One that is stored has the name as long as an older one may come.
        newest.on_stored(6, |product| [3, 4, 6].contains(&product));
        assert_eq!(newest.announce(5, &path("a")), Turn::Superseded);
        assert_eq!(newest.announce(7, &path("a")), Turn::Newest { before: Some(6) });
        newest.on_failed(7);
        assert_eq!(newest.announce(5, &path("a")), fresh);
    }

    #[test]
    fn nothing_is_remembered_of_what_comes_in_order_and_little_of_what_does_not() {
        let mut newest = Newest::from(0);
        let mut done = BTreeSet::new();
        for product in 0..1000 {
            newest.announce(product, &path(&product.to_string()));
            done.insert(product);
            newest.on_stored(product, |product| done.contains(&product));
            assert!(newest.products.is_empty() && newest.stored.is_empty());
        }
        // Product 1000 takes long.
        newest.announce(1000, &path("large"));
        for product in 1001..3000 {
            newest.announce(product, &path(&product.to_string()));
            done.insert(product);
            newest.on_stored(product, |product| done.contains(&product));
        }
        assert_eq!((newest.stored.len(), newest.products.len()), (MOST_STORED, MOST_STORED + 1));
        assert_eq!(newest.announce(3000, &path("large")), Turn::Newest { before: Some(1000) });
        done.extend([1000, 3000]);
        newest.on_stored(3000, |product| done.contains(&product));
        assert!(newest.products.is_empty() && newest.unfinished.is_empty() && newest.stored.is_empty());
    }
}
