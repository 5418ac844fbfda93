//! How soon a thread runs when its time has come.

use std::io;

use nix::libc;
use nix::sys::prctl;

/// The scheduling that a thread was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// `SCHED_FIFO`: before every ordinary thread.
    Fifo,
    /// `SCHED_RR`: before every ordinary thread, and in turn with others like it.
    RoundRobin,
    /// The ordinary scheduler, and why.
    Other {
        /// What refused the other.
        reason: String,
    },
}

impl Scheduling {
    /// Whether the thread goes before ordinary ones.
    #[must_use]
    pub const fn is_realtime(&self) -> bool {
        !matches!(self, Self::Other { .. })
    }
}

/// Asks for `SCHED_FIFO` for the calling thread, and for wake-ups without slack either way.
#[must_use]
pub fn urgent() -> Scheduling {
    schedule(libc::SCHED_FIFO, Scheduling::Fifo)
}

/// Asks for `SCHED_RR` for the calling thread, and for wake-ups without slack either way.
#[must_use]
pub fn urgent_in_turn() -> Scheduling {
    schedule(libc::SCHED_RR, Scheduling::RoundRobin)
}

/// Wakes the calling thread on time: ordinary threads wake up to 50 µs late for the sake of power (timer_slack_ns).
pub fn wake_on_time() {
    let _ = prctl::set_timerslack(1);
}

fn schedule(policy: libc::c_int, granted: Scheduling) -> Scheduling {
    wake_on_time();
    let parameter = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: sched_setscheduler reads one sched_param, which outlives the call; 0 is the calling thread.
    let status =
        unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const parameter) };
    if status == 0 {
        return granted;
    }
    let error = io::Error::last_os_error();
    let name = if policy == libc::SCHED_RR { "SCHED_RR" } else { "SCHED_FIFO" };
    Scheduling::Other { reason: format!("{name} refused ({error}): run as root or raise the rtprio limit") }
}

/// Above the kernel's own threaded interrupts at 50 would starve them; low is enough to go before all that is ordinary.
const PRIORITY: libc::c_int = 10;
