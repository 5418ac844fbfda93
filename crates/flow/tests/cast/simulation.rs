//! A sender and its receivers in virtual time: what the one sends reaches the others after a delay, or does not.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::rc::Rc;

use farlink_flow::cast::parity::ParityEncoder;
use farlink_flow::cast::receiver::{self, Receiver};
use farlink_flow::cast::seal::{Opener, Sealer};
use farlink_flow::cast::sender::{Config, Send, Sender};
use farlink_flow::cast::window::Window;
use farlink_wire::cast::SessionId;
use farlink_wire::cast::control::{Control, Want, Words};
use farlink_wire::cast::packet::{Data, Header, OVERHEAD};
use farlink_wire::entry::Digest;
use farlink_wire::message::Text;
use farlink_wire::message::copy::{Protect, Secret};
use farlink_wire::quantity::{BitsPerSec, Nanos};

use crate::host::Host;
use crate::product::{Path, Product};

pub(crate) enum Happening {
    /// To all receivers with this delay, in this session.
    Group {
        session: u64,
        delay: Nanos,
        packets: Rc<Vec<Packet>>,
    },
    /// To one receiver, late: out of its buffer or out of order.
    One {
        session: u64,
        host: usize,
        packet: Packet,
        buffered: u64,
    },
    ToReceiver {
        session: u64,
        host: usize,
        frame: Vec<u8>,
    },
    ToSender {
        session: u64,
        host: usize,
        frame: Vec<u8>,
    },
}

/// A packet: sealed, or as it is, with its number.
#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) bytes: Rc<Vec<u8>>,
    pub(crate) plain: Option<(Header, u64)>,
}

pub(crate) struct Simulation {
    pub(crate) now: Nanos,
    /// What the clock steps by.
    pub(crate) grain: Nanos,
    pub(crate) sender: Sender,
    pub(crate) hosts: Vec<Host>,
    pub(crate) products: Vec<(Product, Vec<u8>)>,
    pub(crate) config: Config,
    pub(crate) session: u64,
    sealed: bool,
    sealer: Sealer,
    /// The number of the next packet that is not sealed.
    number: u64,
    parity: Option<ParityEncoder>,
    happenings: BinaryHeap<Reverse<(Nanos, u64)>>,
    what: HashMap<u64, Happening>,
    sequence: u64,
    wakes: Vec<Nanos>,
    by_wake: BTreeSet<(Nanos, usize)>,
    pub(crate) released: BTreeSet<u32>,
    /// The time at which each product's first packet left.
    pub(crate) begun: BTreeMap<u32, Nanos>,
    /// Of each connection that carries repairs.
    pub(crate) unicast: Option<BitsPerSec>,
    /// Frames with NACKs that reached the sender, and the most memory that it took.
    pub(crate) nacks: u64,
    /// Products that receivers acknowledged, each of theirs.
    pub(crate) acknowledged: u64,
    pub(crate) most_memory: u64,
    steps: u64,
}

impl Simulation {
    pub(crate) fn new(config: Config, sealed: bool) -> Self {
        let now = Nanos(1_000_000_000);
        Self {
            now,
            grain: Nanos(1),
            sender: Sender::new(config, now),
            hosts: Vec::new(),
            products: Vec::new(),
            config,
            session: 1,
            sealed,
            sealer: sealer(1),
            number: 0,
            parity: encoder(&config),
            happenings: BinaryHeap::new(),
            what: HashMap::new(),
            sequence: 0,
            wakes: Vec::new(),
            by_wake: BTreeSet::new(),
            released: BTreeSet::new(),
            begun: BTreeMap::new(),
            unicast: None,
            nacks: 0,
            acknowledged: 0,
            most_memory: 0,
            steps: 0,
        }
    }

    /// Another host that takes part from now on.
    pub(crate) fn join(&mut self, path: Path) -> usize {
        let host = self.hosts.len();
        self.hosts.push(Host::new(path, 1000 + host as u64));
        self.wakes.push(Nanos::MAX);
        self.start(host, self.sender.first());
        host
    }

    /// Starts a host's receiver anew: it wants what there is from product `first` on.
    pub(crate) fn start(&mut self, host: usize, first: u32) {
        self.start_wanting(host, 0, first);
    }

