//! The machines of a copy, the one that says what leaves next and the one that says what has come, over a path that loses, damages and
//! repeats.

use farlink_flow::arrivals::{Arrivals, Block};
use farlink_flow::schedule::{Schedule, Task};
use farlink_wire::entry::Digest;
use farlink_wire::message::copy::Unit;
use farlink_wire::quantity::Nanos;

/// What leaves next, and what has come: whatever happens on the way, all of it is there in the end, nothing is sent that there is not,
/// and nothing of a file that is stored or given up.
pub fn schedule(data: &[u8]) {
    let mut copy = Copy::default();
    for step in data.as_chunks::<2>().0.iter().take(MOST_STEPS) {
        copy.step(*step);
    }
    copy.finish();
}

/// A copy: both ends, and what is on its way.
#[derive(Default)]
struct Copy {
    schedule: Schedule,
    arrivals: Arrivals,
    now: Nanos,
    files: Vec<File>,
    packs: u32,
    /// What was handed to streams, and not delivered or lost.
    flying: Vec<(u32, Task)>,
}

struct File {
    blocks: u32,
    /// First and number.
    holes: Vec<(u32, u32)>,
    /// Whether the receiver has some of it from before.
    held: bool,
    closed: bool,
}

impl Copy {
    fn step(&mut self, [what, how]: [u8; 2]) {
        match what % 8 {
            0 => self.supply(how, what & 0x40 != 0),
            1 => {
                self.schedule.on_pack(self.packs);
                self.packs += 1;
            }
            2 | 3 => drop(self.poll(how)),
            4 | 5 if !self.flying.is_empty() => {
                let (_, task) = self.flying.swap_remove(usize::from(how) % self.flying.len());
                self.deliver(&task, what % 8 == 5);
            }
            6 => {
                let lost = u32::from(how) % STREAMS;
                self.flying.retain(|(stream, _)| *stream != lost);
                self.schedule.on_lost(lost);
            }
            7 => self.disturb(how),
            _ => self.schedule.on_moved(u32::from(how) % STREAMS, self.now),
        }
    }

    /// A file to send.
    fn supply(&mut self, how: u8, ask: bool) {
        let blocks = 1 + u32::from(how % 8);
        let first = u32::from(how >> 5) % blocks;
        let holes = match how >> 3 & 3 {
            0 | 1 => Vec::new(),
            2 => vec![(first, 1)],
            _ => vec![(0, blocks)],
        };
        self.schedule.on_file(self.files.len() as u32, blocks, &holes, ask);
        self.files.push(File { blocks, holes, held: ask && how & 8 != 0, closed: false });
    }

    /// A stream has room: true where there is something for it.
    fn poll(&mut self, how: u8) -> bool {
        let stream = u32::from(how) % STREAMS;
        self.now = self.now.after(Nanos(u64::from(how)));
        let Some(task) = self.schedule.poll(self.now, stream, STALE) else { return false };
        match task {
            Task::Announce(file) | Task::Empty(file) => assert!(!self.files[file as usize].closed),
            Task::Block { file, index, .. } => {
                let File { blocks, closed, .. } = &self.files[file as usize];
                assert!(index < *blocks && !closed, "block {index} of file {file}");
            }
            Task::Pack(pack) => assert!(pack < self.packs),
        }
        self.flying.push((stream, task));
        true
    }

    /// A task has arrived, its content damaged or not.
    fn deliver(&mut self, task: &Task, damaged: bool) {
        match *task {
            Task::Pack(pack) if damaged => drop(self.schedule.on_damaged(Unit::Pack(pack))),
            Task::Pack(pack) => {
                self.arrivals.on_pack(pack);
                assert!(self.arrivals.has_pack(pack));
                self.schedule.on_acknowledged(Unit::Pack(pack), self.now);
            }
            Task::Announce(file) => {
                let File { blocks, held, .. } = self.files[file as usize];
                self.arrivals.on_file(file, blocks);
                let proven = held.then_some((blocks / 2, Digest([1; 32])));
                // One that there is not, too, as a receiver may say anything.
                self.schedule.on_proven(file, proven.into_iter().chain([(blocks, Digest([2; 32]))]), true);
            }
            Task::Empty(file) => self.open(file),
            Task::Block { file, index, .. } => {
                self.open(file);
                let unit = Unit::Block(file, index);
                if damaged && !self.arrivals.has(file, index) {
                    self.schedule.on_damaged(unit);
                    return;
                }
                self.schedule.on_acknowledged(unit, self.now);
                self.arrive(file, index);
            }
        }
    }

    /// The receiver hears of a file and of its holes.
    fn open(&mut self, file: u32) {
        let File { blocks, holes, .. } = &self.files[file as usize];
        let holes: Vec<_> = holes.iter().flat_map(|(first, count)| *first..first + count).collect();
        self.arrivals.on_file(file, *blocks);
        holes.into_iter().for_each(|index| self.arrive(file, index));
    }

    fn arrive(&mut self, file: u32, index: u32) {
        match self.arrivals.on_block(file, index) {
            Block::Unknown => panic!("block {index} of file {file} is of no file that was said"),
            Block::Last => self.close(file),
            Block::New | Block::Again => assert!(self.arrivals.has(file, index)),
        }
    }

    /// A file is stored or given up.
    fn close(&mut self, file: u32) {
        self.files[file as usize].closed = true;
        self.schedule.on_closed(file);
        self.arrivals.on_closed(file);
        assert!(!self.arrivals.is_open(file) && self.arrivals.has(file, 0));
    }

    /// A file is given up, or the disk has spoiled a block of it.
    fn disturb(&mut self, how: u8) {
        if self.files.is_empty() {
            return;
        }
        let file = usize::from(how >> 2) % self.files.len();
        let number = file as u32;
        if how & 3 == 0 {
            self.close(number);
            return;
        }
        let File { blocks, holes, .. } = &self.files[file];
        let index = u32::from(how & 3) % blocks;
        let is_hole = holes.iter().any(|(first, count)| (*first..first + count).contains(&index));
        if self.arrivals.is_open(number) && self.arrivals.has(number, index) && !is_hole {
            self.arrivals.on_spoiled(number, index);
            assert!(!self.arrivals.has(number, index));
            self.schedule.on_damaged(Unit::Block(number, index));
        }
    }

    /// Nothing happens any more: all that is on its way arrives, and then the rest.
    fn finish(mut self) {
        self.arrivals.on_total(self.files.len() as u32, self.packs);
        let mut rounds = 0;
        while !self.arrivals.is_complete() {
            rounds += 1;
            assert!(rounds < MOST_ROUNDS, "it does not end");
            for (_, task) in std::mem::take(&mut self.flying) {
                self.deliver(&task, false);
            }
            while self.poll(0) {}
            if self.flying.is_empty() {
                // What a stream still has is not on its way: another takes it in the end.
                let deadline = self.schedule.deadline(1, STALE);
                self.now = self.now.max(deadline.unwrap_or_default()).after(Nanos(1));
                self.poll(1);
            }
        }
        for (number, file) in (0..).zip(&self.files) {
            assert!(file.closed && (0..file.blocks).all(|index| self.arrivals.has(number, index)));
        }
        assert_eq!((self.schedule.open_files(), self.arrivals.open_files()), (0, 0));
    }
}

const STREAMS: u32 = 4;

/// How long a block may be on its way before another stream takes it, too.
const STALE: Nanos = Nanos(2000);

const MOST_STEPS: usize = 500;

/// More than there are files, packs and blocks.
const MOST_ROUNDS: u32 = 100_000;
