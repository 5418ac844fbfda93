use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::thread;

use farlink_flow::digest;
use farlink_mover::channel::Channel;
use farlink_mover::facts;
use farlink_wire::cast::control::Whole;
use farlink_wire::cast::{Payload, Position, SessionId, Shape};
use farlink_wire::entry::{Digest, Metadata};
use farlink_wire::message::VERSION;
use farlink_wire::message::copy::{Protect, Secret};
use farlink_wire::path::RelativePath;

use super::early::MOST_EARLY;
use super::*;

fn attendance() -> Attendance {
    let welcome = Welcome {
        version: VERSION,
        host: facts::host(),
        session: SessionId(1),
        key: Secret(Digest([1; 32])),
        protect: Protect::Encrypt,
        payload: Payload::try_from(8000).unwrap(),
        block: 0.try_into().unwrap(),
        number: 0,
        wanted: 0,
        first: 0,
        position: Position { product: 0, offset: 0 },
        pace: Nanos(1_000_000),
    };
    Attendance::new(&welcome, 1024).unwrap()
}

#[test]
fn who_leaves_is_there_until_the_sender_has_heard_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    let leaving = thread::spawn(move || {
        let mut line = Line::new(Channel::over_tcp(ours).unwrap());
        attendance().leave(&mut line);
    });
    let mut heard = Vec::new();
    sender.read_to_end(&mut heard).unwrap();
    let mut last = None;
    while let Some((control, length)) = Control::decode(&heard).unwrap() {
        last = Some(matches!(control, Control::Words(Words::Leave(_))));
        heard.drain(..length);
    }
    assert_eq!(last, Some(true));
    // What a sender says until it has heard it: a connection that was closed answers with a reset.
    let mut echo = Vec::new();
    Control::Echo { answer: true, stamp: 1 }.encode(&mut echo);
    for _ in 0..100 {
        sender.write_all(&echo).unwrap();
        thread::yield_now();
    }
    drop(sender);
    leaving.join().unwrap();
}

#[test]
fn what_the_sender_sends_to_this_receiver_alone_is_kept_although_it_has_no_name_yet() {
    let mut attendance = attendance();
    let content = 2 * MOST_EARLY as u64;
    let shape = Shape::new(100, content).unwrap();
    let repair_all = |attendance: &mut Attendance, product, shape: Shape| {
        let payload = [7; 8000];
        let mut offset = 8000;
        while offset < shape.stream() {
            let bytes = (shape.stream() - offset).min(8000) as usize;
            let repair = Repair { product, shape, offset, payload: &payload[..bytes] };
            attendance.hear_sender(monotonic(), &Control::Repair(repair), &Storage::Nowhere);
            offset += bytes as u64;
        }
    };
    repair_all(&mut attendance, 0, shape);
    assert_eq!(attendance.progress().tally.bytes, shape.stream() - 8000);
    // Of the group's packets no more is kept: they come again.
    let of = |product, offset| Data { product, shape, offset, repair: false };
    assert!(!attendance.has_room(&of(1, 8000), 8000));
    assert!(attendance.has_room(&of(1, 0), 8000), "the name itself");
    // One that would fill the memory of everybody is not obeyed.
    repair_all(&mut attendance, 1, Shape::new(100, 2 * MOST_EARLY_REPAIRED as u64).unwrap());
    assert!(attendance.early_bytes <= MOST_EARLY_REPAIRED);
    assert!(attendance.early.contains_key(&0) && !attendance.early.contains_key(&1));
}

/// A product's stream.
fn stream(content: &[u8]) -> (Shape, Vec<u8>) {
    version(content, 5)
}

/// The stream of a product of some time.
fn version(content: &[u8], mtime_ns: u32) -> (Shape, Vec<u8>) {
    let metadata = Metadata { mode: 0o640, mtime_s: 1_600_000_000, mtime_ns };
    let head = Announcement { path: RelativePath::new("a").unwrap(), metadata }.encode();
    let shape = Shape::new(head.len(), content.len() as u64).unwrap();
    (shape, [&head, content, &digest::whole(content).0[..]].concat())
}

