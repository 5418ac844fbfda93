//! A receiving context: the other end of [`Outgoing`](super::outgoing::Outgoing), a responder.

use std::collections::{BTreeMap, VecDeque};

use farlink_wire::fabric::datagram::{About, Ack, Clear, Data, JoinedAck, Parity, TAG};
use farlink_wire::quantity::Nanos;

use super::operation::EndpointId;
use super::outgoing::{GROUP, MOST_KEPT, MOST_PIECES, NO_GROUP, REORDERED};
use super::parity::{self, Piece};
use super::seal::{Cipher, Direction};

/// A receiving context.
///
/// 1. [`open`](Self::open) for what came, and of what that gave [`on_number`](Self::on_number), and [`on_data`](Self::on_data) or
///    [`on_parity`](Self::on_parity)
/// 2. [`poll`](Self::poll) until it yields `None`
/// 3. [`acknowledge`](Self::acknowledge) when all that had come was given
#[derive(Debug)]
pub struct Incoming {
    number: u64,
    cipher: Cipher,
    numbers: Numbers,
    /// The first piece that is not there.
    next: u32,
    /// Those behind it that are, with the first of their groups.
    early: BTreeMap<u32, (u32, Piece)>,
    early_bytes: usize,
    /// Pieces of the group of the last one that was given away, which its parity may be needed with.
    kept: VecDeque<Piece>,
    kept_group: u32,
    parities: BTreeMap<u32, Vec<(Parity, Vec<u8>)>>,
    owes: bool,
    /// Whether the peer said that it is there since it was last answered.
    asked: bool,
    /// What came that an acknowledgement has no room for together with what came later.
    unsaid: VecDeque<Vec<(u64, u64)>>,
    highest_at: Nanos,
    heard: Nanos,
    answers: u64,
    rebuilt: u64,
}

impl Incoming {
    /// Of a sender's context `number`.
    #[must_use]
    pub fn new(number: u64, cipher: Cipher, now: Nanos) -> Self {
        Self {
            number,
            cipher,
            numbers: Numbers::default(),
            next: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            kept: VecDeque::new(),
            kept_group: NO_GROUP,
            parities: BTreeMap::new(),
            owes: false,
            asked: false,
            unsaid: VecDeque::new(),
            highest_at: now,
            heard: now,
            answers: 0,
            rebuilt: 0,
        }
    }

    /// Which of the peer's contexts.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// When something last came.
    #[must_use]
    pub const fn heard(&self) -> Nanos {
        self.heard
    }

    /// Pieces that parity gave back.
    #[must_use]
    pub const fn rebuilt(&self) -> u64 {
        self.rebuilt
    }

