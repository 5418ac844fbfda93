use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use farlink_host::beneath::Directory;
use farlink_host::socket;
use farlink_wire::frame::{BLOCK_BYTES, File};
use farlink_wire::message::copy::{Account, Finished, Lack, Rejected, Rejection, Stages};
use farlink_wire::message::{Arrival, Message, Text};

use super::super::conversation::{Party, Talk, talk};
use super::super::end::End;
use super::super::filter::Filter;
use super::super::lost::Lost;
use super::super::source::{Found, SourcePath, Walk};
use super::super::supply::{self, supply_file};
use super::super::target::tests::{Scratch, file};
use super::pulse::MOST_UNSTORED;
use super::receiver::MOST_DAMAGED;
use super::*;
use crate::budget::{self, Budget};
use crate::channel::Channel;
use crate::control::Control;

const STALE: Nanos = Nanos(2_000_000_000);

fn manner(limit: Option<&str>) -> Manner {
    Manner {
        resume: false,
        may_stay: false,
        by_times: false,
        verify: true,
        seal: None,
        automatic: false,
        is_buffer_fixed: false,
        may_pace: false,
        limit: limit.map(|rate| rate.parse().unwrap()),
        report: false,
        stale: STALE,
        follows_path: false,
        saved: None,
        least_rtt: Nanos::ZERO,
        circuit: None,
        budget: Budget::unbounded(),
    }
}

fn sending(manner: Manner) -> Arc<Sending> {
    Sending::new(manner, Wake::new().unwrap(), Wake::new().unwrap()).unwrap()
}

#[test]
fn a_file_with_holes_that_is_cut_before_these_are_looked_for_is_not_taken_for_one_hole() {
    let sending = sending(Manner { report: true, ..manner(None) });
    let scratch = Scratch::new("cut");
    let path = scratch.0.join("log");
    let log = fs::File::create(&path).unwrap();
    log.set_len(1 << 20).unwrap();
    let root = Arc::new(Directory::open(Path::new("/")).unwrap());
    let source = SourcePath::new(path.as_os_str().as_encoded_bytes()).unwrap();
    let found = |cut: Option<u64>| {
        let filter = Filter::new(&[]).unwrap();
        let Some(Found::Entry(entry, handle)) =
            Walk::new(&[(Arc::clone(&root), source.clone())], &filter).next()
        else {
            panic!("it is there")
        };
        cut.into_iter().for_each(|cut| log.set_len(cut).unwrap());
        supply_file(&sending, entry, handle);
        sending.take_events()
    };
    assert_eq!(found(None), []);
    let [event] = &found(Some(0))[..] else { panic!("nothing became of it") };
    assert_eq!(event.what, Became::changed());
}

#[test]
fn the_first_packs_are_many_and_small_so_that_all_connections_have_one() {
    let sending = sending(manner(None));
    sending.on_stream(0, SocketFacts::of(None), None);
    let scratch = Scratch::new("packs");
    for name in 0..100 {
        fs::write(scratch.0.join(name.to_string()), [1; 30_000]).unwrap();
    }
    let root = Arc::new(Directory::open(Path::new("/")).unwrap());
    let source = SourcePath::new(scratch.0.as_os_str().as_encoded_bytes()).unwrap();
    supply::start(&sending, vec![(root, source)], Filter::default(), None).unwrap();
    let next = || match sending.next_task(0) {
        Some(Job::Pack { planned, .. }) => planned.bytes() / 30_000,
        other => panic!("{other:?}"),
    };
    // 64 KiB each as long as there may be connections without, then 1 MiB.
    let files: Vec<_> = (0..34).map(|_| next()).collect();
    assert_eq!(files, [[2; 32].as_slice(), &[34, 2]].concat());
}

/// Sees that `act` ends a wait of hours for what may leave.
fn ends_a_wait(act: impl FnOnce(&Sending)) {
    let sending = sending(manner(Some("1kbit")));
    let (its, (waits_no_more, ended)) = (Arc::clone(&sending), mpsc::channel());
    thread::spawn(move || {
        its.pace(4 << 20);
        let _ = waits_no_more.send(());
    });
    let owes = || sending.bucket.lock().unwrap().as_mut().unwrap().take(monotonic(), 0) > Nanos::ZERO;
    while !owes() {
        thread::yield_now();
    }
    act(&sending);
    ended.recv_timeout(Duration::from_secs(60)).unwrap();
}

