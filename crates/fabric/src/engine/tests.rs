use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use farlink_flow::fabric::endpoint::Settings;
use farlink_flow::fabric::operation::{EndpointId, HostId, Identity, Kind};
use farlink_flow::fabric::transport;
use farlink_wire::fabric::address::Address;
use farlink_wire::fabric::datagram::About;
use farlink_wire::quantity::BitsPerSec;

use super::looking::{ALONE, ELSEWHERE};
use super::*;
use crate::completion::Queue;
use crate::memory::Parts;
use crate::post::Notice;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// An endpoint, and a socket that its messages go to.
fn engine() -> (Engine, Datagrams) {
    let [here, there] = [1, 2].map(|_| Datagrams::open(HERE, 1 << 20).unwrap());
    (engine_of(0, here), there)
}

fn engine_of(number: u64, here: Datagrams) -> Engine {
    let settings = Settings {
        transport: transport::Kind::Ud,
        key: [1; 32],
        payload: 1400,
        rate: BitsPerSec::new(100_000_000_000),
        sharers: 1,
        eager: 4 << 20,
        most: 1 << 30,
        processes: Some(3),
        silence: Nanos(20_000_000_000),
        nearby: false,
        seed: number,
    };
    let endpoint = Endpoint::new(monotonic(), settings, identity(number, here.address()));
    Engine::new(monotonic(), endpoint, here, None, "a test".to_owned(), None)
}

fn identity(number: u64, address: SocketAddr) -> Identity {
    Identity { endpoint: EndpointId(number + 1), host: HostId(number + 1), address }
}

fn send(engine: &mut Engine, to: Identity, bytes: &[u8]) {
    // SAFETY: they outlive the engine.
    let parts = unsafe { Parts::one(bytes.as_ptr().cast(), bytes.len()) }.unwrap();
    let context = Context(std::ptr::null_mut());
    let pending = Pending { parts, context, flags: 0, told: false, several: false, receives: false };
    let operation = engine.operations.add(pending);
    let (region, len) = (Region(operation.0), bytes.len());
    let to = engine.endpoint.peer(to);
    let send = Send { to, kind: Kind::Untagged, data: None, region, len, ends: Ends::Said(operation) };
    engine.endpoint.send(monotonic(), send, &mut engine.operations).unwrap();
}

#[test]
fn nobody_sleeps_on_what_may_leave() {
    let bytes = vec![7; 1 << 20];
    let (mut engine, there) = engine();
    (0..2).for_each(|_| send(&mut engine, identity(1, there.address()), &bytes));
    let now = monotonic();
    engine.put_out(now);
    assert_eq!((engine.counts.runs_out, engine.deadline(now)), (RUNS_AT_ONCE as u64, Some(now)));
    // Until all has left.
    while engine.deadline(now) == Some(now) {
        engine.put_out(monotonic());
    }
    assert!(engine.counts.runs_out > RUNS_AT_ONCE as u64 && engine.deadline(now) > Some(now));
}

#[test]
fn a_full_socket_is_tried_again_in_a_while_whatever_is_due() {
    let (mut engine, there) = engine();
    send(&mut engine, identity(1, there.address()), b"hello");
    let mut run = vec![0; 1 << 16];
    let left = engine.endpoint.poll_transmit(monotonic(), &mut run, &mut engine.operations);
    let later = monotonic().after(Nanos(60_000_000_000));
    assert!(left.is_some() && engine.endpoint.deadline() < Some(later));
    engine.held = left;
    assert_eq!(engine.deadline(later), Some(later.after(SEND_AGAIN)));
}

fn want(engine: &mut Engine, into: &mut [u8]) {
    receive(engine, None, into, false).unwrap();
}

fn receive(
    engine: &mut Engine,
    from: Option<fi::fi_addr_t>,
    into: &mut [u8],
    several: bool,
) -> Result<(), Code> {
    // SAFETY: they outlive the engine.
    let parts = unsafe { Parts::one(into.as_mut_ptr().cast(), into.len()) }.unwrap();
    let (context, notice) = (Context(std::ptr::null_mut()), Notice::Never);
    let wanted = Wanted::Untagged;
    engine.receive(monotonic(), Incoming { from, wanted, parts, context, notice, several }, 8)
}

