//! The socket beside a ring: a byte wakes the other side, and its end is the other process's.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};

#[derive(Debug)]
pub(super) struct Line {
    socket: OwnedFd,
    over: AtomicBool,
}

impl Line {
    pub(super) const fn new(socket: OwnedFd) -> Self {
        Self { socket, over: AtomicBool::new(false) }
    }

    /// Whether the other process is known to have ended.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Wakes the other process.
    pub(super) fn wake(&self) {
        match send(self.socket.as_raw_fd(), &[0], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            // Where the line is full, it has been woken often enough.
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => {}
            Err(_) => self.over.store(true, Ordering::Release),
        }
    }

    /// Takes what was said; false where the other process ended.
    pub(super) fn hear(&self) -> bool {
        loop {
            match recv(self.socket.as_raw_fd(), &mut [0; 8], MsgFlags::MSG_DONTWAIT) {
                Ok(1..) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return true,
                Ok(0) | Err(_) => {
                    self.over.store(true, Ordering::Release);
                    return false;
                }
            }
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