    /// Bytes that wait for others.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.early_bytes
            + self.kept.iter().map(|piece| piece.frames.capacity()).sum::<usize>()
            + self.parities.values().flatten().map(|(_, shard)| shard.capacity()).sum::<usize>()
    }

    /// Opens a datagram that never came before. A piece for which there is no room is as if it had not come: it must not be acknowledged,
    /// for then it would not come again.
    pub fn open<'a>(&mut self, clear: Clear, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        if self.numbers.contains(clear.number) {
            return None;
        }
        let body = self.cipher.open(clear, Direction::Forth, datagram)?;
        match Data::decode(body) {
            Ok((data, _)) if has_data(clear.about) && !self.has_room(data.piece) => None,
            _ => Some(body),
        }
    }

    /// Whether a piece can be kept, or need not be.
    fn has_room(&self, piece: u32) -> bool {
        let ahead = piece.wrapping_sub(self.next);
        ahead == 0
            || ahead > u32::MAX / 2
            || (ahead < MOST_AHEAD && self.early_bytes < MOST_EARLY)
            || self.early.contains_key(&piece)
    }

    /// A genuine datagram came. Those that are to be answered are acknowledged.
    pub fn on_number(&mut self, now: Nanos, clear: Clear) {
        if self.numbers.forgets_unsaid() {
            self.unsaid.push_back(self.numbers.say());
        }
        if self.numbers.insert(clear.number) {
            self.highest_at = now;
        }
        self.heard = now;
        self.owes |= !matches!(clear.about, About::Disconnect | About::Farewell);
        self.asked |= clear.about == About::Connect;
    }

    /// A piece came: whether it is the next one, so that its frames may be taken at once, and [`Self::on_taken`] called.
    pub fn on_data(&mut self, data: Data, frames: &[u8]) -> bool {
        if data.piece == self.next {
            return true;
        }
        if !self.is_wanted(data.piece) {
            return false;
        }
        let piece = Piece { to: EndpointId(data.to), frames: frames.to_vec() };
        self.keep(data.piece, data.group, piece);
        if data.group != NO_GROUP {
            self.rebuild(data.group);
        }
        false
    }

    /// The piece that was next was taken: it is kept where parity may come that is about it and others.
    pub fn on_taken(&mut self, data: Data, frames: &[u8]) {
        self.next = self.next.wrapping_add(1);
        self.keep_taken(data.group, || Piece { to: EndpointId(data.to), frames: frames.to_vec() });
        if data.group != NO_GROUP {
            self.rebuild(data.group);
        }
    }

    fn keep_taken(&mut self, group: u32, piece: impl FnOnce() -> Piece) {
        if group != self.kept_group {
            self.kept.clear();
            self.kept_group = group;
        }
        if group != NO_GROUP {
            self.kept.push_back(piece());
        }
        if self.kept.len() >= GROUP as usize {
            self.let_go();
        }
    }

    /// The group that is being given away is whole: nothing of it is needed to rebuild others.
    fn let_go(&mut self) {
        self.kept = VecDeque::new();
        self.kept_group = NO_GROUP;
    }

    /// A shard of parity came.
    pub fn on_parity(&mut self, parity: Parity, shard: &[u8]) {
        let end = parity.group.wrapping_add(parity.pieces.into());
        // All of the group's pieces are there, or it is none that could be.
        if end.wrapping_sub(self.next) > MOST_AHEAD || end == self.next {
            if end == self.next && parity.group == self.kept_group {
                self.let_go();
            }
            return;
        }
        let shards = self.parities.entry(parity.group).or_default();
        if shards.iter().all(|(each, other)| {
            each.index != parity.index
                && each.of == parity.of
                && each.pieces == parity.pieces
                && other.len() == shard.len()
        }) {
            shards.push((parity, shard.to_vec()));
        }
        self.rebuild(parity.group);
    }

    /// Gives back what a group lacks, where enough of it is there.
    fn rebuild(&mut self, group: u32) {
        let Some(shards) = self.parities.get(&group) else { return };
        let Some(pieces) = shards.first().map(|(parity, _)| parity.pieces) else { return };
        let given = self.next.wrapping_sub(group);
        let given = if given <= u32::from(pieces) { given as usize } else { 0 };
        if given == usize::from(pieces) && self.kept_group == group {
            self.let_go();
            return;
        }
        // Of pieces that were given away some may not have been kept: the first of the group was sent before there was parity.
        if given > 0 && (self.kept_group != group || self.kept.len() != given) {
            return;
        }
        let early = |at: u16| {
            self.early.get(&group.wrapping_add(at.into())).map(|(_, piece)| (usize::from(at), piece))
        };
        let there: Vec<_> = self
            .kept
            .iter()
            .take(given)
            .enumerate()
            .chain((given as u16..pieces).filter_map(early))
            .collect();
        if there.len() == usize::from(pieces) || there.len() + shards.len() < usize::from(pieces) {
            return;
        }
        let rebuilt = parity::rebuild(pieces, there.into_iter(), shards);
        for (at, piece) in rebuilt {
            let number = group.wrapping_add(at as u32);
            if self.is_wanted(number) {
                self.rebuilt += 1;
                self.keep(number, group, piece);
            }
        }
        self.parities.remove(&group);
    }

    fn keep(&mut self, number: u32, group: u32, piece: Piece) {
        self.early_bytes += piece.frames.capacity();
        self.early.insert(number, (group, piece));
    }

    fn is_wanted(&self, piece: u32) -> bool {
        piece.wrapping_sub(self.next) < MOST_AHEAD && !self.early.contains_key(&piece)
    }

    /// The next piece in order, if it is there.
    pub fn poll(&mut self) -> Option<Piece> {
        let (group, piece) = self.early.remove(&self.next)?;
        self.early_bytes -= piece.frames.capacity();
        self.next = self.next.wrapping_add(1);
        self.keep_taken(group, || piece.clone());
        Some(piece)
    }

    /// Forgets parity of groups that are whole.
    fn forget(&mut self) {
        let next = self.next;
        self.parities.retain(|group, shards| {
            let end = group.wrapping_add(shards.first().map_or(0, |(parity, _)| parity.pieces.into()));
            end.wrapping_sub(next) <= MOST_AHEAD && end != next
        });
    }

    /// Writes an acknowledgement, where one is [owed](Self::owes): how many bytes. Another may be owed behind it.
    pub fn acknowledge(&mut self, now: Nanos, me: EndpointId, into: &mut [u8]) -> usize {
        if !self.owes {
            return 0;
        }
        let (number, ack) = self.answer(now);
        let ack = ack.encode();
        let clear = Clear { about: About::Ack, context: self.number, source: me.0, number };
        let written = Clear::LEN + ack.len() + TAG;
        self.cipher.seal(clear, Direction::Back, &mut into[..written], &ack);
        written
    }

    /// As [`acknowledge`](Self::acknowledge), within a datagram that has `room` for so many bytes: empty where they are too few.
    pub fn join(&mut self, now: Nanos, room: usize) -> Vec<u8> {
        let runs = self.unsaid.front().map_or(self.numbers.runs.len(), Vec::len);
        if !self.owes || JoinedAck::len_with(runs) > room {
            return Vec::new();
        }
        let (number, ack) = self.answer(now);
        JoinedAck { context: self.number, number, ack }.encode()
    }

    /// What is acknowledged next, and which acknowledgement it is.
    fn answer(&mut self, now: Nanos) -> (u64, Ack) {
        let unsaid = self.unsaid.pop_front();
        self.owes = unsaid.is_some();
        self.asked = false;
        let runs = unsaid.unwrap_or_else(|| self.numbers.say());
        self.forget();
        let delay_us = u32::try_from(now.since(self.highest_at).0 / 1000).unwrap_or(u32::MAX);
        self.answers += 1;
        (self.answers - 1, Ack { piece: self.next, delay_us, runs })
    }

    /// No acknowledgement is owed.
    pub fn ignore(&mut self) {
        self.owes = false;
        self.unsaid.clear();
    }

    /// Nobody takes its pieces any more: none are kept, and none acknowledged.
    pub fn abandon(&mut self) {
        (self.early, self.early_bytes) = (BTreeMap::new(), 0);
        (self.kept, self.kept_group) = (VecDeque::new(), NO_GROUP);
        self.parities = BTreeMap::new();
        self.ignore();
    }

    /// Whether an acknowledgement is owed.
    #[must_use]
    pub const fn owes(&self) -> bool {
        self.owes
    }

    /// Whether the sender goes on only when it has the acknowledgement that is owed: it waits to be admitted, or has something to repair.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.owes && (self.asked || self.numbers.tells_of_loss())
    }
}

