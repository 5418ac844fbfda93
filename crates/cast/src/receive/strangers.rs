//! Hosts that packets came from and that had no session to join: each is left alone for a while, so that none keeps this end from its sender.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use farlink_wire::quantity::Nanos;

/// Those hosts. What packets say of where they come from may be anything: memory and attempts are bounded.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// Until when each is left alone, and for how long that was.
    alone: BTreeMap<IpAddr, (Nanos, Nanos)>,
    /// Hosts without a known key that were asked: so that the user learns what their keys are.
    unknown: BTreeSet<IpAddr>,
}

impl Strangers {
    /// Whether what comes from a host is passed over now.
    pub(super) fn is_left_alone(&self, now: Nanos, address: IpAddr) -> bool {
        self.alone.get(&address).is_some_and(|(until, _)| now < *until)
    }

    /// Whether a host may be asked; one whose key is not known only where it is among the first of those. One that may not is left alone.
    pub(super) fn may_be_asked(&mut self, now: Nanos, address: IpAddr, is_known: bool) -> bool {
        if is_known || self.unknown.contains(&address) {
            return true;
        }
        if self.unknown.len() < MOST_UNKNOWN {
            return self.unknown.insert(address);
        }
        self.add(now, address);
        false
    }

    /// No session could be joined there: each time it is left alone for twice as long.
    pub(super) fn add(&mut self, now: Nanos, address: IpAddr) {
        let time = match self.alone.get(&address) {
            Some((_, before)) => Nanos(2 * before.0).min(LONGEST),
            None => FIRST,
        };
        if self.alone.len() >= MOST
            && let Some(first) = self.alone.iter().min_by_key(|(_, (until, _))| *until)
        {
            let first = *first.0;
            self.alone.remove(&first);
        }
        self.alone.insert(address, (now.after(time), time));
    }
}

/// How long a host is left alone the first time, and how long at most.
const FIRST: Nanos = Nanos(200_000_000);
const LONGEST: Nanos = Nanos(10_000_000_000);

/// Hosts that are remembered.
const MOST: usize = 256;

/// Hosts without a known key that are asked for it.
const MOST_UNKNOWN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn each_time_a_host_is_left_alone_for_longer() {
        let mut strangers = Strangers::default();
        let mut now = Nanos(1);
        let mut last = Nanos::ZERO;
        for _ in 0..20 {
            assert!(!strangers.is_left_alone(now, host(1)));
            strangers.add(now, host(1));
            let begun = now;
            while strangers.is_left_alone(now, host(1)) {
                now = now.after(Nanos(FIRST.0 / 2));
            }
            assert!(now.since(begun) >= last);
            last = now.since(begun);
        }
        assert_eq!(last, LONGEST);
        assert!(!strangers.is_left_alone(now, host(2)));
    }

    #[test]
    fn a_flood_of_names_keeps_nobody_who_is_known_from_being_asked() {
        let mut strangers = Strangers::default();
        let asked = (10..10_000).filter(|number| strangers.may_be_asked(Nanos(1), host(*number), false));
        assert_eq!(asked.count(), MOST_UNKNOWN);
        assert!(strangers.may_be_asked(Nanos(1), host(1), true));
        assert!(!strangers.is_left_alone(Nanos(1), host(1)));
        assert!(strangers.alone.len() <= MOST);
    }
}
