use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use farlink_flow::digest;
use farlink_wire::entry::Kind;
use farlink_wire::frame::{Holes, Item, Pack};
use farlink_wire::message::copy::{Lack, Unit};

use super::super::target::tests::{Scratch, file};
use super::super::target::{Stays, TargetOptions};
use super::read_back::MOST_SPOILED;
use super::*;
use crate::budget;

/// A receiver of one file whose disk may have something else than was written, and to which blocks may come twice at a time.
struct Spoiled {
    scratch: Scratch,
    receiving: Arc<Receiving>,
    incoming: Arc<Incoming>,
    content: Vec<u8>,
}

const SIZE: u64 = 5 << 20;
const PIECE: u64 = 256 << 10;

impl Spoiled {
    fn new(name: &str) -> Self {
        Self::of(name, true, false)
    }

    fn of(name: &str, read_back: bool, sparse: bool) -> Self {
        Self::on(Scratch::new(name), read_back, sparse, false)
    }

    /// As another run finds it; where it is `busy`, the thread that proves files has another to look at.
    fn on(scratch: Scratch, read_back: bool, sparse: bool, busy: bool) -> Self {
        let receiving =
            Self::receiving(&scratch, TargetOptions { read_back, ..TargetOptions::default() }, false);
        receiving.state().proving = busy;
        let frame = File { file: 0, entry: file("big", SIZE), sparse };
        let incoming = receiving.open(frame).unwrap().unwrap();
        let content = (0..SIZE).map(|at| (at / 4096 + at % 251) as u8).collect();
        receiving.on_message(Copy::Total { files: 1, packs: 0, entries: 1, bytes: SIZE }).unwrap();
        Self { scratch, receiving, incoming, content }
    }

    fn receiving(scratch: &Scratch, options: TargetOptions, resume: bool) -> Arc<Receiving> {
        let manner = Manner {
            target: scratch.open("", true, options).unwrap(),
            sink: None,
            resume,
            verify: true,
            seal: None,
            report: true,
            interval: Nanos(1_000_000_000),
            patience: Nanos::ZERO,
            lingers: true,
            budget: Budget::of(budget::of_blocks(SIZE.div_ceil(block_bytes(SIZE)) as u32 + 1)),
        };
        Receiving::new(manner, Wake::new().unwrap(), Wake::new().unwrap())
    }

    /// Two blocks of five have come, and the run ended; what the next one finds has not been looked at.
    fn begun(name: &str) -> Self {
        let first = Self::of(name, false, false);
        (0..2).for_each(|index| first.comes(index));
        first.again()
    }

    /// The next run.
    fn again(self) -> Self {
        let Self { scratch, receiving, incoming, .. } = self;
        drop((receiving, incoming));
        Self::on(scratch, false, false, true)
    }

    /// Of which files it was told how many blocks are there.
    fn told(&self) -> Vec<(u32, usize)> {
        let of = |each: &Copy| match each {
            Copy::Proven { file, blocks, .. } => Some((*file, blocks.len())),
            _ => None,
        };
        self.receiving.take_messages().iter().filter_map(of).collect()
    }

    /// A block comes.
    fn comes(&self, index: u32) {
        let bytes = block_bytes(SIZE);
        let (start, end) = (u64::from(index) * bytes, SIZE.min(u64::from(index + 1) * bytes));
        let piece = &self.content[start as usize..end as usize];
        let digest = digest::block(SIZE, bytes, index, piece);
        assert!(self.receiving.write(&self.incoming, (index, 0), start, piece));
        self.receiving.on_block(&self.incoming, (index, 0), Payload::Written(digest), digest).unwrap();
    }

    /// Piece `piece` of block `index` comes by `stream`, changed where `forged`.
    fn piece(&self, (index, stream): (u32, u32), piece: u64, forged: bool) {
        let at = u64::from(index) * block_bytes(SIZE) + piece * PIECE;
        let mut bytes = self.content[at as usize..(at + PIECE) as usize].to_vec();
        if forged {
            bytes[5] ^= 1;
        }
        assert!(self.receiving.write(&self.incoming, (index, stream), at, &bytes));
    }

