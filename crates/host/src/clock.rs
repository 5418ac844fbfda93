//! Clocks.

use farlink_wire::quantity::Nanos;
use jiff::{Timestamp, Zoned};
use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`: the same for every process of this boot.
#[must_use]
pub fn monotonic() -> Nanos {
    // Fails for a clock that does not exist alone; Linux has this one since 2.6.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(Nanos::ZERO, |time| Nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64))
}

/// The time since midnight as this host's clock on the wall shows it, whole seconds.
#[must_use]
pub fn time_of_day() -> Nanos {
    let now = Zoned::now();
    let part = |part: i8| u64::from(part.unsigned_abs());
    let seconds = (part(now.hour()) * 60 + part(now.minute())) * 60 + part(now.second());
    Nanos(seconds * 1_000_000_000)
}

/// The time of day, RFC 3339, UTC, nanoseconds.
#[must_use]
pub fn rfc3339_now() -> String {
    format!("{:.9}", Timestamp::now())
}

/// The time of day `ago`, RFC 3339, UTC, nanoseconds.
#[must_use]
pub fn rfc3339_before(ago: Nanos) -> String {
    let then = Timestamp::now().checked_sub(std::time::Duration::from_nanos(ago.0));
    format!("{:.9}", then.unwrap_or(Timestamp::UNIX_EPOCH))
}
