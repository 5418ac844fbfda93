use super::*;
use crate::cast::{Payload, Position, SessionId};
use crate::entry::Metadata;
use crate::message::copy::{Protect, Secret};
use crate::message::{Host, VERSION};
use crate::path::RelativePath;
use crate::refusal::{Cause, Refusal};

fn frames() -> Vec<Control<'static>> {
    let host =
        Host { name: "a".to_owned().into(), kernel: Text::default(), cores: 4, clock: Text::default() };
    let welcome = Welcome {
        version: VERSION,
        host: host.clone(),
        session: SessionId(9),
        key: Secret(Digest([7; 32])),
        protect: Protect::Encrypt,
        payload: Payload::try_from(1416).unwrap(),
        block: BlockPackets::try_from(250).unwrap(),
        number: 12,
        wanted: 2,
        first: 3,
        position: Position { product: 5, offset: 1416 },
        pace: Nanos(1_000_000),
    };
    vec![
        Control::Words(Words::Join(Box::new(Join {
            version: VERSION,
            host,
            receiver: u64::MAX,
            place: Some(1),
            again: Some(SessionId(8)),
            group: Some("239.1.1.1:7000".parse().unwrap()),
            ended: Some(SessionId(9)),
            since: Some(Nanos(3_600_000_000_000)),
            wanted: Some(Wanted { session: SessionId(8), first: 2 }),
        }))),
        Control::Words(Words::Welcome(Box::new(welcome))),
        Control::Words(Words::Refuse(Refusal::new(Cause::Passing, "no"))),
        Control::Words(Words::Pace(Nanos(50_000_000))),
        Control::Words(Words::End { products: 7 }),
        Control::Words(Words::BreakOff("it was interrupted there".to_owned().into())),
        Control::Words(Words::Leave(Leave { products: 7, ..Leave::default() })),
        Control::Echo { answer: true, stamp: u64::MAX },
        Control::Nack(vec![
            Want { product: 0, again: true, catch_up: false, ranges: vec![(5, 10), (16, 1)] },
            Want { product: 1, again: false, catch_up: true, ranges: vec![(0, MOST_STREAM)] },
        ]),
        Control::Nack(Vec::new()),
        Control::Have(vec![(0, 1), (2, u32::MAX - 1)]),
        Control::Report(Report {
            packets: 5,
            lost: 1,
            refused: 2,
            bytes: 3,
            repaired: 2,
            rtt: Nanos(4),
            at: Nanos(6),
        }),
        Control::Failed { product: 3, reason: "the disk is full".to_owned().into() },
        Control::Repair(Repair {
            product: 2,
            shape: Shape::new(20, 100).unwrap(),
            offset: 150,
            payload: &[1, 2],
        }),
        Control::Gone(vec![(4, 4)]),
        Control::Lost { product: 9, path: Text::default(), whole: None, reason: Text::default() },
        Control::Lost {
            product: 10,
            path: "a/b".to_owned().into(),
            whole: Some(Box::new(Whole {
                announcement: Announcement {
                    path: RelativePath::new(b"a/b").unwrap(),
                    metadata: Metadata { mode: 0o640, mtime_s: -1, mtime_ns: 5 },
                },
                content: 9,
                digest: Digest([3; 32]),
            })),
            reason: "it is gone".to_owned().into(),
        },
        Control::Superseded { product: 8 },
    ]
}

#[test]
fn frames_survive_the_wire() {
    let mut bytes = Vec::new();
    for frame in frames() {
        frame.encode(&mut bytes);
    }
    let mut rest = &bytes[..];
    for frame in frames() {
        let (read, used) = Control::decode(rest).unwrap().unwrap();
        assert_eq!(read, frame);
        rest = &rest[used..];
    }
    assert!(rest.is_empty());
}

#[test]
fn each_product_is_asked_for_once_in_a_frame() {
    let want = |product, again| Want { product, again, catch_up: false, ranges: vec![(0, 1)] };
    let is_taken = |wants: Vec<Want>| {
        let mut bytes = Vec::new();
        Control::Nack(wants).encode(&mut bytes);
        Control::decode(&bytes).is_ok()
    };
    assert!(is_taken(vec![want(1, false), want(1, true), want(2, false)]));
    for wants in
        [vec![want(1, false); 2], vec![want(1, true), want(1, false)], vec![want(2, false), want(1, true)]]
    {
        assert!(!is_taken(wants));
    }
}