    /// Block `index` has come whole by `stream`, as what came there makes it: right, or `forged`.
    fn whole(&self, (index, stream): (u32, u32), forged: bool) {
        let bytes = block_bytes(SIZE);
        let (start, end) = (u64::from(index) * bytes, SIZE.min(u64::from(index + 1) * bytes));
        let said = digest::block(SIZE, bytes, index, &self.content[start as usize..end as usize]);
        let came = if forged { Digest([1; 32]) } else { said };
        self.receiving.on_block(&self.incoming, (index, stream), Payload::Written(came), said).unwrap();
    }

    fn stored(&self) -> bool {
        fs::read(self.scratch.0.join("big")).is_ok_and(|there| there == self.content)
    }

    fn blocks() -> u32 {
        SIZE.div_ceil(block_bytes(SIZE)) as u32
    }

    fn partial(&self) -> PathBuf {
        let name = self.scratch.names().into_iter().find(|name| name.ends_with(".part")).unwrap();
        self.scratch.0.join(name)
    }

    /// The disk has another bit than was written.
    fn spoil(&self, at: u64) {
        let there = fs::OpenOptions::new().write(true).open(self.partial()).unwrap();
        there.write_all_at(&[self.content[at as usize] ^ 1], at).unwrap();
    }

    /// Blocks that are asked for again, and whether the file is stored, and refused.
    fn said(&self) -> (Vec<Unit>, bool, bool) {
        let said = self.receiving.take_messages();
        let damaged = said.iter().filter_map(|each| match each {
            Copy::Damaged(units) => Some(units.clone()),
            _ => None,
        });
        let has = |is: fn(&Copy) -> bool| said.iter().any(is);
        let stored = has(|each| matches!(each, Copy::Stored(_)));
        (damaged.flatten().collect(), stored, has(|each| matches!(each, Copy::Rejected(_))))
    }
}

#[test]
fn blocks_that_the_disk_spoiled_come_again_and_no_others() {
    let spoiled = Spoiled::new("spoiled");
    let last = Spoiled::blocks() - 1;
    (0..last).for_each(|index| spoiled.comes(index));
    spoiled.spoil(77);
    spoiled.spoil(block_bytes(SIZE) + 5);
    spoiled.comes(last);
    assert_eq!(spoiled.said(), (vec![Unit::Block(0, 0), Unit::Block(0, 1)], false, false));
    spoiled.comes(0);
    assert_eq!(spoiled.said(), (vec![], false, false));
    spoiled.comes(1);
    assert_eq!(spoiled.said(), (vec![], true, false));
    assert!(fs::read(spoiled.scratch.0.join("big")).unwrap() == spoiled.content);
    assert_eq!(spoiled.scratch.names(), ["big"]);
}

#[test]
fn a_disk_that_spoils_again_and_again_is_named_and_what_is_well_stays() {
    let spoiled = Spoiled::new("spoiler");
    let last = Spoiled::blocks() - 1;
    (0..last).for_each(|index| spoiled.comes(index));
    for _ in 0..MOST_SPOILED {
        spoiled.spoil(3);
        spoiled.comes(last);
        assert_eq!(spoiled.said(), (vec![Unit::Block(0, 0)], false, false));
        // The last of the next time.
        spoiled.receiving.state().arrivals.on_spoiled(0, last);
        spoiled.comes(0);
    }
    spoiled.spoil(3);
    spoiled.comes(last);
    assert_eq!(spoiled.said(), (vec![], false, true));
    let [event] = &spoiled.receiving.take_events()[..] else { panic!("one file") };
    assert!(
        matches!(&event.what, Became::Lacking(Lack::Failed, reason) if reason.contains("block 0")),
        "{event:?}"
    );
    assert!(spoiled.partial().exists() && !spoiled.scratch.0.join("big").exists());
}

