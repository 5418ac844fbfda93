//! Which products have a name.

use std::collections::BTreeSet;

use crate::name::Name;

/// Products by name: those that are sent, and those that later ones of their names made up for.
#[derive(Debug, Default)]
pub(super) struct Names {
    products: BTreeSet<(Name, u32)>,
}

impl Names {
    /// A product has a name.
    pub(super) fn insert(&mut self, name: Name, product: u32) {
        self.products.insert((name, product));
    }

    /// A product that has a name is forgotten, or lost to everybody.
    pub(super) fn remove(&mut self, name: Name, product: u32) {
        self.products.remove(&(name, product));
    }

    /// Whether a later product has the name.
    pub(super) fn has_later(&self, name: Name, product: u32) -> bool {
        let newest = self.products.range(..=(name, u32::MAX)).next_back();
        newest.is_some_and(|(of, newest)| *of == name && *newest > product)
    }
}
