//! How long a path is without its queues.

use farlink_wire::quantity::Nanos;

use super::Round;

/// The shortest round-trip time.
///
/// Whoever comes to a path that others fill takes their queue for a part of it, and so would push them aside. So who has not seen the
/// shortest for long looks for it: for a moment hardly anything of its own is under way. All who share a queue see the same then, and so
/// look together the next time (Cardwell et al., BBR, ACM Queue 2016, ProbeRTT).
#[derive(Clone, Debug, Default)]
pub(super) struct Base {
    rtt: Option<Nanos>,
    seen: Nanos,
    look: Option<Look>,
    /// How many looks in a row found a longer one, and the least that they found.
    longer: u32,
    found: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    until: Nanos,
    rounds: u32,
    least: Nanos,
}

impl Base {
    /// A round ended; where it `may`, it begins to look if it is time to.
    pub(super) fn on_round(&mut self, round: &Round, may: bool) {
        if let Some(look) = &mut self.look {
            look.rounds += 1;
            // The first still had what left before.
            if look.rounds > 1 {
                look.least = look.least.min(round.rtt);
            }
            if look.rounds > ROUNDS && round.now >= look.until {
                let least = look.least;
                (self.seen, self.look) = (round.now, None);
                self.on_look(least);
            }
            return;
        }
        let rtt = self.rtt();
        let near = (rtt.0 / 64).max(NEAR.0);
        self.rtt = Some(rtt.min(round.rtt));
        // Of a queue that it keeps itself it knows nothing: what is new, or was seen with little under way.
        if round.rtt.0.saturating_add(near) < rtt.0
            || (!round.limited && round.rtt.0 <= rtt.0.saturating_add(near))
        {
            self.seen = round.now;
        } else if may && round.now.since(self.seen) >= OFTEN.max(Nanos(RARELY * round.rtt.0)) {
            self.look = Some(Look { until: round.now.after(LONG), rounds: 0, least: Nanos::MAX });
        }
    }

    /// What a look found may be others' queue; what each finds is the path's own, which has become longer.
    fn on_look(&mut self, found: Nanos) {
        let rtt = self.rtt();
        if found.0 <= rtt.0.saturating_add(NEAR.0) {
            (self.rtt, self.longer) = (Some(rtt.min(found)), 0);
            return;
        }
        self.found = if self.longer == 0 { found } else { self.found.min(found) };
        self.longer += 1;
        if self.longer == LONGER {
            (self.rtt, self.longer) = (Some(self.found), 0);
        }
    }

    /// Without queues.
    pub(super) fn rtt(&self) -> Nanos {
        self.rtt.unwrap_or(Nanos::MAX)
    }

    /// What a round's was longer: a few datagrams make no queue, and tell of a process that was late.
    pub(super) fn queue(&self, round: &Round) -> Nanos {
        if round.known >= LEAST_TOLD { round.rtt.since(self.rtt()) } else { Nanos::ZERO }
    }

    /// Whether next to nothing is to be under way.
    pub(super) const fn looks(&self) -> bool {
        self.look.is_some()
    }
}

/// Datagrams of a round by which a queue is told.
const LEAST_TOLD: u32 = 8;

/// As good as the shortest.
const NEAR: Nanos = Nanos(100_000);

/// How long the shortest may not have been seen, at least, and in round-trip times.
const OFTEN: Nanos = Nanos(10_000_000_000);
const RARELY: u64 = 60;

/// How long it looks, and how many rounds after the first.
const LONG: Nanos = Nanos(100_000_000);
const ROUNDS: u32 = 2;

/// Looks that must find a longer one.
const LONGER: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn round(now: u64, rtt: u64, limited: bool) -> Round {
        let (now, rtt) = (Nanos(now), Nanos(rtt));
        Round { now, arrived: 0, known: 100, lost: 0, rtt, limited, paced: false }
    }

    #[test]
    fn who_came_late_finds_the_paths_own() {
        let mut base = Base::default();
        let (mut now, mut looked) = (0, Vec::new());
        while now < 40_000_000_000 {
            // A queue of 20 ms, of which half is its own.
            let rtt = if base.looks() { 20_000_000 } else { 30_000_000 + now % 7_000_000 };
            now += rtt;
            let before = base.looks();
            base.on_round(&round(now, rtt, true), true);
            if base.looks() && !before {
                looked.push(now);
            }
        }
        assert_eq!(base.rtt(), Nanos(20_000_000));
        assert!((3..=4).contains(&looked.len()), "{looked:?}");
        assert_eq!(base.queue(&round(now, 27_000_000, true)), Nanos(7_000_000));
    }

    #[test]
    fn who_sees_the_shortest_anyway_does_not_look() {
        let mut base = Base::default();
        for at in 0..10_000 {
            base.on_round(&round(at * 30_000_000, 20_000_000 + at % 50 * 1_000_000, false), true);
            assert!(!base.looks());
        }
    }

    #[test]
    fn a_longer_way_is_seen_in_the_end() {
        let mut base = Base::default();
        for at in 0..2_000 {
            let rtt = if at < 20 { 20_000_000 } else { 60_000_000 };
            base.on_round(&round(at * 30_000_000, rtt, true), true);
        }
        assert_eq!(base.rtt(), Nanos(60_000_000));
    }
}
