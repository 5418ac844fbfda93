//! Neighbours in one process, in threads and in a process of their own.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, process, thread};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::*;

const WHO: Introduction = Introduction { id: 7, proof: [3; 32] };

/// As whom another process says that it has nothing more to say.
const DONE: Introduction = Introduction { id: 8, proof: [3; 32] };

/// A name that no other test of any process has.
fn name() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("farlink/test/{}/{}", process::id(), LAST.fetch_add(1, Ordering::Relaxed))
}

/// Two neighbours, of which the first speaks to the second.
fn pair(capacity: usize) -> (Neighbours, Writer, Neighbours) {
    let (to, mut left) = (name(), Neighbours::listen(&name()).unwrap());
    let mut right = Neighbours::listen(&to).unwrap();
    let writer = left.connect(&to, &WHO, capacity).unwrap();
    right.attend(&mut |who| *who == WHO).unwrap();
    assert_eq!(right.readers().len(), 1);
    (left, writer, right)
}

/// Waits for something to happen, far longer than it takes.
fn wait(neighbours: &Neighbours) {
    let mut asked = [PollFd::new(neighbours.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut asked, PollTimeout::from(30_000_u16)), Ok(1), "nobody woke this process");
}

fn can_be_read(neighbours: &Neighbours) -> bool {
    let mut asked = [PollFd::new(neighbours.as_fd(), PollFlags::POLLIN)];
    poll(&mut asked, PollTimeout::ZERO) == Ok(1)
}

fn say(writer: &mut Writer, record: &[u8]) -> bool {
    let Some(room) = writer.room(record.len()) else { return false };
    room[..record.len()].copy_from_slice(record);
    writer.commit(record.len());
    true
}

/// The record of a number: of many lengths, filled with the number.
fn record(number: u64, longest: usize) -> Vec<u8> {
    let len = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % longest + 1;
    let mut bytes = vec![number as u8; len];
    let end = len.min(8);
    bytes[..end].copy_from_slice(&number.to_le_bytes()[..end]);
    bytes
}

#[test]
fn records_arrive_as_they_were_written() {
    for capacity in [ring::LEAST, 1 << 13, ring::USUAL] {
        let (_left, mut writer, mut right) = pair(capacity);
        let longest = writer.longest();
        let reader = &mut right.readers()[0];
        let (mut written, mut read) = (0, 0);
        while read < 5000 {
            while say(&mut writer, &record(written, longest)) {
                written += 1;
            }
            assert!(read < written, "there is no room in an empty ring");
            // Not all of what is there, so that the memory's end is met in every state.
            for _ in 0..(1 + read % 3).min(written - read) {
                assert_eq!(reader.read().unwrap(), record(read, longest));
                read += 1;
            }
            reader.release();
        }
        while reader.read().is_some() {
            read += 1;
        }
        assert_eq!(read, written);
        assert!(!writer.is_read());
        reader.release();
        assert!(writer.is_read() && writer.error().is_none());
    }
}

#[test]
fn a_full_ring_has_room_when_it_was_read_and_released() {
    let (_left, mut writer, mut right) = pair(ring::LEAST);
    let most = writer.longest();
    assert!(say(&mut writer, &vec![1; most]) && say(&mut writer, &vec![2; most]));
    assert!(writer.room(most).is_none() && writer.prepare_sleep(most));
    let reader = &mut right.readers()[0];
    assert_eq!(reader.read().unwrap()[0], 1);
    assert!(writer.room(most).is_none());
    reader.release();
    assert!(!writer.prepare_sleep(most));
    assert!(writer.room(1).is_some_and(|room| room.len() >= most));
    writer.commit(0);
    assert_eq!(reader.read().map(|record| record[0]), Some(2));
    assert!(reader.read().is_none());
}

#[test]
fn who_sleeps_is_woken_by_records_and_by_room() {
    let (mut left, mut writer, mut right) = pair(ring::LEAST);
    let last = 20_000;
    let speaker = thread::spawn(move || {
        for number in 0..last {
            let record = record(number, 1000);
            while !say(&mut writer, &record) {
                if writer.prepare_sleep(record.len()) {
                    wait(&left);
                }
                left.attend(&mut |_| false).unwrap();
            }
        }
    });
    let mut next = 0;
    while next < last {
        for reader in right.readers() {
            while let Some(got) = reader.read() {
                assert_eq!(got, record(next, 1000));
                next += 1;
                reader.release();
            }
        }
        if next < last && right.prepare_sleep() {
            wait(&right);
            right.woken();
        }
        right.attend(&mut |_| false).unwrap();
    }
    speaker.join().unwrap();
    // Its end may have been told with its last record.
    let ended = loop {
        right.attend(&mut |_| false).unwrap();
        if let Some(ended) = right.ended() {
            break ended;
        }
        wait(&right);
    };
    assert!(ended.id == WHO.id && ended.broken.is_none());
    assert!(right.ended().is_none() && right.readers().is_empty());
}

