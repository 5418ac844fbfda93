//! What can go wrong between the ends, and what each then says.

mod ends;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ends::{Far, plan, run, seconds};
use farlink_host::readiness::Wake;
use farlink_mover::memory::{self, Plan};
use farlink_mover::server::{Event, Limits};
use farlink_wire::message::{Arrival, Hello, Message, Preamble, Token, Way};
use farlink_wire::quantity::Nanos;
use farlink_wire::record::Outcome;
use farlink_wire::refusal::Refusal;

const SHORT: Nanos = Nanos(300_000_000);

const PATIENCE: Nanos = Nanos(10_000_000_000);

/// A server that says `bytes` to every connection, and closes it when the client has.
fn saying(bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, bytes) = (stream.unwrap(), bytes.clone());
            std::thread::spawn(move || {
                let _ = stream.write_all(&bytes);
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    address
}

/// The error of a transfer that never started.
fn error_of(plan: &Plan) -> String {
    let record = run(plan);
    assert_eq!((record.outcome, record.bytes, record.duration_s), (Outcome::Failed, 0, None));
    record.error.unwrap()
}

#[test]
fn a_far_side_that_is_not_there_is_named_with_the_mend() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = error_of(&plan(address));
    let expected = format!("connect to {address} (start `farlink serve` there first): Connection refused");
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn a_name_that_nobody_knows_is_named() {
    let mut plan = plan(([127, 0, 0, 1], 1).into());
    // Too long for a label: refused without asking a name server.
    plan.target.host = "x".repeat(64);
    let error = error_of(&plan);
    assert!(error.starts_with(&format!("find host {}: ", plan.target.host)), "{error}");
}

#[test]
fn another_version_is_named_with_ours() {
    let mut hello = Hello::ours().encode().to_vec();
    hello[9] = 1;
    let address = saying(hello);
    assert_eq!(
        error_of(&plan(address)),
        format!(
            "{address}: the far side speaks version 1, this is version 7: install the same release at both ends"
        )
    );
}

#[test]
fn whatever_is_not_farlink_is_said_not_to_be() {
    let address = saying(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    assert_eq!(error_of(&plan(address)), format!("{address}: the far side is not farlink"));
}

#[test]
fn a_far_side_that_says_nothing_is_not_waited_for() {
    let mut plan = plan(saying(Vec::new()));
    plan.patience = SHORT.try_into().unwrap();
    let error = error_of(&plan);
    assert!(error.contains("the far side has been silent for "), "{error}");
}

#[test]
fn a_server_that_breaks_the_rules_is_not_believed() {
    for (message, said) in [
        (
            Message::Arrived(vec![Arrival { index: 0, bytes: 1 }]),
            "what has no place here: a count of arrivals",
        ),
        (Message::Refuse(Refusal::lasting("no\u{1b}[2Jway")), "refused: no [2Jway"),
    ] {
        let mut bytes = Hello::ours().encode().to_vec();
        bytes.extend(message.encode());
        let error = error_of(&plan(saying(bytes)));
        assert!(error.contains(said), "{error}");
    }
}

/// Passes bytes between clients and a server until it is cut or frozen.
#[derive(Clone)]
struct Relay {
    address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    frozen: Arc<Mutex<()>>,
    /// Bytes that it passes on before it cuts everything by itself.
    left: Arc<AtomicU64>,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        Self::of(server, u64::MAX)
    }

    fn of(server: SocketAddr, left: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (streams, frozen) = (Arc::new(Mutex::new(Vec::new())), Arc::default());
        let left = Arc::new(AtomicU64::new(left));
        let relay = Self { address, streams: Arc::clone(&streams), frozen, left };
        let passing = relay.clone();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(server).unwrap());
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let relay = passing.clone();
                    std::thread::spawn(move || pass(from, to, &relay));
                }
                streams.lock().unwrap().extend([near, far]);
            }
        });
        relay
    }

    /// Ends every connection.
    fn cut(&self) {
        for stream in self.streams.lock().unwrap().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, relay: &Relay) {
    let mut bytes = [0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        drop(relay.frozen.lock());
        let passed = |left: u64| Some(left.saturating_sub(read as u64));
        let left = relay.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, passed);
        if left.is_ok_and(|left| left <= read as u64) {
            relay.cut();
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn what_was_measured_before_the_far_side_died_is_kept() {
    for way in [Way::Forward, Way::Reverse] {
        let far = Far::start("127.0.0.1");
        let relay = Relay::to(far.address());
        let mut plan = plan(relay.address);
        (plan.way, plan.goal) = (way, seconds(600));
        let finished = memory::run(&plan, &Wake::new().unwrap(), &mut |_| relay.cut());
        let record = finished.record;
        assert_eq!(record.outcome, Outcome::Failed);
        assert_eq!(record.error.unwrap(), format!("{}: the far side ended midway", relay.address));
        assert!(record.bytes > 0 && record.duration_s.unwrap() >= 0.5, "{:?}", record.duration_s);
        assert_eq!(record.samples.iter().map(|sample| sample.1).sum::<u64>(), record.bytes);
        let events = far.end();
        assert!(events.iter().any(|event| matches!(event, Event::Failed { .. })), "{events:?}");
    }
}

#[test]
fn what_arrived_before_the_first_report_is_kept() {
    let far = Far::start("127.0.0.1");
    let relay = Relay::of(far.address(), 2 << 20);
    let mut plan = plan(relay.address);
    // The receiver tells of an interval when it is over: of this one it never does.
    (plan.goal, plan.interval) = (seconds(600), Nanos(10_000_000_000).try_into().unwrap());
    let record = run(&plan);
    assert_eq!(record.outcome, Outcome::Failed);
    // All that the relay read was acknowledged to the sender; a little of it was no payload.
    assert!(record.bytes > 2_000_000, "{}", record.bytes);
    assert_eq!(record.samples.iter().map(|sample| sample.1).sum::<u64>(), record.bytes);
    assert!(record.duration_s.is_some_and(|duration| duration > 0.0 && duration <= 10.0));
}

#[test]
fn a_far_side_that_falls_silent_midway_is_given_up() {
    for way in [Way::Forward, Way::Reverse] {
        let far = Far::start("127.0.0.1");
        let relay = Relay::to(far.address());
        let mut plan = plan(relay.address);
        // Long enough for all that comes before the first report.
        let patience = Nanos(3_000_000_000);
        (plan.way, plan.goal, plan.patience) = (way, seconds(600), patience.try_into().unwrap());
        let mut freeze = None;
        let finished = memory::run(&plan, &Wake::new().unwrap(), &mut |_| {
            freeze.get_or_insert_with(|| relay.frozen.lock().unwrap());
        });
        drop(freeze);
        let error = finished.record.error.unwrap();
        assert!(error.ends_with(&format!("the far side has been silent for {patience}")), "{error}");
        assert!(finished.record.bytes > 0);
        relay.cut();
    }
}

/// Connects to `far`, says `bytes`, and returns all that it answers until it closes.
fn answer(far: &Far, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(far.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ = stream.write_all(bytes);
    let (mut answer, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return answer,
            Ok(read) => answer.extend(&chunk[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return answer,
            Err(error) => panic!("the server does not close: {error}"),
        }
    }
}

fn failure(answer: &[u8]) -> String {
    let (hello, message) = answer.split_at(Hello::LEN);
    assert_eq!(hello, Hello::ours().encode());
    match Message::decode(message).unwrap().unwrap().0 {
        Message::Failed(reason) | Message::Refuse(reason) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hostile_client_is_shown_out_and_the_next_is_served() {
    let [far, brief] = [Limits::default().patience, SHORT]
        .map(|patience| Far::with("127.0.0.1", Limits { patience, ..Limits::default() }));
    let hello = Hello::ours().encode().to_vec();
    let with = |rest: &[u8]| [hello.as_slice(), rest].concat();

    assert!(answer(&far, b"GET / HTTP/1.1\r\n\r\n").is_empty());
    assert!(answer(&far, &[0xff; 5000]).is_empty());
    // Nothing, half a greeting, and half a message, each held open.
    assert!(answer(&brief, b"").is_empty());
    assert!(answer(&brief, b"farl").is_empty());
    assert!(failure(&answer(&brief, &with(b"\x00\x00\x01\x00{"))).contains("silent for"));
    // A data connection that belongs to nobody.
    let stranger = Preamble { token: Token([3; 16]), stream: 0, sealed: false, wants_answer: false };
    assert!(answer(&far, &stranger.encode()).is_empty());
    let cases: [(Vec<u8>, &str); 4] = [
        (with(&u32::MAX.to_be_bytes()), "a message of 4294967295 bytes"),
        (with(b"\x00\x00\x00\x02{}"), "a malformed message"),
        (with(&Message::Stop.encode()), "what has no place here: a request to stop"),
        (b"farlink\n\x00\x08".to_vec(), "speaks version 8, this is version 7"),
    ];
    for (bytes, said) in cases {
        let failure = failure(&answer(&far, &bytes));
        assert!(failure.contains(said), "{failure}");
    }
    assert_eq!(run(&plan(far.address())).outcome, Outcome::Ok);
}

#[test]
fn data_connections_with_another_token_are_not_taken_for_the_sessions() {
    let far = Far::with("127.0.0.1", Limits { patience: SHORT, ..Limits::default() });
    let mut strangers = Vec::new();
    for stream in 0..4 {
        let mut data = TcpStream::connect(far.address()).unwrap();
        data.write_all(
            &Preamble { token: Token([8; 16]), stream, sealed: false, wants_answer: false }.encode(),
        )
        .unwrap();
        strangers.push(data);
    }
    let refusal = failure(&answer(&far, &request(Token([7; 16]), 4, 5, SHORT)));
    assert!(refusal.contains("only 0 of 4 data connections arrived within 300ms"), "{refusal}");
}

#[test]
fn who_asks_is_answered_once_before_the_last_byte_of_its_preamble() {
    let far = Far::with("127.0.0.1", Limits { patience: Nanos(3_000_000_000), ..Limits::default() });
    let preamble = Preamble { token: Token([6; 16]), stream: 0, sealed: false, wants_answer: true }.encode();
    let mut data = TcpStream::connect(far.address()).unwrap();
    let (most, last) = preamble.split_at(Preamble::LEN - 1);
    data.write_all(most).unwrap();
    let mut said = [0; Preamble::ANSWER.len()];
    data.read_exact(&mut said).unwrap();
    assert_eq!(said, Preamble::ANSWER);
    data.write_all(last).unwrap();
    // Nobody wants it, and it is closed without another word.
    assert_eq!(data.read(&mut said).unwrap(), 0);
}

/// What a client says that wants to send so many bytes.
fn request(token: Token, streams: u16, size: u64, Nanos(patience): Nanos) -> Vec<u8> {
    let token: String = token.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let request = format!(
        r#"{{"request":{{"token":"{token}","way":"forward","goal":{{"size":{size}}},"streams":{streams},"block":4096,
        "interval":100000000,"patience":{patience},"host":{{"name":"","kernel":"","cores":1,"clock":""}}}}}}"#
    );
    let mut bytes = Hello::ours().encode().to_vec();
    bytes.extend((request.len() as u32).to_be_bytes());
    bytes.extend(request.as_bytes());
    bytes
}

#[test]
fn who_talks_all_the_time_keeps_a_server_from_nothing_and_more_connections_than_asked_are_nobodys() {
    let far = Far::with("127.0.0.1", Limits::default());
    let token = Token([9; 16]);
    let mut control = TcpStream::connect(far.address()).unwrap();
    control.write_all(&request(token, 1, 1 << 49, PATIENCE)).unwrap();
    let data = || {
        let mut data = TcpStream::connect(far.address()).unwrap();
        data.write_all(&Preamble { token, stream: 0, sealed: false, wants_answer: false }.encode()).unwrap();
        data
    };
    let _first = data();
    let mut answer = vec![0; Hello::LEN + 4];
    control.read_exact(&mut answer).unwrap();
    let length = u32::from_be_bytes(*answer.last_chunk().unwrap());
    answer.resize(answer.len() + length as usize, 0);
    control.read_exact(&mut answer[Hello::LEN + 4..]).unwrap();
    let message = Message::decode(&answer[Hello::LEN..]).unwrap().unwrap().0;
    assert!(matches!(message, Message::Accept(_)), "{message:?}");
    let (over, ended) = std::sync::mpsc::channel();
    let mut talking = control.try_clone().unwrap();
    std::thread::spawn(move || {
        let alive = Message::Alive.encode().repeat(10_000);
        while talking.write_all(&alive).is_ok() {}
        over.send(()).unwrap();
    });
    std::thread::spawn(move || while matches!(control.read(&mut [0; 4096]), Ok(1..)) {});
    let mut more = data();
    more.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(more.read(&mut [0; 1]).unwrap(), 0, "it was kept");
    far.stop();
    ended.recv_timeout(Duration::from_secs(20)).expect("the server listens still");
}

#[test]
fn a_busy_server_says_so() {
    let far = Far::with("127.0.0.1", Limits { transfers: 1, ..Limits::default() });
    let mut long = plan(far.address());
    long.goal = seconds(600);
    let short = plan(far.address());
    let stop = Wake::new().unwrap();
    let mut refused = None;
    let finished = memory::run(&long, &stop, &mut |_| {
        refused.get_or_insert_with(|| run(&short));
        stop.raise();
    });
    assert_eq!(finished.record.outcome, Outcome::Interrupted);
    let refused = refused.unwrap();
    assert!(refused.error.unwrap().ends_with("refused: the server is busy with 1 transfer: try again later"));
    // The place is free a moment after the client has its account.
    let until = Instant::now() + Duration::from_secs(30);
    while run(&short).outcome != Outcome::Ok {
        assert!(Instant::now() < until, "it stays busy");
    }
}

#[test]
fn strangers_beyond_their_number_do_not_keep_others_out() {
    let far = Far::with("127.0.0.1", Limits { strangers: 4, ..Limits::default() });
    let _crowd: Vec<_> = (0..40).map(|_| TcpStream::connect(far.address()).unwrap()).collect();
    assert_eq!(run(&plan(far.address())).outcome, Outcome::Ok);
}
