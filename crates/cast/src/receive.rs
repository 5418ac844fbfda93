//! A receiver: what somebody wants of it, what it tells, and what came of it.

use std::net::SocketAddr;

use farlink_flow::cast::receiver::Tally;
use farlink_host::scheduling::Scheduling;
use farlink_mover::secure::Credentials;
use farlink_wire::cast::control::Report;
use farlink_wire::quantity::Nanos;
use farlink_wire::record::Record;

use crate::error::CastError;
use crate::group::Group;

mod attendance;
mod hearing;
mod left_open;
mod newest;
mod recent;
mod reception;
mod record;
mod samples;
mod strangers;
mod unfinished;

pub use reception::run;

/// A receiver as somebody wants it.
#[derive(Debug)]
pub struct Plan {
    /// Of which group.
    pub group: Group,
    /// On which interface; by the routes where absent.
    pub interface: Option<String>,
    /// The directory that products go to, an absolute path; their digests are compared, and nothing is kept, where that is absent.
    pub into: Option<Vec<u8>>,
    /// The host of the sender; the one that its packets come from where that is absent.
    pub from: Option<String>,
    /// Whether it ends with the session.
    pub once: bool,
    /// Of a session that goes on already it wants what was sent first no longer ago than that; everything where absent.
    pub since: Option<Nanos>,
    /// How long the first session is waited for.
    pub wait: Option<Nanos>,
    /// Keys; none is shown, and nobody's is asked for, where that is absent.
    pub credentials: Option<Credentials>,
    /// Receive buffer, bytes; one that holds what comes in a tenth of a second where absent.
    pub buffer: Option<u32>,
    /// Whether the thread that receives goes before ordinary ones.
    pub realtime: bool,
    /// How long the sender may be silent or away.
    pub patience: Nanos,
}

impl Plan {
    /// Nothing was heard of the group for so long, though it takes part in the session of that `sender`.
    fn unheard(&self, quiet: Nanos, sender: Option<SocketAddr>) -> Notice<'_> {
        Notice::Unheard { group: self.group, interface: self.interface.as_deref(), quiet, sender }
    }
}

/// What a receiver tells while it goes on.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The group was joined, with this receive buffer, and with the scheduling that the thread was granted.
    Ready {
        /// Bytes that were asked for.
        asked: u32,
        /// Bytes that were granted.
        granted: u64,
        /// The scheduling, where another than the ordinary was asked for.
        scheduling: Option<Scheduling>,
    },
    /// What comes wants a larger receive buffer than there was.
    Grown {
        /// Bytes that were asked for.
        asked: u32,
        /// Bytes that were granted.
        granted: u64,
    },
    /// The sender cannot be reached, for this reason: that is tried again. Each reason is told once.
    Waiting {
        /// Why.
        reason: String,
    },
    /// Nothing was heard of the group for long: it may not reach the interface.
    Unheard {
        /// Which group.
        group: Group,
        /// The interface that was named.
        interface: Option<&'a str>,
        /// For how long.
        quiet: Nanos,
        /// Whose session it takes part in: then everything comes over the connection to that sender.
        sender: Option<SocketAddr>,
    },
    /// It takes part in a session.
    Joined {
        /// Of the sender there.
        at: SocketAddr,
        /// Whether it was part of it before.
        again: bool,
        /// Products that were sent before those that it wants.
        skipped: u32,
    },
    /// The connection to the sender was lost.
    Lost {
        /// Which.
        at: SocketAddr,
        /// Why.
        reason: String,
    },
    /// A product is stored.
    Stored {
        /// Its name.
        path: String,
        /// Bytes of its content.
        bytes: u64,
        /// Whether all of it stood there already.
        stood: bool,
        /// What the file system does not keep of it, and why.
        lacks: Option<String>,
    },
    /// A product is not stored.
    NotStored {
        /// Its name, where it is known.
        path: String,
        /// Why.
        reason: String,
    },
    /// How it goes, a few times a second.
    Progress(&'a Progress),
    /// A session has ended, and what came of it. With [`Plan::once`] it is told by [`Finished`].
    Ended(Box<Finished>),
}

/// How it goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// What came.
    pub tally: Tally,
    /// How it fares.
    pub report: Report,
    /// The least round trip to the sender; zero before the first was measured.
    pub rtt: Nanos,
    /// Bytes that it lacks of what the sender has sent, as far as it knows.
    pub behind: u64,
    /// Products of the session, once they are known.
    pub products: Option<u32>,
    /// Bytes of the content of products that are stored.
    pub stored_bytes: u64,
    /// Of these, those that did not stand there from an earlier attempt.
    pub came_bytes: u64,
    /// Seconds since it joined.
    pub seconds: f64,
}

/// What came of a session. There is a record of whatever was measured, also where it failed.
#[derive(Debug, Default)]
pub struct Finished {
    /// Its record.
    pub record: Record,
    /// How it stood at the end.
    pub progress: Progress,
    /// Whether something is missing of a session that was over before, as its sender was started again.
    pub lacks: bool,
    /// Whether it was ended by the user.
    pub interrupted: bool,
    /// Why it failed as a whole, where it did.
    pub error: Option<CastError>,
}

/// How long nothing may be heard of the group until the user is told: a sender that has nothing to send is heard each second.
const UNHEARD: Nanos = Nanos(5_000_000_000);
