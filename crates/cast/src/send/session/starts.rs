//! When products were sent first, to the second or so: a receiver may want those of the last hour alone.

use farlink_wire::quantity::Nanos;

/// Products and when the first packet of each left, of which some stand for others.
#[derive(Debug)]
pub(super) struct Starts {
    /// Ascending. The products from one on, up to the next, began in the time of `each` from that on.
    marks: Vec<(Nanos, u32)>,
    each: Nanos,
}

impl Default for Starts {
    fn default() -> Self {
        Self { marks: Vec::new(), each: Nanos(1_000_000_000) }
    }
}

impl Starts {
    /// A product begins to be sent: later than any before it, and with a higher number.
    pub(super) fn note(&mut self, product: u32, at: Nanos) {
        self.mark((at, product), self.each);
        while self.marks.len() > MOST_MARKS {
            // A mark stands for what began within `each` of it: so does another, if that all began so.
            let before = self.each;
            self.each = Nanos(before.0.saturating_mul(4));
            for mark in std::mem::take(&mut self.marks) {
                self.mark(mark, self.each.since(before));
            }
        }
    }

    /// Adds a mark, but for one within so much of the last.
    fn mark(&mut self, (at, product): (Nanos, u32), within: Nanos) {
        if self.marks.last().is_none_or(|(last, _)| at.since(*last) >= within) {
            self.marks.push((at, product));
        }
    }

    /// The first product that began at `at` or later, or one that began little before that; `next` where all began earlier.
    pub(super) fn from(&self, at: Nanos, next: u32) -> u32 {
        let later = self.marks.partition_point(|(mark, _)| *mark <= at);
        let before = later.checked_sub(1).map(|before| self.marks[before]);
        match before {
            Some((mark, product)) if at.since(mark) < self.each => product,
            _ => self.marks.get(later).map_or(next, |(_, product)| *product),
        }
    }
}

/// Times that are remembered: a megabyte of them, and 18 hours of a feed that never rests by the second.
const MOST_MARKS: usize = if cfg!(test) { 64 } else { 65_536 };

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(milliseconds: u64) -> Nanos {
        Nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn what_began_before_is_left_out_to_the_second() {
        let mut starts = Starts::default();
        assert_eq!(starts.from(at(5000), 0), 0);
        for (product, begun) in [(0, 10_000), (1, 10_400), (2, 11_100), (3, 20_000)] {
            starts.note(product, at(begun));
        }
        let from = |time| starts.from(at(time), 4);
        // Within the same second they are not told apart.
        assert_eq!([0, 10_000, 10_999].map(from), [0; 3]);
        assert_eq!([11_000, 11_100, 12_000].map(from), [2; 3]);
        assert_eq!([12_100, 19_999, 20_999].map(from), [3; 3]);
        assert_eq!(from(21_000), 4);
    }

    #[test]
    fn of_a_long_feed_little_is_kept_and_nothing_new_is_left_out() {
        let (mut starts, mut begun) = (Starts::default(), Vec::new());
        // It rests for a minute after each hundred products.
        for product in 0..5000_u32 {
            begun.push(at(u64::from(product) * 300 + u64::from(product / 100) * 60_000));
            starts.note(product, begun[product as usize]);
            assert!(starts.marks.len() <= MOST_MARKS);
        }
        assert!(starts.each > at(1000));
        for since in (0..4_500_000).step_by(1700) {
            let from = starts.from(at(since), 5000);
            let exact = begun.partition_point(|time| *time < at(since)) as u32;
            assert!(from <= exact, "{since}: {from}, {exact}");
            // Those that are had beside them began little before.
            let oldest = begun.get(from as usize).map_or(0, |time| at(since).since(*time).0);
            assert!(oldest < starts.each.0, "{since}: {from}, {exact}");
        }
    }
}