#[test]
fn only_those_that_prove_who_they_are_are_let_in() {
    let (to, mut left) = (name(), Neighbours::listen(&name()).unwrap());
    let mut right = Neighbours::listen(&to).unwrap();
    let wrong = Introduction { proof: [4; 32], ..WHO };
    let refused = left.connect(&to, &wrong, ring::LEAST).unwrap();
    let admitted = left.connect(&to, &WHO, ring::LEAST).unwrap();
    right.attend(&mut |who| *who == WHO).unwrap();
    left.attend(&mut |_| false).unwrap();
    assert!(refused.ended() && !admitted.ended());
    assert_eq!(right.readers().len(), 1);
}

#[test]
fn what_is_no_introduction_is_turned_away() {
    let to = name();
    let mut right = Neighbours::listen(&to).unwrap();
    let (sealed, _ring) = Ring::create(ring::LEAST).unwrap();
    let unsealed = OwnedFd::from(crate::socket::memory_file("test", &[0; 8192]).unwrap());
    let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let mut sockets = Vec::new();
    for memory in [&unsealed, &file, &sealed] {
        let socket = introduction::connect(&to).unwrap();
        introduction::send(&socket, &WHO, memory).unwrap();
        sockets.push(socket);
    }
    let mut words = introduction::connect(&to).map(Line::new).unwrap();
    words.wake();
    right.attend(&mut |_| true).unwrap();
    assert_eq!(right.readers().len(), 1, "the sealed one is right");
    assert!(!words.hear());
    words = introduction::connect(&to).map(Line::new).unwrap();
    right.attend(&mut |_| true).unwrap();
    // It says nothing yet, and is not turned away for that.
    assert!(words.hear() && right.knocking.len() == 1);
    drop(words);
    right.attend(&mut |_| true).unwrap();
    assert!(right.knocking.is_empty());
}

