//! The side of a ring that reads.

use std::sync::atomic::Ordering;

use super::line::Line;
use super::ring::{self, MARK, Ring, RingError};

/// Hears one neighbour.
#[derive(Debug)]
pub struct Reader {
    ring: Ring,
    line: Line,
    key: u64,
    id: u64,
    /// Where the next record begins.
    position: u64,
    /// What was released: before or at `position`.
    released: u64,
    /// Where the writer was when asked last.
    written: u64,
    error: Option<RingError>,
}

impl Reader {
    pub(super) const fn new(ring: Ring, line: Line, key: u64, id: u64) -> Self {
        Self { ring, line, key, id, position: 0, released: 0, written: 0, error: None }
    }

    /// Who speaks, as it introduced itself.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The next record; `None` where there is none, now or for good.
    pub fn read(&mut self) -> Option<&[u8]> {
        let (at, len) = self.advance()?;
        Some(self.ring.bytes(at, len))
    }

    /// Gives the room of all records that were read back to the writer: after each, or after a few.
    pub fn release(&mut self) {
        if self.released == self.position {
            return;
        }
        self.released = self.position;
        if self.ring.release(self.position) {
            self.line.wake();
        }
    }

    pub(super) const fn key(&self) -> u64 {
        self.key
    }

    pub(super) const fn line(&self) -> &Line {
        &self.line
    }

    #[cfg(test)]
    pub(super) const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// False where sleeping is not due.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        self.ring.set_reader_sleeps(true);
        !self.has_more() && !self.is_over()
    }

    pub(super) fn woken(&self) {
        self.ring.set_reader_sleeps(false);
    }

    /// Whether nothing comes any more: the process ended and everything was read, or the ring is broken.
    pub(super) fn is_over(&mut self) -> bool {
        // In this order: what was written before the end was known is there.
        self.error.is_some() || self.line.is_over() && !self.has_more()
    }

    pub(super) const fn take_error(&mut self) -> Option<RingError> {
        self.error.take()
    }

    /// Whether there is something to read. What is no record counts: reading finds that out.
    #[must_use]
    pub fn has_more(&mut self) -> bool {
        self.error.is_none() && (self.position != self.written || self.look().is_some())
    }

    /// Where the next record is and how long; goes behind it.
    fn advance(&mut self) -> Option<(u64, usize)> {
        if self.error.is_some() {
            return None;
        }
        if self.position == self.written {
            self.look()?;
        }
        let mut len = self.ring.length(self.position).load(Ordering::Relaxed);
        // A mark is published with the record behind it, and has none of its kind behind it.
        if len == MARK && self.ring.to_end(self.position) < self.unread() {
            self.position += self.ring.to_end(self.position) as u64;
            len = self.ring.length(self.position).load(Ordering::Relaxed);
        }
        let at = self.position;
        let bytes = len as usize;
        let there = self.unread().min(self.ring.to_end(at));
        if len == 0 || bytes > self.ring.longest() || ring::taken(bytes) > there {
            self.error = Some(RingError::Record { at, len });
            return None;
        }
        self.position += ring::taken(bytes) as u64;
        Some((at, bytes))
    }

    const fn unread(&self) -> usize {
        (self.written - self.position) as usize
    }

    /// Looks where the writer is; `None` where it is where it was, or cannot be.
    fn look(&mut self) -> Option<()> {
        let theirs = self.ring.written();
        if theirs == self.written {
            return None;
        }
        let most = self.released + self.ring.capacity() as u64;
        if !(self.written..=most).contains(&theirs) || !theirs.is_multiple_of(ring::STEP as u64) {
            self.error = Some(RingError::Position { theirs, ours: self.position });
            return None;
        }
        self.written = theirs;
        Some(())
    }
}