#[test]
fn a_block_that_comes_twice_at_a_time_is_there_whole_with_holes_or_without() {
    for sparse in [false, true] {
        let twice = Spoiled::of(if sparse { "twice-sparse" } else { "twice" }, false, sparse);
        (1..Spoiled::blocks()).for_each(|index| twice.comes(index));
        (0..3).for_each(|piece| twice.piece((0, 0), piece, false));
        // The second begins when the first has almost all.
        twice.piece((0, 1), 0, false);
        twice.piece((0, 0), 3, false);
        twice.whole((0, 0), false);
        // What the second still brings is of no interest.
        (1..4).for_each(|piece| twice.piece((0, 1), piece, true));
        twice.whole((0, 1), true);
        let (damaged, stored, refused) = twice.said();
        assert_eq!((damaged, stored, refused), (vec![], true, false), "sparse: {sparse}");
        assert!(twice.stored(), "sparse: {sparse}");
    }
}

#[test]
fn what_another_connection_wrote_into_a_block_is_not_taken_for_what_came() {
    let forged = Spoiled::of("forged", false, false);
    (1..Spoiled::blocks()).for_each(|index| forged.comes(index));
    (0..3).for_each(|piece| forged.piece((0, 0), piece, false));
    forged.piece((0, 1), 1, true);
    forged.piece((0, 0), 3, false);
    forged.whole((0, 0), false);
    assert_eq!(forged.said(), (vec![Unit::Block(0, 0)], false, false));
    // The other breaks; the block comes again.
    Receiving::on_end_of_block(&forged.incoming, 0, 1);
    (0..4).for_each(|piece| forged.piece((0, 0), piece, false));
    forged.whole((0, 0), false);
    assert_eq!(forged.said(), (vec![], true, false));
    assert!(forged.stored());
}

#[test]
fn where_one_of_two_connections_breaks_the_other_brings_the_block() {
    let broken = Spoiled::of("broken", false, true);
    (1..Spoiled::blocks()).for_each(|index| broken.comes(index));
    (0..2).for_each(|piece| broken.piece((0, 0), piece, true));
    Receiving::on_end_of_block(&broken.incoming, 0, 0);
    (0..4).for_each(|piece| broken.piece((0, 1), piece, false));
    broken.whole((0, 1), false);
    assert_eq!(broken.said(), (vec![], true, false));
    assert!(broken.stored());
}

#[test]
fn a_file_that_is_given_up_before_its_name_comes_is_told_of_once() {
    let early = Spoiled::new("early");
    let path = Place::new(b"late".to_vec()).unwrap();
    let reason = || "it was changed while it was read".to_owned().into();
    early.receiving.on_message(Copy::Skipped { path, lack: Lack::Abandoned, reason: reason() }).unwrap();
    early.receiving.on_message(Copy::Abandon { file: 1, reason: reason(), keep: false }).unwrap();
    let frame = File { file: 1, entry: file("late", SIZE), sparse: false };
    assert!(early.receiving.open(frame).unwrap().is_none());
    let [event] = &early.receiving.take_events()[..] else { panic!("one name") };
    assert!(event.path == "late" && matches!(event.what, Became::Lacking(Lack::Abandoned, _)), "{event:?}");
    assert_eq!(early.receiving.state().failed, 1);
}

#[test]
fn what_became_newer_while_a_file_came_stays_where_that_was_asked_for() {
    let scratch = Scratch::new("became-newer");
    let options = TargetOptions { stays: Stays::Newer, ..TargetOptions::default() };
    let receiving = Spoiled::receiving(&scratch, options, false);
    let entry = file("x", 5);
    let incoming = receiving.open(File { file: 0, entry: entry.clone(), sparse: false }).unwrap().unwrap();
    assert!(receiving.write(&incoming, (0, 0), 0, b"older"));
    fs::write(scratch.0.join("x"), "newer").unwrap();
    let digest = digest::block(5, block_bytes(5), 0, b"older");
    receiving.on_block(&incoming, (0, 0), Payload::Written(digest), digest).unwrap();
    assert_eq!(fs::read(scratch.0.join("x")).unwrap(), b"newer");
    assert_eq!(scratch.names(), ["x"]);
    let [FileEvent { what: Became::Newer, .. }] = &receiving.take_events()[..] else { panic!("one name") };
    let rejects = |each: &Copy| matches!(each, Copy::Rejected(all) if all[0].lack == Lack::Newer);
    assert!(receiving.take_messages().iter().any(rejects));
}

