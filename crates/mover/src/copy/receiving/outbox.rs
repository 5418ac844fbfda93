//! What a receiver has to say to the sender.

use farlink_wire::entry::Digest;
use farlink_wire::message::MAX_ENTRIES;
use farlink_wire::message::copy::{Copy, MOST_REJECTIONS, Rejection, Unit};

/// What is to be said, one list a kind.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) acknowledged: Vec<Unit>,
    pub(super) damaged: Vec<Unit>,
    pub(super) stored: Vec<(u32, Option<Digest>)>,
    pub(super) rejected: Vec<Rejection>,
    other: Vec<Copy>,
    /// How many things those are, a block or a run of them for one.
    others: usize,
}

impl Outbox {
    /// Has `message` said, which is of no list.
    pub(super) fn say(&mut self, message: Copy) {
        self.others += match &message {
            Copy::Proven { blocks, .. } => 1 + blocks.len(),
            Copy::Wanted { runs, .. } | Copy::Newer { runs, .. } => 1 + runs.len(),
            _ => 1,
        };
        self.other.push(message);
    }

    /// Whether more is to wait until some of it was taken: each takes up to a few hundred bytes.
    pub(super) const fn is_full(&self) -> bool {
        let Self { acknowledged, damaged, stored, rejected, others, .. } = self;
        acknowledged.len() + damaged.len() + stored.len() + rejected.len() + *others > MOST
    }

    /// Whether some of it is not to wait for more. What was received and stored may: nobody waits for that, until it is much.
    pub(super) const fn is_urgent(&self) -> bool {
        let Self { acknowledged, damaged, stored, rejected, other, .. } = self;
        !damaged.is_empty()
            || !rejected.is_empty()
            || !other.is_empty()
            || acknowledged.len() + stored.len() >= MUCH
    }

    /// As messages, in an order that holds: what was refused before what is acknowledged.
    pub(super) fn into_messages(self) -> Vec<Copy> {
        let Self { acknowledged, damaged, stored, rejected, other, .. } = self;
        let mut messages = Vec::new();
        messages.extend(rejected.chunks(MOST_REJECTIONS).map(|some| Copy::Rejected(some.to_vec())));
        messages.extend(acknowledged.chunks(MAX_ENTRIES).map(|some| Copy::Acknowledged(some.to_vec())));
        messages.extend(damaged.chunks(MAX_ENTRIES).map(|some| Copy::Damaged(some.to_vec())));
        messages.extend(stored.chunks(MAX_ENTRIES).map(|some| Copy::Stored(some.to_vec())));
        messages.extend(other);
        messages
    }
}

/// Things that are said without waiting for more: some 50 ms of blocks at 10 Gb/s, and a quarter of the files that a sender has open.
const MUCH: usize = 64;

/// Things that may wait to be said before connections wait, too.
const MOST: usize = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_waits_for_may_wait_until_it_is_much() {
        let blocks = |count| (0..count).map(|index| Unit::Block(0, index)).collect::<Vec<_>>();
        let stored = |count| (0..count).map(|file| (file, None)).collect::<Vec<_>>();
        let urgent = |acknowledged, stored| Outbox { acknowledged, stored, ..Outbox::default() }.is_urgent();
        assert!(!urgent(Vec::new(), Vec::new()) && !urgent(blocks(31), stored(32)));
        assert!(urgent(blocks(32), stored(32)));
        let damaged = Outbox { damaged: blocks(1), ..Outbox::default() };
        let mut said = Outbox { acknowledged: blocks(1), ..Outbox::default() };
        assert!(damaged.is_urgent() && !said.is_urgent());
        said.say(Copy::Lost(1));
        assert!(said.is_urgent());
    }
}
