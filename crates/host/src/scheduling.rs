//! How soon a thread runs when its time has come.

use std::io;

use nix::libc;
use nix::sys::prctl;

/// The scheduling that a thread was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// `SCHED_FIFO`: before every ordinary thread.
    Fifo,
    /// The ordinary scheduler, and why.
    Other {
        /// What refused the other.
        reason: String,
    },
}

/// Asks for `SCHED_FIFO` for the calling thread, and for wake-ups without slack either way.
#[must_use]
pub fn urgent() -> Scheduling {
    // Ordinary threads wake up to 50 µs late for the sake of power (timer_slack_ns); a link cannot.
    let _ = prctl::set_timerslack(1);
    let parameter = libc::sched_param { sched_priority: FIFO_PRIORITY };
    // SAFETY: sched_setscheduler reads one sched_param, which outlives the call; 0 is the calling thread.
    let status = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameter)
    };
    if status == 0 {
        return Scheduling::Fifo;
    }
    let error = io::Error::last_os_error();
    Scheduling::Other {
        reason: format!("SCHED_FIFO refused ({error}): run as root or raise the rtprio limit"),
    }
}

/// Above the kernel's own threaded interrupts at 50 would starve them; low is enough to go before all that is ordinary.
const FIFO_PRIORITY: libc::c_int = 10;
