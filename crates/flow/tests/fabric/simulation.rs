//! Processes of a parallel program in virtual time: their datagrams go over links, or from hand to hand within a host.

mod regions;
mod wakes;

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use farlink_flow::fabric::endpoint::{Endpoint, Settings, Transmit};
use farlink_flow::fabric::operation::{
    Completion, EndpointId, Ends, Failure, HostId, Identity, Kind, Operation, PeerId, Receive, Region, Send,
    Wanted,
};
use farlink_link::{Conditions, Delivery, Link, Segments};
use farlink_wire::fabric::datagram::{About, Clear};
use farlink_wire::quantity::Nanos;

use self::regions::{CONTENT, Regions, place};
use self::wakes::{Wakes, Who};

/// Processes, numbered from 0, and what lies between their hosts.
pub(crate) struct Simulation {
    pub(crate) now: Nanos,
    pub(crate) processes: Vec<Process>,
    conditions: Conditions,
    links: BTreeMap<(u64, u64), Link<Rc<Packet>>>,
    wakes: Wakes,
    /// The lengths of messages by sender and receiver, and how many of them were asked for.
    sent: HashMap<(usize, usize), Vec<usize>>,
    asked: HashMap<(usize, usize), u64>,
    /// Operations that have not ended.
    pub(crate) pending: usize,
    pub(crate) failures: Vec<Failed>,
    /// The last datagrams that were sent, with their sender and receiver.
    pub(crate) overheard: VecDeque<(SocketAddr, usize, Vec<u8>)>,
    room: Vec<u8>,
    pub(crate) datagrams: u64,
    /// Processes that do not read what their neighbours write.
    stalled: BTreeSet<usize>,
    /// One that does not run, and what has come for it.
    frozen: Option<usize>,
    unread: Vec<(SocketAddr, Vec<u8>)>,
    /// The last sending context of each endpoint that led to each process.
    newest: HashMap<(u64, usize), u64>,
    /// How often another context than before led to a process.
    pub(crate) moves: u64,
}

pub(crate) struct Process {
    pub(crate) endpoint: Endpoint,
    identity: Identity,
    /// Who the others are.
    others: Rc<[Identity]>,
    memory: Regions,
    operations: HashMap<Operation, Pending>,
    next: u64,
    pub(crate) is_dead: bool,
}

/// A message that is being sent or received: the `nth` of `from` to `to`.
#[derive(Clone, Copy)]
struct Pending {
    region: Region,
    from: usize,
    to: usize,
    nth: u64,
}

/// An operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) at: Nanos,
    pub(crate) process: usize,
    pub(crate) other: usize,
    pub(crate) why: Failure,
    pub(crate) sending: bool,
}

#[derive(Debug)]
struct Packet {
    from: SocketAddr,
    to: usize,
    segment: usize,
    bytes: Vec<u8>,
}

impl Simulation {
    /// `hosts` hosts of `each` processes who know each other, with such a link from each host to each other.
    pub(crate) fn new(hosts: u64, each: u64, conditions: Conditions, settings: &Settings) -> Self {
        Self::with(hosts, each, conditions, |at| Settings {
            seed: settings.seed + at as u64,
            ..settings.clone()
        })
    }

    /// As [`Self::new`], where each process has settings of its own.
    pub(crate) fn with(
        hosts: u64,
        each: u64,
        conditions: Conditions,
        settings: impl Fn(usize) -> Settings,
    ) -> Self {
        let mut simulation = Self::strangers(hosts, each, conditions, settings);
        let count = simulation.processes.len();
        for (at, process) in simulation.processes.iter_mut().enumerate() {
            // Each hears of the others in another order.
            for other in (0..count).map(|other| (at * 7 + other) % count) {
                process.peer(other);
            }
        }
        simulation
    }

    /// Such hosts, whose processes hear of each other only when they send or receive.
    pub(crate) fn of_strangers(hosts: u64, each: u64, conditions: Conditions, settings: &Settings) -> Self {
        Self::strangers(hosts, each, conditions, |at| Settings {
            seed: settings.seed + at as u64,
            ..settings.clone()
        })
    }

