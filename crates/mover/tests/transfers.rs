//! Transfers over loopback, both ends in this process.

mod ends;

use std::sync::mpsc::channel;

use ends::{Far, plan, run, seconds};
use farlink_host::readiness::Wake;
use farlink_mover::{chain, memory};
use farlink_wire::message::{Goal, Way};
use farlink_wire::quantity::{Bytes, Nanos};
use farlink_wire::record::{Mode, Outcome, Record};

/// What must hold of every record of a transfer that ended as asked.
fn check(record: &Record) {
    assert_eq!((record.outcome, record.error.as_deref()), (Outcome::Ok, None));
    assert_eq!(record.samples.iter().map(|sample| sample.1).sum::<u64>(), record.bytes);
    assert!(record.samples.windows(2).all(|pair| pair[0].0 < pair[1].0), "{:?}", record.samples);
    let duration = record.duration_s.unwrap();
    assert!((record.samples.last().unwrap().0 - duration).abs() < 1e-9);
    assert!(record.cpu_s.unwrap().sender.unwrap() >= 0.0 && record.buffers.unwrap().receive > 0);
    assert!(record.rtt_s.unwrap() > 0.0 && record.setup_s.unwrap() >= 0.0);
    assert_eq!(record.id.len(), 32);
    assert!(record.started.ends_with('Z'), "{}", record.started);
    assert!(record.hosts.as_ref().unwrap().source.cores >= 1);
    assert!(record.congestion.is_some() && record.mtu.is_some() && record.retransmits.is_some());
    assert_eq!(record.protection.as_deref(), Some("clear"));
    assert_eq!(Record::parse(&record.line()).unwrap(), *record);
}

#[test]
fn a_sized_transfer_ends_when_every_byte_has_arrived() {
    let far = Far::start("127.0.0.1");
    for bytes in [1, 4096, 10_000_019] {
        let mut plan = plan(far.address());
        plan.goal = Goal::size(Bytes(bytes)).unwrap();
        let record = run(&plan);
        check(&record);
        assert_eq!((record.bytes, record.mode), (bytes, Mode::Size));
    }
}

#[test]
fn a_timed_transfer_counts_what_arrived_within_its_time() {
    let far = Far::start("127.0.0.1");
    let mut plan = plan(far.address());
    plan.goal = Goal::duration(Nanos(250_000_000)).unwrap();
    let record = run(&plan);
    check(&record);
    assert_eq!((record.duration_s, record.mode), (Some(0.25), Mode::Duration));
    assert!(record.bytes > 0);
    assert_eq!(record.samples.len(), 3);
    assert!(!record.tcp.is_empty() && record.tcp[0].cwnd_bytes[0] > 0);
}

#[test]
fn the_far_end_sends_where_it_is_asked_to() {
    let far = Far::start("127.0.0.1");
    let mut plan = plan(far.address());
    plan.way = Way::Reverse;
    for goal in [Goal::size(Bytes(10_000_019)).unwrap(), Goal::duration(Nanos(250_000_000)).unwrap()] {
        plan.goal = goal;
        let record = run(&plan);
        check(&record);
        match goal {
            Goal::Size(bytes) => assert_eq!(record.bytes, bytes.0),
            Goal::Duration(_) => assert!(!record.tcp.is_empty(), "the far end's streams are traced"),
        }
    }
}

#[test]
fn many_streams_and_threads_share_one_transfer() {
    let far = Far::start("127.0.0.1");
    for way in [Way::Forward, Way::Reverse] {
        let mut plan = plan(far.address());
        plan.way = way;
        plan.streams = 40.try_into().unwrap();
        plan.threads = Some(3);
        plan.goal = Goal::size(Bytes(50_000_001)).unwrap();
        let record = run(&plan);
        check(&record);
        assert_eq!((record.bytes, record.streams), (50_000_001, Some(40)));
    }
}

#[test]
fn ipv6_is_like_ipv4() {
    let far = Far::start("::1");
    let record = run(&plan(far.address()));
    check(&record);
}

