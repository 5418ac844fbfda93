//! One endpoint's messages, sockets and memory, under the driver's lock: what comes in is handed to the machine, and what that wants out
//! leaves, in the order that the machine's documentation says.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use farlink_flow::fabric::endpoint::{Endpoint, Foreign, Transmit};
use farlink_flow::fabric::operation::{
    Claim, Completion as Ended, Ends, Failure, Operation, PeerId, Receive, Refused, Region, Send, Wanted,
};
use farlink_host::clock::monotonic;
use farlink_host::datagram::{Datagrams, MOST_AT_ONCE};
use farlink_wire::fabric::VERSION;
use farlink_wire::quantity::Nanos;

use crate::address_vector::{Addresses, NOWHERE};
use crate::bindings as fi;
use crate::complaint::complain;
use crate::completion::Completion;
use crate::entry::Code;
use crate::nearby::Nearby;
use crate::object::Context;
use crate::offer::INJECTED;
use crate::operations::{Operations, Pending};
use crate::peers::Peers;
use crate::post::{Incoming, Look, Outgoing, Then, flags_of, flags_of_wanted};
use crate::queues::Queues;
use crate::statistics::{Counts, Statistics};

mod looking;

use looking::Looking;

/// What the lock protects.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) endpoint: Endpoint,
    operations: Operations,
    peers: Peers,
    queues: Queues,
    datagrams: Datagrams,
    nearby: Option<Nearby>,
    /// Messages that wait for who knows the context.
    claims: HashMap<Context, Claim>,
    /// Who this is, to people.
    speaker: String,
    statistics: Option<Statistics>,
    /// Peers whose failure was said.
    mourned: HashSet<PeerId>,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// What the socket had no room for, in `outgoing`.
    held: Option<(Transmit, usize)>,
    /// Whether it let out as much as it does at once, so that there may be more.
    goes_on: bool,
    /// Until when acknowledgements wait for what the application says next, for it was told something, and nothing was let out since.
    owes_until: Option<Nanos>,
    /// When what came was taken in.
    taken: Nanos,
    /// When the socket was looked at, and whether there was something.
    looked: Nanos,
    busy: bool,
    /// Whether it may have copied so much that time passed meanwhile, of which what leaves is to know: by that round trips are measured.
    worked: bool,
    /// When something came from another host.
    heard: Nanos,
    /// Behind whom the application looks, though they have ended, and does nothing else, and since when.
    looks_behind: Option<Looking>,
    pub(crate) counts: Counts,
}

impl Engine {
    pub(crate) fn new(
        now: Nanos,
        endpoint: Endpoint,
        datagrams: Datagrams,
        nearby: Option<Nearby>,
        speaker: String,
        statistics: Option<Statistics>,
    ) -> Self {
        Self {
            endpoint,
            operations: Operations::default(),
            peers: Peers::default(),
            queues: Queues::default(),
            datagrams,
            nearby,
            claims: HashMap::new(),
            speaker,
            statistics,
            mourned: HashSet::new(),
            incoming: vec![0; MOST_AT_ONCE],
            outgoing: vec![0; MOST_AT_ONCE],
            held: None,
            goes_on: false,
            owes_until: None,
            taken: Nanos::ZERO,
            looked: Nanos::ZERO,
            busy: false,
            worked: false,
            heard: now,
            looks_behind: None,
            counts: Counts::default(),
        }
    }

    /// Numbers of peers are those of `addresses`.
    pub(crate) fn bind_addresses(&mut self, addresses: Arc<Addresses>) -> Result<(), Code> {
        self.operations.bind(Arc::clone(&addresses));
        self.peers.bind(addresses);
        Ok(())
    }

    /// Where the application hears of what is done.
    pub(crate) const fn queues(&mut self) -> &mut Queues {
        &mut self.queues
    }

