//! Which context takes what goes to a peer: the object models of four transports of InfiniBand's, one file each.
//!
//! | transport | a sending context leads to | it is opened | it ends |
//! |---|---|---|---|
//! | `rc` | a process | by a full handshake | with the process |
//! | `xrc` | a host: one of its processes receives for all of them | by a full handshake | with that process, or its silence |
//! | `ud` | a process, and is nothing but a window: no connection | by its first datagram | with the process |
//! | [`dc`] | a process, one after another | in band | when another is to be reached |
//!
//! A transport decides and counts; contexts are the endpoint's.

pub mod dc;
mod rc;
mod ud;
mod xrc;

use std::fmt::Debug;

pub use self::rc::Rc;
pub use self::ud::Ud;
pub use self::xrc::Xrc;
use super::operation::{EndpointId, Identity, PeerId};

/// A sending context, by its place among the endpoint's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(pub u32);

/// What to do with something that goes to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Give it to a context.
    Take(ContextId),
    /// Open a context, [say so](Transport::on_opened), and ask again.
    Open {
        /// To whose process.
        to: PeerId,
        /// How.
        handshake: Handshake,
        /// In place of that one, which is drained or whose peer is gone, and ends.
        instead_of: Option<ContextId>,
    },
    /// Keep it. Ask again after something has drained.
    Wait,
    /// As [`Self::Wait`]; and that context, which took what was before it, takes no more for now.
    Yield(ContextId),
}

/// How a context is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Not at all: the first datagram says enough.
    None,
    /// It says that it is there, and sends at once.
    Half,
    /// It says that it is there, and sends when it was answered.
    Full,
}

/// What a transport did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Contexts that were opened.
    pub connects: u64,
    /// Contexts that were closed for another.
    pub disconnects: u64,
    /// Times that something had to wait for a context.
    pub waits: u64,
    /// Initiators that were lent in place of silent ones.
    pub lent: u64,
}

/// One transport.
///
/// The endpoint asks [`route`](Self::route) whenever there is something for a peer, and tells what became of it.
pub trait Transport: Debug + Send {
    /// There is a peer of that identity, or more is known of it.
    fn on_peer(&mut self, _peer: PeerId, _identity: &Identity) {}

    /// Which context takes what goes to `peer`.
    fn route(&mut self, peer: PeerId) -> Routing;

    /// The context that it wanted for `peer` is there.
    fn on_opened(&mut self, context: ContextId, peer: PeerId);

    /// A context took a piece for `peer`.
    fn on_pushed(&mut self, _context: ContextId, _peer: PeerId) {}

    /// There is nothing more to say to `peer`, for now.
    fn on_said(&mut self, _peer: PeerId) {}

    /// All that a context took has arrived.
    fn on_drained(&mut self, _context: ContextId) {}

    /// What a context took is not answered, however often that was asked.
    fn on_silent(&mut self, _context: ContextId) {}

    /// A context that it needs no more: it is closed before another is opened.
    fn poll_retired(&mut self) -> Option<ContextId> {
        None
    }

    /// Whether one process receives for others of its host: then what it took may never reach them.
    fn relays(&self) -> bool {
        false
    }

    /// The process that a context leads to is gone, or has been silent for long: peers that were reached by it, and are by another context
    /// from now on, for which it is given up; none where there is no other way.
    fn on_lost(&mut self, _context: ContextId) -> Vec<PeerId> {
        Vec::new()
    }

    /// A context failed, and is gone: peers that cannot be reached without it.
    fn on_failed(&mut self, context: ContextId) -> Vec<PeerId>;

    /// A peer failed by itself.
    fn on_gone(&mut self, _peer: PeerId) {}

    /// What it did.
    fn counts(&self) -> Counts;
}

/// A transport, and what of it may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reliable connections: [`Rc`].
    Rc,
    /// Extended reliable connections: [`Xrc`].
    Xrc,
    /// Datagrams: [`Ud`].
    Ud,
    /// Dynamic connections: [`dc::Dc`].
    Dc(dc::Settings),
}

impl Kind {
    /// One that has done nothing, of endpoint `me`.
    #[must_use]
    pub fn make(self, me: EndpointId, seed: u64) -> Box<dyn Transport> {
        match self {
            Self::Rc => Box::new(Rc::default()),
            Self::Xrc => Box::new(Xrc::new(me)),
            Self::Ud => Box::new(Ud::default()),
            Self::Dc(settings) => Box::new(dc::Dc::new(settings, seed)),
        }
    }
}
