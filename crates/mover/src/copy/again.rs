//! Files that were begun and not read to their end, to be tried once more when all others are done: they were being written, or a
//! disk hiccuped. What is not there, or may not be read, is not tried again.

use std::collections::{BTreeMap, HashSet};

use farlink_wire::message::copy::{Lack, Rule};
use farlink_wire::path::bytes_of;

use super::file_event::{Became, FileEvent};
use super::filter::Filter;

/// The names that failed, as many as are tried again, and what became of them.
#[derive(Debug, Default)]
pub(super) struct Again {
    failed: BTreeMap<String, FileEvent>,
    /// Whether they are being tried again.
    trying: bool,
    /// How often they may be after that.
    left: u32,
    done: HashSet<String>,
    /// What else was told to lack something, as many as may come along again.
    lacking: HashSet<String>,
}

impl Again {
    /// Takes what became of a name, where that is not the last word on it or is none at all; gives it back otherwise.
    pub(super) fn take(&mut self, event: FileEvent) -> Option<FileEvent> {
        // An earlier source's is what was asked for, and to be tried again.
        if matches!(event.what, Became::Lacking(Lack::Later | Lack::Skipped, _))
            && self.failed.contains_key(&event.path)
        {
            return Some(event).filter(|_| !self.trying);
        }
        if self.trying {
            let Some((asked, _)) = self.failed.get_key_value(&event.path) else {
                // The directories above come along, and were told of before: but not of what fails now.
                return Some(event).filter(|event| self.is_new_failure(event));
            };
            let asked = asked.clone();
            if self.left > 0 && matches!(event.what, Became::Lacking(Lack::Abandoned, _)) {
                self.failed.insert(asked, event);
                return None;
            }
            self.done.insert(asked);
            return Some(event);
        }
        // An attempt before, which the connection did not survive, may have told of it.
        self.failed.remove(&event.path);
        if matches!(event.what, Became::Lacking(Lack::Abandoned, _))
            && can_be_named(&event)
            && self.failed.len() < MOST_NAMES
        {
            self.failed.insert(event.path.clone(), event);
            return None;
        }
        self.is_new_failure(&event);
        Some(event)
    }

    /// Whether `event` is of a failure that was not told of yet, as far as that is known.
    fn is_new_failure(&mut self, event: &FileEvent) -> bool {
        if event.what.failure().is_none() || self.lacking.contains(&event.path) {
            return false;
        }
        if self.lacking.len() < MOST_LACKING {
            self.lacking.insert(event.path.clone());
        }
        true
    }

    /// Begins to try again, and may do so `left` times more: how many names, and the rules that admit them alone. `None` where there is
    /// nothing to try.
    pub(super) fn begin(&mut self, left: u32) -> Option<(usize, Vec<Rule>)> {
        (self.trying, self.left) = (true, left);
        if self.failed.len() == self.done.len() {
            return None;
        }
        let mut rules: Vec<Rule> = Vec::new();
        let mut admitted = HashSet::new();
        let mut names = 0;
        for path in self.failed.keys().filter(|path| !self.done.contains(*path)) {
            let path = bytes_of(path);
            let Ok(path) = std::str::from_utf8(&path) else { continue };
            let above = path.match_indices('/').map(|(at, _)| format!("/{}/", escaped(&path[..at])));
            let own = format!("/{}", escaped(path));
            let new: Vec<String> = above.chain([own]).filter(|pattern| !admitted.contains(pattern)).collect();
            if rules.len() + new.len() < Filter::MOST_RULES {
                names += 1;
                admitted.extend(new.iter().cloned());
                rules.extend(new.into_iter().map(|pattern| Rule { include: true, pattern }));
            }
        }
        rules.push(Rule { include: false, pattern: "*".to_owned() });
        Some((names, rules))
    }

    /// What is still to be told: the names of which nothing more was heard.
    pub(super) fn end(&mut self) -> Vec<FileEvent> {
        let failed = std::mem::take(&mut self.failed);
        failed.into_values().filter(|event| !self.done.contains(&event.path)).collect()
    }
}

/// Whether a rule can name it.
fn can_be_named(event: &FileEvent) -> bool {
    let name = bytes_of(&event.path);
    !name.is_empty() && name.len() <= MOST_NAME && std::str::from_utf8(&name).is_ok()
}

/// A pattern that matches `name` and nothing else. A backslash escapes only where there is something that it could.
fn escaped(name: &str) -> String {
    if !name.contains(['*', '?', '[']) {
        return name.to_owned();
    }
    name.chars()
        .flat_map(|c| matches!(c, '*' | '?' | '[' | '\\').then_some('\\').into_iter().chain([c]))
        .collect()
}

/// Names that are tried again, of one transfer: their rules, and those of the directories above them, are few enough for a request.
const MOST_NAMES: usize = 100;

/// Names that are known to have failed otherwise.
const MOST_LACKING: usize = 10_000;

/// Bytes of such a name: a pattern may have twice as many.
const MOST_NAME: usize = 400;

