//! What sessions left open that were over before this end had everything of them: their sender was started again.

use std::collections::BTreeSet;

use crate::name::{Name, of};

/// What the sessions before this one left open.
#[derive(Debug, Default)]
pub(super) struct LeftOpen {
    /// Names of products that had begun and were not stored since.
    names: BTreeSet<String>,
    nameless: Option<Nameless>,
    /// What the present session has stored.
    stored: BTreeSet<Name>,
    /// Whether that is not all, as it was too much.
    is_full: bool,
}

/// Products that had no name yet.
#[derive(Debug, Default)]
struct Nameless {
    /// How many a session lacked at most.
    missing: u32,
    /// Names that such a session had at most, those included.
    all: usize,
    /// Whether of such a session no name at all is known, or were too many: any other may be the same.
    is_blank: bool,
    /// What those sessions stored: one that sends the same again brings it again.
    known: BTreeSet<Name>,
    /// What was stored since, in sessions before the present one.
    came: BTreeSet<Name>,
}

impl LeftOpen {
    /// A session is over, of whose products `missing` are not stored; these had begun, and were not whole.
    pub(super) fn add(&mut self, names: impl Iterator<Item = String>, missing: u32) {
        let stored = std::mem::take(&mut self.stored);
        let (mut begun, mut all) = (0, stored.len());
        for name in names {
            begun += 1;
            // One of two versions of a file may be stored.
            all += usize::from(!stored.contains(&of(name.as_bytes())));
            self.names.insert(name);
        }
        let missing = missing.saturating_sub(begun);
        let is_full = std::mem::take(&mut self.is_full);
        if missing > 0 {
            let nameless = self.nameless.get_or_insert_default();
            nameless.missing = nameless.missing.max(missing);
            nameless.all = nameless.all.max(all + missing as usize);
            nameless.is_blank |= stored.is_empty() && begun == 0;
            nameless.known.extend(stored);
            nameless.came.clear();
        } else if let Some(nameless) = &mut self.nameless {
            nameless.came.extend(stored);
        }
        if let Some(nameless) = &mut self.nameless {
            nameless.is_blank |= is_full || nameless.known.len() + nameless.came.len() > MOST_STORED;
            if nameless.is_blank {
                (nameless.known, nameless.came) = Default::default();
            }
        }
        if self.nameless() == 0 {
            self.nameless = None;
        }
    }

    /// A product is stored.
    pub(super) fn on_stored(&mut self, name: &str) {
        self.names.remove(name);
        self.is_full |= self.stored.len() >= MOST_STORED;
        if !self.is_full {
            self.stored.insert(of(name.as_bytes()));
        }
    }

    /// Those that are missing and have names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Of how many more it cannot be told that they came since. Where all that was stored before has come again, other names are those that
    /// were missing; where not, the present session sends something else, or a part.
    pub(super) fn nameless(&self) -> u32 {
        let Some(nameless) = &self.nameless else { return 0 };
        let has_come = |name: &Name| self.stored.contains(name) || nameless.came.contains(name);
        if self.is_full || nameless.is_blank || !nameless.known.iter().all(has_come) {
            return nameless.missing;
        }
        let came = nameless.came.union(&self.stored).count();
        nameless.missing.min(nameless.all.saturating_sub(came) as u32)
    }
}

/// Names that are remembered of a session: 32 MB.
const MOST_STORED: usize = if cfg!(test) { 100 } else { 1 << 20 };

#[cfg(test)]
mod tests {
    use super::*;

    /// What a session leaves open that stored some, has begun others, and of which so many are missing.
    fn left(stored: &[&str], begun: &[&str], missing: u32) -> LeftOpen {
        let mut left = LeftOpen::default();
        over(&mut left, stored, begun, missing);
        left
    }

    fn over(left: &mut LeftOpen, stored: &[&str], begun: &[&str], missing: u32) {
        stored.iter().for_each(|name| left.on_stored(name));
        left.add(begun.iter().map(|name| (*name).to_owned()), missing);
    }

    /// What is missing when another session has stored these.
    fn missing(mut left: LeftOpen, stored: &[&str]) -> (Vec<String>, u32) {
        stored.iter().for_each(|name| left.on_stored(name));
        (left.names().map(str::to_owned).collect(), left.nameless())
    }

