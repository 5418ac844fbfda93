//! Who waits for unicast, and in which order.

use std::collections::VecDeque;

/// Which of the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Of those who seldom lose anything: they do not wait for the others.
    Few,
    /// Of those who lose much.
    Many,
}

/// Receivers that wait, in two rounds, next first.
#[derive(Debug, Default)]
pub(super) struct Turns {
    few: VecDeque<u32>,
    many: VecDeque<u32>,
}

impl Turns {
    /// A receiver has its turn after all others of the round.
    pub(super) fn push(&mut self, round: Round, receiver: u32) {
        self.of(round).push_back(receiver);
    }

    /// Whose turn it is.
    pub(super) fn pop(&mut self, round: Round) -> Option<u32> {
        self.of(round).pop_front()
    }

    /// How many wait in a round.
    pub(super) fn count(&self, round: Round) -> usize {
        match round {
            Round::Few => self.few.len(),
            Round::Many => self.many.len(),
        }
    }

    /// Those that wait in a round.
    pub(super) fn each(&self, round: Round) -> impl Iterator<Item = u32> {
        let receivers = match round {
            Round::Few => &self.few,
            Round::Many => &self.many,
        };
        receivers.iter().copied()
    }

    const fn of(&mut self, round: Round) -> &mut VecDeque<u32> {
        match round {
            Round::Few => &mut self.few,
            Round::Many => &mut self.many,
        }
    }
}
