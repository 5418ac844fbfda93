//! Which end of a transfer this is, and what it does with the payload.

use farlink_host::socket;
use farlink_wire::message::Way;

/// What an end does with the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
}

impl Role {
    /// The buffer that matters in this role.
    pub(crate) const fn buffer(self) -> socket::Buffer {
        match self {
            Self::Sender => socket::Buffer::Send,
            Self::Receiver => socket::Buffer::Receive,
        }
    }
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Near {
    /// The one that asked. It knows the start, and keeps the account.
    Client,
    /// The one that was asked. It reports.
    Server,
}

impl Near {
    /// Whether this end sends the payload.
    pub(crate) fn sends(self, way: Way) -> bool {
        (self == Self::Client) == (way == Way::Forward)
    }

    /// What this end does with the payload.
    pub(crate) fn role(self, way: Way) -> Role {
        if self.sends(way) { Role::Sender } else { Role::Receiver }
    }
}
