//! What the application posts: a message, or a wish for one.

use farlink_flow::fabric::operation::{Kind, Wanted};

use crate::bindings as fi;
use crate::bindings::fi_addr_t;
use crate::memory::Parts;
use crate::object::Context;

/// A message to send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) to: fi_addr_t,
    pub(crate) kind: Kind,
    pub(crate) data: Option<u64>,
    pub(crate) parts: Parts,
    pub(crate) context: Context,
    pub(crate) notice: Notice,
    /// Whether the memory is the application's again when the call returns.
    pub(crate) copied: bool,
}

/// A message that is wanted.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Whose: anybody's, where the application says so or did not ask for directed receives.
    pub(crate) from: Option<fi_addr_t>,
    pub(crate) wanted: Wanted,
    pub(crate) parts: Parts,
    pub(crate) context: Context,
    pub(crate) notice: Notice,
    /// Whether the memory takes message after message.
    pub(crate) several: bool,
}

/// Whether the application is to hear of a success. It hears of every failure but those of operations without a context of which it is not to
/// hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Where the queue tells of everything, or the flags of the operation ask for it.
    Flags(u64),
    /// Not even where the queue tells of everything.
    Never,
}

impl Notice {
    /// Whether it is told, by a queue that tells of what asks for it alone where `selective`.
    pub(crate) const fn told(self, selective: bool) -> bool {
        match self {
            Self::Flags(flags) => !selective || flags & fi::FI_COMPLETION != 0,
            Self::Never => false,
        }
    }

    /// Whether a send is over only when the peer has it: it may have been delivered to its memory, or be kept there until it is wanted.
    pub(crate) const fn of_peer(self) -> bool {
        match self {
            Self::Flags(flags) => flags & (fi::FI_TRANSMIT_COMPLETE | fi::FI_DELIVERY_COMPLETE) != 0,
            Self::Never => false,
        }
    }
}

/// A question about messages that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) from: Option<fi_addr_t>,
    pub(crate) wanted: Wanted,
    pub(crate) context: Context,
    pub(crate) then: Then,
}

/// What becomes of the message that is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It waits on.
    Leave,
    /// It waits for who knows the context.
    Claim,
    /// It is dropped.
    Discard,
}

/// What a completion says that an operation was.
pub(crate) const fn flags_of(kind: Kind, sends: bool) -> u64 {
    let matched = match kind {
        Kind::Tagged(_) => fi::FI_TAGGED,
        Kind::Untagged => fi::FI_MSG,
    };
    matched | if sends { fi::FI_SEND } else { fi::FI_RECV }
}

/// As [`flags_of`], of a receive.
pub(crate) const fn flags_of_wanted(wanted: Wanted) -> u64 {
    match wanted {
        Wanted::Tagged { tag, .. } => flags_of(Kind::Tagged(tag), false),
        Wanted::Untagged => flags_of(Kind::Untagged, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_chooses_is_told_of_what_it_chose() {
        let (chosen, plain) = (Notice::Flags(fi::FI_COMPLETION), Notice::Flags(0));
        assert!(chosen.told(true) && chosen.told(false) && plain.told(false));
        assert!(!plain.told(true) && !Notice::Never.told(false));
    }

    #[test]
    fn a_send_is_over_when_its_flags_say() {
        let of_peer = |flags| Notice::Flags(flags | fi::FI_COMPLETION).of_peer();
        assert!(of_peer(fi::FI_DELIVERY_COMPLETE) && of_peer(fi::FI_TRANSMIT_COMPLETE));
        assert!(!of_peer(0) && !of_peer(fi::FI_INJECT_COMPLETE) && !Notice::Never.of_peer());
    }
}
