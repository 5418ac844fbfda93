//! What an endpoint says to other hosts, as datagrams.

use core::net::SocketAddr;
use std::sync::Arc;

use farlink_wire::quantity::Nanos;

use super::{Endpoint, relays};
use crate::fabric::operation::{EndpointId, Memory, PeerId};
use crate::fabric::parity::Piece;
use crate::fabric::transport::{ContextId, Routing};

/// Datagrams to send, all to one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// Bytes of each datagram; the last one may be shorter.
    pub segment: usize,
}

impl Endpoint {
    /// Writes datagrams to one address into `into` (64 KiB or more), each `segment` bytes but for the last: how many bytes in all.
    pub fn poll_transmit(
        &mut self,
        now: Nanos,
        into: &mut [u8],
        memory: &mut dyn Memory,
    ) -> Option<(Transmit, usize)> {
        self.listen(now, memory);
        self.contexts.begin();
        if let Some((to, datagram)) = self.spare.take() {
            into[..datagram.len()].copy_from_slice(&datagram);
            return self.transmit(to, datagram.len(), datagram.len(), 1);
        }
        // What is said goes first, for somebody may wait for it, and what came is acknowledged within it, or behind it, by itself where it
        // goes to others; but not behind very much, nor behind last words.
        if self.said >= MUCH || self.contexts.next_word().is_some() {
            if let Some(acknowledgement) = self.acknowledge(now, into) {
                return Some(acknowledgement);
            }
            self.said = 0;
        }
        if let Some((to, written)) = self.contexts.poll_word(now, into) {
            return self.transmit(to, written, written, 1);
        }
        let Some((transmit, written)) = self.next_run(now, into, memory) else {
            return self.acknowledge(now, into);
        };
        self.said += written;
        let joined = self.join_acknowledgement(now, transmit, into, written);
        Some((transmit, joined))
    }

    /// Has an acknowledgement for the same address leave with a run, for a system call costs more than it: the bytes of both.
    fn join_acknowledgement(&mut self, now: Nanos, run: Transmit, into: &mut [u8], written: usize) -> usize {
        let is_whole = written.is_multiple_of(run.segment) && written / run.segment < MOST_DATAGRAMS;
        let has_room = written + self.settings.payload <= into.len().min(MOST_RUN);
        let goes_there =
            self.responders.next_due().and_then(|source| self.address_of(source)) == Some(run.to);
        if !(is_whole && has_room && goes_there && self.spare.is_none()) {
            return written;
        }
        let room = &mut into[written..];
        let Some((source, bytes)) = self.responders.acknowledge(now, room) else { return written };
        let Some(to) = self.address_of(source) else { return written };
        // It may be longer, or nothing is owed to that one any more and this is the next one's.
        if bytes > run.segment || to != run.to {
            self.spare = Some((to, room[..bytes].to_vec()));
            return written;
        }
        self.counts.datagrams_sent += 1;
        written + bytes
    }

    fn acknowledge(&mut self, now: Nanos, into: &mut [u8]) -> Option<(Transmit, usize)> {
        let (source, written) = self.responders.acknowledge(now, into)?;
        let to = self.address_of(source)?;
        self.transmit(to, written, written, 1)
    }

    fn address_of(&self, endpoint: EndpointId) -> Option<SocketAddr> {
        self.peers.find(endpoint).map(|peer| self.peers.identity(peer).address)
    }

    /// The next run of what is said to other hosts.
    fn next_run(
        &mut self,
        now: Nanos,
        into: &mut [u8],
        memory: &mut dyn Memory,
    ) -> Option<(Transmit, usize)> {
        if let Some(context) = self.contexts.next_active(now)
            && let Some(run) = self.run_of(now, context, None, into, memory)
        {
            return Some(run);
        }
        for _ in 0..self.talking.len() {
            let peer = self.talking.pop_front()?;
            if !self.has_pieces(peer) {
                self.peers.end_talking(peer);
                self.contexts.transport.on_said(peer);
                continue;
            }
            self.talking.push_back(peer);
            if !self.relays.is_full(peer)
                && let Some(context) = self.context_for(now, peer)
                && let Some(run) = self.run_of(now, context, Some(peer), into, memory)
            {
                return Some(run);
            }
        }
        // One that was opened just now, and asks first.
        let context = self.contexts.next_active(now)?;
        self.run_of(now, context, None, into, memory)
    }

    fn has_pieces(&self, peer: PeerId) -> bool {
        self.messages.has_frames(peer) || self.relays.has_pieces(peer)
    }