#[test]
fn buffers_and_congestion_control_are_as_asked() {
    let far = Far::start("127.0.0.1");
    for way in [Way::Forward, Way::Reverse] {
        let mut plan = plan(far.address());
        plan.way = way;
        plan.congestion = Some("reno".to_owned().try_into().unwrap());
        plan.buffer = Some(Bytes(100_000).try_into().unwrap());
        let record = run(&plan);
        check(&record);
        assert_eq!(record.congestion.as_deref(), Some("reno"));
        assert_eq!(record.buffer_bytes, Some(100_000));
        let buffers = record.buffers.unwrap();
        assert_eq!((buffers.send, buffers.receive), (200_000, 200_000));
    }
}

#[test]
fn the_payload_is_copied_or_not_as_asked() {
    let far = Far::start("127.0.0.1");
    for way in [Way::Forward, Way::Reverse] {
        for (asked, used) in [(None, false), (Some(true), true), (Some(false), false)] {
            let mut plan = plan(far.address());
            plan.way = way;
            plan.zero_copy = asked;
            let record = run(&plan);
            check(&record);
            assert_eq!(record.extra["zero_copy"], used);
        }
    }
}

#[test]
fn an_unknown_congestion_control_is_refused_with_those_there_are() {
    let far = Far::start("127.0.0.1");
    for way in [Way::Forward, Way::Reverse] {
        let mut plan = plan(far.address());
        plan.way = way;
        plan.congestion = Some("nosuch".to_owned().try_into().unwrap());
        let record = run(&plan);
        let error = record.error.unwrap();
        assert_eq!((record.outcome, record.bytes), (Outcome::Failed, 0));
        assert!(error.contains("no congestion control \"nosuch\": available are"), "{error}");
        assert!(error.contains("reno"), "{error}");
    }
}

#[test]
fn several_clients_are_served_at_once() {
    let far = Far::start("127.0.0.1");
    std::thread::scope(|scope| {
        for streams in 1..5 {
            let mut plan = plan(far.address());
            plan.streams = streams.try_into().unwrap();
            scope.spawn(move || check(&run(&plan)));
        }
    });
}

#[test]
fn an_interrupted_transfer_keeps_what_was_measured() {
    let far = Far::start("127.0.0.1");
    for way in [Way::Forward, Way::Reverse] {
        let mut plan = plan(far.address());
        plan.way = way;
        plan.goal = seconds(600);
        let stop = Wake::new().unwrap();
        // The first progress comes after a second: that much has been measured when it is stopped.
        let finished = memory::run(&plan, &stop, &mut |_| stop.raise());
        let record = finished.record;
        assert!(finished.error.is_none(), "{:?}", finished.error);
        assert_eq!(record.outcome, Outcome::Interrupted);
        assert!(record.bytes > 0 && record.cpu_s.is_some());
        let duration = record.duration_s.unwrap();
        assert!((1.0..600.0).contains(&duration), "{duration}");
        assert_eq!(record.samples.iter().map(|sample| sample.1).sum::<u64>(), record.bytes);
    }
}

#[test]
fn progress_says_how_it_goes() {
    let far = Far::start("127.0.0.1");
    let mut plan = plan(far.address());
    plan.goal = seconds(600);
    let (told, heard) = channel();
    let stop = Wake::new().unwrap();
    let finished = memory::run(&plan, &stop, &mut |progress| {
        told.send(progress).unwrap();
        stop.raise();
    });
    assert!(finished.error.is_none());
    let progress = heard.try_iter().next().unwrap();
    assert!(progress.at >= Nanos(1_000_000_000) && progress.bytes > 0 && progress.cwnd_bytes > 0);
    assert!(progress.latest_bps > 0.0 && progress.mean_bps > 0.0);
}

#[test]
fn a_stopped_server_says_so() {
    for way in [Way::Forward, Way::Reverse] {
        let far = Far::start("127.0.0.1");
        let mut plan = plan(far.address());
        plan.way = way;
        plan.goal = seconds(600);
        let finished = memory::run(&plan, &Wake::new().unwrap(), &mut |_| far.stop());
        let error = chain(&finished.error.unwrap());
        assert!(error.ends_with("the far side failed: the server was stopped"), "{error}");
        assert_eq!(finished.record.outcome, Outcome::Failed);
        assert!(finished.record.bytes > 0);
    }
}
