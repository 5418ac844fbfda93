//! A rate that is not exceeded: tokens come in at the rate, a write takes as many as it has bytes, and waits where there are too few.

use farlink_wire::quantity::{BitsPerSec, Nanos};

/// Holds all streams of a transfer to one rate.
///
/// What may leave in any time `t` is at most `rate × t + burst`, for every `t`, and never less is granted for want of being asked in
/// time: up to `burst` is saved up.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: BitsPerSec,
    burst: u64,
    /// When the bucket was, or will be, empty: later than now while what was taken is still being paid for.
    empty_at: Nanos,
}

impl TokenBucket {
    /// One of `rate` that is full `now`: 5 ms of it may leave at once, and no less than 256 KiB.
    #[must_use]
    pub fn new(rate: BitsPerSec, now: Nanos) -> Self {
        Self::with_burst(rate, (rate.get() / 8 / 200).max(LEAST_BURST), now)
    }

    /// One of `rate` that is full `now`, of which `burst` bytes may leave at once.
    #[must_use]
    pub fn with_burst(rate: BitsPerSec, burst: u64, now: Nanos) -> Self {
        let mut bucket = Self { rate, burst, empty_at: Nanos::ZERO };
        bucket.empty_at = Nanos(now.0.saturating_sub(bucket.time_of(burst).0));
        bucket
    }

    /// Bytes that may leave at once: ask for no more at a time.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// When so many bytes are saved up, at most [`Self::burst`], if nothing is taken until then.
    #[must_use]
    pub fn saved_at(&self, bytes: u64) -> Nanos {
        self.empty_at.after(self.time_of(bytes))
    }

    /// Lets go of what is saved up beyond so many bytes.
    pub fn keep(&mut self, now: Nanos, bytes: u64) {
        self.empty_at = self.empty_at.max(Nanos(now.0.saturating_sub(self.time_of(bytes).0)));
    }

    /// Goes on at another rate. The time for which tokens were saved up, or are owed, stays.
    pub const fn set_rate(&mut self, rate: BitsPerSec, burst: u64) {
        self.rate = rate;
        self.burst = burst;
    }

    /// Lets go of what is owed beyond what comes in until `at`.
    pub fn forgive(&mut self, at: Nanos) {
        self.empty_at = self.empty_at.min(at);
    }

    /// Takes tokens for `bytes`, at most [`Self::burst`], and says how long from `now` to wait before they leave.
    pub fn take(&mut self, now: Nanos, bytes: u64) -> Nanos {
        debug_assert!(bytes <= self.burst, "{bytes} bytes of a burst of {}", self.burst);
        // No more than a burst is saved up.
        let oldest = Nanos(now.0.saturating_sub(self.time_of(self.burst).0));
        self.empty_at = self.empty_at.max(oldest).after(self.time_of(bytes));
        self.empty_at.since(now)
    }

    /// How long `bytes` take at its rate. Rounded up: the rate is not exceeded, by less than one in ten thousand of it.
    #[must_use]
    pub fn time_of(&self, bytes: u64) -> Nanos {
        Nanos((u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(self.rate.get())) as u64)
    }
}

/// The least burst, bytes: four super-packets, so that a low limit does not cost a system call per packet.
const LEAST_BURST: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_rate_holds_over_every_window() {
        for rate in [100_000_000, 2_000_000_000, 40_000_000_000] {
            let mut now = Nanos(5 * SECOND);
            let mut bucket = TokenBucket::new(BitsPerSec::new(rate).unwrap(), now);
            let (begin, burst) = (now, bucket.burst());
            let mut sent = 0;
            while now.since(begin).0 < 2 * SECOND {
                // Bytes leave when the wait is over; now and then the sender was away.
                now = now.after(bucket.take(now, burst.min(64 * 1024)));
                sent += burst.min(64 * 1024);
                let allowed = rate as f64 / 8.0 * now.since(begin).as_secs_f64() + burst as f64;
                assert!(sent as f64 <= allowed + 64.0 * 1024.0, "{sent} of {allowed}");
            }
            let rate_seen = sent as f64 * 8.0 / now.since(begin).as_secs_f64();
            assert!((rate_seen / rate as f64 - 1.0).abs() < 0.02, "{rate_seen} of {rate}");
        }
    }

    #[test]
    fn no_more_than_a_burst_is_saved_up() {
        let mut bucket = TokenBucket::new(BitsPerSec::new(800_000_000).unwrap(), Nanos(SECOND));
        let burst = bucket.burst();
        let later = Nanos(100 * SECOND);
        assert!(bucket.saved_at(burst) <= later);
        assert_eq!(bucket.take(later, burst), Nanos::ZERO);
        assert_eq!(bucket.saved_at(burst), later.after(bucket.time_of(burst)));
        assert!(bucket.take(later, burst) > Nanos::ZERO);
        let later = Nanos(200 * SECOND);
        bucket.keep(later, burst / 2);
        assert_eq!(bucket.take(later, burst / 2), Nanos::ZERO);
        assert!(bucket.take(later, 1000) > Nanos::ZERO);
    }
}
