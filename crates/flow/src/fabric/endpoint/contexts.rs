//! What goes to other hosts: sending contexts, the paths that they share, and the transport that chooses among them.

use core::cell::Cell;
use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;
use std::sync::Arc;

use farlink_wire::fabric::datagram::{About, Ack, Clear, Farewell, JoinedAck};
use farlink_wire::quantity::Nanos;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Settings;
use crate::fabric::operation::{EndpointId, Failure, Identity, PeerId};
use crate::fabric::outgoing::{self, Join, Outgoing, Route};
use crate::fabric::parity::Piece;
use crate::fabric::path::{self, Pacer, Path};
use crate::fabric::seal::Cipher;
use crate::fabric::transport::{ContextId, Handshake, Transport};

/// All sending contexts.
pub(super) struct Contexts {
    pub(super) transport: Box<dyn Transport>,
    me: Identity,
    key: [u8; 32],
    rate: Option<farlink_wire::quantity::BitsPerSec>,
    sharers: u64,
    places: Vec<Option<Context>>,
    by_number: FxHashMap<u64, ContextId>,
    next_number: u64,
    /// The newest to each peer, open or not: the peer takes what an older one says for old.
    newest: FxHashMap<EndpointId, u64>,
    paths: Vec<Path>,
    by_address: FxHashMap<IpAddr, usize>,
    /// Of all paths together.
    pacer: Pacer,
    /// Those that have something to send of their own: again, parity, or that they are there.
    active: VecDeque<ContextId>,
    /// When the first of those may send that wanted to and might not yet, since [`Self::begin`].
    held_until: Option<Nanos>,
    /// When one is to ask about something, once that was looked for: whoever polls asks far more often than anything changes.
    asks_at: Cell<Option<Option<Nanos>>>,
    words: VecDeque<Word>,
    /// By path, since when another is to be opened in place of a context, and how long that was silent.
    silences: FxHashMap<usize, (Nanos, Nanos)>,
    former: outgoing::Counts,
    most: u64,
    /// Bytes that contexts keep until they are acknowledged, and the most that there were.
    kept: u64,
    kept_most: u64,
}

#[derive(Debug)]
struct Context {
    outgoing: Outgoing,
    path: usize,
    is_active: bool,
}

/// The last of a context.
#[derive(Debug)]
struct Word {
    about: About,
    /// How many pieces its peer was ever sent, of a farewell.
    pieces: u64,
    of: Of,
    /// Not before.
    at: Nanos,
    /// Whether it is said once more where datagrams are lost: nobody answers it.
    twice: bool,
}

impl Word {
    const fn new(about: About, pieces: u64, of: Of) -> Self {
        Self { about, pieces, of, at: Nanos::ZERO, twice: false }
    }

    fn twice(self) -> Self {
        Self { twice: true, ..self }
    }
}

#[derive(Debug)]
enum Of {
    /// One that is open, and its number: where another has its place, it is said no more.
    Open(ContextId, u64),
    /// One that is closed, or was never open.
    Closed(Box<Context>),
}

impl std::fmt::Debug for Contexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contexts")
            .field("transport", &self.transport)
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

impl Contexts {
    pub(super) fn new(now: Nanos, settings: &Settings, me: Identity) -> Self {
        Self {
            transport: settings.transport.make(me.endpoint, settings.seed),
            me,
            key: settings.key,
            rate: settings.rate,
            sharers: settings.sharers,
            places: Vec::new(),
            by_number: FxHashMap::default(),
            next_number: 0,
            newest: FxHashMap::default(),
            paths: Vec::new(),
            by_address: FxHashMap::default(),
            pacer: Pacer::new(settings.rate, path::around(me.address), now),
            active: VecDeque::new(),
            held_until: None,
            asks_at: Cell::default(),
            words: VecDeque::new(),
            silences: FxHashMap::default(),
            former: outgoing::Counts::default(),
            most: 0,
            kept: 0,
            kept_most: 0,
        }
    }

    /// As if it had begun so many.
    #[cfg(test)]
    pub(super) const fn skip_to(&mut self, number: u64) {
        self.next_number = number;
    }

    /// Whether one of that number is open.
    #[cfg(test)]
    pub(super) fn has(&self, number: u64) -> bool {
        self.by_number.contains_key(&number)
    }

    fn context(&mut self, id: ContextId) -> Option<(&mut Outgoing, &mut Path)> {
        self.asks_at.take();
        let context = self.places.get_mut(id.0 as usize)?.as_mut()?;
        Some((&mut context.outgoing, &mut self.paths[context.path]))
    }

