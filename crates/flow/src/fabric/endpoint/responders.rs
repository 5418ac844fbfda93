//! What comes from other hosts: a receiving context for each peer that sends, from its first datagram until it says that it has done, or
//! begins another.

use std::collections::VecDeque;

use farlink_wire::fabric::datagram::{About, Clear, Connect, Data, Parity};
use farlink_wire::quantity::Nanos;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::fabric::incoming::Incoming;
use crate::fabric::operation::{EndpointId, Identity};
use crate::fabric::parity::Piece;
use crate::fabric::seal::Cipher;

/// All receiving contexts.
pub(super) struct Responders {
    key: [u8; 32],
    me: Identity,
    open: FxHashMap<EndpointId, Incoming>,
    /// The last context of each peer that had one: an earlier one is a replay.
    last: FxHashMap<EndpointId, u64>,
    /// Those that had one before: what it leads them by is wanted elsewhere when it is drained.
    moving: FxHashSet<EndpointId>,
    owing: Vec<EndpointId>,
    due: VecDeque<EndpointId>,
    /// Whether somebody waits for what is due.
    presses: bool,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    opened: u64,
    most: u64,
    rebuilt: u64,
    kept_most: u64,
}

/// A datagram that is genuine.
pub(super) struct Opened<'a> {
    pub(super) source: EndpointId,
    pub(super) about: About,
    pub(super) body: &'a [u8],
    /// Where its process runs, if it says so.
    pub(super) host: Option<u64>,
}

