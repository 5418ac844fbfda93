//! When whom something is due for.

use std::collections::{BTreeSet, HashMap};

use farlink_wire::quantity::Nanos;

/// When whom something is due for.
#[derive(Default)]
pub(super) struct Wakes {
    pub(super) by_time: BTreeSet<(Nanos, Who)>,
    times: HashMap<Who, Nanos>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Who {
    Link(u64, u64),
    Process(usize),
}

impl Wakes {
    pub(super) fn set(&mut self, who: Who, time: Option<Nanos>) {
        if let Some(before) = self.times.remove(&who) {
            self.by_time.remove(&(before, who));
        }
        if let Some(time) = time {
            self.times.insert(who, time);
            self.by_time.insert((time, who));
        }
    }
}
