//! Datagrams: no connection is made. What a peer's window needs begins with the first datagram to it.

use std::collections::BTreeMap;

use super::{ContextId, Counts, Handshake, Routing, Transport};
use crate::fabric::operation::PeerId;

/// Nothing but a window for each peer that was ever sent something.
#[derive(Debug, Default)]
pub struct Ud {
    windows: BTreeMap<PeerId, ContextId>,
}

impl Transport for Ud {
    fn route(&mut self, peer: PeerId) -> Routing {
        match self.windows.get(&peer) {
            Some(context) => Routing::Take(*context),
            None => Routing::Open { to: peer, handshake: Handshake::None, instead_of: None },
        }
    }

    fn on_opened(&mut self, context: ContextId, peer: PeerId) {
        self.windows.insert(peer, context);
    }

    fn on_failed(&mut self, context: ContextId) -> Vec<PeerId> {
        self.windows.extract_if(.., |_, each| *each == context).map(|(peer, _)| peer).collect()
    }

    /// It connects to nobody.
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_asked_and_nothing_is_connected() {
        let mut ud = Ud::default();
        let peer = PeerId(1);
        assert_eq!(ud.route(peer), Routing::Open { to: peer, handshake: Handshake::None, instead_of: None });
        ud.on_opened(ContextId(0), peer);
        assert_eq!(ud.route(peer), Routing::Take(ContextId(0)));
        assert_eq!(ud.counts(), Counts::default());
    }
}
