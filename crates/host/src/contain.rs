//! A process that everything it starts dies with: the first of a PID namespace of its own.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getegid, geteuid, pipe2};

use crate::signal::is_waiting;

/// Why nothing could be contained.
#[derive(Debug, thiserror::Error)]
pub enum ContainError {
    /// No namespace of its own.
    #[error(
        "new user and PID namespaces (run as root, or allow users to make them: \
         sysctl -w user.max_user_namespaces=10000; Ubuntu: also kernel.apparmor_restrict_unprivileged_userns=0)"
    )]
    Unshare(#[source] io::Error),
    /// The user could not be mapped.
    #[error("map the user in {path}")]
    Map {
        /// The file.
        path: &'static str,
        /// As the kernel said it.
        source: io::Error,
    },
    /// Everything else.
    #[error("{attempt}")]
    System {
        /// What was tried.
        attempt: &'static str,
        /// As the kernel said it.
        source: io::Error,
    },
}

/// What the first process is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// SIGTERM or SIGHUP, or SIGINT that a process sent.
    Terminate,
    /// SIGINT from the terminal, which every process in the foreground has had too.
    Interrupt,
    /// A child has ended with this exit code (128 + n for signal n).
    Ended {
        /// Which.
        child: u32,
        /// Its exit code.
        code: u8,
    },
}

/// By what right there are namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// The caller is root.
    Root,
    /// The caller is root of a user namespace of their own.
    User,
}

/// Signals as events, for the process that waits for children.
#[derive(Debug)]
pub struct Events {
    signals: SignalFd,
}

/// Runs `inside` as the first process of a new PID namespace and returns its exit code.
///
/// Whatever ends the calling process, SIGKILL included, ends that process, and its end ends all that it
/// started, and with them every namespace that nobody else holds. An ordinary user gets a user namespace too,
/// in which they are root. The caller must have no threads; signals to it are passed on.
///
/// # Errors
/// [`ContainError`] naming the step.
pub fn run(inside: impl FnOnce(Events, Rights) -> u8) -> Result<u8, ContainError> {
    let rights = isolate()?;
    let events = Events::new().map_err(|errno| system("block signals", errno))?;
    let (alive, keeper) =
        pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|errno| system("open a pipe", errno))?;
    // SAFETY: the process has no other thread, so the child's copy of everything is consistent.
    match unsafe { fork() }.map_err(|errno| system("start a process", errno))? {
        ForkResult::Child => {
            drop(keeper);
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            let _ = prctl::set_name(c"farlink-emulate");
            let mut watched = [PollFd::new(alive.as_fd(), PollFlags::POLLIN)];
            // The parent may have died before the line above: then the pipe's other end is closed.
            if poll(&mut watched, PollTimeout::ZERO) != Ok(0) {
                std::process::exit(1);
            }
            std::process::exit(inside(events, rights).into());
        }
        ForkResult::Parent { child } => {
            drop(alive);
            let code = events.wait_for(child.as_raw() as u32);
            drop(keeper);
            Ok(code)
        }
    }
}

/// The first child of this process will be the first of a PID namespace.
fn isolate() -> Result<Rights, ContainError> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        match unshare(CloneFlags::CLONE_NEWPID) {
            Ok(()) => return Ok(Rights::Root),
            // Root of a container without the right: as an ordinary user then.
            Err(Errno::EPERM) => {}
            Err(errno) => return Err(ContainError::Unshare(errno.into())),
        }
    }
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID)
        .map_err(|errno| ContainError::Unshare(errno.into()))?;
    let map = |path: &'static str, text: &str| {
        fs::write(path, text).map_err(|source| ContainError::Map { path, source })
    };
    // user_namespaces(7): an unprivileged process must give up setgroups before it maps its group.
    map("/proc/self/setgroups", "deny")?;
    map("/proc/self/uid_map", &format!("0 {user} 1"))?;
    map("/proc/self/gid_map", &format!("0 {group} 1"))?;
    Ok(Rights::User)
}

impl Events {
    /// Takes the signals of the calling thread, and of those that it starts from now on; but for those that are ignored, as nohup(1) has
    /// it, and a shell for what it starts in the background.
    ///
    /// # Errors
    /// As signalfd(2).
    pub fn new() -> nix::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            if !is_ignored(signal)? {
                set.add(signal);
            }
        }
        set.thread_block()?;
        Ok(Self { signals: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)? })
    }

    /// Whether the terminal's SIGINT has come, which is not taken. Only what runs already has had it, too.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        is_waiting(Signal::SIGINT)
    }

    /// Waits for what comes next.
    pub fn wait(&self) -> Event {
        loop {
            // One SIGCHLD may stand for several children: look before each wait.
            if let Some(event) = reaped() {
                return event;
            }
            let Ok(Some(signal)) = self.signals.read_signal() else { continue };
            match Signal::try_from(signal.ssi_signo as i32) {
                Ok(Signal::SIGINT) if signal.ssi_code > 0 => return Event::Interrupt,
                Ok(Signal::SIGCHLD) => {}
                _ => return Event::Terminate,
            }
        }
    }

    /// Passes termination on to `child` until it ends; gives its exit code.
    #[must_use]
    pub fn wait_for(&self, child: u32) -> u8 {
        loop {
            match self.wait() {
                Event::Terminate => terminate(child),
                Event::Interrupt => {}
                Event::Ended { child: ended, code } if ended == child => return code,
                Event::Ended { .. } => {}
            }
        }
    }
}

/// Whether a signal is to do nothing.
fn is_ignored(signal: Signal) -> nix::Result<bool> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action the kernel only writes the present one, to a place of its size.
    Errno::result(unsafe { libc::sigaction(signal as libc::c_int, std::ptr::null(), action.as_mut_ptr()) })?;
    // SAFETY: all bytes zero is a value of it, and the call succeeded.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// Asks `child` to end.
pub fn terminate(child: u32) {
    let _ = kill(Pid::from_raw(child as i32), Signal::SIGTERM);
}

/// A child that has ended and was not yet waited for.
fn reaped() -> Option<Event> {
    match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(child, code)) => {
            Some(Event::Ended { child: child.as_raw() as u32, code: code as u8 })
        }
        Ok(WaitStatus::Signaled(child, signal, _)) => {
            Some(Event::Ended { child: child.as_raw() as u32, code: 128 + signal as i32 as u8 })
        }
        _ => None,
    }
}

fn system(attempt: &'static str, errno: Errno) -> ContainError {
    ContainError::System { attempt, source: errno.into() }
}
