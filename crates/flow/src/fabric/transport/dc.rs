//! Dynamic connections: a few initiators (DCI), each of which leads to one process after another.
//!
//! What an initiator leads to is a context of its own, with numbers from 0: at the other end that is a responder (DCR), short-lived. It is
//! opened in band, and closed when the initiator is to lead elsewhere. What an endpoint can be reached by (DCT) is its number, and the job's
//! key what opens it.
//!
//! A peer never has anything under way on two initiators: that alone keeps its order. So an initiator belongs to a peer from when it is
//! given to it until all that it took has arrived; then it is idle, and still leads there. Peers that find none wait in one line, or in one
//! for each initiator, as the [`Policy`] says. A peer that has nothing to say has neither an initiator nor a place in a line: it cannot wait
//! for another's word and keep others from speaking. Nor does one that does not answer: whoever waits for its initiator is
//! lent one in its place.

pub mod policy;
mod queue;
mod stand_ins;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::{NonZeroU16, NonZeroU32};

use self::policy::{Ask, Choice, Had, Initiator, Policy, PolicyKind, Setup};
use self::queue::Queue;
use self::stand_ins::StandIns;
use super::{ContextId, Counts, Handshake, Routing, Transport};
use crate::fabric::operation::PeerId;

/// What may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many there are.
    pub initiators: Initiators,
    /// Who is given which.
    pub policy: PolicyKind,
    /// Pieces that a peer may send while others wait, by policies that have a quota.
    pub quota: NonZeroU32,
    /// Whether a connection is admitted before it is used; otherwise it is used at once.
    pub full_handshake: bool,
}

impl Default for Settings {
    /// As UCX has it since its version 1.18.
    fn default() -> Self {
        Self {
            initiators: Initiators::DEFAULT,
            policy: PolicyKind::default(),
            quota: const { NonZeroU32::new(32).unwrap() },
            full_handshake: false,
        }
    }
}

/// A number of initiators: 1 to [`Self::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initiators(NonZeroU16);

impl Initiators {
    /// The most there are.
    pub const MOST: u16 = 1024;
    const DEFAULT: Self = Self::new(32).unwrap();

    /// So many, where there may be so many.
    #[must_use]
    pub const fn new(count: u16) -> Option<Self> {
        match NonZeroU16::new(count) {
            Some(count) if count.get() <= Self::MOST => Some(Self(count)),
            _ => None,
        }
    }

    /// How many.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.0.get()
    }
}

/// A pool of initiators.
#[derive(Debug)]
pub struct Dc {
    handshake: Handshake,
    policy: Box<dyn Policy>,
    /// The policy's, and stand-ins behind them.
    pool: Vec<State>,
    stand_ins: StandIns,
    contexts: BTreeMap<ContextId, Initiator>,
    /// Which initiator was connected to a peer last. An earlier connection is not used again: it has a number that the peer takes for old.
    connected: BTreeMap<PeerId, Initiator>,
    /// Which initiator a peer has.
    given: BTreeMap<PeerId, Initiator>,
    queue: Queue,
    counts: Counts,
}

/// An initiator.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Its context, once it was used, and where that leads.
    context: Option<(ContextId, PeerId)>,
    /// Who has it: with something under way that is whom it leads to.
    owner: Option<PeerId>,
    /// What it took for its owner since it was last drained.
    pieces: u32,
    /// Whether its owner has nothing more to say.
    said: bool,
    /// Whether its owner makes place for others.
    yields: bool,
}