    /// A context to `peer` that has no place yet.
    fn make(
        &mut self,
        now: Nanos,
        peer: PeerId,
        identity: &Identity,
        handshake: Handshake,
    ) -> Option<Context> {
        self.next_number += 1;
        let number = self.next_number;
        let (from, to) = (self.me.endpoint, identity.endpoint);
        let route = Route { from, host: self.me.host, to, peer, address: identity.address, number };
        self.newest.insert(to, number);
        let cipher = Cipher::new(&self.key, from, to, number)?;
        let (asks, full) = (handshake != Handshake::None, handshake == Handshake::Full);
        let outgoing = Outgoing::new(route, cipher, asks, full, now);
        let path = *self.by_address.entry(identity.address.ip()).or_insert_with(|| {
            self.paths.push(Path::new(self.rate, self.sharers, path::around(self.me.address), now));
            self.paths.len() - 1
        });
        Some(Context { outgoing, path, is_active: false })
    }

    /// Opens a context to `peer`.
    pub(super) fn open(
        &mut self,
        now: Nanos,
        peer: PeerId,
        identity: &Identity,
        handshake: Handshake,
    ) -> Option<ContextId> {
        // What is retired has a place that this one may have.
        self.close_retired();
        let mut context = self.make(now, peer, identity, handshake)?;
        // What was left long ago says nothing of what begins now.
        if let Some((since, silence)) = self.silences.remove(&context.path)
            && now.since(since) <= silence
        {
            context.outgoing.take_over(silence);
        }
        let number = context.outgoing.route().number;
        let place = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        let id = ContextId(place as u32);
        self.asks_at.take();
        self.places[place] = Some(context);
        self.by_number.insert(number, id);
        self.most = self.most.max(self.places.iter().flatten().count() as u64);
        self.look_at(id);
        Some(id)
    }

    /// Ends a context that has drained, or that another takes over from: it says so, as its last word.
    pub(super) fn close(&mut self, id: ContextId) {
        if let Some(context) = self.take(id) {
            self.words.push_back(Word::new(About::Disconnect, 0, Of::Closed(Box::new(context))));
        }
    }

    fn close_retired(&mut self) {
        while let Some(id) = self.transport.poll_retired() {
            self.close(id);
        }
    }

    fn take(&mut self, id: ContextId) -> Option<Context> {
        let mut context = self.places.get_mut(id.0 as usize)?.take()?;
        self.asks_at.take();
        self.active.retain(|each| *each != id);
        self.by_number.remove(&context.outgoing.route().number);
        self.former += context.outgoing.counts();
        self.kept -= context.outgoing.kept_bytes() as u64;
        context.outgoing.close(&mut self.paths[context.path]);
        Some(context)
    }

    /// A context failed: the peers that cannot be reached any more.
    pub(super) fn fail(&mut self, id: ContextId) -> Vec<PeerId> {
        self.take(id);
        self.transport.on_failed(id)
    }

    /// A peer is gone, and what leads to it: others to whom that led, too, and who are to be reached another way.
    pub(super) fn on_gone(&mut self, peer: PeerId) -> Vec<PeerId> {
        self.transport.on_gone(peer);
        let ids = (0..).map(ContextId).zip(&self.places);
        let gone: Vec<ContextId> = ids
            .filter(|(_, place)| place.as_ref().is_some_and(|context| context.outgoing.route().peer == peer))
            .map(|(id, _)| id)
            .collect();
        let mut others = Vec::new();
        for id in gone {
            others.extend(self.transport.on_lost(id));
            self.fail(id);
        }
        others
    }

    /// Gives up contexts that have been silent for half of the time after which they fail, where what they lead to may be reached another
    /// way: the peers that are.
    pub(super) fn detour(&mut self, now: Nanos, silence: Nanos) -> Vec<PeerId> {
        let mut others = Vec::new();
        if !self.transport.relays() {
            return others;
        }
        for id in (0..self.places.len()).map(|place| ContextId(place as u32)) {
            let Some(Some(context)) = self.places.get(id.0 as usize) else { continue };
            // However many were tried before: nobody answers sooner than the path lets them.
            let least = Nanos(ANSWERS * self.paths[context.path].timeout().0).min(Nanos(silence.0 / 2));
            if !context.outgoing.is_doubtful(now, silence, least) {
                continue;
            }
            let (path, silence) = (context.path, context.outgoing.silence(now).min(silence.since(least)));
            let peers = self.transport.on_lost(id);
            if !peers.is_empty() {
                self.silences.insert(path, (now, silence));
                self.close(id);
                others.extend(peers);
            }
        }
        others
    }

