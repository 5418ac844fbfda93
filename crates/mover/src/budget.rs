//! The memory that all transfers of a server may take together, of what a peer can make large: what cannot be had is refused, before it
//! is allocated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farlink_wire::message::{Request, copy};
use farlink_wire::quantity::Bytes;

/// Memory that may be taken, counted by what is bounded of each transfer.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    most: u64,
    taken: AtomicU64,
}

/// What was taken of a budget; it goes back when this is dropped.
#[derive(Debug)]
pub(crate) struct Portion {
    budget: Budget,
    bytes: AtomicU64,
}

impl Budget {
    /// One of `most` bytes.
    pub(crate) fn of(most: Bytes) -> Self {
        Self(Arc::new(Pool { most: most.0, taken: AtomicU64::new(0) }))
    }

    /// One without bound, for an end that serves nobody but its user.
    pub(crate) fn unbounded() -> Self {
        Self::of(Bytes(u64::MAX))
    }

    /// Nothing of it, yet.
    pub(crate) fn nothing(&self) -> Portion {
        Portion { budget: self.clone(), bytes: AtomicU64::new(0) }
    }

    /// Takes `bytes`; `None` where there are not so many left.
    pub(crate) fn take(&self, bytes: Bytes) -> Option<Portion> {
        let portion = self.nothing();
        portion.grow(bytes).then_some(portion)
    }

    /// How much may be taken in all.
    pub(crate) fn most(&self) -> Bytes {
        Bytes(self.0.most)
    }

    fn charge(&self, bytes: u64) -> bool {
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= self.0.most);
        self.0.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }
}

impl Portion {
    /// Takes `bytes` more; false where there are not so many left.
    pub(crate) fn grow(&self, bytes: Bytes) -> bool {
        let granted = self.budget.charge(bytes.0);
        if granted {
            self.bytes.fetch_add(bytes.0, Ordering::AcqRel);
        }
        granted
    }

    /// Whether it is as much as `bytes`.
    pub(crate) fn is_at_least(&self, bytes: Bytes) -> bool {
        self.bytes.load(Ordering::Acquire) >= bytes.0
    }
}

impl Drop for Portion {
    fn drop(&mut self) {
        self.budget.0.taken.fetch_sub(*self.bytes.get_mut(), Ordering::AcqRel);
    }
}

/// What a memory transfer takes at the end that serves it: its payload, which is a block or some, and a buffer for each thread.
pub(crate) fn of_memory(request: &Request) -> Bytes {
    Bytes(SESSION + 2 * u64::from(request.block.get()) + u64::from(request.streams.get()) * STREAM)
}

/// What a copy takes at the end that serves it, apart from [`of_blocks`], [`of_runs`] and the names of directories.
pub(crate) fn of_copy(request: &copy::Request) -> Bytes {
    Bytes(SESSION + AHEAD + u64::from(request.streams.get()) * STREAM)
}

/// What a file of `blocks` takes while it is open.
pub(crate) fn of_blocks(blocks: u32) -> Bytes {
    Bytes(u64::from(blocks) * BLOCK)
}

/// What so many runs of numbers of files and packs take.
pub(crate) fn of_runs(runs: usize) -> Bytes {
    Bytes(runs as u64 * RUN)
}

/// What the name of a directory takes, whose mode and time are set at the end.
pub(crate) fn of_directory(name: &[u8]) -> Bytes {
    Bytes(name.len() as u64 + 128)
}

/// What the least of all transfers takes at the end that serves it, and the least of copies: by one connection.
pub const LEAST: Bytes = Bytes(SESSION + STREAM);
/// As above, with the blocks of some files.
pub const LEAST_OF_COPY: Bytes = Bytes(LEAST.0 + AHEAD + (1 << 20));

/// A control connection: a message as it comes, what waits to be sent, and a stack.
const SESSION: u64 = 4 << 20;

/// At a sender names and packs that are ahead of what was acknowledged: 100,000 of 200 bytes. At a receiver twice the 50,000 things that
/// may wait to be said, once where they come about and once where they are sent.
const AHEAD: u64 = 20 << 20;

/// A data connection: a piece of 256 KiB or a pack of a mebibyte, eight records of TLS each way, and a stack. Half of that is seldom used,
/// and may be that of another which broke and is not yet known to.
const STREAM: u64 = 2 << 20;

/// A block of a file. At a receiver its digest twice, once by its number, and a bit; at a sender the receiver's digest by its number, and on
/// which connection it is, since when.
const BLOCK: u64 = 128;

/// A run of numbers: two, in a tree that is half full.
const RUN: u64 = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_and_all_of_it_comes_back() {
        let budget = Budget::of(Bytes(10));
        let some = budget.take(Bytes(4)).unwrap();
        assert!(budget.take(Bytes(7)).is_none() && some.grow(Bytes(5)) && !some.grow(Bytes(2)));
        assert!(some.is_at_least(Bytes(9)) && !some.is_at_least(Bytes(10)));
        let rest = budget.take(Bytes(1)).unwrap();
        drop(some);
        assert!(budget.take(Bytes(10)).is_none() && budget.take(Bytes(9)).is_some());
        drop(rest);
        assert!(budget.take(Bytes(10)).is_some() && budget.take(Bytes(u64::MAX)).is_none());
        assert!(Budget::unbounded().take(Bytes(u64::MAX)).is_some());
    }
}
