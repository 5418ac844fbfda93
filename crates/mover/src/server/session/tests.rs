use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;

use farlink_wire::message::Way;
use farlink_wire::message::copy::Place;

use super::*;
use crate::facts;

fn request(token: u8) -> copy::Request {
    copy::Request {
        token: Token([token; 16]),
        way: Way::Forward,
        sources: Vec::new(),
        destination: Some(Place::new(b"/dev/null".to_vec()).unwrap()),
        several: false,
        key: Token([7; 16]),
        command: None,
        resume: false,
        update: false,
        dry_run: false,
        rules: Vec::new(),
        names: None,
        length: None,
        protect: Protect::Clear,
        secret: None,
        verify: true,
        fsync: false,
        read_back: false,
        limit: None,
        streams: 1.try_into().unwrap(),
        congestion: None,
        declared: None,
        buffer: None,
        saved: None,
        interval: Nanos(100_000_000).try_into().unwrap(),
        patience: Nanos(30_000_000_000).try_into().unwrap(),
        host: facts::host(),
    }
}

fn house(bytes: Bytes) -> House {
    House {
        limits: Limits { transfers: 1, trusting: true, ..Limits::default() },
        budget: Budget::of(bytes),
        lobby: Lobby::new(8),
        stop: Wake::new().unwrap(),
        transfers: AtomicUsize::new(0),
        copies: Copies::default(),
        circuits: Vec::new(),
    }
}

const GUEST: Guest =
    Guest { from: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)), 1), known: None };

/// A client of `house` that has asked for a copy, while `scope` lasts.
fn begin<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    house: &'scope House,
    request: copy::Request,
    observe: &'scope (dyn Fn(Event) + Sync),
) -> Control {
    let (near, far) = UnixStream::pair().unwrap();
    let control = |end| Control::new(Channel::over_unix(end).unwrap(), Vec::new());
    let far = control(far);
    scope.spawn(move || house.host(far, &GUEST, observe));
    let mut near = control(near);
    near.greet().unwrap();
    near.send(&Message::Copy(Copy::Request(Box::new(request)))).unwrap();
    near
}

/// What it is told next.
fn hear(near: &mut Control) -> Message {
    loop {
        match near.next(Nanos::MAX, &Wake::new().unwrap()).unwrap().unwrap() {
            Message::Alive => {}
            other => return other,
        }
    }
}

#[test]
fn who_begins_a_copy_again_has_the_place_and_the_memory_of_the_session_before() {
    let house = &house(budget::of_copy(&request(1)));
    thread::scope(|scope| {
        // A client that is gone, which nobody has noticed.
        let mut first = begin(scope, house, request(1), &|_| {});
        assert!(matches!(hear(&mut first), Message::Copy(Copy::Accept(_))));
        let mut second = begin(scope, house, request(2), &|_| {});
        let heard = hear(&mut second);
        assert!(matches!(heard, Message::Copy(Copy::Accept(_))), "{heard:?}");
        let heard = hear(&mut first);
        assert!(matches!(&heard, Message::Refuse(refusal) if refusal.cause == Cause::Overtaken), "{heard:?}");
    });
}

#[test]
fn who_cannot_be_served_is_told_whether_to_ask_again() {
    let house = &house(budget::of_copy(&request(1)));
    let (say, said) = mpsc::channel();
    let observe = move |event| {
        if let Event::Failed { reason, .. } = event {
            say.send(reason).unwrap();
        }
    };
    let other = copy::Request { key: Token([9; 16]), ..request(2) };
    thread::scope(|scope| {
        let mut first = begin(scope, house, request(1), &observe);
        assert!(matches!(hear(&mut first), Message::Copy(Copy::Accept(_))));
        // Another copy, where there may be one at a time.
        let heard = hear(&mut begin(scope, house, other.clone(), &observe));
        assert!(matches!(&heard, Message::Refuse(refusal) if refusal.cause == Cause::Passing), "{heard:?}");
        assert!(said.recv().unwrap().starts_with("refused: the server is busy with 1 transfer"));
        // Who leaves by itself is refused nothing.
        first.send(&Message::Failed(Refusal::lasting("interrupted"))).unwrap();
        assert_eq!(said.recv().unwrap(), "the far end: interrupted");
        let mut third = begin(scope, house, other, &observe);
        assert!(matches!(hear(&mut third), Message::Copy(Copy::Accept(_))));
        house.stop.raise();
        let heard = hear(&mut third);
        assert!(matches!(&heard, Message::Failed(refusal) if refusal.cause == Cause::Stopped), "{heard:?}");
        assert_eq!(said.recv().unwrap(), "the server was stopped");
    });
}
