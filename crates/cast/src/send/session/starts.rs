//! When products were sent first, as far as anybody asks: a receiver may want those of the last hour alone.

use farlink_wire::cast::SessionId;
use farlink_wire::cast::control::Join;
use farlink_wire::quantity::Nanos;

/// When the first packets of products left: to the second, and of those that left long ago to a part of how long ago that was.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// Ascending, apart from each other.
    marks: Vec<Mark>,
}

/// The products from one on, up to that of the next mark, began from `at` on and before `end`.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Nanos,
    end: Nanos,
    product: u32,
}

impl Starts {
    /// A product begins to be sent: later than any before it, and with a higher number.
    pub(super) fn note(&mut self, product: u32, at: Nanos) {
        if self.marks.last().is_some_and(|last| at < last.end) {
            return;
        }
        self.marks.push(Mark { at, end: at.after(APART), product });
        if self.marks.len() > MOST_MARKS {
            self.thin(at);
        }
    }

    /// Has one mark stand for several, the more the longer ago.
    fn thin(&mut self, now: Nanos) {
        let mut thinned: Vec<Mark> = Vec::new();
        for mark in self.marks.drain(..) {
            match thinned.last_mut() {
                Some(last) if mark.end.since(last.at).0 <= now.since(mark.end).0 / PARTS => {
                    last.end = mark.end;
                }
                _ => thinned.push(mark),
            }
        }
        self.marks = thinned;
    }

    /// The first product that began at `at` or later, or one that began little before that; `next` where all began earlier.
    fn from(&self, at: Nanos, next: u32) -> u32 {
        let later = self.marks.partition_point(|mark| mark.at <= at);
        match later.checked_sub(1).map(|before| self.marks[before]) {
            Some(mark) if at < mark.end => mark.product,
            _ => self.marks.get(later).map_or(next, |mark| mark.product),
        }
    }

    /// The first product that who joins a session now wants of it, of those that have begun, or `next`, that may not have.
    pub(super) fn wanted(&self, join: &Join, session: SessionId, now: Nanos, next: u32) -> u32 {
        let wanted = match (join.wanted, join.since) {
            (Some(wanted), _) if wanted.session == session => wanted.first,
            (_, Some(since)) => self.from(Nanos(now.0.saturating_sub(since.0)), next),
            (_, None) => 0,
        };
        // What is sent now, everybody may have.
        wanted.min(next)
    }
}

/// What begins within so much is not told apart.
const APART: Nanos = Nanos(1_000_000_000);

/// Nor what began within such a part of the time since.
const PARTS: u64 = 256;

/// Marks that are kept: twice as many as are left of a year of them, a second apart.
const MOST_MARKS: usize = 16_384;

#[cfg(test)]
mod tests {
    use farlink_mover::facts;
    use farlink_wire::cast::control::Wanted;

    use super::*;

    const fn at(milliseconds: u64) -> Nanos {
        Nanos(milliseconds * 1_000_000)
    }

    /// Products 0 to 3, of which the last begins late.
    fn starts() -> Starts {
        let mut starts = Starts::default();
        for (product, begun) in [(0, 10_000), (1, 10_400), (2, 11_100), (3, 20_000)] {
            starts.note(product, at(begun));
        }
        starts
    }

    #[test]
    fn what_began_before_is_left_out_to_the_second() {
        assert_eq!(Starts::default().from(at(5000), 0), 0);
        let starts = starts();
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
        // It rests for an hour after each thousand products.
        for product in 0..60_000_u32 {
            begun.push(at(u64::from(product) * 1300 + u64::from(product / 1000) * 3_600_000));
            starts.note(product, begun[product as usize]);
            assert!(starts.marks.len() <= MOST_MARKS);
        }
        let now = begun[59_999];
        starts.thin(now);
        assert!(starts.marks.len() < 4_500, "{}", starts.marks.len());
        for ago in (0..now.0 / 1_000_000).step_by(7700) {
            let since = now.since(at(ago));
            let from = starts.from(since, 60_000);
            let exact = begun.partition_point(|time| *time < since);
            assert!(from as usize <= exact, "{ago}: {from}, {exact}");
            // Those that are had beside them began little before.
            let before = begun[from as usize..exact].first().map_or(Nanos::ZERO, |time| since.since(*time));
            assert!(before <= APART.max(at(ago / PARTS + 1)), "{ago} ms ago: {before} before");
        }
    }

    #[test]
    fn who_joins_has_what_it_wants_and_never_less_than_is_sent_now() {
        let (starts, session) = (starts(), SessionId(7));
        let wanted = |since: Option<Nanos>, wanted: Option<(u64, u32)>| {
            let join = Join {
                since,
                wanted: wanted.map(|(session, first)| Wanted { session: SessionId(session), first }),
                ..Join::new(facts::host(), 1)
            };
            starts.wanted(&join, session, at(30_000), 4)
        };
        assert_eq!(wanted(None, None), 0);
        assert_eq!([0, 5_000, 15_000, 1_000_000].map(|ago| wanted(Some(at(ago)), None)), [4, 4, 3, 0]);
        assert_eq!(wanted(Some(Nanos(u64::MAX)), None), 0);
        // What it wanted of this session it wants still, and of another that says nothing.
        assert_eq!(wanted(Some(at(0)), Some((7, 2))), 2);
        assert_eq!(wanted(Some(at(0)), Some((8, 2))), 4);
        assert_eq!(wanted(None, Some((7, u32::MAX))), 4);
    }
}