#[test]
fn acknowledgements_wait_for_what_is_said_next() {
    let (bytes, mut room) = ([7; 8], [[0; 8]; 6]);
    let (mut engine, there) = engine();
    let mut other = engine_of(1, there);
    let [here, there] = [&engine, &other].map(|each| each.datagrams.address());
    // Before anything was sent, so that nothing is late.
    let now = monotonic();
    for (number, room) in room.iter_mut().enumerate() {
        want(&mut engine, room);
        send(&mut other, identity(0, here), &bytes);
        other.put_out(monotonic());
        while !engine.owes() {
            other.progress(monotonic());
            engine.attend(now);
        }
        let (runs, datagrams) = (engine.counts.runs_out, engine.counts.datagrams_out);
        // However long the application was kept from its processor, up to a limit: its moment begins when it looks again.
        let later = [now, Nanos(now.after(LONGEST).0 - 1), now][number % 3];
        assert!(engine.may_wait(later));
        engine.attend(later);
        assert_eq!(engine.counts.runs_out, runs);
        if number % 3 < 2 {
            engine.attend(later.after(MOMENT));
            assert_eq!(engine.counts.runs_out, runs + 1);
        } else {
            send(&mut engine, identity(1, there), &bytes);
            assert!(!engine.may_wait(now));
            engine.put_out(monotonic());
            assert_eq!(engine.counts.datagrams_out - datagrams, engine.counts.runs_out - runs);
            other.progress(monotonic());
            assert!(other.endpoint.is_quiet());
        }
        assert!(!engine.owes());
    }
}

#[test]
fn nothing_came_before_it_left() {
    let (mut engine, there) = engine();
    let mut other = engine_of(1, there);
    let here = engine.datagrams.address();
    // The process is kept from its processor from here on until it is there.
    let called = monotonic();
    send(&mut other, identity(0, here), &[7; 8]);
    let left = monotonic();
    while engine.counts.datagrams_in == 0 {
        other.put_out(monotonic());
        engine.progress(called);
    }
    assert!(engine.heard() >= left);
}

#[test]
fn who_only_ever_says_something_hears_what_comes() {
    let bytes = [7; 8];
    let (mut engine, there) = engine();
    let mut other = engine_of(1, there);
    let [here, there] = [&engine, &other].map(|each| each.datagrams.address());
    send(&mut other, identity(0, here), &bytes);
    other.put_out(monotonic());
    let mut now = monotonic();
    engine.taken = now;
    while engine.counts.datagrams_in == 0 {
        send(&mut engine, identity(1, there), &bytes);
        engine.go_on(now);
        // It is looked now and then alone.
        assert!(engine.counts.datagrams_in == 0 || now.since(engine.taken) == Nanos::ZERO);
        now = now.after(Nanos(TAKE_EVERY.0 / 4));
    }
    assert!(engine.counts.rounds > 0);
}

#[test]
fn nobody_sleeps_on_a_neighbour_that_could_not_be_connected_to() {
    let (mut engine, _there) = engine();
    let me = EndpointId(u64::from(std::process::id()) << 32 | 100);
    let mut nearby = Nearby::open(me, [1; 32], 1).unwrap();
    nearby.again = true;
    engine.nearby = Some(nearby);
    let now = monotonic();
    assert_eq!(engine.deadline(now), Some(now.after(SEND_AGAIN)));
    engine.put_out(now);
    assert!(engine.deadline(now) > Some(now.after(SEND_AGAIN)));
}

/// Tells an engine of endpoints that are all at one place: its queue, and where it knows them.
fn told_of<const N: usize>(
    engine: &mut Engine,
    there: &Datagrams,
    endpoints: [u64; N],
) -> (Arc<Queue>, [fi::fi_addr_t; N]) {
    let (addresses, queue) = (Arc::<Addresses>::default(), Arc::new(Queue::new().unwrap()));
    engine.queues().bind(&queue, fi::FI_TRANSMIT | fi::FI_RECV).unwrap();
    engine.bind_addresses(Arc::clone(&addresses)).unwrap();
    let places = endpoints.map(|number| {
        let address = Address { endpoint: number, host: number, at: there.address(), process: 1, rank: None };
        addresses.insert(address).unwrap()
    });
    (queue, places)
}

