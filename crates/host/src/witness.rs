//! Whether a signal was sent to this process alone, or to its whole process group: the kernel does not say.

use std::ffi::CStr;
use std::fs;
use std::io;

use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, execvp, fork, getpgrp, getppid, pause, setpgid};

/// A process of this one's group that does nothing but keep the signals that the group is sent, and ends with this one.
#[derive(Debug)]
pub(crate) struct Witness {
    process: Pid,
}

impl Witness {
    /// Starts it. It keeps the signals that the calling thread has blocked, and the thread must be the only one.
    ///
    /// # Errors
    /// As fork(2).
    pub(crate) fn start() -> io::Result<Self> {
        let parent = Pid::this();
        // SAFETY: this thread is the only one, so that nobody else holds what the child may want.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Self { process: child }),
            ForkResult::Child => witness(parent),
        }
    }

    /// What the group was sent since this began, where that is known.
    pub(crate) fn kept(&self) -> Option<Kept> {
        // Whoever signals a group has the kernel's list of processes locked; this waits for it (kernel/sys.c), and is refused then.
        let _ = setpgid(self.process, getpgrp());
        let status = fs::read_to_string(format!("/proc/{}/status", self.process)).ok()?;
        let kept = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(kept.trim(), 16).ok().map(Kept)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = kill(self.process, Signal::SIGKILL);
        let _ = waitpid(self.process, None);
    }
}

/// Signals, as the kernel shows them: a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept(u64);

impl Kept {
    /// Whether `signal` is among them.
    pub(crate) const fn has(self, signal: Signal) -> bool {
        self.0 >> (signal as u32 - 1) & 1 == 1
    }
}

/// What the process does: it becomes a program of another name, so that who signals this one by its name does not mean it.
fn witness(parent: Pid) -> ! {
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    // SAFETY: nothing of this process uses a descriptor any more. Who reads what this program writes is to see its end.
    unsafe { libc::close_range(0, u32::MAX, 0) };
    if getppid() == parent {
        let _ = execvp(SLEEP[0], &SLEEP);
    }
    while getppid() == parent {
        pause();
    }
    // SAFETY: it ends this process, and runs nothing of the other's.
    unsafe { libc::_exit(0) }
}

/// Signals that are blocked stay so.
const SLEEP: [&CStr; 2] = [c"sleep", c"infinity"];

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use nix::sys::signal::{SigSet, killpg, raise};

    use super::*;

    // The processes of a test share the group of whoever started it: one that has its own must be asked.
    #[test]
    fn it_tells_a_signal_of_the_group_from_one_of_a_process() {
        if std::env::var_os(INNER).is_none() {
            let this = std::env::current_exe().unwrap();
            let name = "witness::tests::it_tells_a_signal_of_the_group_from_one_of_a_process";
            let mut inner = Command::new(this);
            inner.args(["--exact", name, "--test-threads=1"]).env(INNER, "1").process_group(0);
            assert!(inner.status().unwrap().success());
            return;
        }
        SigSet::all().thread_block().unwrap();
        let witness = Witness::start().unwrap();
        assert_eq!(witness.kept(), Some(Kept(0)));
        raise(Signal::SIGURG).unwrap();
        assert_eq!(witness.kept(), Some(Kept(0)));
        // The threads of this process that do not block them ignore these.
        killpg(getpgrp(), Signal::SIGWINCH).unwrap();
        let kept = witness.kept().unwrap();
        assert!(kept.has(Signal::SIGWINCH) && !kept.has(Signal::SIGURG) && !kept.has(Signal::SIGTERM));
    }

    const INNER: &str = "FARLINK_TEST_WITNESS";
}
