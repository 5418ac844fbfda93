//! Where the time of an end's threads goes: the bottleneck is where it goes most.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use farlink_host::clock::monotonic;
use farlink_host::process;
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
    cpu_before: Nanos,
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
        let (threads, cpu_before) = (AtomicU32::new(0), process::cpu_of_process());
        Self { disk, digest, network, threads, running: Mutex::new(0), ended: Condvar::new(), cpu_before }
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
            cpu: Nanos(process::cpu_of_process().0.saturating_sub(self.cpu_before.0)),
            threads: self.threads.load(Ordering::Relaxed),
        }
    }
}
