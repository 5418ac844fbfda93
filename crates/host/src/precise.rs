//! Waiting to the nanosecond that the kernel's timers keep.

use std::io;
use std::os::fd::BorrowedFd;

use farlink_wire::quantity::Nanos;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
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
    let time = time.map(|Nanos(n)| TimeSpec::new((n / 1_000_000_000) as i64, (n % 1_000_000_000) as i64));
    ready.clear();
    match ppoll(&mut polled, time, None::<SigSet>) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    ready.extend(polled.iter().map(|fd| fd.any().unwrap_or(false)));
    Ok(())
}
