//! Reliable connections: a context for each peer, for good.

use std::collections::BTreeMap;

use super::{ContextId, Counts, Handshake, Routing, Transport};
use crate::fabric::operation::PeerId;

/// A connection for each peer that was ever sent something.
#[derive(Debug, Default)]
pub struct Rc {
    contexts: BTreeMap<PeerId, ContextId>,
    counts: Counts,
}

impl Transport for Rc {
    fn route(&mut self, peer: PeerId) -> Routing {
        match self.contexts.get(&peer) {
            Some(context) => Routing::Take(*context),
            None => Routing::Open { to: peer, handshake: Handshake::Full, instead_of: None },
        }
    }

    fn on_opened(&mut self, context: ContextId, peer: PeerId) {
        self.contexts.insert(peer, context);
        self.counts.connects += 1;
    }

    fn on_failed(&mut self, context: ContextId) -> Vec<PeerId> {
        self.contexts.extract_if(.., |_, each| *each == context).map(|(peer, _)| peer).collect()
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_a_connection_and_keeps_it() {
        let mut rc = Rc::default();
        for peer in [4, 2].map(PeerId) {
            assert_eq!(
                rc.route(peer),
                Routing::Open { to: peer, handshake: Handshake::Full, instead_of: None }
            );
            rc.on_opened(ContextId(peer.0), peer);
        }
        assert_eq!(rc.route(PeerId(4)), Routing::Take(ContextId(4)));
        assert_eq!(rc.counts(), Counts { connects: 2, ..Counts::default() });
        assert_eq!(rc.on_failed(ContextId(4)), [PeerId(4)]);
        assert!(matches!(rc.route(PeerId(4)), Routing::Open { .. }));
    }
}
