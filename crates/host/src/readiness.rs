//! Waiting for many descriptors at once, and waking who waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use farlink_wire::quantity::Nanos;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::clock::monotonic;
use crate::precise::{self, wait_readable};

/// What to be told of a descriptor. Its end and its errors are told as readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// That it can be read.
    Read,
    /// That it can be written.
    Write,
    /// Either.
    Both,
}

/// Descriptors that are waited for together, each with a key of the caller's.
#[derive(Debug)]
pub struct Poller {
    epoll: Epoll,
    events: Vec<EpollEvent>,
}

impl Poller {
    /// One that waits for nothing yet.
    ///
    /// # Errors
    /// The kernel's: no descriptors left.
    pub fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, events: vec![EpollEvent::empty(); AT_ONCE] })
    }

    /// Waits for `descriptor` too, from now on.
    ///
    /// # Errors
    /// The kernel's: already there, or of a kind that is always ready.
    pub fn add(&self, descriptor: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        let flags = match interest {
            Interest::Read => EpollFlags::EPOLLIN,
            Interest::Write => EpollFlags::EPOLLOUT,
            Interest::Both => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
        };
        Ok(self.epoll.add(descriptor, EpollEvent::new(flags, key))?)
    }

    /// Waits for `descriptor` no longer.
    ///
    /// # Errors
    /// The kernel's: it is not there.
    pub fn remove(&self, descriptor: impl AsFd) -> io::Result<()> {
        Ok(self.epoll.delete(descriptor)?)
    }

    /// Waits until a descriptor is ready, or `time` is over, and puts the keys of those that are into `ready`:
    /// none where the time was over or a signal came. The time is rounded up to a millisecond.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, time: Nanos, ready: &mut Vec<u64>) -> io::Result<()> {
        ready.clear();
        let millis = u16::try_from(time.0.div_ceil(1_000_000)).unwrap_or(u16::MAX);
        let count = match self.epoll.wait(&mut self.events, EpollTimeout::from(millis)) {
            Err(Errno::EINTR) => 0,
            other => other?,
        };
        ready.extend(self.events[..count].iter().map(EpollEvent::data));
        Ok(())
    }

    /// As [`wait`](Self::wait), to the nanosecond that the kernel's timers keep; `None` is for as long as it takes. What it costs does not
    /// grow with the descriptors, as that of [`wait_readable`] does.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait_precisely(&mut self, time: Option<Nanos>, ready: &mut Vec<u64>) -> io::Result<()> {
        ready.clear();
        let count = match precise::wait_epoll(&self.epoll.0, time, &mut self.events) {
            Err(Errno::EINTR) => 0,
            // A kernel that does not know it (before 5.11).
            Err(Errno::ENOSYS) => {
                let mut any = Vec::new();
                wait_readable(&[self.as_fd()], time, &mut any)?;
                return if any.contains(&true) { self.wait(Nanos::ZERO, ready) } else { Ok(()) };
            }
            other => other?,
        };
        ready.extend(self.events[..count].iter().map(EpollEvent::data));
        Ok(())
    }
}

impl AsFd for Poller {
    /// Can be read when something is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The descriptor is ready.
    Ready,
    /// The wake was raised.
    Stopped,
    /// The time was over.
    Over,
}

/// Waits until `descriptor` is ready, `stop` is raised, or `time` is over.
///
/// # Errors
/// The kernel's.
pub fn wait_for(descriptor: impl AsFd, interest: Interest, stop: &Wake, time: Nanos) -> io::Result<Waited> {
    let flags = match interest {
        Interest::Read => PollFlags::POLLIN,
        Interest::Write => PollFlags::POLLOUT,
        Interest::Both => PollFlags::POLLIN | PollFlags::POLLOUT,
    };
    let began = monotonic();
    loop {
        let left = time.since(monotonic().since(began)).0.div_ceil(1_000_000);
        let millis = PollTimeout::from(u16::try_from(left).unwrap_or(u16::MAX));
        let mut asked =
            [PollFd::new(descriptor.as_fd(), flags), PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        match poll(&mut asked, millis) {
            Ok(0) if monotonic().since(began) >= time => return Ok(Waited::Over),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) if asked[1].any().unwrap_or(false) => return Ok(Waited::Stopped),
            Ok(_) => return Ok(Waited::Ready),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Wakes every [`Poller`] that waits for it, for good.
#[derive(Clone, Debug)]
pub struct Wake(Arc<EventFd>);

impl Wake {
    /// One that has not been raised.
    ///
    /// # Errors
    /// The kernel's: no descriptors left.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_flags(flags)?)))
    }

    /// Makes it readable.
    pub fn raise(&self) {
        // Fails only where it is about to overflow: then it is raised already.
        let _ = self.0.write(1);
    }

    /// Whether it was raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        let mut asked = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Makes it quiet again.
    pub fn lower(&self) {
        let _ = self.0.read();
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Events taken from the kernel in one call; those left over come with the next.
const AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_wake_is_ready_until_it_is_lowered() {
        let (wake, mut poller) = (Wake::new().unwrap(), Poller::new().unwrap());
        poller.add(&wake, 7, Interest::Read).unwrap();
        let mut ready = Vec::new();
        poller.wait(Nanos::ZERO, &mut ready).unwrap();
        assert!(ready.is_empty());
        assert!(!wake.is_raised());
        wake.clone().raise();
        assert!(wake.is_raised());
        for _ in 0..2 {
            poller.wait(Nanos::MAX, &mut ready).unwrap();
            assert_eq!(ready, [7]);
        }
        wake.lower();
        poller.wait(Nanos::ZERO, &mut ready).unwrap();
        assert!(ready.is_empty());
        poller.remove(&wake).unwrap();
    }
}
