//! A product that goes nowhere: hashed as it comes, to say whether it came right.

use farlink_flow::digest::Subtrees;

/// What is hashed. Bytes are gathered before, as a packet's alone take several times as long.
#[derive(Debug)]
pub(super) struct Hashed {
    subtrees: Subtrees,
    /// What came last, in order, and where it belongs.
    waiting: Vec<u8>,
    waiting_at: u64,
}

impl Hashed {
    /// Of a product of `size` bytes, of which nothing came.
    pub(super) const fn new(size: u64) -> Self {
        Self { subtrees: Subtrees::new(size), waiting: Vec::new(), waiting_at: 0 }
    }

    /// Takes bytes that had not come before.
    pub(super) fn add(&mut self, at: u64, bytes: &[u8]) {
        if self.end() != at {
            self.flush();
            // Nothing that follows may come for long: thousands may be unfinished at a time.
            self.waiting = Vec::new();
            self.waiting_at = at;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = UNIT - (self.end() % UNIT as u64) as usize;
            let (part, behind) = rest.split_at(rest.len().min(room));
            self.waiting.extend_from_slice(part);
            if part.len() == room {
                self.flush();
            }
            rest = behind;
        }
    }

    /// Hashes what waits.
    pub(super) fn flush(&mut self) {
        self.subtrees.take(self.waiting_at, &self.waiting);
        self.waiting_at = self.end();
        self.waiting.clear();
    }

    /// What has come, once that is everything.
    pub(super) const fn subtrees(&self) -> &Subtrees {
        &self.subtrees
    }

    const fn end(&self) -> u64 {
        self.waiting_at + self.waiting.len() as u64
    }
}

/// Bytes that are hashed at once: what comes in order is in the processor's cache still.
const UNIT: usize = 64 * 1024;
