//! What comes from one peer.

use super::outbox::FIRST_CREDIT;

/// What comes from one peer.
#[derive(Debug)]
pub(super) struct Inbox {
    /// The message that has begun and not ended.
    pub(super) arriving: Option<Arriving>,
    /// What it sent unasked and is no longer remembered, since the beginning.
    pub(super) consumed: u64,
    /// What it knows that it may send, since the beginning.
    granted: u64,
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

impl Default for Inbox {
    fn default() -> Self {
        Self { arriving: None, consumed: 0, granted: FIRST_CREDIT }
    }
}

impl Inbox {
    /// The rest of the message that arrives goes elsewhere from now on.
    pub(super) const fn arriving_goes(&mut self, to: To) {
        if let Some(arriving) = self.arriving.as_mut() {
            arriving.to = to;
        }
    }

    /// What the peer is to be told that it may send, where that is a quarter of a window more than it knows.
    pub(super) const fn grant(&mut self, window: u64) -> Option<u64> {
        let until = self.consumed + window;
        if until < self.granted + window / 4 {
            return None;
        }
        self.granted = until;
        Some(until)
    }
}
