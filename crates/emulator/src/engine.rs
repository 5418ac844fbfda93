//! A thread that drives links between TUN devices with the real clock.
//!
//! Two hosts have two engines, one a direction. More hosts share one: a packet crosses the sender's access
//! link, then, from the moment that it reaches the core, the receiver's. One for a multicast group crosses those of
//! all who joined it, each a link of its own.

use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::Duration;

use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_host::scheduling::{self, Scheduling};
use farlink_host::tun::Tun;
use farlink_host::{clock, process};
use farlink_link::{Conditions, Counters, Delivery, Link, Segments};
use farlink_wire::ip::IpHeader;
use farlink_wire::quantity::Nanos;
use farlink_wire::superpacket::SuperPacket;
use farlink_wire::vnet::VnetHeader;

use crate::arena::Arena;
use crate::due::Due;
use crate::groups::{Groups, Hosts};
use crate::lateness::Lateness;
use crate::plan;
use crate::sleep::Sleep;
use crate::topology::Topology;

/// What an engine is asked from outside.
pub(crate) enum Command {
    /// Changes one of its links, by its place among [`Engine::links`].
    Set(usize, Conditions),
    /// Cuts or restores the path between two hosts.
    Cut([usize; 2], bool),
    /// Restores every path between two hosts.
    RestorePairs,
    /// Says how it stands.
    Show(Sender<Shown>),
}

/// How an engine stands.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// In the order of its links.
    pub(crate) links: Vec<LinkShown>,
    /// What each host that it reads has joined.
    pub(crate) groups: Vec<Vec<IpAddr>>,
    /// Pairs of hosts between which nothing passes.
    pub(crate) cut: Vec<[usize; 2]>,
    /// CPU time of its thread.
    pub(crate) cpu: Nanos,
}

/// How a link stands.
#[derive(Clone, Debug)]
pub(crate) struct LinkShown {
    pub(crate) conditions: Conditions,
    pub(crate) counters: Counters,
    /// Packets that were understood by nobody, or refused by the receiving kernel.
    pub(crate) refused: u64,
    pub(crate) multicast: Multicast,
    pub(crate) queue_bytes: u64,
    pub(crate) queue_most_bytes: u64,
    pub(crate) lateness: Lateness,
}

/// Of what a link was offered, the data for multicast groups; on a way from the core, its copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Multicast {
    pub(crate) packets: u64,
    pub(crate) segments: u64,
    /// Segments that reached the core when nobody else had joined their group.
    pub(crate) unwanted: u64,
}

/// A link and what is counted beside it.
struct Driven {
    link: Link<Piece>,
    lateness: Lateness,
    refused: u64,
    multicast: Multicast,
}

/// A part of a packet on its way.
#[derive(Clone, Copy, Debug)]
struct Piece {
    frame: u32,
    /// The segment of the frame at which it starts.
    first: u16,
    flipped: Option<u32>,
    to: To,
}

/// For whom a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Host(u8),
    /// Whoever has joined its group when it reaches the core.
    Group,
}

/// Drives packets of `inputs` to the hosts that they are for.
pub(crate) struct Engine {
    /// The hosts that it reads, each with its link: the path's, or its way to the core.
    inputs: Vec<(usize, Arc<Tun>)>,
    outputs: Vec<Arc<Tun>>,
    /// One for each input, then (for a star) one for each host: its way from the core.
    links: Vec<Driven>,
    due: Due,
    arena: Arena,
    groups: Groups,
    cut: HashSet<[usize; 2]>,
    commands: Receiver<Command>,
    wake: Wake,
    sleep: Sleep,
    head: Vec<u8>,
}

impl Engine {
    /// An engine that reads the hosts `reads` among `hosts`, over links of `conditions`.
    pub(crate) fn new(
        hosts: &[Arc<Tun>],
        reads: &[usize],
        conditions: Conditions,
        seed: u64,
        arena: Arena,
        commands: Receiver<Command>,
        wake: Wake,
    ) -> Self {
        let topology = Topology::of(hosts.len());
        let count = if topology.is_star() { topology.links() } else { reads.len() };
        let now = clock::monotonic();
        let driven = |index: usize| Driven {
            // Links must not share their fates: each has a stream of its own, far from the others'.
            link: Link::new(conditions, seed_of(reads[0] + index, seed), now),
            lateness: Lateness::default(),
            refused: 0,
            multicast: Multicast::default(),
        };
        let links: Vec<Driven> = (0..count).map(driven).collect();
        let mut engine = Self {
            inputs: reads.iter().map(|&host| (host, hosts[host].clone())).collect(),
            outputs: hosts.to_vec(),
            due: Due::new(links.len()),
            links,
            arena,
            groups: Groups::new(hosts.len()),
            cut: HashSet::new(),
            commands,
            wake,
            sleep: Sleep::default(),
            head: Vec::with_capacity(SuperPacket::MOST_HEADERS + VnetHeader::LEN),
        };
        engine.heed_conditions();
        engine
    }

