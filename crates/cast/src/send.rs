//! A session of a sender: what somebody wants of it, what it tells, and what came of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use farlink_flow::cast::sender::Totals;
use farlink_host::readiness::Wake;
use farlink_host::scheduling::Scheduling;
use farlink_mover::copy::source::SourcePath;
use farlink_mover::secure::{Admission, Identity};
use farlink_wire::cast::Position;
use farlink_wire::cast::control::{Join, Leave, Report};
use farlink_wire::message::Host;
use farlink_wire::message::copy::Protect;
use farlink_wire::quantity::{BitsPerSec, Fraction, Nanos};
use farlink_wire::record::Record;

use crate::error::CastError;
use crate::group::Group;

pub use crate::products::{NotSent, Piped};
pub use farlink_flow::cast::sender::Hold;

pub(crate) mod grants;
mod record;
pub(crate) mod room;
mod session;
pub(crate) mod sockets;

pub use session::run;

/// A session as somebody wants it.
#[derive(Debug)]
pub struct Plan {
    /// To which group.
    pub group: Group,
    /// Over which interface; by the routes where absent.
    pub interface: Option<String>,
    /// Hops that packets live for.
    pub ttl: u8,
    /// To the group, on the wire, with every header.
    pub rate: Rate,
    /// To single receivers beside that; a small share of it where absent.
    pub repair_rate: Option<BitsPerSec>,
    /// Of the group's packets, how many more are parity; none at 0.
    pub parity: Fraction,
    /// How long products are held for those who lack something of them.
    pub hold: Hold,
    /// How packets are protected, and repairs with them.
    pub protect: Protect,
    /// Nothing is sent before so many receivers are there.
    pub receivers: u32,
    /// But no longer than that are they waited for: then those are enough that are there.
    pub wait: Option<Nanos>,
    /// Sessions of this process, which share its descriptors.
    pub sessions: u32,
    /// Whether the thread that sends goes before ordinary ones.
    pub realtime: bool,
    /// What came through a pipe, which is sent first.
    pub piped: Option<Piped>,
    /// What is sent, beneath the root.
    pub sources: Vec<SourcePath>,
    /// A directory whose files are sent as they appear, an absolute path, until the user ends it.
    pub watch: Option<SourcePath>,
    /// Raised where the user ends it though receivers lack something still, after the end of what is watched.
    pub at_once: Option<Wake>,
    /// Who this is, and whom it lets in; nobody has keys where that is absent.
    pub keys: Option<(Identity, Arc<Admission>)>,
    /// How long a receiver may be silent, and how long one that was lost is waited for.
    pub patience: Nanos,
}

impl Plan {
    /// Whether nothing is sent but what appears in a directory.
    pub(crate) const fn watches_alone(&self) -> bool {
        self.watch.is_some() && self.sources.is_empty() && self.piped.is_none()
    }
}

/// How fast a session sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// As fast as that.
    Fixed(BitsPerSec),
    /// As fast as receivers lose hardly anything, which is found, and no faster than this.
    Found {
        /// How fast at most.
        most: BitsPerSec,
    },
}