/// Whether [`Data`] stand in a datagram.
const fn has_data(about: About) -> bool {
    matches!(about, About::Data | About::DataWithAck)
}

/// Numbers of datagrams that came, as runs: of what is older than the oldest run all is taken to have come.
#[derive(Clone, Debug, Default)]
struct Numbers {
    /// First and one past the last, highest first.
    runs: VecDeque<(u64, u64)>,
    forgotten: u64,
    /// Runs that have begun since they were last said.
    begun: usize,
    /// One past the highest that was said.
    said: u64,
}

impl Numbers {
    fn contains(&self, number: u64) -> bool {
        number < self.forgotten || self.runs.iter().any(|(first, end)| (*first..*end).contains(&number))
    }

    /// Adds a number that is not in it: whether it is the highest.
    fn insert(&mut self, number: u64) -> bool {
        let index = self.runs.iter().position(|(first, _)| *first <= number).unwrap_or(self.runs.len());
        let joins_lower = self.runs.get(index).is_some_and(|(_, end)| *end == number);
        let joins_higher = index > 0 && self.runs[index - 1].0 == number + 1;
        match (joins_lower, joins_higher) {
            (true, true) => {
                self.runs[index - 1].0 = self.runs[index].0;
                self.runs.remove(index);
            }
            (true, false) => self.runs[index].1 = number + 1,
            (false, true) => self.runs[index - 1].0 = number,
            (false, false) => {
                self.begun += 1;
                self.runs.insert(index, (number, number + 1));
            }
        }
        if self.runs.len() > Ack::RUNS
            && let Some((_, end)) = self.runs.pop_back()
        {
            self.forgotten = end;
        }
        self.runs.front().is_some_and(|(_, end)| *end == number + 1)
    }

