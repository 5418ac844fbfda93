//! Where the time of an end's threads goes: the bottleneck is where it goes most.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use farlink_host::clock::monotonic;
use farlink_host::process::ThreadClock;
use farlink_wire::message::copy::Stages;
use farlink_wire::quantity::Nanos;

/// Sums over the threads of one end.
#[derive(Debug)]
pub(crate) struct Timing {
    disk: AtomicU64,
    digest: AtomicU64,
    network: AtomicU64,
    threads: AtomicU32,
    /// Threads that are at work.
    running: Mutex<u32>,
    ended: Condvar,
    cpu: Mutex<Cpu>,
}

/// CPU time of threads that work for an end, of which a process may have others.
#[derive(Debug, Default)]
struct Cpu {
    /// Those that are at it, each with its time before.
    counted: Vec<(ThreadClock, Nanos)>,
    /// What others have taken.
    taken: Nanos,
}

impl Cpu {
    fn sum(&self) -> Nanos {
        let so_far =
            |sum: Nanos, (clock, before): &(ThreadClock, Nanos)| sum.after(clock.read().since(*before));
        self.counted.iter().fold(self.taken, so_far)
    }
}

/// Counts the CPU time of the thread that it was made in for an end, until it is dropped there.
#[derive(Debug)]
pub(crate) struct Counted<'t>(&'t Timing, ThreadClock);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut cpu = self.0.cpu();
        if let Some(at) = cpu.counted.iter().position(|(clock, _)| *clock == self.1) {
            let (clock, before) = cpu.counted.swap_remove(at);
            cpu.taken = cpu.taken.after(clock.read().since(before));
        }
    }
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It reads or writes files.
    Disk,
    /// It hashes.
    Digest,
    /// It waits for the network, or the kernel works for it.
    Network,
}

impl Timing {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let (disk, digest, network) = (zero(), zero(), zero());
        let (threads, cpu) = (AtomicU32::new(0), Mutex::default());
        Self { disk, digest, network, threads, running: Mutex::new(0), ended: Condvar::new(), cpu }
    }

    /// The calling thread works for this end from now on.
    pub(crate) fn count(&self) -> Counted<'_> {
        let clock = ThreadClock::of_this_thread();
        self.cpu().counted.push((clock, clock.read()));
        Counted(self, clock)
    }

    fn cpu(&self) -> MutexGuard<'_, Cpu> {
        self.cpu.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One thread more is at work, before it starts.
    pub(crate) fn on_thread(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// One of them has ended.
    pub(crate) fn on_end(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.ended.notify_all();
    }

    /// Waits until all have ended; they were told to.
    pub(crate) fn wait(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while *running > 0 {
            running = self.ended.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does `work`, and counts its time to `stage`.
    pub(crate) fn during<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let began = monotonic();
        let done = work();
        let sum = match stage {
            Stage::Disk => &self.disk,
            Stage::Digest => &self.digest,
            Stage::Network => &self.network,
        };
        sum.fetch_add(monotonic().since(began).0, Ordering::Relaxed);
        done
    }

    /// The sums so far.
    pub(crate) fn stages(&self) -> Stages {
        let sum = |sum: &AtomicU64| Nanos(sum.load(Ordering::Relaxed));
        Stages {
            disk: sum(&self.disk),
            digest: sum(&self.digest),
            network: sum(&self.network),
            cpu: self.cpu().sum(),
            threads: self.threads.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// Until the calling thread has worked for a hundredth of a second.
    fn work() {
        let clock = ThreadClock::of_this_thread();
        let until = clock.read().after(Nanos(10_000_000));
        while clock.read() < until {
            black_box((0..1000_u32).sum::<u32>());
        }
    }

    #[test]
    fn an_end_has_the_time_of_its_own_threads_alone() {
        let (timing, other) = (Timing::new(), Timing::new());
        let (worked, has_worked) = channel();
        let (leave, may_leave) = channel::<()>();
        thread::scope(|scope| {
            let timing = &timing;
            scope.spawn(move || {
                work();
                let counted = timing.count();
                work();
                worked.send(()).unwrap();
                // It is counted while it waits, too.
                may_leave.recv().unwrap();
                drop(counted);
                work();
            });
            has_worked.recv().unwrap();
            let so_far = timing.stages().cpu;
            assert!((Nanos(10_000_000)..Nanos(20_000_000)).contains(&so_far), "{so_far:?}");
            leave.send(()).unwrap();
        });
        let all = timing.stages().cpu;
        assert!((Nanos(10_000_000)..Nanos(20_000_000)).contains(&all), "{all:?}");
        assert_eq!(other.stages().cpu, Nanos::ZERO);
    }
}
