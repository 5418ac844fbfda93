//! What sessions left open that were over before this end had everything of them: their sender was started again.

use std::collections::BTreeSet;

/// What the sessions before this one left open.
#[derive(Debug, Default)]
pub(super) struct LeftOpen {
    /// Names of products that had begun and were not stored since.
    names: BTreeSet<String>,
    /// Products of the largest of those sessions of which something was missing that had no name yet.
    products: u32,
}

impl LeftOpen {
    /// A session of so many products is over, of which `missing` are not stored; these had begun, and were not whole.
    pub(super) fn add(&mut self, names: impl Iterator<Item = String>, missing: u32, products: u32) {
        let mut named = 0;
        self.names.extend(names.inspect(|_| named += 1));
        if missing > named {
            self.products = self.products.max(products);
        }
    }

    /// A product is stored.
    pub(super) fn on_stored(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// Whether something is missing after a session in which so many were stored. One that sends the same again makes up for all.
    pub(super) fn is_missing(&self, stored: u32) -> bool {
        !self.names.is_empty() || stored < self.products
    }

    /// Those that are missing and have names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(names: &[&str], missing: u32, products: u32) -> LeftOpen {
        let mut left = LeftOpen::default();
        left.add(names.iter().map(|name| (*name).to_owned()), missing, products);
        left
    }

    #[test]
    fn a_session_that_sends_the_same_again_leaves_nothing_open() {
        let mut left = left(&["a", "b"], 4, 5);
        ["a", "b", "c", "d", "e"].into_iter().for_each(|name| left.on_stored(name));
        assert!(!left.is_missing(5));
        assert!(!LeftOpen::default().is_missing(0), "there was none before");
    }

    #[test]
    fn a_session_that_sends_something_else_makes_up_for_nothing() {
        let mut other = left(&["a"], 1, 1);
        other.on_stored("b");
        assert!(other.is_missing(1));
        assert_eq!(other.names().collect::<Vec<_>>(), ["a"]);
        // Of most of what it had not a name was known.
        let mut fewer = left(&["a"], 4, 5);
        fewer.on_stored("a");
        assert!(fewer.is_missing(1) && !fewer.is_missing(5));
        // Where all that was missing had a name, the rest need not come again.
        let mut one = left(&["a"], 1, 10_000);
        one.on_stored("a");
        assert!(!one.is_missing(1));
    }

    #[test]
    fn what_several_sessions_left_open_adds_up() {
        let mut several = left(&["a"], 2, 3);
        several.on_stored("a");
        several.add(std::iter::once("b".to_owned()), 1, 2);
        several.on_stored("b");
        assert!(several.is_missing(2) && !several.is_missing(3));
    }
}
