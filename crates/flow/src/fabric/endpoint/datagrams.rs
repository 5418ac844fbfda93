//! What an endpoint hears from other hosts, as datagrams.

use core::net::SocketAddr;

use farlink_wire::fabric::datagram::{About, Clear, Data, DatagramError, Farewell, JoinedAck, Parity};
use farlink_wire::quantity::Nanos;

use super::peers::Place;
use super::responders::Opened;
use super::{Endpoint, Foreign};
use crate::fabric::operation::{EndpointId, HostId, Identity, Memory, PeerId};
use crate::fabric::parity::Piece;

impl Endpoint {
    /// A datagram came. It is opened where it lies.
    pub fn on_datagram(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        datagram: &mut [u8],
        memory: &mut dyn Memory,
    ) {
        self.counts.datagrams_received += 1;
        let clear = match Clear::decode(datagram) {
            Ok(clear) => clear,
            Err(DatagramError::Version { version }) => {
                self.counts.other_versions += 1;
                // What comes from anywhere else may be anything.
                if self.foreign.is_none() && self.peers.has_address(from) {
                    self.foreign = Some(Foreign { from, version, told: false });
                }
                return;
            }
            Err(_) => {
                self.counts.refused += 1;
                return;
            }
        };
        if clear.about == About::Ack {
            if !self.contexts.on_ack(now, clear, datagram) {
                self.counts.refused += 1;
            }
            return;
        }
        let Some(opened) = self.responders.open(now, clear, datagram) else {
            self.counts.refused += 1;
            if self.counts.looked_at < LOOKED_AT {
                self.counts.looked_at += 1;
                self.peers.on_strange(from);
            }
            return;
        };
        let identity =
            Identity { endpoint: opened.source, host: HostId(opened.host.unwrap_or(0)), address: from };
        let peer = match self.peers.find(opened.source) {
            Some(peer) => peer,
            None => self.peer(memory.identity(opened.source).unwrap_or(identity)),
        };
        self.peers.on_heard(peer, now);
        if self.messages.failure(peer).is_some() {
            self.responders.ignore(opened.source);
            if opened.about != About::Farewell {
                self.dismiss(now, peer);
            }
            return;
        }
        self.on_opened(now, peer, &opened, memory);
        self.listen(now, memory);
    }

    fn on_opened(&mut self, now: Nanos, peer: PeerId, opened: &Opened<'_>, memory: &mut dyn Memory) {
        match opened.about {
            About::Data | About::DataWithAck => {
                let Ok((data, frames)) = self.on_front(now, opened) else {
                    self.counts.nonsense += 1;
                    return;
                };
                if self.responders.on_data(opened.source, data, frames) {
                    self.on_piece(now, peer, data.to, frames, memory);
                }
            }
            About::Parity => match Parity::decode(opened.body) {
                Ok((parity, shard)) => self.responders.on_parity(opened.source, parity, shard),
                Err(_) => self.counts.nonsense += 1,
            },
            About::Farewell => {
                let Farewell { pieces } = Farewell::decode(opened.body).unwrap_or_default();
                self.on_leaving(now, peer, Some(pieces));
            }
            About::Disconnect => self.responders.close(opened.source),
            About::Connect | About::Ack => {}
        }
        while let Some(Piece { to, frames }) = self.responders.poll(opened.source) {
            self.on_piece(now, peer, to.0, &frames, memory);
        }
    }

    /// Hears what stands before the frames of a datagram.
    fn on_front<'a>(&mut self, now: Nanos, opened: &Opened<'a>) -> Result<(Data, &'a [u8]), DatagramError> {
        let (data, behind) = Data::decode(opened.body)?;
        if opened.about == About::Data {
            return Ok((data, behind));
        }
        let (joined, frames) = JoinedAck::decode(behind)?;
        self.contexts.on_joined_ack(now, opened.source, &joined);
        Ok((data, frames))
    }

    /// The next frames of a peer, for this process or another of its host.
    fn on_piece(&mut self, now: Nanos, from: PeerId, to: u64, frames: &[u8], memory: &mut dyn Memory) {
        if to == self.me.endpoint.0 {
            self.on_said(now, from, frames, memory);
            return;
        }
        if !self.settings.nearby {
            self.counts.nonsense += 1;
            return;
        }
        // The sender knows that it is of this host; this process may never have heard of it.
        let near = self.neighbour(EndpointId(to));
        if self.peers.place(near) != Place::Near {
            self.counts.nonsense += 1;
        } else if self.messages.failure(near).is_some() {
            self.messages.tell_gone(from, to);
        } else {
            self.counts.forwarded += 1;
            self.neighbours.forward(near, *self.peers.identity(from), frames);
        }
    }

    /// All datagrams that had come were given: they are acknowledged now.
    pub fn on_datagrams_end(&mut self, _now: Nanos) {
        self.responders.on_end();
    }
}

/// Datagrams that cannot be opened of which it is looked at where they come from: whoever sends many is to cost little.
const LOOKED_AT: u64 = 1_000;
