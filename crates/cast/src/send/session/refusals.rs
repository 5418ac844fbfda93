//! Who was not let in, and why: said once in a while, as they come again and again.

use std::collections::BTreeMap;
use std::net::IpAddr;

use farlink_wire::quantity::Nanos;

/// When what was said last.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<(IpAddr, String), Nanos>);

impl Refusals {
    /// Whether it was not said for some time that whoever comes from there is refused for that.
    pub(super) fn is_news(&mut self, now: Nanos, from: IpAddr, reason: &str) -> bool {
        self.0.retain(|_, said| now.since(*said) < AGAIN);
        let key = (from, reason.to_owned());
        if self.0.contains_key(&key) {
            return false;
        }
        // Of more than that each is said.
        if self.0.len() < MOST {
            self.0.insert(key, now);
        }
        true
    }
}

/// After how long it is said again.
const AGAIN: Nanos = Nanos(60_000_000_000);

/// Those that are remembered.
const MOST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute() {
        let mut refusals = Refusals::default();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
        assert!(refusals.is_news(at(1), one, "no"));
        assert!(!refusals.is_news(at(30), one, "no"));
        assert!(refusals.is_news(at(30), one, "never") && refusals.is_news(at(30), other, "no"));
        assert!(refusals.is_news(at(61), one, "no"));
        assert!(!refusals.is_news(at(62), other, "no"));
    }
}