#[test]
fn who_looks_for_messages_of_anybody_is_told_when_nobody_is_left() {
    let (mut engine, there) = engine();
    let (queue, _) = told_of(&mut engine, &there, [1, 2, 3]);
    let context = Context(std::ptr::without_provenance_mut(1));
    let look = Look { from: None, wanted: Wanted::Untagged, context, then: Then::Leave };
    let answer = |engine: &mut Engine, now| {
        engine.peek(now, &look).unwrap();
        queue.read_failed().unwrap().fault.unwrap().code
    };
    let now = monotonic();
    assert_eq!(answer(&mut engine, now), Code::NO_MESSAGE);
    for number in [1, 2] {
        let peer = engine.endpoint.peer(identity(number, there.address()));
        engine.endpoint.on_gone(now, peer);
        // Not at once: who ends looks behind others that have ended.
        assert_eq!(answer(&mut engine, now), Code::NO_MESSAGE);
        let told = if number == 2 { Code::from(Failure::Ended) } else { Code::NO_MESSAGE };
        assert_eq!(looking_on(now, |now| answer(&mut engine, now)), told);
    }
}

#[test]
fn who_looks_for_messages_of_anybody_is_not_told_that_all_failed_while_others_were_never_met() {
    let (mut engine, there) = engine();
    // Endpoint 1 is this one.
    let (queue, places) = told_of(&mut engine, &there, [1, 2, 3]);
    let mut now = monotonic();
    let mut room = [0; 8];
    receive(&mut engine, Some(places[1]), &mut room, false).unwrap();
    let met = engine.endpoint.peer(identity(1, there.address()));
    while engine.endpoint.failure(met).is_none() {
        now = now.after(Nanos(100_000_000));
        engine.progress(now);
        engine.put_out(now);
    }
    let context = Context(std::ptr::without_provenance_mut(1));
    engine.peek(now, &Look { from: None, wanted: Wanted::Untagged, context, then: Then::Leave }).unwrap();
    assert_eq!(queue.read_failed().unwrap().fault.unwrap().code, Code::NO_MESSAGE);
}

#[test]
fn who_looks_for_messages_of_one_that_ended_is_told_so_where_it_does_nothing_else() {
    let (mut engine, there) = engine();
    // Endpoint 1 is this one.
    let (queue, places) = told_of(&mut engine, &there, [2, 3]);
    let answer = |engine: &mut Engine, now, from: usize| {
        let context = Context(std::ptr::without_provenance_mut(1));
        let look = Look { from: Some(places[from]), wanted: Wanted::Untagged, context, then: Then::Leave };
        engine.peek(now, &look).unwrap();
        queue.read_failed().unwrap().fault.unwrap().code
    };
    let peers = [1, 2].map(|number| engine.endpoint.peer(identity(number, there.address())));
    let (mut now, mut room) = (monotonic(), [0; 8]);
    engine.endpoint.on_gone(now, peers[0]);
    // A master that looks at each of its workers in turn goes on, however long one has been done.
    for _ in 0..3 {
        assert_eq!(answer(&mut engine, now, 0), Code::NO_MESSAGE);
        assert_eq!(answer(&mut engine, now, 1), Code::NO_MESSAGE);
        now = now.after(ALONE);
    }
    // So does one that wants something of another in between.
    assert_eq!(answer(&mut engine, now, 0), Code::NO_MESSAGE);
    assert_eq!(receive(&mut engine, Some(places[1]), &mut room, false), Ok(()));
    assert_eq!(answer(&mut engine, now.after(ALONE), 0), Code::NO_MESSAGE);
    // And one that was suspended, or computed.
    now = now.after(ALONE).after(ALONE);
    assert_eq!(answer(&mut engine, now, 0), Code::NO_MESSAGE);
    assert_eq!(looking_on(now, |now| answer(&mut engine, now, 0)), Code::from(Failure::Ended));
}

/// What a program is told in the end that looks on for long enough, and meanwhile that there is no message.
fn looking_on(now: Nanos, answer: impl FnMut(Nanos) -> Code) -> Code {
    let pause = Nanos(ELSEWHERE.0 / 2);
    let times = (0..=ALONE.0 / pause.0).map(|step| now.after(Nanos(step * pause.0)));
    times.map(answer).find(|code| *code != Code::NO_MESSAGE).unwrap_or(Code::NO_MESSAGE)
}

