//! How long something takes, all times together.

use std::cell::Cell;

use farlink_host::clock::monotonic;
use farlink_wire::quantity::Nanos;

/// Time that was spent on something.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch(Cell<Nanos>);

impl Stopwatch {
    /// Adds the time that `work` takes.
    pub(crate) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = monotonic();
        let done = work();
        self.0.set(self.0.get().after(monotonic().since(begun)));
        done
    }

    /// All of it.
    pub(crate) const fn total(&self) -> Nanos {
        self.0.get()
    }
}
