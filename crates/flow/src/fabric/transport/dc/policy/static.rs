//! An initiator for each peer, by its number: others share it.

use std::num::NonZeroU32;

use super::{Ask, Choice, Initiator, Policy, Setup};
use crate::fabric::operation::PeerId;

/// Peers whose numbers are the same modulo the number of initiators share one, in turn: each has it for no more than a quota where others
/// wait. An initiator may be idle while peers wait for another.
#[derive(Debug)]
pub(super) struct Static {
    is_idle: Vec<bool>,
    quota: NonZeroU32,
}

impl Static {
    pub(super) fn new(setup: Setup) -> Self {
        Self { is_idle: setup.all().map(|_| true).collect(), quota: setup.quota }
    }

    /// What a peer is given that shares initiator `home`.
    pub(super) fn choose_home(&mut self, ask: Ask, home: Initiator) -> Choice {
        match ask.has {
            Some(had) => had.within(self.quota, Some(home)),
            None if std::mem::take(&mut self.is_idle[usize::from(home.0)]) => Choice::Use(home),
            None => Choice::Wait { of: Some(home) },
        }
    }
}

impl Policy for Static {
    fn on_idle(&mut self, initiator: Initiator, _peer: PeerId) {
        self.is_idle[usize::from(initiator.0)] = true;
    }

    fn choose(&mut self, ask: Ask) -> Choice {
        let home = ask.peer.0 % self.is_idle.len() as u32;
        self.choose_home(ask, Initiator(home as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ask, setup, take};
    use super::*;

    #[test]
    fn peers_share_by_their_numbers() {
        let mut policy = Static::new(setup(300));
        assert_eq!([299, 600, 1].map(|peer| policy.choose(ask(peer))), [take(299), take(0), take(1)]);
        assert_eq!(policy.choose(ask(599)), Choice::Wait { of: Some(Initiator(299)) });
        policy.on_idle(Initiator(299), PeerId(299));
        assert_eq!(policy.choose(ask(599)), take(299));
    }
}
