//! Pieces that go to peers by another process of their host, and come by another of this: numbered from one end to the other.
//!
//! The process that receives for its host acknowledges what it was sent before it has handed that on, and may end in between. So what a
//! peer is not known to have is kept, goes again by another process of its host when the first is lost, and is not taken twice; and what
//! a peer said before it ended is heard before its end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use farlink_wire::fabric::frame::{Frame, PART};
use farlink_wire::quantity::Nanos;

use crate::fabric::operation::PeerId;
use crate::fabric::outgoing::MOST_KEPT;
use crate::fabric::parity::Piece;

/// What goes to and comes from each peer by others.
#[derive(Debug, Default)]
pub(super) struct Relays {
    peers: BTreeMap<PeerId, Relay>,
    /// Peers that have ended, and of which something may still come.
    leaving: BTreeMap<PeerId, Leaving>,
    /// Neighbours that ended, and may not have handed on all that they were sent.
    ended: Vec<PeerId>,
    /// When peers are told what came that they do not know of.
    tell_at: Option<Nanos>,
    is_ending: bool,
    /// Bytes that are kept, and the most that there were.
    kept: usize,
    most_kept: usize,
    repeated: u64,
}

#[derive(Debug, Default)]
struct Relay {
    /// Pieces that the peer is not known to have: the first has number `first`, and those from `again` on are to be sent again.
    kept: VecDeque<Arc<Piece>>,
    first: u64,
    again: usize,
    bytes: usize,
    /// `first` when it was last looked, where something was kept then, and since when it has been that; and whether it was the same before.
    looked: Option<(u64, Nanos)>,
    is_stuck: bool,
    /// How many of its pieces came, and how many it knows that came.
    came: u64,
    told: u64,
    /// Whether it is told without being sent a piece.
    tells: bool,
    /// Who hands on what it says.
    by: Option<PeerId>,
}

#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// How many pieces it ever sent, where it said so.
    pieces: Option<u64>,
    until: Nanos,
}

/// A piece came before one that was sent before it.
#[derive(Debug)]
pub(super) struct Gap;

impl Relay {
    /// How many pieces it was ever sent.
    fn sent(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    /// The peer has all pieces before number `until`: bytes that need not be kept any more.
    fn release(&mut self, until: u64) -> usize {
        let count = until.saturating_sub(self.first).min(self.kept.len() as u64) as usize;
        let bytes = self.kept.drain(..count).map(|piece| piece.frames.capacity()).sum();
        self.first += count as u64;
        self.again = self.again.saturating_sub(count);
        self.bytes -= bytes;
        bytes
    }

    const fn owes(&self) -> bool {
        self.tells || self.came - self.told >= UNTOLD
    }
}

impl Relays {
    /// Whether there are pieces to be sent again to a peer, or it is to be told what came.
    pub(super) fn has_pieces(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_some_and(|relay| relay.again < relay.kept.len() || relay.owes())
    }

    /// Whether no more may be said to a peer before it has what it was sent, of which a little is kept however much the others have; but a
    /// little more, where it has [long](Self::unconfirmed) not said so: no answer to that shows that there is another way to be tried.
    pub(super) fn is_full(&self, peer: PeerId) -> bool {
        let most = if self.kept >= MOST_KEPT_OF_ALL { A_LITTLE } else { MOST_KEPT };
        let is_full = |relay: &Relay| relay.bytes >= most + if relay.is_stuck { A_LITTLE } else { 0 };
        self.peers.get(&peer).is_some_and(is_full) && !self.has_pieces(peer)
    }

    /// Whether anything that was sent is to be sent again.
    pub(super) fn repeats(&self) -> bool {
        self.peers.values().any(|relay| relay.again < relay.kept.len())
    }

    /// How many pieces a peer was ever sent.
    pub(super) fn sent(&self, peer: PeerId) -> u64 {
        self.peers.get(&peer).map_or(0, Relay::sent)
    }

    /// The next piece that is to be sent again to a peer.
    pub(super) fn next_again(&mut self, peer: PeerId) -> Option<Arc<Piece>> {
        let relay = self.peers.get_mut(&peer)?;
        let piece = relay.kept.get(relay.again)?;
        relay.again += 1;
        self.repeated += 1;
        Some(Arc::clone(piece))
    }

    /// Writes what the next piece to a peer begins with ([`HEAD`] bytes), where it says something or is to tell what came: `said` bytes stand
    /// behind it. False where it need not be sent.
    pub(super) fn begin(&mut self, peer: PeerId, said: usize, into: &mut [u8]) -> bool {
        let relay = self.peers.entry(peer).or_default();
        if said == 0 && !relay.owes() {
            return false;
        }
        let number = (said > 0).then(|| relay.sent());
        Frame::Numbered { number, taken: relay.came }.encode_head(0, into);
        (relay.told, relay.tells) = (relay.came, false);
        true
    }

