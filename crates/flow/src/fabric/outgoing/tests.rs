use std::collections::BTreeSet;

use farlink_wire::fabric::datagram::DatagramError;

use super::*;
use crate::fabric::incoming::Incoming;

/// Whose acknowledgements leave by themselves.
const fn alone(_: EndpointId, _: usize) -> Vec<u8> {
    Vec::new()
}

/// Both ends of a context.
struct Pair {
    outgoing: Outgoing,
    incoming: Incoming,
    path: Path,
    now: Nanos,
    numbers: BTreeSet<u64>,
    came: Vec<Vec<u8>>,
}

impl Pair {
    fn new() -> Self {
        let (from, to, now) = (EndpointId(1), EndpointId(2), Nanos(1));
        let address = ([10, 0, 0, 2], 7).into();
        let route = Route { from, host: HostId(1), to, peer: PeerId(0), address, number: 1 };
        let cipher = || Cipher::new(&[1; 32], from, to, 1).unwrap();
        Self {
            outgoing: Outgoing::new(route, cipher(), false, false, now),
            incoming: Incoming::new(1, cipher(), now),
            path: Path::new(None, 1, 66, now),
            now,
            numbers: BTreeSet::new(),
            came: Vec::new(),
        }
    }

    /// Sends a group of pieces of one byte each: their datagrams, and those of their parity.
    fn group(&mut self, pieces: u8) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        for piece in 0..pieces {
            let piece = Piece { to: EndpointId(2), frames: vec![piece] };
            self.outgoing.push(self.now, piece, &self.path);
            sent.extend(self.sent());
        }
        self.outgoing.flush(&self.path);
        sent.extend(self.sent());
        sent
    }

    /// All that it wants to send now.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        while self.outgoing.wants_to_send() {
            let mut datagram = vec![0; 200];
            let written = self.outgoing.poll(self.now, &mut self.path, &mut datagram, &mut alone);
            assert!(written > 0, "it has nothing to send");
            datagram.truncate(written);
            sent.push(datagram);
        }
        sent
    }

    /// Datagrams arrive, and so does their acknowledgement.
    fn arrive(&mut self, datagrams: &[Vec<u8>]) {
        self.now = self.now.after(Nanos(1_000_000));
        datagrams.iter().for_each(|datagram| self.take(datagram));
        while let Some(piece) = self.incoming.poll() {
            self.came.push(piece.frames);
        }
        while self.incoming.owes() {
            let mut answer = [0; 2000];
            let written = self.incoming.acknowledge(self.now, EndpointId(2), &mut answer);
            let clear = Clear::decode(&answer[..written]).unwrap();
            let ack = self.outgoing.open_ack(clear, &mut answer[..written]).unwrap();
            self.outgoing.on_ack(self.now, clear.number, &ack, &mut self.path);
        }
    }

    /// A datagram arrives.
    fn take(&mut self, datagram: &[u8]) {
        let (clear, body) = self.opens(datagram).unwrap();
        self.incoming.on_number(self.now, clear);
        self.hear(clear.about, &body).unwrap();
    }

    /// What a datagram says that the other end takes.
    fn opens(&mut self, datagram: &[u8]) -> Option<(Clear, Vec<u8>)> {
        let clear = Clear::decode(datagram).unwrap();
        self.incoming.open(clear, &mut datagram.to_vec()).map(|body| (clear, body.to_vec()))
    }

    fn hear(&mut self, about: About, body: &[u8]) -> Result<(), DatagramError> {
        match about {
            About::Data => {
                let (data, frames) = Data::decode(body)?;
                if self.incoming.on_data(data, frames) {
                    self.incoming.on_taken(data, frames);
                    self.came.push(frames.to_vec());
                }
            }
            _ => {
                let (parity, shard) = Parity::decode(body)?;
                self.incoming.on_parity(parity, shard);
            }
        }
        Ok(())
    }

    fn note(&mut self, datagrams: &[Vec<u8>]) {
        for datagram in datagrams {
            assert!(self.numbers.insert(Clear::decode(datagram).unwrap().number), "a nonce is used once");
        }
    }
}

