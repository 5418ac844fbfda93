//! One session a copy: who begins a copy again takes it over from the session that still waits for a client that is gone.

use std::collections::HashMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_wire::key::PublicKey;
use farlink_wire::message::Token;
use farlink_wire::quantity::Nanos;
use farlink_wire::refusal::{Cause, Refusal};

use crate::chain;

/// What names a copy: whose it is, where they have a key, and what they call it. Nobody takes over another's.
pub(super) type Name = (Option<PublicKey>, Token);

/// The copies that a server has, by their names.
#[derive(Debug, Default)]
pub(super) struct Copies {
    holders: Mutex<Holders>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Holders {
    /// When each came, and what ends it.
    of: HashMap<Name, (u64, Wake)>,
    /// Sessions that have come.
    came: u64,
}

/// A session's turn at a copy, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    copies: &'a Copies,
    name: Name,
    /// Raised when another session wants the copy.
    pub(super) stop: Wake,
}

impl Copies {
    fn holders(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn at the copy `name`: whoever has it is told to end, and waited for until `until`, but for one that came later.
    pub(super) fn enter(&self, name: Name, until: Nanos) -> Result<Turn<'_>, TurnError> {
        let stop = Wake::new().map_err(TurnError::Wake)?;
        let mut holders = self.holders();
        holders.came += 1;
        let number = holders.came;
        while let Some((came, holder)) = holders.of.get(&name) {
            if *came > number {
                return Err(TurnError::Overtaken);
            }
            holder.raise();
            let left = until.since(monotonic());
            if left == Nanos::ZERO {
                return Err(TurnError::Kept);
            }
            let waited = self.left.wait_timeout(holders, Duration::from_nanos(left.0));
            holders = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        holders.of.insert(name, (number, stop.clone()));
        Ok(Turn { copies: self, name, stop })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.copies.holders().of.remove(&self.name);
        self.copies.left.notify_all();
    }
}

/// Why there is no turn.
#[derive(Debug, thiserror::Error)]
pub(super) enum TurnError {
    /// Who has it does not end: its disk does not answer.
    #[error("this copy was begun before, and its end takes long: try again later")]
    Kept,
    /// While this one waited, a later one took it.
    #[error("this copy was begun again by another command, which goes on with it")]
    Overtaken,
    /// The kernel's own words.
    #[error("make a place for the copy")]
    Wake(#[source] io::Error),
}

impl TurnError {
    /// As a client is told.
    pub(super) fn refusal(&self) -> Refusal {
        let cause = match self {
            Self::Kept => Cause::Passing,
            Self::Overtaken => Cause::Overtaken,
            Self::Wake(_) => Cause::Lasting,
        };
        Refusal::new(cause, chain(self))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn who_does_not_end_is_told_and_not_waited_for_without_end() {
        let copies = Copies::default();
        let name = (None, Token([1; 16]));
        let first = copies.enter(name, Nanos::MAX).unwrap();
        assert!(matches!(copies.enter(name, Nanos::ZERO), Err(TurnError::Kept)));
        assert!(first.stop.is_raised());
        drop(first);
        assert!(copies.enter(name, Nanos::ZERO).is_ok());
    }

    #[test]
    fn who_waits_does_not_end_one_that_came_later() {
        let copies = Copies::default();
        let name = (None, Token([1; 16]));
        let first = copies.enter(name, Nanos::MAX).unwrap();
        let later = Wake::new().unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| copies.enter(name, Nanos::MAX).map(drop));
            while copies.holders().came < 2 {
                thread::yield_now();
            }
            // A third came, and was the quicker one when the first had left.
            copies.holders().of.insert(name, (3, later.clone()));
            copies.left.notify_all();
            assert!(matches!(second.join().unwrap(), Err(TurnError::Overtaken)));
        });
        assert!(first.stop.is_raised() && !later.is_raised());
    }

    #[test]
    fn a_second_session_takes_over_when_the_first_has_left() {
        let copies = Copies::default();
        let name = |token| (Some(PublicKey([7; 32])), Token([token; 16]));
        let first = copies.enter(name(1), Nanos::MAX).unwrap();
        drop(copies.enter(name(2), Nanos::MAX).unwrap());
        // What another calls the same is another's.
        drop(copies.enter((Some(PublicKey([8; 32])), Token([1; 16])), Nanos::MAX).unwrap());
        assert!(!first.stop.is_raised());
        thread::scope(|scope| {
            let second = scope.spawn(|| copies.enter(name(1), Nanos::MAX).unwrap().stop.is_raised());
            while !first.stop.is_raised() {
                thread::yield_now();
            }
            drop(first);
            assert!(!second.join().unwrap());
        });
        assert!(copies.holders().of.is_empty());
    }
}
