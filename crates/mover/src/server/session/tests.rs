use std::os::unix::net::UnixStream;
use std::thread;

use farlink_wire::message::Way;
use farlink_wire::message::copy::Place;

use super::*;

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

#[test]
fn who_begins_a_copy_again_has_the_place_and_the_memory_of_the_session_before() {
    let house = House {
        limits: Limits { transfers: 1, trusting: true, ..Limits::default() },
        budget: Budget::of(budget::of_copy(&request(1))),
        lobby: Lobby::new(8),
        stop: Wake::new().unwrap(),
        transfers: AtomicUsize::new(0),
        copies: Copies::default(),
        circuits: Vec::new(),
    };
    let guest = Guest { from: ([198, 18, 0, 1], 1).into(), known: None };
    let (house, guest) = (&house, &guest);
    thread::scope(|scope| {
        let begin = |token| {
            let (near, far) = UnixStream::pair().unwrap();
            let control = |end| Control::new(Channel::over_unix(end).unwrap(), Vec::new());
            let far = control(far);
            scope.spawn(move || house.host(far, guest, &|_| {}));
            let mut near = control(near);
            near.greet().unwrap();
            near.send(&Message::Copy(Copy::Request(Box::new(request(token))))).unwrap();
            near
        };
        let hear = |near: &mut Control| loop {
            match near.next(Nanos::MAX, &house.stop).unwrap().unwrap() {
                Message::Alive => {}
                other => return other,
            }
        };
        // A client that is gone, which nobody has noticed.
        let mut first = begin(1);
        assert!(matches!(hear(&mut first), Message::Copy(Copy::Accept(_))));
        let mut second = begin(2);
        let heard = hear(&mut second);
        assert!(matches!(heard, Message::Copy(Copy::Accept(_))), "{heard:?}");
        let heard = hear(&mut first);
        assert!(matches!(&heard, Message::Refuse(refusal) if refusal.cause == Cause::Overtaken), "{heard:?}");
    });
}