#[test]
fn a_receive_of_who_failed_is_refused_once_all_that_came_was_taken() {
    let (bytes, mut room) = ([7; 8], [[0; 8]; 5]);
    let (mut engine, there) = engine();
    let mut other = engine_of(1, there);
    let [here, there] = [&engine, &other].map(|each| each.datagrams.address());
    let addresses = Arc::<Addresses>::default();
    engine.bind_addresses(Arc::clone(&addresses)).unwrap();
    let place =
        addresses.insert(Address { endpoint: 2, host: 2, at: there, process: 1, rank: None }).unwrap();
    send(&mut other, identity(0, here), &bytes);
    while engine.counts.datagrams_in == 0 {
        other.progress(monotonic());
        engine.progress(monotonic());
    }
    let peer = engine.endpoint.peer(identity(1, there));
    engine.endpoint.on_gone(monotonic(), peer);
    let [first, second, third, of_anybody, several] = &mut room;
    assert_eq!(receive(&mut engine, Some(place), first, false), Ok(()));
    assert_eq!(*first, bytes);
    let ended = engine.endpoint.poll_completion();
    assert!(matches!(ended, Some(Ended::Received(_))), "{ended:?}");
    // Of what is refused nothing is told later.
    for room in [second, third] {
        let refused = receive(&mut engine, Some(place), room, false);
        assert_eq!(refused, Err(Code::from(Failure::Ended)));
    }
    assert!(engine.endpoint.poll_completion().is_none());
    // Others may come, and of a region for many messages it is told that it is the application's again.
    assert_eq!(receive(&mut engine, None, of_anybody, false), Ok(()));
    assert_eq!(receive(&mut engine, Some(place), several, true), Ok(()));
    assert!(matches!(engine.endpoint.poll_completion(), Some(Ended::Failed { sending: false, .. })));
}

#[test]
fn all_peers_are_told_farewell() {
    let (mut engine, there) = engine();
    let count = 3 * RUNS_AT_ONCE;
    for number in 0..count {
        send(&mut engine, identity(1 + number as u64, there.address()), &[7]);
        engine.put_out(monotonic());
    }
    let mut buffer = vec![0; MOST_AT_ONCE];
    while there.receive(&mut buffer).unwrap().is_some() {}
    engine.endpoint.on_close(monotonic());
    // Of a path of which little is known: once more, after a while.
    let now = monotonic();
    assert!(engine.put_out_words(now) > Some(now));
    let mut told = 0;
    while let Some(received) = there.receive(&mut buffer).unwrap() {
        let datagrams = buffer[..received.bytes].chunks(received.packet);
        told += datagrams.filter(|datagram| datagram[1] == About::Farewell as u8).count();
    }
    assert_eq!(told, count);
}

#[test]
fn an_acknowledgement_that_tells_of_a_gap_does_not_wait() {
    let (bytes, mut buffer) = ([7; 8], vec![0; MOST_AT_ONCE]);
    let (mut engine, there) = engine();
    let mut other = engine_of(1, there);
    let here = engine.datagrams.address();
    let now = monotonic();
    for (number, is_lost) in [false, true, false].into_iter().enumerate() {
        send(&mut other, identity(0, here), &bytes);
        other.put_out(monotonic());
        let (runs, datagrams) = (engine.counts.runs_out, engine.counts.datagrams_in);
        if is_lost {
            while engine.datagrams.receive(&mut buffer).unwrap().is_none() {}
            continue;
        }
        while engine.counts.datagrams_in == datagrams {
            // As if it had been told of something.
            engine.owes_until = Some(monotonic().after(Nanos(60_000_000_000)));
            engine.looked = Nanos::ZERO;
            engine.attend(now);
        }
        assert_eq!((engine.owes(), engine.counts.runs_out - runs), (number == 0, u64::from(number > 0)));
        engine.put_out(now);
    }
}

#[test]
fn answers_go_where_the_program_says_that_a_peer_is_wherever_its_words_came_from() {
    let bytes = [7; 8];
    let (mut engine, there) = engine();
    let mut other = engine_of(1, there);
    let meddler = Datagrams::open(HERE, 1 << 20).unwrap();
    let addresses = Arc::<Addresses>::default();
    addresses
        .insert(Address { endpoint: 2, host: 2, at: other.datagrams.address(), process: 1, rank: None })
        .unwrap();
    engine.bind_addresses(addresses).unwrap();
    send(&mut other, identity(0, meddler.address()), &bytes);
    other.put_out(monotonic());
    let mut buffer = vec![0; MOST_AT_ONCE];
    let caught = meddler.receive(&mut buffer).unwrap().unwrap();
    assert!(meddler.send(&buffer[..caught.bytes], caught.packet, engine.datagrams.address()).unwrap());
    // Nothing else that it caught is passed on.
    while meddler.receive(&mut buffer).unwrap().is_some() {}
    while engine.counts.datagrams_out == 0 {
        engine.progress(monotonic());
    }
    assert_eq!(meddler.receive(&mut buffer).unwrap(), None);
    assert!(other.datagrams.receive(&mut buffer).unwrap().is_some());
}