    fn strangers(
        hosts: u64,
        each: u64,
        conditions: Conditions,
        settings: impl Fn(usize) -> Settings,
    ) -> Self {
        let now = Nanos(1_000_000_000);
        let identities: Rc<[Identity]> = (0..hosts * each).map(|at| identity(at / each, at)).collect();
        let start = |at: usize| Process {
            endpoint: Endpoint::new(now, settings(at), identities[at]),
            identity: identities[at],
            others: Rc::clone(&identities),
            memory: Regions::default(),
            operations: HashMap::new(),
            next: 0,
            is_dead: false,
        };
        Self {
            now,
            processes: (0..identities.len()).map(start).collect(),
            conditions,
            links: BTreeMap::new(),
            wakes: Wakes::default(),
            sent: HashMap::new(),
            asked: HashMap::new(),
            pending: 0,
            failures: Vec::new(),
            overheard: VecDeque::new(),
            room: vec![0; 1 << 16],
            datagrams: 0,
            stalled: BTreeSet::new(),
            frozen: None,
            unread: Vec::new(),
            newest: HashMap::new(),
            moves: 0,
        }
    }

    /// Changes all links.
    pub(crate) fn set(&mut self, conditions: Conditions) {
        self.conditions = conditions;
        self.links.values_mut().for_each(|link| link.set(self.now, conditions));
    }

    /// `from` sends `to` a message, whose content is known by its place among all.
    pub(crate) fn send(&mut self, from: usize, to: usize, len: usize) {
        let lengths = self.sent.entry((from, to)).or_default();
        let nth = lengths.len() as u64;
        lengths.push(len);
        let place = place(from, to, nth, len);
        let process = &mut self.processes[from];
        let (region, operation) = process.begin(Pending { region: Region(0), from, to, nth });
        process.memory.sent.insert(region, place);
        let kind = Kind::Tagged(nth);
        let send =
            Send { to: process.peer(to), kind, data: Some(nth), region, len, ends: Ends::Said(operation) };
        self.pending += 1;
        if let Err(refused) = process.endpoint.send(self.now, send, &mut process.memory) {
            let farlink_flow::fabric::operation::Refused::Failed(why) = refused else { panic!("{refused}") };
            self.failed(from, operation, why, true);
        }
        self.drive_all([from].into());
    }

    /// `to` wants the next message of `from`, of `room` bytes or less.
    pub(crate) fn receive(&mut self, to: usize, from: usize, room: usize) {
        let asked = self.asked.entry((from, to)).or_default();
        let nth = *asked;
        *asked += 1;
        self.want(to, Some(from), Pending { region: Region(0), from, to, nth }, room);
    }

    /// `to` wants a message of whoever sends one: nobody does.
    pub(crate) fn receive_of_anybody(&mut self, to: usize) {
        self.want(to, None, Pending { region: Region(0), from: to, to, nth: 0 }, 8);
    }

    fn want(&mut self, to: usize, from: Option<usize>, pending: Pending, room: usize) {
        let process = &mut self.processes[to];
        let (region, operation) = process.begin(pending);
        process.memory.wanted.insert(region, vec![0; room]);
        let wanted = Wanted::Tagged { tag: 0, ignore: u64::MAX };
        let from = from.map(|from| process.peer(from));
        let receive = Receive { from, wanted, region, len: room, operation, multi: None };
        self.pending += 1;
        process.endpoint.receive(self.now, receive, &mut process.memory);
        self.drive_all([to].into());
    }

    /// `process` looks for a message of `other`, of which there is none: why there never will be.
    pub(crate) fn probe(&mut self, process: usize, other: usize) -> Option<Failure> {
        let process = &mut self.processes[process];
        let peer = process.peer(other);
        let found = process.endpoint.peek(Some(peer), Wanted::Tagged { tag: 0, ignore: u64::MAX }, false);
        assert!(found.is_none(), "{found:?}");
        process.endpoint.failure(peer)
    }

    /// Both at once, the receive first.
    pub(crate) fn message(&mut self, from: usize, to: usize, len: usize) {
        self.receive(to, from, len);
        self.send(from, to, len);
    }

    /// Operations that have not ended between processes that are all among `these`.
    pub(crate) fn pending_among(&self, these: impl Fn(usize) -> bool) -> usize {
        let pending = self.processes.iter().flat_map(|process| process.operations.values());
        pending.filter(|each| these(each.from) && these(each.to)).count()
    }