    /// Says farewell with every context that is heard, and to those to whom none leads now; `pieces` says how many each was ever sent.
    pub(super) fn say_farewell<'a>(
        &mut self,
        now: Nanos,
        peers: impl Iterator<Item = (PeerId, &'a Identity)>,
        pieces: impl Fn(PeerId) -> u64,
    ) {
        let open = || (0..).map(ContextId).zip(&self.places);
        let routes = || {
            let routes = open().filter_map(|(id, place)| Some((id, place.as_ref()?.outgoing.route())));
            routes.filter(|(_, route)| self.newest.get(&route.to) == Some(&route.number))
        };
        let reached: FxHashSet<EndpointId> = routes().map(|(_, route)| route.to).collect();
        let farewell = |(id, route): (ContextId, &Route)| {
            Word::new(About::Farewell, pieces(route.peer), Of::Open(id, route.number)).twice()
        };
        let farewells: Vec<Word> = routes().map(farewell).collect();
        self.words.extend(farewells);
        for (peer, identity) in peers.filter(|(_, identity)| !reached.contains(&identity.endpoint)) {
            let word = self.farewell(now, peer, identity, pieces(peer));
            self.words.extend(word.map(Word::twice));
        }
    }

    /// Says farewell to a peer that was given up; to whoever does not hear it, it is said again.
    pub(super) fn dismiss(&mut self, now: Nanos, peer: PeerId, identity: &Identity) {
        let word = self.farewell(now, peer, identity, 0);
        self.words.extend(word);
    }

    /// A farewell to a peer to whom no context leads.
    fn farewell(&mut self, now: Nanos, peer: PeerId, identity: &Identity, pieces: u64) -> Option<Word> {
        let context = self.make(now, peer, identity, Handshake::None)?;
        Some(Word::new(About::Farewell, pieces, Of::Closed(Box::new(context))))
    }

    /// When the next of the last words may leave; none where all have left.
    pub(super) fn next_word(&self) -> Option<Nanos> {
        self.words.iter().map(|word| word.at).min()
    }

    /// A last word: where it goes, and how many bytes.
    pub(super) fn poll_word(&mut self, now: Nanos, into: &mut [u8]) -> Option<(SocketAddr, usize)> {
        while let Some(due) = self.words.iter().position(|word| word.at <= now) {
            let mut word = self.words.remove(due)?;
            let farewell = Farewell { pieces: word.pieces }.encode();
            let body = if word.about == About::Farewell { &farewell[..] } else { &[] };
            let (outgoing, path) = match &mut word.of {
                Of::Closed(context) => (&mut context.outgoing, &mut self.paths[context.path]),
                Of::Open(id, number) => match self.context(*id) {
                    Some(open) if open.0.route().number == *number => open,
                    _ => continue,
                },
            };
            let written = outgoing.word(now, path, word.about, body, into);
            let to = outgoing.route().address;
            let again = word.twice && path.is_lossy();
            let at = now.after(path.timeout().min(LONGEST_PAUSE));
            self.words.extend(again.then_some(Word { at, twice: false, ..word }));
            return Some((to, written));
        }
        None
    }

    pub(super) fn address(&self, id: ContextId) -> Option<SocketAddr> {
        Some(self.places.get(id.0 as usize)?.as_ref()?.outgoing.route().address)
    }

    /// Takes note of whether a context has something to send.
    fn look_at(&mut self, id: ContextId) {
        let Some(context) = self.places.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        if context.outgoing.wants_to_send() && !context.is_active {
            context.is_active = true;
            self.active.push_back(id);
        }
    }

    /// Asks anew what may leave.
    pub(super) fn begin(&mut self) {
        self.held_until = None;
        self.close_retired();
    }

    /// Whether the rates let something leave on a path; otherwise it is held until they do.
    fn is_time(&mut self, now: Nanos, path: usize) -> bool {
        let paced = self.paths[path].paced_until();
        if paced > now {
            self.paths[path].on_paced();
        }
        let at = self.pacer.free_at().max(paced);
        if at > now {
            self.held_until = Some(self.held_until.map_or(at, |held| held.min(at)));
        }
        at <= now
    }