    #[test]
    fn a_session_that_sends_the_same_again_leaves_nothing_open() {
        let none = (vec![], 0);
        assert_eq!(missing(left(&["a"], &["b"], 4), &["a", "b", "c", "d", "e"]), none);
        assert_eq!(missing(left(&["a"], &["b"], 4), &["a", "b", "c", "d", "e", "more"]), none);
        assert_eq!(missing(left(&[], &["a"], 2), &["a", "b"]), none);
        assert_eq!(missing(LeftOpen::default(), &[]), none, "there was none before");
    }

    #[test]
    fn a_session_that_sends_something_else_makes_up_for_nothing() {
        assert_eq!(missing(left(&[], &["a"], 1), &["b"]), (vec!["a".to_owned()], 0));
        // As many as were missing, and as all, but others.
        assert_eq!(missing(left(&["a", "b"], &[], 1), &["d", "e", "f"]), (vec![], 1));
        assert_eq!(missing(left(&["a", "b"], &["c"], 3), &["c", "d", "e", "f", "g"]), (vec![], 2));
        // What is missing, or something else.
        assert_eq!(missing(left(&[], &[], 2), &["a", "b"]), (vec![], 2));
        assert_eq!(missing(left(&["a"], &[], 1), &["b"]), (vec![], 1));
    }

    #[test]
    fn what_comes_once_more_makes_up_for_nothing_either() {
        assert_eq!(missing(left(&["a", "b"], &[], 4), &["a", "b", "a", "b", "a", "b"]), (vec![], 4));
        assert_eq!(missing(left(&["a", "b"], &[], 4), &["a", "b", "c"]), (vec![], 3));
        // An older version of a file was stored, and the newer one had begun.
        assert_eq!(missing(left(&["a", "b"], &["a"], 2), &["a", "b", "c"]), (vec![], 0));
    }

    #[test]
    fn what_was_made_up_for_is_forgotten_and_what_is_too_much_is_not_kept() {
        let mut left = left(&["a"], &["b"], 4);
        over(&mut left, &["a", "b", "c", "d"], &[], 0);
        assert_eq!((left.nameless(), left.nameless.is_some()), (1, true));
        over(&mut left, &["a", "b", "c", "d", "e"], &[], 0);
        assert!(left.nameless.is_none());
        over(&mut left, &["x"], &[], 2);
        let many: Vec<_> = (0..2 * MOST_STORED).map(|number| number.to_string()).collect();
        over(&mut left, &many.iter().map(String::as_str).collect::<Vec<_>>(), &[], 0);
        let nameless = left.nameless.as_ref().unwrap();
        assert_eq!(
            (nameless.known.len() + nameless.came.len(), left.nameless(), left.is_full),
            (0, 2, false)
        );
    }

    #[test]
    fn where_all_that_was_missing_had_a_name_the_rest_need_not_come_again() {
        assert_eq!(missing(left(&["x", "y", "z"], &["a"], 1), &["a"]), (vec![], 0));
    }

    #[test]
    fn what_several_sessions_left_open_adds_up() {
        let several = || {
            let mut several = left(&[], &["a"], 3);
            over(&mut several, &["a", "b"], &[], 1);
            several
        };
        assert_eq!(missing(several(), &["a", "b"]), (vec![], 1));
        assert_eq!(missing(several(), &["b", "c", "d"]), (vec![], 2));
        assert_eq!(missing(several(), &["a", "b", "c"]), (vec![], 0));
        // One that was whole is followed by another.
        let mut whole = several();
        over(&mut whole, &["a", "b", "c"], &[], 0);
        assert_eq!(missing(whole, &["other"]), (vec![], 0));
    }

    #[test]
    fn of_more_than_is_remembered_nothing_is_said_for_sure() {
        let mut many = LeftOpen::default();
        (0..=MOST_STORED).for_each(|name| many.on_stored(&name.to_string()));
        assert!(many.stored.len() == MOST_STORED && many.nameless() == 0);
        many.add(std::iter::empty(), 1);
        (0..MOST_STORED + 2).for_each(|name| many.on_stored(&name.to_string()));
        assert_eq!(many.nameless(), 1);
    }
}