    /// Whether enough is bound to it.
    pub(crate) fn is_bound(&self) -> Result<(), Code> {
        if !self.peers.is_bound() {
            return Err(Code::NO_ADDRESSES);
        }
        if self.queues.is_bound() { Ok(()) } else { Err(Code::NO_COMPLETION_QUEUE) }
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, now: Nanos, outgoing: Outgoing) -> Result<(), Code> {
        self.looks_behind = None;
        let Outgoing { to, kind, data, parts, context, notice, copied } = outgoing;
        let to = self.peers.peer(to, &mut self.endpoint)?;
        let len = parts.len();
        if copied && len > INJECTED {
            return Err(Code::TOO_LONG);
        }
        let told = notice.told(self.queues.selective(true));
        let flags = flags_of(kind, true);
        let pending = Pending { parts, context, flags, told, several: false, receives: false };
        let operation = self.operations.add(pending);
        let ends = match (notice.of_peer(), copied) {
            (true, copied) => Ends::Taken { operation, copied },
            (false, false) => Ends::Said(operation),
            (false, true) => Ends::Untold,
        };
        let send = Send { to, kind, data, region: Region(operation.0), len, ends };
        let sent = self.endpoint.send(now, send, &mut self.operations);
        if ends == Ends::Untold || sent.is_err() {
            let pending = self.operations.take(operation);
            if let (Ok(()), Some(pending)) = (&sent, pending) {
                self.queues.sent(&pending);
            }
        }
        // Of one that nobody waits for nothing else tells why its peer is lost.
        if let Err(Refused::Failed(why)) = &sent {
            self.mourn(to, *why);
        }
        Ok(sent?)
    }

    /// Wants a message. One that cannot come any more is refused, and not told of later: Open MPI wants the answer to a send before it sends,
    /// and where that is refused it forgets the context by which it would be told.
    pub(crate) fn receive(&mut self, now: Nanos, incoming: Incoming, least: usize) -> Result<(), Code> {
        self.looks_behind = None;
        let multi = incoming.several.then_some(least);
        if multi.is_none()
            && let Some(from) = incoming.from
        {
            let from = self.peers.peer(from, &mut self.endpoint)?;
            if let Some(why) = self.endpoint.in_vain(from, incoming.wanted) {
                self.mourn(from, why);
                return Err(why.into());
            }
        }
        let receive = self.wish(incoming, multi)?;
        self.endpoint.receive(now, receive, &mut self.operations);
        self.worked = true;
        Ok(())
    }

    /// Wants the message that it claimed.
    pub(crate) fn receive_claimed(&mut self, now: Nanos, incoming: Incoming) -> Result<(), Code> {
        let claim = self.claims.remove(&incoming.context).ok_or(Code::INVALID)?;
        let receive = self.wish(incoming, None)?;
        self.endpoint.receive_claimed(now, claim, receive, &mut self.operations);
        self.worked = true;
        Ok(())
    }

    fn wish(&mut self, incoming: Incoming, multi: Option<usize>) -> Result<Receive, Code> {
        let Incoming { from, wanted, parts, context, notice, several } = incoming;
        let from = from.map(|from| self.peers.peer(from, &mut self.endpoint)).transpose()?;
        let told = notice.told(self.queues.selective(false));
        let len = parts.len();
        let flags = flags_of_wanted(wanted);
        let pending = Pending { parts, context, flags, told, several, receives: true };
        let operation = self.operations.add(pending);
        Ok(Receive { from, wanted, region: Region(operation.0), len, operation, multi })
    }

    /// Drops the message that it claimed.
    pub(crate) fn discard_claimed(
        &mut self,
        now: Nanos,
        context: Context,
        wanted: Wanted,
    ) -> Result<(), Code> {
        let claim = self.claims.remove(&context).ok_or(Code::INVALID)?;
        self.endpoint.discard(now, claim, &mut self.operations);
        self.queues.answered(Completion::of(context, flags_of_wanted(wanted)));
        Ok(())
    }

    /// Looks for a message that waits.
    pub(crate) fn peek(&mut self, now: Nanos, look: &Look) -> Result<(), Code> {
        // A second message of one context would be received in place of the first, which nobody could have any more.
        if look.then == Then::Claim && self.claims.contains_key(&look.context) {
            return Err(Code::INVALID);
        }
        let from = look.from.map(|from| self.peers.peer(from, &mut self.endpoint)).transpose()?;
        let answer = Completion::of(look.context, flags_of_wanted(look.wanted));
        let Some(found) = self.endpoint.peek(from, look.wanted, look.then != Then::Leave) else {
            let tag = if let Wanted::Tagged { tag, .. } = look.wanted { tag } else { 0 };
            let why = match from {
                Some(from) => self.endpoint.failure(from),
                None => self.nobody_left(),
            };
            let why = self.look_behind(now, from, why);
            if let (Some(from), Some(why)) = (from, why) {
                self.mourn(from, why);
            }
            let why = why.map_or(Code::NO_MESSAGE, Code::from);
            self.queues.answered(Completion { tag, ..answer }.failed(why));
            return Ok(());
        };
        self.looks_behind = None;
        match look.then {
            Then::Leave => {}
            Then::Claim => drop(self.claims.insert(look.context, found.claim)),
            Then::Discard => self.endpoint.discard(now, found.claim, &mut self.operations),
        }
        let flags = answer.flags | if found.data.is_some() { fi::FI_REMOTE_CQ_DATA } else { 0 };
        self.queues.answered(Completion {
            flags,
            len: found.len,
            data: found.data.unwrap_or(0),
            tag: found.tag,
            from: self.peers.place(found.from, &self.endpoint),
            ..answer
        });
        Ok(())
    }