    /// Keeps a piece that begins with a number, until the peer has it.
    pub(super) fn keep(&mut self, peer: PeerId, piece: &Arc<Piece>) {
        let relay = self.peers.entry(peer).or_default();
        debug_assert_eq!(relay.again, relay.kept.len(), "what goes again goes before what is new");
        relay.kept.push_back(Arc::clone(piece));
        relay.again = relay.kept.len();
        relay.bytes += piece.frames.capacity();
        self.kept += piece.frames.capacity();
        self.most_kept = self.most_kept.max(self.kept);
    }

    /// All that a peer is not known to have is to be sent again, and it may not know what came.
    pub(super) fn send_again(&mut self, peer: PeerId) {
        if let Some(relay) = self.peers.get_mut(&peer) {
            (relay.again, relay.told) = (0, 0);
            // It has as long to answer what comes by that way.
            relay.looked = None;
        }
    }

    /// Frames of a peer came: those that are to be taken now, none where they were taken before.
    pub(super) fn on_piece<'a>(
        &mut self,
        now: Nanos,
        from: PeerId,
        frames: &'a [u8],
    ) -> Result<Option<&'a [u8]>, Gap> {
        let Ok(Some((Frame::Numbered { number, taken }, rest))) = Frame::decode(frames) else {
            return Ok(Some(frames));
        };
        let relay = self.peers.entry(from).or_default();
        self.kept -= relay.release(taken);
        let Some(number) = number else { return Ok(Some(rest)) };
        if number > relay.came {
            return Err(Gap);
        }
        if number < relay.came {
            // It was told, and does not know.
            relay.told = 0;
            self.tell_at.get_or_insert(now.after(TELL_AFTER));
            return Ok(None);
        }
        relay.came += 1;
        // Who ends and stays long, for others have not taken all that it said, lives.
        self.tell_at.get_or_insert(now.after(TELL_AFTER));
        Ok(Some(rest))
    }

    /// What a peer says comes by way of a neighbour.
    pub(super) fn on_handed(&mut self, from: PeerId, by: PeerId) {
        self.peers.entry(from).or_default().by = Some(by);
    }

    /// Peers that have not said since this was last asked that they have what they were sent: who was to hand it on may have ended, and
    /// whoever acknowledged it owes no answer.
    pub(super) fn unconfirmed(&mut self, now: Nanos) -> Vec<PeerId> {
        let leaving = &self.leaving;
        let look = |(peer, relay): (&PeerId, &mut Relay)| {
            let before = relay.looked.filter(|(first, _)| *first == relay.first);
            relay.is_stuck = before.is_some() && !relay.kept.is_empty();
            // What has not left by its new way cannot be answered.
            let all_left = !relay.kept.is_empty() && relay.again == relay.kept.len();
            relay.looked = all_left.then(|| before.unwrap_or((relay.first, now)));
            (relay.is_stuck && !leaving.contains_key(peer)).then_some(*peer)
        };
        self.peers.iter_mut().filter_map(look).collect()
    }

    /// Peers that have not said for so long that they have what left for them, though they were [asked](Self::unconfirmed), and another of
    /// their host answers for it, or is given up itself: they do not run.
    pub(super) fn silent(&self, now: Nanos, silence: Nanos) -> Vec<PeerId> {
        let is_silent = |relay: &Relay| relay.looked.is_some_and(|(_, since)| now.since(since) >= silence);
        let silent = self.peers.iter().filter(|(_, relay)| is_silent(relay));
        silent.map(|(peer, _)| *peer).filter(|peer| !self.leaving.contains_key(peer)).collect()
    }

    /// A neighbour ended.
    pub(super) fn on_ended(&mut self, neighbour: PeerId) {
        if !self.is_ending {
            self.ended.push(neighbour);
        }
    }

    /// This process ends: nothing more is said that only who goes on needs.
    pub(super) fn on_ending(&mut self) {
        (self.is_ending, self.tell_at) = (true, None);
        self.ended.clear();
    }

    /// Neighbours that ended since this was last asked, each with whom it handed on the pieces of, last: they may not know. That they are not
    /// told at once leaves who ends, too, in peace.
    pub(super) fn ended(&mut self) -> Vec<(PeerId, PeerId)> {
        let ended = std::mem::take(&mut self.ended);
        let by = |(peer, relay): (&PeerId, &Relay)| Some((relay.by?, *peer));
        self.peers.iter().filter_map(by).filter(|(by, _)| ended.contains(by)).collect()
    }

    /// A peer has ended, as it says having sent so many `pieces`, or as another says: whether something of it may still come, for which
    /// to wait until then at most.
    pub(super) fn on_leaving(&mut self, peer: PeerId, pieces: Option<u64>, until: Nanos) -> bool {
        let came = self.peers.get(&peer).map_or(0, |relay| relay.came);
        if pieces.is_some_and(|pieces| pieces <= came) {
            return false;
        }
        let known = self.leaving.get(&peer).is_some_and(|leaving| leaving.pieces.is_some());
        if pieces.is_some() || !known {
            self.leaving.insert(peer, Leaving { pieces, until });
        }
        true
    }

    /// Whether a peer has ended, and something of it may still come.
    pub(super) fn is_leaving(&self, peer: PeerId) -> bool {
        self.leaving.contains_key(&peer)
    }

    /// Whether a peer has ended, and all that it ever sent came.
    pub(super) fn has_left(&self, peer: PeerId) -> bool {
        let pieces = self.leaving.get(&peer).and_then(|leaving| leaving.pieces);
        pieces.is_some_and(|pieces| self.peers.get(&peer).is_some_and(|relay| relay.came >= pieces))
    }

    /// Peers that have ended, and of which nothing more is waited for.
    pub(super) fn overdue(&self, now: Nanos) -> Vec<PeerId> {
        self.leaving.iter().filter(|(_, leaving)| leaving.until <= now).map(|(peer, _)| *peer).collect()
    }

    /// This process did not run for so long: they are waited for as much longer, but no longer than until `most`.
    pub(super) fn on_pause(&mut self, pause: Nanos, most: Nanos) {
        self.leaving.values_mut().for_each(|leaving| leaving.until = leaving.until.after(pause).min(most));
        for (_, since) in self.peers.values_mut().filter_map(|relay| relay.looked.as_mut()) {
            *since = since.after(pause);
        }
    }

    /// When the first of them is, or somebody is to be [told](Self::tell).
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.leaving.values().map(|leaving| leaving.until).chain(self.tell_at).min()
    }

    /// A peer failed.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.leaving.remove(&peer);
        if let Some(relay) = self.peers.remove(&peer) {
            self.kept -= relay.bytes;
        }
    }

    /// Time passed: peers that are to be told what came, so that they need not keep it.
    pub(super) fn tell(&mut self, now: Nanos) -> Vec<PeerId> {
        if self.tell_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.tell_at = None;
        let untold = self.peers.iter_mut().filter(|(_, relay)| relay.came > relay.told);
        let tell = |(peer, relay): (&PeerId, &mut Relay)| {
            relay.tells = true;
            *peer
        };
        untold.map(tell).collect()
    }

    /// What it did.
    pub(super) fn statistics(&self) -> Vec<(&'static str, u64)> {
        vec![("pieces_by_another_way", self.repeated), ("bytes_relayed_kept", self.most_kept as u64)]
    }
}

