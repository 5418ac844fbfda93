//! Extended reliable connections: a context for each host. One of its processes receives for all of them, each of which has a number (an
//! endpoint's) as a shared receive queue has one; which process that is differs from sender to sender, so that no process has all of it.
//! Where it ends, or is silent for long, another of the host receives in its place.

use std::collections::{BTreeMap, BTreeSet};

use super::{ContextId, Counts, Handshake, Routing, Transport};
use crate::fabric::operation::{EndpointId, HostId, Identity, PeerId};

/// A connection for each host that was ever sent something.
#[derive(Debug)]
pub struct Xrc {
    me: EndpointId,
    hosts: BTreeMap<HostId, Host>,
    peers: BTreeMap<PeerId, HostId>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Host {
    processes: BTreeMap<EndpointId, PeerId>,
    context: Option<Connection>,
    /// Those to whom something was ever sent.
    reached: BTreeSet<PeerId>,
    /// Those that did not answer: they receive for others only where none else is left.
    silent: BTreeSet<EndpointId>,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    context: ContextId,
    receiver: Option<EndpointId>,
}

impl Host {
    /// The process that receives what endpoint `from` sends.
    fn receiver(&self, from: EndpointId) -> Option<(EndpointId, PeerId)> {
        let answer = || self.processes.iter().filter(move |(process, _)| !self.silent.contains(process));
        let nth = |count: usize| (from.0 % count.max(1) as u64) as usize;
        let one = answer().nth(nth(answer().count()));
        one.or_else(|| self.processes.iter().nth(nth(self.processes.len())))
            .map(|(process, peer)| (*process, *peer))
    }

    fn leads(&self, context: ContextId) -> bool {
        self.context.is_some_and(|connection| connection.context == context)
    }
}

impl Xrc {
    /// Of endpoint `me`.
    #[must_use]
    pub const fn new(me: EndpointId) -> Self {
        let counts = Counts { connects: 0, disconnects: 0, waits: 0, lent: 0 };
        Self { me, hosts: BTreeMap::new(), peers: BTreeMap::new(), counts }
    }

    fn host(&mut self, peer: PeerId) -> Option<&mut Host> {
        self.hosts.get_mut(self.peers.get(&peer)?)
    }
}

impl Transport for Xrc {
    fn on_peer(&mut self, peer: PeerId, identity: &Identity) {
        if let Some(before) = self.peers.insert(peer, identity.host)
            && before != identity.host
            && let Some(host) = self.hosts.get_mut(&before)
        {
            host.processes.remove(&identity.endpoint);
        }
        self.hosts.entry(identity.host).or_default().processes.insert(identity.endpoint, peer);
    }

    fn route(&mut self, peer: PeerId) -> Routing {
        let me = self.me;
        let Some(host) = self.host(peer) else { return Routing::Wait };
        if let Some(Connection { context, .. }) = host.context {
            host.reached.insert(peer);
            return Routing::Take(context);
        }
        let to = host.receiver(me).map_or(peer, |(_, to)| to);
        Routing::Open { to, handshake: Handshake::Full, instead_of: None }
    }

    fn on_opened(&mut self, context: ContextId, peer: PeerId) {
        self.counts.connects += 1;
        let me = self.me;
        if let Some(host) = self.host(peer) {
            let receiver = host.receiver(me).map(|(process, _)| process);
            host.context = Some(Connection { context, receiver });
            host.reached.insert(peer);
        }
    }

    fn on_drained(&mut self, context: ContextId) {
        if let Some(host) = self.hosts.values_mut().find(|host| host.leads(context)) {
            host.silent.clear();
        }
    }

    fn relays(&self) -> bool {
        true
    }

    fn on_lost(&mut self, context: ContextId) -> Vec<PeerId> {
        let Some(host) = self.hosts.values_mut().find(|host| host.leads(context)) else { return Vec::new() };
        let receiver = host.context.and_then(|connection| connection.receiver);
        host.silent.extend(receiver);
        let is_silent = |process: &EndpointId| host.silent.contains(process);
        let lives = receiver.is_some_and(|process| host.processes.contains_key(&process));
        if lives && host.processes.keys().all(is_silent) {
            return Vec::new();
        }
        host.context = None;
        self.counts.disconnects += 1;
        host.reached.iter().copied().collect()
    }

    fn on_failed(&mut self, context: ContextId) -> Vec<PeerId> {
        let Some(host) = self.hosts.values_mut().find(|host| host.leads(context)) else { return Vec::new() };
        host.context = None;
        host.silent.clear();
        std::mem::take(&mut host.reached).into_iter().collect()
    }

    fn on_gone(&mut self, peer: PeerId) {
        if let Some(host) = self.host(peer) {
            host.processes.retain(|_, each| *each != peer);
            host.reached.remove(&peer);
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(endpoint: u64, host: u64) -> Identity {
        let address = ([10, 0, 0, 1], 5).into();
        Identity { endpoint: EndpointId(endpoint), host: HostId(host), address }
    }

    #[test]
    fn all_processes_of_a_host_share_a_connection_to_one_of_them() {
        let mut receivers = Vec::new();
        for me in 0..4 {
            let mut xrc = Xrc::new(EndpointId(me));
            for peer in 0..8 {
                xrc.on_peer(PeerId(peer), &identity(100 + u64::from(peer), u64::from(peer / 4)));
            }
            let Routing::Open { to, handshake: Handshake::Full, .. } = xrc.route(PeerId(5)) else { panic!() };
            receivers.push(to);
            xrc.on_opened(ContextId(0), PeerId(5));
            assert!((4..8).all(|peer| xrc.route(PeerId(peer)) == Routing::Take(ContextId(0))));
            assert!(matches!(xrc.route(PeerId(0)), Routing::Open { .. }));
            assert_eq!(xrc.on_failed(ContextId(0)), [4, 5, 6, 7].map(PeerId));
        }
        receivers.sort_unstable();
        assert_eq!(receivers, [4, 5, 6, 7].map(PeerId));
    }

    #[test]
    fn another_receives_in_place_of_one_that_ends_or_is_silent() {
        let mut xrc = Xrc::new(EndpointId(1));
        (0..3).for_each(|peer| xrc.on_peer(PeerId(peer), &identity(100 + u64::from(peer), 0)));
        let mut context = 0;
        let mut open = |xrc: &mut Xrc| {
            let Routing::Open { to, .. } = xrc.route(PeerId(0)) else { panic!() };
            context += 1;
            xrc.on_opened(ContextId(context), PeerId(0));
            (to, ContextId(context))
        };
        let (first, context) = open(&mut xrc);
        assert_eq!(xrc.route(PeerId(2)), Routing::Take(context));
        assert_eq!(xrc.on_lost(context), [0, 2].map(PeerId));
        let (second, context) = open(&mut xrc);
        assert_eq!(xrc.on_lost(context), [0, 2].map(PeerId));
        let (third, context) = open(&mut xrc);
        assert_eq!(BTreeSet::from([first, second, third]).len(), 3);
        // Nobody is left to be tried, until one has ended.
        assert_eq!((xrc.on_lost(context), xrc.route(PeerId(2))), (vec![], Routing::Take(context)));
        xrc.on_gone(third);
        assert_eq!((third, xrc.on_lost(context)), (PeerId(0), vec![PeerId(2)]));
        let (fourth, context) = open(&mut xrc);
        assert_ne!(fourth, third);
        // It answers: then the others may, too.
        xrc.on_drained(context);
        xrc.on_gone(fourth);
        xrc.on_lost(context);
        assert!(![third, fourth].contains(&open(&mut xrc).0));
    }
}