#[test]
fn the_end_of_a_transfer_ends_a_wait_for_its_limit() {
    ends_a_wait(|sending| sending.abort(None));
}

#[test]
fn who_waits_for_a_limit_goes_on_when_another_comes_to_hold() {
    ends_a_wait(|sending| sending.hold(None));
}

#[test]
fn under_a_limit_a_block_may_be_on_its_way_for_as_long_as_those_of_all_streams_take() {
    let stale = |limit| sending(manner(limit)).stale_after(4);
    assert_eq!(stale(None), STALE);
    let slow = stale(Some("8mbit")).since(STALE);
    assert!((Nanos(8_000_000_000)..Nanos(9_000_000_000)).contains(&slow), "{slow}");
    assert!(stale(Some("10gbit")).since(STALE) < Nanos(10_000_000));
}

#[test]
fn a_file_for_whose_blocks_there_is_no_memory_is_named_and_another_that_takes_less_is_sent() {
    let budget = Budget::of(budget::of_blocks(2));
    let sending = sending(Manner { report: true, budget, ..manner(None) });
    let supply = |name: &str, size| {
        let device = fs::File::open("/dev/zero").unwrap();
        let frame = |number| File { file: number, entry: file(name, size), sparse: false };
        sending.supply_file(|number| Outgoing::endless(frame(number), device));
    };
    supply("large", 3 << 20);
    supply("small", 2 << 20);
    let [event] = &sending.take_events()[..] else { panic!("one name") };
    assert!(event.path == "large" && event.what.failure().unwrap().contains("--memory"), "{event:?}");
    assert!(sending.state().files.keys().eq([&0]));
    // What it took is there again when it is stored.
    sending.on_message(Copy::Stored(vec![(0, None)])).unwrap();
    supply("next", 2 << 20);
    assert_eq!(sending.tally().failed, 1);
}

#[test]
fn no_more_is_given_than_a_receiver_stores_in_a_while() {
    let sending = sending(manner(None));
    sending.on_stream(0, SocketFacts::of(None), None);
    let device = fs::File::open("/dev/zero").unwrap();
    let frame = |number| File { file: number, entry: file("large", 1 << 30), sparse: false };
    sending.supply_file(|number| Outgoing::endless(frame(number), device));
    let given = 1 + MOST_UNSTORED / BLOCK_BYTES.start();
    for _ in 0..given {
        assert!(!sending.state().is_far_ahead());
        assert!(matches!(sending.next_task(0), Some(Job::Block { .. })));
    }
    assert!(sending.state().is_far_ahead());
    let its = Arc::clone(&sending);
    let waiting = thread::spawn(move || matches!(its.next_task(0), Some(Job::Block { .. })));
    sending.on_message(Copy::Acknowledged(vec![Unit::Block(0, 0)])).unwrap();
    assert!(waiting.join().unwrap());
    // As much again and a quarter as was seen under way.
    assert!(sending.state().is_far_ahead());
    sending.state().most_under_way = 1 << 20;
    assert!(!sending.state().is_far_ahead());
}

#[test]
fn what_the_receivers_kernel_has_is_not_sent_again_however_long_it_is_not_stored() {
    let sending = sending(manner(None));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_far, _) = listener.accept().unwrap();
    sending.on_stream(0, SocketFacts::of(None), Some(near.try_clone().unwrap()));
    sending.supply_pack(Planned::new(vec![(file("small", 5), None)]), false);
    let Some(Job::Pack { .. }) = sending.next_task(0) else { panic!("there is a pack") };
    near.write_all(b"all of it").unwrap();
    while socket::unacknowledged(&near).unwrap() > 0 {
        thread::yield_now();
    }
    let (later, stale) = (Nanos(u64::MAX / 2), sending.manner.stale);
    let feel = || {
        let mut state = sending.state();
        state.feel(later);
        state.schedule.deadline(1, stale)
    };
    // Its thread may have more of it to write.
    assert!(feel().is_some());
    sending.state().streams.get_mut(&0).unwrap().set_busy(false);
    assert_eq!(feel(), None);
    let again = || {
        let mut state = sending.state();
        assert!(state.schedule.is_any_old(later, stale));
        state.feel(later.after(Nanos(1)));
        state.schedule.poll(later.after(Nanos(2)).after(stale), 1, stale).is_some()
    };
    assert!(!again());
    // Another is on its way, and nothing moves.
    sending.supply_pack(Planned::new(vec![(file("other", 5), None)]), false);
    assert!(matches!(sending.next_task(0), Some(Job::Pack { .. })));
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 1 << 16]).is_ok() {}
    again();
    assert!(again());
}

