use std::net::{TcpListener, TcpStream};
use std::thread;

use farlink_host::clock::monotonic;
use farlink_host::socket::memory_file;
use farlink_wire::key::Grant;

use super::*;
use crate::secure::{self, Admission, Identity, Trust};

const PATIENCE: Nanos = Nanos(20_000_000_000);

fn waiting(mut channel: Channel) -> Channel {
    channel.set_wait(Some(Wait { patience: PATIENCE, stop: Wake::new().unwrap(), while_full: false }));
    channel
}

pub(crate) fn tcp() -> (Channel, Channel) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    (waiting(Channel::over_tcp(near).unwrap()), waiting(Channel::over_tcp(far).unwrap()))
}

fn unix() -> (Channel, Channel) {
    let (near, far) = UnixStream::pair().unwrap();
    (waiting(Channel::over_unix(near).unwrap()), waiting(Channel::over_unix(far).unwrap()))
}

/// Both ends under TLS: a client that trusts `trusted`, and a server that lets in whom it lists.
pub(crate) struct Ends {
    client: Identity,
    server: Identity,
    admission: Arc<Admission>,
}

impl Ends {
    pub(crate) fn new() -> Self {
        let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let admission = Arc::new(Admission::of_one(client.public(), Grant::default()));
        Self { client, server, admission }
    }

    pub(crate) fn seal(&self, (mut near, mut far): (Channel, Channel)) -> (Channel, Channel) {
        let trust = Trust::new(&self.client, Some(self.server.public())).unwrap();
        near.seal_as_client(trust.config(), &[]).unwrap();
        let config = secure::server(&self.server, Arc::clone(&self.admission)).unwrap();
        far.seal_as_server(config, &[]).unwrap();
        (near, far)
    }
}

/// Bytes that tell where they belong.
fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// What goes wrong when each end says a byte and hears one.
fn failures(near: Channel, far: Channel) -> (io::Error, io::Error) {
    let try_it = |mut channel: Channel| {
        let mut byte = [0];
        let outcome = channel.write_all(b"x").and_then(|()| channel.read_exact(&mut byte));
        let _ = channel.finish();
        outcome
    };
    let far = thread::spawn(move || try_it(far).unwrap_err());
    (try_it(near).unwrap_err(), far.join().unwrap())
}

/// What arrives of `head` and of `body`, which `file` is said to have at `offset`.
fn with_pages(head: &[u8], body: &[u8], file: &File, offset: u64) -> Vec<u8> {
    let (mut near, mut far) = tcp();
    assert!(near.takes_pages());
    let reader = thread::spawn(move || {
        let mut arrived = Vec::new();
        far.read_to_end(&mut arrived).map(|_| arrived)
    });
    near.write_with_pages(head, body, file, offset).unwrap();
    near.finish().unwrap();
    reader.join().unwrap().unwrap()
}

#[test]
fn pages_of_a_file_leave_behind_what_is_said_of_them() {
    let body = payload(3 << 20);
    let file = memory_file("pages", &body).unwrap();
    assert_eq!(with_pages(b"head", &body[4097..], &file, 4097), [b"head", &body[4097..]].concat());
    assert_eq!(with_pages(b"", &body[..1], &file, 0), body[..1]);
}

#[test]
fn what_a_file_does_not_give_leaves_as_it_was_read() {
    let body = payload(3 << 20);
    let short = memory_file("short", &body[..1 << 20]).unwrap();
    assert_eq!(with_pages(b"head", &body, &short, 0), [b"head", &body[..]].concat());
    let unreadable = File::options().write(true).open("/dev/null").unwrap();
    assert_eq!(with_pages(b"head", &body, &unreadable, 0), [b"head", &body[..]].concat());
}

#[test]
fn pages_go_nowhere_once_the_far_end_has_left() {
    let (mut near, far) = tcp();
    let body = payload(1 << 20);
    let file = memory_file("pages", &body).unwrap();
    drop(far);
    let failed = (0..1000).find_map(|_| near.write_with_pages(b"head", &body, &file, 0).err()).unwrap();
    assert!(is_closed(&failed), "{failed}");
}

#[test]
fn only_what_is_in_clear_over_tcp_takes_pages() {
    let ends = Ends::new();
    assert!(!unix().0.takes_pages());
    assert!(!ends.seal(tcp()).0.takes_pages());
}

#[test]
fn what_is_written_is_read_over_every_kind() {
    let ends = Ends::new();
    let sent = payload(3 << 20);
    for (near, far) in [tcp(), unix(), ends.seal(tcp()), ends.seal(unix())] {
        let (mut near, mut far) = (near, far);
        let sealed = near.is_sealed();
        let copy = sent.clone();
        let writer = thread::spawn(move || {
            for part in [&copy[..0], &copy[..40], &copy[40..1 << 20], &copy[1 << 20..]] {
                near.write_all(part).unwrap();
            }
            near.finish().unwrap();
            assert_eq!(near.read(&mut [0; 9]).unwrap(), 0);
            near.peer_key()
        });
        let mut got = Vec::<u8>::new();
        // In pieces that are no multiple of a record.
        let mut chunk = vec![0; 100_003];
        loop {
            match far.read(&mut chunk).unwrap() {
                0 => break,
                read => got.extend(&chunk[..read]),
            }
        }
        assert!(got == sent, "other bytes arrived");
        far.finish().unwrap();
        let shown = writer.join().unwrap();
        assert_eq!(shown, sealed.then(|| ends.server.public()));
        assert_eq!(far.peer_key(), sealed.then(|| ends.client.public()));
    }
}

