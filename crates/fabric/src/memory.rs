//! The program's memory, as it is lent to operations.

use std::ffi::c_void;
use std::ptr;

use crate::bindings::iovec;
use crate::entry::Code;

/// A piece of it.
#[derive(Clone, Copy, Debug)]
struct Part {
    at: *mut u8,
    len: usize,
}

/// What an operation was lent: pieces that are read, or written, as if they stood behind each other.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    first: Part,
    others: Vec<Part>,
}

// SAFETY: the program lends the memory to the provider, whichever of its threads touches it.
unsafe impl Send for Parts {}

impl Parts {
    /// One piece.
    ///
    /// # Safety
    /// The program lends it, to be read where this is to be sent and to be written else, until it is told that the operation is over.
    pub(crate) unsafe fn one(at: *const c_void, len: usize) -> Result<Self, Code> {
        let first = Part { at: at.cast_mut().cast(), len };
        if (at.is_null() && len > 0) || len > isize::MAX as usize {
            return Err(Code::INVALID);
        }
        Ok(Self { first, others: Vec::new() })
    }

    /// Those of a list.
    ///
    /// # Safety
    /// As [`one`](Self::one), for each; `list` has `count` of them, and is read here only.
    pub(crate) unsafe fn listed(list: *const iovec, count: usize) -> Result<Self, Code> {
        if count > MOST_PARTS || (list.is_null() && count > 0) {
            return Err(Code::INVALID);
        }
        let mut parts = Vec::new();
        for at in 0..count {
            // SAFETY: `list` has `count` of them.
            let each = unsafe { list.add(at) };
            // SAFETY: as above.
            let each = unsafe { each.read() };
            // SAFETY: as the caller says.
            parts.push(unsafe { Self::one(each.iov_base, each.iov_len) }?.first);
        }
        let mut parts = parts.into_iter();
        let first = parts.next().unwrap_or(Part { at: ptr::null_mut(), len: 0 });
        Ok(Self { first, others: parts.collect() })
    }

    /// Bytes of all.
    pub(crate) fn len(&self) -> usize {
        self.all().fold(0, |sum, part| sum.saturating_add(part.len))
    }

    /// Where the first begins: that of the program's buffer, where there is one alone.
    pub(crate) const fn start(&self) -> *mut u8 {
        self.first.at
    }

    /// Copies what stands `offset` bytes after the beginning.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        self.pieces(offset, into.len(), |at, from, len| {
            // SAFETY: `at` has `len` bytes, which the program lends; what it lends is not ours.
            unsafe { ptr::copy_nonoverlapping(at, into[from..from + len].as_mut_ptr(), len) };
        });
    }

    /// Copies to what stands `offset` bytes after the beginning.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.pieces(offset, bytes.len(), |at, from, len| {
            // SAFETY: `at` has `len` bytes, which the program lends; what it lends is not ours.
            unsafe { ptr::copy_nonoverlapping(bytes[from..from + len].as_ptr(), at, len) };
        });
    }

    fn all(&self) -> impl Iterator<Item = Part> {
        [self.first].into_iter().chain(self.others.iter().copied())
    }

    /// Calls `copy` with every piece of `len` bytes from `offset` on: where it is, where it is among those bytes, and how long.
    fn pieces(&self, mut offset: usize, len: usize, mut copy: impl FnMut(*mut u8, usize, usize)) {
        let mut done = 0;
        for part in self.all() {
            if offset >= part.len {
                offset -= part.len;
                continue;
            }
            let here = (part.len - offset).min(len - done);
            if here > 0 {
                // SAFETY: the part has more than `offset` bytes.
                copy(unsafe { part.at.add(offset) }, done, here);
            }
            (done, offset) = (done + here, 0);
        }
        debug_assert_eq!(done, len, "an operation is not asked for more than it was lent");
    }
}

/// Pieces that one operation may have: what `iov_limit` says.
pub(crate) const MOST_PARTS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_and_written_as_one() {
        let (mut left, mut right) = ([1_u8, 2, 3], [4_u8, 5]);
        let list = [
            iovec { iov_base: left.as_mut_ptr().cast(), iov_len: 3 },
            iovec { iov_base: ptr::null_mut(), iov_len: 0 },
            iovec { iov_base: right.as_mut_ptr().cast(), iov_len: 2 },
        ];
        // SAFETY: all of them outlive `parts`.
        let parts = unsafe { Parts::listed(list.as_ptr(), 3) }.unwrap();
        assert_eq!(parts.len(), 5);
        let mut read = [0; 3];
        parts.read(1, &mut read);
        assert_eq!(read, [2, 3, 4]);
        parts.write(2, &[9, 8]);
        assert_eq!((left, right), ([1, 2, 9], [8, 5]));
    }

    #[test]
    fn nothing_is_lent_at_no_address() {
        // SAFETY: no memory is touched.
        assert!(unsafe { Parts::one(ptr::null(), 1) }.is_err());
        // SAFETY: as above.
        let parts = unsafe { Parts::listed(ptr::null(), 0) }.unwrap();
        assert_eq!(parts.len(), 0);
        parts.read(0, &mut []);
    }
}
