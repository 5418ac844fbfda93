//! What of a process's descriptors a session has for receivers, and what for files: those are opened however many receivers come.

use farlink_host::beneath::Tree;
use farlink_wire::refusal::{Cause, Refusal};

use super::Plan;

/// How many there may be of what takes a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Files that are open at a time.
    pub(crate) files: usize,
    /// Connections of receivers.
    pub(crate) receivers: usize,
    /// And of those who have not joined.
    pub(crate) strangers: usize,
}

impl Room {
    /// In a process that may have so many `descriptors`, for one of its sessions.
    pub(crate) fn of(plan: &Plan, descriptors: u64) -> Self {
        let is_tree = plan.sources.iter().map(|source| source.to_path().is_dir());
        Self::new(descriptors / u64::from(plan.sessions.max(1)), is_tree)
    }

    /// Of each source whether it is a tree: a walk keeps some of its directories open, and of a single file the one that it is in.
    fn new(descriptors: u64, is_tree: impl Iterator<Item = bool>) -> Self {
        let directories: u64 =
            is_tree.map(|is_tree| 1 + if is_tree { Tree::MOST_OPEN as u64 } else { 0 }).sum();
        let rest = descriptors.saturating_sub(OTHERS);
        // Where it is little, each has something of it.
        let least = (rest / 4).max(1);
        let files = MOST_FILES.min(least);
        let connections = rest.saturating_sub(files + directories).max(least);
        let strangers = (connections / 4).clamp(1, MOST_STRANGERS);
        let receivers = connections.saturating_sub(strangers).max(1);
        let count = |number| usize::try_from(number).unwrap_or(usize::MAX);
        Self { files: count(files), receivers: count(receivers), strangers: count(strangers) }
    }

    /// What a receiver is told for which there is no room: it may come again.
    pub(crate) fn put_off(&self) -> Refusal {
        let words = format!(
            "it has {} receivers, and may have no more files open (ulimit -Hn there): try again later",
            self.receivers
        );
        Refusal::new(Cause::Passing, words)
    }
}

/// Files that are open at a time: of the products that wait for their turn, and of those that are repaired.
const MOST_FILES: u64 = 64;

/// Connections that have not joined, at a time.
const MOST_STRANGERS: u64 = 256;

/// Descriptors of everything else: sockets, clocks, what is watched, standard streams, a file of records.
const OTHERS: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_leave_room_for_files() {
        let room = |descriptors, trees: &[bool]| {
            let Room { files, receivers, strangers } = Room::new(descriptors, trees.iter().copied());
            (files, receivers + strangers, strangers)
        };
        assert_eq!(room(1024, &[true]), (64, 1024 - 64 - 49 - 32, 219));
        assert_eq!(room(4096, &[false, false, true]), (64, 4096 - 64 - 51 - 32, 256));
        assert_eq!(room(4096, &[]), (64, 4096 - 64 - 32, 256));
        // Little, and much that is named.
        assert_eq!(room(64, &[true]), (8, 8, 2));
        assert_eq!(room(1024, &[true; 100]), (64, 248, 62));
        assert_eq!(room(0, &[]), (1, 2, 1));
    }
}
