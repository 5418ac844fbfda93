//! A program that does this process's work: it gets the signals that this one is sent and not their whole group, and its exit code is this one's.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid, getpgrp};

use crate::signal::is_waiting;
use crate::witness::{Kept, Witness};

/// The signals of this process, kept for a program.
#[derive(Debug)]
pub struct Delegate {
    signals: SignalFd,
    /// What was blocked before.
    mask: SigSet,
}

impl Delegate {
    /// Takes the signals of the calling thread, which must be the only one.
    ///
    /// # Errors
    /// As signalfd(2).
    pub fn new() -> io::Result<Self> {
        let taken: SigSet = TAKEN.into_iter().chain([Signal::SIGCHLD]).collect();
        let mask = taken.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self { signals: SignalFd::with_flags(&taken, SfdFlags::SFD_CLOEXEC)?, mask })
    }

    /// Runs `command` to its end and returns its exit code: 128 + n where signal n ended it. It is asked to end where this process is
    /// killed.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub fn run(&self, command: &mut Command) -> io::Result<u8> {
        let mask = self.mask;
        let prepare = move || {
            prctl::set_pdeathsig(Signal::SIGTERM)?;
            mask.thread_set_mask()?;
            Ok(())
        };
        // SAFETY: `prepare` runs between fork and exec: it makes system calls alone, allocates nothing and takes no lock.
        unsafe { command.pre_exec(prepare) };
        let child = Pid::from_raw(command.spawn()?.id() as i32);
        // What the group is sent before it is there is sent twice; where there is none, as where nobody may start a process, all is.
        let mut witness = Witness::start().ok();
        let mut had = (Kept::default(), Instant::now());
        loop {
            if let Some(code) = ended(child)? {
                return Ok(code);
            }
            let Ok(Some(signal)) = self.signals.read_signal() else { continue };
            let kind = match Signal::try_from(signal.ssi_signo as i32) {
                Ok(kind) if kind != Signal::SIGCHLD => kind,
                _ => continue,
            };
            if had.0.has(kind) && had.1.elapsed() < AGAIN {
                continue;
            }
            thread::sleep(AGAIN);
            let kept = witness.as_ref().and_then(Witness::kept).unwrap_or_default();
            // From the terminal every process in the foreground has had it.
            let is_of_group = signal.ssi_code > 0 || was_sent(kind, kept);
            if is_of_group {
                witness = Witness::start().ok();
            }
            // Told twice, launchers of MPI programs end at once, and leave behind what they have.
            if is_of_group && getpgid(Some(child)) == Ok(getpgrp()) {
                had = (kept, Instant::now());
            } else {
                let _ = kill(child, kind);
            }
            // Whoever had it go on meanwhile does not find it stopped.
            if kind == Signal::SIGTSTP && !is_waiting(Signal::SIGCONT) {
                let _ = stop();
                // What was sent before that has been had.
                had.0 = Kept::default();
            }
        }
    }
}

/// In which whoever signals this process, and then its group, as timeout(1) does, has done both.
const AGAIN: Duration = Duration::from_millis(20);

/// Whether a group had `signal` that has `kept` these: of one to stop and one to go on the kernel keeps the later alone.
fn was_sent(signal: Signal, kept: Kept) -> bool {
    let stops_or_goes_on = matches!(signal, Signal::SIGTSTP | Signal::SIGCONT);
    kept.has(signal) || stops_or_goes_on && (kept.has(Signal::SIGTSTP) || kept.has(Signal::SIGCONT))
}

/// The exit code of `child`, once it has ended.
fn ended(child: Pid) -> io::Result<Option<u8>> {
    match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(_, code)) => Ok(Some(code as u8)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Ok(Some(128 + signal as i32 as u8)),
        Ok(_) | Err(Errno::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Stops this process, as a terminal does: where nobody is there to have it go on, it is not stopped.
fn stop() -> io::Result<()> {
    let stop: SigSet = [Signal::SIGTSTP].into_iter().collect();
    raise(Signal::SIGTSTP)?;
    stop.thread_unblock()?;
    Ok(stop.thread_block()?)
}

/// What people and batch systems end programs with, stop them with, and tell them things.
const TAKEN: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];
