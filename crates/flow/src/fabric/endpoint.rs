//! All of a process's messages: what the provider drives.

mod contexts;
mod counts;
mod datagrams;
mod ending;
mod neighbours;
mod peers;
mod relays;
mod responders;
mod settings;
mod transmit;

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::VecDeque;

use farlink_wire::quantity::Nanos;

use self::contexts::Contexts;
use self::counts::Counts;
use self::neighbours::Neighbours;
use self::peers::{Peers, Place};
use self::relays::{Gap, Relays};
use self::responders::Responders;
pub use self::settings::Settings;
pub use self::transmit::Transmit;
use super::messages::{Messages, Pool};
use super::operation::{
    Claim, Completion, EndpointId, Failure, HostId, Identity, Memory, Operation, PeerId, Receive, Refused,
    Send, Waiting, Wanted,
};
use super::outgoing;

/// All messages of a process.
///
/// The driver holds it under one lock, and after every call that changes it
/// 1. takes [`poll_transmit`](Self::poll_transmit) until there is none, and sends it;
/// 2. for each peer of [`nearby`](Self::nearby), gives it room with [`fill`](Self::fill) until that says 0, or there is no room;
/// 3. where it [seems alone](Self::seems_alone), makes it known all endpoints that the program knows, and [says so](Self::on_all_known);
/// 4. takes [`poll_completion`](Self::poll_completion) until there is none;
/// 5. calls [`on_time`](Self::on_time) no later than [`deadline`](Self::deadline).
#[derive(Debug)]
pub struct Endpoint {
    settings: Settings,
    me: Identity,
    peers: Peers,
    messages: Messages,
    contexts: Contexts,
    responders: Responders,
    neighbours: Neighbours,
    relays: Relays,
    /// Peers far away to whom there is something to say.
    talking: VecDeque<PeerId>,
    /// A datagram that did not fit behind others, and where it goes.
    spare: Option<(SocketAddr, Vec<u8>)>,
    next_look: Nanos,
    /// When it was last told the time.
    timed: Nanos,
    /// The first whose version is another, until it is told.
    foreign: Option<Foreign>,
    /// Bytes that were said since acknowledgements last had their turn.
    said: usize,
    /// Frames that are being written.
    page: Vec<u8>,
    counts: Counts,
}

/// Where datagrams of another version come from, as it seems: whose they are cannot be proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The address.
    pub from: SocketAddr,
    /// The version.
    pub version: u8,
    told: bool,
}

impl Endpoint {
    /// One that has sent nothing.
    #[must_use]
    pub fn new(now: Nanos, settings: Settings, me: Identity) -> Self {
        Self {
            peers: Peers::new(me, settings.nearby),
            messages: Messages::new(settings.eager, settings.most, Pool::of_job(settings.processes)),
            contexts: Contexts::new(now, &settings, me),
            responders: Responders::new(settings.key, me),
            neighbours: Neighbours::default(),
            relays: Relays::default(),
            talking: VecDeque::new(),
            spare: None,
            next_look: now.after(look_every(settings.silence)),
            timed: now,
            foreign: None,
            said: 0,
            page: vec![0; outgoing::room(settings.payload)],
            counts: Counts::default(),
            settings,
            me,
        }
    }

    /// How many processes the job has, where that is known.
    #[must_use]
    pub const fn processes(&self) -> Option<u64> {
        self.settings.processes
    }

    /// What the program is to be rid of at once is [copied](super::operation::Ends::Untold) however much of that nobody has taken: it may be that of sends that must
    /// not wait for their receives.
    pub const fn keep_all(&mut self) {
        self.messages.keep_all();
    }

    /// The peer of that identity, known from now on if it was not. Itself is a peer, too.
    pub fn peer(&mut self, identity: Identity) -> PeerId {
        let (peer, new) = self.peers.intern(identity);
        if new {
            self.messages.on_peer(self.peers.place(peer) == Place::Own);
        }
        // One that is no more receives for nobody.
        let lives = self.messages.failure(peer).is_none() && !self.relays.is_leaving(peer);
        if self.peers.place(peer) == Place::Far && lives {
            // Without shared memory no process can receive for another: each is a host of its own.
            let alone = !self.settings.nearby || identity.host.0 == 0;
            let host = if alone { HostId(identity.endpoint.0) } else { identity.host };
            self.contexts.transport.on_peer(peer, &Identity { host, ..identity });
        }
        peer
    }

    /// The peer of that number, which runs on this host: known from now on if it was not, but for its address.
    pub fn neighbour(&mut self, endpoint: EndpointId) -> PeerId {
        let nowhere = (Ipv4Addr::UNSPECIFIED, 0).into();
        let known = self.peers.find(endpoint);
        known.unwrap_or_else(|| self.peer(Identity { endpoint, host: self.me.host, address: nowhere }))
    }