    /// Until all that was begun has ended: how long it took. No more than `limit`.
    pub(crate) fn finish(&mut self, limit: Nanos) -> Nanos {
        let begun = self.now;
        let end = begun.after(limit);
        while self.pending > 0 {
            assert!(
                self.now < end,
                "{} operations still wait after {limit}: {}",
                self.pending,
                self.waiting()
            );
            self.step(end);
        }
        self.now.since(begun)
    }

    /// For so long.
    pub(crate) fn run(&mut self, time: Nanos) {
        let end = self.now.after(time);
        while self.now < end {
            self.step(end);
        }
    }

    /// A process dies, without a word.
    pub(crate) fn kill(&mut self, process: usize) {
        let dead = &mut self.processes[process];
        dead.is_dead = true;
        self.pending -= dead.operations.len();
        dead.operations.clear();
        self.wakes.set(Who::Process(process), None);
    }

    /// A process dies, and its neighbours see it.
    pub(crate) fn kill_seen(&mut self, process: usize) {
        self.kill(process);
        let dead = self.processes[process].identity;
        let near = |each: &Process| !each.is_dead && each.identity.host == dead.host;
        let seen: BTreeSet<usize> =
            (0..self.processes.len()).filter(|each| near(&self.processes[*each])).collect();
        for each in &seen {
            let endpoint = &mut self.processes[*each].endpoint;
            let peer = endpoint.neighbour(dead.endpoint);
            endpoint.on_gone(self.now, peer);
        }
        self.drive_all(seen);
    }

    /// A process does not read what its neighbours write, or does again.
    pub(crate) fn stall(&mut self, process: usize, stalls: bool) {
        if stalls {
            self.stalled.insert(process);
        } else {
            self.stalled.remove(&process);
            self.drive_all((0..self.processes.len()).collect());
        }
    }

    /// A process does not run for so long.
    pub(crate) fn freeze(&mut self, process: usize, time: Nanos) {
        self.frozen = Some(process);
        self.wakes.set(Who::Process(process), None);
        self.run(time);
        self.frozen = None;
        let Process { endpoint, memory, .. } = &mut self.processes[process];
        for (from, mut datagram) in self.unread.drain(..) {
            endpoint.on_datagram(self.now, from, &mut datagram, memory);
        }
        endpoint.on_datagrams_end(self.now);
        endpoint.on_time(self.now);
        self.drive_all([process].into());
    }

    /// A process ends, and says so.
    pub(crate) fn close(&mut self, process: usize) {
        self.processes[process].endpoint.on_close(self.now);
        self.drive_all([process].into());
        self.kill(process);
    }

