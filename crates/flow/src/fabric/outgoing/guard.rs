//! Which pieces of a sending context are guarded by parity, and the parity that has not left.

use std::collections::VecDeque;

use farlink_wire::fabric::datagram::Parity;

use super::NO_GROUP;
use crate::fabric::parity::{self, Piece};

/// Groups of pieces, from their first piece until their parity has left. It is made when nothing else is left to be sent: what it is about
/// does not wait for it.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// The first piece of the group that has begun.
    begun: Option<u32>,
    ended: VecDeque<Group>,
    shards: VecDeque<(Parity, Vec<u8>)>,
}

/// One that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) first: u32,
    pub(super) pieces: u16,
    /// Shards of parity.
    of: u16,
}

impl Guard {
    /// The group that a piece belongs to: one that has begun, or begins with it where pieces are `guarded`.
    pub(super) fn group_of(&mut self, piece: u32, guarded: bool) -> u32 {
        match self.begun {
            Some(group) => group,
            // A group of that name is none: the piece goes unguarded, and the next begins one.
            None if guarded && piece != NO_GROUP => *self.begun.insert(piece),
            None => NO_GROUP,
        }
    }

    /// The group that has begun.
    pub(super) const fn begun(&self) -> Option<u32> {
        self.begun
    }

    /// The group that has begun ends, with so many `pieces` and `of` shards of parity.
    pub(super) fn end(&mut self, pieces: u16, of: u16) {
        let ended = self.begun.take().filter(|_| of > 0);
        self.ended.extend(ended.map(|first| Group { first, pieces, of }));
    }

    /// Whether parity is to be sent.
    pub(super) fn has_parity(&self) -> bool {
        !self.ended.is_empty() || !self.shards.is_empty()
    }

    /// Whether parity of a group is to be sent.
    pub(super) fn has_parity_of(&self, group: u32) -> bool {
        let mut ended = self.ended.iter().map(|each| each.first);
        ended.any(|first| first == group) || self.shards.iter().any(|(parity, _)| parity.group == group)
    }

    /// The next shard, where it is made.
    pub(super) fn next(&mut self) -> Option<(Parity, Vec<u8>)> {
        self.shards.pop_front()
    }

    /// The next group whose parity is to be made.
    pub(super) fn next_group(&mut self) -> Option<Group> {
        self.ended.pop_front()
    }

    /// Makes a group's parity, of its pieces: how many shards.
    pub(super) fn make<'a>(
        &mut self,
        group: Group,
        pieces: impl ExactSizeIterator<Item = &'a Piece> + Clone,
    ) -> usize {
        let Group { first, pieces: count, of } = group;
        let made = (0..).zip(parity::shards(pieces, of));
        self.shards
            .extend(made.map(|(index, shard)| (Parity { group: first, pieces: count, index, of }, shard)));
        self.shards.len()
    }

    /// Forgets groups of which all `has_come`, from the first piece and of so many: they need no parity.
    pub(super) fn forget(&mut self, has_come: impl Fn(u32, Option<u16>) -> bool) {
        self.ended.retain(|group| !has_come(group.first, Some(group.pieces)));
        self.begun = self.begun.filter(|first| !has_come(*first, None));
    }

    /// The first piece that parity will be made with.
    pub(super) fn first(&self) -> Option<u32> {
        self.ended.front().map(|group| group.first).or(self.begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_group_begins_with_the_piece_whose_number_is_none_s() {
        let mut guard = Guard::default();
        assert_eq!((guard.group_of(NO_GROUP, true), guard.begun()), (NO_GROUP, None));
        assert_eq!((guard.group_of(0, true), guard.begun()), (0, Some(0)));
        // One that has begun goes on beyond it.
        let mut guard = Guard::default();
        let groups = [NO_GROUP - 1, NO_GROUP, 0].map(|piece| guard.group_of(piece, true));
        assert_eq!(groups, [NO_GROUP - 1; 3]);
    }
}
