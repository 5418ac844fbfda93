//! A product that goes nowhere: hashed as it comes, to say whether it came right.

use farlink_flow::digest::Subtrees;
use farlink_wire::entry::Digest;

/// What is hashed. Bytes are gathered before, as a packet's alone take several times as long.
#[derive(Debug)]
pub(super) struct Hashed {
    subtrees: Subtrees,
    size: u64,
    /// What came last, in order, and where it belongs.
    waiting: Vec<u8>,
    waiting_at: u64,
}

impl Hashed {
    /// Of a product of `size` bytes, of which nothing came.
    pub(super) const fn new(size: u64) -> Self {
        Self { subtrees: Subtrees::new(size), size, waiting: Vec::new(), waiting_at: 0 }
    }

    /// Takes bytes that had not come before.
    pub(super) fn add(&mut self, at: u64, bytes: &[u8]) {
        if self.end() != at {
            self.put_away();
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
        if self.end() == self.size {
            self.put_away();
        }
    }

    /// Hashes what waits, where nothing that follows may come for long: thousands may be unfinished at a time.
    fn put_away(&mut self) {
        self.flush();
        self.waiting = Vec::new();
    }

    /// Hashes what waits.
    fn flush(&mut self) {
        self.subtrees.take(self.waiting_at, &self.waiting);
        self.waiting_at = self.end();
        self.waiting.clear();
    }

    /// The digest of what has come, once that is everything.
    pub(super) fn digest(&mut self) -> Option<Digest> {
        self.flush();
        self.subtrees.digest()
    }

    const fn end(&self) -> u64 {
        self.waiting_at + self.waiting.len() as u64
    }
}

/// Bytes that are hashed at once: what comes in order is in the processor's cache still.
const UNIT: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_waits_for_what_was_lost_keeps_no_room_for_what_came() {
        let (content, packet) = (vec![7; 300_000], 8916);
        let mut hashed = Hashed::new(content.len() as u64);
        for (index, bytes) in content.chunks(packet).enumerate().filter(|(index, _)| *index != 3) {
            hashed.add((index * packet) as u64, bytes);
        }
        assert_eq!(hashed.waiting.capacity(), 0);
        assert_eq!(hashed.digest(), None);
        hashed.add(3 * packet as u64, &content[3 * packet..4 * packet]);
        assert_eq!(hashed.digest(), Some(farlink_flow::digest::whole(&content)));
    }
}
