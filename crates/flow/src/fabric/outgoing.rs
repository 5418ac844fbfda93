//! A sending context: what a queue pair is for the adapters that these transports come from.

mod counts;
mod guard;
mod losses;
mod repair;
mod silence;

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::Arc;

use farlink_wire::fabric::datagram::{About, Ack, Clear, Connect, Data, OVERHEAD, Parity, TAG};
use farlink_wire::quantity::Nanos;

pub use self::counts::Counts;
use self::guard::Guard;
use self::repair::Repair;
use super::congestion::MOST_WINDOW;
use super::operation::{EndpointId, HostId, PeerId};
use super::parity::{FRONT, Piece};
use super::path::Path;
use super::seal::{Cipher, Direction};

/// Whose context it is, and where it leads.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The endpoint that sends.
    pub from: EndpointId,
    /// Its host.
    pub host: HostId,
    /// The endpoint that receives.
    pub to: EndpointId,
    /// As which peer that is known.
    pub peer: PeerId,
    /// Where its datagrams go.
    pub address: SocketAddr,
    /// Which of the sender's contexts this is: it never has two of one number.
    pub number: u64,
}

/// Gives the acknowledgement ([`JoinedAck`](farlink_wire::fabric::datagram::JoinedAck)) that is owed to an endpoint, for a datagram to it
/// that has so many bytes without; empty where none is, or has room.
pub type Join<'a> = dyn FnMut(EndpointId, usize) -> Vec<u8> + 'a;

/// A sending context.
///
/// 1. [`push`](Self::push) a piece while [`may_push`](Self::may_push), [`flush`](Self::flush) where no other follows at once
/// 2. [`poll`](Self::poll) until it yields 0
/// 3. [`on_time`](Self::on_time) no later than [`deadline`](Self::deadline)
#[derive(Debug)]
pub struct Outgoing {
    route: Route,
    cipher: Cipher,
    /// Whether it waits to be admitted before it sends, and whether it says that it is there.
    open: bool,
    asks: bool,
    full: bool,
    /// What left and is not settled: the first has number `first_flight`.
    flights: VecDeque<Flight>,
    first_flight: u64,
    /// Pieces that are not settled: the first is `first_piece`.
    pieces: VecDeque<Held>,
    kept: usize,
    first_piece: u32,
    unsent: VecDeque<u32>,
    /// Those that were lost: to be sent again, and such as parity on its way may bring back.
    again: VecDeque<u32>,
    guarded: Vec<u32>,
    guard: Guard,
    highest: Option<u64>,
    /// When the first of those that were overtaken is lost, where it has not arrived.
    late_at: Option<Nanos>,
    /// How long a repair is waited for.
    repair: Repair,
    /// How many acknowledgements there were, by the number of the last: an earlier one tells nothing of now.
    answers: u64,
    /// How often nothing was heard in time, in a row.
    unheard: u32,
    /// When something last left, and when something was last heard while something was owed.
    last_sent: Nanos,
    last_heard: Nanos,
    opened: Nanos,
    counts: Counts,
}

#[derive(Debug)]
struct Held {
    piece: Arc<Piece>,
    group: u32,
    /// The datagram that carried it last.
    flight: Option<u64>,
    /// The last datagram of its group's parity, until which it need not go again.
    parity: Option<u64>,
    settled: bool,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    what: What,
    at: Nanos,
    bytes: u32,
    flies: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Connect,
    Piece(u32),
    Parity,
    Word,
}

impl Outgoing {
    /// One that leads along `route`; with a `full` handshake it sends nothing else before it was admitted, otherwise it says that it is
    /// there with the first of its datagrams; where it need not `ask` it does neither.
    #[must_use]
    pub fn new(route: Route, cipher: Cipher, asks: bool, full: bool, now: Nanos) -> Self {
        Self {
            route,
            cipher,
            open: !full,
            asks: asks || full,
            full,
            flights: VecDeque::new(),
            first_flight: 0,
            pieces: VecDeque::new(),
            kept: 0,
            first_piece: 0,
            unsent: VecDeque::new(),
            again: VecDeque::new(),
            guarded: Vec::new(),
            guard: Guard::default(),
            highest: None,
            late_at: None,
            repair: Repair::default(),
            answers: 0,
            unheard: 0,
            last_sent: now,
            last_heard: now,
            opened: now,
            counts: Counts::default(),
        }
    }

    /// Where it leads.
    #[must_use]
    pub const fn route(&self) -> &Route {
        &self.route
    }

    /// What it did.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether it ever heard of the other end.
    #[must_use]
    pub const fn was_heard(&self) -> bool {
        self.highest.is_some()
    }

