//! Whether a signal was sent to this process alone, or to its whole process group: the kernel does not say.

use std::fs;
use std::io;

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpgrp, getppid, pause, setpgid};

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
        // SAFETY: this thread is the only one, and what the child does is system calls.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Self { process: child }),
            ForkResult::Child => witness(parent),
        }
    }

    /// Whether the whole group was sent `signal`, which this process was sent, since this began.
    ///
    /// # Errors
    /// The kernel's, where `/proc` is not there.
    pub(crate) fn had(&self, signal: Signal) -> io::Result<bool> {
        // Whoever signals a group has the kernel's list of processes locked; this waits for it (kernel/sys.c), and changes nothing.
        let _ = setpgid(self.process, getpgrp());
        let status = fs::read_to_string(format!("/proc/{}/status", self.process))?;
        let kept = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let kept = kept.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
        Ok(kept >> (signal as u32 - 1) & 1 == 1)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = kill(self.process, Signal::SIGKILL);
        let _ = waitpid(self.process, None);
    }
}

/// What the process does.
fn witness(parent: Pid) -> ! {
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    // SAFETY: nothing of this process uses a descriptor any more. Who reads what this program writes is to see its end.
    unsafe { nix::libc::close_range(0, u32::MAX, 0) };
    while getppid() == parent {
        pause();
    }
    // SAFETY: it ends this process, and runs nothing of the other's.
    unsafe { nix::libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    // The processes of a test are threads' and share the group of whoever started it: one that has its own must be asked.
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
        let blocked = nix::sys::signal::SigSet::all();
        blocked.thread_block().unwrap();
        let witness = Witness::start().unwrap();
        assert!(!witness.had(Signal::SIGUSR2).unwrap());
        // To this thread alone: the process has others, which do not block it.
        nix::sys::signal::raise(Signal::SIGUSR2).unwrap();
        assert!(!witness.had(Signal::SIGUSR2).unwrap());
        kill(witness.process, Signal::SIGUSR1).unwrap();
        assert!(witness.had(Signal::SIGUSR1).unwrap() && !witness.had(Signal::SIGUSR2).unwrap());
    }

    const INNER: &str = "FARLINK_TEST_WITNESS";
}
