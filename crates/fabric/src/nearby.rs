//! Peers of this host, through shared memory.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

use farlink_flow::fabric::endpoint::Endpoint;
use farlink_flow::fabric::operation::{EndpointId, PeerId};
use farlink_host::neighbour::{Introduction, Neighbours, Writer, ring};
use farlink_wire::quantity::Nanos;

use crate::complaint::{complain, complain_of};
use crate::operations::Operations;

/// All of them, as far as they have spoken.
#[derive(Debug)]
pub(crate) struct Nearby {
    neighbours: Neighbours,
    me: EndpointId,
    key: [u8; 32],
    writers: HashMap<PeerId, Writer>,
    readers: HashMap<u64, PeerId>,
    /// When it was looked who came and who went.
    attended: Nanos,
    gone: Vec<PeerId>,
}

impl Nearby {
    /// Lets itself be found.
    pub(crate) fn open(me: EndpointId, key: [u8; 32]) -> io::Result<Self> {
        Ok(Self {
            neighbours: Neighbours::listen(&name(me))?,
            me,
            key,
            writers: HashMap::new(),
            readers: HashMap::new(),
            attended: Nanos::ZERO,
            gone: Vec::new(),
        })
    }

    /// What can be read when something came from a sleeping process's neighbours.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.neighbours.as_fd().try_clone_to_owned()
    }

    /// Hands to the machine what neighbours said.
    pub(crate) fn take_in(&mut self, now: Nanos, endpoint: &mut Endpoint, memory: &mut Operations) {
        if now.since(self.attended) >= ATTEND_EVERY {
            self.attended = now;
            self.attend();
        }
        for reader in self.neighbours.readers() {
            let id = reader.id();
            let mut peer = None;
            for _ in 0..RECORDS_AT_ONCE {
                let Some(frames) = reader.read() else { break };
                let from = *peer.get_or_insert_with(|| {
                    *self.readers.entry(id).or_insert_with(|| endpoint.neighbour(EndpointId(id)))
                });
                endpoint.on_frames(now, from, frames, memory);
            }
            if let Some(from) = peer {
                reader.release();
                // It was given up, and lives: it is to know.
                if endpoint.failure(from).is_some() {
                    self.gone.push(from);
                }
            }
        }
        while let Some(ended) = self.neighbours.ended() {
            if let Some(error) = &ended.broken {
                complain_of(error);
            }
            self.gone.extend(self.readers.remove(&ended.id));
        }
        for peer in self.gone.drain(..) {
            self.writers.remove(&peer);
            let id = endpoint.identity(peer).endpoint.0;
            self.neighbours.dismiss(id);
            self.readers.remove(&id);
            endpoint.on_gone(now, peer);
        }
    }

    /// Lets out what the machine has for neighbours.
    pub(crate) fn put_out(&mut self, now: Nanos, endpoint: &mut Endpoint, memory: &mut Operations) {
        if !endpoint.has_nearby() {
            return;
        }
        for peer in endpoint.nearby() {
            if !self.writers.contains_key(&peer) {
                match self.connect(endpoint.identity(peer).endpoint) {
                    Ok(writer) => drop(self.writers.insert(peer, writer)),
                    Err(error) => {
                        self.mind(peer, &error);
                        continue;
                    }
                }
            }
            let Some(writer) = self.writers.get_mut(&peer) else { continue };
            while let Some(room) = writer.room(LEAST_ROOM) {
                let len = endpoint.fill(now, peer, room, memory);
                writer.commit(len);
                if len == 0 {
                    break;
                }
            }
            if writer.ended() {
                self.gone.push(peer);
            }
        }
    }

    /// Asks neighbours to wake this process; false where it must not sleep.
    pub(crate) fn prepare_sleep(&mut self, endpoint: &Endpoint) -> bool {
        // Whoever waits for room sleeps until there is some.
        let mut writers = endpoint.nearby().into_iter().filter_map(|peer| {
            let writer = self.writers.get_mut(&peer)?;
            Some(writer.prepare_sleep(LEAST_ROOM))
        });
        writers.all(|quiet| quiet) && self.gone.is_empty() && self.neighbours.prepare_sleep()
    }

    /// Asks nobody any more, and looks who came.
    pub(crate) fn woken(&mut self) {
        self.neighbours.woken();
        self.attended = Nanos::ZERO;
    }

    /// Bytes of memory that it wrote to neighbours through; what they write through is theirs.
    pub(crate) fn bytes(&self) -> usize {
        self.writers.len() * ring::USUAL
    }

    fn attend(&mut self) {
        let (me, key) = (self.me, self.key);
        let admits = &mut |who: &Introduction| prove(&key, who.id, me.0) == who.proof;
        if let Err(error) = self.neighbours.attend(admits) {
            complain(format_args!("let a process of this host in: {error}"));
        }
        // Those that were written to and have not spoken.
        self.gone.extend(self.writers.iter().filter(|(_, writer)| writer.ended()).map(|(peer, _)| *peer));
    }

    fn connect(&mut self, to: EndpointId) -> io::Result<Writer> {
        let who = Introduction { id: self.me.0, proof: prove(&self.key, self.me.0, to.0).into() };
        self.neighbours.connect(&name(to), &who, ring::USUAL)
    }

    /// What it means that a peer cannot be connected to.
    fn mind(&mut self, peer: PeerId, error: &io::Error) {
        match error.kind() {
            // Too many at this moment: again in the next round.
            ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
            // It listens from before others know it until it ends.
            ErrorKind::ConnectionRefused => self.gone.push(peer),
            _ => {
                complain(format_args!("connect to a process of this host: {error}"));
                self.gone.push(peer);
            }
        }
    }
}

/// What a process listens under.
fn name(of: EndpointId) -> String {
    format!("farlink-{:016x}", of.0)
}

/// What only a process of the job can say, and only `from` to `to`.
fn prove(key: &[u8; 32], from: u64, to: u64) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(b"farlink neighbour");
    hasher.update(&from.to_be_bytes());
    hasher.update(&to.to_be_bytes());
    hasher.finalize()
}

/// How often it is looked who came and who went: a system call, and new neighbours wait so long once.
const ATTEND_EVERY: Nanos = Nanos(100_000);

/// Room that is written to, bytes: a datagram of another host's is forwarded in one piece.
const LEAST_ROOM: usize = 16 << 10;

/// Records that are taken of one neighbour before the others have their turn.
const RECORDS_AT_ONCE: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_one_job_s_and_one_direction_s() {
        let (key, other) = ([1; 32], [2; 32]);
        assert_eq!(prove(&key, 1, 2), prove(&key, 1, 2));
        assert_ne!(prove(&key, 1, 2), prove(&key, 2, 1));
        assert_ne!(prove(&key, 1, 2), prove(&other, 1, 2));
    }
}
