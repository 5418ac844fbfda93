use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use farlink_mover::facts;

use super::*;

/// A door without keys, what it is opened for, and what is heard of it.
fn door() -> (Door, SocketAddr, Receiver<(u32, Heard)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let (heard, hearing) = sync_channel(1 << 20);
    let door = Door {
        listeners: vec![listener],
        config: None,
        grants: None,
        session: SessionId(1),
        outbox: Arc::new(Outbox::new(Wake::new().unwrap())),
        heard,
        wake: Wake::new().unwrap(),
    };
    (door, at, hearing)
}

fn frame(control: &Control<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    control.encode(&mut bytes);
    bytes
}

fn join(receiver: u64) -> Vec<u8> {
    let join = Join { host: facts::host(), receiver, place: None, again: None, ended: None };
    frame(&Control::Words(Words::Join(Box::new(join))))
}

#[test]
fn one_that_says_much_does_not_keep_others_from_being_heard() {
    let (door, at, hearing) = door();
    let mut talkative = TcpStream::connect(at).unwrap();
    talkative.write_all(&join(1)).unwrap();
    // As much as the kernel takes while nobody reads it.
    talkative.set_nonblocking(true).unwrap();
    let reports = frame(&Control::Report(Report::default())).repeat(1000);
    let mut said = 0;
    while said < 1 << 20
        && let Ok(count) = talkative.write(&reports)
    {
        said += count;
        if count < reports.len() {
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
            match hearing.recv().unwrap() {
                (_, Heard::Join(join, _)) if join.receiver == 2 => break,
                (_, Heard::Report(_)) => before += 1,
                _ => {}
            }
        }
        let all = said / frame(&Control::Report(Report::default())).len();
        assert!(before < all / 2, "{before} of {all} reports were heard first");
        // And all of them are heard in the end.
        while before < all {
            before += usize::from(matches!(hearing.recv().unwrap(), (_, Heard::Report(_))));
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
        assert!(matches!(hearing.recv().unwrap(), (0, Heard::Join(..))));
        assert!(matches!(hearing.recv().unwrap(), (0, Heard::Left(None))));
        drop(guest.read(&mut [0]));
        stop.raise();
    });
}
