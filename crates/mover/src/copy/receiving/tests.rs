use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::super::target::TargetOptions;
use super::super::target::tests::{Scratch, file};
use super::read_back::MOST_SPOILED;
use super::*;

/// A receiver of one file whose disk may have something else than was written.
struct Spoiled {
    scratch: Scratch,
    receiving: Arc<Receiving>,
    incoming: Arc<Incoming>,
    content: Vec<u8>,
}

const SIZE: u64 = 5 << 20;

impl Spoiled {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let options = TargetOptions { read_back: true, ..TargetOptions::default() };
        let manner = Manner {
            target: scratch.open("", true, options).unwrap(),
            sink: None,
            resume: false,
            verify: true,
            seal: None,
            report: true,
            interval: Nanos(1_000_000_000),
        };
        let receiving = Receiving::new(manner, Wake::new().unwrap(), Wake::new().unwrap());
        let frame = File { file: 0, entry: file("big", SIZE), sparse: false };
        let incoming = receiving.open(frame).unwrap().unwrap();
        let content = (0..SIZE).map(|at| (at / 4096 + at % 251) as u8).collect();
        receiving.on_message(Copy::Total { files: 1, packs: 0, entries: 1, bytes: SIZE }).unwrap();
        Self { scratch, receiving, incoming, content }
    }

    /// A block comes.
    fn comes(&self, index: u32) {
        let bytes = block_bytes(SIZE);
        let (start, end) = (u64::from(index) * bytes, SIZE.min(u64::from(index + 1) * bytes));
        let piece = &self.content[start as usize..end as usize];
        let digest = digest::block(SIZE, bytes, index, piece);
        assert!(self.receiving.write(&self.incoming, index, start, piece));
        self.receiving.on_block(&self.incoming, index, Payload::Written(digest), digest).unwrap();
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
    assert!(matches!(&event.what, Became::Failed(reason) if reason.contains("block 0")), "{event:?}");
    assert!(spoiled.partial().exists() && !spoiled.scratch.0.join("big").exists());
}
