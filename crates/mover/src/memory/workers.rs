//! What the threads of one transfer share: how the streams are divided, and how they end.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use farlink_host::process;
use farlink_host::readiness::Wake;

/// Threads for `streams` where nobody asked for a number: half of the processors, because the far half of the
/// work, the kernel's, is done on the others.
pub(crate) fn usual(streams: usize) -> usize {
    streams.min((process::cores() as usize / 2).max(1))
}

/// The streams of each of `workers` threads, as even as they can be.
pub(crate) fn shares(streams: usize, workers: usize) -> Vec<Range<usize>> {
    let workers = workers.clamp(1, streams.max(1));
    (0..workers).map(|worker| streams * worker / workers..streams * (worker + 1) / workers).collect()
}

/// How the threads of one transfer end: all at once when told, and with the first error of any.
#[derive(Debug)]
pub(crate) struct Finish {
    stop: Wake,
    done: Wake,
    running: AtomicUsize,
    error: Mutex<Option<StreamError>>,
}

impl Finish {
    /// For `workers` threads.
    pub(crate) fn new(workers: usize) -> io::Result<Self> {
        let (stop, done) = (Wake::new()?, Wake::new()?);
        Ok(Self { stop, done, running: AtomicUsize::new(workers), error: Mutex::new(None) })
    }

    /// Raised when they are to end.
    pub(crate) fn stopper(&self) -> &Wake {
        &self.stop
    }

    /// Raised when all have ended.
    pub(crate) fn done(&self) -> &Wake {
        &self.done
    }

    /// Tells them to end.
    pub(crate) fn stop(&self) {
        self.stop.raise();
    }

    /// One has ended. With an error, all end.
    pub(crate) fn ended(&self, outcome: Result<(), StreamError>) {
        if let Err(error) = outcome {
            let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
            self.stop.raise();
        }
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.raise();
        }
    }

    /// The first error, once.
    pub(crate) fn error(&self) -> Option<StreamError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Why a stream broke.
#[derive(Debug, thiserror::Error)]
#[error("stream {stream} broke")]
pub struct StreamError {
    /// Which, from 0.
    pub stream: usize,
    /// The network's own words.
    pub source: io::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_has_one_thread_and_every_thread_a_stream() {
        for streams in 1..40 {
            for workers in 1..10 {
                let shares = shares(streams, workers);
                assert_eq!(shares.len(), workers.min(streams));
                assert!(shares.iter().all(|share| !share.is_empty()));
                assert!(shares.into_iter().flatten().eq(0..streams));
            }
        }
    }
}