    /// Runs until nobody can command it any more; says first what scheduling it was granted.
    ///
    /// # Errors
    /// What reading or waiting for a device failed with.
    pub(crate) fn run(mut self, granted: Sender<Scheduling>) -> io::Result<()> {
        let _ = granted.send(scheduling::urgent());
        drop(granted);
        let mut poller = Poller::new()?;
        poller.add(&self.wake, WAKE, Interest::Read)?;
        for (input, (_, tun)) in self.inputs.iter().enumerate() {
            poller.add(tun.as_fd(), input as u64, Interest::Read)?;
        }
        // Inputs that may have more, by their places.
        let mut ready: Vec<u64> = (0..self.inputs.len() as u64).collect();
        let mut passes = 0u32;
        loop {
            self.deliver();
            let mut at = 0;
            while let Some(&input) = ready.get(at) {
                if self.read_some(input as usize)? {
                    at += 1;
                } else {
                    ready.remove(at);
                }
            }
            if !ready.is_empty() {
                // Whoever sends more than can be read keeps nobody from commanding.
                passes = passes.wrapping_add(1);
                if passes.is_multiple_of(PASSES) && !self.obey() {
                    return Ok(());
                }
                continue;
            }
            let due = self.due.next();
            let now = clock::monotonic();
            if let Some(rest) = self.sleep.rest(now, due) {
                thread::sleep(Duration::from_nanos(rest.0));
                self.sleep.after_rest(clock::monotonic());
                if self.wake.is_raised() && !self.obey() {
                    return Ok(());
                }
                ready.extend(0..self.inputs.len() as u64);
                continue;
            }
            let wait = self.sleep.before(now, due);
            poller.wait_precisely(wait, &mut ready)?;
            self.sleep.after(clock::monotonic(), !ready.is_empty());
            if ready.contains(&WAKE) && !self.obey() {
                return Ok(());
            }
            ready.retain(|key| *key != WAKE);
        }
    }

