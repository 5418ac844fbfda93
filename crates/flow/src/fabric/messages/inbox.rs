//! What comes from one peer.

use farlink_wire::fabric::frame::{FrameError, cost};

/// What comes from one peer.
#[derive(Debug)]
pub(super) struct Inbox {
    /// The message that has begun and not ended.
    pub(super) arriving: Option<Arriving>,
    /// What it sent unasked and is no longer remembered, since the beginning.
    pub(super) consumed: u64,
    /// What all messages cost that it sent or offered.
    pub(super) said: u64,
    /// What those cost that it sent unasked.
    spent: u64,
    /// What it knows that it may send, since the beginning.
    granted: u64,
    /// What of that is lent by the pool.
    pub(super) lent: u64,
}

/// A message that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    pub(super) to: To,
    pub(super) got: u64,
    pub(super) len: u64,
}

/// Where its bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// To a receive.
    Landing(u32),
    /// To the messages that wait.
    Waiting(u64),
    /// It was discarded.
    Nowhere,
}

impl Inbox {
    /// Of a peer that may send so much before it is told anything.
    pub(super) const fn new(first: u64) -> Self {
        Self { arriving: None, consumed: 0, said: 0, spent: 0, granted: first, lent: 0 }
    }

    /// A message of it comes, or could.
    pub(super) const fn on_said(&mut self, cost: u64) {
        self.said = self.said.saturating_add(cost);
    }

    /// A message of it comes unasked.
    ///
    /// # Errors
    /// Another has not ended, or it may not send so much.
    pub(super) fn on_unasked(&mut self, cost: u64) -> Result<(), FrameError> {
        if self.arriving.is_some() {
            return Err(FrameError::Nested);
        }
        self.spent = self.spent.saturating_add(cost);
        // It may take the job for smaller, and a first credit for larger, as one that was there before others were spawned.
        if self.spent > self.granted.max(FIRST_CREDIT) {
            return Err(FrameError::Uncredited);
        }
        self.on_said(cost);
        Ok(())
    }

    /// What it may have sent that is still remembered, or may send.
    pub(super) const fn outstanding(&self) -> u64 {
        self.granted.saturating_sub(self.consumed)
    }

    /// It sends nothing more: so much of what it sent is still remembered.
    pub(super) const fn end(&mut self, remembered: u64) {
        self.granted = self.consumed + remembered;
    }

    /// The rest of the message that arrives goes elsewhere from now on.
    pub(super) const fn arriving_goes(&mut self, to: To) {
        if let Some(arriving) = self.arriving.as_mut() {
            arriving.to = to;
        }
    }

    /// What it is to be told that it may send with such a window, where that is a quarter of it more than it knows.
    pub(super) const fn grant(&mut self, window: u64) -> Option<u64> {
        let until = self.consumed + window;
        if until < self.granted + window / 4 {
            return None;
        }
        self.granted = until;
        Some(until)
    }
}

/// What a peer may send before it was told anything, in jobs of up to 64 processes: two messages of 1 MiB, since the answer to the first of
/// an exchange comes when the second has begun.
pub(super) const FIRST_CREDIT: u64 = 2 * cost(1 << 20);
