use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

use farlink_wire::fabric::datagram::{About, Ack, Clear, JoinedAck};
use farlink_wire::fabric::frame::{BEGIN, Frame};
use farlink_wire::quantity::BitsPerSec;

use super::*;
use crate::fabric::operation::{EndpointId, Ends, Kind as Matched, Region};
use crate::fabric::transport::{Kind, Routing, dc};

#[derive(Default)]
struct Heap(HashMap<Region, Vec<u8>>);

impl Memory for Heap {
    fn read(&self, region: Region, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0[&region][offset..][..into.len()]);
    }

    fn write(&mut self, region: Region, offset: usize, bytes: &[u8]) {
        self.0.get_mut(&region).unwrap()[offset..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// Two endpoints on two hosts, and the way between them.
struct Pair {
    ends: [Endpoint; 2],
    heaps: [Heap; 2],
    peers: [PeerId; 2],
    now: Nanos,
    flying: BinaryHeap<Reverse<Flying>>,
    sent: u64,
    loss: f64,
    random: Pcg32,
    completions: [Vec<Completion>; 2],
    regions: u64,
}

/// When it arrives, which it is, at which end, and what it says.
type Flying = (Nanos, u64, usize, Vec<u8>);

const DELAY: Nanos = Nanos(45_800_000);
const ANY: Wanted = Wanted::Tagged { tag: 0, ignore: u64::MAX };

fn identity(number: u64) -> Identity {
    let address = ([10, 0, 0, number as u8], 7000).into();
    Identity { endpoint: EndpointId(number), host: HostId(number), address }
}

impl Pair {
    fn new(transport: Kind, loss: f64) -> Self {
        let settings = Settings {
            transport,
            key: [7; 32],
            payload: 8972,
            rate: BitsPerSec::new(10_000_000_000),
            sharers: 1,
            eager: 4 << 20,
            most: 1 << 30,
            processes: None,
            silence: Nanos(15_000_000_000),
            nearby: true,
            seed: 1,
        };
        let mut ends = [1, 2].map(|number| Endpoint::new(Nanos(1), settings.clone(), identity(number)));
        let peers = [ends[0].peer(identity(2)), ends[1].peer(identity(1))];
        Self {
            ends,
            heaps: Default::default(),
            peers,
            now: Nanos(1),
            flying: BinaryHeap::new(),
            sent: 0,
            loss,
            random: Pcg32::seed_from_u64(5),
            completions: Default::default(),
            regions: 0,
        }
    }

    fn drive(&mut self, end: usize) {
        let mut run = vec![0; 65_536];
        while let Some((transmit, bytes)) =
            self.ends[end].poll_transmit(self.now, &mut run, &mut self.heaps[end])
        {
            assert_eq!(transmit.to, identity(2 - end as u64).address);
            for datagram in run[..bytes].chunks(transmit.segment) {
                self.sent += 1;
                if self.random.random::<f64>() >= self.loss {
                    self.flying.push(Reverse((self.now.after(DELAY), self.sent, 1 - end, datagram.to_vec())));
                }
            }
        }
        while let Some(completion) = self.ends[end].poll_completion() {
            self.completions[end].push(completion);
        }
    }

    /// On to the next thing that happens.
    fn step(&mut self) {
        let due = self.ends.iter().filter_map(Endpoint::deadline).min().unwrap();
        let arrives = self.flying.peek().map(|Reverse((at, ..))| *at);
        self.now = arrives.map_or(due, |at| at.min(due)).max(self.now);
        while let Some(Reverse((at, ..))) = self.flying.peek()
            && *at <= self.now
            && let Some(Reverse((_, _, end, mut datagram))) = self.flying.pop()
        {
            let from = identity(2 - end as u64).address;
            self.ends[end].on_datagram(self.now, from, &mut datagram, &mut self.heaps[end]);
        }
        for end in &mut self.ends {
            end.on_datagrams_end(self.now);
            end.on_time(self.now);
        }
        self.drive(0);
        self.drive(1);
    }

    fn post(&mut self, end: usize, len: usize) {
        for (sending, number) in [(false, self.regions), (true, self.regions + 1)] {
            let (region, operation) = (Region(number), Operation(number));
            self.heaps[end].0.insert(region, vec![if sending { 7 } else { 0 }; len]);
            let (peer, now) = (self.peers[end], self.now);
            let (endpoint, heap) = (&mut self.ends[end], &mut self.heaps[end]);
            if sending {
                let send = Send {
                    to: peer,
                    kind: Matched::Tagged(3),
                    data: Some(1),
                    region,
                    len,
                    ends: Ends::Said(operation),
                };
                endpoint.send(now, send, heap).unwrap();
            } else {
                let receive = Receive { from: Some(peer), wanted: ANY, region, len, operation, multi: None };
                endpoint.receive(now, receive, heap);
            }
        }
        self.regions += 2;
    }

    /// How long it takes both to send to the other: seconds.
    fn exchange(&mut self, len: usize) -> f64 {
        let begun = self.now;
        self.completions = Default::default();
        self.post(0, len);
        self.post(1, len);
        self.drive(0);
        self.drive(1);
        let mut steps = 0;
        while self.completions.iter().any(|each| each.len() < 2) {
            self.step();
            steps += 1;
            assert!(
                steps < 100_000,
                "{:?} {:?} {:?}",
                self.now,
                self.ends[0].deadline(),
                self.ends[0].contexts
            );
            assert!(self.now.since(begun) < Nanos(60_000_000_000), "{:?}", self.ends[0].statistics());
        }
        for completion in self.completions.iter().flatten() {
            match completion {
                Completion::Sent { .. } => {}
                Completion::Received(received) => assert_eq!((received.len, received.cut), (len, 0)),
                Completion::Failed { .. } => panic!("{completion:?}"),
            }
        }
        self.now.since(begun).as_secs_f64()
    }
}

fn mean(pair: &mut Pair, len: usize) -> f64 {
    pair.exchange(len);
    (0..200).map(|_| pair.exchange(len)).sum::<f64>() / 200.0
}

#[test]
fn an_exchange_takes_half_a_round_trip_and_its_bytes_time() {
    for transport in [Kind::Rc, Kind::Xrc, Kind::Ud] {
        for len in [8, 4096, 256 << 10, 1 << 20] {
            let mut pair = Pair::new(transport, 0.0);
            let limit = DELAY.as_secs_f64() + len as f64 * 8.0 / 9.9e9;
            let took = mean(&mut pair, len);
            assert!(took < limit * 1.05, "{transport:?} {len}: {took} of {limit}");
        }
    }
}

#[test]
fn connections_are_numbered_beyond_what_32_bits_hold() {
    // The peer takes a number that is not greater than the last for a replay, and no two may share a key.
    let mut pair = Pair::new(Kind::Dc(dc::Settings::default()), 0.0);
    pair.exchange(8);
    for number in [u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 47] {
        pair.ends[0].contexts.skip_to(number);
        // What leads there is given up, and opened anew.
        for end in 0..2 {
            let open = pair.ends[end].contexts.transport.route(pair.peers[end]);
            let Routing::Take(context) = open else { panic!("{open:?}") };
            pair.ends[end].contexts.fail(context);
        }
        pair.exchange(8);
    }
}

#[test]
fn loss_costs_little_for_parity_is_there_already() {
    for (len, most) in [(8, 0.060), (256 << 10, 0.080)] {
        let mut pair = Pair::new(Kind::Rc, 0.1);
        let took = mean(&mut pair, len);
        assert!(took < most, "{len}: {took} {:?} {:?}", pair.ends[0].statistics(), pair.ends[0].contexts);
    }
}

#[test]
fn a_peer_is_mute_when_nothing_of_what_is_under_way_was_answered_for_long() {
    let mut pair = Pair::new(Kind::Rc, 0.0);
    pair.exchange(8);
    let is_mute = |pair: &Pair| pair.ends[0].is_mute(pair.now, Nanos(2_000_000_000));
    assert!(!is_mute(&pair));
    pair.loss = 1.0;
    let begun = pair.now;
    pair.post(0, 8);
    pair.drive(0);
    while pair.now.since(begun) < Nanos(1_500_000_000) {
        pair.step();
    }
    assert!(!is_mute(&pair));
    while pair.now.since(begun) < Nanos(4_000_000_000) {
        pair.step();
    }
    assert!(is_mute(&pair) && !pair.ends[0].is_quiet());
    // One sign of life is enough.
    pair.loss = 0.0;
    while is_mute(&pair) {
        pair.step();
    }
    assert!(pair.now.since(begun) < Nanos(10_000_000_000));
}

#[test]
fn nobody_waits_for_whoever_ended_though_its_last_words_were_lost() {
    for transport in [Kind::Rc, Kind::Ud, Kind::Dc(dc::Settings::default())] {
        let mut pair = Pair::new(transport, 0.0);
        mean(&mut pair, 8);
        pair.post(1, 8);
        pair.drive(1);
        // What it says comes; that it came is lost, and so is the farewell.
        pair.loss = 1.0;
        pair.step();
        let closed = pair.now;
        pair.ends[0].on_close(closed);
        pair.drive(0);
        pair.loss = 0.0;
        while pair.ends[0].next_word().is_some() {
            pair.step();
        }
        pair.loss = 1.0;
        while !pair.ends[1].is_quiet() {
            pair.step();
            assert!(pair.now.since(closed) < Nanos(300_000_000), "{transport:?}");
        }
    }
}

#[test]
fn a_peer_of_which_something_is_missing_has_failed() {
    let mut pair = Pair::new(Kind::Xrc, 0.0);
    pair.exchange(8);
    pair.post(1, 8);
    while pair.ends[1].messages.poll_completion().is_some() {}
    let mut frames = vec![0; relays::HEAD];
    Frame::Numbered { number: Some(99), taken: 0 }.encode_head(0, &mut frames);
    let (peer, now) = (pair.peers[1], pair.now);
    pair.ends[1].on_said(now, peer, &frames, &mut pair.heaps[1]);
    assert_eq!(pair.ends[1].failure(peer), Some(Failure::Lost));
    let failed = |each: Completion| matches!(each, Completion::Failed { why: Failure::Lost, .. });
    let completions: Vec<_> = std::iter::from_fn(|| pair.ends[1].poll_completion()).collect();
    assert!(!completions.is_empty() && completions.into_iter().all(failed));
}

#[test]
fn an_acknowledgement_leaves_within_what_is_said_to_the_same_host() {
    // Where it has no room there it leaves behind it; and another host's leaves by itself where nothing is said to it.
    let whole = outgoing::room(8972) - BEGIN;
    let cases = [(false, false, 8), (true, false, 8), (true, true, 8), (false, false, whole)];
    for (with_third, answers_third, len) in cases {
        // Where nobody is to be admitted first.
        let transport = if answers_third { Kind::Ud } else { Kind::Rc };
        let mut pair = Pair::new(transport, 0.0);
        pair.exchange(8);
        while !pair.flying.is_empty() {
            pair.step();
        }
        let mut run = vec![0; 65_536];
        if with_third {
            let settings = Settings { seed: 2, ..pair.ends[0].settings.clone() };
            let mut third = Endpoint::new(pair.now, settings, identity(3));
            let peer = third.peer(identity(2));
            third.messages.nudge(peer);
            while let Some((transmit, bytes)) = third.poll_transmit(pair.now, &mut run, &mut pair.heaps[0]) {
                for datagram in run[..bytes].chunks_mut(transmit.segment) {
                    pair.ends[1].on_datagram(pair.now, identity(3).address, datagram, &mut pair.heaps[1]);
                }
            }
        }
        pair.post(0, 8);
        pair.drive(0);
        while let Some(Reverse((at, .., mut datagram))) = pair.flying.pop() {
            pair.now = at;
            pair.ends[1].on_datagram(at, identity(1).address, &mut datagram, &mut pair.heaps[1]);
        }
        pair.ends[1].on_datagrams_end(pair.now);
        assert!(!pair.ends[0].contexts.is_drained());
        pair.post(1, len);
        if answers_third {
            let third = pair.ends[1].peer(identity(3));
            pair.ends[1].messages.nudge(third);
        }
        let mut said = Vec::new();
        while let Some((transmit, bytes)) = pair.ends[1].poll_transmit(pair.now, &mut run, &mut pair.heaps[1])
        {
            let datagrams = || run[..bytes].chunks(transmit.segment).map(<[u8]>::to_vec);
            let about = |datagram: Vec<u8>| Clear::decode(&datagram).unwrap().about;
            let abouts: Vec<About> = datagrams().map(about).filter(|about| *about != About::Parity).collect();
            if !abouts.is_empty() {
                said.push((transmit.to, abouts));
            }
            if transmit.to == identity(1).address {
                datagrams().for_each(|mut datagram| {
                    pair.ends[0].on_datagram(
                        pair.now,
                        identity(2).address,
                        &mut datagram,
                        &mut pair.heaps[0],
                    );
                });
            }
        }
        let (first, third) = (identity(1).address, identity(3).address);
        let to_first = if len == 8 { vec![About::DataWithAck] } else { vec![About::Data, About::Ack] };
        let about = if answers_third { About::DataWithAck } else { About::Ack };
        let to_third = with_third.then(|| (third, vec![about]));
        assert_eq!(said, [Some((first, to_first)), to_third].into_iter().flatten().collect::<Vec<_>>());
        assert!(pair.ends[0].contexts.is_drained());
        assert_eq!(pair.ends[0].counts.refused + pair.ends[0].counts.nonsense, 0);
    }
}

#[test]
fn what_somebody_else_acknowledges_is_not_taken_for_arrived() {
    let mut pair = Pair::new(Kind::Rc, 0.0);
    pair.exchange(8);
    while !pair.flying.is_empty() {
        pair.step();
    }
    pair.post(0, 8);
    pair.drive(0);
    let context = (1..).find(|number| pair.ends[0].contexts.has(*number)).unwrap();
    let ack = Ack { piece: u32::MAX, delay_us: 0, runs: vec![(0, 1 << 20)] };
    let joined = JoinedAck { context, number: 1 << 20, ack };
    pair.ends[0].contexts.on_joined_ack(pair.now, EndpointId(3), &joined);
    assert!(!pair.ends[0].contexts.is_drained());
    pair.ends[0].contexts.on_joined_ack(pair.now, EndpointId(2), &joined);
    assert!(pair.ends[0].contexts.is_drained());
}

#[test]
fn an_acknowledgement_is_pressing_where_its_sender_goes_on_only_with_it() {
    // What the first end sends, of which some is lost: whether the other must acknowledge it, and has.
    let said = |pair: &mut Pair, lost: fn(usize) -> bool| {
        pair.post(0, 8);
        pair.drive(0);
        let flying = std::mem::take(&mut pair.flying).into_sorted_vec();
        let count = flying.len();
        for (at, Reverse((when, _, _, mut datagram))) in flying.into_iter().rev().enumerate() {
            pair.now = when;
            if !lost(at) {
                pair.ends[1].on_datagram(when, identity(1).address, &mut datagram, &mut pair.heaps[1]);
            }
        }
        assert!(count > 0);
        pair.ends[1].on_datagrams_end(pair.now);
        let pressing = pair.ends[1].must_acknowledge();
        pair.drive(1);
        assert!(!pair.ends[1].must_acknowledge());
        pressing
    };
    let all = |_| false;
    // A context that need not be admitted.
    let mut pair = Pair::new(Kind::Ud, 0.0);
    assert!((0..3).all(|_| !said(&mut pair, all)));
    assert!(!said(&mut pair, |_| true) && said(&mut pair, all));
    // One that asks; then one that stays, and one that led elsewhere in between.
    let mut pair = Pair::new(Kind::Dc(dc::Settings::default()), 0.0);
    assert_eq!([0; 3].map(|_| said(&mut pair, all)), [true, false, false]);
    pair.step();
    let open = pair.ends[0].contexts.transport.route(pair.peers[0]);
    let Routing::Take(context) = open else { panic!("{open:?}") };
    pair.ends[0].contexts.fail(context);
    assert_eq!([0; 3].map(|_| said(&mut pair, all)), [true; 3]);
}

#[test]
fn a_neighbour_that_is_waited_for_and_was_never_said_anything_is_said_something_once() {
    let mut pair = Pair::new(Kind::Rc, 0.0);
    let (here, heap) = (&mut pair.ends[0], &mut pair.heaps[0]);
    let near = |number| Identity { host: HostId(1), ..identity(number) };
    let [waited_for, _other] = [3, 4].map(|number| here.peer(near(number)));
    let (region, operation) = (Region(0), Operation(0));
    let receive = Receive { from: Some(waited_for), wanted: ANY, region, len: 8, operation, multi: None };
    here.receive(pair.now, receive, heap);
    let mut said = Vec::new();
    let mut room = vec![0; 65_536];
    for look in 1..5 {
        let now = pair.now.after(Nanos(look * look_every(here.settings.silence).0));
        here.on_time(now);
        assert!(here.poll_transmit(now, &mut room, heap).is_none());
        for peer in here.nearby() {
            while here.fill(now, peer, &mut room, heap) > 0 {
                said.push((look, peer));
            }
        }
    }
    assert_eq!(said, [(1, waited_for)]);
}

#[test]
fn nothing_is_kept_of_what_a_failed_peer_said_behind_something_that_did_not_come() {
    let mut pair = Pair::new(Kind::Rc, 0.0);
    pair.exchange(8);
    while !pair.flying.is_empty() {
        pair.step();
    }
    pair.post(0, 100_000);
    pair.drive(0);
    // All but the first, and parity, which would bring that back.
    let flying = std::mem::take(&mut pair.flying).into_sorted_vec();
    let mut behind: Vec<_> = flying.into_iter().rev().map(|Reverse((.., datagram))| datagram).collect();
    behind.retain(|datagram| Clear::decode(datagram).unwrap().about != About::Parity);
    behind.remove(0);
    let mut last = behind.pop().unwrap();
    let (now, from, there) = (pair.now, identity(1).address, &mut pair.ends[1]);
    behind.iter_mut().for_each(|datagram| there.on_datagram(now, from, datagram, &mut pair.heaps[1]));
    let kept = |there: &Endpoint| {
        let all = there.statistics();
        all.into_iter().find(|(name, _)| *name == "bytes_received_kept").unwrap().1
    };
    assert!(kept(there) > 50_000, "{}", kept(there));
    there.on_gone(now, pair.peers[1]);
    assert_eq!(kept(there), 0);
    // What it says is known for its own: if it lives, it is told.
    there.on_datagram(now, from, &mut last, &mut pair.heaps[1]);
    there.on_datagrams_end(now);
    assert_eq!((kept(there), there.counts.refused), (0, 0));
    let mut run = vec![0; 65_536];
    let (_, bytes) = there.poll_transmit(now, &mut run, &mut pair.heaps[1]).unwrap();
    assert_eq!(Clear::decode(&run[..bytes]).unwrap().about, About::Farewell);
    assert!(there.poll_transmit(now, &mut run, &mut pair.heaps[1]).is_none());
}

#[test]
fn time_in_which_no_process_ran_is_nobodys_silence() {
    for transport in [Kind::Rc, Kind::Xrc, Kind::Ud, Kind::Dc(dc::Settings::default())] {
        let mut pair = Pair::new(transport, 0.0);
        pair.exchange(8);
        let second = 1_000_000_000;
        for suspended_s in [20, 3600] {
            // Nothing is under way that would be heard before anybody is given up.
            while !pair.flying.is_empty() {
                pair.step();
            }
            pair.completions = Default::default();
            (0..2).for_each(|end| pair.post(end, 100_000));
            (0..2).for_each(|end| pair.drive(end));
            pair.now = pair.now.after(Nanos(suspended_s * second));
            while pair.completions.iter().any(|each| each.len() < 2) {
                pair.step();
            }
            let failed = |each: &Completion| matches!(each, Completion::Failed { .. });
            assert!(!pair.completions.iter().flatten().any(failed), "{transport:?}");
        }
        // Who is no more has as long as it would have had.
        pair.loss = 1.0;
        let has_failed = |pair: &Pair| pair.ends[0].failure(pair.peers[0]).is_some();
        pair.post(0, 8);
        pair.drive(0);
        pair.now = pair.now.after(Nanos(60 * second));
        let resumed = pair.now;
        while !has_failed(&pair) {
            pair.step();
        }
        let took = pair.now.since(resumed);
        assert!((5 * second..15 * second).contains(&took.0), "{transport:?}: {took}");
    }
}