#[test]
fn nobody_listens_under_a_name_that_ended() {
    let (to, mut left) = (name(), Neighbours::listen(&name()).unwrap());
    let right = Neighbours::listen(&to).unwrap();
    assert_eq!(Neighbours::listen(&to).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    let writer = left.connect(&to, &WHO, ring::LEAST).unwrap();
    drop(right);
    let error = left.connect(&to, &WHO, ring::LEAST).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    wait(&left);
    left.attend(&mut |_| false).unwrap();
    assert!(writer.ended());
}

#[test]
fn positions_and_lengths_that_cannot_be_end_the_neighbour() {
    // Position of the writer, and the length that it writes at the start.
    let cases = [
        (1 << 40, 10, "position"),
        (ring::LEAST as u64 + 64, 10, "position"),
        (100, 10, "position"),
        (64, 57, "record"),
        (64, 0, "record"),
        (4096, ring::MARK, "record"),
        (4096, 4000, "record"),
        (64, u32::MAX - 1, "record"),
    ];
    for (position, len, what) in cases {
        let (memory, ring) = Ring::create(ring::LEAST).unwrap();
        let (to, mut right) = (name(), Neighbours::listen(&name()).unwrap());
        let _listener = Neighbours::listen(&to).unwrap();
        let line = Line::new(introduction::connect(&to).unwrap());
        right.readers.push(Reader::new(Ring::adopt(memory).unwrap(), line, 1, 9));
        ring.length(0).store(len, Ordering::Relaxed);
        ring.publish(position);
        assert!(!right.prepare_sleep());
        assert!(right.readers()[0].read().is_none());
        let broken = right.ended().unwrap().broken;
        match broken {
            Some(RingError::Position { theirs, .. }) => assert!(theirs == position && what == "position"),
            Some(RingError::Record { at: 0, len: told }) => assert!(told == len && what == "record"),
            other => panic!("{other:?} of {position}, {len}"),
        }
    }
}

#[test]
fn a_reader_that_goes_astray_ends_the_writer() {
    for position in [64, 128 + 1, 1 << 50] {
        let (_left, mut writer, mut right) = pair(ring::LEAST);
        assert!(say(&mut writer, b"one"));
        assert_eq!(right.readers()[0].read(), Some(&b"one"[..]));
        right.readers()[0].release();
        assert!(writer.is_read() && !writer.ended());
        // Back to the start, between records, or ahead.
        right.readers()[0].ring().release(if position == 64 { 0 } else { position });
        assert!(!writer.is_read() && writer.ended() && writer.error().is_some());
        assert!(writer.room(1).is_none());
    }
}

#[test]
fn who_is_dismissed_is_told() {
    let (mut left, mut writer, mut right) = pair(ring::LEAST);
    assert!(say(&mut writer, b"hello"));
    right.dismiss(WHO.id);
    assert!(right.readers().is_empty() && right.ended().is_none());
    left.attend(&mut |_| true).unwrap();
    assert!(writer.ended() && !say(&mut writer, b"is anybody there?"));
}

#[test]
fn what_a_forked_process_has_too_ends_all_the_same() {
    // A copy of a descriptor is what fork(2) leaves.
    let copy = |line: &Line| line.as_fd().try_clone_to_owned().unwrap();
    let (mut left, writer, mut right) = pair(ring::LEAST);
    let _copies = [copy(left.writers.values().next().unwrap()), copy(right.readers()[0].line())];
    drop(writer);
    left.attend(&mut |_| true).unwrap();
    right.attend(&mut |_| true).unwrap();
    assert!(right.ended().is_some() && left.writers.is_empty());
    // And nothing wakes either of them for it ever after.
    assert!(!can_be_read(&left) && !can_be_read(&right));

    let (mut left, writer, mut right) = pair(ring::LEAST);
    let _copy = copy(right.readers()[0].line());
    right.dismiss(WHO.id);
    left.attend(&mut |_| true).unwrap();
    assert!(writer.ended() && !can_be_read(&left) && !can_be_read(&right));

    let (to, mut right) = (name(), Neighbours::listen(&name()).unwrap());
    let listener = Neighbours::listen(&to).unwrap();
    let _copy = listener.listener.as_fd().try_clone_to_owned().unwrap();
    drop(listener);
    let error = right.connect(&to, &WHO, ring::LEAST).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn who_is_turned_away_wakes_nobody_where_a_forked_process_has_the_line() {
    let to = name();
    let (mut left, mut right) = (Neighbours::listen(&name()).unwrap(), Neighbours::listen(&to).unwrap());
    let knocks = introduction::connect(&to).map(Line::new).unwrap();
    right.attend(&mut |_| false).unwrap();
    let _copy = right.knocking[0].1.as_fd().try_clone_to_owned().unwrap();
    knocks.wake();
    right.attend(&mut |_| false).unwrap();
    assert!(right.knocking.is_empty() && !knocks.hear() && !can_be_read(&right));
    let writer = left.connect(&to, &WHO, ring::LEAST).unwrap();
    right.attend(&mut |_| false).unwrap();
    left.attend(&mut |_| false).unwrap();
    assert!(writer.ended() && !can_be_read(&left) && !can_be_read(&right));
}

/// This test program again, as a neighbour that does what `role` says.
fn spawn(role: &str, name: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "neighbour::tests::neighbour_in_a_process_of_its_own"]);
    command.env("FARLINK_TEST_ROLE", role).env("FARLINK_TEST_NAME", name);
    command.stdout(process::Stdio::null()).spawn().unwrap()
}

#[test]
#[ignore = "the other process of the tests below"]
fn neighbour_in_a_process_of_its_own() {
    let (Ok(role), Ok(to)) = (env::var("FARLINK_TEST_ROLE"), env::var("FARLINK_TEST_NAME")) else { return };
    let mut neighbours = Neighbours::listen(&format!("{to}/other")).unwrap();
    if role == "is short" {
        return hear_with_too_few_descriptors(neighbours, &to);
    }
    let mut writer = neighbours.connect(&to, &WHO, ring::LEAST).unwrap();
    if role == "speaks" {
        for number in 0..3 {
            assert!(say(&mut writer, &record(number, 1000)));
        }
    }
    let _done = neighbours.connect(&to, &DONE, ring::LEAST).unwrap();
    loop {
        wait(&neighbours);
        neighbours.attend(&mut |_| true).unwrap();
    }
}