#[test]
fn frames_that_overlap_are_stored_as_they_are_whatever_their_order() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at ^ (at >> 9)) as u8).collect();
    let (shape, stream) = stream(&content);
    let count = stream.len().div_ceil(8000);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut line = Line::new(Channel::over_tcp(listener.accept().unwrap().0).unwrap());
    let into = std::env::temp_dir().join(format!("attendance-overlap-{}", std::process::id()));
    for name_last in [false, true] {
        for kept in [false, true] {
            std::fs::create_dir_all(&into).unwrap();
            let directory = kept.then(|| into.as_os_str().as_bytes());
            let storage = Storage::open(directory, "239.1.1.1:7000".parse().unwrap()).unwrap();
            let mut attendance = attendance();
            let mut stored = 0;
            // Every fifth packet, then in frames of 16 what lies between, each of which begins within the one before, back to front.
            let alone = (usize::from(name_last)..count).step_by(5).map(|at| at..at + 1);
            let frames = (usize::from(name_last)..count).step_by(11).map(|at| at..at + 16).rev();
            for packets in alone.chain(frames).chain(std::iter::once(0..count.min(8))) {
                let range = packets.start * 8000..stream.len().min(packets.end * 8000);
                let offset = range.start as u64;
                let repair = Repair { product: 0, shape, offset, payload: &stream[range] };
                attendance.hear_sender(monotonic(), &Control::Repair(repair), &storage);
                attendance.do_all(&storage, &mut line, &Wake::new().unwrap(), &mut |notice| {
                    stored += u32::from(matches!(notice, Notice::Stored { .. }));
                });
            }
            let tally = attendance.progress().tally;
            assert_eq!((stored, tally.stored, tally.failed, tally.caught_up), (1, 1, 0, 0));
            assert_eq!(tally.bytes, shape.stream());
            if kept {
                assert_eq!(std::fs::read(into.join("a")).unwrap(), content);
            }
            std::fs::remove_dir_all(&into).unwrap();
        }
    }
}

/// A line to a sender that hears nothing, and the sender.
fn line() -> (Line, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Line::new(Channel::over_tcp(listener.accept().unwrap().0).unwrap()), sender)
}

#[test]
fn of_two_products_of_one_name_the_newer_is_stored_whichever_is_whole_first() {
    let (mut line, _sender) = line();
    let into = std::env::temp_dir().join(format!("attendance-newer-{}", std::process::id()));
    // In one packet, in memory, and in a file.
    for size in [1000, 100_000, 1_000_000] {
        let content = |version: usize| (0..size).map(|at| (at / 7 + version * at) as u8).collect::<Vec<_>>();
        let versions = [1, 2, 3].map(|number| version(&content(number), number as u32));
        let packets = versions[0].1.len().div_ceil(8000);
        // Which packets of which version come, in this order. Of the first something is lost: the first packet, or the last.
        let [first, last] = [0..1, packets - 1..packets];
        let mut orders = vec![vec![(2, 0..packets), (0, 0..packets), (1, 0..packets)]];
        if packets > 1 {
            orders.extend([
                vec![(0, 0..packets - 1), (1, 0..packets), (0, last.clone()), (2, 0..packets)],
                vec![(0, 1..packets), (2, 0..packets - 1), (0, first), (1, 0..packets), (2, last.clone())],
                vec![(0, 0..packets - 1), (1, 0..packets - 1), (2, 0..packets), (1, last.clone()), (0, last)],
            ]);
        }
        for order in orders {
            std::fs::create_dir_all(&into).unwrap();
            let group = "239.1.1.1:7000".parse().unwrap();
            let storage = Storage::open(Some(into.as_os_str().as_bytes()), group).unwrap();
            let mut attendance = attendance();
            for (product, range) in order.clone() {
                let (shape, stream) = &versions[product];
                for packet in range {
                    let range = packet * 8000..stream.len().min(packet * 8000 + 8000);
                    let (product, offset) = (product as u32, range.start as u64);
                    let repair = Repair { product, shape: *shape, offset, payload: &stream[range] };
                    attendance.hear_sender(monotonic(), &Control::Repair(repair), &storage);
                    attendance.do_all(&storage, &mut line, &Wake::new().unwrap(), &mut |notice| {
                        assert!(!matches!(notice, Notice::NotStored { .. }), "{size} {order:?}: {notice:?}");
                    });
                }
            }
            let stored = std::fs::read(into.join("a")).unwrap();
            assert!(stored == content(3), "{size} {order:?}: not the newest");
            // The others count as had: the sender need not send them to this end.
            let tally = attendance.progress().tally;
            assert_eq!((tally.stored, tally.failed, attendance.unfinished().count()), (3, 0, 0));
            assert_eq!(std::fs::read_dir(&into).unwrap().count(), 1, "{size} {order:?}: something is left");
            std::fs::remove_dir_all(&into).unwrap();
        }
    }
}

