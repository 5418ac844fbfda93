//! The initiator that was idle last, for as long as there is something under way.

use super::{Ask, Choice, Initiator, Policy, Setup};
use crate::fabric::operation::PeerId;

/// A stack of idle initiators. A peer that never lets its own drain never gives it back: others starve.
#[derive(Debug)]
pub(super) struct Dcs {
    idle: Vec<Initiator>,
}

impl Dcs {
    pub(super) fn new(setup: Setup) -> Self {
        Self { idle: setup.all().rev().collect() }
    }
}

impl Policy for Dcs {
    fn on_idle(&mut self, initiator: Initiator, _peer: PeerId) {
        self.idle.push(initiator);
    }

    fn choose(&mut self, ask: Ask) -> Choice {
        let has = ask.has.map(|had| had.initiator);
        has.or_else(|| self.idle.pop()).map_or(Choice::Wait { of: None }, Choice::Use)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{WAIT, ask, setup, take};
    use super::*;

    #[test]
    fn what_was_idle_last_is_used_first() {
        let mut dcs = Dcs::new(setup(3));
        assert_eq!([7, 8].map(|peer| dcs.choose(ask(peer))), [take(0), take(1)]);
        dcs.on_idle(Initiator(0), PeerId(7));
        assert_eq!([9, 7, 5].map(|peer| dcs.choose(ask(peer))), [take(0), take(2), WAIT]);
    }
}
