//! When each link of an engine has something to deliver next: of a star there are many, which lie far apart.

use std::ops::Range;

use farlink_wire::quantity::Nanos;

/// A time for each link, by its place.
#[derive(Debug)]
pub(crate) struct Due {
    times: Vec<Nanos>,
}

impl Due {
    /// Of so many links, none of which has anything.
    pub(crate) fn new(links: usize) -> Self {
        Self { times: vec![Nanos::MAX; links] }
    }

    /// The link has something at `time` next, or nothing.
    pub(crate) fn set(&mut self, link: usize, time: Option<Nanos>) {
        self.times[link] = time.unwrap_or(Nanos::MAX);
    }

    /// Whether the link has something by `now`.
    pub(crate) fn is(&self, link: usize, now: Nanos) -> bool {
        self.times[link] <= now
    }

    /// Of `links`, the one that has something first, where that is by `now`. The core takes what reaches it in this order, as a link that
    /// is shared there must meet it: in another, what came later would wait before what came earlier, or take its room.
    pub(crate) fn first(&self, links: Range<usize>, now: Nanos) -> Option<usize> {
        links.min_by_key(|&link| self.times[link]).filter(|&link| self.is(link, now))
    }

    /// When there is something next.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.times.iter().min().copied().filter(|time| *time < Nanos::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_the_earliest_whatever_its_place() {
        let mut due = Due::new(4);
        assert_eq!((due.first(0..4, Nanos(40)), due.next()), (None, None));
        due.set(0, Some(Nanos(30)));
        due.set(2, Some(Nanos(10)));
        due.set(3, Some(Nanos(5)));
        assert_eq!(due.first(0..3, Nanos(40)), Some(2), "the fourth was not asked for");
        assert_eq!(due.first(0..3, Nanos(9)), None);
        assert_eq!(due.next(), Some(Nanos(5)));
        due.set(2, None);
        assert_eq!(due.first(0..3, Nanos(40)), Some(0));
        assert!(due.is(3, Nanos(5)) && !due.is(3, Nanos(4)));
    }

    #[test]
    fn of_what_comes_at_once_the_first_named_goes_first() {
        let mut due = Due::new(2);
        due.set(1, Some(Nanos(7)));
        due.set(0, Some(Nanos(7)));
        assert_eq!(due.first(0..2, Nanos(7)), Some(0));
    }
}