    /// Who a peer is.
    #[must_use]
    pub fn identity(&self, peer: PeerId) -> Identity {
        *self.peers.identity(peer)
    }

    /// Whether a peer is said to be of this process's host.
    #[must_use]
    pub fn is_of_this_host(&self, peer: PeerId) -> bool {
        self.peers.identity(peer).host == self.me.host
    }

    /// Whether a peer is this process.
    #[must_use]
    pub fn is_itself(&self, peer: PeerId) -> bool {
        self.peers.place(peer) == Place::Own
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn send(&mut self, now: Nanos, send: Send, memory: &mut dyn Memory) -> Result<(), Refused> {
        self.messages.send(send, memory)?;
        self.listen(now, memory);
        Ok(())
    }

    /// Wants a message; the completion comes when it is there, at once perhaps.
    pub fn receive(&mut self, now: Nanos, receive: Receive, memory: &mut dyn Memory) {
        self.messages.receive(receive, memory);
        self.listen(now, memory);
    }

    /// The first message that waits and that a receive would take; with `claim` no other receive gets it.
    pub fn peek(&mut self, from: Option<PeerId>, wanted: Wanted, claim: bool) -> Option<Waiting> {
        self.messages.peek(from, wanted, claim)
    }

    /// Why a receive of one peer's messages alone would fail at once.
    pub fn in_vain(&mut self, from: PeerId, wanted: Wanted) -> Option<Failure> {
        self.messages.in_vain(from, wanted)
    }

    /// Why no message of a peer will ever come.
    #[must_use]
    pub fn failure(&self, peer: PeerId) -> Option<Failure> {
        self.messages.failure(peer)
    }

    /// Receives a message that was claimed.
    pub fn receive_claimed(&mut self, now: Nanos, claim: Claim, receive: Receive, memory: &mut dyn Memory) {
        self.messages.receive_claimed(claim, receive, memory);
        self.listen(now, memory);
    }

    /// Drops a message that was claimed.
    pub fn discard(&mut self, now: Nanos, claim: Claim, memory: &mut dyn Memory) {
        self.messages.discard(claim);
        self.listen(now, memory);
    }

    /// Takes a receive back that has not begun, whose completion is then a failure, or has a region take no more messages, which ends with
    /// the last that it took; false where there is none such.
    pub fn cancel(&mut self, operation: Operation) -> bool {
        self.messages.cancel(operation)
    }

    /// Takes note of the peers to whom something is to be said; what is said to itself is heard at once.
    fn listen(&mut self, now: Nanos, memory: &mut dyn Memory) {
        while let Some(peer) = self.messages.poll_talked() {
            // What was to be said to it is forgotten.
            if self.messages.failure(peer).is_some() {
                continue;
            }
            match self.peers.place(peer) {
                Place::Far => self.talk(peer),
                Place::Near => {
                    self.peers.on_spoken_to(peer);
                    self.neighbours.on_talked(peer);
                }
                Place::Own => self.talk_to_itself(now, peer, memory),
            }
        }
    }

    /// There is something to say to a peer far away.
    fn talk(&mut self, peer: PeerId) {
        if self.peers.begin_talking(peer) {
            self.talking.push_back(peer);
        }
    }

    fn talk_to_itself(&mut self, now: Nanos, me: PeerId, memory: &mut dyn Memory) {
        let mut page = vec![0; OWN_PAGE];
        while self.messages.has_frames(me) {
            let written = self.messages.fill(me, &mut page, memory);
            self.on_said(now, me, &page[..written], memory);
        }
    }

    /// Frames of a peer came, in order.
    fn on_said(&mut self, now: Nanos, from: PeerId, frames: &[u8], memory: &mut dyn Memory) {
        if self.messages.failure(from).is_some() {
            self.dismiss(now, from);
            return;
        }
        let whole = match self.relays.on_piece(now, from, frames) {
            Ok(Some(frames)) => self.messages.on_frames(from, frames, memory).is_ok(),
            Ok(None) => true,
            Err(Gap) => false,
        };
        if !whole {
            // What it said before, or goes on to say, will never come: nobody is to wait for it.
            self.counts.nonsense += 1;
            self.fail(now, from, Failure::Lost);
            return;
        }
        while let Some((by, endpoint)) = self.messages.poll_gone() {
            // Whoever hands on to its neighbours speaks of them alone.
            if let Some(peer) = self.peers.find(EndpointId(endpoint))
                && self.peers.identity(peer).host == self.peers.identity(by).host
            {
                self.on_leaving(now, peer, None);
            }
        }
        if self.relays.has_left(from) {
            self.fail(now, from, Failure::Ended);
        } else if self.relays.has_pieces(from) && self.peers.place(from) == Place::Far {
            self.talk(from);
        }
    }

    /// What a nearby peer [wrote](Self::fill) came through shared memory.
    pub fn on_frames(&mut self, now: Nanos, from: PeerId, record: &[u8], memory: &mut dyn Memory) {
        let Some((origin, frames)) = neighbours::split(record) else {
            self.counts.nonsense += 1;
            return;
        };
        let from = match origin {
            None => from,
            Some(origin) => {
                // The first that is heard of it may be this.
                let origin = self.peers.find(origin.endpoint).unwrap_or_else(|| self.peer(origin));
                self.peers.on_heard(origin, now);
                self.relays.on_handed(origin, from);
                origin
            }
        };
        self.on_said(now, from, frames, memory);
        self.listen(now, memory);
    }

    /// A nearby peer's process ended, or cannot be reached.
    pub fn on_gone(&mut self, now: Nanos, peer: PeerId) {
        self.fail(now, peer, Failure::Ended);
    }

    /// Tells a peer that was given up, if it lives, that nothing that it says is heard any more.
    fn dismiss(&mut self, now: Nanos, peer: PeerId) {
        if self.peers.begin_dismissal(peer, now) {
            self.contexts.dismiss(now, peer, self.peers.identity(peer));
        }
    }

    /// A peer ended, as it says having sent so many `pieces` by others, or as one of its host says: these are heard before its end.
    fn on_leaving(&mut self, now: Nanos, peer: PeerId, pieces: Option<u64>) {
        if self.messages.failure(peer).is_some() {
            return;
        }
        // It may not have said how many come, or may have, by a datagram that was lost.
        let patience =
            if pieces.is_some() { self.settings.silence } else { look_every(self.settings.silence) };
        if self.relays.on_leaving(peer, pieces, now.after(patience)) {
            self.lead_past(peer);
        } else {
            self.fail(now, peer, Failure::Ended);
        }
    }

    /// A peer is gone: whoever was reached by it is by another.
    fn lead_past(&mut self, gone: PeerId) {
        for peer in self.contexts.on_gone(gone) {
            self.send_again(peer);
        }
    }

    /// A peer is reached another way: it may not have what went before.
    fn send_again(&mut self, peer: PeerId) {
        self.relays.send_again(peer);
        if self.relays.has_pieces(peer) {
            self.talk(peer);
        }
    }

    fn fail(&mut self, now: Nanos, peer: PeerId, why: Failure) {
        if self.messages.failure(peer).is_some() {
            return;
        }
        self.counts.failed_peers += 1;
        self.counts.ended_peers += u64::from(why == Failure::Ended);
        self.messages.on_failed(peer, why);
        let endpoint = self.peers.identity(peer).endpoint;
        self.responders.forget(endpoint);
        for origin in self.neighbours.on_gone(peer) {
            if let Some(origin) = self.peers.find(origin) {
                self.messages.tell_gone(origin, endpoint.0);
            }
        }
        if self.peers.place(peer) == Place::Near {
            self.relays.on_ended(peer);
        }
        self.relays.forget(peer);
        self.lead_past(peer);
        if why != Failure::Ended {
            self.dismiss(now, peer);
        }
    }

    /// Time passed.
    pub fn on_time(&mut self, now: Nanos) {
        self.excuse(now);
        // What is left of it is the time until whoever is waited for was spoken to.
        let silence = self.settings.silence.since(Nanos(2 * look_every(self.settings.silence).0));
        for peer in self.contexts.detour(now, silence) {
            self.send_again(peer);
        }
        for (context, why) in self.contexts.on_time(now, silence) {
            let peers = self.contexts.fail(context);
            // Over XRC they are all of one host, and of one job.
            let is_strange = peers.iter().any(|peer| self.peers.is_strange(*peer));
            let why = match why {
                Failure::Unreachable if is_strange => Failure::Stranger,
                other => other,
            };
            for peer in peers {
                // A peer that was heard of may have this context for its first that nothing was heard of.
                let why = if self.peers.was_heard(peer) { Failure::Silent } else { why };
                self.fail(now, peer, why);
            }
        }
        for peer in self.relays.overdue(now) {
            self.fail(now, peer, Failure::Ended);
        }
        for peer in self.relays.tell(now) {
            self.talk(peer);
        }
        if self.next_look <= now {
            self.next_look = now.after(look_every(self.settings.silence));
            self.look_after_silent(now);
        }
    }

    /// While this process did not run, be it that its job was suspended, it could not hear anybody: that is nobody's silence.
    fn excuse(&mut self, now: Nanos) {
        let due = self.deadline().unwrap_or(now).max(self.timed);
        self.timed = now;
        let late = now.since(due);
        if late >= PAUSE {
            self.contexts.on_pause(now, late);
            self.relays.on_pause(late, now.after(self.settings.silence));
        }
    }

    /// Who has said nothing for long, and is waited for, is spoken to: no answer to that is an answer.
    fn look_after_silent(&mut self, now: Nanos) {
        self.responders.look();
        for (ended, origin) in self.relays.ended() {
            self.messages.tell_gone(origin, self.peers.identity(ended).endpoint.0);
        }
        for peer in self.relays.unconfirmed(now) {
            self.messages.nudge(peer);
        }
        // What it answers may take as long to find a way to this process as others take to be given up.
        let patience = Nanos(8 * look_every(self.settings.silence).0);
        for peer in self.relays.silent(now, patience) {
            self.fail(now, peer, Failure::Silent);
        }
        let silence = look_every(self.settings.silence);
        let anybody = self.messages.awaits_anybody();
        // As long as one lives that it has met, others need not be asked: their silence would be no reason to wait no longer.
        let alone = anybody && !self.peers.met().any(|peer| self.messages.failure(peer).is_none());
        for (peer, met) in self.peers.silent_since(now, silence) {
            let awaited = (anybody && (met || alone)) || self.messages.awaits(peer);
            if awaited && self.messages.failure(peer).is_none() {
                self.messages.nudge(peer);
            }
        }
    }

    /// Nearby peers that have something to be written; those that the driver could not serve come again.
    #[must_use]
    pub fn nearby(&self) -> Vec<PeerId> {
        self.neighbours.talking()
    }

    /// Whether there are any.
    #[must_use]
    pub fn has_nearby(&self) -> bool {
        self.neighbours.has_talking()
    }

    /// Writes a record for a nearby peer into `room` (4 KiB or more): how many bytes, 0 where there is nothing.
    pub fn fill(&mut self, _now: Nanos, peer: PeerId, room: &mut [u8], memory: &mut dyn Memory) -> usize {
        if let Some(written) = self.neighbours.fill_forward(peer, room) {
            return written;
        }
        let (origin, rest) = room.split_at_mut(neighbours::OWN.len());
        let written = self.messages.fill(peer, rest, memory);
        if !self.messages.has_frames(peer) {
            self.neighbours.on_said(peer);
        }
        if written == 0 {
            return 0;
        }
        origin.copy_from_slice(&neighbours::OWN);
        neighbours::OWN.len() + written
    }

    /// The first from whom datagrams of another version came, once.
    pub fn poll_foreign(&mut self) -> Option<Foreign> {
        let foreign = self.foreign.as_mut().filter(|foreign| !foreign.told)?;
        foreign.told = true;
        Some(*foreign)
    }

    /// Whether a receive waits for whoever sends something, and every [`peer`](Self::peer) failed that it heard of: it cannot know whether
    /// there are others.
    #[must_use]
    pub fn seems_alone(&self) -> bool {
        self.messages.seems_alone()
    }

    /// Why the last peer failed, where all did that it heard of.
    #[must_use]
    pub fn nobody_left(&self) -> Option<Failure> {
        self.messages.nobody_left()
    }

    /// There are no others than the peers that it was told of: receives that wait for whoever sends something fail, where all of those did.
    pub fn on_all_known(&mut self) {
        self.messages.on_all_known();
    }

    /// Whether there is something to say to anybody besides acknowledgements.
    #[must_use]
    pub fn has_to_say(&self) -> bool {
        !self.talking.is_empty() || self.contexts.has_active() || self.neighbours.has_talking()
    }

    /// Whether an acknowledgement is to leave without which its sender does not go on.
    #[must_use]
    pub fn must_acknowledge(&self) -> bool {
        self.responders.must_acknowledge()
    }

    /// Whether an operation ended.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        self.messages.has_completions()
    }

    /// An operation that ended.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.messages.poll_completion()
    }

    /// When to call [`on_time`](Self::on_time) and [`poll_transmit`](Self::poll_transmit), if nothing else happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        [self.contexts.deadline(), self.relays.deadline(), Some(self.next_look)].into_iter().flatten().min()
    }

    /// Figures for whoever wants to know what was done, by name.
    #[must_use]
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.counts.statistics();
        all.extend(self.peers.statistics());
        all.extend(self.messages.counts().statistics());
        all.extend(self.neighbours.statistics());
        all.extend(self.relays.statistics());
        all.extend(self.contexts.statistics());
        all.extend(self.responders.statistics());
        all
    }
}

/// How often to look for peers that have said nothing for as long.
const fn look_every(silence: Nanos) -> Nanos {
    Nanos(silence.0 / 6)
}

/// Nobody is so late who runs: it is far more than a process waits for its turn on a busy host.
const PAUSE: Nanos = Nanos(1_000_000_000);

/// Bytes of a page that a process fills for itself.
const OWN_PAGE: usize = 64 * 1024;

#[cfg(test)]
mod tests;