#[test]
fn a_small_file_that_became_newer_while_it_came_is_not_told_as_copied() {
    let scratch = Scratch::new("small-became-newer");
    let options = TargetOptions { stays: Stays::Newer, ..TargetOptions::default() };
    let receiving = Spoiled::receiving(&scratch, options, false);
    fs::write(scratch.0.join("x"), "newer").unwrap();
    let item = Item { entry: file("x", 5), digest: digest::whole(b"older"), content: b"older" };
    receiving.on_pack(&Pack { pack: 0, items: vec![item] }).unwrap();
    assert_eq!(fs::read(scratch.0.join("x")).unwrap(), b"newer");
    let [FileEvent { what: Became::Newer, .. }] = &receiving.take_events()[..] else { panic!("one name") };
    let rejects = |each: &Copy| matches!(each, Copy::Rejected(all) if all[0].lack == Lack::Newer);
    assert!(receiving.take_messages().iter().any(rejects));
}

#[test]
fn who_lacks_something_waits_for_the_last_word_of_what_that_is() {
    let reason = || "it was changed while it was read".to_owned().into();
    let receiver = |name: &str| {
        let scratch = Scratch::new(name);
        let receiving = Spoiled::receiving(&scratch, TargetOptions::default(), false);
        (scratch, receiving)
    };
    let say_total = |receiving: &Arc<Receiving>, files, packs| {
        receiving.on_message(Copy::Total { files, packs, entries: 2, bytes: 10 }).unwrap();
        receiving.settle();
    };
    let (_scratch, with_pack) = receiver("lacks-of-a-pack");
    let item = |digest, content| Item { entry: file("small", 5), digest, content };
    let absent = Item { entry: file("changing", 0), ..item(Digest::ABSENT, &[]) };
    let there = item(digest::whole(b"small"), b"small");
    with_pack.on_pack(&Pack { pack: 0, items: vec![there, absent] }).unwrap();
    let (_scratch, with_file) = receiver("lacks-a-file");
    with_file.on_message(Copy::Abandon { file: 0, reason: reason(), keep: false }).unwrap();
    for (receiving, files, packs) in [(with_pack, 0, 1), (with_file, 1, 0)] {
        say_total(&receiving, files, packs);
        assert!(receiving.state().finished);
        assert!(!receiving.knows_what_lacks());
        // Behind the first total, however late.
        let path = Place::new(b"changing".to_vec()).unwrap();
        receiving.on_message(Copy::Skipped { path, lack: Lack::Abandoned, reason: reason() }).unwrap();
        assert!(!receiving.knows_what_lacks());
        say_total(&receiving, files, packs);
        assert!(receiving.knows_what_lacks());
        assert_eq!(receiving.state().failed, 1);
    }
    let (_scratch, whole) = receiver("lacks-nothing");
    whole.on_pack(&Pack { pack: 0, items: vec![item(digest::whole(b"small"), b"small")] }).unwrap();
    say_total(&whole, 0, 1);
    assert!(whole.state().finished && whole.knows_what_lacks());
}

#[test]
fn a_file_that_is_given_up_while_it_is_opened_is_closed_by_who_opens_it() {
    let opening = Spoiled::new("opening");
    opening.receiving.on_message(Copy::Total { files: 2, packs: 0, entries: 2, bytes: 2 * SIZE }).unwrap();
    let path = opening.scratch.0.join("late");
    let frame = File { file: 1, entry: file("late", SIZE), sparse: false };
    // As far as whoever opens it has come when the sender gives it up.
    assert!(opening.receiving.state().arrivals.on_file(1, 5));
    let abandon = Copy::Abandon { file: 1, reason: "it was changed".to_owned().into(), keep: false };
    opening.receiving.on_message(abandon).unwrap();
    assert!(opening.receiving.state().arrivals.is_open(1), "its directory is not finished yet");
    let (target, budget) = (&opening.receiving.manner.target, &opening.receiving.manner.budget);
    let partial = target.partial(&frame.entry, block_bytes(SIZE), false).unwrap();
    let store = Store::Partial(Box::new(partial));
    assert!(opening.receiving.begin(frame, 5, store, None, budget.nothing()).unwrap().is_none());
    assert!(!opening.receiving.state().arrivals.is_open(1));
    assert!(!path.exists());
    assert_eq!(
        opening.scratch.names().len(),
        2,
        "what is left is the other file's: {:?}",
        opening.scratch.names()
    );
}