#[test]
fn what_could_not_be_written_is_not_told_to_be_stored_as_well() {
    let (mut line, _sender) = line();
    let (shape, stream) = stream(&[7; 100]);
    let mut attendance = attendance();
    let repair = Repair { product: 0, shape, offset: 0, payload: &stream };
    attendance.hear_sender(monotonic(), &Control::Repair(repair), &Storage::Nowhere);
    // As where the last write, which found the disk full, was followed by one that did not.
    attendance.machine.on_unwanted(0, Text::from("the disk is full".to_owned()));
    let (mut stored, mut not_stored) = (0, 0);
    attendance.do_all(&Storage::Nowhere, &mut line, &Wake::new().unwrap(), &mut |notice| {
        stored += u32::from(matches!(notice, Notice::Stored { .. }));
        not_stored += u32::from(matches!(notice, Notice::NotStored { .. }));
    });
    assert_eq!((stored, not_stored), (0, 1));
    assert_eq!((attendance.progress().tally.stored, attendance.unfinished().count()), (0, 0));
}

#[test]
fn an_older_one_of_a_name_is_stored_where_the_newer_is_lost() {
    let (mut line, _sender) = line();
    let into = std::env::temp_dir().join(format!("attendance-older-{}", std::process::id()));
    for size in [20_000, 100_000, 1_000_000] {
        // What is left of the older one comes before the newer is lost, or after that.
        for is_whole_first in [true, false] {
            std::fs::create_dir_all(&into).unwrap();
            let group = "239.1.1.1:7000".parse().unwrap();
            let storage = Storage::open(Some(into.as_os_str().as_bytes()), group).unwrap();
            let mut attendance = attendance();
            let versions = [1, 2].map(|number| version(&vec![number; size], number.into()));
            let packets = versions[0].1.len().div_ceil(8000);
            let (mut stored, mut reasons) = (0, Vec::new());
            let mut hear = |attendance: &mut Attendance, control: &Control<'_>| {
                attendance.hear_sender(monotonic(), control, &storage);
                attendance.do_all(&storage, &mut line, &Wake::new().unwrap(), &mut |notice| match notice {
                    Notice::Stored { .. } => stored += 1,
                    Notice::NotStored { reason, .. } => reasons.push(reason),
                    _ => {}
                });
            };
            let lost = Control::Lost {
                product: 1,
                path: Text::default(),
                whole: None,
                reason: Text::from("it is gone".to_owned()),
            };
            for (product, range) in [(0, 0..packets - 1), (1, 0..packets - 1), (0, packets - 1..packets)] {
                if product == 0 && range.start > 0 && !is_whole_first {
                    hear(&mut attendance, &lost);
                }
                let (shape, stream) = &versions[product];
                for packet in range {
                    let range = packet * 8000..stream.len().min(packet * 8000 + 8000);
                    let (product, offset) = (product as u32, range.start as u64);
                    hear(
                        &mut attendance,
                        &Control::Repair(Repair { product, shape: *shape, offset, payload: &stream[range] }),
                    );
                }
            }
            hear(&mut attendance, &lost);
            let is_small = size < 1_000_000;
            assert_eq!((stored, reasons.len()), if is_small { (1, 1) } else { (0, 2) }, "{size} {reasons:?}");
            // Of two that are too large for memory it is named that the older one was given up.
            assert_eq!(reasons.iter().any(|reason| reason == GIVEN_UP), !is_small);
            assert_eq!(attendance.unfinished().count(), 0);
            if is_small {
                assert_eq!(std::fs::read(into.join("a")).unwrap(), vec![1; size]);
            }
            std::fs::remove_dir_all(&into).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_sent_again_and_stands_from_before_is_no_failure_and_nothing_else_is_taken_for_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut line = Line::new(Channel::over_tcp(listener.accept().unwrap().0).unwrap());
    let into = std::env::temp_dir().join(format!("attendance-standing-{}", std::process::id()));
    let group: crate::group::Group = "239.1.1.1:7000".parse().unwrap();
    let metadata = Metadata { mode: 0o640, mtime_s: 1_600_000_000, mtime_ns: 5 };
    let announcement = Announcement { path: RelativePath::new("d/a").unwrap(), metadata };
    let mut expected_failures = 0;
    for size in [0, 20_000, 1_200_000] {
        let content: Vec<u8> = (0..size).map(|at| at as u8).collect();
        let whole = Whole {
            announcement: announcement.clone(),
            content: content.len() as u64,
            digest: digest::whole(&content),
        };
        for there in ["the same", "something else", "nothing"] {
            std::fs::create_dir_all(&into).unwrap();
            let storage = Storage::open(Some(into.as_os_str().as_bytes()), group).unwrap();
            let (at, mut was) = (into.join("d/a"), content.clone());
            if there != "nothing" {
                if let (Some(byte), "something else") = (was.last_mut(), there) {
                    *byte ^= 1;
                }
                std::fs::create_dir(into.join("d")).unwrap();
                std::fs::write(&at, &was).unwrap();
                let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_600_000_000, 5);
                std::fs::File::open(&at).unwrap().set_modified(time).unwrap();
            }
            let is_had = there == "the same" || there == "something else" && was == content;
            let mut attendance = attendance();
            attendance.hear_sender(monotonic(), &Control::Words(Words::End { products: 1 }), &storage);
            let lost = Control::Lost {
                product: 0,
                path: Text::from("d/a".to_owned()),
                whole: Some(Box::new(whole.clone())),
                reason: Text::from("it is gone".to_owned()),
            };
            let mut told = Vec::new();
            for _ in 0..2 {
                attendance.hear_sender(monotonic(), &lost, &storage);
                attendance.do_all(&storage, &mut line, &Wake::new().unwrap(), &mut |notice| match notice {
                    Notice::Stored { path, bytes, stood: true, lacks: None } => {
                        told.push(format!("{path}: {bytes}"));
                    }
                    Notice::NotStored { path, reason } => told.push(format!("{path}: {reason}")),
                    _ => {}
                });
            }
            let said = if is_had {
                format!("d/a: {size}")
            } else {
                "d/a: the sender cannot send it: it is gone".into()
            };
            assert_eq!(told, [said], "{size} {there}");
            let tally = attendance.progress().tally;
            assert_eq!((tally.stored, tally.failed), (u32::from(is_had), u32::from(!is_had)));
            assert!(attendance.machine.is_complete() && attendance.unfinished().count() == 0);
            expected_failures += u32::from(!is_had);
            // What stood there stands there, and nothing beside it.
            if there == "nothing" {
                assert!(!into.join("d").exists());
            } else {
                assert_eq!(std::fs::read(&at).unwrap(), was);
                assert_eq!(std::fs::read_dir(into.join("d")).unwrap().count(), 1);
            }
            std::fs::remove_dir_all(&into).unwrap();
        }
    }
    line.flush().unwrap();
    drop(line);
    let mut heard = Vec::new();
    sender.read_to_end(&mut heard).unwrap();
    let (mut rest, mut had, mut failed) = (&heard[..], 0, 0);
    while let Some((control, length)) = Control::decode(rest).unwrap() {
        had += u32::from(matches!(&control, Control::Have(runs) if *runs == [(0, 1)]));
        failed += u32::from(
            matches!(control, Control::Failed { product: 0, reason } if reason.as_str().ends_with("it is gone")),
        );
        rest = &rest[length..];
    }
    assert_eq!((had, failed), (9 - expected_failures, expected_failures));
}
