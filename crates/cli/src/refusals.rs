//! What a server says of those whom it does not let in: anybody may come as often as he likes, and what is said of him is not to fill a log.

use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Who was refused lately.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// Who came last, why he was refused, and when.
    last: Option<(IpAddr, String, Instant)>,
    /// When the current second began, and how many were told of in it.
    second: Option<(Instant, u32)>,
    untold: u64,
}

impl Refusals {
    /// How many were not told of, at the end.
    pub(crate) const fn untold(&self) -> u64 {
        self.untold
    }

    /// Whether it is to be told that `from` was refused for `reason`, and how many before him were not told of. Of the same host it was just
    /// now where it was for the same reason: a client opens several connections, and each is refused.
    pub(crate) fn tells(&mut self, from: IpAddr, reason: &str, now: Instant) -> Option<u64> {
        let is_same = |(ip, why, at): &(IpAddr, String, Instant)| {
            *ip == from && why == reason && now.duration_since(*at) < AT_ONCE
        };
        if self.last.as_ref().is_some_and(is_same) {
            return None;
        }
        let (began, told) =
            self.second.filter(|(began, _)| now.duration_since(*began) < SECOND).unwrap_or((now, 0));
        if told >= MOST {
            self.untold += 1;
            return None;
        }
        self.second = Some((began, told + 1));
        self.last = Some((from, reason.to_owned(), now));
        Some(std::mem::take(&mut self.untold))
    }
}

/// How long connections of one client may come after its first.
const AT_ONCE: Duration = Duration::from_secs(2);

const SECOND: Duration = Duration::from_secs(1);

/// Refusals that are told of in a second.
const MOST: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_told_of_by_its_number() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let host = |last: u8| IpAddr::from([192, 0, 2, last]);
        assert_eq!(refusals.tells(host(1), "no key", start), Some(0));
        assert_eq!(refusals.tells(host(1), "no key", start + SECOND), None, "of the same client");
        assert_eq!(refusals.tells(host(1), "no key", start + AT_ONCE), Some(0));
        assert_eq!(refusals.tells(host(1), "another key", start + AT_ONCE), Some(0));
        let (crowd, later) = (start + 2 * AT_ONCE, start + 2 * AT_ONCE + SECOND);
        let told = (0..100).filter_map(|last| refusals.tells(host(last), "no key", crowd)).count();
        assert_eq!(told, 10);
        assert_eq!(refusals.tells(host(1), "no key", later), Some(90));
        assert_eq!(refusals.tells(host(2), "no key", later), Some(0));
    }
}
