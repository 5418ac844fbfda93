//! Peers of this host, through shared memory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

use farlink_flow::fabric::endpoint::Endpoint;
use farlink_flow::fabric::operation::{EndpointId, PeerId};
use farlink_host::neighbour::introduction::is_shortage;
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
    /// Bytes of the ring that it writes to each through.
    capacity: usize,
    writers: HashMap<PeerId, Writer>,
    readers: HashMap<u64, PeerId>,
    /// Who has spoken.
    heard: HashSet<PeerId>,
    /// When it was looked who came and who went.
    attended: Nanos,
    /// Peers that ended, or cannot be spoken to: what they said before is heard first.
    gone: BTreeSet<PeerId>,
    /// Whether nobody can be let in, which was said.
    is_full: bool,
    /// Whether there was too little of something for a peer to be connected to, which was said.
    is_short: bool,
    /// Whether a peer could not be connected to now.
    pub(crate) again: bool,
    /// Whether it let out as much as it does at once, so that there may be more.
    pub(crate) goes_on: bool,
}

impl Nearby {
    /// Lets itself be found, among so many processes of the job on this host, itself included.
    pub(crate) fn open(me: EndpointId, key: [u8; 32], processes: u64) -> io::Result<Self> {
        // Two for each neighbour. With fewer than are needed there are fewer neighbours, of which is told then.
        let _ = farlink_host::process::raise_descriptor_limit(DESCRIPTORS);
        Ok(Self {
            neighbours: Neighbours::listen(&name(me))?,
            me,
            key,
            capacity: capacity(processes),
            writers: HashMap::new(),
            readers: HashMap::new(),
            heard: HashSet::new(),
            attended: Nanos::ZERO,
            gone: BTreeSet::new(),
            is_full: false,
            is_short: false,
            again: false,
            goes_on: false,
        })
    }