#[test]
fn a_pack_that_is_being_stored_is_not_stored_by_who_brings_it_again() {
    let first = Spoiled::of("packs", false, false);
    first.receiving.on_message(Copy::Total { files: 1, packs: 1, entries: 2, bytes: SIZE + 5 }).unwrap();
    let entry = file("small", 5);
    let bring = |content: &[u8]| {
        let item = Item { entry: entry.clone(), digest: digest::whole(b"small"), content };
        first.receiving.on_pack(&Pack { pack: 0, items: vec![item] }).unwrap();
        first.scratch.0.join("small").exists()
    };
    first.receiving.state().storing.insert(0);
    assert!(!bring(b"small"), "it is left to who stores it");
    assert_eq!(first.said(), (vec![], false, false));
    // Who stored it found it damaged: it comes again, and is stored.
    first.receiving.state().storing.clear();
    assert!(!bring(b"smell"));
    assert!(first.receiving.state().storing.is_empty());
    assert!(bring(b"small"));
    assert_eq!(first.said().0, [Unit::Pack(0)]);
    assert!(first.receiving.state().storing.is_empty());
}

#[test]
fn while_what_is_there_of_a_file_is_looked_at_others_are_stored() {
    let again = Spoiled::begun("proving");
    again.receiving.on_message(Copy::Total { files: 2, packs: 0, entries: 2, bytes: SIZE + 5 }).unwrap();
    let frame = File { file: 1, entry: file("other", 5), sparse: false };
    let other = again.receiving.open(frame).unwrap().unwrap();
    assert!(again.receiving.write(&other, (0, 0), 0, b"other"));
    let digest = digest::block(5, block_bytes(5), 0, b"other");
    again.receiving.on_block(&other, (0, 0), Payload::Written(digest), digest).unwrap();
    assert_eq!(fs::read(again.scratch.0.join("other")).unwrap(), b"other");
    assert_eq!(again.told(), [(1, 0)]);
    again.receiving.prove();
    assert_eq!(again.told(), [(0, 2)]);
    let same = [Unit::Block(0, 0), Unit::Block(0, 1)];
    again.receiving.on_message(Copy::Same(same.to_vec())).unwrap();
    (2..Spoiled::blocks()).for_each(|index| again.comes(index));
    assert!(again.stored());
}

#[test]
fn nobody_who_writes_for_long_holds_up_what_the_sender_says() {
    let again = Spoiled::begun("patient");
    again.receiving.prove();
    let writers = again.incoming.writers();
    let same = [Unit::Block(0, 0), Unit::Block(0, 1)];
    again.receiving.on_message(Copy::Same(same.to_vec())).unwrap();
    assert_eq!(again.incoming.digests.lock().unwrap().proven.len(), 2, "they wait");
    drop(writers);
    (2..Spoiled::blocks()).for_each(|index| again.comes(index));
    while again.receiving.state().at_chores {
        std::thread::yield_now();
    }
    assert!(again.stored());
}

#[test]
fn a_block_that_is_said_to_be_the_same_while_it_is_written_anew_is_not_taken_for_what_was_there() {
    let first = Spoiled::of("halved", false, true);
    (0..2).for_each(|index| first.comes(index));
    let Spoiled { scratch, receiving, incoming, .. } = first;
    drop((receiving, incoming));
    let again = Spoiled::on(scratch, false, true, true);
    again.receiving.prove();
    assert_eq!(again.told(), [(0, 2)]);
    // One connection has compared it, and another begins to bring it.
    again.piece((0, 1), 0, false);
    again.receiving.on_message(Copy::Same(vec![Unit::Block(0, 0), Unit::Block(0, 1)])).unwrap();
    assert_eq!(again.said(), (vec![Unit::Block(0, 0)], false, false), "it is asked for again");
    (1..4).for_each(|piece| again.piece((0, 1), piece, false));
    again.whole((0, 1), false);
    (2..Spoiled::blocks()).for_each(|index| again.comes(index));
    assert!(again.stored());
}

