//! Whether this process is the one in which something was made, or was forked from that since.

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

/// The process in which it was made. To ask costs a load, as it is asked with each call.
#[derive(Debug)]
pub struct Origin(NonNull<AtomicU8>);

// SAFETY: the page is read alone once it was made, and stays mapped as long as this lives.
unsafe impl Send for Origin {}
// SAFETY: as above.
unsafe impl Sync for Origin {}

impl Origin {
    /// This process.
    ///
    /// # Errors
    /// As mmap(2) and madvise(2).
    pub fn here() -> io::Result<Self> {
        // SAFETY: a mapping of its own, at an address that the kernel chooses.
        let page = unsafe {
            mmap_anonymous(None, PAGE, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)?
        };
        let origin = Self(page.cast());
        // SAFETY: all of the mapping, which is anonymous and private: in a child it is zero (madvise(2), Linux 4.14).
        unsafe { madvise(page, PAGE.get(), MmapAdvise::MADV_WIPEONFORK)? };
        origin.byte().store(1, Ordering::Relaxed);
        Ok(origin)
    }

    /// Whether this is that process.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.byte().load(Ordering::Relaxed) == 1
    }

    const fn byte(&self) -> &AtomicU8 {
        // SAFETY: mapped as long as `self` lives, and zero is a value of it.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and no borrow of it outlives `self`.
        let _ = unsafe { munmap(self.0.cast(), PAGE.get()) };
    }
}

/// The kernel makes it a whole page, of whatever size those are.
const PAGE: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

#[cfg(test)]
mod tests {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    #[test]
    fn a_child_is_another_process() {
        let origin = Origin::here().unwrap();
        assert!(origin.is_here());
        // SAFETY: the child reads one byte, and ends at once.
        match unsafe { fork() }.unwrap() {
            // SAFETY: it ends the process, and nothing else.
            ForkResult::Child => unsafe { nix::libc::_exit(i32::from(origin.is_here())) },
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            }
        }
        assert!(origin.is_here());
    }
}
