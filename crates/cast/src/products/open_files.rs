//! Files that are open, no more than so many at a time.

use std::collections::BTreeMap;

/// Those of products, and when each was used last.
#[derive(Debug)]
pub(super) struct OpenFiles<F> {
    files: BTreeMap<u32, (u64, F)>,
    uses: u64,
    most: usize,
}

impl<F> OpenFiles<F> {
    /// None yet, and `most` at a time.
    pub(super) const fn new(most: usize) -> Self {
        Self { files: BTreeMap::new(), uses: 0, most }
    }

    /// The file of a product, opened by `open` where it is not. Where too many are, the one that was not used for longest is closed.
    pub(super) fn get<E>(&mut self, product: u32, open: impl FnOnce() -> Result<F, E>) -> Result<&F, E> {
        self.uses += 1;
        let file = match self.files.remove(&product) {
            Some((_, file)) => file,
            None => {
                // Before another is opened: there may be no descriptor left for it.
                if self.files.len() >= self.most
                    && let Some((&idle, _)) = self.files.iter().min_by_key(|(_, (used, _))| *used)
                {
                    self.files.remove(&idle);
                }
                open()?
            }
        };
        Ok(&self.files.entry(product).insert_entry((self.uses, file)).into_mut().1)
    }

    /// Keeps the file of a product that comes later, where there is room.
    pub(super) fn keep(&mut self, product: u32, file: F) {
        if self.files.len() < self.most {
            self.uses += 1;
            self.files.insert(product, (self.uses, file));
        }
    }

    /// A product's is needed no longer.
    pub(super) fn close(&mut self, product: u32) {
        self.files.remove(&product);
    }

    /// None is, for now.
    pub(super) fn close_all(&mut self) {
        self.files.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_is_read_all_the_time_stays_open_however_old_its_product_is() {
        let mut open = OpenFiles::new(3);
        let mut opened = Vec::new();
        for product in [0, 1, 2, 0, 3, 0, 4, 1, 0] {
            let file = open.get(product, || {
                opened.push(product);
                Ok::<_, ()>(product)
            });
            assert_eq!(file, Ok(&product));
        }
        // Somebody catches up with product 0 while others come.
        assert_eq!(opened, [0, 1, 2, 3, 4, 1]);
        assert_eq!(open.get(9, || Err("gone")), Err("gone"));
        open.close(0);
        assert_eq!(open.get(0, || Err("closed")), Err("closed"));
    }
    #[test]
    fn what_is_kept_for_later_takes_nobodys_place() {
        let mut open = OpenFiles::new(2);
        (0..3).for_each(|product| open.keep(product, product));
        let found: Vec<_> = (0..3).map(|product| open.files.contains_key(&product)).collect();
        assert_eq!(found, [true, true, false]);
        assert_eq!(open.get(0, || Err("it was open")), Ok(&0));
        open.close_all();
        assert_eq!(open.get(0, || Err("closed")), Err("closed"));
    }
}