#[test]
fn what_never_waits_goes_on_where_it_was() {
    let (mut near, mut far) = Ends::new().seal(unix());
    near.set_wait(None);
    far.set_wait(None);
    let sent = payload(2 << 20);
    let (mut taken, mut got) = (0, Vec::<u8>::new());
    let mut chunk = vec![0; 50_000];
    let until = monotonic().after(PATIENCE);
    while got.len() < sent.len() {
        assert!(monotonic() < until, "nothing moves");
        if taken < sent.len() {
            match near.write(&sent[taken..]) {
                Ok(count) => taken += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        } else if near.has_unsent() {
            let _ = near.flush();
        }
        match far.read(&mut chunk) {
            Ok(count) => got.extend(&chunk[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert!(got == sent, "other bytes arrived");
}

#[test]
fn a_client_trusts_one_key_alone() {
    let mut ends = Ends::new();
    let (mut near, mut far) = tcp();
    let config = secure::server(&ends.server, Arc::clone(&ends.admission)).unwrap();
    far.seal_as_server(config, &[]).unwrap();
    let shown = ends.server.public();
    ends.server = Identity::generate().unwrap();
    let trust = Trust::new(&ends.client, Some(ends.server.public())).unwrap();
    near.seal_as_client(trust.config(), &[]).unwrap();
    let (client, server) = failures(near, far);
    assert_eq!(ChannelError::within(&client), Some(&ChannelError::Untrusted), "{client}");
    assert_eq!(trust.refused(), Some(shown));
    assert!(matches!(ChannelError::within(&server), Some(ChannelError::NotAdmitted)), "{server}");
}

#[test]
fn a_server_lets_in_whom_it_lists_alone() {
    let mut ends = Ends::new();
    ends.admission = Arc::new(Admission::of_one(ends.server.public(), Grant::default()));
    let (client, server) = failures_of(&ends);
    assert_eq!(ChannelError::within(&client), Some(&ChannelError::NotAdmitted), "{client}");
    let key = ends.client.public();
    assert_eq!(ChannelError::within(&server), Some(&ChannelError::Unlisted { key }), "{server}");
}

fn failures_of(ends: &Ends) -> (io::Error, io::Error) {
    let (near, far) = ends.seal(unix());
    failures(near, far)
}

#[test]
fn whoever_speaks_no_tls_is_told() {
    let ends = Ends::new();
    let config = || secure::server(&ends.server, Arc::clone(&ends.admission)).unwrap();
    for said in [&b"farlink\n\x00\x01"[..], b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/1.1\r\n\r\n"] {
        let (mut near, mut far) = tcp();
        far.seal_as_server(config(), &[]).unwrap();
        near.write_all(said).unwrap();
        let error = far.read(&mut [0]).unwrap_err();
        assert!(
            matches!(ChannelError::within(&error), Some(ChannelError::Tls(_) | ChannelError::NotTls)),
            "{error}"
        );
        // And again: it does not come back to life.
        assert!(far.write(b"x").is_err());
    }
}

#[test]
fn a_handshake_without_end_is_cut_short() {
    let ends = Ends::new();
    let (mut near, mut far) = unix();
    far.seal_as_server(secure::server(&ends.server, Arc::clone(&ends.admission)).unwrap(), &[]).unwrap();
    let far = thread::spawn(move || far.read(&mut [0]).unwrap_err());
    // A hello that claims 16 MB, in records of handshake that never complete it.
    let mut record = vec![0x16, 3, 1, 0x20, 0x00, 1, 0xff, 0xff, 0xff];
    record.resize(5 + 0x2000, 0);
    let mut sent = 0;
    while near.write_all(&record).is_ok() {
        sent += record.len();
        record[5..9].fill(0);
        assert!(sent < 4 << 20, "it goes on and on");
    }
    let error = far.join().unwrap();
    let told = ChannelError::within(&error);
    assert!(matches!(told, Some(ChannelError::Endless | ChannelError::Tls(_))), "{error}");
}

#[test]
fn ends_that_both_send_before_they_read_do_not_wait_for_each_other() {
    let (mut near, mut far) = Ends::new().seal(unix());
    near.set_wait(None);
    far.set_wait(None);
    let until = monotonic().after(PATIENCE);
    while !(near.shake_hands().unwrap() & far.shake_hands().unwrap()) {
        assert!(monotonic() < until);
    }
    let bytes = payload(4 << 20);
    // As much as fits, both ways.
    for channel in [&mut near, &mut far] {
        while channel.write(&bytes).is_ok() && !channel.has_unsent() {}
        assert!(channel.has_unsent());
    }
    assert!(near.read(&mut [0; 100]).unwrap() > 0 && far.read(&mut [0; 100]).unwrap() > 0);
}

#[test]
fn a_connection_that_is_cut_is_no_end() {
    let (mut near, mut far) = Ends::new().seal(tcp());
    let far = thread::spawn(move || {
        far.read_exact(&mut [0; 4]).unwrap();
        far.read(&mut [0]).unwrap_err()
    });
    near.write_all(b"data").unwrap();
    drop(near);
    let error = far.join().unwrap();
    let cut = ChannelError::within(&error) == Some(&ChannelError::Cut);
    assert!(cut || error.kind() == ErrorKind::ConnectionReset, "{error}");
}

#[test]
fn a_flipped_bit_is_found() {
    let (mut near, middle) = tcp();
    let (other, mut far) = tcp();
    let ends = Ends::new();
    let trust = Trust::new(&ends.client, Some(ends.server.public())).unwrap();
    near.seal_as_client(trust.config(), &[]).unwrap();
    far.seal_as_server(secure::server(&ends.server, Arc::clone(&ends.admission)).unwrap(), &[]).unwrap();
    let (middle, other) = (middle.into_clear_tcp().unwrap(), other.into_clear_tcp().unwrap());
    for stream in [&middle, &other] {
        stream.set_nonblocking(false).unwrap();
    }
    let (mut back_from, mut back_to) = (other.try_clone().unwrap(), middle.try_clone().unwrap());
    let back = thread::spawn(move || io::copy(&mut back_from, &mut back_to));
    let forth = thread::spawn(move || {
        let (mut from, mut to) = (&middle, &other);
        let (mut bytes, mut passed) = (vec![0; 64 << 10], 0);
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            // Far behind the handshake, which has some 2,000 bytes this way.
            if (passed..passed + read).contains(&300_000) {
                bytes[300_000 - passed] ^= 1;
            }
            passed += read;
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = other.shutdown(Shutdown::Both);
        let _ = middle.shutdown(Shutdown::Both);
    });
    let reader = thread::spawn(move || {
        let mut got = Vec::new();
        let error = far.read_to_end(&mut got).unwrap_err();
        let _ = far.shutdown();
        (got, error)
    });
    let sent = payload(1 << 20);
    let _ = near.write_all(&sent);
    let (got, error) = reader.join().unwrap();
    assert!(matches!(ChannelError::within(&error), Some(ChannelError::Tls(_))), "{error}");
    assert!(got.len() < 300_000 && sent.starts_with(&got));
    drop(near);
    forth.join().unwrap();
    let _ = back.join();
}

#[test]
fn nobody_waits_longer_than_asked() {
    let (mut near, _far) = tcp();
    near.set_wait(Some(Wait { patience: Nanos(20_000_000), stop: Wake::new().unwrap(), while_full: false }));
    let error = near.read(&mut [0]).unwrap_err();
    assert_eq!(error.to_string(), "nothing came or went for 20ms");
    let stop = Wake::new().unwrap();
    near.set_wait(Some(Wait { patience: PATIENCE, stop: stop.clone(), while_full: false }));
    stop.raise();
    assert_eq!(ChannelError::within(&near.read(&mut [0]).unwrap_err()), Some(&ChannelError::Stopped));
}

#[test]
fn a_far_end_that_lives_and_has_no_room_is_waited_for() {
    // The kernel takes up to 40 ms to acknowledge.
    let (bytes, patience) = (payload(64 << 20), Nanos(400_000_000));
    for while_full in [false, true] {
        let (mut near, far) = tcp();
        near.set_wait(Some(Wait { patience, stop: Wake::new().unwrap(), while_full }));
        let socket = near.tcp().unwrap().try_clone().unwrap();
        let (sent, far) = thread::scope(|scope| {
            let writer = scope.spawn(|| near.write_all(&bytes));
            // Longer than it would wait.
            let waits =
                || !while_full || TcpInfo::of(&socket).unwrap().receiver_limited < Nanos(2 * patience.0);
            while !writer.is_finished() && waits() {
                thread::yield_now();
            }
            let reader = scope.spawn(|| {
                let (mut far, mut got) = (far, vec![0; bytes.len()]);
                far.read_exact(&mut got).map(|()| got)
            });
            let sent = writer.join().unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
            (sent, reader.join().unwrap())
        });
        if while_full {
            sent.unwrap();
            assert!(far.unwrap() == bytes);
        } else {
            assert_eq!(sent.unwrap_err().to_string(), "nothing came or went for 400ms");
        }
    }
}

#[test]
fn nothing_is_held_back_for_more_to_come() {
    let (near, far) = tcp();
    assert!(near.tcp().unwrap().nodelay().unwrap() && far.tcp().unwrap().nodelay().unwrap());
}
