//! Messages as their programs mean them, turned into frames for each peer, and back.
//!
//! A short message goes at once, as far as the peer's credit reaches; a long one is offered, and goes where it is wanted when it is. An
//! offer needs no credit, for nothing but its envelope is remembered, and its sender's own request bounds their number: so whoever waits
//! for credit has another way, and nobody waits for somebody who waits.

mod inbox;
mod matching;
mod outbox;
mod pool;

use std::collections::{BTreeSet, VecDeque};

use farlink_wire::fabric::frame::{Envelope, Frame, FrameError, cost};

use self::inbox::{Arriving, Inbox, To};
use self::matching::{Body, Cancelled, Landing, Matching};
use self::outbox::{Control, Outbox, Source};
pub use self::pool::{MOST_WINDOW, Pool};
use super::operation::{
    Claim, Completion, Ends, Failure, Kind, Memory, Operation, PeerId, Receive, Received, Refused, Send,
    Waiting, Wanted,
};

/// All messages of a process, in both directions.
///
/// 1. [`fill`](Self::fill) for each peer that [`has_frames`](Self::has_frames), whenever there is room for them
/// 2. [`poll_completion`](Self::poll_completion) until there is none
#[derive(Debug)]
pub struct Messages {
    peers: Vec<Peer>,
    pool: Pool,
    matching: Matching,
    completions: VecDeque<Completion>,
    /// Peers to whom there is something new to say.
    talked: Vec<PeerId>,
    /// Endpoints that are no more, and who said so.
    gone: VecDeque<(PeerId, u64)>,
    eager: usize,
    most: usize,
    /// What messages cost that were copied, since their regions are the program's again.
    kept: usize,
    /// Whether what nobody has taken of them has no bound.
    keeps_all: bool,
    /// Other processes that have not failed, and the last one that has.
    others: usize,
    last_failed: Option<(PeerId, Failure)>,
    /// Whether this process ever sent itself a message: then it may be whom a receive of anybody waits for.
    talks_to_itself: bool,
    /// Whether a message of anybody was looked for in vain since it was last looked who is there.
    probed_anybody: bool,
    /// Whether this process ends, and takes nothing more that is offered, as it waits for others to take what it offers.
    declines: bool,
    counts: Counts,
}

/// What was done, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that went at once.
    pub eager: u64,
    /// Messages that were offered first.
    pub offered: u64,
    /// Of these, short ones for which there was no credit.
    pub without_credit: u64,
    /// Messages that came before they were wanted.
    pub unexpected: u64,
    /// Most bytes that such messages had at a time.
    pub unexpected_most_bytes: u64,
}

impl Counts {
    /// By name.
    #[must_use]
    pub fn statistics(self) -> Vec<(&'static str, u64)> {
        vec![
            ("messages_eager", self.eager),
            ("messages_offered", self.offered),
            ("messages_without_credit", self.without_credit),
            ("messages_unexpected", self.unexpected),
            ("bytes_unexpected_most", self.unexpected_most_bytes),
        ]
    }
}

#[derive(Debug)]
struct Peer {
    /// Whether it is this process.
    itself: bool,
    outbox: Outbox,
    inbox: Inbox,
    failed: Option<Failure>,
    /// Neighbours of this process that it was told are no more.
    knows_gone: BTreeSet<u64>,
    /// Whether a message of it was looked for in vain since it was last nudged.
    probed: bool,
}

impl Messages {
    /// None yet. Messages up to `eager` bytes go at once, and none has more than `most`.
    #[must_use]
    pub fn new(eager: usize, most: usize, pool: Pool) -> Self {
        Self {
            peers: Vec::new(),
            pool,
            matching: Matching::default(),
            completions: VecDeque::new(),
            talked: Vec::new(),
            gone: VecDeque::new(),
            eager,
            most,
            kept: 0,
            keeps_all: false,
            others: 0,
            last_failed: None,
            talks_to_itself: false,
            probed_anybody: false,
            declines: false,
            counts: Counts::default(),
        }
    }

    /// There is one more peer, whose number is the next: another process, or `itself`.
    pub fn on_peer(&mut self, itself: bool) {
        let first = self.pool.first();
        self.peers.push(Peer {
            itself,
            outbox: Outbox::new(first),
            inbox: Inbox::new(first),
            failed: None,
            knows_gone: BTreeSet::new(),
            probed: false,
        });
        self.others += usize::from(!itself);
    }

