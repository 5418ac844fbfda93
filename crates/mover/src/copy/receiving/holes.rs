//! Holes of a file, at the receiver: blocks in which there is nothing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use farlink_flow::digest::BlockHasher;
use farlink_wire::entry::Digest;
use farlink_wire::frame::{Holes, block_bytes};
use farlink_wire::message::copy::Unit;

use super::{Incoming, Receiving};
use crate::copy::CopyError;
use crate::copy::target::TargetError;
use crate::copy::timing::Stage;

impl Receiving {
    /// Holes of a file: blocks in which there is nothing.
    pub(crate) fn on_holes(&self, incoming: &Arc<Incoming>, holes: &Holes) -> Result<(), CopyError> {
        let size = incoming.frame.size();
        let bytes = block_bytes(size);
        let blocks = size.div_ceil(bytes);
        if let Some((first, count)) =
            holes.runs.last().filter(|(first, count)| u64::from(first + count) > blocks)
        {
            return Err(CopyError::NoSuchBlock { file: holes.file, index: first + count - 1 });
        }
        if !self.wait_until_proven(incoming) {
            return Ok(());
        }
        if let Err(error) = self.leave_out(incoming, holes) {
            self.fail(incoming, &error);
            return Ok(());
        }
        // Hashing nothing takes as long as hashing something, as BLAKE3 numbers its chunks and zeros elsewhere are other zeros: a digest of
        // terabytes of it is not worth minutes.
        // Each connection says all of them, perhaps at once: one looks and hashes, and what it did is there for the others.
        let mut hashed = incoming.zeros.lock().unwrap_or_else(PoisonError::into_inner);
        let all = holes.runs.iter().flat_map(|(first, count)| *first..first + count);
        let empty = all.filter(|index| self.wants(holes.file, *index)).count() as u64;
        if empty == 0 {
            return Ok(());
        }
        incoming.is_new.store(true, Ordering::Relaxed);
        if !self.manner.verify || *hashed + empty * bytes > MOST_ZEROS {
            return self.arrived(incoming, &holes.runs, None, Unit::Pack(0));
        }
        for index in holes.runs.iter().flat_map(|(first, count)| *first..first + count) {
            if !self.wants(holes.file, index) {
                continue;
            }
            let length = (size - u64::from(index) * bytes).min(bytes);
            *hashed += length;
            let digest = self.timing.during(Stage::Digest, || zeros(size, bytes, index, length));
            self.arrived_quietly(incoming, index, digest)?;
        }
        Ok(())
    }

    /// Makes sure that there is nothing in the holes of a file, unless another connection has said them and it has its final name.
    fn leave_out(&self, incoming: &Incoming, holes: &Holes) -> Result<(), TargetError> {
        let closed = incoming.closed.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = |index: &u32| !*closed && self.wants(holes.file, *index);
        let mut blocks = holes.runs.iter().flat_map(|(first, count)| *first..first + count).filter(wanted);
        blocks.try_for_each(|index| incoming.store.leave_out(&self.manner.target, index, 1))
    }
}

/// The digest of a block of `length` zeros.
fn zeros(size: u64, bytes: u64, index: u32, length: u64) -> Digest {
    let mut hasher = BlockHasher::new(size, bytes, index);
    let mut left = length;
    while left > 0 {
        let count = left.min(NOTHING.len() as u64);
        hasher.update(&NOTHING[..count as usize]);
        left -= count;
    }
    hasher.finish()
}

static NOTHING: [u8; 65536] = [0; 65536];

/// Bytes of holes of a file that are hashed: about 10 seconds' worth.
pub(in crate::copy) const MOST_ZEROS: u64 = 64 << 30;
