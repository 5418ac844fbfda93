//! An initiator for each peer, chosen at random once: others share it.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::r#static::Static;
use super::{Ask, Choice, Initiator, Policy, Setup};
use crate::fabric::operation::PeerId;

/// As [`Static`], but that the seed decides which peers share.
#[derive(Debug)]
pub(super) struct Rand {
    shared: Static,
    setup: Setup,
}

impl Rand {
    pub(super) fn new(setup: Setup) -> Self {
        Self { shared: Static::new(setup), setup }
    }

    fn home(&self, peer: PeerId) -> Initiator {
        let mut random = Pcg64Mcg::seed_from_u64(self.setup.seed ^ u64::from(peer.0).rotate_left(32));
        Initiator(random.random_range(0..self.setup.initiators.count()))
    }
}

impl Policy for Rand {
    fn on_idle(&mut self, initiator: Initiator, peer: PeerId) {
        self.shared.on_idle(initiator, peer);
    }

    fn choose(&mut self, ask: Ask) -> Choice {
        self.shared.choose_home(ask, self.home(ask.peer))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ask, setup};
    use super::*;

    #[test]
    fn a_peer_has_the_same_initiator_always_and_all_are_used() {
        let mut homes = Vec::new();
        for peer in 0..200 {
            let mut rand = Rand::new(setup(16));
            let Choice::Use(home) = rand.choose(ask(peer)) else { panic!() };
            assert_eq!(rand.choose(ask(peer)), Choice::Wait { of: Some(home) });
            rand.on_idle(home, PeerId(peer));
            assert_eq!(rand.choose(ask(peer)), Choice::Use(home));
            homes.push(home.0);
        }
        assert!((0..16).all(|initiator| homes.contains(&initiator)));
        let other = Rand::new(Setup { seed: 2, ..setup(16) });
        let moved = (0..200).filter(|peer| other.home(PeerId(*peer)).0 != homes[*peer as usize]).count();
        assert!(moved > 150, "{moved}");
    }
}