    /// A figure of a process.
    pub(crate) fn figure(&self, process: usize, name: &str) -> u64 {
        let all = self.processes[process].endpoint.statistics();
        all.into_iter().find(|(each, _)| *each == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    /// A figure of all processes together.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        (0..self.processes.len()).map(|process| self.figure(process, name)).sum()
    }

    /// Hands a process a datagram as if the network had brought it.
    pub(crate) fn inject(&mut self, from: SocketAddr, to: usize, mut datagram: Vec<u8>) {
        let process = &mut self.processes[to];
        process.endpoint.on_datagram(self.now, from, &mut datagram, &mut process.memory);
        process.endpoint.on_datagrams_end(self.now);
        self.drive_all([to].into());
    }

    /// What still waits, and what those who are about it did.
    fn waiting(&self) -> String {
        let pending = || self.processes.iter().flat_map(|process| process.operations.values());
        let waiting: Vec<_> =
            pending().map(|each| format!("{}>{}#{}", each.from, each.to, each.nth)).collect();
        let about: BTreeSet<usize> = pending().flat_map(|each| [each.from, each.to]).collect();
        let processes = about.into_iter().map(|each| format!("{each}: {:#?}", self.processes[each].endpoint));
        format!("{waiting:?}\n{}", processes.collect::<Vec<_>>().join("\n"))
    }

    fn step(&mut self, end: Nanos) {
        let Some((at, _)) = self.wakes.by_time.first().copied().filter(|(at, _)| *at <= end) else {
            self.now = end;
            return;
        };
        self.now = self.now.max(at);
        let mut touched = BTreeSet::new();
        while let Some((at, who)) = self.wakes.by_time.first().copied()
            && at <= self.now
        {
            match who {
                Who::Link(from, to) => {
                    let link = self.links.get_mut(&(from, to)).unwrap();
                    let delivery = link.poll(self.now);
                    self.wakes.set(who, link.deadline());
                    delivery.into_iter().for_each(|delivery| touched.extend(self.arrive(&delivery)));
                }
                Who::Process(process) => {
                    self.processes[process].endpoint.on_time(self.now);
                    self.wakes.set(who, None);
                    touched.insert(process);
                }
            }
        }
        for process in &touched {
            self.processes[*process].endpoint.on_datagrams_end(self.now);
        }
        self.drive_all(touched);
    }

    /// Datagrams arrive: whose they are.
    fn arrive(&mut self, delivery: &Delivery<Rc<Packet>>) -> Option<usize> {
        let Packet { from, to, segment, bytes } = &*delivery.packet;
        let process = &mut self.processes[*to];
        if process.is_dead {
            return None;
        }
        for datagram in bytes.chunks(*segment).skip(delivery.run.start.into()).take(delivery.run.len()) {
            let mut datagram = datagram.to_vec();
            if let Some(bit) = delivery.flipped.and_then(|bit| bit.checked_sub(HEADERS * 8)) {
                datagram[bit as usize / 8] ^= 1 << (bit % 8);
            }
            if self.frozen == Some(*to) {
                self.unread.push((*from, datagram));
            } else {
                process.endpoint.on_datagram(self.now, *from, &mut datagram, &mut process.memory);
            }
        }
        (self.frozen != Some(*to)).then_some(*to)
    }

    /// Does what processes say, until they say nothing.
    fn drive_all(&mut self, mut processes: BTreeSet<usize>) {
        let mut driven = BTreeMap::new();
        while let Some(process) = processes.pop_first() {
            processes.extend(self.drive(process));
            if self.processes[process].is_dead {
                continue;
            }
            let deadline = self.processes[process].endpoint.deadline();
            if deadline.is_some_and(|at| at <= self.now) {
                // A path that is found to be shorter may have it late already: once, for whatever is due is done then.
                let times = driven.entry(process).or_insert(0);
                *times += 1;
                assert!(*times < SPINS, "process {process} spins at {:?}", self.now);
                self.processes[process].endpoint.on_time(self.now);
                processes.insert(process);
            }
            self.wakes.set(Who::Process(process), deadline);
        }
    }

    /// Does what a process says: who else of its host was told something.
    fn drive(&mut self, at: usize) -> BTreeSet<usize> {
        let mut told = BTreeSet::new();
        if self.processes[at].is_dead {
            return told;
        }
        let mut room = std::mem::take(&mut self.room);
        loop {
            let Process { endpoint, memory, .. } = &mut self.processes[at];
            let Some((transmit, bytes)) = endpoint.poll_transmit(self.now, &mut room, memory) else { break };
            self.transmit(at, transmit, &room[..bytes]);
        }
        for peer in self.processes[at].endpoint.nearby() {
            let other = self.processes[at].other(peer);
            while !self.stalled.contains(&other) {
                let Process { endpoint, memory, .. } = &mut self.processes[at];
                let written = endpoint.fill(self.now, peer, &mut room, memory);
                if written == 0 {
                    break;
                }
                let writer = self.processes[at].identity.endpoint;
                let Process { endpoint, memory, .. } = &mut self.processes[other];
                let writer = endpoint.neighbour(writer);
                endpoint.on_frames(self.now, writer, &room[..written], memory);
                told.insert(other);
            }
        }
        self.room = room;
        if self.processes[at].endpoint.seems_alone() {
            for other in 0..self.processes.len() {
                self.processes[at].peer(other);
            }
            self.processes[at].endpoint.on_all_known();
        }
        while let Some(completion) = self.processes[at].endpoint.poll_completion() {
            self.complete(at, &completion);
        }
        told
    }

    /// Has a process know of another.
    pub(crate) fn know(&mut self, at: usize, other: usize) {
        self.processes[at].peer(other);
    }

    fn transmit(&mut self, from: usize, transmit: Transmit, bytes: &[u8]) {
        let to = self.processes.iter().position(|each| each.identity.address == transmit.to).unwrap();
        let [here, there] = [from, to].map(|each| self.processes[each].identity);
        let (here, there, from) = (here.host.0, there.host.0, here.address);
        let datagrams = bytes.chunks(transmit.segment);
        let last = bytes.len() - (datagrams.len() - 1) * transmit.segment;
        let segments = Segments {
            count: datagrams.len() as u16,
            full: transmit.segment as u32 + HEADERS,
            last: last as u32 + HEADERS,
        };
        self.datagrams += datagrams.len() as u64;
        bytes.chunks(transmit.segment).for_each(|datagram| self.note(to, datagram));
        self.overheard.extend(datagrams.map(|datagram| (from, to, datagram.to_vec())));
        self.overheard.drain(..self.overheard.len().saturating_sub(OVERHEARD));
        let seed = here << 32 | there;
        let link =
            self.links.entry((here, there)).or_insert_with(|| Link::new(self.conditions, seed, self.now));
        let packet = Packet { from, to, segment: transmit.segment, bytes: bytes.to_vec() };
        link.on_packet(self.now, segments, &Rc::new(packet));
        self.wakes.set(Who::Link(here, there), link.deadline());
    }

    /// What goes to a process goes by one context after another: never by two at once.
    fn note(&mut self, to: usize, datagram: &[u8]) {
        let clear = Clear::decode(datagram).unwrap();
        if matches!(clear.about, About::Connect | About::Data | About::Parity) {
            let newest = self.newest.entry((clear.source, to)).or_insert(clear.context);
            assert!(*newest <= clear.context, "{clear:?} to {to} after context {newest}");
            self.moves += u64::from(*newest < clear.context);
            *newest = clear.context;
        }
    }

    fn complete(&mut self, at: usize, completion: &Completion) {
        match completion {
            Completion::Sent { operation, to } => {
                let (pending, _) = self.end(at, *operation);
                assert_eq!((pending.from, pending.to), (at, self.processes[at].other(*to)));
            }
            Completion::Received(received) => {
                let (pending, came) = self.end(at, received.operation);
                assert_eq!((pending.to, pending.from), (at, self.processes[at].other(received.from)));
                let Pending { from, to, nth, .. } = pending;
                // The nth receive has the nth message, and all of it.
                assert_eq!((received.tag, received.data, received.offset), (Some(nth), Some(nth), 0));
                assert_eq!((received.cut, received.last), (0, true));
                assert!(
                    came[..received.len] == CONTENT[place(from, to, nth, received.len)],
                    "{from}>{to}#{nth}"
                );
            }
            Completion::Failed { operation, why, sending, .. } => self.failed(at, *operation, *why, *sending),
        }
    }

    fn failed(&mut self, process: usize, operation: Operation, why: Failure, sending: bool) {
        let (pending, _) = self.end(process, operation);
        let other = if sending { pending.to } else { pending.from };
        self.failures.push(Failed { at: self.now, process, other, why, sending });
    }

    /// An operation has ended, as it does once; with what came, where it was to receive that.
    fn end(&mut self, process: usize, operation: Operation) -> (Pending, Vec<u8>) {
        let process = &mut self.processes[process];
        let pending = process.operations.remove(&operation).unwrap();
        let (sent, came) = process.memory.end(pending.region);
        assert_ne!(sent, came.is_some());
        self.pending -= 1;
        (pending, came.unwrap_or_default())
    }
}

impl Process {
    /// As which peer it knows another.
    fn peer(&mut self, other: usize) -> PeerId {
        self.endpoint.peer(self.others[other])
    }

    /// Whom it knows as that peer.
    fn other(&self, peer: PeerId) -> usize {
        let endpoint = self.endpoint.identity(peer).endpoint;
        self.others.iter().position(|each| each.endpoint == endpoint).unwrap()
    }

    fn begin(&mut self, pending: Pending) -> (Region, Operation) {
        self.next += 1;
        let (region, operation) = (Region(self.next), Operation(self.next));
        self.operations.insert(operation, Pending { region, ..pending });
        (region, operation)
    }
}

fn identity(host: u64, at: u64) -> Identity {
    let address = ([10, 0, (host >> 8) as u8, host as u8], 7000 + at as u16).into();
    Identity { endpoint: EndpointId(at + 1), host: HostId(host + 1), address }
}

/// IPv4's and UDP's.
const HEADERS: u32 = 28;

/// Times that something may be due at once, before what is due is never done.
const SPINS: u32 = 8;

/// Datagrams that are remembered.
const OVERHEARD: usize = 64;