/// A neighbour knocks when there is one descriptor left: for its socket, and not for its memory.
fn hear_with_too_few_descriptors(mut left: Neighbours, to: &str) {
    let mut right = Neighbours::listen(to).unwrap();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // And when there is none at all: it goes on knocking, and wakes nobody who sleeps on what could be read.
    let knocks = introduction::connect(to).unwrap();
    let last = knocks.as_raw_fd() as u64;
    setrlimit(Resource::RLIMIT_NOFILE, last + 1, most).unwrap();
    for _ in 0..2 {
        let error = right.attend(&mut |_| true).unwrap_err();
        assert!(introduction::is_shortage(&error), "{error}");
        assert!(!can_be_read(&right));
    }
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    right.attend(&mut |_| true).unwrap();
    drop(knocks);
    assert!(can_be_read(&right), "that it has gone is heard");
    right.attend(&mut |_| true).unwrap();
    let writer = left.connect(to, &WHO, ring::LEAST).unwrap();
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::RLIMIT_NOFILE, next + 1, most).unwrap();
    let error = right.attend(&mut |_| true).unwrap_err();
    assert!(introduction::is_shortage(&error) && right.readers().is_empty(), "{error}");
    left.attend(&mut |_| true).unwrap();
    assert!(writer.ended());
    // Of others that speak nonsense there is nothing to tell.
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    drop(introduction::connect(to).unwrap());
    right.attend(&mut |_| true).unwrap();
}

#[test]
fn who_has_no_descriptor_left_for_a_neighbour_is_told() {
    assert!(spawn("is short", &name()).wait().unwrap().success());
}

/// Waits until the other process has said all that it has to say.
fn wait_until_done(here: &mut Neighbours) {
    while here.readers().len() < 2 {
        wait(here);
        here.attend(&mut |_| true).unwrap();
    }
    assert_eq!((here.readers()[0].id(), here.readers()[1].id()), (WHO.id, DONE.id));
}

#[test]
fn a_killed_neighbour_is_heard_to_its_last_record() {
    let to = name();
    let mut here = Neighbours::listen(&to).unwrap();
    let mut there = spawn("speaks", &to);
    wait_until_done(&mut here);
    assert_eq!(here.readers()[0].read(), Some(&record(0, 1000)[..]));
    there.kill().unwrap();
    there.wait().unwrap();
    here.attend(&mut |_| true).unwrap();
    assert!(here.ended().is_some_and(|ended| ended.id == DONE.id) && here.ended().is_none());
    assert!(!here.prepare_sleep(), "there is more to read");
    for number in 1..3 {
        assert_eq!(here.readers()[0].read(), Some(&record(number, 1000)[..]));
    }
    assert!(here.ended().is_some_and(|ended| ended.id == WHO.id && ended.broken.is_none()));
}

#[test]
fn who_speaks_to_a_killed_neighbour_is_told() {
    let to = name();
    let mut here = Neighbours::listen(&to).unwrap();
    let mut there = spawn("listens", &to);
    wait_until_done(&mut here);
    let mut writer = here.connect(&format!("{to}/other"), &WHO, ring::LEAST).unwrap();
    let most = writer.longest();
    while say(&mut writer, &vec![5; most]) {}
    here.attend(&mut |_| true).unwrap();
    assert!(writer.prepare_sleep(most) && !writer.ended());
    there.kill().unwrap();
    while !writer.ended() {
        wait(&here);
        here.attend(&mut |_| true).unwrap();
    }
    assert!(!writer.prepare_sleep(most) && !writer.is_read());
    there.wait().unwrap();
}

#[test]
fn many_that_have_only_just_knocked_are_not_turned_away_for_that() {
    let to = name();
    let mut right = Neighbours::listen(&to).unwrap();
    let began = monotonic();
    let mut all = Vec::new();
    for _ in 0..MOST_KNOCKING + 8 {
        all.push(introduction::connect(&to).map(Line::new).unwrap());
        right.attend(&mut |_| true).unwrap();
    }
    let heard = all.iter().filter(|line| line.hear()).count();
    // A machine that stood still for that long may have turned some away.
    if monotonic() < began.after(AT_ONCE) {
        assert_eq!((right.knocking.len(), heard), (MOST_KNOCKING, all.len()));
    }
    // Who stands there for longer gives way.
    while all.iter().all(Line::hear) {
        thread::sleep(std::time::Duration::from_millis(20));
        right.attend(&mut |_| true).unwrap();
    }
    assert!(!all[0].hear(), "the oldest of them");
}