    /// Whether some context may have something to send.
    pub(super) fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// The next context that has something to send and may.
    pub(super) fn next_active(&mut self, now: Nanos) -> Option<ContextId> {
        for _ in 0..self.active.len() {
            let id = self.active.pop_front()?;
            let Some(context) = self.places.get_mut(id.0 as usize).and_then(Option::as_mut) else { continue };
            if !context.outgoing.wants_to_send() {
                context.is_active = false;
                continue;
            }
            self.active.push_back(id);
            let path = context.path;
            if self.paths[path].has_room() && self.is_time(now, path) {
                return Some(id);
            }
        }
        None
    }

    /// Whether a context takes a new piece now.
    pub(super) fn takes(&mut self, now: Nanos, id: ContextId) -> bool {
        let Some(context) = self.places.get(id.0 as usize).and_then(Option::as_ref) else { return false };
        let path = context.path;
        context.outgoing.may_push() && self.paths[path].has_room() && self.is_time(now, path)
    }

    pub(super) fn push(&mut self, now: Nanos, id: ContextId, peer: PeerId, piece: Arc<Piece>) {
        self.check(id);
        self.asks_at.take();
        if let Some(context) = self.places.get_mut(id.0 as usize).and_then(Option::as_mut) {
            let (outgoing, path) = (&mut context.outgoing, &self.paths[context.path]);
            let before = outgoing.kept_bytes();
            outgoing.push(now, piece, path);
            self.kept = self.kept + outgoing.kept_bytes() as u64 - before as u64;
            self.kept_most = self.kept_most.max(self.kept);
            self.transport.on_pushed(id, peer);
            self.look_at(id);
        }
    }

    /// What a process is sent has one way: by two its order would be lost.
    fn check(&self, id: ContextId) {
        let at = |place: &Option<Context>| place.as_ref().map(|context| context.outgoing.route().to);
        let to = self.places.get(id.0 as usize).and_then(at);
        debug_assert!(
            (0..).map(ContextId).zip(&self.places).all(|(each, place)| {
                let other = place.as_ref().filter(|_| each != id && at(place) == to);
                other.is_none_or(|context| context.outgoing.is_drained())
            }),
            "something is under way to {to:?} by another context"
        );
    }

    pub(super) fn flush(&mut self, id: ContextId) {
        if let Some((outgoing, path)) = self.context(id) {
            outgoing.flush(path);
            self.look_at(id);
        }
    }

    /// Writes a context's next datagram, as [`Outgoing::poll`] does: how many bytes.
    pub(super) fn poll(&mut self, now: Nanos, id: ContextId, into: &mut [u8], join: &mut Join<'_>) -> usize {
        let Some(path) = self.places.get(id.0 as usize).and_then(Option::as_ref).map(|context| context.path)
        else {
            return 0;
        };
        if !self.is_time(now, path) {
            return 0;
        }
        let Some((outgoing, path)) = self.context(id) else { return 0 };
        let written = outgoing.poll(now, path, into, join);
        if written > 0 {
            self.pacer.on_sent(now, written as u64);
        }
        written
    }

    /// Whether a context has nothing to send but parity.
    pub(super) fn has_parity_alone(&self, id: ContextId) -> bool {
        let context = self.places.get(id.0 as usize).and_then(Option::as_ref);
        context.is_some_and(|context| context.outgoing.has_parity_alone())
    }

    /// An acknowledgement came alone: whether it is of one of these.
    pub(super) fn on_ack(&mut self, now: Nanos, clear: Clear, datagram: &mut [u8]) -> bool {
        let Some(id) = self.leading(clear.context, EndpointId(clear.source)) else { return false };
        let Some((outgoing, _)) = self.context(id) else { return false };
        let Some(ack) = outgoing.open_ack(clear, datagram) else { return false };
        self.on_opened_ack(now, id, clear.number, &ack);
        true
    }

    /// An acknowledgement came within a genuine datagram of `source`: one of what is open no more says nothing.
    pub(super) fn on_joined_ack(&mut self, now: Nanos, source: EndpointId, joined: &JoinedAck) {
        if let Some(id) = self.leading(joined.context, source) {
            self.on_opened_ack(now, id, joined.number, &joined.ack);
        }
    }

    /// The context of that number, if it leads to that endpoint.
    fn leading(&self, number: u64, to: EndpointId) -> Option<ContextId> {
        let id = *self.by_number.get(&number)?;
        let context = self.places.get(id.0 as usize)?.as_ref()?;
        (context.outgoing.route().to == to).then_some(id)
    }

