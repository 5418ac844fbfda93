use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use farlink_mover::facts;
use farlink_wire::message::VERSION;

use super::hearsay::Hearing;
use super::*;
use crate::error::CastError;

/// A door without keys, what it is opened for, and what is heard of it.
fn door() -> (Door, SocketAddr, Hearing) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let (heard, hearing) = hearsay::with_room(1 << 20);
    let door = Door {
        listeners: vec![listener],
        config: None,
        grants: None,
        session: SessionId(1),
        group: "239.1.1.1:7000".parse().unwrap(),
        outbox: Arc::new(Outbox::new(Wake::new().unwrap())),
        heard,
        wake: Wake::new().unwrap(),
        room: Room { files: 0, receivers: 100, strangers: 256 },
    };
    (door, at, hearing)
}

fn frame(control: &Control<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    control.encode(&mut bytes);
    bytes
}

fn request(receiver: u64) -> Join {
    Join::new(facts::host(), receiver)
}

fn join(receiver: u64) -> Vec<u8> {
    frame(&Control::Words(Words::Join(Box::new(request(receiver)))))
}

#[test]
fn one_that_says_much_does_not_keep_others_from_being_heard() {
    let (door, at, hearing) = door();
    let mut talkative = TcpStream::connect(at).unwrap();
    talkative.write_all(&join(1)).unwrap();
    // As much as the kernel takes while nobody reads it.
    talkative.set_nonblocking(true).unwrap();
    let word = frame(&Control::Have(vec![(0, 1)]));
    let words = word.repeat(1000);
    let mut said = 0;
    while said < 1 << 20
        && let Ok(count) = talkative.write(&words)
    {
        said += count;
        if count < words.len() {
            break;
        }
    }
    let mut quiet = TcpStream::connect(at).unwrap();
    quiet.write_all(&join(2)).unwrap();
    let stop = Wake::new().unwrap();
    thread::scope(|scope| {
        let (working, stop) = (&door, &stop);
        scope.spawn(move || working.work(stop).unwrap());
        let mut before = 0;
        loop {
            match hearing.wait() {
                (_, Heard::Join(join, _)) if join.receiver == 2 => break,
                (_, Heard::Have(_)) => before += 1,
                _ => {}
            }
        }
        let all = said / word.len();
        assert!(before < all / 2, "{before} of {all} words were heard first");
        // And all of them are heard in the end.
        while before < all {
            before += usize::from(matches!(hearing.wait(), (_, Heard::Have(_))));
        }
        stop.raise();
    });
}

#[test]
fn one_that_asks_and_does_not_take_the_answers_is_shown_out() {
    let (door, at, hearing) = door();
    let stop = Wake::new().unwrap();
    thread::scope(|scope| {
        let (working, raised) = (&door, &stop);
        scope.spawn(move || working.work(raised).unwrap());
        let mut guest = TcpStream::connect(at).unwrap();
        guest.write_all(&join(1)).unwrap();
        let asks = frame(&Control::Echo { answer: false, stamp: 7 }).repeat(10_000);
        // Until the kernel's buffers are full of answers, and the door has seen enough.
        let asked = (0..1000).find_map(|_| guest.write_all(&asks).err());
        assert!(asked.is_some(), "100 MB of answers wait");
        assert!(matches!(hearing.wait(), (0, Heard::Join(..))));
        assert!(matches!(hearing.wait(), (0, Heard::Left(None))));
        drop(guest.read(&mut [0]));
        stop.raise();
    });
}