    /// Bytes that it keeps until they are acknowledged.
    #[must_use]
    pub const fn kept_bytes(&self) -> usize {
        self.kept
    }

    /// Whether it takes a piece. Those behind one that is lost are kept at both ends, and so no more than so many.
    #[must_use]
    pub fn may_push(&self) -> bool {
        let waits = self.has_pieces() || self.guard.has_parity();
        self.open && !waits && self.pieces.len() < MOST_PIECES && self.kept < MOST_KEPT
    }

    /// Whether all that it was given has arrived.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Takes a piece.
    pub fn push(&mut self, now: Nanos, piece: impl Into<Arc<Piece>>, path: &Path) {
        let piece = piece.into();
        self.repair.on_said(now, path);
        if !self.owes() {
            (self.last_heard, self.unheard) = (now, 0);
        }
        let number = self.first_piece.wrapping_add(self.pieces.len() as u32);
        let group = self.guard.group_of(number, path.is_lossy());
        self.counts.pieces += 1;
        self.kept += piece.frames.capacity();
        self.pieces.push_back(Held { piece, group, flight: None, parity: None, settled: false });
        self.unsent.push_back(number);
        if group != NO_GROUP && number.wrapping_sub(group) + 1 >= GROUP {
            self.flush(path);
        }
    }

    /// Ends a group of pieces: its parity follows.
    pub fn flush(&mut self, path: &Path) {
        self.repair.on_silent();
        let Some(group) = self.guard.begun() else { return };
        let pieces = (self.pieces.len() - self.place(group)) as u16;
        self.guard.end(pieces, path.parity(pieces, self.repair.wait(path)));
    }

    /// The place of a piece among those that are kept. Those of a group whose parity is to be made are all there.
    const fn place(&self, piece: u32) -> usize {
        piece.wrapping_sub(self.first_piece) as usize
    }

    /// Whether something that was sent is not answered, or something is still to be sent.
    fn owes(&self) -> bool {
        self.owes_pieces() || self.flights.iter().any(|flight| flight.flies)
    }

    /// Whether pieces are missing, or it waits to be admitted.
    fn owes_pieces(&self) -> bool {
        !self.pieces.is_empty() || (self.full && !self.open)
    }

