//! One session a copy: who begins a copy again takes it over from the session that still waits for a client that is gone.

use std::collections::HashMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use farlink_host::readiness::Wake;
use farlink_wire::message::Token;

/// The copies that a server has, by the key that names them.
#[derive(Debug, Default)]
pub(super) struct Copies {
    holders: Mutex<HashMap<Token, Wake>>,
    left: Condvar,
}

/// A session's turn at a copy, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    copies: &'a Copies,
    key: Token,
    /// Raised when another session wants the copy.
    pub(super) stop: Wake,
}

impl Copies {
    fn holders(&self) -> MutexGuard<'_, HashMap<Token, Wake>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn at the copy that `key` names: whoever has it is told to end, and waited for.
    pub(super) fn enter(&self, key: Token) -> io::Result<Turn<'_>> {
        let stop = Wake::new()?;
        let mut holders = self.holders();
        while let Some(holder) = holders.get(&key) {
            holder.raise();
            holders = self.left.wait(holders).unwrap_or_else(PoisonError::into_inner);
        }
        holders.insert(key, stop.clone());
        Ok(Turn { copies: self, key, stop })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.copies.holders().remove(&self.key);
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
        let first = copies.enter(Token([1; 16])).unwrap();
        drop(copies.enter(Token([2; 16])).unwrap());
        thread::scope(|scope| {
            let second = scope.spawn(|| copies.enter(Token([1; 16])).unwrap().stop.is_raised());
            while !first.stop.is_raised() {
                thread::yield_now();
            }
            drop(first);
            assert!(!second.join().unwrap());
        });
        assert!(copies.holders().is_empty());
    }
}
