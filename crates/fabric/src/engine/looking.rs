//! For how long a program has looked for a message of somebody who has ended.

use farlink_flow::fabric::operation::PeerId;
use farlink_wire::quantity::Nanos;

/// What it looks for.
#[derive(Debug)]
pub(super) struct Looking {
    behind: Option<PeerId>,
    /// For how long it has looked on.
    looked: Nanos,
    last: Nanos,
}

impl Looking {
    /// It looks `behind` somebody, or anybody, after it looked as `before` says.
    pub(super) fn on(before: Option<Self>, behind: Option<PeerId>, now: Nanos) -> Self {
        // What it did for longer in between was something else, or it was suspended.
        let on = |before: Self| before.looked.after(now.since(before.last).min(ELSEWHERE));
        let looked = before.filter(|before| before.behind == behind).map_or(Nanos::ZERO, on);
        Self { behind, looked, last: now }
    }

    /// Whether it does nothing else.
    pub(super) fn is_alone(&self) -> bool {
        self.looked >= ALONE
    }
}

/// After what time it is told that nothing will come: MPICH looks once for each communicator while it ends, and where that brings an error it
/// aborts.
pub(super) const ALONE: Nanos = Nanos(2_000_000_000);

/// The most that the time between two looks counts.
pub(super) const ELSEWHERE: Nanos = Nanos(100_000_000);