    /// No send that the application is to be rid of at once waits until its message is wanted.
    pub(crate) const fn keep_all(&mut self) {
        self.endpoint.keep_all();
    }

    /// Why nobody will ever send something, where all failed that the application knows.
    fn nobody_left(&mut self) -> Option<Failure> {
        self.endpoint.nobody_left()?;
        // One that it has not spoken to is none that failed: it is asked again once all are known.
        if self.peers.know_all(&mut self.endpoint) { self.endpoint.nobody_left() } else { None }
    }

    /// What who looks for a message `from` somebody, or anybody, is told of `why` none will come. A program looks again and again, also
    /// behind others that have ended in order, and one that ends itself does so once more; it takes any error for its own: they have
    /// failed for who goes on looking there and does nothing else.
    fn look_behind(&mut self, now: Nanos, from: Option<PeerId>, why: Option<Failure>) -> Option<Failure> {
        if why != Some(Failure::Ended) {
            self.looks_behind = None;
            return why;
        }
        let looking = Looking::on(self.looks_behind.take(), from, now);
        let is_alone = looking.is_alone();
        self.looks_behind = Some(looking);
        why.filter(|_| is_alone)
    }

    /// Takes a receive back.
    pub(crate) fn cancel(&mut self, context: Context) -> Result<(), Code> {
        let mut its = self.operations.receives_of(context);
        if its.any(|operation| self.endpoint.cancel(operation)) { Ok(()) } else { Err(Code::NOT_FOUND) }
    }

    /// Hands to the machine what has come, and lets out what it wants out.
    pub(crate) fn progress(&mut self, now: Nanos) {
        self.take_in(now);
        self.put_out(now);
    }

    /// As [`progress`](Self::progress), for an application that looks for what is done. Where something is, it goes on with that, and most
    /// often has something to say at once: acknowledgements leave with that, or when it said nothing for a moment, in which it looks on,
    /// or by the progress thread where it does not. Between being told and going on it may be kept from its processor, which
    /// that moment is not to count: it begins when the application looks again.
    pub(crate) fn attend(&mut self, now: Nanos) {
        self.take_in(now);
        let told = self.tell_all();
        self.owes_until = match self.owes_until {
            None => told.then(|| now.after(LONGEST)),
            Some(until) => Some(until.min(now.after(MOMENT))),
        };
        if !self.may_wait(now) {
            self.put_out(now);
        }
    }

    /// Whether nothing but acknowledgements is to leave, and these not yet, for nobody waits for them.
    pub(crate) fn may_wait(&self, now: Nanos) -> bool {
        self.owes_until.is_some_and(|until| now < until)
            && self.held.is_none()
            && !self.goes_on
            && !self.endpoint.has_to_say()
            && !self.endpoint.must_acknowledge()
            && self.endpoint.deadline().is_none_or(|deadline| deadline > now)
    }

    /// Whether something waits that was not let out, for the application was told something.
    pub(crate) const fn owes(&self) -> bool {
        self.owes_until.is_some()
    }

    fn take_in(&mut self, mut now: Nanos) {
        self.counts.rounds += 1;
        self.taken = now;
        // A look at the socket is a system call: where nothing comes, it must not slow what comes through memory.
        let is_alone = self.nearby.as_ref().is_none_or(Nearby::is_alone);
        if self.busy || is_alone || now.since(self.looked) >= LOOK_EVERY {
            self.looked = now;
            let heard = self.hear();
            self.busy = heard.is_some();
            self.worked |= self.busy;
            now = heard.unwrap_or(now);
        }
        if let Some(nearby) = &mut self.nearby {
            self.worked |= nearby.take_in(now, &mut self.endpoint, &mut self.operations);
        }
        if self.endpoint.deadline().is_some_and(|deadline| deadline <= now) {
            self.endpoint.on_time(now);
        }
    }

    /// As [`progress`](Self::progress), behind something that the application did: whoever says one thing after another, and asks for nothing,
    /// is to hear what comes all the same.
    pub(crate) fn go_on(&mut self, now: Nanos) {
        if now.since(self.taken) >= TAKE_EVERY {
            self.take_in(now);
        }
        self.put_out(now);
    }