    /// What can be read when something came from a sleeping process's neighbours.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.neighbours.as_fd().try_clone_to_owned()
    }

    /// Hands to the machine what neighbours said: whether they said anything.
    pub(crate) fn take_in(&mut self, now: Nanos, endpoint: &mut Endpoint, memory: &mut Operations) -> bool {
        let mut came = false;
        // Who is gone may have knocked, and spoken, before.
        if now.since(self.attended) >= ATTEND_EVERY || !self.gone.is_empty() {
            self.attended = now;
            self.attend();
        }
        for reader in self.neighbours.readers() {
            let id = reader.id();
            let mut peer = None;
            for _ in 0..RECORDS_AT_ONCE {
                let Some(frames) = reader.read() else { break };
                let from = *peer.get_or_insert_with(|| {
                    *self.readers.entry(id).or_insert_with(|| {
                        let peer = endpoint.neighbour(EndpointId(id));
                        self.heard.insert(peer);
                        peer
                    })
                });
                endpoint.on_frames(now, from, frames, memory);
            }
            if let Some(from) = peer {
                came = true;
                reader.release();
                // It was given up, and lives: it is to know.
                if endpoint.failure(from).is_some() {
                    self.gone.insert(from);
                }
            }
        }
        while let Some(ended) = self.neighbours.ended() {
            if let Some(error) = &ended.broken {
                complain_of(error);
            }
            self.gone.extend(self.readers.remove(&ended.id));
        }
        for peer in std::mem::take(&mut self.gone) {
            let id = endpoint.identity(peer).endpoint.0;
            let mut its = self.neighbours.readers().iter_mut().filter(|reader| reader.id() == id);
            if endpoint.failure(peer).is_none() && its.any(|reader| reader.has_more()) {
                self.gone.insert(peer);
                continue;
            }
            self.writers.remove(&peer);
            self.neighbours.dismiss(id);
            self.readers.remove(&id);
            endpoint.on_gone(now, peer);
        }
        came
    }

    /// Lets out what the machine has for neighbours.
    pub(crate) fn put_out(&mut self, now: Nanos, endpoint: &mut Endpoint, memory: &mut Operations) {
        (self.again, self.goes_on) = (false, false);
        if !endpoint.has_nearby() {
            return;
        }
        for peer in endpoint.nearby() {
            if self.gone.contains(&peer) {
                continue;
            }
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
            // A neighbour that reads as fast as this writes is not to keep it from all others until a message of gigabytes is over.
            let mut records = 0;
            while records < RECORDS_OUT_AT_ONCE
                && let Some(room) = writer.room(LEAST_ROOM.max(endpoint.least_room(peer)))
            {
                let len = endpoint.fill(now, peer, room, memory);
                writer.commit(len);
                if len == 0 {
                    break;
                }
                records += 1;
            }
            self.goes_on |= records == RECORDS_OUT_AT_ONCE;
            if writer.ended() {
                self.gone.insert(peer);
            }
        }
    }

    /// Whether it is to be tried again soon: a peer could not be connected to, or let in.
    pub(crate) const fn tries_again(&self) -> bool {
        self.again || self.is_full
    }

    /// Whether it has no neighbours, as far as they have spoken.
    pub(crate) fn is_alone(&self) -> bool {
        self.readers.is_empty() && self.writers.is_empty()
    }

    /// Asks neighbours to wake this process; false where it must not sleep.
    pub(crate) fn prepare_sleep(&mut self, endpoint: &Endpoint) -> bool {
        // Whoever waits for room sleeps until there is some.
        let mut writers = endpoint.nearby().into_iter().filter_map(|peer| {
            let writer = self.writers.get_mut(&peer)?;
            Some(writer.prepare_sleep(LEAST_ROOM.max(endpoint.least_room(peer))))
        });
        writers.all(|quiet| quiet) && self.gone.is_empty() && self.neighbours.prepare_sleep()
    }

    /// Asks nobody any more, and looks who came.
    pub(crate) fn woken(&mut self) {
        self.neighbours.woken();
        self.attended = Nanos::ZERO;
    }

    /// Whether a peer has ever said anything.
    pub(crate) fn has_heard(&self, peer: PeerId) -> bool {
        self.heard.contains(&peer)
    }

    /// Bytes of memory that it wrote to neighbours through; what they write through is theirs.
    pub(crate) fn bytes(&self) -> usize {
        self.writers.len() * self.capacity
    }

    fn attend(&mut self) {
        let (me, key) = (self.me, self.key);
        let admits = &mut |who: &Introduction| prove(&key, who.id, me.0) == who.proof;
        let attended = self.neighbours.attend(admits);
        let was_full = std::mem::replace(&mut self.is_full, attended.is_err());
        if let Err(error) = attended
            && !was_full
        {
            complain(format_args!("let a process of this host in: {error}"));
        }
        // Those that were written to and have not spoken.
        self.gone.extend(self.writers.iter().filter(|(_, writer)| writer.ended()).map(|(peer, _)| *peer));
    }

    fn connect(&mut self, to: EndpointId) -> io::Result<Writer> {
        let who = Introduction { id: self.me.0, proof: prove(&self.key, self.me.0, to.0).into() };
        self.neighbours.connect(&name(to), &who, self.capacity)
    }

    /// What it means that a peer cannot be connected to.
    fn mind(&mut self, peer: PeerId, error: &io::Error) {
        match error.kind() {
            // Too many at this moment: again in the next round.
            ErrorKind::WouldBlock | ErrorKind::Interrupted => self.again = true,
            _ if is_shortage(error) || error.raw_os_error() == Some(TOO_MANY_UNDER_WAY) => {
                self.again = true;
                if !std::mem::replace(&mut self.is_short, true) {
                    complain(format_args!("connect to a process of this host: {error}; it is tried again"));
                }
            }
            // It listens from before others know it until it ends.
            ErrorKind::ConnectionRefused | ErrorKind::BrokenPipe => drop(self.gone.insert(peer)),
            _ => {
                complain(format_args!("connect to a process of this host: {error}"));
                self.gone.insert(peer);
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

/// `ETOOMANYREFS`: more descriptors of this user's are on their way through sockets than a process of its may have open (unix(7)), until
/// others take theirs.
const TOO_MANY_UNDER_WAY: i32 = 109;

/// How often it is looked who came and who went: a system call, and new neighbours wait so long once.
const ATTEND_EVERY: Nanos = Nanos(100_000);

/// Descriptors that neighbours may take: of some thousand ranks. Programs that close all that they could have must not take long.
const DESCRIPTORS: u64 = 16 << 10;

/// Room that is written to, bytes, where nothing longer is to be forwarded in one piece: as much as is worth a record.
const LEAST_ROOM: usize = 16 << 10;

/// Records that are taken of one neighbour before the others have their turn.
const RECORDS_AT_ONCE: usize = 32;

/// Records that are written to one before the others have theirs: of long ones many times what a ring has.
const RECORDS_OUT_AT_ONCE: usize = 256;

/// Bytes of each ring: of many processes all write to all, and what they wrote to once stays.
fn capacity(processes: u64) -> usize {
    let share = usize::try_from(MOST_WRITTEN / processes.max(1)).unwrap_or(usize::MAX);
    (share.max(1).next_power_of_two()).clamp(LEAST_RING, ring::USUAL)
}

/// Bytes that one process writes to all others through, where that leaves each [`LEAST_RING`].
const MOST_WRITTEN: u64 = 16 << 20;

/// A ring that takes the longest records.
const LEAST_RING: usize = 4 * ring::LONGEST;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::ptr;

    use farlink_flow::fabric::endpoint::Settings;
    use farlink_flow::fabric::operation::{Ends, Failure, HostId, Identity, Kind, Region, Send, Wanted};
    use farlink_flow::fabric::transport;
    use farlink_wire::quantity::BitsPerSec;

    use super::*;
    use crate::memory::Parts;
    use crate::object::Context;
    use crate::operations::Pending;

    const KEY: [u8; 32] = [1; 32];

    /// A process of this host.
    struct Process {
        endpoint: Endpoint,
        nearby: Nearby,
        operations: Operations,
    }

    impl Process {
        fn new(number: u64) -> Self {
            let me = identity(number);
            let endpoint = Endpoint::new(Nanos(1), settings(transport::Kind::Ud, 1472), me);
            let nearby = Nearby::open(me.endpoint, KEY, 1000).unwrap();
            Self { endpoint, nearby, operations: Operations::default() }
        }

        /// Sends a message of no bytes.
        fn send(&mut self, to: u64) {
            let context = Context(ptr::null_mut());
            // SAFETY: no memory is lent.
            let parts = unsafe { Parts::one(ptr::null(), 0) }.unwrap();
            let pending = Pending { parts, context, flags: 0, told: false, several: false, receives: false };
            let operation = self.operations.add(pending);
            let to = self.endpoint.peer(identity(to));
            let region = Region(operation.0);
            let send = Send { to, kind: Kind::Untagged, data: None, region, len: 0, ends: Ends::Untold };
            self.endpoint.send(Nanos(1), send, &mut self.operations).unwrap();
            self.nearby.put_out(Nanos(1), &mut self.endpoint, &mut self.operations);
        }

        fn take_in(&mut self, now: u64) {
            self.nearby.take_in(Nanos(now), &mut self.endpoint, &mut self.operations);
        }
    }

    fn settings(transport: transport::Kind, payload: usize) -> Settings {
        Settings {
            transport,
            key: KEY,
            payload,
            rate: BitsPerSec::new(10_000_000_000),
            sharers: 1,
            eager: 1 << 20,
            most: 1 << 30,
            processes: None,
            silence: Nanos(20_000_000_000),
            nearby: true,
            seed: 1,
        }
    }

    #[test]
    fn rings_of_many_are_smaller_and_take_the_longest_record() {
        let mib = 1 << 20;
        assert_eq!([1, 16, 32, 64, u64::MAX, 0].map(capacity), [mib, mib, mib / 2, mib / 4, mib / 4, mib]);
        assert!((0..2000).all(|processes| capacity(processes).is_power_of_two()));
    }

    /// Carries datagrams from one to another.
    fn carry(
        now: Nanos,
        from: &mut Endpoint,
        its: &mut Operations,
        to: &mut Endpoint,
        memory: &mut Operations,
    ) {
        let mut run = vec![0; 1 << 16];
        while let Some((transmit, len)) = from.poll_transmit(now, &mut run, its) {
            for datagram in run[..len].chunks_mut(transmit.segment) {
                to.on_datagram(now, transmit.to, datagram, memory);
            }
        }
        to.on_datagrams_end(now);
    }

    /// Of numbers that no other test program has.
    fn identity(number: u64) -> Identity {
        let endpoint = EndpointId(u64::from(std::process::id()) << 32 | number);
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 7);
        Identity { endpoint, host: HostId(1), address }
    }

    #[test]
    fn a_neighbour_that_ended_is_heard_to_its_last_record() {
        let (mut here, mut there) = (Process::new(1), Process::new(2));
        here.send(2);
        there.take_in(1_000_000);
        let count = 3 * RECORDS_AT_ONCE + 1;
        (0..count).for_each(|_| there.send(1));
        drop(there);
        let peer = here.endpoint.peer(identity(2));
        let mut rounds = 0;
        while here.endpoint.failure(peer).is_none() {
            rounds += 1;
            assert!(rounds < 100, "its end is not noticed");
            here.take_in(rounds * 1_000_000);
        }
        let came = (0..).take_while(|_| here.endpoint.peek(Some(peer), Wanted::Untagged, true).is_some());
        assert_eq!(came.count(), count);
    }

    #[test]
    fn who_waits_for_a_neighbour_that_ended_before_anything_was_said_is_told() {
        let (mut here, there) = (Process::new(12), Process::new(13));
        let peer = here.endpoint.peer(identity(13));
        drop(there);
        assert!(here.endpoint.peek(Some(peer), Wanted::Untagged, false).is_none());
        let look = here.endpoint.deadline().unwrap();
        here.endpoint.on_time(look);
        let mut run = vec![0; 1 << 16];
        assert!(here.endpoint.poll_transmit(look, &mut run, &mut here.operations).is_none());
        here.nearby.put_out(look, &mut here.endpoint, &mut here.operations);
        here.take_in(look.0);
        assert_eq!(here.endpoint.failure(peer), Some(Failure::Ended));
    }

    #[test]
    fn a_neighbour_that_was_given_up_and_lives_is_told() {
        let (mut here, mut there) = (Process::new(3), Process::new(4));
        let [its, ours] = [here.endpoint.peer(identity(4)), there.endpoint.peer(identity(3))];
        here.endpoint.on_gone(Nanos(1), its);
        there.send(3);
        for round in 1..4 {
            here.take_in(round * 1_000_000);
            there.take_in(round * 1_000_000);
        }
        assert!(there.endpoint.failure(ours).is_some());
    }

    #[test]
    fn what_is_forwarded_in_long_records_passes_the_end_of_the_memory() {
        let (mut here, mut there) = (Process::new(6), Process::new(7));
        // Of another host: what it sends to either goes to the first.
        let other = Identity { host: HostId(2), ..identity(8) };
        let mut far = Endpoint::new(Nanos(1), settings(transport::Kind::Xrc, 50_000), other);
        let mut operations = Operations::default();
        let [_, to] = [6, 7].map(|number| far.peer(identity(number)));
        let bytes = vec![7; 1 << 20];
        for _ in 0..2 {
            // SAFETY: they outlive the endpoint.
            let parts = unsafe { Parts::one(bytes.as_ptr().cast(), bytes.len()) }.unwrap();
            let context = Context(ptr::null_mut());
            let pending = Pending { parts, context, flags: 0, told: false, several: false, receives: false };
            let operation = operations.add(pending);
            let (region, len) = (Region(operation.0), bytes.len());
            let ends = Ends::Said(operation);
            let send = Send { to, kind: Kind::Untagged, data: None, region, len, ends };
            far.send(Nanos(1), send, &mut operations).unwrap();
        }
        let came = |there: &Process| {
            let figures = there.endpoint.statistics();
            figures.iter().find(|(name, _)| *name == "bytes_unexpected_most").unwrap().1
        };
        for round in 1..1000 {
            let now = Nanos(round * 1_000_000);
            carry(now, &mut far, &mut operations, &mut here.endpoint, &mut here.operations);
            carry(now, &mut here.endpoint, &mut here.operations, &mut far, &mut operations);
            carry(now, &mut there.endpoint, &mut there.operations, &mut far, &mut operations);
            here.nearby.put_out(now, &mut here.endpoint, &mut here.operations);
            there.take_in(now.0);
            for endpoint in [&mut far, &mut here.endpoint, &mut there.endpoint] {
                endpoint.on_time(now);
            }
        }
        assert_eq!(came(&there), 2 << 20);
    }

    #[test]
    fn a_process_may_have_as_many_descriptors_as_it_is_allowed() {
        let _here = Process::new(11);
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let [now, most, ..] = files.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{files}") };
        assert_eq!(now, most);
    }

    #[test]
    fn who_cannot_be_connected_to_for_want_of_descriptors_is_tried_again() {
        let mut here = Process::new(9);
        let peer = here.endpoint.peer(identity(10));
        // EMFILE, ENFILE, EAGAIN, ETOOMANYREFS.
        for code in [24, 23, 11, 109] {
            here.nearby.again = false;
            here.nearby.mind(peer, &io::Error::from_raw_os_error(code));
            assert!(here.nearby.again && here.nearby.gone.is_empty());
        }
        here.nearby.put_out(Nanos(1), &mut here.endpoint, &mut here.operations);
        assert!(!here.nearby.again);
        here.nearby.mind(peer, &ErrorKind::ConnectionRefused.into());
        assert!(!here.nearby.again && here.nearby.gone.contains(&peer));
    }

    #[test]
    fn a_proof_is_one_job_s_and_one_direction_s() {
        let (key, other) = ([1; 32], [2; 32]);
        assert_eq!(prove(&key, 1, 2), prove(&key, 1, 2));
        assert_ne!(prove(&key, 1, 2), prove(&key, 2, 1));
        assert_ne!(prove(&key, 1, 2), prove(&other, 1, 2));
    }
}
