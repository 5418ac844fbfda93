//! A time at which who waits is woken, and which can be put off without waking anybody.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use farlink_wire::quantity::Nanos;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// An alarm: a descriptor that can be read from its time on (timerfd_create(2)).
#[derive(Debug)]
pub struct Alarm(TimerFd);

impl Alarm {
    /// One that is set to no time.
    ///
    /// # Errors
    /// The kernel's: no descriptors left.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Self(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?))
    }

    /// Sets it to `at`, of [`monotonic`](crate::clock::monotonic), in place of the time before, whether that is over or not.
    pub fn set(&self, at: Nanos) {
        // Zero would be none.
        let at = TimeSpec::from_duration(std::time::Duration::from_nanos(at.0.max(1)));
        // Fails for what is no time or no timer alone.
        let _ = self.0.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::monotonic;
    use crate::precise::wait_readable;

    use super::*;

    #[test]
    fn an_alarm_can_be_read_from_its_time_on_until_it_is_put_off() {
        let alarm = Alarm::new().unwrap();
        let mut ready = Vec::new();
        let mut look = |time| {
            wait_readable(&[alarm.as_fd()], time, &mut ready).unwrap();
            ready == [true]
        };
        let now = Some(Nanos::ZERO);
        assert!(!look(now));
        let at = monotonic().after(Nanos(2_000_000));
        alarm.set(at);
        assert!(look(None) && monotonic() >= at);
        assert!(look(now));
        alarm.set(Nanos::MAX);
        assert!(!look(now));
        alarm.set(Nanos::ZERO);
        assert!(look(None));
    }
}