    /// Takes a few packets of an input: whether there may be more.
    fn read_some(&mut self, input: usize) -> io::Result<bool> {
        for _ in 0..READS {
            if !self.read(input)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Does what was asked; `false` once nobody can ask any more.
    fn obey(&mut self) -> bool {
        self.wake.lower();
        loop {
            match self.commands.try_recv() {
                Ok(Command::Set(link, conditions)) => {
                    self.links[link].link.set(clock::monotonic(), conditions);
                    self.heed_conditions();
                }
                Ok(Command::Cut(pair, true)) => drop(self.cut.insert(pair)),
                Ok(Command::Cut(pair, false)) => drop(self.cut.remove(&pair)),
                Ok(Command::RestorePairs) => self.cut.clear(),
                Ok(Command::Show(to)) => drop(to.send(self.show())),
                Err(std::sync::mpsc::TryRecvError::Empty) => return true,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Takes the shortest way of any packet, and the shortest queue, for how long a rest may be.
    fn heed_conditions(&mut self) {
        let shortest = self.links.iter().map(|driven| shortest_delay(driven.link.conditions())).min();
        // A star's packets cross two links.
        let crossed = u64::from(self.topology().crossed());
        let queues = self.links.iter().filter_map(|driven| time_to_empty(driven.link.conditions())).min();
        self.sleep.heed(Nanos(shortest.map_or(0, |delay| delay.0 * crossed)), queues.unwrap_or(Nanos::MAX));
    }

    fn show(&mut self) -> Shown {
        let now = clock::monotonic();
        let links = self.links.iter_mut().map(|driven| {
            driven.link.advance(now);
            LinkShown {
                conditions: *driven.link.conditions(),
                counters: *driven.link.counters(),
                refused: driven.refused,
                multicast: driven.multicast,
                queue_bytes: driven.link.queue_bytes(now),
                queue_most_bytes: driven.link.queue_most_bytes(),
                lateness: driven.lateness.clone(),
            }
        });
        let links = links.collect();
        let groups = self.inputs.iter().map(|(host, _)| self.groups.of(*host)).collect();
        let cut = self.cut.iter().copied().collect();
        Shown { links, groups, cut, cpu: process::cpu_of_thread() }
    }

    /// Of all engines' links. That of a star has them all, in the same order; one of two has one.
    fn topology(&self) -> Topology {
        Topology::of(self.outputs.len())
    }

    /// Takes one packet of an input, where there is one.
    fn read(&mut self, input: usize) -> io::Result<bool> {
        let (from, tun) = &self.inputs[input];
        let room = self.arena.room()?;
        let Some(len) = tun.read(room)? else { return Ok(false) };
        let driven = &mut self.links[input];
        let parsed = VnetHeader::decode(&room[..len])
            .and_then(|vnet| SuperPacket::parse(vnet, &room[VnetHeader::LEN..len]).ok());
        let bytes = &room[VnetHeader::LEN.min(len)..len];
        let ip = IpHeader::decode(bytes);
        let group = ip.filter(|ip| ip.destination.is_multicast());
        // Where the host is plugged in, so that no join is lost on its way.
        let is_data = group.is_some_and(|ip| !self.groups.learn(*from as u8, &ip, bytes));
        let to = match (self.outputs.len(), ip) {
            (2, _) => Some(To::Host(1 - *from as u8)),
            (_, Some(_)) if group.is_some() => Some(To::Group),
            (hosts, Some(ip)) => {
                plan::host_of(ip.destination).filter(|&to| to < hosts).map(|to| To::Host(to as u8))
            }
            (_, None) => None,
        };
        let (Some(packet), Some(to)) = (parsed, to) else {
            driven.refused += 1;
            return Ok(true);
        };
        let count = packet.segments();
        let segments = Segments { count, full: packet.segment_len(0), last: packet.segment_len(count - 1) };
        if let To::Host(to) = to
            && self.cut.contains(&pair(*from, usize::from(to)))
        {
            driven.link.refuse(segments);
            return Ok(true);
        }
        if is_data {
            driven.multicast.count(count);
        }
        let frame = self.arena.next_id();
        let piece = Piece { frame, first: 0, flipped: None, to };
        let arrived = self.sleep.arrival(clock::monotonic());
        let deliveries = driven.link.on_packet(arrived, segments, &piece);
        self.look_at(input);
        if deliveries > 0 {
            self.arena.keep(VnetHeader::LEN..len, packet, deliveries);
        }
        Ok(true)
    }

    /// Notes when a link has something to deliver next: it took a packet, or gave one. What else is done to it changes no time.
    fn look_at(&mut self, link: usize) {
        self.due.set(link, self.links[link].link.deadline());
    }

    /// Hands over what has arrived.
    fn deliver(&mut self) {
        let to_core = self.topology().to_core();
        self.deliver_to_core(&to_core);
        let mut now = clock::monotonic();
        for index in to_core.end..self.links.len() {
            if !self.due.is(index, now) {
                continue;
            }
            let mut handed = 0;
            while handed < DELIVERIES
                && let Some(delivery) = self.links[index].link.poll(now)
            {
                handed += 1;
                self.sleep.worked();
                self.write(index, &delivery);
                now = clock::monotonic();
            }
            self.look_at(index);
        }
    }

    /// Hands over what has reached the core by these `links`, in the order in which it did.
    fn deliver_to_core(&mut self, links: &Range<usize>) {
        let now = clock::monotonic();
        for _ in 0..DELIVERIES * links.len() {
            let Some(index) = self.due.first(links.clone(), now) else { return };
            if let Some(delivery) = self.links[index].link.poll(now) {
                self.sleep.worked();
                self.pass_core(index, &delivery);
            }
            self.look_at(index);
        }
    }

    /// The run has reached the core over link `index`: it goes on over the receiver's access link, or each of the receivers'.
    fn pass_core(&mut self, index: usize, delivery: &Delivery<Piece>) {
        let Piece { frame, first, flipped, to } = delivery.packet;
        let Some((bytes, packet)) = self.arena.packet(frame) else { return };
        let run = first + delivery.run.start..first + delivery.run.end;
        let segments = Segments {
            count: run.end - run.start,
            full: packet.segment_len(run.start),
            last: packet.segment_len(run.end - 1),
        };
        let from = self.inputs[index].0;
        let hosts = match to {
            To::Host(host) => Some(Hosts::one(host)),
            To::Group => IpHeader::decode(bytes).and_then(|ip| self.groups.audience(from as u8, &ip, bytes)),
        };
        if hosts.is_some_and(Hosts::is_empty) {
            self.links[index].multicast.unwanted += u64::from(segments.count);
        }
        let topology = self.topology();
        let mut deliveries = 0;
        for host in hosts.into_iter().flat_map(Hosts::places) {
            let place = topology.to(host);
            let down = &mut self.links[place];
            if to == To::Group {
                down.multicast.count(segments.count);
                if self.cut.contains(&pair(from, host)) {
                    down.link.refuse(segments);
                    continue;
                }
            }
            let piece = Piece {
                frame,
                first: run.start,
                flipped: flipped.or(delivery.flipped),
                to: To::Host(host as u8),
            };
            // The access link meets it when it was due, so that lateness here does not add up.
            deliveries += down.link.on_packet(delivery.due, segments, &piece);
            self.look_at(place);
        }
        self.arena.release(frame, deliveries);
    }

    /// The run has reached its host.
    fn write(&mut self, index: usize, delivery: &Delivery<Piece>) {
        let Piece { frame, first, flipped, .. } = delivery.packet;
        let topology = self.topology();
        // Of two hosts each engine has one link, by which the one that it reads sends.
        let place = if topology.is_star() { index } else { topology.from(self.inputs[index].0) };
        let Some(host) = topology.ends(place).1 else { return };
        let Some((bytes, packet)) = self.arena.packet(frame) else { return };
        let run = first + delivery.run.start..first + delivery.run.end;
        let driven = &mut self.links[index];
        driven.lateness.count(clock::monotonic().since(delivery.due));
        let tun = &self.outputs[host];
        let written = match delivery.flipped.or(flipped) {
            None => {
                let payload = packet.cut(bytes, &run, &mut self.head);
                tun.write(&[IoSlice::new(&self.head), IoSlice::new(&bytes[payload])])
            }
            Some(bit) => {
                packet.complete(bytes, run.start, &mut self.head);
                if let Some(byte) = self.head.get_mut(VnetHeader::LEN + bit as usize / 8) {
                    *byte ^= 1 << (bit % 8);
                }
                tun.write(&[IoSlice::new(&self.head)])
            }
        };
        // A damaged version number is refused by the receiving kernel, as it would be on a real host.
        if written.is_err() {
            driven.refused += 1;
        }
        self.arena.release(frame, 0);
    }
}

/// The least that a packet takes.
fn shortest_delay(conditions: &Conditions) -> Nanos {
    Nanos(conditions.delay.0.saturating_sub(conditions.jitter.0))
}

/// How long its queue takes to empty, where it has one.
fn time_to_empty(conditions: &Conditions) -> Option<Nanos> {
    Some(conditions.rate?.time_for(conditions.queue_bytes()?))
}

/// The seed of the link at `place` in an emulation of `seed`.
const fn seed_of(place: usize, seed: u64) -> u64 {
    seed.wrapping_add((place as u64).wrapping_mul(SEED_STRIDE))
}

/// Two hosts, as the name of the path between them.
fn pair(one: usize, other: usize) -> [usize; 2] {
    [one.min(other), one.max(other)]
}

impl Multicast {
    fn count(&mut self, segments: u16) {
        self.packets += 1;
        self.segments += u64::from(segments);
    }
}

/// Packets read from one host before the others, and what is due, have their turn.
///
/// A read of 64 KiB takes about 10 µs: four keep what is due within 0.05 ms.
const READS: usize = 4;

/// Passes in which there is always something to read, before commands have their turn: some milliseconds.
const PASSES: u32 = 256;

/// Deliveries of one link before the inputs have their turn, for the same reason.
const DELIVERIES: usize = 8;

/// The key by which the wake is waited for, beside the places of inputs.
const WAKE: u64 = u64::MAX;

/// 2^64 divided by the golden ratio: multiples of it lie far from each other (Knuth, 6.4).
const SEED_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_link_of_the_largest_star_has_a_seed_of_its_own() {
        let links = 2 * usize::from(plan::MOST_HOSTS);
        let seeds: HashSet<_> = (0..links).map(|place| seed_of(place, u64::MAX)).collect();
        assert_eq!(seeds.len(), links);
    }
}