    /// Whether [`poll`](Self::poll) has something, were it allowed.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        self.asks || (self.open && (self.has_pieces() || self.guard.has_parity()))
    }

    /// Whether pieces are to be sent, for the first time or again.
    fn has_pieces(&self) -> bool {
        !self.again.is_empty() || !self.unsent.is_empty()
    }

    /// Whether it has nothing to send but parity.
    #[must_use]
    pub fn has_parity_alone(&self) -> bool {
        !self.asks && !self.has_pieces() && self.guard.has_parity()
    }

    /// Writes the next datagram: how many bytes.
    pub fn poll(&mut self, now: Nanos, path: &mut Path, into: &mut [u8], join: &mut Join<'_>) -> usize {
        if self.asks {
            self.asks = false;
            let connect = Connect { host: self.route.host.0, full: self.full };
            return self.emit(now, path, What::Connect, About::Connect, &[&connect.encode()], into);
        }
        if !self.open {
            return 0;
        }
        if let Some(number) = self.again.pop_front() {
            self.counts.retransmits += 1;
            return self.emit_piece(now, path, number, into, join);
        }
        while let Some(number) = self.unsent.pop_front() {
            if self.held(number).is_some_and(|held| !held.settled) {
                return self.emit_piece(now, path, number, into, join);
            }
        }
        let Some((parity, shard)) = self.next_parity() else { return 0 };
        let written = self.emit(now, path, What::Parity, About::Parity, &[&parity.encode(), &shard], into);
        let last = self.next_number() - 1;
        if parity.index + 1 == parity.of {
            for number in 0..parity.pieces {
                let number = parity.group.wrapping_add(number.into());
                if let Some(held) = self.held_mut(number) {
                    held.parity = Some(last);
                }
            }
        }
        written
    }

    fn next_parity(&mut self) -> Option<(Parity, Vec<u8>)> {
        let next = self.guard.next();
        if next.is_some() {
            return next;
        }
        let group = self.guard.next_group()?;
        let first = self.place(group.first);
        let pieces = self.pieces.range(first..first + usize::from(group.pieces));
        self.counts.parities += self.guard.make(group, pieces.map(|held| &*held.piece)) as u64;
        self.guard.next()
    }

    fn emit_piece(
        &mut self,
        now: Nanos,
        path: &mut Path,
        number: u32,
        into: &mut [u8],
        join: &mut Join<'_>,
    ) -> usize {
        let Some(held) = self.held(number) else { return 0 };
        let (piece, group) = (Arc::clone(&held.piece), held.group);
        let data = Data { piece: number, group, to: piece.to.0 }.encode();
        let ack = join(self.route.to, OVERHEAD + piece.frames.len());
        let about = if ack.is_empty() { About::Data } else { About::DataWithAck };
        let written = self.emit(now, path, What::Piece(number), about, &[&data, &ack, &piece.frames], into);
        let flight = self.next_number() - 1;
        if let Some(held) = self.held_mut(number) {
            held.flight = Some(flight);
        }
        written
    }

    /// A datagram that says one thing: that the context ends, or the process, with what that says.
    pub fn word(&mut self, now: Nanos, path: &mut Path, about: About, body: &[u8], into: &mut [u8]) -> usize {
        let written = self.emit(now, path, What::Word, about, &[body], into);
        // Nobody answers it.
        if let Some(flight) = self.flights.back_mut() {
            flight.flies = false;
            path.on_forgotten(flight.bytes);
        }
        written
    }

    /// Writes a datagram of the parts of `body`, the last of which is sealed on its way there.
    fn emit(
        &mut self,
        now: Nanos,
        path: &mut Path,
        what: What,
        about: About,
        body: &[&[u8]],
        into: &mut [u8],
    ) -> usize {
        let Route { from, number: context, .. } = self.route;
        let clear = Clear { about, context, source: from.0, number: self.next_number() };
        let mut written = Clear::LEN;
        let (front, rest): (&[&[u8]], &[u8]) = match body {
            [front @ .., rest] => (front, rest),
            [] => (&[], &[]),
        };
        for part in front {
            into[written..written + part.len()].copy_from_slice(part);
            written += part.len();
        }
        written += rest.len() + TAG;
        self.cipher.seal(clear, Direction::Forth, &mut into[..written], rest);
        self.flights.push_back(Flight { what, at: now, bytes: written as u32, flies: true });
        self.last_sent = now;
        path.on_sent(now, written as u32);
        written
    }

    fn next_number(&self) -> u64 {
        self.first_flight + self.flights.len() as u64
    }

    fn flies(&self, number: u64) -> bool {
        self.flight(number).is_some_and(|flight| flight.flies)
    }

    fn flight(&self, number: u64) -> Option<&Flight> {
        self.flights.get(number.checked_sub(self.first_flight)? as usize)
    }

    fn held(&self, number: u32) -> Option<&Held> {
        self.pieces.get(self.place(number))
    }

    fn held_mut(&mut self, number: u32) -> Option<&mut Held> {
        let place = self.place(number);
        self.pieces.get_mut(place)
    }

    /// Opens an acknowledgement that came alone: nothing where it is none of this context's.
    pub fn open_ack(&mut self, clear: Clear, datagram: &mut [u8]) -> Option<Ack> {
        Ack::decode(self.cipher.open(clear, Direction::Back, datagram)?).ok()
    }

    /// An acknowledgement came, the one with that number.
    pub fn on_ack(&mut self, now: Nanos, number: u64, ack: &Ack, path: &mut Path) {
        let is_newest = number >= self.answers;
        if is_newest {
            self.answers = number.saturating_add(1);
            self.last_heard = now;
            path.on_heard(now);
            self.unheard = 0;
        }
        self.open = true;
        let mut newest = None;
        for (first, end) in &ack.runs {
            let end = (*end).min(self.next_number());
            for number in (*first).max(self.first_flight)..end {
                let flight = &mut self.flights[(number - self.first_flight) as usize];
                if !flight.flies {
                    continue;
                }
                flight.flies = false;
                newest = newest.max(Some((number, flight.at)));
                path.on_arrived(flight.bytes);
                if let What::Piece(piece) = flight.what
                    && let Some(held) = self.held_mut(piece)
                {
                    held.settled = true;
                }
            }
        }
        if let Some((number, at)) = newest
            && self.highest < Some(number)
        {
            self.highest = Some(number);
            let delay = Nanos(u64::from(ack.delay_us) * 1000);
            path.on_rtt(now, now.since(at).max(Nanos(1)).since(delay).max(Nanos(1)));
        }
        // All before it are there, be it by parity. One that was overtaken says no more of that; replayed after as many pieces as there
        // are numbers, it would say what is not so.
        let arrived = ack.piece.wrapping_sub(self.first_piece) as usize;
        if is_newest && arrived <= self.pieces.len() {
            self.pieces.iter_mut().take(arrived).for_each(|held| held.settled = true);
        }
        self.find_lost(now, path);
        self.find_unguarded();
        self.forget_settled();
    }

    fn forget_settled(&mut self) {
        // A group of which all is there needs no parity, whatever would have been in it.
        let (pieces, begin) = (&self.pieces, self.first_piece);
        self.guard.forget(|first, count| {
            let first = first.wrapping_sub(begin) as usize;
            let end = count.map_or(pieces.len(), |count| first + usize::from(count));
            pieces.range(first..end).all(|held| held.settled)
        });
        // Those of a group whose parity is to be made are needed for that.
        let keep = self.guard.first().map_or(usize::MAX, |group| self.place(group));
        let settled = self.pieces.iter().take(keep).take_while(|held| held.settled).count();
        self.kept -= self.pieces.drain(..settled).map(|held| held.piece.frames.capacity()).sum::<usize>();
        self.first_piece = self.first_piece.wrapping_add(settled as u32);
        let settled = self.flights.iter().take_while(|flight| !flight.flies).count();
        self.flights.drain(..settled);
        self.first_flight += settled as u64;
    }

    /// When [`on_time`](Self::on_time) has something to do.
    #[must_use]
    pub fn deadline(&self, path: &Path) -> Option<Nanos> {
        [self.late_at, self.asks_at(path)].into_iter().flatten().min()
    }

    /// When it asks about what was not answered.
    fn asks_at(&self, path: &Path) -> Option<Nanos> {
        // While nothing is known of the path, whoever cannot be heard is asked often enough to be heard after a cut.
        let most = path.patience() + if path.rtt().is_some() { MOST_DOUBLED } else { 0 };
        self.owes().then(|| self.last_sent.after(Nanos(path.timeout().0 << self.unheard.min(most))))
    }

    /// Time passed: what was overtaken is lost, and what was not answered in time is asked about.
    pub fn on_time(&mut self, now: Nanos, path: &mut Path) {
        self.find_late(now, path);
        if self.asks_at(path).is_none_or(|at| at > now) {
            return;
        }
        self.unheard += 1;
        self.counts.timeouts += 1;
        let asked = std::mem::replace(&mut self.last_sent, now);
        if self.full && !self.open {
            self.asks = true;
        }
        // At first only what is oldest goes again, to hear of the rest; then all of it, since the window is not to stay shut.
        if self.is_silent(path) {
            self.give_all_up(path);
            if self.owes_pieces() {
                path.on_silence(now, asked);
            }
        }
        let oldest: Vec<u32> = (0..self.pieces.len() as u32)
            .map(|at| self.first_piece.wrapping_add(at))
            .filter(|number| self.held(*number).is_some_and(|held| !held.settled && held.flight.is_some()))
            .take(PROBES)
            .collect();
        path.on_probe(oldest.len() as u32);
        self.find_unguarded();
        for number in oldest.into_iter().rev() {
            self.guarded.retain(|each| *each != number);
            self.again.retain(|each| *each != number);
            self.again.push_front(number);
            if let Some(held) = self.held_mut(number) {
                held.parity = None;
            }
        }
        self.forget_settled();
    }

    /// Whether it has asked as often as the path is patient, and was not answered.
    #[must_use]
    pub fn is_silent(&self, path: &Path) -> bool {
        self.unheard > path.patience()
    }

    /// Takes its datagrams out of the path's account, before it is dropped.
    pub fn close(&mut self, path: &mut Path) {
        self.flights.iter().filter(|flight| flight.flies).for_each(|flight| path.on_forgotten(flight.bytes));
        // What is said after them does not take their numbers, which are nonces.
        self.first_flight = self.next_number();
        self.flights.clear();
    }
}

/// The most frames of a datagram of so many bytes: parity of such pieces fits, too.
#[must_use]
pub const fn room(datagram: usize) -> usize {
    let parity = Clear::LEN + Parity::LEN + FRONT + 1 + TAG;
    datagram - if parity > OVERHEAD { parity } else { OVERHEAD }
}

/// A piece that no parity will be about.
pub const NO_GROUP: u32 = u32::MAX;

/// Pieces that are kept at most, from the first on that is not known to have come: in 91.6 ms, 2.8 million short messages a second.
pub const MOST_PIECES: usize = 1 << 18;

/// Bytes of them: four windows, so that one that was lost twice over, with its parity, holds nothing up.
pub const MOST_KEPT: usize = 4 * MOST_WINDOW as usize;

/// Pieces of a group at most.
pub(super) const GROUP: u32 = 64;

/// Datagrams that overtake another without its being taken for lost (RFC 9002, 6.1.1).
pub(super) const REORDERED: u64 = 3;

/// Pieces that go again where nothing was heard (RFC 9002, 6.2.4).
const PROBES: usize = 2;

/// Doublings of the time until the next, once all that is under way counts as lost.
const MOST_DOUBLED: u32 = 2;

#[cfg(test)]
mod tests;
