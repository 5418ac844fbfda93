//! The socket beside a ring: a byte wakes the other side, and its end is the other process's.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use nix::unistd::{Pid, getpid};

#[derive(Debug)]
pub(super) struct Line {
    socket: Owned,
    over: AtomicBool,
}

/// A socket that ends with this value, whatever processes were forked meanwhile and have it, too: closing it is not enough then.
#[derive(Debug)]
pub(super) struct Owned {
    socket: OwnedFd,
    /// Whose it is: a forked process may drop its copy.
    process: Pid,
}

impl Owned {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, process: getpid() }
    }

    fn end(&self) {
        if self.process == getpid() {
            // Where the other end has gone, there is nothing to end.
            let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        }
    }
}

impl AsFd for Owned {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.end();
    }
}

impl Line {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket: Owned::new(socket), over: AtomicBool::new(false) }
    }

    /// Whether the other process is known to have ended.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends it for both sides. It stays what can be read until it is dropped, and can be taken out of a poller.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.socket.end();
    }

    /// Wakes the other process.
    pub(super) fn wake(&self) {
        match send(self.socket.as_fd().as_raw_fd(), &[0], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            // Where the line is full, it has been woken often enough.
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => {}
            Err(_) => self.over.store(true, Ordering::Release),
        }
    }

    /// Takes what was said; false where the other process ended.
    pub(super) fn hear(&self) -> bool {
        loop {
            match recv(self.socket.as_fd().as_raw_fd(), &mut [0; 8], MsgFlags::MSG_DONTWAIT) {
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