    /// As [`Self::start`], of one that wants nothing before a product.
    pub(crate) fn start_wanting(&mut self, host: usize, wanted: u32, first: u32) {
        self.sender.on_join(self.now, host as u32, first);
        let config = receiver::Config {
            payload: self.config.payload,
            block: self.config.block,
            first,
            forgotten: first - wanted,
            position: self.sender.position(),
            pace: self.sender.pace(),
            grace: Nanos(200_000),
            seed: host as u64,
        };
        let number = self.sealer.next();
        let each = &mut self.hosts[host];
        let mut machine = Receiver::new(config, self.now);
        machine.on_rtt(Nanos(2 * each.path.delay.0));
        each.machine = Some(machine);
        let pace = self.sender.pace();
        self.hosts.iter_mut().filter_map(|host| host.machine.as_mut()).for_each(|each| each.on_pace(pace));
        let each = &mut self.hosts[host];
        each.window = Window::new(self.number);
        each.opener = Some(Opener::new(SessionId(self.session), &KEY, Protect::Encrypt, number).unwrap());
        each.partial.clear();
        each.names.clear();
    }

    /// Kills a host's receiver. What it has written stays on its disk, under names that are known.
    pub(crate) fn kill(&mut self, host: usize) {
        self.sender.on_leave(self.now, host as u32);
        let each = &mut self.hosts[host];
        each.machine = None;
        for (product, (content, known)) in std::mem::take(&mut each.partial) {
            if let Some(name) = each.names.get(&product) {
                // A journal has what was proven: here whole products, and beginnings.
                let proven = known.first().filter(|range| range.start == 0).map_or(0, |range| range.end);
                each.disk.insert(name.clone(), content[..proven as usize].to_vec());
            }
        }
        self.set_wake(host, Nanos::MAX);
    }

    /// Cuts a host's control connection, which comes back at once.
    pub(crate) fn reconnect(&mut self, host: usize) {
        let first = self.sender.first();
        self.sender.on_join(self.now, host as u32, first);
        let pace = self.sender.pace();
        if let Some(machine) = &mut self.hosts[host].machine {
            machine.on_reconnected(self.now, pace, self.sender.position(), first);
        }
        self.set_wake(host, self.now);
    }

    /// Kills the sender and starts another, whose session has the same products.
    pub(crate) fn restart_sender(&mut self) {
        self.session += 1;
        self.sealer = sealer(self.session);
        self.parity = encoder(&self.config);
        self.sender = Sender::new(self.config, self.now);
        self.released.clear();
        self.begun.clear();
        for host in 0..self.hosts.len() {
            self.kill(host);
            self.hosts[host].stored.clear();
            self.start(host, 0);
        }
        for (product, _) in &self.products {
            self.sender.on_product(product.shape);
        }
    }

    pub(crate) fn product(&mut self, name: &str, content: u64, seed: Option<u64>) -> u32 {
        let product = Product::new(name, content, seed);
        let number = self.sender.on_product(product.shape).unwrap();
        let bytes = if seed.is_some() { product.content() } else { Vec::new() };
        self.products.push((product, bytes));
        number
    }

    pub(crate) fn finish(&mut self) {
        self.sender.on_no_more();
        let frame = Control::Words(Words::End { products: self.products.len() as u32 });
        for host in 0..self.hosts.len() {
            self.hosts[host].is_told = true;
            self.tell(host, &frame);
        }
    }

    /// As [`Self::finish`], but the receivers are not told how much there is.
    pub(crate) fn finish_later(&mut self) {
        self.sender.on_no_more();
    }

    /// Until everybody has everything, or for so long.
    pub(crate) fn run(&mut self, limit: Nanos) {
        let end = self.now.after(limit);
        while self.now < end && !self.is_complete() {
            self.step(end);
        }
    }