    /// What was done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { unexpected_most_bytes: self.matching.most_bytes() as u64, ..self.counts }
    }

    /// From now on a message that is to be copied is refused only until those before it were said, or offered: not until they are wanted.
    pub const fn keep_all(&mut self) {
        self.keeps_all = true;
    }

    /// Takes a message.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn send(&mut self, send: Send, memory: &dyn Memory) -> Result<(), Refused> {
        if send.len > self.most {
            return Err(Refused::TooLong { len: send.len, most: self.most });
        }
        let peer = &mut self.peers[send.to.0 as usize];
        if let Some(failure) = peer.failed {
            return Err(Refused::Failed(failure));
        }
        self.talks_to_itself |= peer.itself;
        let source = match send.ends {
            Ends::Said(_) | Ends::Taken { copied: false, .. } => Source::Region(send.region),
            // Who takes nothing keeps nobody else from being sent something.
            _ if self.kept + cost(send.len as u64) as usize > MOST_KEPT
                && (if self.keeps_all { peer.outbox.unsaid() } else { peer.outbox.kept() }) > 0 =>
            {
                return Err(Refused::Full);
            }
            _ => {
                let mut bytes = vec![0; send.len];
                memory.read(send.region, 0, &mut bytes);
                let kept = Source::Kept(bytes);
                self.kept += kept.kept();
                kept
            }
        };
        let tag = match send.kind {
            Kind::Tagged(tag) => Some(tag),
            Kind::Untagged => None,
        };
        peer.outbox.push(Envelope { tag, data: send.data, len: send.len as u64 }, source, send.ends);
        self.talked.push(send.to);
        Ok(())
    }

    /// Wants a message.
    pub fn receive(&mut self, receive: Receive, memory: &mut dyn Memory) {
        if let Some(peer) = receive.from
            && let Some(failure) = self.in_vain(peer, receive.wanted)
        {
            self.fail_receive(receive.operation, Some(peer), failure);
            return;
        }
        self.matching.post(receive);
        while let Some((landing, waiting)) = self.matching.match_posted(receive.operation) {
            self.land_waiting(landing, waiting, memory);
        }
    }

    /// Why a receive of that peer alone would wait for ever: it failed, and left no message that such a receive takes.
    pub fn in_vain(&mut self, from: PeerId, wanted: Wanted) -> Option<Failure> {
        self.failure(from).filter(|_| !self.matching.has_waiting(Some(from), wanted))
    }

    /// Whether a receive waits for whoever sends something, and all peers failed. A region for many messages is not one that the program
    /// waits for.
    #[must_use]
    pub fn seems_alone(&self) -> bool {
        self.nobody_left().is_some() && self.matching.awaits_anybody()
    }

    /// Why the last peer failed, where all did and none is left that could send something.
    #[must_use]
    pub fn nobody_left(&self) -> Option<Failure> {
        let (_, why) = self.last_failed.filter(|_| self.others == 0 && !self.talks_to_itself)?;
        Some(why)
    }

    /// There are no others than the peers: who waits for whoever sends something, where all of them failed, waits in vain.
    pub fn on_all_known(&mut self) {
        if self.seems_alone()
            && let Some((peer, why)) = self.last_failed
        {
            for operation in self.matching.fail_of_anybody() {
                self.fail_receive(operation, Some(peer), why);
            }
        }
    }

    /// The first message that waits and that such a receive would take.
    pub fn peek(&mut self, from: Option<PeerId>, wanted: Wanted, claim: bool) -> Option<Waiting> {
        let Some(found) = self.matching.find_waiting(from, wanted) else {
            match from {
                Some(from) => self.peers[from.0 as usize].probed = true,
                None => self.probed_anybody = true,
            }
            return None;
        };
        found.claimed |= claim;
        Some(Waiting {
            from: found.from,
            tag: found.envelope.tag.unwrap_or(0),
            data: found.envelope.data,
            len: found.envelope.len as usize,
            claim: Claim(found.number),
        })
    }

    /// Receives a message that was claimed.
    pub fn receive_claimed(&mut self, claim: Claim, receive: Receive, memory: &mut dyn Memory) {
        match self.matching.take(claim.0) {
            Some(waiting) => {
                let landing = Matching::land_alone(&receive);
                self.land_waiting(landing, waiting, memory);
            }
            // Its sender failed since then, and took it along.
            None => {
                let from = self.matching.lost(claim.0).or(receive.from);
                let why = from.and_then(|from| self.failure(from)).unwrap_or(Failure::Ended);
                self.fail_receive(receive.operation, from, why);
            }
        }
    }

    /// Drops a message that was claimed.
    pub fn discard(&mut self, claim: Claim) {
        let lost = self.matching.lost(claim.0);
        let Some(waiting) = self.matching.take(claim.0).filter(|_| lost.is_none()) else { return };
        match waiting.body {
            Body::Offer { message } => self.say(waiting.from, Control::Decline { message }),
            Body::Bytes(bytes) => {
                let inbox = &mut self.peers[waiting.from.0 as usize].inbox;
                if (bytes.len() as u64) < waiting.envelope.len {
                    inbox.arriving_goes(To::Nowhere);
                }
                inbox.consumed += cost(waiting.envelope.len);
            }
        }
        self.grant(waiting.from);
    }

    /// Takes a receive back that has not begun, or the rest of a region that takes message after message.
    pub fn cancel(&mut self, operation: Operation) -> bool {
        let cancelled = self.matching.cancel(operation);
        if cancelled == Cancelled::Whole {
            self.fail_receive(operation, None, Failure::Cancelled);
        }
        cancelled != Cancelled::Nothing
    }

    /// Whether there is something to say to a peer.
    #[must_use]
    pub fn has_frames(&self, peer: PeerId) -> bool {
        self.peers[peer.0 as usize].outbox.has_frames()
    }

    /// Writes frames for a peer: how many bytes.
    pub fn fill(&mut self, peer: PeerId, room: &mut [u8], memory: &dyn Memory) -> usize {
        let outbox = &mut self.peers[peer.0 as usize].outbox;
        let written = outbox.fill(room, memory, self.eager, &mut self.counts);
        while let Some((operation, kept)) = outbox.poll_sent() {
            self.kept -= kept;
            if let Some(operation) = operation {
                self.completions.push_back(Completion::Sent { operation, to: peer });
            }
        }
        written
    }

    /// Frames of a peer came, in order.
    ///
    /// # Errors
    /// [`FrameError`]: whoever has the key can still send nonsense. What stood before it was done.
    pub fn on_frames(
        &mut self,
        from: PeerId,
        frames: &[u8],
        memory: &mut dyn Memory,
    ) -> Result<(), FrameError> {
        if self.peers[from.0 as usize].failed.is_some() {
            return Ok(());
        }
        let mut rest = frames;
        while let Some((frame, behind)) = Frame::decode(rest)? {
            self.on_frame(from, frame, memory)?;
            rest = behind;
        }
        self.grant(from);
        Ok(())
    }

    fn on_frame(
        &mut self,
        from: PeerId,
        frame: Frame<'_>,
        memory: &mut dyn Memory,
    ) -> Result<(), FrameError> {
        let index = from.0 as usize;
        match frame {
            Frame::Eager(envelope, chunk) => {
                self.peers[index].inbox.on_unasked(cost(envelope.len))?;
                let to = match self.matching.match_arriving(from, envelope) {
                    Some(landing) => {
                        self.peers[index].inbox.consumed += cost(envelope.len);
                        To::Landing(self.matching.begin(landing, from, envelope, envelope.len))
                    }
                    None => {
                        self.counts.unexpected += 1;
                        // More room is made as its bytes come.
                        let room = envelope.len.min(FIRST_ROOM) as usize;
                        To::Waiting(self.matching.wait(from, envelope, Body::Bytes(Vec::with_capacity(room))))
                    }
                };
                self.peers[index].inbox.arriving = Some(Arriving { to, got: 0, len: envelope.len });
                self.on_chunk(from, chunk, memory);
            }
            Frame::More(chunk) => self.on_chunk(from, chunk, memory),
            Frame::Offer { envelope, message } => {
                self.peers[index].inbox.on_said(cost(envelope.len));
                match self.matching.match_arriving(from, envelope) {
                    Some(landing) => self.accept(landing, from, envelope, message, memory),
                    None if self.declines => self.say(from, Control::Decline { message }),
                    None => {
                        self.counts.unexpected += 1;
                        self.matching.wait(from, envelope, Body::Offer { message });
                    }
                }
            }
            Frame::Accept { message, receive, len } => {
                self.peers[index].outbox.on_accept(message, receive, len);
                self.talked.push(from);
                self.sent(from);
            }
            Frame::Decline { message } => {
                self.peers[index].outbox.on_accept(message, 0, 0);
                // It may have a question for it.
                self.talked.push(from);
                self.sent(from);
            }
            Frame::Part { receive, offset, bytes } => {
                let whole = self.matching.write_part(receive, from, offset, bytes, memory);
                self.landed(whole);
            }
            Frame::Credit { until } => self.peers[index].outbox.on_credit(until),
            Frame::Ask { message } => self.say(from, Control::Receipt { message }),
            Frame::Receipt { message } => {
                self.peers[index].outbox.on_receipt(message);
                self.sent(from);
            }
            Frame::Nothing | Frame::Numbered { .. } => {}
            Frame::Gone { endpoint } => self.gone.push_back((from, endpoint)),
        }
        Ok(())
    }

    /// More of the message that arrives from a peer.
    fn on_chunk(&mut self, from: PeerId, chunk: &[u8], memory: &mut dyn Memory) {
        let inbox = &mut self.peers[from.0 as usize].inbox;
        // More than was said, or of no message: no sender of ours does so.
        let Some(arriving) = inbox.arriving.as_mut() else { return };
        let chunk = &chunk[..chunk.len().min((arriving.len - arriving.got) as usize)];
        let offset = arriving.got;
        arriving.got += chunk.len() as u64;
        let to = arriving.to;
        if arriving.got == arriving.len {
            inbox.arriving = None;
        }
        match to {
            To::Landing(slot) => {
                let whole = self.matching.write_part(slot, from, offset, chunk, memory);
                self.landed(whole);
            }
            To::Waiting(number) => self.matching.add(number, chunk),
            To::Nowhere => {}
        }
    }

    /// A message that waited is wanted.
    fn land_waiting(&mut self, landing: Landing, waiting: matching::Waiting, memory: &mut dyn Memory) {
        let (from, envelope) = (waiting.from, waiting.envelope);
        match waiting.body {
            Body::Offer { message } => self.accept(landing, from, envelope, message, memory),
            Body::Bytes(bytes) => {
                let slot = self.matching.begin(landing, from, envelope, envelope.len);
                if (bytes.len() as u64) < envelope.len {
                    self.peers[from.0 as usize].inbox.arriving_goes(To::Landing(slot));
                }
                let whole = self.matching.write_part(slot, from, 0, &bytes, memory);
                self.landed(whole);
                self.peers[from.0 as usize].inbox.consumed += cost(envelope.len);
                self.grant(from);
            }
        }
    }

    fn accept(
        &mut self,
        landing: Landing,
        from: PeerId,
        envelope: Envelope,
        message: u32,
        memory: &mut dyn Memory,
    ) {
        let len = envelope.len.min(landing.room as u64);
        let slot = self.matching.begin(landing, from, envelope, len);
        self.say(from, Control::Accept { message, receive: slot, len });
        if len == 0 {
            let whole = self.matching.write_part(slot, from, 0, &[], memory);
            self.landed(whole);
        }
    }

    fn landed(&mut self, received: Option<Received>) {
        self.completions.extend(received.map(Completion::Received));
    }

    fn sent(&mut self, to: PeerId) {
        while let Some((operation, kept)) = self.peers[to.0 as usize].outbox.poll_sent() {
            self.kept -= kept;
            self.completions.extend(operation.map(|operation| Completion::Sent { operation, to }));
        }
    }

    /// Tells a peer what it may send unasked, when that is much more than it knows.
    fn grant(&mut self, peer: PeerId) {
        let Peer { inbox, failed, .. } = &mut self.peers[peer.0 as usize];
        if failed.is_some() {
            self.pool.settle(inbox);
        } else if let Some(until) = self.pool.grant(inbox) {
            self.say(peer, Control::Credit { until });
        }
    }

    fn say(&mut self, to: PeerId, control: Control) {
        let peer = &mut self.peers[to.0 as usize];
        // Nobody would take it, and it would never be said.
        if peer.failed.is_none() {
            peer.outbox.say(control);
            self.talked.push(to);
        }
    }

    /// A peer to whom there is something new to say; it may be said several times.
    pub fn poll_talked(&mut self) -> Option<PeerId> {
        self.talked.pop()
    }

    /// Whether a receive waits for that peer alone, its messages are looked for, or one of them is on its way.
    #[must_use]
    pub fn awaits(&self, peer: PeerId) -> bool {
        let Peer { inbox, outbox, probed, .. } = &self.peers[peer.0 as usize];
        *probed || inbox.arriving.is_some() || outbox.awaits() || self.matching.awaits(peer)
    }

    /// Whether a receive waits for whoever sends something, or its messages were looked for since this was last asked.
    pub fn awaits_anybody(&mut self) -> bool {
        std::mem::take(&mut self.probed_anybody) || self.matching.awaits_anybody()
    }

    /// Whether a peer failed.
    #[must_use]
    pub fn failure(&self, peer: PeerId) -> Option<Failure> {
        self.peers[peer.0 as usize].failed
    }

    /// Has something said to a peer, to hear whether it is there.
    pub fn nudge(&mut self, peer: PeerId) {
        self.peers[peer.0 as usize].probed = false;
        self.say(peer, Control::Nothing);
    }

    /// Tells a peer, once, that a neighbour to whom it sends is no more.
    pub fn tell_gone(&mut self, peer: PeerId, endpoint: u64) {
        if self.peers[peer.0 as usize].knows_gone.insert(endpoint) {
            self.say(peer, Control::Gone { endpoint });
        }
    }

    /// An endpoint that is no more, and the peer that said so.
    pub fn poll_gone(&mut self) -> Option<(PeerId, u64)> {
        self.gone.pop_front()
    }

    /// A peer failed: all that was under way with it ends. What came whole stays.
    pub fn on_failed(&mut self, peer: PeerId, why: Failure) {
        let Peer { itself, inbox, outbox, failed, .. } = &mut self.peers[peer.0 as usize];
        if failed.is_some() {
            return;
        }
        *failed = Some(why);
        self.others -= usize::from(!*itself);
        self.last_failed = Some((peer, why));
        inbox.arriving = None;
        for (operation, kept) in outbox.clear() {
            self.kept -= kept;
            self.completions.extend(operation.map(|operation| Completion::Failed {
                operation,
                peer: Some(peer),
                why,
                sending: true,
            }));
        }
        for operation in self.matching.fail(peer) {
            self.fail_receive(operation, Some(peer), why);
        }
        let remembered = self.matching.waiting_cost(peer);
        let inbox = &mut self.peers[peer.0 as usize].inbox;
        inbox.end(remembered);
        self.pool.settle(inbox);
    }

    fn fail_receive(&mut self, operation: Operation, peer: Option<PeerId>, why: Failure) {
        self.completions.push_back(Completion::Failed { operation, peer, why, sending: false });
    }

    /// Whether an operation ended.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// An operation that ended.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// This process ends, and receives nothing more. Where it waits until others have taken what it was told to be rid of, they may wait for
    /// it in the same way.
    pub fn on_ending(&mut self) {
        self.declines = self.peers.iter().any(|peer| peer.outbox.kept() > 0);
        if self.declines {
            for (from, message) in self.matching.take_offers() {
                self.say(from, Control::Decline { message });
            }
        }
    }

    /// Whether a peer is still to take what the application was told is sent.
    #[must_use]
    pub fn owes_copies(&self, peer: PeerId) -> bool {
        self.peers[peer.0 as usize].outbox.owes_copies()
    }

    /// Whether nothing waits to be said, but for offers that nobody took of what the application still has.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.peers.iter().all(|peer| !peer.outbox.has_frames() && !peer.outbox.owes_copies())
    }
}

/// What messages may cost that are copied because nobody waits for their regions; but for one to each peer.
const MOST_KEPT: usize = 32 << 20;

/// Bytes that a message of which nothing has come has room for.
const FIRST_ROOM: u64 = 256 << 10;

#[cfg(test)]
mod tests;