    /// Lets out what the machine wants out.
    pub(crate) fn put_out(&mut self, now: Nanos) {
        self.owes_until = None;
        self.tell_all();
        self.transmit(now);
        if let Some(nearby) = &mut self.nearby {
            nearby.put_out(now, &mut self.endpoint, &mut self.operations);
            self.goes_on |= nearby.goes_on;
        }
        if self.endpoint.seems_alone() && self.peers.know_all(&mut self.endpoint) {
            self.endpoint.on_all_known();
        }
        self.tell_all();
    }

    /// Tells the application what is done: whether anything is.
    fn tell_all(&mut self) -> bool {
        let mut any = false;
        while let Some(ended) = self.endpoint.poll_completion() {
            self.tell(&ended);
            any = true;
        }
        any
    }

    /// Lets out the machine's last words, of which each peer has one or two: when to go on, none where all have left.
    pub(crate) fn put_out_words(&mut self, now: Nanos) -> Option<Nanos> {
        loop {
            self.put_out(now);
            if self.held.is_some() {
                return Some(now.after(SEND_AGAIN));
            }
            let next = self.endpoint.next_word();
            if next.is_none_or(|at| at > now) {
                return next;
            }
        }
    }

    /// When to go on, if nothing comes.
    pub(crate) fn deadline(&self, now: Nanos) -> Option<Nanos> {
        // The socket is only watched for what comes.
        let waits = self.held.is_some() || self.nearby.as_ref().is_some_and(|nearby| nearby.tries_again());
        let again = waits.then(|| now.after(SEND_AGAIN));
        let again = if self.goes_on || self.owes() { Some(now) } else { again };
        // Where the socket is full nothing leaves before it is tried again.
        let least = if self.held.is_some() { now.after(SEND_AGAIN) } else { Nanos::ZERO };
        [again, self.endpoint.deadline().map(|due| due.max(least))].into_iter().flatten().min()
    }

    /// When something came from another host.
    pub(crate) const fn heard(&self) -> Nanos {
        self.heard
    }

    /// For so long this process could not hear anything.
    pub(crate) fn excuse(&mut self, stood: Nanos) {
        self.heard = self.heard.after(stood);
    }

    /// Where its figures go, where they are wanted.
    pub(crate) const fn statistics(&self) -> Option<&Statistics> {
        self.statistics.as_ref()
    }

    /// Writes its figures: `closed` where there is no more to come.
    pub(crate) fn write_statistics(&self, closed: bool) {
        if let Some(statistics) = &self.statistics {
            let rings = self.nearby.as_ref().map_or(0, Nearby::bytes);
            statistics.write(closed, rings, self.endpoint.statistics(), &self.counts);
        }
    }

    /// Asks neighbours to wake this process; false where it must not sleep.
    pub(crate) fn prepare_sleep(&mut self) -> bool {
        self.nearby.as_mut().is_none_or(|nearby| nearby.prepare_sleep(&self.endpoint))
    }

    /// Asks nobody any more.
    pub(crate) fn woken(&mut self) {
        if let Some(nearby) = &mut self.nearby {
            nearby.woken();
        }
        // What woke it is to be looked at.
        self.busy = true;
    }

    /// Takes what the socket has: when, if there was something. What comes has the time at which it was taken. That of the call may be some
    /// milliseconds before, in which the process was kept from its processor: what came meanwhile would seem to have come sooner than it
    /// can, and its acknowledgement to have been held for longer, of which the path's round trip is told.
    fn hear(&mut self) -> Option<Nanos> {
        let mut came = None;
        for _ in 0..RUNS_AT_ONCE {
            let received = match self.datagrams.receive(&mut self.incoming) {
                Ok(Some(received)) => received,
                Ok(None) => break,
                Err(error) => {
                    self.counts.fault("receive", &error);
                    break;
                }
            };
            let now = monotonic();
            came = Some(now);
            self.counts.runs_in += 1;
            for datagram in self.incoming[..received.bytes].chunks_mut(received.packet) {
                self.counts.datagrams_in += 1;
                self.endpoint.on_datagram(now, received.from, datagram, &mut self.operations);
            }
            // Somebody may wait for what is done: what else there is, the next look finds.
            if received.bytes <= SHORT_RUN && self.endpoint.has_completions() {
                break;
            }
        }
        if let Some(now) = came {
            self.heard = now;
            self.endpoint.on_datagrams_end(now);
            if let Some(Foreign { from, version, .. }) = self.endpoint.poll_foreign() {
                complain(format_args!(
                    "version {version} of the protocol is spoken at {from}, {VERSION} here: have the same Farlink on all hosts"
                ));
            }
        }
        came
    }

