//! Products that are held no longer, and can still be had.

use std::collections::BTreeMap;

use farlink_wire::cast::Shape;

use crate::cast::spans::Spans;

/// Their streams. Which they are is kept as runs too: who joins late is owed all of them.
#[derive(Debug, Default)]
pub(super) struct Archive {
    shapes: BTreeMap<u32, Shape>,
    products: Spans,
}

impl Archive {
    pub(super) fn insert(&mut self, product: u32, shape: Shape) {
        self.shapes.insert(product, shape);
        self.products.insert(one(product));
        self.check();
    }

    /// Takes one out; false where it is not there.
    pub(super) fn remove(&mut self, product: u32) -> bool {
        let was_there = self.shapes.remove(&product).is_some();
        self.products.remove(one(product));
        self.check();
        was_there
    }

    pub(super) fn get(&self, product: u32) -> Option<Shape> {
        self.shapes.get(&product).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.shapes.len()
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        self.shapes.keys().next().copied()
    }

    /// Those from product `first` on.
    pub(super) fn from(&self, first: u32) -> Spans {
        let mut products = self.products.clone();
        products.remove(0..first.into());
        products
    }

    fn check(&self) {
        debug_assert_eq!(self.products.total(), self.shapes.len() as u64);
    }
}

/// A product as a range.
pub(super) fn one(product: u32) -> std::ops::Range<u64> {
    product.into()..u64::from(product) + 1
}
