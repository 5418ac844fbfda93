//! Extended reliable connections: a context for each host. One of its processes receives for all of them, each of which has a number (an
//! endpoint's) as a shared receive queue has one; which process that is differs from sender to sender, so that no process has all of it.

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
    context: Option<ContextId>,
    /// Those to whom something was sent over it: what of that was handed on, its end does not say.
    reached: BTreeSet<PeerId>,
}

impl Host {
    /// The process that receives what endpoint `from` sends.
    fn receiver(&self, from: EndpointId) -> Option<PeerId> {
        let count = self.processes.len().max(1) as u64;
        self.processes.values().nth((from.0 % count) as usize).copied()
    }
}

impl Xrc {
    /// Of endpoint `me`.
    #[must_use]
    pub const fn new(me: EndpointId) -> Self {
        let counts = Counts { connects: 0, disconnects: 0, waits: 0 };
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
        match (host.context, host.receiver(me)) {
            (Some(context), _) => {
                host.reached.insert(peer);
                Routing::Take(context)
            }
            (None, to) => {
                let to = to.unwrap_or(peer);
                Routing::Open { to, handshake: Handshake::Full, instead_of: None }
            }
        }
    }

    fn on_opened(&mut self, context: ContextId, peer: PeerId) {
        self.counts.connects += 1;
        if let Some(host) = self.host(peer) {
            host.context = Some(context);
            host.reached = [peer].into();
        }
    }

    fn on_failed(&mut self, context: ContextId) -> Vec<PeerId> {
        let Some(host) = self.hosts.values_mut().find(|host| host.context == Some(context)) else {
            return Vec::new();
        };
        host.context = None;
        std::mem::take(&mut host.reached).into_iter().collect()
    }

    fn on_gone(&mut self, peer: PeerId) {
        if let Some(host) = self.host(peer) {
            host.processes.retain(|_, each| *each != peer);
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
}
