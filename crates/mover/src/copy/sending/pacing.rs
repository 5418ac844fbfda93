//! How fast a copy leaves, where a limit holds.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use farlink_flow::token_bucket::TokenBucket;
use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Waited, wait_for};
use farlink_wire::frame::BLOCK_BYTES;
use farlink_wire::quantity::{BitsPerSec, Nanos};

use super::Sending;

impl Sending {
    /// How long a block may be on its way before an idle stream sends it too. Under a limit it may wait for those of all `streams`.
    pub(super) fn stale_after(&self, streams: usize) -> Nanos {
        let bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = 2 * streams as u64 * BLOCK_BYTES.start();
        self.manner.stale.after(bucket.as_ref().map_or(Nanos::ZERO, |bucket| bucket.time_of(ahead)))
    }

    /// Waits until `bytes` may leave, or all is over.
    pub(crate) fn pace(&self, bytes: usize) {
        // Before it is known how long: what comes to hold meanwhile is seen.
        let held = self.held.load(Ordering::Relaxed);
        let pause = {
            let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(bucket) = &mut *bucket else { return };
            let mut left = bytes as u64;
            let mut pause = Nanos::ZERO;
            while left > 0 {
                let part = left.min(bucket.burst());
                pause = bucket.take(monotonic(), part);
                left -= part;
            }
            pause
        };
        if pause >= LONG {
            // Under a low limit it may be minutes, in which another may come to hold.
            let until = monotonic().after(pause);
            while self.held.load(Ordering::Relaxed) == held && monotonic() < until {
                let slice = until.since(monotonic()).min(A_WHILE);
                if !matches!(wait_for(&self.halt, Interest::Read, &self.halt, slice), Ok(Waited::Over)) {
                    return;
                }
            }
        } else if pause > Nanos::ZERO {
            thread::sleep(Duration::from_nanos(pause.0));
        }
    }

    /// From now on no more bits per second than `limit`.
    pub(crate) fn hold(&self, limit: Option<BitsPerSec>) {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        *bucket = limit.map(|rate| TokenBucket::new(rate, monotonic()));
        self.held.fetch_add(1, Ordering::Relaxed);
    }
}

/// The pause from which it is waited for the end, too: that is as exact as a millisecond.
const LONG: Nanos = Nanos(50_000_000);

/// How long one that waits for the limit does not look whether that still holds.
const A_WHILE: Nanos = Nanos(500_000_000);
