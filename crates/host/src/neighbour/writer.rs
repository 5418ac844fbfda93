//! The side of a ring that writes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::line::Line;
use super::ring::{self, MARK, PREFIX, Ring, RingError};

/// Says something to one neighbour. Dropping it tells the neighbour that nothing more comes.
#[derive(Debug)]
pub struct Writer {
    ring: Ring,
    line: Arc<Line>,
    /// Where the next record begins.
    position: u64,
    /// Where the last one ends: before `position` where that has gone to the start of the memory since.
    published: u64,
    /// Where the reader was when asked last.
    read: u64,
    /// What was granted and not committed, bytes.
    granted: usize,
    error: Option<RingError>,
}

impl Writer {
    pub(super) const fn new(ring: Ring, line: Arc<Line>) -> Self {
        Self { ring, line, position: 0, published: 0, read: 0, granted: 0, error: None }
    }

    /// Bytes of the longest record.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.ring.longest()
    }

    /// Room for the next record: `least` bytes (at most [`longest`](Self::longest)) or as many more as lie in one piece; `None` where there
    /// is none, or where the reader [ended](Self::ended). Ask again later, or [prepare to sleep](Self::prepare_sleep).
    pub fn room(&mut self, least: usize) -> Option<&mut [u8]> {
        debug_assert!(least <= self.longest(), "no ring of this size ever has room for {least} bytes");
        self.granted = 0;
        if self.ended() {
            return None;
        }
        // The reader may have made more since.
        if self.in_one_piece() < self.longest() {
            self.look()?;
        }
        if !self.find(least.max(1)) {
            return None;
        }
        self.granted = self.in_one_piece().min(self.longest());
        Some(self.ring.bytes_mut(self.position, self.granted))
    }

    /// Says the first `len` bytes of the [room](Self::room) that was given, as one record; no record where that is 0.
    ///
    /// # Panics
    /// Where no such room was given.
    pub fn commit(&mut self, len: usize) {
        assert!(len <= self.granted, "{len} bytes of {} are committed", self.granted);
        self.granted = 0;
        if len == 0 {
            return;
        }
        self.ring.length(self.position).store(len as u32, Ordering::Relaxed);
        self.position += ring::taken(len) as u64;
        self.published = self.position;
        if self.ring.publish(self.position) {
            self.line.wake();
        }
    }

    /// Asks the reader to wake this process when it has read something; false where there is room for `least` bytes already, or the reader
    /// ended, so that sleeping is not due. Then wait until [`Neighbours`](super::Neighbours) can be read.
    #[must_use]
    pub fn prepare_sleep(&mut self, least: usize) -> bool {
        self.ring.set_writer_sleeps(true);
        let due = self.room(least).is_none() && !self.ended();
        if !due {
            self.ring.set_writer_sleeps(false);
        }
        due
    }

    /// Whether the reader's process ended, did not let this one in, or broke the ring. [`Neighbours::attend`](super::Neighbours::attend)
    /// finds that out.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.line.is_over() || self.error.is_some()
    }

    /// What the reader did wrong, if it did.
    #[must_use]
    pub const fn error(&self) -> Option<&RingError> {
        self.error.as_ref()
    }

    /// Whether everything that was said was read. Where it was not, and the reader ended, it never will be.
    #[must_use]
    pub fn is_read(&mut self) -> bool {
        self.look().is_some() && self.read == self.published
    }

    /// Whether there is room for `least` bytes where the reader was last, here or at the start of the memory, to which this then goes.
    fn find(&mut self, least: usize) -> bool {
        if self.in_one_piece() >= least {
            return true;
        }
        let rest = self.ring.to_end(self.position);
        let there = self.free().saturating_sub(rest).min(self.ring.capacity() - rest);
        if there < ring::taken(least) {
            return false;
        }
        // It is published with the record that follows.
        self.ring.length(self.position).store(MARK, Ordering::Relaxed);
        self.position += rest as u64;
        true
    }

    /// Bytes of a record that would fit here.
    fn in_one_piece(&self) -> usize {
        self.free().min(self.ring.to_end(self.position)).saturating_sub(PREFIX)
    }

    /// A multiple of 64, as both positions are.
    const fn free(&self) -> usize {
        self.ring.capacity() - (self.position - self.read) as usize
    }

    /// Looks where the reader is; `None` where that cannot be.
    fn look(&mut self) -> Option<()> {
        if self.error.is_some() {
            return None;
        }
        let theirs = self.ring.read();
        if !(self.read..=self.published).contains(&theirs) || !theirs.is_multiple_of(ring::STEP as u64) {
            self.error = Some(RingError::Position { theirs, ours: self.published });
            return None;
        }
        self.read = theirs;
        Some(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // [`Neighbours`](super::Neighbours) has the line, too, until it hears of this.
        self.line.end();
    }
}
