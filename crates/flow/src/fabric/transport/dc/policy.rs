//! Which initiator a peer is given, and for how long: policies, one file each, and the table of their names.

mod dcs;
mod dcs_quota;
mod lru;
mod rand;
mod r#static;

use std::fmt::{self, Debug};
use std::num::NonZeroU32;
use std::str::FromStr;

use super::Initiators;
use crate::fabric::operation::PeerId;

/// Chooses initiators.
///
/// All initiators are idle at first. One that was chosen is not idle until [`on_idle`](Self::on_idle) says so.
pub trait Policy: Debug + Send {
    /// All that an initiator was given has arrived, and nobody has it. It still leads to `peer`.
    fn on_idle(&mut self, initiator: Initiator, peer: PeerId);

    /// Which initiator a peer is given that has something to say: the one that it has, or one that is idle.
    fn choose(&mut self, ask: Ask) -> Choice;
}

/// An initiator, by its place in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Initiator(pub u16);

/// A peer to which there is something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Which.
    pub peer: PeerId,
    /// The initiator that it has.
    pub has: Option<Had>,
}

/// An initiator that a peer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Had {
    /// Which.
    pub initiator: Initiator,
    /// Pieces that it took for the peer since it was last idle.
    pub pieces: u32,
    /// Whether other peers wait for it.
    pub wanted: bool,
}

/// What a peer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// That one.
    Use(Initiator),
    /// Nothing now. Where it has an initiator, it says nothing more until that is idle, and then waits like others.
    Wait {
        /// The one that it waits for, where not any will do.
        of: Option<Initiator>,
    },
}

/// What a policy is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How many initiators there are.
    pub initiators: Initiators,
    /// Pieces that a peer may send while others wait.
    pub quota: NonZeroU32,
    /// For what is chosen at random.
    pub seed: u64,
}

impl Setup {
    /// All initiators, in order.
    fn all(self) -> impl DoubleEndedIterator<Item = Initiator> {
        (0..self.initiators.count()).map(Initiator)
    }
}

impl Had {
    /// What is left to its peer: to go on, or to make place for others after `quota` pieces.
    fn within(self, quota: NonZeroU32, of: Option<Initiator>) -> Choice {
        if self.wanted && self.pieces >= quota.get() {
            Choice::Wait { of }
        } else {
            Choice::Use(self.initiator)
        }
    }
}

type Make = fn(Setup) -> Box<dyn Policy>;

/// Policies by name; the first is taken where none is named. A new one is a line here, and one file.
const TABLE: &[(&str, Make)] = &[
    ("dcs_quota", |setup| Box::new(dcs_quota::DcsQuota::new(setup))),
    ("dcs", |setup| Box::new(dcs::Dcs::new(setup))),
    ("rand", |setup| Box::new(rand::Rand::new(setup))),
    ("lru", |setup| Box::new(lru::Lru::new(setup))),
    ("static", |setup| Box::new(r#static::Static::new(setup))),
];

/// A policy as asked for: one of [`Self::all`].
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyKind(usize);

impl PolicyKind {
    /// All there are.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..TABLE.len()).map(Self)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        TABLE[self.0].0
    }

    /// The policy, at its start.
    #[must_use]
    pub fn make(self, setup: Setup) -> Box<dyn Policy> {
        TABLE[self.0].1(setup)
    }
}

impl Debug for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::all().find(|kind| kind.name() == text).ok_or_else(|| UnknownPolicy { name: text.to_owned() })
    }
}

/// There is no policy of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no policy {name:?}: there are {}", PolicyKind::all().map(PolicyKind::name).collect::<Vec<_>>().join(", "))]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const fn setup(initiators: u16) -> Setup {
        Setup {
            initiators: Initiators::new(initiators).unwrap(),
            quota: NonZeroU32::new(3).unwrap(),
            seed: 1,
        }
    }

    pub(super) const fn ask(peer: u32) -> Ask {
        Ask { peer: PeerId(peer), has: None }
    }

    pub(super) const fn having(peer: u32, initiator: u16, pieces: u32, wanted: bool) -> Ask {
        let initiator = Initiator(initiator);
        Ask { peer: PeerId(peer), has: Some(Had { initiator, pieces, wanted }) }
    }

    pub(super) const fn take(initiator: u16) -> Choice {
        Choice::Use(Initiator(initiator))
    }

    pub(super) const WAIT: Choice = Choice::Wait { of: None };

    #[test]
    fn policies_are_known_by_their_names() {
        for kind in PolicyKind::all() {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!(PolicyKind::default().name(), "dcs_quota");
        assert_eq!(
            "hash".parse::<PolicyKind>().unwrap_err().to_string(),
            "no policy \"hash\": there are dcs_quota, dcs, rand, lru, static"
        );
    }

    #[test]
    fn whoever_has_an_initiator_goes_on_with_it_unless_others_have_waited_for_a_quota() {
        for kind in PolicyKind::all() {
            let mut policy = kind.make(setup(1));
            assert_eq!(policy.choose(ask(5)), take(0));
            assert_eq!(policy.choose(having(5, 0, 1000, false)), take(0), "{kind}");
            assert_eq!(policy.choose(having(5, 0, 2, true)), take(0), "{kind}");
            let goes_on = policy.choose(having(5, 0, 3, true)) == take(0);
            assert_eq!(goes_on, kind.name() == "dcs", "{kind}");
        }
    }
}