/// What a session tells while it goes on.
#[derive(Debug)]
pub enum Notice<'a> {
    /// It is there: where control connections go, and what the thread that sends was granted.
    Ready {
        /// Where receivers come to.
        at: SocketAddr,
        /// The scheduling, where another than the ordinary was asked for.
        scheduling: Option<Scheduling>,
    },
    /// Nothing is sent before so many more receivers are there.
    Waiting {
        /// How many.
        receivers: u32,
    },
    /// They have not come in time: it begins without them.
    Without {
        /// How many.
        receivers: u32,
        /// How long they were waited for.
        after: Nanos,
    },
    /// A receiver has joined.
    Joined(&'a Peer),
    /// A receiver has left, or was lost.
    Left(&'a Peer),
    /// Somebody was not let in.
    Refused {
        /// From where.
        from: SocketAddr,
        /// Why.
        reason: String,
    },
    /// As many receivers are there as there are descriptors for: others are let in when one has left. It is told once.
    Full {
        /// How many.
        receivers: usize,
    },
    /// Somebody sends packets like a session's to the group, and no session was proven to be there: this one goes on.
    Others {
        /// From where they seem to come.
        by: IpAddr,
    },
    /// The first packet of a product leaves.
    Begun {
        /// What.
        path: &'a str,
        /// When, by this host's monotonic clock.
        at: Nanos,
    },
    /// Something that was named is not sent.
    NotSent(NotSent),
    /// A receiver could not store a product.
    NotStored {
        /// Who.
        peer: &'a Peer,
        /// What.
        path: String,
        /// Why.
        reason: String,
    },
    /// Nothing more is looked for: what was begun is brought to its end.
    Ceased,
    /// How it goes, a few times a second.
    Progress(&'a Progress),
}

/// A receiver as the sender knows it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its host.
    pub host: Host,
    /// What tells it from others of its host: random, and of the directory that it writes to.
    pub number: u64,
    /// See `number`.
    pub place: Option<u64>,
    /// Where it is.
    pub at: SocketAddr,
    /// The first product that it wants.
    pub wanted: u32,
    /// Where the first pass was when it joined.
    pub joined: Position,
    /// How it fares, as it said last.
    pub report: Report,
    /// The least round trip that it has said; zero before the first.
    pub rtt: Nanos,
    /// Products that it has.
    pub products: u64,
    /// Products that it will not have.
    pub failed: u64,
    /// Bytes that were sent to it alone.
    pub repaired: u64,
    /// Products that were sent to the group, and that it does not have yet.
    pub behind: u64,
    /// Whether it is there.
    pub is_there: bool,
    /// Its own account, when it has left.
    pub leave: Option<Leave>,
    /// Whether it left before it had everything.
    pub is_short: bool,
}

impl Peer {
    /// Whether it has everything, as far as it is known.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        !self.is_short && self.failed == 0
    }

    /// One that has joined from `at` when the first pass was at `joined`, and wants everything from product `wanted` on.
    pub(crate) fn new(join: Join, at: SocketAddr, wanted: u32, joined: Position) -> Self {
        Self {
            host: join.host,
            number: join.receiver,
            place: join.place,
            at,
            wanted,
            joined,
            report: Report::default(),
            rtt: Nanos::ZERO,
            products: 0,
            failed: 0,
            repaired: 0,
            behind: 0,
            is_there: true,
            leave: None,
            is_short: true,
        }
    }
}

/// Receivers that left so long ago that they are counted alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// All of them.
    pub receivers: u64,
    /// Those that had everything.
    pub whole: u64,
}

/// How it goes.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Every receiver that has joined, by number, but for those that left long ago.
    pub peers: BTreeMap<u32, Peer>,
    /// How many those are.
    pub gone: Gone,
    /// What was sent.
    pub totals: Totals,
    /// Products so far, but for those that could not be sent, or were replaced by others before they were.
    pub products: u32,
    /// Bytes of their content.
    pub bytes: u64,
    /// Of those, products whose turn had not come, or was not over, when it ended, and bytes of their content.
    pub unsent: (u32, u64),
    /// Products that could not be sent.
    pub lost: u32,
    /// Products that others of their name took the place of before they were sent.
    pub replaced: u32,
    /// Whether these are all.
    pub is_all: bool,
    /// The rate to the group.
    pub rate: Option<BitsPerSec>,
    /// Whether that was found; `None` where it was named.
    pub rate_found: Option<bool>,
    /// Seconds since the first packet.
    pub seconds: f64,
}

/// What came of it. There is a record of whatever was measured, also where it failed.
#[derive(Debug)]
pub struct Finished {
    /// Its record.
    pub record: Record,
    /// How it stood at the end.
    pub progress: Progress,
    /// Whether something that was named was not sent.
    pub lacks: bool,
    /// Whether it was ended by the user.
    pub interrupted: bool,
    /// Why it failed as a whole, where it did.
    pub error: Option<CastError>,
}

impl Finished {
    /// Whether every receiver that joined has everything.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let gone = self.progress.gone;
        !self.lacks && self.progress.peers.values().all(Peer::is_whole) && gone.whole == gone.receivers
    }
}