#[test]
fn a_block_that_is_said_to_be_there_twice_is_counted_once() {
    let sending = sending(manner(None));
    (0..2).for_each(|stream| sending.on_stream(stream, SocketFacts::of(None), None));
    let device = fs::File::open("/dev/zero").unwrap();
    let size = 3 << 20;
    let frame = |number| File { file: number, entry: file("twice", size), sparse: false };
    sending.supply_file(|number| Outgoing::endless(frame(number), device));
    let next = |stream| match sending.next_task(stream) {
        Some(Job::Block { file, index, .. }) => (index, file.block_length(index)),
        other => panic!("{other:?}"),
    };
    let there = |index| sending.on_message(Copy::Acknowledged(vec![Unit::Block(0, index)])).unwrap();
    let (first, length) = next(0);
    there(first);
    there(first);
    assert_eq!(sending.tally().acknowledged, length);
    // Its connection is lost, and it had arrived: that is heard before another has it.
    let (second, more) = next(0);
    sending.on_lost(Lost::of_far_side(0));
    there(second);
    assert_eq!(sending.tally().acknowledged, length + more);
    assert!(next(1).0 != second);
}

#[test]
fn a_small_file_that_a_newer_one_stands_for_is_told_so_and_is_no_failure() {
    let sending = sending(Manner { may_stay: true, report: true, ..manner(None) });
    sending.on_stream(0, SocketFacts::of(None), None);
    sending.supply_pack(Planned::new(vec![(file("older", 5), None), (file("new", 5), None)]), false);
    let Some(Job::Pack { number: pack, planned }) = sending.next_task(0) else { panic!("there is a pack") };
    planned.on_read(vec![Some(Digest::default()); 2]);
    let (of, reason) = (Rejected::Item(pack, 0), Text::default());
    sending.on_message(Copy::Rejected(vec![Rejection { of, lack: Lack::Newer, reason }])).unwrap();
    sending.on_message(Copy::Acknowledged(vec![Unit::Pack(pack)])).unwrap();
    let events = sending.take_events().into_iter().map(|event| (event.path, event.what));
    let told: Vec<_> = events.collect();
    assert_eq!(told, [("older".to_owned(), Became::Newer), ("new".to_owned(), Became::Copied)]);
    let tally = sending.tally();
    assert_eq!((tally.entries, tally.failed, tally.acknowledged), (2, 0, 10));
}

#[test]
fn that_all_was_sent_is_said_behind_all_that_lacks() {
    let sending = sending(manner(None));
    sending.on_stream(0, SocketFacts::of(None), None);
    sending.supply_pack(Planned::new(vec![(file("small", 5), None)]), false);
    sending.supply_ends();
    let Some(Job::Pack { planned, .. }) = sending.next_task(0) else { panic!("there is a pack") };
    assert_eq!(sending.take_messages().len(), 1, "the total");
    // It is handed out, and not read yet.
    assert!(!sending.has_sent_all());
    let what = Became::Lacking(Lack::Failed, "gone".to_owned());
    sending.supply_lacks(FileEvent { bytes: 5, ..FileEvent::of("small".to_owned(), what) });
    planned.on_read(vec![None]);
    assert!(!sending.has_sent_all(), "that it lacks is to be said");
    assert_eq!(sending.take_messages().len(), 1);
    assert!(sending.has_sent_all());
}

#[test]
fn what_is_wanted_of_an_offer_is_of_it_and_in_order() {
    let sending = sending(manner(None));
    let names = ["a", "b", "c"].map(|name| (file(name, 5), None));
    let offer = |wanted: &[(u32, u32)]| {
        sending.supply_pack(Planned::new(names.to_vec()), true);
        let number = sending.state().supply.pack_numbers - 1;
        sending.on_message(Copy::Wanted { pack: number, runs: wanted.to_vec(), last: true })
    };
    for right in [&[(0, 1), (2, 1)][..], &[(0, 3)], &[]] {
        offer(right).unwrap();
    }
    for wrong in [&[(0, 4)][..], &[(2, u32::MAX)], &[(1, 1), (0, 1)], &[(0, 2), (1, 1)], &[(3, 1)], &[(1, 0)]]
    {
        assert!(matches!(offer(wrong), Err(CopyError::OutOfPlace { .. })), "{wrong:?}");
    }
}

