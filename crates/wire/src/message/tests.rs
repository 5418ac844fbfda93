use proptest::prelude::*;

use super::*;
use crate::quantity::Bytes;

fn request() -> Request {
    Request {
        token: Token([7; 16]),
        way: Way::Forward,
        goal: Goal::size(Bytes(1 << 30)).unwrap(),
        streams: 10.try_into().unwrap(),
        congestion: Some("cubic".to_owned().try_into().unwrap()),
        declared: BitsPerSec::new(10_000_000_000),
        limit: BitsPerSec::new(2_000_000_000),
        buffer: Some(Bytes(64 << 20).try_into().unwrap()),
        block: Bytes(1 << 20).try_into().unwrap(),
        zero_copy: None,
        interval: Nanos(100_000_000).try_into().unwrap(),
        patience: Nanos(10_000_000_000).try_into().unwrap(),
        host: Host {
            name: "a".to_owned().into(),
            kernel: "6.1".to_owned().into(),
            cores: 2,
            clock: "x".to_owned().into(),
        },
    }
}

fn framed(body: &str) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
    bytes.extend(body.as_bytes());
    bytes
}

#[test]
fn a_message_reads_back_and_leaves_the_bytes_after_it() {
    let mut bytes = Message::Request(request()).encode();
    let length = bytes.len();
    bytes.extend(Message::Alive.encode());
    assert_eq!(Message::decode(&bytes).unwrap(), Some((Message::Request(request()), length)));
    assert_eq!(Message::decode(&bytes[length..]).unwrap().unwrap().0, Message::Alive);
}

#[test]
fn what_is_foretold_reads_back() {
    use copy::{Copy, Judgement, Node, Place, Verdict};
    let foretold = |node| Copy::Foretold { path: Place::new("a").unwrap(), bytes: 5, node };
    for message in [
        foretold(Node::File(-1, 999_999_999)),
        foretold(Node::Directory(1, 0)),
        foretold(Node::Symlink(Place::new(&b"\xff"[..]).unwrap())),
        Copy::Judged([Verdict::Wanted, Verdict::Current, Verdict::Newer].map(Judgement::Verdict).to_vec()),
        Copy::Judged(vec![Judgement::Failing("in the way".to_owned().into())]),
        Copy::Newer { pack: 1, runs: vec![(0, 2)] },
    ] {
        let message = Message::Copy(message);
        let bytes = message.encode();
        assert_eq!(Message::decode(&bytes).unwrap(), Some((message, bytes.len())));
    }
}

#[test]
fn part_of_a_message_waits_for_the_rest() {
    let bytes = Message::Request(request()).encode();
    for end in 0..bytes.len() {
        assert!(Message::decode(&bytes[..end]).unwrap().is_none());
    }
}

#[test]
fn an_oversize_length_is_refused_before_its_bytes_come() {
    let error = Message::decode(&u32::MAX.to_be_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "a message of 4294967295 bytes, where 262144 is the most");
}

#[test]
fn values_out_of_their_bounds_are_refused() {
    let good = serde_json::to_string(&Message::Request(request())).unwrap();
    for (from, to) in [
        (r#""streams":10"#, r#""streams":0"#),
        (r#""streams":10"#, r#""streams":513"#),
        (r#""streams":10"#, r#""streams":-1"#),
        (r#""size":1073741824"#, r#""size":0"#),
        (r#""size":1073741824"#, r#""duration":1"#),
        (r#""buffer":67108864"#, r#""buffer":1073741824"#),
        (r#""block":1048576"#, r#""block":1"#),
        (r#""interval":100000000"#, r#""interval":0"#),
        (r#""patience":10000000000"#, r#""patience":0"#),
        ("cubic", "cu/bic"),
        ("07070707070707070707070707070707", "+7070707070707070707070707070707"),
        ("07070707070707070707070707070707", "07"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        assert!(Message::decode(&framed(&bad)).is_err(), "{to}");
    }
}

#[test]
fn words_from_the_far_side_cannot_move_the_cursor() {
    let (message, _) =
        Message::decode(&framed(r#"{"refuse":{"cause":"lasting","words":"no\u001b[2J\nway"}}"#))
            .unwrap()
            .unwrap();
    assert_eq!(message, Message::Refuse(Refusal::lasting("no [2J way")));
    // Nor the words in which its parser tells of what it does not know.
    let error = Message::decode(&framed(r#"{"x\n\u001b[2J":null}"#)).unwrap_err().to_string();
    assert!(error.starts_with("a malformed message: ") && error.contains("x  [2J"), "{error}");
    assert!(!error.contains(char::is_control), "{error}");
}

#[test]
fn the_longest_lists_fit() {
    let row = TraceRow {
        stream: u16::MAX,
        at: Nanos::MAX,
        cwnd: u64::MAX,
        srtt: Nanos::MAX,
        retransmits: u64::MAX,
        pacing: Some(u64::MAX),
    };
    let rows = Message::Traced(vec![row; MAX_ENTRIES]).encode();
    let arrivals = Message::Arrived(vec![Arrival { index: u32::MAX, bytes: u64::MAX }; MAX_ENTRIES]).encode();
    assert!(rows.len().max(arrivals.len()) <= MAX_MESSAGE);
}

#[test]
fn another_version_is_named_with_ours() {
    let mut bytes = Hello::ours().encode();
    bytes[9] = 1;
    assert_eq!(
        Hello::decode(&bytes).unwrap_err().to_string(),
        "the far side speaks version 1, this is version 7: install the same release at both ends"
    );
    assert_eq!(Hello::decode(b"HTTP/1.1 4"), Err(GreetingError::NotFarlink));
}

#[test]
fn greetings_read_back() {
    assert_eq!(Hello::decode(&Hello::ours().encode()), Ok(Hello::ours()));
    for (sealed, wants_answer) in [(false, false), (false, true), (true, false), (true, true)] {
        let preamble = Preamble { token: Token([9; 16]), stream: 511, sealed, wants_answer };
        let bytes = preamble.encode();
        assert_eq!(Preamble::decode(&bytes), Ok(preamble));
        assert_eq!(Preamble::asks(&bytes[..Preamble::LEN - 1]), wants_answer);
        assert!(!Preamble::asks(&bytes[..Preamble::LEN - 2]));
    }
    assert_eq!(Stamp::decode(Stamp(Nanos(5)).encode()), Stamp(Nanos(5)));
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Message::decode(&bytes);
    }

    #[test]
    fn no_body_makes_the_decoder_panic(body in "\\PC{0,200}") {
        let _ = Message::decode(&framed(&body));
    }

    #[test]
    fn a_request_with_flipped_bytes_is_refused_or_within_bounds(
        at in 4usize..300, value in any::<u8>(), second in 4usize..300, other in any::<u8>(),
    ) {
        let mut bytes = Message::Request(request()).encode();
        let length = bytes.len();
        bytes[at.min(length - 1)] = value;
        bytes[second.min(length - 1)] = other;
        if let Ok(Some((Message::Request(request), _))) = Message::decode(&bytes) {
            prop_assert!((1..=512).contains(&request.streams.get()));
            prop_assert!(request.interval.get() >= Nanos(10_000_000));
        }
    }

    #[test]
    fn no_greeting_makes_the_decoders_panic(hello in any::<[u8; 10]>(), preamble in any::<[u8; 26]>()) {
        let _ = Hello::decode(&hello);
        let _ = Preamble::decode(&preamble);
    }
}
