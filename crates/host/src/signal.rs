//! Signals as something to wait for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use farlink_wire::quantity::Nanos;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, raise, sigaction};

use crate::clock::monotonic;
use crate::readiness::Wake;

/// Turns SIGINT, SIGTERM and SIGHUP, where that is not ignored, into a raised [`Wake`], once: one that comes 0.3 s later or more ends the process at once, as if nothing
/// had been caught. Until then it is the same one: timeout(1) and others send it to the process and to its group.
///
/// # Errors
/// The kernel's.
pub fn on_termination() -> io::Result<Wake> {
    let wake = Wake::new()?;
    // The handler may run until the process ends, so the descriptor must stay open until then.
    std::mem::forget(wake.clone());
    TOLD.store(wake.as_fd().as_raw_fd(), Ordering::Release);
    let action = SigAction::new(SigHandler::Handler(terminate), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: `terminate` calls what is async-signal-safe alone: write(2), clock_gettime(2), sigaction(2) and raise(3).
        let before = unsafe { sigaction(signal, &action) }?;
        // As nohup(1) wants it, a terminal that is closed ends nothing.
        if signal == Signal::SIGHUP && matches!(before.handler(), SigHandler::SigIgn) {
            // SAFETY: it is what it was.
            unsafe { sigaction(signal, &before) }?;
        }
    }
    Ok(wake)
}

/// As [`on_termination`], which catches it, of a second signal: only a third ends the process at once.
///
/// # Errors
/// The kernel's.
pub fn on_second_termination() -> io::Result<Wake> {
    let wake = Wake::new()?;
    // As above.
    std::mem::forget(wake.clone());
    TOLD_AGAIN.store(wake.as_fd().as_raw_fd(), Ordering::Release);
    Ok(wake)
}

/// Turns every SIGHUP from now on into a raised [`Wake`].
///
/// # Errors
/// The kernel's.
pub fn on_hangup() -> io::Result<Wake> {
    let wake = Wake::new()?;
    // As above.
    std::mem::forget(wake.clone());
    HUNG_UP.store(wake.as_fd().as_raw_fd(), Ordering::Release);
    let action = SigAction::new(SigHandler::Handler(tell), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: as above.
    unsafe { sigaction(Signal::SIGHUP, &action) }?;
    Ok(wake)
}

/// Has the kernel tell of children that end: where whoever started this process ignored SIGCHLD, it says nothing of them, and keeps no exit
/// code (wait(2)).
///
/// # Errors
/// The kernel's.
pub fn hear_of_children() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is set, and none of ours was before.
    unsafe { sigaction(Signal::SIGCHLD, &default) }?;
    Ok(())
}

/// Whether `signal`, which is blocked, was sent to this process or thread, and not taken yet.
pub(crate) fn is_waiting(signal: Signal) -> bool {
    let mut waiting: libc::sigset_t = *SigSet::empty().as_ref();
    // SAFETY: it writes a set that is there.
    let failed = unsafe { libc::sigpending(&raw mut waiting) } != 0;
    // SAFETY: it is one that the kernel wrote, or empty.
    let waiting = unsafe { SigSet::from_sigset_t_unchecked(waiting) };
    !failed && waiting.contains(signal)
}

/// Does `work` and keeps signals from this thread meanwhile; from threads that it starts, for good.
pub fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let done = work();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    done
}

/// A file that would become longer than this process may write (`RLIMIT_FSIZE`) is an error of its own from now on, and not the process's
/// end.
///
/// # Errors
/// The kernel's.
pub fn survive_long_files() -> io::Result<()> {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is set, and none of ours was before.
    unsafe { sigaction(Signal::SIGXFSZ, &ignore) }?;
    Ok(())
}

extern "C" fn terminate(signal: libc::c_int) {
    let now = monotonic();
    let first = FIRST.compare_exchange(0, now.0.max(1), Ordering::AcqRel, Ordering::Acquire).err();
    if first.is_some_and(|first| now.since(Nanos(first)) > SAME) {
        let again = TOLD_AGAIN.load(Ordering::Acquire);
        let second = SECOND.compare_exchange(0, now.0.max(1), Ordering::AcqRel, Ordering::Acquire).err();
        if again >= 0 && second.is_none_or(|second| now.since(Nanos(second)) <= SAME) {
            raise_in_handler(again);
            return;
        }
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        if let Ok(signal) = Signal::try_from(signal) {
            // SAFETY: no handler is set. It is delivered when this one returns.
            let _ = unsafe { sigaction(signal, &default) };
            let _ = raise(signal);
        }
        return;
    }
    tell(signal);
}

extern "C" fn tell(signal: libc::c_int) {
    let told = if signal == libc::SIGHUP { HUNG_UP.load(Ordering::Acquire) } else { -1 };
    raise_in_handler(if told >= 0 { told } else { TOLD.load(Ordering::Acquire) });
}

/// Raises the [`Wake`] of a descriptor that was leaked open.
fn raise_in_handler(descriptor: i32) {
    let one = 1u64.to_ne_bytes();
    let errno = nix::errno::Errno::last_raw();
    // SAFETY: the descriptor was leaked open before the handler could use it, and the kernel reads 8 bytes of `one`.
    let _ = unsafe { libc::write(descriptor, one.as_ptr().cast(), one.len()) };
    nix::errno::Errno::set_raw(errno);
}

/// When the first signal came that ends this process; 0 before.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// And the second, where that is waited for.
static SECOND: AtomicU64 = AtomicU64::new(0);

/// How much later one is no other, but the same that came by another way.
const SAME: Nanos = Nanos(300_000_000);

/// What [`tell`] writes to when the process is to end.
static TOLD: AtomicI32 = AtomicI32::new(-1);

/// What it writes to when the process is told so a second time.
static TOLD_AGAIN: AtomicI32 = AtomicI32::new(-1);

/// What [`tell`] writes to when the process is to read its configuration again.
static HUNG_UP: AtomicI32 = AtomicI32::new(-1);