impl Dc {
    /// One that has done nothing.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        let Settings { initiators, policy, quota, full_handshake } = settings;
        Self {
            handshake: if full_handshake { Handshake::Full } else { Handshake::Half },
            policy: policy.make(Setup { initiators, quota, seed }),
            pool: vec![State::default(); initiators.count().into()],
            stand_ins: StandIns::new(initiators),
            contexts: BTreeMap::new(),
            connected: BTreeMap::new(),
            given: BTreeMap::new(),
            queue: Queue::default(),
            counts: Counts::default(),
        }
    }

    fn state(&mut self, initiator: Initiator) -> &mut State {
        &mut self.pool[usize::from(initiator.0)]
    }

    fn had(&self, peer: PeerId) -> Option<Had> {
        let initiator = *self.given.get(&peer)?;
        let wanted = self.is_wanted(initiator);
        Some(Had { initiator, pieces: self.pool[usize::from(initiator.0)].pieces, wanted })
    }

    /// Whether somebody waits for it, or for what it stands in for.
    fn is_wanted(&self, initiator: Initiator) -> bool {
        self.queue.first(self.stand_ins.line(initiator)).is_some()
    }

    fn give(&mut self, initiator: Initiator, peer: PeerId) {
        let state = self.state(initiator);
        debug_assert!(state.owner.is_none_or(|owner| owner == peer), "{initiator:?} has an owner");
        state.owner = Some(peer);
        self.given.insert(peer, initiator);
    }

    /// Takes an initiator back, and gives it to who has waited longest for it.
    fn take_back(&mut self, initiator: Initiator) {
        let state = self.state(initiator);
        let Some(owner) = state.owner.take() else { return };
        *state = State { context: state.context, ..State::default() };
        let leads_to = state.context.map_or(owner, |(_, peer)| peer);
        self.given.remove(&owner);
        self.on_answered(initiator);
        if self.stand_ins.contains(initiator) {
            if self.stand_ins.is_needed(initiator) {
                self.lend();
            } else {
                self.retire(initiator);
            }
            return;
        }
        self.policy.on_idle(initiator, leads_to);
        if let Some(peer) = self.queue.first(initiator)
            && let Choice::Use(initiator) = self.policy.choose(Ask { peer, has: None })
        {
            self.queue.remove(peer);
            self.give(initiator, peer);
        }
    }

    /// Whoever waits for a silent initiator is given its stand-in.
    fn lend(&mut self) {
        for silent in self.stand_ins.silent() {
            let Some(peer) = self.queue.first(self.stand_ins.line(silent)) else { continue };
            let stand_in = match self.stand_ins.of(silent) {
                Some(stand_in) if self.state(stand_in).owner.is_some() => continue,
                Some(stand_in) => stand_in,
                None => {
                    let Some(stand_in) = self.stand_ins.begin(silent) else { continue };
                    self.pool.resize(self.pool.len().max(usize::from(stand_in.0) + 1), State::default());
                    self.counts.lent += 1;
                    stand_in
                }
            };
            self.queue.remove(peer);
            self.give(stand_in, peer);
        }
    }

    /// An initiator is not silent, or has nothing under way any more.
    fn on_answered(&mut self, initiator: Initiator) {
        if let Some(stand_in) = self.stand_ins.end(initiator)
            && self.state(stand_in).owner.is_none()
        {
            self.retire(stand_in);
        }
    }

    /// A stand-in that nobody has is needed no more.
    fn retire(&mut self, stand_in: Initiator) {
        let context = self.state(stand_in).context.map(|(context, _)| context);
        if self.disconnect(stand_in).is_some() {
            self.counts.disconnects += 1;
        }
        self.stand_ins.retire(stand_in, context);
    }

    /// An initiator leads nowhere any more: where it led.
    fn disconnect(&mut self, initiator: Initiator) -> Option<PeerId> {
        let (context, peer) = self.state(initiator).context.take()?;
        self.contexts.remove(&context);
        if self.connected.get(&peer) == Some(&initiator) {
            self.connected.remove(&peer);
        }
        Some(peer)
    }

    /// A peer neither waits nor has anything.
    fn forget(&mut self, peer: PeerId) {
        self.queue.remove(peer);
        if let Some(initiator) = self.given.get(&peer) {
            self.take_back(*initiator);
        }
    }

    fn check(&self) {
        debug_assert!(self.contexts.len() <= self.pool.len() && self.connected.len() <= self.contexts.len());
        debug_assert!(
            self.given.iter().all(|(peer, each)| self.pool[usize::from(each.0)].owner == Some(*peer)),
            "a peer has at most one initiator"
        );
        debug_assert!(
            self.given.keys().all(|peer| !self.queue.contains(*peer)),
            "who has one does not wait for another"
        );
    }
}