#[test]
fn a_frame_is_awaited_until_it_is_whole() {
    for frame in frames() {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        for end in 0..bytes.len() {
            assert!(Control::decode(&bytes[..end]).unwrap().is_none(), "{frame:?} at {end}");
        }
    }
}

#[test]
fn a_body_that_is_cut_off_or_goes_on_is_refused() {
    for frame in frames() {
        // A reason may have any length, and a repair any within its stream.
        if matches!(frame, Control::Failed { .. } | Control::Lost { .. } | Control::Repair(_)) {
            continue;
        }
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        for length in [bytes.len().saturating_sub(HEAD + 1), bytes.len() - HEAD + 1] {
            let mut bytes = bytes.clone();
            bytes.resize(HEAD + length, 0);
            bytes[1..HEAD].copy_from_slice(&(length as u32).to_be_bytes());
            let none = length == 0 && matches!(frame, Control::Nack(_));
            assert!(none || Control::decode(&bytes).is_err(), "{frame:?} of {length} bytes");
        }
    }
}

#[test]
fn what_a_later_release_says_names_its_version() {
    for (version, is_told) in [(VERSION + 1, true), (VERSION, false)] {
        let words = format!("{{\"join\": {{\"version\": {version}, \"host\": \"renamed since\"}}}}");
        let mut bytes = vec![WORDS];
        bytes.extend((words.len() as u32).to_be_bytes());
        bytes.extend(words.as_bytes());
        let error = Control::decode(&bytes).unwrap_err();
        assert_eq!(matches!(&error, ControlError::Version(_)), is_told, "{error}");
    }
}

fn refused(kind: u8, body: &[u8]) {
    let mut bytes = vec![kind];
    bytes.extend((body.len() as u32).to_be_bytes());
    bytes.extend(body);
    assert!(Control::decode(&bytes).is_err(), "kind {kind}: {body:?}");
}

fn want(flags: u8, ranges: &[(u64, u64)]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 1, flags];
    body.extend((ranges.len() as u16).to_be_bytes());
    for (offset, length) in ranges {
        body.extend(u48_bytes(*offset));
        body.extend(u48_bytes(*length));
    }
    body
}

#[test]
fn ranges_are_in_order_apart_and_within_a_stream() {
    refused(NACK, &want(4, &[(0, 1)]));
    refused(NACK, &want(0, &[]));
    refused(NACK, &want(0, &[(0, 0)]));
    refused(NACK, &want(0, &[(0, 5), (5, 1)]));
    refused(NACK, &want(0, &[(9, 1), (2, 1)]));
    refused(NACK, &want(0, &[(1, MOST_STREAM)]));
    let many: Vec<_> = (0..=MOST_RANGES as u64).map(|at| (2 * at, 1)).collect();
    refused(NACK, &want(0, &many));
    // Nor those of several products together.
    let body = [want(0, &many[..MOST_RANGES]), want(0, &many[..1])].concat();
    refused(NACK, &body);
}

#[test]
fn runs_are_in_order_and_of_products_that_can_be() {
    let run = |first: u32, count: u32| [first.to_be_bytes(), count.to_be_bytes()].concat();
    refused(HAVE, &run(0, 0));
    refused(HAVE, &run(2, u32::MAX));
    refused(GONE, &[run(5, 2), run(6, 1)].concat());
}

#[test]
fn nothing_else_is_a_frame() {
    assert!(matches!(Control::decode(&[0; HEAD]), Err(ControlError::Kind { kind: 0 })));
    let long = [HAVE, 0, 1, 1, 0];
    assert!(matches!(Control::decode(&long), Err(ControlError::TooLong { .. })));
    let mut body = [0; REPAIR + 3];
    body[5] = 20;
    body[11] = 54;
    body[17] = 52;
    refused(REPAIR_KIND, &body);
    refused(FAILED, &[0, 0, 0, 1, 0xff]);
    refused(WORDS, b"{}");
    refused(WORDS, br#"{"end":{"products":-1}}"#);
}
