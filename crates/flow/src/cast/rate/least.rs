//! The least of what was seen lately.

use farlink_wire::quantity::Nanos;

/// The least of the present window, and of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Least<T> {
    of: [Option<T>; 2],
    /// When the present one began.
    began: Nanos,
}

impl<T: Copy + Ord> Least<T> {
    pub(super) fn note(&mut self, now: Nanos, value: T) {
        if now.since(self.began) >= WINDOW {
            self.began = now;
            self.of = [None, self.of[0]];
        }
        self.of[0] = Some(self.of[0].map_or(value, |least| least.min(value)));
    }

    pub(super) fn get(&self) -> Option<T> {
        self.of.iter().flatten().min().copied()
    }

    /// Forgets what was before, and takes this for the least.
    pub(super) const fn set(&mut self, value: T) {
        self.of = [Some(value), None];
    }
}

/// For how long, and as long again, it counts: paths change, too.
const WINDOW: Nanos = Nanos(10_000_000_000);