#[test]
fn what_came_of_a_file_stays_where_its_source_is_as_it_was_and_could_not_be_read() {
    for keep in [true, false] {
        let first = Spoiled::of(if keep { "kept" } else { "changed" }, false, false);
        (0..2).for_each(|index| first.comes(index));
        let reason = "read: Input/output error".to_owned().into();
        first.receiving.on_message(Copy::Abandon { file: 0, reason, keep }).unwrap();
        let again = first.again();
        again.receiving.prove();
        assert_eq!(again.told(), [(0, if keep { 2 } else { 0 })]);
    }
}

#[test]
fn a_file_that_is_given_up_does_not_wait_to_be_looked_at() {
    let again = Spoiled::begun("unwaited");
    // Here, where it is open, and where it waits.
    assert_eq!(Arc::strong_count(&again.incoming), 3);
    let reason = "it was changed while it was read".to_owned().into();
    again.receiving.on_message(Copy::Abandon { file: 0, reason, keep: false }).unwrap();
    assert_eq!(Arc::strong_count(&again.incoming), 1);
}

#[test]
fn the_end_of_a_transfer_ends_the_wait_for_what_is_there_which_stays() {
    let again = Spoiled::begun("unproven");
    let (receiving, incoming) = (Arc::clone(&again.receiving), Arc::clone(&again.incoming));
    let waiting = std::thread::spawn(move || receiving.write(&incoming, (2, 0), 2 * block_bytes(SIZE), b"x"));
    again.receiving.abort(None);
    assert!(!waiting.join().unwrap(), "nothing is written that might be there");
    again.receiving.prove();
    assert_eq!(again.told(), []);
    let third = again.again();
    third.receiving.prove();
    assert_eq!(third.told(), [(0, 2)]);
}

#[test]
fn a_file_for_whose_digests_there_is_no_memory_is_refused_and_another_that_takes_less_is_not() {
    let first = Spoiled::of("memory", false, false);
    let frame = |number, size| File { file: number, entry: file("second", size), sparse: false };
    assert!(first.receiving.open(frame(1, 2 << 20)).unwrap().is_none());
    let (_, _, refused) = first.said();
    assert!(refused);
    let [event] = &first.receiving.take_events()[..] else { panic!("one name") };
    assert!(
        matches!(&event.what, Became::Lacking(Lack::Failed, reason) if reason.contains("--memory")),
        "{event:?}"
    );
    assert!(first.receiving.open(frame(2, 1 << 20)).unwrap().is_some());
}

#[test]
fn numbers_with_gaps_take_memory_that_must_be_there() {
    let gaps = Spoiled::of("gaps", false, false);
    let reason = || String::new().into();
    let abandon = |file| gaps.receiving.on_message(Copy::Abandon { file, reason: reason(), keep: false });
    (0..=RUNS_AT_ONCE as u32).for_each(|at| assert!(abandon(2 + 2 * at).is_ok()));
    assert!(matches!(abandon(1 << 30), Err(CopyError::Memory)));
}

#[test]
fn an_offer_that_comes_twice_is_answered_once() {
    let twice = Spoiled::of("twice", false, false);
    fs::write(twice.scratch.0.join("small"), b"there").unwrap();
    let item = Item { entry: file("small", 5), digest: digest::whole(b"there"), content: &[] };
    let offer = Pack { pack: 7, items: vec![item] };
    (0..2).for_each(|_| twice.receiving.on_offer(&offer).unwrap());
    let [event] = &twice.receiving.take_events()[..] else { panic!("one name, once") };
    assert!(event.path == "small" && event.what == Became::Same, "{event:?}");
    let said = twice.receiving.take_messages();
    assert_eq!(said.iter().filter(|message| matches!(message, Copy::Wanted { .. })).count(), 1);
}

