//! The initiator that still leads to the peer, or else the one that was used least recently: the fewest connections are made anew.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use super::{Ask, Choice, Initiator, Policy, Setup};
use crate::fabric::operation::PeerId;

/// Idle initiators and where they lead, idle longest first. A peer keeps its own for no more than a quota where others wait.
#[derive(Debug)]
pub(super) struct Lru {
    idle: VecDeque<(Initiator, Option<PeerId>)>,
    quota: NonZeroU32,
}

impl Lru {
    pub(super) fn new(setup: Setup) -> Self {
        Self { idle: setup.all().map(|initiator| (initiator, None)).collect(), quota: setup.quota }
    }
}

impl Policy for Lru {
    fn on_idle(&mut self, initiator: Initiator, peer: PeerId) {
        self.idle.push_back((initiator, Some(peer)));
    }

    fn choose(&mut self, ask: Ask) -> Choice {
        if let Some(had) = ask.has {
            return had.within(self.quota, None);
        }
        // Of several that lead there the last has the others' place: they are used up by whom nothing leads to.
        let leads_there = self.idle.iter().rposition(|(_, peer)| *peer == Some(ask.peer)).unwrap_or(0);
        match self.idle.remove(leads_there) {
            Some((initiator, _)) => Choice::Use(initiator),
            None => Choice::Wait { of: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{WAIT, ask, setup, take};
    use super::*;

    #[test]
    fn a_peer_finds_its_connection_again_and_others_take_the_oldest() {
        let mut lru = Lru::new(setup(3));
        assert_eq!([5, 6, 7].map(|peer| lru.choose(ask(peer))), [take(0), take(1), take(2)]);
        assert_eq!(lru.choose(ask(8)), WAIT);
        for (initiator, peer) in [(1, 6), (2, 7), (0, 5)] {
            lru.on_idle(Initiator(initiator), PeerId(peer));
        }
        assert_eq!([7, 9, 5].map(|peer| lru.choose(ask(peer))), [take(2), take(1), take(0)]);
    }
}
