//! What goes to peers of this host: records in shared memory, of frames and whose they are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farlink_wire::fabric::address::Address;

use super::Endpoint;
use crate::fabric::operation::{EndpointId, HostId, Identity, PeerId};

/// Peers of this host to whom there is something to say.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    talking: BTreeSet<PeerId>,
    /// Frames that came here for them, and whose they are: no more than their credit lets come, and what they want.
    forwards: BTreeMap<PeerId, VecDeque<(Identity, Vec<u8>)>>,
    /// Bytes of those, and the most that there were.
    bytes: usize,
    most_bytes: usize,
}

impl Neighbours {
    pub(super) fn on_talked(&mut self, peer: PeerId) {
        self.talking.insert(peer);
    }

    /// There is nothing more to say of this process's own.
    pub(super) fn on_said(&mut self, peer: PeerId) {
        if !self.forwards.contains_key(&peer) {
            self.talking.remove(&peer);
        }
    }

    pub(super) fn talking(&self) -> Vec<PeerId> {
        self.talking.iter().copied().collect()
    }

    pub(super) fn has_talking(&self) -> bool {
        !self.talking.is_empty()
    }

    /// Frames of `origin` that came for `peer`.
    pub(super) fn forward(&mut self, peer: PeerId, origin: Identity, frames: &[u8]) {
        self.bytes += frames.len();
        self.most_bytes = self.most_bytes.max(self.bytes);
        self.forwards.entry(peer).or_default().push_back((origin, frames.to_vec()));
        self.talking.insert(peer);
    }

    /// Writes a record of what is forwarded to `peer`, where there is something: how many bytes, 0 where there is no room.
    pub(super) fn fill_forward(&mut self, peer: PeerId, room: &mut [u8]) -> Option<usize> {
        let waiting = self.forwards.get_mut(&peer)?;
        let (origin, frames) = waiting.front()?;
        let len = Address::LEN + frames.len();
        if len > room.len() {
            return Some(0);
        }
        let Identity { endpoint: EndpointId(endpoint), host: HostId(host), address: at } = *origin;
        let origin = Address { endpoint, host, at, process: 0, rank: None };
        room[..Address::LEN].copy_from_slice(&origin.encode());
        room[Address::LEN..len].copy_from_slice(frames);
        self.bytes -= frames.len();
        waiting.pop_front();
        if waiting.is_empty() {
            self.forwards.remove(&peer);
        }
        Some(len)
    }

    /// Bytes of the next record of what is forwarded to `peer`; 0 where there is none.
    fn forward_len(&self, peer: PeerId) -> usize {
        let next = self.forwards.get(&peer).and_then(VecDeque::front);
        next.map_or(0, |(_, frames)| Address::LEN + frames.len())
    }

    /// A peer is no more: whose frames waited for it.
    pub(super) fn on_gone(&mut self, peer: PeerId) -> Vec<EndpointId> {
        self.talking.remove(&peer);
        let waiting = self.forwards.remove(&peer).unwrap_or_default();
        self.bytes -= waiting.iter().map(|(_, frames)| frames.len()).sum::<usize>();
        waiting.into_iter().map(|(origin, _)| origin.endpoint).collect()
    }

    /// What waited for neighbours.
    pub(super) fn statistics(&self) -> Vec<(&'static str, u64)> {
        vec![("bytes_forwarded_kept", self.most_bytes as u64)]
    }
}

impl Endpoint {
    /// Room without which [`fill`](Self::fill) has nothing for a nearby peer, bytes: what came for it from another host goes in one piece. 0
    /// where any will do.
    #[must_use]
    pub fn least_room(&self, peer: PeerId) -> usize {
        self.neighbours.forward_len(peer)
    }
}

/// Whose frames a record has, where they are not its writer's, and they. An origin is said in full: its frames may be the first that the
/// reader hears of it.
pub(super) fn split(record: &[u8]) -> Option<(Option<Identity>, &[u8])> {
    if let Some(frames) = record.strip_prefix(&OWN) {
        return Some((None, frames));
    }
    let Address { endpoint, host, at, .. } = Address::decode(record).ok()?;
    let origin = Identity { endpoint: EndpointId(endpoint), host: HostId(host), address: at };
    Some((Some(origin), &record[Address::LEN..]))
}

/// What a record begins with whose frames are its writer's own; others begin with the address of their origin, which is never this.
pub(super) const OWN: [u8; 8] = [0; 8];
