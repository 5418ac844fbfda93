//! Initiators that are lent in place of silent ones.
//!
//! A peer that does not answer keeps its initiator until it does, or has failed, which takes some ten seconds. The peers of a dead host may
//! so have many of them, or all, for which peers wait that would answer. So there is one more for each that is silent and waited for, until
//! the silent one has drained or failed. A stand-in may be silent, too, and have one of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::policy::Initiator;
use super::{ContextId, Initiators};

/// Which initiators are silent, and what stands in for them.
#[derive(Debug)]
pub(super) struct StandIns {
    /// The first number that none of the pool has.
    first: u16,
    silent: BTreeSet<Initiator>,
    /// By the silent initiator that each stands in for.
    stand_ins: BTreeMap<Initiator, Initiator>,
    /// Whose line each serves: that of one of the pool.
    lines: BTreeMap<Initiator, Initiator>,
    retired: VecDeque<ContextId>,
}

impl StandIns {
    pub(super) const fn new(pool: Initiators) -> Self {
        Self {
            first: pool.count(),
            silent: BTreeSet::new(),
            stand_ins: BTreeMap::new(),
            lines: BTreeMap::new(),
            retired: VecDeque::new(),
        }
    }

    /// Whose line an initiator serves.
    pub(super) fn line(&self, initiator: Initiator) -> Initiator {
        self.lines.get(&initiator).copied().unwrap_or(initiator)
    }

    /// Whether an initiator is a stand-in.
    pub(super) fn contains(&self, initiator: Initiator) -> bool {
        self.lines.contains_key(&initiator)
    }

    /// Whether what a stand-in stands in for is still silent.
    pub(super) fn is_needed(&self, stand_in: Initiator) -> bool {
        self.stand_ins.values().any(|each| *each == stand_in)
    }

    pub(super) fn on_silent(&mut self, initiator: Initiator) {
        self.silent.insert(initiator);
    }

    /// Those that are silent.
    pub(super) fn silent(&self) -> Vec<Initiator> {
        self.silent.iter().copied().collect()
    }

    /// What stands in for a silent one.
    pub(super) fn of(&self, silent: Initiator) -> Option<Initiator> {
        self.stand_ins.get(&silent).copied()
    }

    /// Has one stand in for a silent one that has none, where there are numbers.
    pub(super) fn begin(&mut self, silent: Initiator) -> Option<Initiator> {
        let stand_in = (self.first..u16::MAX).map(Initiator).find(|each| !self.contains(*each))?;
        self.lines.insert(stand_in, self.line(silent));
        self.stand_ins.insert(silent, stand_in);
        Some(stand_in)
    }

    /// An initiator is silent no more: what stood in for it.
    pub(super) fn end(&mut self, initiator: Initiator) -> Option<Initiator> {
        self.silent.remove(&initiator);
        self.stand_ins.remove(&initiator)
    }

    /// A stand-in is there no more, and its context is needed no more.
    pub(super) fn retire(&mut self, stand_in: Initiator, context: Option<ContextId>) {
        self.lines.remove(&stand_in);
        self.retired.extend(context);
    }

    pub(super) fn poll_retired(&mut self) -> Option<ContextId> {
        self.retired.pop_front()
    }
}