impl std::fmt::Debug for Responders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responders").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Responders {
    pub(super) fn new(key: [u8; 32], me: Identity) -> Self {
        let counts = Counts::default();
        Self {
            key,
            me,
            open: FxHashMap::default(),
            last: FxHashMap::default(),
            moving: FxHashSet::default(),
            owing: Vec::new(),
            due: VecDeque::new(),
            presses: false,
            counts,
        }
    }

    /// Opens a datagram that is genuine and new, and that there is room for.
    pub(super) fn open<'a>(
        &mut self,
        now: Nanos,
        clear: Clear,
        datagram: &'a mut [u8],
    ) -> Option<Opened<'a>> {
        let source = EndpointId(clear.source);
        let known = self.open.get_mut(&source).filter(|incoming| incoming.number() == clear.context);
        let body = match known {
            Some(incoming) => {
                let body = incoming.open(clear, datagram)?;
                incoming.on_number(now, clear);
                body
            }
            None => {
                if self.last.get(&source).is_some_and(|last| *last >= clear.context) {
                    return None;
                }
                let cipher = Cipher::new(&self.key, source, self.me.endpoint, clear.context)?;
                let mut incoming = Incoming::new(clear.context, cipher, now);
                let body = incoming.open(clear, datagram)?;
                incoming.on_number(now, clear);
                self.close(source);
                if self.last.insert(source, clear.context).is_some() {
                    self.moving.insert(source);
                }
                self.open.insert(source, incoming);
                self.counts.opened += 1;
                self.counts.most = self.counts.most.max(self.open.len() as u64);
                body
            }
        };
        if !self.owing.contains(&source) {
            self.owing.push(source);
        }
        let host = match clear.about {
            About::Connect => Connect::decode(body).ok().map(|connect| connect.host),
            _ => None,
        };
        Some(Opened { source, about: clear.about, body, host })
    }

    /// What a peer said is not acknowledged: nobody takes it.
    pub(super) fn ignore(&mut self, source: EndpointId) {
        if let Some(incoming) = self.open.get_mut(&source) {
            incoming.ignore();
        }
    }

    /// A peer failed: what came of it before something that did not is nobody's any more. What it still says is known for its own.
    pub(super) fn forget(&mut self, source: EndpointId) {
        if let Some(incoming) = self.open.get_mut(&source) {
            incoming.abandon();
        }
    }

    /// A piece came: whether it is the next, to be taken at once.
    pub(super) fn on_data(&mut self, source: EndpointId, data: Data, frames: &[u8]) -> bool {
        let Some(incoming) = self.open.get_mut(&source) else { return false };
        let next = incoming.on_data(data, frames);
        if next {
            incoming.on_taken(data, frames);
        }
        next
    }

    pub(super) fn on_parity(&mut self, source: EndpointId, parity: Parity, shard: &[u8]) {
        if let Some(incoming) = self.open.get_mut(&source) {
            incoming.on_parity(parity, shard);
        }
    }

    /// The next piece of a peer, in order.
    pub(super) fn poll(&mut self, source: EndpointId) -> Option<Piece> {
        self.open.get_mut(&source)?.poll()
    }

    /// All that had come was given.
    pub(super) fn on_end(&mut self) {
        self.presses = self.must_acknowledge() || self.owing.iter().any(|source| self.is_waited_for(*source));
        self.due.extend(self.owing.drain(..));
    }

    /// Whether a sender goes on only when it has what is due: to be admitted, to repair something, or to lead its context elsewhere.
    fn is_waited_for(&self, source: EndpointId) -> bool {
        let moves = self.moving.contains(&source);
        self.open.get(&source).is_some_and(|incoming| incoming.is_waited_for() || moves && incoming.owes())
    }

    /// Whether an acknowledgement is due that somebody waits for.
    pub(super) fn must_acknowledge(&self) -> bool {
        self.presses && !self.due.is_empty()
    }

    /// Who is acknowledged next.
    pub(super) fn next_due(&self) -> Option<EndpointId> {
        self.due.front().copied()
    }

    /// Writes an acknowledgement that is owed: to whom, and how many bytes.
    pub(super) fn acknowledge(&mut self, now: Nanos, into: &mut [u8]) -> Option<(EndpointId, usize)> {
        while let Some(source) = self.due.pop_front() {
            let Some(incoming) = self.open.get_mut(&source) else { continue };
            let written = incoming.acknowledge(now, self.me.endpoint, into);
            if incoming.owes() {
                self.due.push_front(source);
            }
            if written > 0 {
                return Some((source, written));
            }
        }
        None
    }

    /// An acknowledgement that is owed to `source`, for a datagram to it that has `room` for so many bytes: empty where there is none.
    pub(super) fn join(&mut self, now: Nanos, source: EndpointId, room: usize) -> Vec<u8> {
        let Some(at) = self.due.iter().position(|due| *due == source) else { return Vec::new() };
        let Some(incoming) = self.open.get_mut(&source) else { return Vec::new() };
        let joined = incoming.join(now, room);
        if !incoming.owes() {
            self.due.remove(at);
        }
        joined
    }

    /// The peer's context ended.
    pub(super) fn close(&mut self, source: EndpointId) {
        if let Some(incoming) = self.open.remove(&source) {
            self.counts.rebuilt += incoming.rebuilt();
        }
    }

    /// Takes note of what is kept now.
    pub(super) fn look(&mut self) {
        let kept: usize = self.open.values().map(Incoming::kept_bytes).sum();
        self.counts.kept_most = self.counts.kept_most.max(kept as u64);
    }

    pub(super) fn statistics(&self) -> Vec<(&'static str, u64)> {
        let rebuilt: u64 = self.open.values().map(Incoming::rebuilt).sum();
        let kept: usize = self.open.values().map(Incoming::kept_bytes).sum();
        vec![
            ("responders", self.open.len() as u64),
            ("responders_most", self.counts.most),
            ("responders_opened", self.counts.opened),
            ("pieces_rebuilt", self.counts.rebuilt + rebuilt),
            ("bytes_of_responders", (self.open.len() * size_of::<Incoming>()) as u64),
            ("bytes_received_kept", self.counts.kept_most.max(kept as u64)),
            ("bytes_of_former_responders", (self.last.len() * size_of::<(EndpointId, u64)>()) as u64),
        ]
    }
}