    /// Whether the next run may put one out that was never said.
    fn forgets_unsaid(&self) -> bool {
        self.runs.len() >= Ack::RUNS && self.begun >= Ack::RUNS - 1
    }

    /// Whether the sender, told of them, takes something for lost that it did not before: until there are enough behind a gap, each may be
    /// what it lacks.
    fn tells_of_loss(&self) -> bool {
        self.runs.front().is_some_and(|(first, _)| *first > 0 && self.said < *first + REORDERED)
    }

    /// The runs, which are said now.
    fn say(&mut self) -> Vec<(u64, u64)> {
        self.begun = 0;
        self.said = self.runs.front().map_or(0, |(_, end)| *end);
        self.runs()
    }

    fn runs(&self) -> Vec<(u64, u64)> {
        self.runs.iter().copied().collect()
    }
}

/// Pieces ahead of the next that are kept, and bytes of them: twice as many as a sender of ours has under way, which is never refused one.
const MOST_AHEAD: u32 = 2 * MOST_PIECES as u32;
const MOST_EARLY: usize = 2 * MOST_KEPT;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_runs_from_the_highest_down(order in Just((0_u64..40).collect::<Vec<_>>()).prop_shuffle(), count in 1_usize..40) {
            let mut numbers = Numbers::default();
            for (at, number) in order[..count].iter().enumerate() {
                prop_assert!(!numbers.contains(*number));
                let highest = order[..at].iter().all(|other| other < number);
                prop_assert_eq!(numbers.insert(*number), highest);
                prop_assert!(numbers.contains(*number));
            }
            let mut sorted = order[..count].to_vec();
            sorted.sort_unstable();
            let flat: Vec<u64> = numbers.runs().into_iter().rev().flat_map(|(first, end)| first..end).collect();
            prop_assert_eq!(flat, sorted);
            prop_assert!(numbers.runs().windows(2).all(|pair| pair[0].0 > pair[1].1));
        }
    }

    #[test]
    fn a_gap_is_told_of_until_its_repair_has_begun() {
        let mut numbers = Numbers::default();
        let mut told = |number| {
            numbers.insert(number);
            let told = numbers.tells_of_loss();
            numbers.say();
            told
        };
        assert_eq!([0, 1, 2].map(&mut told), [false; 3]);
        // With the third behind it the sender knows; what was lost comes under another number.
        assert_eq!([4, 5, 6, 7, 8].map(&mut told), [true, true, true, false, false]);
        // What was late comes after all.
        assert_eq!([10, 9, 11].map(&mut told), [true, false, false]);
    }
}
