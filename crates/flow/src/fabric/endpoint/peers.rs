//! Who the peers are, and where.

use core::net::SocketAddr;

use farlink_wire::quantity::Nanos;
use rustc_hash::FxHashMap;

use crate::fabric::operation::{EndpointId, Identity, PeerId};

/// All peers, by number.
#[derive(Debug)]
pub(super) struct Peers {
    me: Identity,
    nearby: bool,
    known: Vec<Peer>,
    numbers: FxHashMap<EndpointId, PeerId>,
}

#[derive(Debug)]
struct Peer {
    identity: Identity,
    place: Place,
    talking: bool,
    /// Whether it was ever said anything.
    spoken_to: bool,
    /// When it last said something, if it ever did.
    heard: Option<Nanos>,
    /// When it was last told that it was given up.
    dismissed: Option<Nanos>,
    /// Whether something that cannot be opened came from its address.
    strange: bool,
}

/// Where a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is this process.
    Own,
    /// On this host.
    Near,
    /// On another, or reached as if it were.
    Far,
}

impl Peer {
    /// Whether it has heard of this process, or this of it.
    const fn met(&self) -> bool {
        self.spoken_to || self.heard.is_some()
    }
}

impl Peers {
    pub(super) fn new(me: Identity, nearby: bool) -> Self {
        Self { me, nearby, known: Vec::new(), numbers: FxHashMap::default() }
    }

    /// The peer's number, and whether it is new. More may be known of it than before.
    pub(super) fn intern(&mut self, identity: Identity) -> (PeerId, bool) {
        let place = self.place_of(&identity);
        if let Some(peer) = self.numbers.get(&identity.endpoint) {
            let known = &mut self.known[peer.0 as usize];
            (known.identity, known.place) = (identity, place);
            return (*peer, false);
        }
        let peer = PeerId(self.known.len() as u32);
        self.numbers.insert(identity.endpoint, peer);
        self.known.push(Peer {
            identity,
            place,
            talking: false,
            spoken_to: false,
            heard: None,
            dismissed: None,
            strange: false,
        });
        (peer, true)
    }

    fn place_of(&self, identity: &Identity) -> Place {
        if identity.endpoint == self.me.endpoint {
            Place::Own
        } else if self.nearby && identity.host == self.me.host {
            Place::Near
        } else {
            Place::Far
        }
    }

    pub(super) fn find(&self, endpoint: EndpointId) -> Option<PeerId> {
        self.numbers.get(&endpoint).copied()
    }

    /// Whether one is there.
    pub(super) fn has_address(&self, address: SocketAddr) -> bool {
        self.known.iter().any(|each| each.identity.address == address)
    }

    /// Something that cannot be opened came from there.
    pub(super) fn on_strange(&mut self, address: SocketAddr) {
        let there = self.known.iter_mut().filter(|each| each.identity.address == address);
        there.for_each(|each| each.strange = true);
    }

    /// Whether something that cannot be opened came from where the peer is.
    pub(super) fn is_strange(&self, peer: PeerId) -> bool {
        self.known[peer.0 as usize].strange
    }

    pub(super) fn identity(&self, peer: PeerId) -> &Identity {
        &self.known[peer.0 as usize].identity
    }

    pub(super) fn place(&self, peer: PeerId) -> Place {
        self.known[peer.0 as usize].place
    }

    /// There is something to say to a peer: whether there was nothing before.
    pub(super) fn begin_talking(&mut self, peer: PeerId) -> bool {
        let known = &mut self.known[peer.0 as usize];
        known.spoken_to = true;
        !std::mem::replace(&mut known.talking, true)
    }

    pub(super) fn end_talking(&mut self, peer: PeerId) {
        self.known[peer.0 as usize].talking = false;
    }

    /// A peer of this host is said something: from then on its end is seen.
    pub(super) fn on_spoken_to(&mut self, peer: PeerId) {
        self.known[peer.0 as usize].spoken_to = true;
    }

    pub(super) fn on_heard(&mut self, peer: PeerId, now: Nanos) {
        self.known[peer.0 as usize].heard = Some(now);
    }

    /// Peers of this host.
    pub(super) fn near(&self) -> impl Iterator<Item = PeerId> {
        let all = (0..).map(PeerId).zip(&self.known);
        all.filter(|(_, each)| each.place == Place::Near).map(|(peer, _)| peer)
    }

    /// Peers far away that have heard of this process, or it of them.
    pub(super) fn acquaintances(&self) -> impl Iterator<Item = (PeerId, &Identity)> {
        let met = |each: &Peer| each.place == Place::Far && each.met();
        (0..)
            .map(PeerId)
            .zip(&self.known)
            .filter(move |(_, each)| met(each))
            .map(|(peer, each)| (peer, &each.identity))
    }

    /// All that have heard of this process, or it of them.
    pub(super) fn met(&self) -> impl Iterator<Item = PeerId> {
        let met = |each: &Peer| each.place != Place::Own && each.met();
        (0..).map(PeerId).zip(&self.known).filter(move |(_, each)| met(each)).map(|(peer, _)| peer)
    }

    /// Whether it is to be told now that it was given up: not for everything that it says.
    pub(super) fn begin_dismissal(&mut self, peer: PeerId, now: Nanos) -> bool {
        let known = &mut self.known[peer.0 as usize];
        let due = known.place == Place::Far
            && known.dismissed.is_none_or(|dismissed| now.since(dismissed) >= DISMISS_EVERY);
        if due {
            known.dismissed = Some(now);
        }
        due
    }

    pub(super) fn was_heard(&self, peer: PeerId) -> bool {
        self.known[peer.0 as usize].heard.is_some()
    }

    /// Peers far away that have not said anything for so long, and those of this host that were never said anything, whose end nobody would
    /// see; and whether they and this process have met.
    pub(super) fn silent_since(&self, now: Nanos, silence: Nanos) -> Vec<(PeerId, bool)> {
        let silent = |each: &Peer| match each.place {
            Place::Own => false,
            Place::Near => !each.spoken_to,
            Place::Far => each.heard.is_none_or(|heard| now.since(heard) >= silence),
        };
        let all = (0..).map(PeerId).zip(&self.known);
        all.filter(|(_, each)| silent(each)).map(|(peer, each)| (peer, each.met())).collect()
    }

    /// How many they are, and what is kept of them all.
    pub(super) fn statistics(&self) -> Vec<(&'static str, u64)> {
        let bytes = self.known.capacity() * size_of::<Peer>()
            + self.numbers.capacity() * size_of::<(EndpointId, PeerId)>();
        vec![("peers", self.known.len() as u64), ("bytes_of_peers", bytes as u64)]
    }
}

/// How often a peer that was given up is told so while it speaks: the word may be lost.
const DISMISS_EVERY: Nanos = Nanos(100_000_000);