#[test]
fn what_is_newer_there_is_of_an_offer_of_who_asked_for_that() {
    let names = ["a", "b", "c"].map(|name| (file(name, 5), None));
    let sending = sending(Manner { may_stay: true, report: true, ..manner(None) });
    sending.supply_pack(Planned::new(names.to_vec()), true);
    for wrong in [&[(0, 4)][..], &[(2, u32::MAX)], &[(1, 0)]] {
        let newer = Copy::Newer { pack: 0, runs: wrong.to_vec() };
        assert!(matches!(sending.on_message(newer), Err(CopyError::OutOfPlace { .. })), "{wrong:?}");
    }
    sending.on_message(Copy::Newer { pack: 0, runs: vec![(1, 2)] }).unwrap();
    sending.on_message(Copy::Wanted { pack: 0, runs: vec![(2, 1)], last: true }).unwrap();
    let became: Vec<_> = sending.take_events().into_iter().map(|event| (event.path, event.what)).collect();
    assert_eq!(became, [("a".to_owned(), Became::Same), ("b".to_owned(), Became::Newer)]);
    let unasked = self::sending(manner(None));
    let newer = Copy::Newer { pack: 0, runs: vec![(0, 1)] };
    assert!(matches!(unasked.on_message(newer), Err(CopyError::OutOfPlace { .. })));
}

#[test]
fn of_a_file_that_came_before_a_newer_one_stood_there_nothing_counts_twice() {
    let sending = sending(Manner { may_stay: true, ..manner(None) });
    sending.on_stream(0, SocketFacts::of(None), None);
    let (size, device) = (3 << 20, fs::File::open("/dev/zero").unwrap());
    let frame = |number| File { file: number, entry: file("newer", size), sparse: false };
    sending.supply_file(|number| Outgoing::endless(frame(number), device));
    let Some(Job::Block { file, index, .. }) = sending.next_task(0) else { panic!("there is a block") };
    sending.on_message(Copy::Acknowledged(vec![Unit::Block(0, index)])).unwrap();
    let (of, reason) = (Rejected::File(0), Text::default());
    sending.on_message(Copy::Rejected(vec![Rejection { of, lack: Lack::Newer, reason }])).unwrap();
    let tally = sending.tally();
    assert_eq!((tally.acknowledged, tally.same), (size, size - file.block_length(index)));
}

#[test]
fn a_walk_waits_until_somebody_hears_what_it_says() {
    let sending = sending(manner(None));
    let lacks = |number: usize| {
        let what = Became::Lacking(Lack::Failed, "gone".to_owned());
        sending.supply_lacks(FileEvent::of(number.to_string(), what));
    };
    (0..=MOST_UNHEARD).for_each(lacks);
    let its = Arc::clone(&sending);
    let waiting = thread::spawn(move || (its.wait_for_room(), its.wait_for_room()));
    thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished());
    assert_eq!(sending.take_messages().len(), MOST_UNHEARD + 1);
    assert_eq!(waiting.join().unwrap(), (true, true));
    (0..=MOST_UNHEARD).for_each(lacks);
    let its = Arc::clone(&sending);
    let waiting = thread::spawn(move || its.wait_for_room());
    sending.abort(None);
    assert!(!waiting.join().unwrap() && sending.is_over());
}

#[test]
fn an_item_that_two_connections_cannot_read_fails_once() {
    let planned = Planned::new(vec![(file("a", 5), None), (file("b", 5), None)]);
    assert!(planned.fail(1) && !planned.fail(1));
    planned.on_read(vec![Some(Digest::default()); 2]);
    assert!(planned.failed(1) && !planned.failed(0), "whoever read it first has said so");
}