    /// For so long.
    pub(crate) fn run_for(&mut self, time: Nanos) {
        let end = self.now.after(time);
        while self.now < end {
            self.step(end);
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.sender.is_complete()
            && self.hosts.iter().all(|host| host.machine.is_none() || !host.is_told || host.is_complete())
    }

    /// When the last host had its last product.
    pub(crate) fn completed(&self) -> Nanos {
        self.hosts.iter().flat_map(|host| host.stored.values()).max().copied().unwrap_or_default()
    }

    /// Whether a host has exactly the products that were sent.
    pub(crate) fn has_all(&self, host: usize) -> bool {
        let disk = &self.hosts[host].disk;
        self.products.iter().all(|(product, content)| disk.get(&product.name) == Some(content))
    }

    /// Hands a datagram to a host as if the network had brought it.
    pub(crate) fn inject(&mut self, host: usize, bytes: Vec<u8>) {
        let packet = Packet { bytes: Rc::new(bytes), plain: None };
        self.arrive(host, packet);
    }

    pub(crate) fn refused(&self, host: usize) -> farlink_flow::cast::seal::Refused {
        self.hosts[host].opener.as_ref().unwrap().refused()
    }

    fn step(&mut self, end: Nanos) {
        self.drive_sender();
        self.steps += 1;
        if self.steps.is_multiple_of(64) {
            self.most_memory = self.most_memory.max(self.sender.memory());
        }
        let next = self.happenings.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
        let wake = self.by_wake.first().map_or(Nanos::MAX, |(at, _)| *at);
        let sender = self.sender.deadline().unwrap_or(Nanos::MAX);
        let at = next.min(wake).min(sender).min(end);
        self.now = self.now.max(Nanos(at.0.next_multiple_of(self.grain.0)));
        while let Some(Reverse((at, which))) = self.happenings.peek().copied()
            && at <= self.now
        {
            self.happenings.pop();
            let happening = self.what.remove(&which).unwrap();
            self.happen(happening);
        }
        while let Some((at, host)) = self.by_wake.first().copied()
            && at <= self.now
        {
            self.drive(host);
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Group { session, delay, packets } if session == self.session || self.sealed => {
                for host in 0..self.hosts.len() {
                    if self.hosts[host].path.delay == delay && self.hosts[host].machine.is_some() {
                        packets.iter().for_each(|packet| self.receive(session, host, packet));
                        self.drive(host);
                    }
                }
            }
            Happening::One { session, host, packet, buffered } if session == self.session || self.sealed => {
                self.hosts[host].queued -= buffered;
                self.arrive(host, packet);
                self.drive(host);
            }
            Happening::ToReceiver { session, host, frame } if session == self.session => {
                self.hear(host, &frame);
                self.drive(host);
            }
            Happening::ToSender { session, host, frame } if session == self.session => {
                self.heed(host, &frame);
                self.drive_sender();
            }
            Happening::One { host, buffered, .. } => self.hosts[host].queued -= buffered,
            _ => {}
        }
    }

    fn heed(&mut self, host: usize, frame: &[u8]) {
        let (control, _) = Control::decode(frame).unwrap().unwrap();
        let (now, receiver) = (self.now, host as u32);
        match control {
            Control::Nack(wants) => {
                self.nacks += 1;
                self.sender.on_nack(now, receiver, wants);
            }
            Control::Have(runs) => self.sender.on_have(now, receiver, &runs),
            Control::Report(report) => self.sender.on_report(now, receiver, report),
            Control::Failed { product, .. } => drop(self.sender.on_failed(now, receiver, product)),
            other => panic!("{other:?} for a sender"),
        }
    }

    /// Does what a host's machine says, until it says nothing.
    fn drive(&mut self, host: usize) {
        while let Some(event) = self.hosts[host].machine.as_mut().and_then(|machine| machine.poll(self.now)) {
            self.obey(host, event);
        }
        let wake = self.hosts[host].machine.as_ref().map_or(Nanos::MAX, Receiver::deadline);
        self.set_wake(host, wake);
    }

    fn drive_sender(&mut self) {
        while let Some(send) = self.sender.poll(self.now) {
            match send {
                Send::Data { header, bytes } => self.multicast(header, bytes),
                Send::Parity(parity) => {
                    let encoder = self.parity.as_mut().unwrap();
                    if parity.index == 0 {
                        let (product, content) = &self.products[parity.product as usize];
                        let payload = u64::from(self.config.payload.get());
                        let end = parity.shape.stream();
                        let block = u64::from(self.config.block.get());
                        let offsets = (0..block).map(|index| parity.offset + index * payload);
                        let packets: Vec<_> = offsets
                            .take_while(|offset| *offset < end)
                            .map(|offset| product.read(content, offset..(offset + payload).min(end)))
                            .collect();
                        encoder.begin(packets.len() as u16).unwrap();
                        packets.iter().for_each(|packet| encoder.add(packet).unwrap());
                    }
                    let bytes = encoder.parity(parity.index).unwrap().to_vec();
                    let packet = self.packet(Header::Parity(parity), &bytes);
                    self.send_to_group(vec![packet]);
                }
                Send::Status(position) => {
                    let packet = self.packet(Header::Status(position), &[]);
                    self.send_to_group(vec![packet]);
                }
                Send::Repair { receiver, product, shape, offset, bytes } => {
                    let (source, content) = &self.products[product as usize];
                    let payload = source.read(content, offset..offset + bytes);
                    let payload = &payload[..];
                    let repair = farlink_wire::cast::control::Repair { product, shape, offset, payload };
                    let mut frame = Vec::new();
                    Control::Repair(repair).encode(&mut frame);
                    let host = &mut self.hosts[receiver as usize];
                    let took = self.unicast.map_or(Nanos::ZERO, |rate| rate.time_for(frame.len() as u64));
                    host.repairs_at = host.repairs_at.max(self.now).after(took);
                    let at = host.repairs_at.after(host.path.delay);
                    let (session, host) = (self.session, receiver as usize);
                    self.at(at, Happening::ToReceiver { session, host, frame });
                }
                Send::Gone { receiver, runs } => self.tell(receiver as usize, &Control::Gone(runs)),
                Send::Superseded { receiver, product } => {
                    self.tell(receiver as usize, &Control::Superseded { product });
                }
                Send::Lost { receiver, product, reason } => {
                    self.tell(
                        receiver as usize,
                        &Control::Lost { product, path: Text::default(), whole: None, reason },
                    );
                }
                Send::Released { product } => {
                    self.released.insert(product);
                }
            }
        }
    }

    fn multicast(&mut self, header: Data, bytes: u64) {
        self.begun.entry(header.product).or_insert(self.now);
        let payload = u64::from(self.config.payload.get());
        let (mut packets, mut offset) = (Vec::new(), header.offset);
        while offset < header.offset + bytes {
            let end = (offset + payload).min(header.offset + bytes);
            let (product, content) = &self.products[header.product as usize];
            let read = product.read(content, offset..end);
            packets.push(self.packet(Header::Data(Data { offset, ..header }), &read));
            offset = end;
        }
        self.send_to_group(packets);
    }

    fn packet(&mut self, header: Header, payload: &[u8]) -> Packet {
        if !self.sealed {
            self.number += 1;
            return Packet { bytes: Rc::new(payload.to_vec()), plain: Some((header, self.number - 1)) };
        }
        let mut bytes = vec![0; OVERHEAD + payload.len()];
        self.sealer.seal(&header, payload, &mut bytes).unwrap();
        Packet { bytes: Rc::new(bytes), plain: None }
    }

    fn send_to_group(&mut self, packets: Vec<Packet>) {
        let packets = Rc::new(packets);
        let delays: BTreeSet<Nanos> = self.hosts.iter().map(|host| host.path.delay).collect();
        for delay in delays {
            let (session, packets) = (self.session, Rc::clone(&packets));
            self.at(self.now.after(delay), Happening::Group { session, delay, packets });
        }
    }

    fn tell(&mut self, host: usize, control: &Control<'_>) {
        let mut frame = Vec::new();
        control.encode(&mut frame);
        // Behind the repairs on the same connection.
        let at = self.now.max(self.hosts[host].repairs_at).after(self.hosts[host].path.delay);
        self.at(at, Happening::ToReceiver { session: self.session, host, frame });
    }

    pub(crate) fn say(&mut self, host: usize, control: &Control<'_>) {
        if let Control::Have(runs) = control {
            self.acknowledged += runs.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
        }
        let mut frame = Vec::new();
        control.encode(&mut frame);
        let at = self.now.after(self.hosts[host].path.delay);
        self.at(at, Happening::ToSender { session: self.session, host, frame });
    }

    pub(crate) fn at(&mut self, at: Nanos, happening: Happening) {
        self.sequence += 1;
        self.what.insert(self.sequence, happening);
        self.happenings.push(Reverse((at, self.sequence)));
    }

    fn set_wake(&mut self, host: usize, wake: Nanos) {
        if self.wakes[host] != wake {
            self.by_wake.remove(&(self.wakes[host], host));
            if wake != Nanos::MAX {
                self.by_wake.insert((wake, host));
            }
            self.wakes[host] = wake;
        }
    }
}

/// What a receiver that has nothing of a product asks for.
pub(crate) fn all_of(product: u32) -> Want {
    Want { product, again: false, catch_up: false, ranges: vec![(0, farlink_wire::cast::MOST_STREAM)] }
}

fn sealer(session: u64) -> Sealer {
    Sealer::new(SessionId(session), &KEY, Protect::Encrypt).unwrap()
}

fn encoder(config: &Config) -> Option<ParityEncoder> {
    (config.parity > 0)
        .then(|| ParityEncoder::new(config.payload, config.block.get(), config.parity).unwrap())
}

const KEY: Secret = Secret(Digest([5; 32]));