#[cfg(test)]
mod tests {
    use farlink_wire::path::RelativePath;

    use super::*;

    fn event(path: &str, what: Became) -> FileEvent {
        FileEvent { bytes: 1, ..FileEvent::of(path.to_owned(), what) }
    }

    fn failed(path: &str) -> FileEvent {
        event(path, Became::Lacking(Lack::Abandoned, "it was changed while it was read".to_owned()))
    }

    #[test]
    fn the_rules_admit_what_failed_and_the_way_to_it() {
        let mut again = Again::default();
        for path in ["run/a/odd [1]*?.dat", "run/b\\c"] {
            assert_eq!(again.take(failed(path)), None);
        }
        let (names, rules) = again.begin(0).unwrap();
        assert_eq!(names, 2);
        let filter = Filter::new(&rules).unwrap();
        let admits = |path: &str, is_dir| filter.admits(&RelativePath::new(path.as_bytes()).unwrap(), is_dir);
        for (path, is_dir) in
            [("run", true), ("run/a", true), ("run/a/odd [1]*?.dat", false), ("run/b\\c", false)]
        {
            assert!(admits(path, is_dir), "{path}");
        }
        for path in ["run/a/odd 1xy.dat", "run/c", "other", "run/a/b", "a"] {
            assert!(!admits(path, false), "{path}");
        }
    }

    #[test]
    fn each_name_is_told_of_once() {
        let mut again = Again::default();
        let copied = event("x", Became::Copied);
        assert_eq!(again.take(copied.clone()), Some(copied));
        let missing =
            event("m", Became::Lacking(Lack::Failed, "open m: No such file or directory".to_owned()));
        assert_eq!(again.take(missing.clone()), Some(missing), "what is not there is not tried again");
        assert_eq!(again.take(failed("d/y")), None);
        assert_eq!(again.take(failed("d/z")), None);
        assert!(again.begin(0).is_some());
        // The way to it, then the name itself.
        assert_eq!(again.take(event("d", Became::Copied)), None);
        let copied = event("d/y", Became::Copied);
        assert_eq!(again.take(copied.clone()), Some(copied));
        assert_eq!(again.end(), [failed("d/z")]);
        assert_eq!(again.end(), []);
    }

    #[test]
    fn a_directory_on_the_way_that_fails_is_told_of_once() {
        let mut again = Again::default();
        let unfinished =
            |path| event(path, Became::Lacking(Lack::Unfinished, "input/output error".to_owned()));
        assert_eq!(again.take(unfinished("d")), Some(unfinished("d")));
        assert_eq!(again.take(failed("d/e/x")), None);
        assert!(again.begin(1).is_some());
        assert_eq!(again.take(unfinished("d")), None, "that was told of");
        assert_eq!(again.take(unfinished("d/e")), Some(unfinished("d/e")));
        assert_eq!(again.take(failed("d/e/x")), None);
        assert!(again.begin(0).is_some());
        assert_eq!(again.take(unfinished("d/e")), None);
    }

    #[test]
    fn a_later_source_of_the_same_name_is_not_what_became_of_it() {
        // What a later source has of it may be what it would be copied onto, too.
        for lack in [Lack::Later, Lack::Skipped] {
            let mut again = Again::default();
            let skipped = event("x", Became::Lacking(lack, "it would be copied onto itself".to_owned()));
            assert_eq!(again.take(failed("x")), None);
            assert_eq!(again.take(skipped.clone()), Some(skipped.clone()));
            assert_eq!(again.begin(0).map(|(names, _)| names), Some(1));
            // Both sources are looked at again.
            assert_eq!(again.take(skipped), None);
            assert_eq!(again.end(), [failed("x")]);
        }
    }

    #[test]
    fn as_many_as_fit_a_request_are_tried_and_the_others_told_of() {
        let mut again = Again::default();
        let deep = "a/".repeat(150);
        let told = (0..MOST_NAMES + 5).filter(|at| again.take(failed(&format!("{at}/{deep}x"))).is_some());
        assert_eq!(told.count(), 5);
        assert!(again.take(failed("")).is_some(), "what has no name");
        assert!(again.take(failed("%FF")).is_some(), "what no rule can name");
        let (names, rules) = again.begin(0).unwrap();
        assert!(Filter::new(&rules).is_ok());
        assert_eq!(names, 6);
        assert_eq!(again.end().len(), MOST_NAMES);
    }

    #[test]
    fn what_fails_again_is_tried_as_often_as_it_may_and_told_once() {
        let mut again = Again::default();
        assert_eq!((again.take(failed("a")), again.take(failed("b"))), (None, None));
        assert_eq!(again.begin(1).unwrap().0, 2);
        assert!(again.take(event("a", Became::Copied)).is_some());
        assert_eq!(again.take(failed("b")), None);
        assert_eq!(again.begin(0).unwrap().0, 1, "the other is there");
        assert_eq!(again.take(failed("b")), Some(failed("b")));
        assert_eq!((again.begin(0), again.end()), (None, Vec::new()));
    }
}
