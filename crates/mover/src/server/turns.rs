//! One session a copy: who begins a copy again takes it over from the session that still waits for a client that is gone.

use std::collections::HashMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use farlink_host::readiness::Wake;
use farlink_wire::key::PublicKey;
use farlink_wire::message::Token;

/// What names a copy: whose it is, where they have a key, and what they call it. Nobody takes over another's.
pub(super) type Name = (Option<PublicKey>, Token);

/// The copies that a server has, by their names.
#[derive(Debug, Default)]
pub(super) struct Copies {
    holders: Mutex<HashMap<Name, Wake>>,
    left: Condvar,
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
    fn holders(&self) -> MutexGuard<'_, HashMap<Name, Wake>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn at the copy `name`: whoever has it is told to end, and waited for.
    pub(super) fn enter(&self, name: Name) -> io::Result<Turn<'_>> {
        let stop = Wake::new()?;
        let mut holders = self.holders();
        while let Some(holder) = holders.get(&name) {
            holder.raise();
            holders = self.left.wait(holders).unwrap_or_else(PoisonError::into_inner);
        }
        holders.insert(name, stop.clone());
        Ok(Turn { copies: self, name, stop })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.copies.holders().remove(&self.name);
        self.copies.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_second_session_takes_over_when_the_first_has_left() {
        let copies = Copies::default();
        let name = |token| (Some(PublicKey([7; 32])), Token([token; 16]));
        let first = copies.enter(name(1)).unwrap();
        drop(copies.enter(name(2)).unwrap());
        // What another calls the same is another's.
        drop(copies.enter((Some(PublicKey([8; 32])), Token([1; 16]))).unwrap());
        assert!(!first.stop.is_raised());
        thread::scope(|scope| {
            let second = scope.spawn(|| copies.enter(name(1)).unwrap().stop.is_raised());
            while !first.stop.is_raised() {
                thread::yield_now();
            }
            drop(first);
            assert!(!second.join().unwrap());
        });
        assert!(copies.holders().is_empty());
    }
}