/// Bytes that are kept for all peers together, but for a little of each: what four may have that take all that one may.
const MOST_KEPT_OF_ALL: usize = 4 * MOST_KEPT;

/// Bytes that are kept of a peer that has said for long not what it has, beyond the most that are usually; and of one where there is too much
/// of all.
const A_LITTLE: usize = 64 << 10;

/// Bytes that a piece begins with which has a number.
pub(super) const HEAD: usize = PART;

/// Pieces after which a peer is told that they came, where it is not told by pieces that it is sent: it keeps half a megabyte of them.
const UNTOLD: u64 = 64;

/// After which it is told of fewer: most peers have answered by then.
const TELL_AFTER: Nanos = Nanos(200_000_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::operation::EndpointId;

    const PEER: PeerId = PeerId(3);
    const NOW: Nanos = Nanos(1);
    const LATER: Nanos = Nanos(NOW.0 + TELL_AFTER.0);

    fn sent(relays: &mut Relays, byte: u8) -> Vec<u8> {
        let mut frames = vec![byte; HEAD + 1];
        assert!(relays.begin(PEER, 1, &mut frames));
        relays.keep(PEER, &Arc::new(Piece { to: EndpointId(1), frames: frames.clone() }));
        frames
    }

    #[test]
    fn what_is_not_known_to_have_come_goes_again_and_is_taken_once() {
        let (mut here, mut there) = (Relays::default(), Relays::default());
        let pieces: Vec<Vec<u8>> = (0..5).map(|byte| sent(&mut here, byte)).collect();
        for piece in &pieces[..3] {
            assert_eq!(there.on_piece(NOW, PEER, piece).unwrap(), Some(&piece[HEAD..]));
        }
        // It says so when time has passed, without a number.
        assert!(!there.has_pieces(PEER) && there.tell(LATER) == [PEER] && there.has_pieces(PEER));
        let mut word = vec![0; HEAD];
        assert!(there.begin(PEER, 0, &mut word) && !there.begin(PEER, 0, &mut [0; HEAD]));
        assert_eq!(here.on_piece(NOW, PEER, &word).unwrap(), Some(&[][..]));
        assert!(!here.has_pieces(PEER) && here.tell(LATER).is_empty());
        here.send_again(PEER);
        assert!(here.has_pieces(PEER) && here.repeats());
        let again: Vec<u8> =
            std::iter::from_fn(|| here.next_again(PEER)).map(|piece| piece.frames[HEAD]).collect();
        assert_eq!((again, here.sent(PEER)), (vec![3, 4], 5));
        // By the first way all but the last came, too.
        for (piece, new) in [(2, false), (3, true), (3, false), (4, true), (4, false)] {
            assert_eq!(there.on_piece(NOW, PEER, &pieces[piece]).unwrap().is_some(), new);
        }
        assert!(there.on_piece(NOW, PEER, &sent(&mut here, 5)).unwrap().is_some());
        sent(&mut here, 6);
        assert!(there.on_piece(NOW, PEER, &sent(&mut here, 7)).is_err());
    }

    #[test]
    fn who_keeps_much_is_told_soon_what_came() {
        let (mut here, mut there) = (Relays::default(), Relays::default());
        for count in 1..=UNTOLD {
            let piece = sent(&mut here, 0);
            assert!(there.on_piece(NOW, PEER, &piece).unwrap().is_some());
            assert_eq!(there.has_pieces(PEER), count == UNTOLD);
        }
        assert!(here.kept > 0);
        let mut word = vec![0; HEAD];
        assert!(there.begin(PEER, 0, &mut word) && here.on_piece(NOW, PEER, &word).is_ok());
        assert_eq!((here.kept, there.has_pieces(PEER)), (0, false));
        // Who ends waits for nobody to hear that, but says that it lives to who asks.
        assert!(there.on_piece(NOW, PEER, &sent(&mut here, 0)).is_ok());
        there.on_ending();
        assert!(there.deadline().is_none());
        assert!(there.on_piece(NOW, PEER, &sent(&mut here, 0)).is_ok());
        assert!(there.tell(LATER) == [PEER] && there.has_pieces(PEER));
        here.forget(PEER);
        assert_eq!((here.kept, here.sent(PEER)), (0, 0));
    }

    #[test]
    fn who_does_not_say_for_long_what_it_has_is_asked() {
        let mut relays = Relays::default();
        let frames = vec![0; MOST_KEPT];
        relays.keep(PEER, &Arc::new(Piece { to: EndpointId(1), frames }));
        assert!(relays.unconfirmed(NOW).is_empty() && !relays.has_pieces(PEER) && relays.is_full(PEER));
        assert!(relays.unconfirmed(NOW) == [PEER] && !relays.is_full(PEER), "a word may go");
        relays.on_leaving(PEER, None, Nanos(9));
        assert!(relays.unconfirmed(NOW).is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded_for_all_peers_together() {
        let mut relays = Relays::default();
        let piece = Arc::new(Piece { to: EndpointId(1), frames: vec![0; A_LITTLE] });
        for peer in (0..100).map(PeerId) {
            while !relays.is_full(peer) {
                relays.keep(peer, &piece);
            }
        }
        assert!(relays.sent(PeerId(0)) > 1 && relays.sent(PeerId(99)) == 1, "each may say something");
        assert!((MOST_KEPT_OF_ALL..=MOST_KEPT_OF_ALL + 100 * A_LITTLE).contains(&relays.kept));
        relays.forget(PeerId(0));
        assert!(!relays.is_full(PeerId(99)));
    }

    #[test]
    fn a_peer_has_left_when_all_that_it_sent_came() {
        let (mut here, mut there) = (Relays::default(), Relays::default());
        let pieces: Vec<Vec<u8>> = (0..2).map(|byte| sent(&mut here, byte)).collect();
        assert!(there.on_piece(NOW, PEER, &pieces[0]).is_ok());
        assert!(!there.on_leaving(PEER, Some(1), Nanos(9)) && there.on_leaving(PEER, None, Nanos(5)));
        assert!(there.on_leaving(PEER, Some(2), Nanos(7)) && there.on_leaving(PEER, None, Nanos(8)));
        assert!(!there.has_left(PEER) && there.deadline() == Some(Nanos(7)));
        assert!(there.overdue(Nanos(6)).is_empty() && there.overdue(Nanos(7)) == [PEER]);
        // It is not waited for while nobody is there to hear it.
        there.on_pause(Nanos(90), Nanos(1000));
        assert!(there.overdue(Nanos(96)).is_empty() && there.deadline() == Some(Nanos(97)));
        there.on_pause(Nanos(90), Nanos(100));
        assert_eq!(there.deadline(), Some(Nanos(100)));
        assert!(there.on_piece(NOW, PEER, &pieces[1]).is_ok() && there.has_left(PEER));
    }
}
