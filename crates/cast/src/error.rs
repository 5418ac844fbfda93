//! Why a session, or a receiver's part in it, could not be.

use std::io;
use std::net::{IpAddr, SocketAddr};

use farlink_flow::cast::parity::ParityError;
use farlink_mover::copy::target::TargetError;
use farlink_mover::secure::CredentialsError;
use farlink_mover::server::PlaceError;
use farlink_wire::cast::control::ControlError;
use farlink_wire::key::PublicKey;
use farlink_wire::message::GreetingError;
use farlink_wire::quantity::{Fraction, Nanos};
use farlink_wire::refusal::{Cause, Refusal};

use crate::group::Group;

/// Why it could not be.
#[derive(Debug, thiserror::Error)]
pub enum CastError {
    /// No interface of that name.
    #[error("this host has no interface {name:?}")]
    Interface {
        /// As given.
        name: String,
        /// The kernel's own words.
        source: io::Error,
    },
    /// An interface by which nothing leaves or comes.
    #[error("the interface {interface} is down: ip link set {interface} up, or name another")]
    Down {
        /// Which.
        interface: String,
    },
    /// An interface whose packets have no address to come from.
    #[error(
        "the interface {interface} has no IPv{version} address: give it one, or name another with --interface"
    )]
    Unaddressed {
        /// Which.
        interface: String,
        /// Of IP.
        version: u8,
    },
    /// The group cannot be reached.
    #[error("no route leads to the group {group}: name an interface, as in --interface eth0")]
    NoRoute {
        /// Which.
        group: Group,
    },
    /// A group whose packets leave no link, and nobody said which.
    #[error(
        "the group {group} is of one link alone: name the interface, as in --interface eth0, or take one of ff15::/16"
    )]
    OneLink {
        /// Which.
        group: Group,
    },
    /// The group's socket.
    #[error("{attempt} the group {group}")]
    Socket {
        /// What was tried.
        attempt: &'static str,
        /// With which.
        group: Group,
        /// The kernel's own words.
        source: io::Error,
    },
    /// The port of the control connections is taken.
    #[error(
        "listen on {address}: another session, or another program, has the port: choose another group or port"
    )]
    Taken {
        /// Where.
        address: SocketAddr,
    },
    /// The control connections' socket.
    #[error("listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The kernel's own words.
        source: io::Error,
    },
    /// Others reach this host, and there are no keys.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Another session sends to the group.
    #[error("the group {group} is in use by a session of {by}: choose another group or port")]
    InUse {
        /// Which.
        group: Group,
        /// By whom.
        by: IpAddr,
    },
    /// Another receiver of this host writes where this one is to.
    #[error(
        "another receiver of the group {group} on this host writes to {directory}: end it, or name another directory"
    )]
    Occupied {
        /// Of which group.
        group: Group,
        /// Which.
        directory: String,
    },
    /// An MTU that no packet of ours fits in.
    #[error(
        "the interface to the group carries packets of {mtu} bytes, and no packet of a session is as short"
    )]
    Mtu {
        /// Its MTU.
        mtu: u32,
    },
    /// Nothing to send.
    #[error("nothing to send: {reason}")]
    Nothing {
        /// Why.
        reason: String,
    },
    /// A directory that is to be watched.
    #[error("watch the directory {directory}: {reason}")]
    Watch {
        /// Which.
        directory: String,
        /// Why not.
        reason: String,
    },
    /// Parity that no code has.
    #[error("{share} of parity: {source}")]
    Parity {
        /// As asked.
        share: Fraction,
        /// Why not.
        source: ParityError,
    },
    /// The root directory.
    #[error("open /")]
    Root(#[source] io::Error),
    /// Where products go.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Keys.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// A key is no good.
    #[error("use the key")]
    Key(#[source] io::Error),
    /// The sender does not let this key in.
    #[error("{at} does not let in the key {key}: its user adds it to authorized_keys")]
    NotAdmitted {
        /// Where.
        at: SocketAddr,
        /// Ours.
        key: PublicKey,
    },
    /// The sender is of another release.
    #[error("join the session of {at}")]
    Version {
        /// Where.
        at: SocketAddr,
        /// What it speaks.
        source: GreetingError,
    },
    /// The sender refused.
    #[error("{at} refuses: {refusal}")]
    Refused {
        /// Where.
        at: SocketAddr,
        /// Why.
        refusal: Refusal,
    },
    /// A name that leads nowhere.
    #[error("find host {host:?}")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's own words.
        source: io::Error,
    },
    /// The sender cannot be reached.
    #[error("connect to {at}")]
    Connect {
        /// Where.
        at: SocketAddr,
        /// The kernel's own words.
        source: io::Error,
    },
    /// The connection broke.
    #[error("talk with {at}")]
    Talk {
        /// Where.
        at: SocketAddr,
        /// The network's own words.
        source: io::Error,
    },
    /// The sender said what no sender says.
    #[error("{at} does not keep to the protocol")]
    Protocol {
        /// Where.
        at: SocketAddr,
        /// What it said.
        source: ControlError,
    },
    /// The sender has gone.
    #[error("the sender at {at} went away, and was not there again within {after}")]
    Gone {
        /// Where.
        at: SocketAddr,
        /// How long it was waited for.
        after: Nanos,
    },
    /// The sender says that nothing more comes.
    #[error("the sender at {at} broke its session off: {reason}")]
    BrokenOff {
        /// Where.
        at: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// The directory that products go to is not where it was.
    #[error("{directory} was moved away, or another directory is in its place: start the receiver again")]
    Moved {
        /// Its path.
        directory: String,
    },
    /// Nobody came that the session was for.
    #[error("no receiver of the group {group} came within {after}: start receivers, or wait longer (--wait)")]
    Nobody {
        /// Which.
        group: Group,
        /// How long they were waited for.
        after: Nanos,
    },
    /// There is nothing to take part in.
    #[error(
        "no session of the group {group} could be joined within {after}: {}",
        .refused.as_deref().unwrap_or("start its sender, or wait longer (--wait)")
    )]
    NoSession {
        /// Which.
        group: Group,
        /// How long it was waited for.
        after: Nanos,
        /// Why the sender that was there was not joined.
        refused: Option<String>,
    },
    /// Its sender was started again, and sends another session.
    #[error("the sender at {at} began another session while {missing} of the products of this one {} not stored", if *missing == 1 { "was" } else { "were" })]
    Superseded {
        /// Where.
        at: SocketAddr,
        /// Products that it has, as far as they are known, and this end has not.
        missing: u32,
    },
    /// Nothing came from the sender for too long.
    #[error("nothing came from {at} for {quiet}")]
    Silent {
        /// Where.
        at: SocketAddr,
        /// For how long.
        quiet: Nanos,
    },
    /// The kernel's own words.
    #[error("wait for packets and connections")]
    Wait(#[source] io::Error),
    /// A session has had all the products that it may.
    #[error("the session has sent {products} products: begin another")]
    Exhausted {
        /// How many.
        products: u32,
    },
    /// The session's packets cannot be sealed.
    #[error("seal packets: {reason}")]
    Seal {
        /// Why.
        reason: String,
    },
}

impl CastError {
    /// Whether it may go better when it is tried again: the connection or the far end failed.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Talk { .. }
            | Self::Gone { .. }
            | Self::BrokenOff { .. }
            | Self::Silent { .. } => true,
            Self::Refused { refusal, .. } => refusal.cause == Cause::Passing,
            _ => false,
        }
    }
}
