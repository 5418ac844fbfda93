//! For how long a sending context has heard nothing.

use farlink_wire::quantity::Nanos;

use super::Outgoing;

impl Outgoing {
    /// How long something has been owed and nothing heard.
    #[must_use]
    pub fn silence(&self, now: Nanos) -> Nanos {
        if self.owes() { now.since(self.last_heard) } else { Nanos::ZERO }
    }

    /// It leads to another process than one before it that was silent for so long.
    pub fn take_over(&mut self, silence: Nanos) {
        self.last_heard = self.opened.since(silence);
    }

    /// Whether it has been silent for half of the time that was left, of `most`, when it was opened or last heard of, and for `least`: the
    /// rest is for another that takes over.
    #[must_use]
    pub fn is_doubtful(&self, now: Nanos, most: Nanos, least: Nanos) -> bool {
        let begun = self.last_heard.max(self.opened);
        let left = most.since(begun.since(self.last_heard));
        self.owes() && now.since(begun) >= Nanos(left.0 / 2).max(least)
    }

    /// This process did not run for so long, until now, and could hear nothing: that time is no silence.
    pub fn on_pause(&mut self, now: Nanos, pause: Nanos) {
        for time in [&mut self.opened, &mut self.last_heard] {
            // What happened behind the pause did not happen before it.
            *time = time.after(pause).min(now);
        }
    }
}