impl Transport for Dc {
    fn route(&mut self, peer: PeerId) -> Routing {
        if self.queue.contains(peer) {
            return Routing::Wait;
        }
        let has = self.had(peer);
        let initiator = match (self.policy.choose(Ask { peer, has }), has) {
            (Choice::Use(initiator), _) => initiator,
            (Choice::Wait { of }, None) => {
                self.queue.push(peer, of);
                self.counts.waits += 1;
                self.lend();
                let Some(stand_in) = self.given.get(&peer) else { return Routing::Wait };
                *stand_in
            }
            (Choice::Wait { .. }, Some(had)) => {
                let state = self.state(had.initiator);
                state.said = false;
                let yielded = std::mem::replace(&mut state.yields, true);
                let context = state.context.map(|(context, _)| context);
                self.counts.waits += u64::from(!yielded);
                return context.map_or(Routing::Wait, Routing::Yield);
            }
        };
        self.give(initiator, peer);
        let is_connected = self.connected.get(&peer) == Some(&initiator);
        let handshake = self.handshake;
        let state = self.state(initiator);
        (state.said, state.yields) = (false, false);
        let context = state.context.map(|(context, _)| context);
        let routing = match context {
            Some(context) if is_connected => Routing::Take(context),
            instead_of => Routing::Open { to: peer, handshake, instead_of },
        };
        self.check();
        routing
    }

    fn on_opened(&mut self, context: ContextId, peer: PeerId) {
        let Some(initiator) = self.given.get(&peer).copied() else { return };
        self.counts.connects += 1;
        if self.disconnect(initiator).is_some() {
            self.counts.disconnects += 1;
        }
        self.state(initiator).context = Some((context, peer));
        self.contexts.insert(context, initiator);
        self.connected.insert(peer, initiator);
        self.check();
    }

    fn on_pushed(&mut self, context: ContextId, peer: PeerId) {
        let Some(initiator) = self.contexts.get(&context).copied() else { return };
        let state = self.state(initiator);
        debug_assert_eq!((state.owner, state.context), (Some(peer), Some((context, peer))));
        state.pieces = state.pieces.saturating_add(1);
    }

    fn on_said(&mut self, peer: PeerId) {
        self.queue.remove(peer);
        let Some(initiator) = self.given.get(&peer).copied() else { return };
        let state = self.state(initiator);
        state.said = true;
        if state.pieces == 0 {
            self.take_back(initiator);
        }
        self.check();
    }

    fn on_drained(&mut self, context: ContextId) {
        let Some(initiator) = self.contexts.get(&context).copied() else { return };
        self.on_answered(initiator);
        let wanted = self.is_wanted(initiator);
        let state = self.state(initiator);
        let drained = std::mem::take(&mut state.pieces) > 0;
        // What was given to another since then, and did not yet take anything, is that one's.
        if drained && (state.said || wanted) {
            self.take_back(initiator);
        }
        self.check();
    }

    fn on_silent(&mut self, context: ContextId) {
        let Some(initiator) = self.contexts.get(&context).copied() else { return };
        let State { context, owner, .. } = *self.state(initiator);
        if owner.is_some() && owner == context.map(|(_, peer)| peer) {
            self.stand_ins.on_silent(initiator);
            self.lend();
        }
        self.check();
    }

    fn poll_retired(&mut self) -> Option<ContextId> {
        self.stand_ins.poll_retired()
    }

    fn on_failed(&mut self, context: ContextId) -> Vec<PeerId> {
        let Some(initiator) = self.contexts.get(&context).copied() else { return Vec::new() };
        // Whoever the initiator was given to since it was drained is not to blame, and goes on.
        let Some(peer) = self.disconnect(initiator) else { return Vec::new() };
        self.forget(peer);
        self.check();
        vec![peer]
    }

    fn on_gone(&mut self, peer: PeerId) {
        self.forget(peer);
        self.check();
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