    fn on_opened_ack(&mut self, now: Nanos, id: ContextId, number: u64, ack: &Ack) {
        let Some(context) = self.places.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let (outgoing, path) = (&mut context.outgoing, &mut self.paths[context.path]);
        let (drained, before) = (outgoing.is_drained(), outgoing.kept_bytes());
        self.asks_at.take();
        outgoing.on_ack(now, number, ack, path);
        let drains = !drained && outgoing.is_drained();
        self.kept -= (before - outgoing.kept_bytes()) as u64;
        if drains {
            self.transport.on_drained(id);
        }
        self.look_at(id);
    }

    /// This process did not run for so long: nobody was silent meanwhile.
    pub(super) fn on_pause(&mut self, now: Nanos, pause: Nanos) {
        self.places.iter_mut().flatten().for_each(|context| context.outgoing.on_pause(now, pause));
    }

    /// Time passed: contexts that have failed, and why.
    pub(super) fn on_time(&mut self, now: Nanos, silence: Nanos) -> Vec<(ContextId, Failure)> {
        let mut failed = Vec::new();
        for index in 0..self.places.len() {
            let id = ContextId(index as u32);
            let Some((outgoing, path)) = self.context(id) else { continue };
            let before = outgoing.kept_bytes();
            outgoing.on_time(now, path);
            let released = before - outgoing.kept_bytes();
            let is_silent = outgoing.is_silent(path);
            if outgoing.silence(now) >= silence {
                let why = if outgoing.was_heard() { Failure::Silent } else { Failure::Unreachable };
                failed.push((id, why));
            }
            self.kept -= released as u64;
            if is_silent {
                self.transport.on_silent(id);
            }
            self.look_at(id);
        }
        debug_assert_eq!(
            self.kept,
            self.places.iter().flatten().map(|context| context.outgoing.kept_bytes() as u64).sum::<u64>(),
            "what contexts keep is counted"
        );
        failed
    }

    /// When something is to be asked about, or to be sent again.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let asked = self.asks_at.get().unwrap_or_else(|| self.next_to_ask());
        debug_assert_eq!(asked, self.next_to_ask(), "what changes it has it looked for again");
        self.asks_at.set(Some(asked));
        let word = self.next_word().filter(|at| *at > Nanos::ZERO);
        [asked, self.held_until, word].into_iter().flatten().min()
    }

    fn next_to_ask(&self) -> Option<Nanos> {
        let contexts = self.places.iter().flatten();
        contexts.filter_map(|context| context.outgoing.deadline(&self.paths[context.path])).min()
    }

    pub(super) fn is_drained(&self) -> bool {
        self.words.is_empty() && self.places.iter().flatten().all(|context| context.outgoing.is_drained())
    }

    /// Whether something is under way, and nothing of it was answered for so long; nor does anything wait for the rates alone.
    pub(super) fn are_mute(&self, now: Nanos, silence: Nanos) -> bool {
        let mut owing =
            self.places.iter().flatten().filter(|context| !context.outgoing.is_drained()).peekable();
        self.held_until.is_none()
            && owing.peek().is_some()
            && owing.all(|context| context.outgoing.silence(now) >= silence)
    }

    pub(super) fn statistics(&self) -> Vec<(&'static str, u64)> {
        let mut sum = self.former;
        let open = || self.places.iter().flatten().map(|context| &context.outgoing);
        open().for_each(|outgoing| sum += outgoing.counts());
        let transport = self.transport.counts();
        vec![
            ("connects", transport.connects),
            ("disconnects", transport.disconnects),
            ("waits", transport.waits),
            ("initiators_lent", transport.lent),
            ("contexts", open().count() as u64),
            ("contexts_most", self.most),
            ("bytes_of_contexts", open().count() as u64 * size_of::<Context>() as u64),
            ("bytes_sent_kept", self.kept_most),
            ("pieces", sum.pieces),
            ("retransmits", sum.retransmits),
            ("parities", sum.parities),
            ("datagrams_lost", sum.lost),
            ("timeouts", sum.timeouts),
        ]
    }
}

/// Between a farewell and the same once more: longer than losses that come together, and not so long that a program's end is seen to wait.
const LONGEST_PAUSE: Nanos = Nanos(100_000_000);

/// For so many times as long as an answer may take a process has the time to give one, before another is tried in its place.
const ANSWERS: u64 = 3;
