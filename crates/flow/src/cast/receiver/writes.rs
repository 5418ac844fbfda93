//! Which bytes of what came are to be written.

use std::iter::Chain;
use std::ops::Range;
use std::{option, vec};

/// Bytes to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where in the content they go.
    pub at: u64,
    /// Which bytes of the payload they are.
    pub payload: Range<usize>,
}

/// What of a frame is to be written, none of it a second time: one run of bytes, or more where some of its packets were there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    // By itself: nearly all frames have no others, and those take no memory for it.
    first: Option<Write>,
    others: Vec<Write>,
}

impl Writes {
    pub(super) fn push(&mut self, write: Write) {
        match self.first {
            None => self.first = Some(write),
            Some(_) => self.others.push(write),
        }
    }
}

impl IntoIterator for Writes {
    type Item = Write;
    type IntoIter = Chain<option::IntoIter<Write>, vec::IntoIter<Write>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others)
    }
}