#[test]
fn who_finds_no_room_is_told_so_and_is_let_in_when_another_has_left() {
    let (mut door, at, hearing) = door();
    door.room.receivers = 2;
    let stop = Wake::new().unwrap();
    thread::scope(|scope| {
        let (working, raised) = (&door, &stop);
        scope.spawn(move || working.work(raised).unwrap());
        let comes = |receiver| {
            let mut guest = TcpStream::connect(at).unwrap();
            guest.write_all(&join(receiver)).unwrap();
            (guest, hearing.wait().1)
        };
        let (first, second) = (comes(1), comes(2));
        let mut full = [3, 4].map(comes);
        let (again, freed) = match first {
            (guest, Heard::Join(..)) => {
                drop(guest);
                let freed = hearing.wait().1;
                (comes(3), freed)
            }
            other => (other, Heard::Full(0)),
        };
        // Before anything is looked at: who fails ends the door's thread, too.
        stop.raise();
        assert!(matches!((second.1, freed, again.1), (Heard::Join(..), Heard::Left(None), Heard::Join(..))));
        for (guest, heard) in &mut full {
            assert!(matches!(heard, Heard::Full(2)));
            let mut said = Vec::new();
            guest.read_to_end(&mut said).unwrap();
            match Control::decode(&said).unwrap() {
                Some((Control::Words(Words::Refuse(refusal)), _)) => {
                    let refused = CastError::Refused { at, refusal };
                    assert!(refused.is_passing() && refused.to_string().contains("2 receivers"), "{refused}");
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn who_is_of_another_release_is_refused_and_both_ends_say_so() {
    let (door, at, hearing) = door();
    let stop = Wake::new().unwrap();
    // A release that said no version is one, too.
    let words = serde_json::to_string(&Words::Join(Box::new(request(1)))).unwrap();
    let unsaid = words.replace(&format!("\"version\":{VERSION},"), "");
    assert_ne!(unsaid, words);
    let unsaid = serde_json::from_str(&unsaid).unwrap();
    let other = Words::Join(Box::new(Join { version: VERSION + 1, ..request(1) }));
    thread::scope(|scope| {
        let (working, raised) = (&door, &stop);
        scope.spawn(move || working.work(raised).unwrap());
        let refused = [unsaid, other].map(|words| {
            let mut guest = TcpStream::connect(at).unwrap();
            guest.write_all(&frame(&Control::Words(words))).unwrap();
            let mut said = Vec::new();
            guest.read_to_end(&mut said).map(|_| (said, hearing.wait().1))
        });
        // Before anything is looked at: who fails ends the door's thread, too.
        stop.raise();
        for ((said, heard), theirs) in refused.map(Result::unwrap).into_iter().zip([0, VERSION + 1]) {
            let expected =
                format!("speaks version {theirs}, this is version {VERSION}: install the same release");
            match (Control::decode(&said).unwrap(), heard) {
                (Some((Control::Words(Words::Refuse(refusal)), _)), Heard::Refused(_, reason)) => {
                    assert_eq!(refusal.cause, Cause::Lasting);
                    assert!(
                        refusal.to_string().contains(&expected) && reason.contains(&expected),
                        "{reason}"
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn who_had_all_is_refused_each_time_without_a_word_to_the_user() {
    let (door, at, hearing) = door();
    let stop = Wake::new().unwrap();
    thread::scope(|scope| {
        let (working, raised) = (&door, &stop);
        scope.spawn(move || working.work(raised).unwrap());
        let again = Join { ended: Some(SessionId(1)), ..request(1) };
        let again = frame(&Control::Words(Words::Join(Box::new(again))));
        let answers = [1, 2].map(|_| {
            let mut guest = TcpStream::connect(at).unwrap();
            guest.write_all(&again).unwrap();
            let mut said = Vec::new();
            guest.read_to_end(&mut said).map(|_| said)
        });
        let mut other = TcpStream::connect(at).unwrap();
        other.write_all(&join(2)).unwrap();
        let heard = hearing.wait().1;
        // Before anything is looked at: who fails ends the door's thread, too.
        stop.raise();
        assert!(matches!(&heard, Heard::Join(join, _) if join.receiver == 2), "{heard:?}");
        for said in answers {
            match Control::decode(&said.unwrap()).unwrap() {
                Some((Control::Words(Words::Refuse(refusal)), _)) => {
                    assert_eq!(refusal.cause, Cause::Complete);
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn one_that_has_gone_before_it_was_let_in_has_not_joined() {
    let (door, at, hearing) = door();
    let mut gone = TcpStream::connect(at).unwrap();
    gone.write_all(&join(1)).unwrap();
    drop(gone);
    let stop = Wake::new().unwrap();
    thread::scope(|scope| {
        let (working, raised) = (&door, &stop);
        scope.spawn(move || working.work(raised).unwrap());
        let heard = hearing.wait().1;
        stop.raise();
        assert!(matches!(heard, Heard::Refused(..)));
    });
}

#[test]
fn one_that_was_given_up_is_shown_out_though_it_says_nothing() {
    let (door, at, hearing) = door();
    let stop = Wake::new().unwrap();
    thread::scope(|scope| {
        let (working, raised) = (&door, &stop);
        scope.spawn(move || working.work(raised).unwrap());
        let mut guest = TcpStream::connect(at).unwrap();
        let mut other = TcpStream::connect(at).unwrap();
        guest.write_all(&join(1)).unwrap();
        let joined = hearing.wait();
        other.write_all(&join(2)).unwrap();
        let also_joined = hearing.wait();
        door.outbox.close(joined.0);
        guest.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let said = guest.read(&mut [0; 1]);
        let left = hearing.wait();
        other.set_nonblocking(true).unwrap();
        let others = other.read(&mut [0; 1]).map_err(|error| error.kind());
        // Before anything is looked at: who fails ends the door's thread, too.
        stop.raise();
        assert!(matches!((joined.1, also_joined.1), (Heard::Join(..), Heard::Join(..))));
        assert_eq!((said.unwrap(), others), (0, Err(ErrorKind::WouldBlock)));
        assert!(matches!(left, (number, Heard::Left(None)) if number == joined.0));
    });
}

#[test]
fn the_kernel_asks_whether_a_host_is_there_that_says_nothing() {
    let (door, at, hearing) = door();
    let stop = Wake::new().unwrap();
    thread::scope(|scope| {
        let (working, raised) = (&door, &stop);
        scope.spawn(move || working.work(raised).unwrap());
        let mut guest = TcpStream::connect(at).unwrap();
        guest.write_all(&join(1)).unwrap();
        let joined = hearing.wait();
        let (near, far) = (at.port(), guest.local_addr().unwrap().port());
        let (near, far) = (format!(":{near:04X}"), format!(":{far:04X}"));
        // The fields of /proc/net/tcp (proc(5)): local and remote address, state, queues, and which timer runs: 2 asks.
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let of_door = sockets.lines().map(fields).find(|of| of[1].ends_with(&near) && of[2].ends_with(&far));
        stop.raise();
        assert!(matches!(joined.1, Heard::Join(..)));
        assert!(of_door.as_ref().is_some_and(|fields| fields[5].starts_with("02:")), "{of_door:?}");
    });
}

/// A guest that says these and is gone at once, with a reset: it did not read what was said to it.
fn vanish(mut guest: TcpStream, said: &[u8]) {
    guest.write_all(said).unwrap();
    socket2::SockRef::from(&guest).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn what_was_said_before_a_connection_broke_is_heard() {
    let (door, at, hearing) = door();
    let leave = Leave { products: 3, ..Leave::default() };
    let said = frame(&Control::Words(Words::Leave(leave)));
    // Before anybody looked.
    vanish(TcpStream::connect(at).unwrap(), &[join(1), said.clone()].concat());
    let (poller, mut guests, mut next) = (Poller::new().unwrap(), BTreeMap::new(), 0);
    let listener = &door.listeners[0];
    assert!(door.welcome(listener, &mut guests, &mut next, &poller));
    while !guests.is_empty() {
        door.attend(0, &mut guests, &poller);
    }
    assert!(matches!(hearing.wait(), (0, Heard::Join(..))));
    assert!(matches!(hearing.wait(), (0, Heard::Left(Some(left))) if left == leave));
    // Where something is to be said to it first.
    let mut guest = TcpStream::connect(at).unwrap();
    guest.write_all(&join(2)).unwrap();
    assert!(door.welcome(listener, &mut guests, &mut next, &poller));
    door.attend(1, &mut guests, &poller);
    assert!(matches!(hearing.wait(), (1, Heard::Join(..))));
    vanish(guest, &said);
    while !guests.is_empty() {
        door.outbox.say(1, &Control::Words(Words::End { products: 3 }));
        door.deliver(&mut guests, &poller);
    }
    assert!(matches!(hearing.wait(), (1, Heard::Left(Some(left))) if left == leave));
}
