//! What peers may have sent unasked and is not wanted yet: bounded for all of them together.
//!
//! Every peer may send so much before it was told anything, whether it ever does or not: half of the pool, in equal parts. The other half is
//! lent to those that send, the more the more they do, and each time no more than half of what is left: so there is something for another
//! always. What was lent cannot be called back: it returns as the peer spends it.

use super::inbox::{FIRST_CREDIT, Inbox};

/// What is lent to peers, and may be.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    first: u64,
    spare: u64,
    lent: u64,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new(POOL, None)
    }
}

impl Pool {
    /// That of a job of so many processes. Where that is not known each has a first credit all the same, and there is no bound but theirs.
    #[must_use]
    pub fn of_job(processes: Option<u64>) -> Self {
        Self::new(POOL, processes)
    }

    /// One of so many bytes.
    pub(super) fn new(bytes: u64, processes: Option<u64>) -> Self {
        let part = bytes / 2 / processes.unwrap_or(1).max(1);
        Self { first: part.min(FIRST_CREDIT), spare: bytes / 2, lent: 0 }
    }

    /// What a peer may send before it is told anything: both ends of a job take it to be the same.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// Takes note of what a peer has spent.
    pub(super) fn settle(&mut self, inbox: &mut Inbox) {
        let held = inbox.outstanding().saturating_sub(self.first);
        self.lent = self.lent - inbox.lent + held;
        inbox.lent = held;
    }

    /// What a peer is to be told that it may send since the beginning, where that is a quarter of a window more than it knows.
    pub(super) fn grant(&mut self, inbox: &mut Inbox) -> Option<u64> {
        self.settle(inbox);
        // A peer that has said more than it may, and ended, may have taken more than there is.
        let left = self.spare.saturating_sub(self.lent - inbox.lent);
        let more =
            (left / 2).min(inbox.said.saturating_mul(GROWTH)).min(MOST_WINDOW.saturating_sub(self.first));
        let granted = inbox.grant(self.first + more);
        self.settle(inbox);
        granted
    }
}

/// Bytes of messages that may wait unwanted, of all peers together.
const POOL: u64 = 256 << 20;

/// Of one peer, at most: what is under way on 10 Gb/s in 50 ms. No longer message ever goes at once.
pub const MOST_WINDOW: u64 = 64 << 20;

/// For each byte that a peer sent it may send so many more: a few messages like the first are enough for a window.
const GROWTH: u64 = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_peers_together_never_have_more_than_the_pool(
            processes in 1_u64..200,
            events in proptest::collection::vec((0_usize..200, 0_u64..8 << 20, 0.0_f64..1.0), 1..400),
        ) {
            let mut pool = Pool::of_job(Some(processes + 1));
            let mut inboxes: Vec<Inbox> = (0..processes).map(|_| Inbox::new(pool.first())).collect();
            let count = inboxes.len();
            for (peer, bytes, wanted) in events {
                let inbox = &mut inboxes[peer % count];
                inbox.on_said(bytes);
                // Some of what it may send comes, and is wanted.
                inbox.consumed += (inbox.outstanding().min(bytes) as f64 * wanted) as u64;
                let before = inbox.outstanding();
                if pool.grant(inbox).is_some() {
                    prop_assert!(inbox.outstanding() > before && inbox.outstanding() <= MOST_WINDOW);
                }
                prop_assert!(inboxes.iter().map(Inbox::outstanding).sum::<u64>() <= POOL);
            }
        }
    }

    #[test]
    fn who_sends_much_has_a_window_and_others_have_something() {
        let mut pool = Pool::default();
        let mut windows = Vec::new();
        for said in [1 << 30, 1 << 30, 8, 1 << 30] {
            let mut inbox = Inbox::new(pool.first());
            (inbox.said, inbox.consumed) = (said, said.min(1 << 20));
            pool.grant(&mut inbox);
            windows.push(inbox.outstanding() >> 20);
        }
        assert_eq!((windows[0], windows[2]), (MOST_WINDOW >> 20, 2));
        assert!(windows[1] > 30 && windows[3] > 15, "{windows:?}");
        // Of many each has a small part.
        assert_eq!(Pool::of_job(Some(1024)).first(), POOL / 2048);
    }
}
