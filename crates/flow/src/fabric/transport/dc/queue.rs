//! Peers that wait for initiators.

use std::collections::BTreeMap;

use super::policy::Initiator;
use crate::fabric::operation::PeerId;

/// Peers that wait, each for any initiator or for one: first come, first served.
#[derive(Debug, Default)]
pub(super) struct Queue {
    places: BTreeMap<PeerId, Place>,
    peers: BTreeMap<Place, PeerId>,
    next: u64,
}

/// What is waited for, and since when.
type Place = (Option<Initiator>, u64);

impl Queue {
    pub(super) fn contains(&self, peer: PeerId) -> bool {
        self.places.contains_key(&peer)
    }

    /// Puts a peer that is not in it behind all others.
    pub(super) fn push(&mut self, peer: PeerId, of: Option<Initiator>) {
        let place = (of, self.next);
        self.next += 1;
        self.places.insert(peer, place);
        self.peers.insert(place, peer);
    }

    pub(super) fn remove(&mut self, peer: PeerId) {
        if let Some(place) = self.places.remove(&peer) {
            self.peers.remove(&place);
        }
    }

    /// Who has waited longest of those that an initiator would serve.
    pub(super) fn first(&self, initiator: Initiator) -> Option<PeerId> {
        let first = |of| self.peers.range((of, 0)..=(of, u64::MAX)).next();
        let served = [first(None), first(Some(initiator))].into_iter().flatten();
        served.min_by_key(|((_, since), _)| *since).map(|(_, peer)| *peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_is_served_first_of_those_that_an_initiator_serves() {
        let mut queue = Queue::default();
        let (here, there) = (Initiator(300), Initiator(44));
        for (peer, of) in [(1, Some(there)), (2, None), (3, Some(here)), (4, None)] {
            queue.push(PeerId(peer), of);
        }
        let mut served = Vec::new();
        while let Some(peer) = queue.first(here) {
            queue.remove(peer);
            served.push(peer.0);
        }
        assert_eq!(served, [2, 3, 4]);
        assert_eq!((queue.first(there), queue.contains(PeerId(2))), (Some(PeerId(1)), false));
    }
}
