//! What is said once a session, as JSON.

use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::MOST_BLOCK;
use crate::cast::{Payload, Position, SessionId};
use crate::message::copy::{Protect, Secret};
use crate::message::{Host, Text, VERSION};
use crate::quantity::Nanos;
use crate::refusal::Refusal;

/// What is said once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Words {
    /// Receiver: it wants to join.
    Join(Box<Join>),
    /// Sender: it may.
    Welcome(Box<Welcome>),
    /// Sender: why it may not, or may stay no longer.
    Refuse(Refusal),
    /// Sender: from now on, least time between two frames with NACKs, or two with acknowledgements.
    Pace(Nanos),
    /// Sender: there are so many products, and no more.
    End {
        /// Products, from 0.
        products: u32,
    },
    /// Sender: nothing more comes of the session, and why. Products of it may be missing.
    BreakOff(Text),
    /// Receiver: it leaves.
    Leave(Leave),
}

/// A receiver's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The version of this protocol that it speaks, which is to be [ours](VERSION); 0 where it did not say so yet.
    #[serde(default)]
    pub version: u16,
    /// What the host is.
    pub host: Host,
    /// Random: the same over all connections of a receiver. A host may have several receivers.
    pub receiver: u64,
    /// Of its directory: the same when it is started again for that. Absent where it keeps nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u64>,
    /// The session that it was in before its connection broke; it has products of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<SessionId>,
    /// The group that it listens to, which one of another sender's port may not be: it would never hear a packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<SocketAddr>,
    /// The session that it had to its end: it wants another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<SessionId>,
    /// It wants what was sent first no longer ago than that, and nothing that was sent before; everything where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Nanos>,
    /// What it wanted of the session that it was in last: of that one it wants the same still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Wanted>,
}

impl Join {
    /// The first request of a receiver that keeps nothing, and wants everything of any session.
    #[must_use]
    pub const fn new(host: Host, receiver: u64) -> Self {
        Self {
            version: VERSION,
            host,
            receiver,
            place: None,
            again: None,
            group: None,
            ended: None,
            since: None,
            wanted: None,
        }
    }
}

/// What a receiver wants of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Which.
    pub session: SessionId,
    /// The first product of it.
    pub first: u32,
}

/// A sender's consent: all that a receiver must know to take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version of this protocol that it speaks, as in [`Join`].
    #[serde(default)]
    pub version: u16,
    /// What the host is.
    pub host: Host,
    /// The session.
    pub session: SessionId,
    /// Of its packets.
    pub key: Secret,
    /// How its packets are protected: never [`Protect::Clear`].
    pub protect: Protect,
    /// Of a full packet.
    pub payload: Payload,
    /// Packets of a block of parity; 0 where there is none.
    pub block: BlockPackets,
    /// The number of its next packet: none before it is awaited.
    pub number: u64,
    /// The first product that this receiver wants, of which those before `first` are forgotten.
    #[serde(default)]
    pub wanted: u32,
    /// The first product that this receiver may have: none that it does not want.
    pub first: u32,
    /// Where the sender is.
    pub position: Position,
    /// Least time between two frames with NACKs, or two with acknowledgements.
    pub pace: Nanos,
}

/// Packets of a block of parity: 0, where there is no parity, to [`MOST_BLOCK`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct BlockPackets(u16);

impl BlockPackets {
    /// How many.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for BlockPackets {
    type Error = &'static str;

    fn try_from(packets: u16) -> Result<Self, Self::Error> {
        if packets > MOST_BLOCK {
            return Err("a block of parity has at most 1024 packets");
        }
        Ok(Self(packets))
    }
}

impl From<BlockPackets> for u16 {
    fn from(block: BlockPackets) -> Self {
        block.0
    }
}

/// A receiver's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// Products stored.
    pub products: u32,
    /// Products that it could not store, or that were lost.
    pub failed: u32,
    /// Of those stored, products that came over the control connection, at least in part, after they were gone.
    pub caught_up: u32,
    /// Bytes of their content.
    pub bytes: u64,
    /// CPU time of the process since it joined.
    pub cpu: Nanos,
}