#[test]
fn what_parity_may_bring_back_keeps_nothing_waiting() {
    let mut pair = Pair::new();
    let sent = pair.group(20);
    let parity = sent.len() - 20;
    assert!(parity > 0);
    // The third piece is lost, and the parity is still on its way.
    pair.arrive(&[&sent[..2], &sent[3..20]].concat());
    assert_eq!((pair.came.len(), pair.outgoing.counts().lost), (2, 1));
    assert!(!pair.outgoing.wants_to_send() && pair.outgoing.may_push() && !pair.outgoing.is_drained());
    pair.arrive(&sent[20..]);
    assert_eq!((pair.came.len(), pair.outgoing.counts().retransmits), (20, 0));
    assert!(pair.outgoing.is_drained());
}

#[test]
fn what_parity_did_not_bring_back_goes_again() {
    let mut pair = Pair::new();
    let sent = pair.group(20);
    // One piece more is lost than there is parity.
    let parity = sent.len() - 20;
    pair.arrive(&sent[parity + 1..]);
    let again = pair.sent();
    assert_eq!(again.len(), parity + 1);
    pair.arrive(&again);
    assert!(pair.outgoing.is_drained() && pair.came.len() == 20 && pair.came.is_sorted());
}

#[test]
fn a_group_of_which_all_has_come_ends() {
    let mut pair = Pair::new();
    pair.outgoing.push(pair.now, Piece { to: EndpointId(2), frames: vec![7] }, &pair.path);
    let sent = pair.sent();
    assert!(!pair.outgoing.is_drained());
    pair.arrive(&sent);
    assert!(pair.outgoing.is_drained() && pair.outgoing.deadline(&pair.path).is_none());
}

#[test]
fn last_words_have_numbers_of_their_own() {
    let mut pair = Pair::new();
    let sent = pair.group(20);
    pair.note(&sent);
    // All pieces have come, and the parity is still under way.
    pair.arrive(&sent[..20]);
    assert!(pair.outgoing.is_drained() && pair.path.flying() > 0);
    pair.outgoing.close(&mut pair.path);
    assert_eq!(pair.path.flying(), 0);
    let mut word = vec![0; 200];
    let written = pair.outgoing.word(pair.now, &mut pair.path, About::Disconnect, &[], &mut word);
    word.truncate(written);
    pair.note(&[word]);
}

#[test]
fn behind_a_lost_piece_no_more_leaves_than_the_other_end_keeps() {
    let mut pair = Pair::new();
    // As many as it may, of which the first is lost, and all acknowledged but that one.
    let (mut sent, mut datagram) = (0, vec![0; 200]);
    while pair.outgoing.may_push() {
        pair.outgoing.push(pair.now, Piece { to: EndpointId(2), frames: vec![7] }, &pair.path);
        pair.outgoing.flush(&pair.path);
        let mut arrives = sent > 0;
        while pair.outgoing.wants_to_send() {
            let written = pair.outgoing.poll(pair.now, &mut pair.path, &mut datagram, &mut alone);
            if std::mem::replace(&mut arrives, sent > 0) {
                pair.take(&datagram[..written]);
            }
        }
        sent += 1;
        assert!(sent <= MOST_PIECES, "nothing holds it");
    }
    assert_eq!((sent, pair.came.len()), (MOST_PIECES, 0));
    pair.arrive(&[]);
    let again = pair.sent();
    assert!(!again.is_empty() && !pair.outgoing.may_push());
    pair.arrive(&again);
    assert!(pair.outgoing.is_drained() && pair.outgoing.may_push() && pair.outgoing.kept_bytes() == 0);
    assert_eq!(pair.came.len(), MOST_PIECES);
}