    /// The context that has room for what goes to `peer` now.
    fn context_for(&mut self, now: Nanos, peer: PeerId) -> Option<ContextId> {
        let context = match self.contexts.transport.route(peer) {
            Routing::Wait => return None,
            // Its last pieces are not to wait for others with which their parity would be made.
            Routing::Yield(context) => {
                self.contexts.flush(context);
                return None;
            }
            Routing::Take(context) => context,
            Routing::Open { to, handshake, instead_of } => {
                if let Some(old) = instead_of {
                    self.contexts.close(old);
                }
                let context = self.contexts.open(now, to, self.peers.identity(to), handshake)?;
                self.contexts.transport.on_opened(context, peer);
                context
            }
        };
        self.contexts.takes(now, context).then_some(context)
    }

    /// A run of a context's datagrams, with new pieces for `talker` behind what it has.
    fn run_of(
        &mut self,
        now: Nanos,
        context: ContextId,
        talker: Option<PeerId>,
        into: &mut [u8],
        memory: &mut dyn Memory,
    ) -> Option<(Transmit, usize)> {
        let to = self.contexts.address(context)?;
        let (mut written, mut segment, mut datagrams) = (0, 0, 0);
        let guards = self.contexts.has_parity_alone(context);
        while datagrams < MOST_DATAGRAMS && written + self.settings.payload <= into.len().min(MOST_RUN) {
            // What parity is about leaves before that is made.
            if datagrams > 0 && !guards && self.contexts.has_parity_alone(context) {
                break;
            }
            let room = &mut into[written..];
            // None is longer than the first of its run.
            let most = if datagrams == 0 { self.settings.payload } else { segment };
            let mut bytes = self.next_datagram(now, context, most, room);
            if bytes == 0
                && let Some(peer) = talker
                && self.has_pieces(peer)
                && self.contexts.transport.route(peer) == Routing::Take(context)
                && self.contexts.takes(now, context)
            {
                self.refill(now, context, peer, memory);
                bytes = self.next_datagram(now, context, most, room);
            }
            if bytes == 0 {
                break;
            }
            if datagrams > 0 && bytes > segment {
                self.spare = Some((to, room[..bytes].to_vec()));
                break;
            }
            written += bytes;
            datagrams += 1;
            if datagrams == 1 {
                segment = bytes;
            } else if bytes < segment {
                break;
            }
        }
        if written == 0 {
            return None;
        }
        self.transmit(to, segment, written, datagrams)
    }

    /// Writes a context's next datagram, with the acknowledgement that is owed to whom it goes to where that makes it no longer than `most`.
    fn next_datagram(&mut self, now: Nanos, context: ContextId, most: usize, into: &mut [u8]) -> usize {
        let responders = &mut self.responders;
        let mut join = |to, bytes| responders.join(now, to, most.saturating_sub(bytes));
        self.contexts.poll(now, context, into, &mut join)
    }

    /// Gives a context the next piece for a peer, or its parity where there is none.
    fn refill(&mut self, now: Nanos, context: ContextId, peer: PeerId, memory: &mut dyn Memory) {
        let piece = match self.relays.next_again(peer) {
            Some(piece) => Some(piece),
            None => self.next_piece(peer, memory),
        };
        if let Some(piece) = piece {
            self.contexts.push(now, context, peer, piece);
        }
        if !self.has_pieces(peer) || self.relays.is_full(peer) {
            self.contexts.flush(context);
        }
    }

    /// The next piece for a peer, where there is something to say to it.
    fn next_piece(&mut self, peer: PeerId, memory: &mut dyn Memory) -> Option<Arc<Piece>> {
        let relays = self.contexts.transport.relays();
        let head = if relays { relays::HEAD } else { 0 };
        let said = self.messages.fill(peer, &mut self.page[head..], memory);
        if said == 0 && !relays || relays && !self.relays.begin(peer, said, &mut self.page) {
            return None;
        }
        // Most pieces are short, and kept until they are acknowledged.
        let frames = self.page[..head + said].to_vec();
        let piece = Arc::new(Piece { to: self.peers.identity(peer).endpoint, frames });
        if relays && said > 0 {
            self.relays.keep(peer, &piece);
        }
        Some(piece)
    }

    fn transmit(
        &mut self,
        to: SocketAddr,
        segment: usize,
        written: usize,
        datagrams: usize,
    ) -> Option<(Transmit, usize)> {
        self.counts.datagrams_sent += datagrams as u64;
        Some((Transmit { to, segment }, written))
    }
}

/// Bytes behind which acknowledgements have a turn: what is said to a few neighbours at once takes theirs with it.
const MUCH: usize = 16 << 10;

/// Datagrams that one system call takes (the kernel's UDP_MAX_SEGMENTS), and their bytes.
const MOST_DATAGRAMS: usize = 64;
const MOST_RUN: usize = 65_000;