#[test]
fn what_is_changed_on_its_way_each_time_is_given_up_in_the_end() {
    let sending = sending(manner(None));
    sending.on_stream(0, SocketFacts::of(None), None);
    let device = || fs::File::open("/dev/zero").unwrap();
    for name in ["changed", "well"] {
        let frame = |number| File { file: number, entry: file(name, 1 << 20), sparse: false };
        sending.supply_file(|number| Outgoing::endless(frame(number), device()));
    }
    sending.supply_pack(Planned::new(vec![(file("small", 5), None)]), false);
    let damaged = |unit| sending.on_message(Copy::Damaged(vec![unit]));
    for _ in 1..MOST_DAMAGED {
        damaged(Unit::Block(0, 0)).unwrap();
        damaged(Unit::Pack(0)).unwrap();
    }
    assert_eq!(sending.state().files.len(), 2);
    damaged(Unit::Block(0, 0)).unwrap();
    assert_eq!(sending.state().files.keys().collect::<Vec<_>>(), [&1], "the other goes on");
    let said = sending.take_messages();
    let given_up = said.iter().find_map(|message| match message {
        Copy::Abandon { file: 0, reason, .. } => Some(reason.to_string()),
        _ => None,
    });
    assert!(given_up.unwrap().contains("8 times"));
    assert!(damaged(Unit::Pack(0)).unwrap_err().to_string().contains("--protect encrypt"));
}

/// The server's part of a conversation of which nothing else comes.
struct Serving;

impl Party for Serving {
    fn observe(&mut self, _end: &End, _arrivals: &[Arrival]) {}

    fn replace(&mut self, _end: &End, _lost: Vec<Lost>) -> Result<(), CopyError> {
        Ok(())
    }

    fn account(&mut self) -> Account {
        Account::default()
    }
}

const LACKING: usize = 20_000;

/// What comes of a server's conversation with a client that does what `client` does, once it has heard how much there is, and more lacks than
/// may wait for it in one go.
fn served(client: impl FnOnce(&mut Control)) -> Result<Talk, CopyError> {
    let server = End::Sender(sending(manner(None)));
    let End::Sender(of_server) = &server else { panic!("it sends") };
    of_server.supply_ends();
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let control = |end| Control::new(Channel::over_unix(end).unwrap(), Vec::new());
    let (mut near, mut far) = (control(near), control(far));
    let (wake, stop) = (Wake::new().unwrap(), Wake::new().unwrap());
    thread::scope(|scope| {
        near.greet().unwrap();
        let talking = scope
            .spawn(|| talk(&mut near, &server, &wake, &[&stop], PATIENCE, &mut Serving, VecDeque::new()));
        far.greet().unwrap();
        while !matches!(next(&mut far), Message::Copy(Copy::Total { .. })) {}
        for number in 0..LACKING {
            let what = Became::Lacking(Lack::Failed, "open it: Permission denied (os error 13)".to_owned());
            of_server.supply_lacks(FileEvent::of(format!("{number:0100}"), what));
        }
        client(&mut far);
        talking.join().unwrap()
    })
}

fn next(far: &mut Control) -> Message {
    far.next(monotonic().after(PATIENCE), &Wake::new().unwrap()).unwrap().unwrap()
}

const PATIENCE: Nanos = Nanos(30_000_000_000);

fn finished() -> Message {
    let stages = Stages::default();
    Message::Copy(Copy::Finished(Finished { bytes: 0, since_last: Nanos::ZERO, stages, buffer: 0 }))
}

#[test]
fn what_a_server_says_last_of_what_lacks_leaves_as_it_is_taken() {
    let talked = served(|far| {
        far.send(&finished()).unwrap();
        let (mut lacking, mut is_total, mut is_last) = (0, false, false);
        while !is_last {
            match next(far) {
                Message::Copy(Copy::Skipped { .. }) => lacking += 1,
                Message::Copy(Copy::Total { .. }) => is_total = lacking == LACKING,
                Message::Copy(Copy::Sent(_)) => is_last = is_total,
                _ => {}
            }
        }
        assert_eq!(lacking, LACKING);
    });
    assert!(talked.unwrap().account.is_some());
}

#[test]
fn who_has_everything_again_and_again_is_out_of_place() {
    let talked = served(|far| {
        far.send(&finished()).unwrap();
        far.send(&finished()).unwrap();
    });
    assert!(matches!(talked, Err(CopyError::OutOfPlace { .. })), "{talked:?}");
}
