//! What a process asks of its endpoint, and what it is told.

use core::net::SocketAddr;

/// An endpoint of the job: a random number that no two have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub u64);

/// A host: the same for processes that share a network namespace of one kernel, and for no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub u64);

/// Who an endpoint is, as processes tell each other when they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub endpoint: EndpointId,
    /// Where it runs.
    pub host: HostId,
    /// Where its datagrams go.
    pub address: SocketAddr,
}

/// A peer, as an endpoint numbers them: from 0, in the order in which it heard of them. Itself is one, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

/// What the driver knows an operation by: it comes back with the completion, and means nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation(pub u64);

/// Memory of the program, as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region(pub u64);

/// The memory of the program. Regions stay until the operation that they were given with has completed.
pub trait Memory {
    /// Copies `into.len()` bytes of a region, from `offset` on.
    fn read(&self, region: Region, offset: usize, into: &mut [u8]);
    /// Copies bytes to a region, from `offset` on.
    fn write(&mut self, region: Region, offset: usize, bytes: &[u8]);
    /// Where an endpoint is, as the program was told; where a datagram came from may be forged.
    fn identity(&self, _endpoint: EndpointId) -> Option<Identity> {
        None
    }
}

/// What a message is matched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By its tag.
    Tagged(u64),
    /// By its order alone.
    Untagged,
}

/// Which messages a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Those whose tag agrees with `tag` in every bit that is not set in `ignore`.
    Tagged {
        /// The tag.
        tag: u64,
        /// Bits that may differ.
        ignore: u64,
    },
    /// Those without a tag.
    Untagged,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// To whom.
    pub to: PeerId,
    /// What it is matched by.
    pub kind: Kind,
    /// The number that comes with it.
    pub data: Option<u64>,
    /// What it says.
    pub region: Region,
    /// Bytes.
    pub len: usize,
    /// What completes, and until when the region is lent.
    pub ends: Ends,
}

/// How a send ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Nothing completes, and the region may be used again as soon as [`send`](super::endpoint::Endpoint::send) returns: the message is
    /// refused with [`Refused::Full`] rather than kept where it lies.
    Untold,
    /// The operation completes when the region may be used again.
    Said(Operation),
    /// The operation completes when the peer has taken the message, be that for a receive or to keep it until there is one.
    Taken {
        /// Which.
        operation: Operation,
        /// Whether the region may be used again before, as with [`Self::Untold`].
        copied: bool,
    },
}

/// A message that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    /// Of one peer alone.
    pub from: Option<PeerId>,
    /// Which messages.
    pub wanted: Wanted,
    /// Where it goes.
    pub region: Region,
    /// Bytes there.
    pub len: usize,
    /// What completes.
    pub operation: Operation,
    /// The region takes message after message, each behind the last, until fewer than so many bytes are left: then the last completion
    /// says [`Received::last`].
    pub multi: Option<usize>,
}

/// What is known of a message that waits for a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Who sent it.
    pub from: PeerId,
    /// Its tag, or 0.
    pub tag: u64,
    /// The number that came with it.
    pub data: Option<u64>,
    /// Bytes.
    pub len: usize,
    /// What [`receive_claimed`](super::endpoint::Endpoint::receive_claimed) knows it by.
    pub claim: Claim,
}

/// A message that was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim(pub u64);

/// An operation's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A send ended as [`Ends`] says: the region may be used again.
    Sent {
        /// Which.
        operation: Operation,
        /// Whose message it was.
        to: PeerId,
    },
    /// A message is there, whole.
    Received(Received),
    /// It never will be done.
    Failed {
        /// Which.
        operation: Operation,
        /// Whose message it is, where that is known.
        peer: Option<PeerId>,
        /// Why.
        why: Failure,
        /// Whether it was to send.
        sending: bool,
    },
}

/// A message that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Which operation.
    pub operation: Operation,
    /// Who sent it.
    pub from: PeerId,
    /// Its tag, or 0; nothing for a message without one.
    pub tag: Option<u64>,
    /// The number that came with it.
    pub data: Option<u64>,
    /// Where in the region it begins: not 0 with [`Receive::multi`] alone.
    pub offset: usize,
    /// Bytes of the message.
    pub len: usize,
    /// Bytes of it that found no room.
    pub cut: usize,
    /// Whether the region is the program's again: always, but with [`Receive::multi`].
    pub last: bool,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It was taken back.
    #[error("cancelled")]
    Cancelled,
    /// The peer has said nothing for too long.
    #[error("the peer has said nothing for too long")]
    Silent,
    /// The peer's process ended, or has given this one up.
    #[error("the peer's process ended, or could not reach this one for too long")]
    Ended,
    /// What the peer said came with something missing: a defect, its or of who handed it on.
    #[error("a part of what the peer said was lost on this host: have the same Farlink in all processes")]
    Lost,
    /// No datagram was ever answered, and such as cannot be opened came from where the peer is.
    #[error(
        "the peer never answered, and what comes from there is of another job: is FARLINK_JOB_KEY the same on all hosts?"
    )]
    Stranger,
    /// No datagram was ever answered.
    #[error("the peer never answered: is UDP open between the hosts, and is it of this job?")]
    Unreachable,
}

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not now: drive the endpoint, and try again.
    #[error("no room for it now")]
    Full,
    /// Never: it is longer than messages may be.
    #[error("{len} bytes: messages have at most {most}")]
    TooLong {
        /// Bytes.
        len: usize,
        /// Bytes that it may have.
        most: usize,
    },
    /// The peer failed before.
    #[error("{0}")]
    Failed(Failure),
}
