//! How long a repair is waited for.

use farlink_wire::quantity::Nanos;

use crate::fabric::path::Path;

/// How long the last piece of what was said would be waited for, had it been lost.
///
/// Where more is said before an answer could have come, as by who sends and receives at a time, that does not depend on the piece: whoever
/// has it tells of the gap, and that is known a round trip behind it. Where nothing is, as by who waits for the answer first, only the path's
/// own time tells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repair {
    /// When something was last said, and whether nothing followed at once.
    said: Option<Nanos>,
    ended: bool,
    /// Smoothed; none where nothing followed yet.
    wait: Option<Nanos>,
}

impl Repair {
    /// A piece is said.
    pub(super) fn on_said(&mut self, now: Nanos, path: &Path) {
        let before = self.said.replace(now);
        let (Some(before), true, Some(rtt)) = (before, std::mem::take(&mut self.ended), path.rtt()) else {
            return;
        };
        let gap = now.since(before);
        let wait = if gap < rtt { gap.after(rtt).min(path.timeout()) } else { path.timeout() };
        let smoothed = self.wait.unwrap_or(path.timeout());
        self.wait = Some(Nanos((7 * smoothed.0 + wait.0) / 8));
    }

    /// Nothing follows at once.
    pub(super) const fn on_silent(&mut self) {
        self.ended = true;
    }

    /// How long it is waited for.
    pub(super) fn wait(&self, path: &Path) -> Nanos {
        self.wait.unwrap_or(path.timeout())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is waited for once a piece was said every so often, over a path of 0.4 ms.
    fn wait(every_us: u64) -> (Nanos, Nanos) {
        let mut path = Path::new(None, 1, 66, Nanos(1));
        (0..100).for_each(|at| path.on_rtt(Nanos(at), Nanos(400_000)));
        let mut repair = Repair::default();
        for at in 1..100 {
            repair.on_said(Nanos(at * every_us * 1000), &path);
            repair.on_silent();
        }
        (repair.wait(&path), path.timeout())
    }

    #[test]
    fn what_is_said_before_an_answer_could_come_tells_of_what_was_lost() {
        let (wait, _) = wait(230);
        assert!((630_000..640_000).contains(&wait.0), "{wait}");
    }

    #[test]
    fn who_waits_for_answers_waits_for_the_paths_own_time() {
        let (wait, timeout) = wait(410);
        assert_eq!(wait, timeout);
    }
}