#[test]
fn a_sender_that_does_not_listen_is_not_read_from_until_it_does() {
    let deaf = Spoiled::of("deaf", false, false);
    let wait = || {
        let (its, (told, over)) = (Arc::clone(&deaf.receiving), channel());
        std::thread::spawn(move || {
            its.wait_to_be_heard();
            told.send(()).unwrap();
        });
        over
    };
    let waits = |over: &Receiver<()>| over.recv_timeout(Duration::from_millis(50)).is_err();
    let entry = Entry { kind: Kind::Directory, ..file("none", 0) };
    let items = vec![Item { entry, digest: Digest::default(), content: &[] }];
    let again = || (0..60_000).for_each(|index| deaf.receiving.on_again(0, index));
    let offer = |pack| deaf.receiving.on_offer(&Pack { pack, items: items.clone() }).unwrap();
    let offered = || (0..30_000).for_each(offer);
    wait().recv().unwrap();
    for fill in [&again as &dyn Fn(), &offered] {
        fill();
        let over = wait();
        assert!(waits(&over));
        assert!(!deaf.receiving.take_messages().is_empty());
        over.recv().unwrap();
    }
    again();
    let over = wait();
    assert!(waits(&over));
    deaf.receiving.abort(None);
    over.recv().unwrap();
}

#[test]
fn holes_that_are_said_again_take_no_digest_away() {
    let spoiled = Spoiled::of("holes-again", false, true);
    let holes = Holes { file: 0, runs: vec![(0, 2)] };
    spoiled.receiving.on_holes(&spoiled.incoming, &holes).unwrap();
    // As many zeros were hashed as ever are: what is there already needs none.
    *spoiled.incoming.zeros.lock().unwrap() = u64::MAX / 2;
    spoiled.receiving.on_holes(&spoiled.incoming, &holes).unwrap();
    assert!(spoiled.incoming.digests.lock().unwrap().complete);
    let others = Holes { file: 0, runs: vec![(2, 1)] };
    spoiled.receiving.on_holes(&spoiled.incoming, &others).unwrap();
    assert!(!spoiled.incoming.digests.lock().unwrap().complete);
}

#[test]
fn holes_that_several_connections_say_at_once_are_hashed_once() {
    let spoiled = Spoiled::of("holes-at-once", false, true);
    let holes = Holes { file: 0, runs: vec![(0, Spoiled::blocks())] };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| spoiled.receiving.on_holes(&spoiled.incoming, &holes).unwrap());
        }
    });
    assert_eq!(*spoiled.incoming.zeros.lock().unwrap(), SIZE);
    assert!(spoiled.incoming.digests.lock().unwrap().complete);
}

#[test]
fn what_a_sender_says_again_and_again_is_queued_once() {
    let spoiled = Spoiled::new("said-again");
    let receiving = &spoiled.receiving;
    // As while a thread is at a chore that takes long.
    receiving.state().at_chores = true;
    let say = || {
        for _ in 0..100 {
            receiving.on_message(Copy::Total { files: 0, packs: 0, entries: 0, bytes: 0 }).unwrap();
        }
    };
    say();
    assert_eq!(receiving.state().chores.len(), 1);
    receiving.do_chores();
    assert!(receiving.state().finished);
    say();
    assert!(receiving.state().chores.is_empty());
}

#[test]
fn an_attempt_waits_until_the_far_end_of_the_one_before_has_let_go_of_a_file() {
    let first = Spoiled::new("let-go");
    let [again, fresh] =
        [true, false].map(|resume| Spoiled::receiving(&first.scratch, TargetOptions::default(), resume));
    let frame = || File { file: 0, entry: file("big", SIZE), sparse: false };
    assert!(fresh.open(frame()).unwrap().is_none(), "another command is told at once");
    let (its, opening) = (Arc::clone(&again), frame());
    let waiting = std::thread::spawn(move || its.open(opening).unwrap().is_some());
    // It has begun to wait.
    while again.state().arrivals.open_files() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let Spoiled { scratch, receiving, incoming, .. } = first;
    drop((receiving, incoming));
    assert!(waiting.join().unwrap());
    drop(scratch);
}