    fn transmit(&mut self, now: Nanos) {
        let mut now = if std::mem::take(&mut self.worked) { monotonic() } else { now };
        self.goes_on = false;
        if let Some((transmit, len)) = self.held.take() {
            self.transmit_one(transmit, len);
        }
        for _ in 0..RUNS_AT_ONCE {
            if self.held.is_some() {
                return;
            }
            let next = self.endpoint.poll_transmit(now, &mut self.outgoing, &mut self.operations);
            let Some((transmit, len)) = next else { return };
            self.transmit_one(transmit, len);
            now = monotonic();
        }
        self.goes_on = self.held.is_none();
    }

    fn transmit_one(&mut self, transmit: Transmit, len: usize) {
        match self.datagrams.send(&self.outgoing[..len], transmit.segment, transmit.to) {
            Ok(true) => {
                self.counts.runs_out += 1;
                self.counts.datagrams_out += len.div_ceil(transmit.segment.max(1)) as u64;
            }
            Ok(false) => {
                self.counts.full += 1;
                self.held = Some((transmit, len));
            }
            // As one that was lost on its way.
            Err(error) => self.counts.fault("send", &error),
        }
    }

    fn tell(&mut self, ended: &Ended) {
        match *ended {
            Ended::Sent { operation, .. } => {
                if let Some(pending) = self.operations.take(operation) {
                    self.queues.sent(&pending);
                }
            }
            Ended::Received(received) => {
                let from = self.peers.place(received.from, &self.endpoint);
                if let Some(pending) = self.operations.one(received.operation) {
                    self.queues.received(pending, &received, from);
                }
                if received.last {
                    self.operations.take(received.operation);
                }
            }
            Ended::Failed { operation, peer, why, .. } => self.tell_failure(operation, peer, why),
        }
    }

    fn tell_failure(&mut self, operation: Operation, peer: Option<PeerId>, why: Failure) {
        let from = peer.map_or(NOWHERE, |peer| self.peers.place(peer, &self.endpoint));
        if let Some(peer) = peer.filter(|_| why != Failure::Cancelled) {
            self.mourn(peer, why);
        }
        if let Some(pending) = self.operations.take(operation) {
            self.queues.failed(&pending, why.into(), from);
        }
    }

    /// Says that a peer failed, once.
    fn mourn(&mut self, peer: PeerId, why: Failure) {
        if self.mourned.insert(peer) {
            let peer_there = self.peers.description(peer, &self.endpoint);
            let address = self.endpoint.identity(peer).address;
            let is_here = self.endpoint.is_of_this_host(peer);
            let is_unheard = self.nearby.as_ref().is_some_and(|nearby| !nearby.has_heard(peer));
            let mend = match why {
                Failure::Unreachable | Failure::Stranger if address.ip().is_loopback() && !is_here => {
                    LOOPBACK
                }
                Failure::Ended if is_here && is_unheard => OF_ANOTHER_MIND,
                _ => "",
            };
            complain(format_args!("{} has lost {peer_there}: {why}{mend}", self.speaker));
            if self.mourned.len() == 1 {
                // MPI may end this process without a word.
                self.write_statistics(false);
            }
        }
    }
}

/// Of a peer that cannot be where it says.
const LOOPBACK: &str = " Each host has that address for itself: have all ranks use the interface between the hosts (FARLINK_INTERFACE)";

/// Of a peer of this host that never said anything.
const OF_ANOTHER_MIND: &str =
    "; it never spoke: where it lives on, have FARLINK_JOB_KEY and FARLINK_SHM the same for all ranks";

/// How often an idle socket is looked at while the application polls: the call takes some 0.3 microseconds.
const LOOK_EVERY: Nanos = Nanos(2_000);

/// How long acknowledgements wait for what the application says, once it looks on behind what it was told: little beside any round trip
/// between hosts, and they say how long they waited.
const MOMENT: Nanos = Nanos(20_000);

/// How long they wait where it looks on only later than that.
const LONGEST: Nanos = Nanos(500_000);

/// A run behind which there is likely no other, bytes: the kernel joins what came together, up to 64 KiB.
const SHORT_RUN: usize = 16 << 10;

/// How often what comes is taken in while the application only says something: well below any round trip between hosts.
const TAKE_EVERY: Nanos = Nanos(100_000);

/// When a full socket is tried again, and a neighbour that could not be connected to: at 10 Gb/s, 600 KB have left by then.
const SEND_AGAIN: Nanos = Nanos(500_000);

/// Runs of 64 KiB that are taken, or let out, before the other direction has its turn.
const RUNS_AT_ONCE: usize = 32;

#[cfg(test)]
mod tests;
