//! Memory straight from the kernel, in huge pages where it has them.

use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

/// Zeroed memory, private to the process, given back when dropped.
#[derive(Debug)]
pub struct Pages {
    mapping: NonNull<std::ffi::c_void>,
    mapped: usize,
    /// Where the memory starts, aligned to a huge page, within the mapping.
    start: usize,
    len: usize,
}

// SAFETY: the mapping has one owner, and moving that to another thread moves nothing else.
unsafe impl Send for Pages {}

impl Pages {
    /// At least `len` bytes, in huge pages where that is allowed. Nothing is touched yet: see [`Self::prefault`].
    ///
    /// # Errors
    /// As mmap(2).
    pub fn new(len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(HUGE);
        let mapped = NonZeroUsize::new(len + HUGE).unwrap_or(NonZeroUsize::MIN);
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice overlaps nothing.
        let mapping =
            unsafe { mmap_anonymous(None, mapped, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags) }?;
        let start = mapping.as_ptr().addr().next_multiple_of(HUGE) - mapping.as_ptr().addr();
        let pages = Self { mapping, mapped: mapped.get(), start, len };
        // SAFETY: the range is within the mapping, and this advice changes no contents. A kernel without
        // huge pages refuses it and keeps small ones, which is as right and slower.
        let _ = unsafe { madvise(pages.base().cast(), len, MmapAdvise::MADV_HUGEPAGE) };
        Ok(pages)
    }

    /// Touches every page now, so that none is first touched while time matters.
    pub fn prefault(&mut self) {
        for page in self.chunks_mut(SMALL) {
            page[0] = 0;
        }
    }

    const fn base(&self) -> NonNull<u8> {
        // SAFETY: `start` is within the mapping.
        unsafe { self.mapping.cast::<u8>().add(self.start) }
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `base` are mapped readable for the life of `self`, and zero or written since.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, writable, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base().as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and no borrow of it outlives `self`.
        let _ = unsafe { munmap(self.mapping, self.mapped) };
    }
}

/// A huge page of x86-64, and of arm64 with 4 KiB pages.
const HUGE: usize = 2 << 20;

/// The smallest page of any machine that Linux runs on.
const SMALL: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zero_aligned_and_writable() {
        let mut pages = Pages::new(3 << 20).unwrap();
        assert_eq!((pages.len(), pages.as_ptr().addr() % HUGE), (4 << 20, 0));
        pages.prefault();
        assert!(pages.iter().all(|&byte| byte == 0));
        pages[4_000_000] = 7;
        assert_eq!(pages[4_000_000], 7);
    }
}
