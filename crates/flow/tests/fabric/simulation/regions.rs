//! What processes send and receive, and where it is.

use core::ops::Range;
use std::collections::HashMap;
use std::sync::LazyLock;

use farlink_flow::fabric::operation::{Memory, Region};

/// A process's memory: what it sends is cut from what all of them send, of which there is one copy.
#[derive(Default)]
pub(super) struct Regions {
    pub(super) sent: HashMap<Region, Range<usize>>,
    pub(super) wanted: HashMap<Region, Vec<u8>>,
}

impl Regions {
    /// Nobody needs a region any more: whether it was one that was sent, and what came to it otherwise.
    pub(super) fn end(&mut self, region: Region) -> (bool, Option<Vec<u8>>) {
        (self.sent.remove(&region).is_some(), self.wanted.remove(&region))
    }
}

impl Memory for Regions {
    fn read(&self, region: Region, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&CONTENT[self.sent[&region].clone()][offset..][..into.len()]);
    }

    fn write(&mut self, region: Region, offset: usize, bytes: &[u8]) {
        self.wanted.get_mut(&region).unwrap()[offset..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// Where in what is sent the `nth` message of `from` to `to` is, of so many bytes.
pub(super) fn place(from: usize, to: usize, nth: u64, len: usize) -> Range<usize> {
    let mixed = (nth + 1).wrapping_mul(from as u64 * 1009 + to as u64 * 31 + 1).wrapping_mul(7919);
    let begin = (mixed % (CONTENT.len() - len).max(1) as u64) as usize;
    begin..begin + len
}

/// Bytes that messages are cut from, of which no two parts are alike.
pub(super) static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ (state >> 29)).to_be_bytes()
    };
    (0..1 << 19).flat_map(|_| next()).collect()
});
