//! Waiting to the nanosecond that the kernel's timers keep.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use farlink_wire::quantity::Nanos;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::EpollEvent;
use nix::sys::signal::SigSet;
use nix::sys::time::TimeSpec;

/// Waits until one of `descriptors` can be read or `time` is over (`None`: for as long as it takes), and
/// says in `ready`, one for one, which can.
///
/// # Errors
/// As ppoll(2).
pub fn wait_readable(
    descriptors: &[BorrowedFd<'_>],
    time: Option<Nanos>,
    ready: &mut Vec<bool>,
) -> io::Result<()> {
    let mut polled: Vec<_> = descriptors.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    ready.clear();
    match ppoll(&mut polled, time.map(time_spec), None::<SigSet>) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    ready.extend(polled.iter().map(|fd| fd.any().unwrap_or(false)));
    Ok(())
}

/// Waits for the descriptors of `epoll`, and writes what it has to say of them: of how many.
///
/// # Errors
/// As epoll_pwait2(2): `ENOSYS` before Linux 5.11.
pub(crate) fn wait_epoll(
    epoll: &OwnedFd,
    time: Option<Nanos>,
    events: &mut [EpollEvent],
) -> Result<usize, Errno> {
    let time = time.map(|time| *time_spec(time).as_ref());
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `events` has room for as many of the kernel's events, which `EpollEvent` is (`repr(transparent)`); the time is there or null
    // for the whole call, and there is no mask of signals.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr().cast::<libc::epoll_event>(),
            events.len() as libc::c_int,
            time,
            ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    Errno::result(count).map(|count| count as usize)
}

fn time_spec(Nanos(time): Nanos) -> TimeSpec {
    TimeSpec::new((time / 1_000_000_000) as i64, (time % 1_000_000_000) as i64)
}

#[cfg(test)]
mod tests {
    use crate::clock::monotonic;
    use crate::readiness::{Interest, Poller, Wake};

    use super::*;

    #[test]
    fn a_wait_ends_when_something_is_ready_and_not_before_its_time() {
        let (mut poller, wake) = (Poller::new().unwrap(), Wake::new().unwrap());
        poller.add(&wake, 7, Interest::Read).unwrap();
        let mut ready = vec![1];
        for time in [0, 1_500, 2_500_000] {
            let began = monotonic();
            poller.wait_precisely(Some(Nanos(time)), &mut ready).unwrap();
            assert!(ready.is_empty() && monotonic().since(began) >= Nanos(time));
        }
        wake.raise();
        for time in [None, Some(Nanos::ZERO), Some(Nanos(1 << 60))] {
            poller.wait_precisely(time, &mut ready).unwrap();
            assert_eq!(ready, [7]);
        }
    }
}
