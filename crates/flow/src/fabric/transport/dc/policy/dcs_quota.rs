//! The initiator that was idle last, for no more than a quota where others wait.

use std::num::NonZeroU32;

use super::dcs::Dcs;
use super::{Ask, Choice, Initiator, Policy, Setup};
use crate::fabric::operation::PeerId;

/// [`Dcs`], but for a peer that has sent a quota while others wait: it sends no more until all has arrived, and gives its initiator back.
#[derive(Debug)]
pub(super) struct DcsQuota {
    dcs: Dcs,
    quota: NonZeroU32,
}

impl DcsQuota {
    pub(super) fn new(setup: Setup) -> Self {
        Self { dcs: Dcs::new(setup), quota: setup.quota }
    }
}

impl Policy for DcsQuota {
    fn on_idle(&mut self, initiator: Initiator, peer: PeerId) {
        self.dcs.on_idle(initiator, peer);
    }

    fn choose(&mut self, ask: Ask) -> Choice {
        match ask.has {
            Some(had) => had.within(self.quota, None),
            None => self.dcs.choose(ask),
        }
    }
}