#[test]
fn behind_a_lost_piece_no_more_bytes_are_kept_than_windows_have() {
    let mut pair = Pair::new();
    let mut sent = 0;
    while pair.outgoing.may_push() {
        let mut frames = Vec::with_capacity(1 << 20);
        frames.push(7);
        pair.outgoing.push(pair.now, Piece { to: EndpointId(2), frames }, &pair.path);
        pair.sent();
        sent += 1;
        assert!(sent <= MOST_PIECES, "nothing holds it");
    }
    assert!(pair.outgoing.kept_bytes() < MOST_KEPT + (2 << 20), "{sent}");
}

#[test]
fn what_is_thrown_away_is_not_acknowledged() {
    let mut pair = Pair::new();
    // Of a sender that does not hold back.
    pair.outgoing.first_piece = u32::try_from(2 * MOST_PIECES).unwrap();
    let sent = pair.group(1);
    assert!(pair.opens(&sent[0]).is_none());
    pair.outgoing.first_piece -= 1;
    pair.outgoing.pieces.clear();
    let sent = pair.group(1);
    assert!(pair.opens(&sent[0]).is_some());
}

#[test]
fn however_many_holes_there_are_what_came_is_not_taken_for_lost() {
    let mut pair = Pair::new();
    let mut sent = Vec::new();
    for number in 0..500_u16 {
        pair.outgoing.push(pair.now, Piece { to: EndpointId(2), frames: vec![number as u8] }, &pair.path);
        sent.extend(pair.sent());
    }
    // Two of three come, all at once.
    let (came, lost): (Vec<_>, Vec<_>) = sent.into_iter().enumerate().partition(|(at, _)| at % 3 != 1);
    let came: Vec<_> = came.into_iter().map(|(_, datagram)| datagram).collect();
    pair.arrive(&came);
    let counted = pair.outgoing.counts().lost;
    assert!(counted > 160 && counted <= lost.len() as u64, "{counted} of {}", lost.len());
}

/// One whose path has lost nothing for long, and takes a millisecond: no parity is sent.
fn without_loss() -> Pair {
    let mut pair = Pair::new();
    for _ in 0..700 {
        let sent = pair.group(1);
        pair.arrive(&sent);
    }
    assert!(pair.outgoing.is_drained() && pair.group(0).is_empty());
    pair
}

#[test]
fn what_the_next_message_overtook_goes_again_when_that_is_answered() {
    let mut pair = without_loss();
    let lost = pair.group(1);
    pair.now = pair.now.after(Nanos(500_000));
    let next = pair.group(1);
    assert_eq!((lost.len(), next.len()), (1, 1));
    let counts = pair.outgoing.counts();
    pair.arrive(&next);
    let again = pair.sent();
    assert_eq!(again.len(), 1, "nobody waits for the time after which it would be asked about");
    pair.arrive(&again);
    assert!(pair.outgoing.is_drained() && pair.came.len() == 702);
    let Counts { lost, retransmits, timeouts, .. } = pair.outgoing.counts();
    assert_eq!((lost, retransmits, timeouts), (counts.lost + 1, counts.retransmits + 1, counts.timeouts));
}

#[test]
fn what_was_overtaken_has_a_quarter_of_a_round_trip_to_arrive_all_the_same() {
    for arrives in [true, false] {
        let mut pair = without_loss();
        let began = pair.now;
        let late = pair.group(1);
        pair.now = pair.now.after(Nanos(100_000));
        let next = pair.group(1);
        let lost = pair.outgoing.counts().lost;
        pair.arrive(&next);
        assert!(!pair.outgoing.wants_to_send());
        let due = pair.outgoing.deadline(&pair.path).unwrap();
        let waited = due.since(began);
        assert!((1_240_000..1_260_000).contains(&waited.0), "{waited}");
        if arrives {
            pair.take(&late[0]);
            pair.arrive(&[]);
        }
        pair.outgoing.on_time(due, &mut pair.path);
        assert_eq!(
            (pair.outgoing.counts().lost - lost, pair.sent().len()),
            if arrives { (0, 0) } else { (1, 1) }
        );
    }
}
