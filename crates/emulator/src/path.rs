//! What two hosts see of each other: the links between them, as one.

use farlink_link::Conditions;
use farlink_link::background::Background;
use farlink_wire::quantity::{BitsPerSec, Nanos};
use serde::{Deserialize, Serialize};

use crate::lateness::overrun_limit;
use crate::plan::{Plan, round_trip};

/// The path from one host to another, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Path {
    /// The host at its end.
    pub to: String,
    /// The wire's rate: that of the slowest link.
    pub rate_bps: u64,
    /// Payload rate of TCP over IPv4 with timestamps, in full segments.
    pub goodput_bps: f64,
    /// Round-trip time.
    pub rtt_s: f64,
    /// Share of segments lost on the way there.
    pub loss: f64,
    /// Bytes that the slowest link's queue holds.
    pub queue_bytes: u64,
    /// Mean rate of other traffic on the slowest link.
    pub background_bps: u64,
    /// Lateness above which a run over it is overrun.
    pub overrun_limit_s: f64,
}

impl Path {
    /// The path to host `to` over the links `there`, and over `back` again.
    #[must_use]
    pub fn new(to: &str, plan: &Plan, there: &[Conditions], back: &[Conditions]) -> Self {
        let each = plan.conditions();
        let is_as_planned = |link: &Conditions| Conditions { is_cut: each.is_cut, ..*link } == each;
        let path = Self { to: to.to_owned(), ..Self::default() };
        if there.iter().chain(back).all(is_as_planned) {
            // What was asked, as it was asked: halves put together again differ from it in the last digits.
            return path.seen(&plan.path, round_trip(&plan.path), plan.path.loss.mean());
        }
        // Of links of one rate, that with the smaller queue fills first.
        let slowest = there.iter().min_by_key(|link| {
            (link.rate.map_or(u64::MAX, BitsPerSec::get), link.queue_bytes().unwrap_or(u64::MAX))
        });
        let passed: f64 = there.iter().map(|link| 1.0 - link.loss.mean()).product();
        let rtt = Nanos(there.iter().chain(back).map(|link| link.delay.0).sum());
        slowest.map(|link| path.seen(link, rtt, 1.0 - passed)).unwrap_or_default()
    }

    /// With the rate and queue of the link `slowest`.
    fn seen(self, slowest: &Conditions, rtt: Nanos, loss: f64) -> Self {
        let Conditions { rate, framing, mtu, background, .. } = slowest;
        Self {
            rate_bps: rate.map_or(0, BitsPerSec::get),
            goodput_bps: rate.map_or(0.0, |rate| framing.goodput(rate, *mtu)),
            rtt_s: rtt.as_secs_f64(),
            loss,
            queue_bytes: slowest.queue_bytes().unwrap_or(0),
            background_bps: background.as_ref().map_or(0, Background::mean_bps),
            overrun_limit_s: overrun_limit(Nanos(rtt.0 / 2)).as_secs_f64(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use farlink_link::conditions::QueueLimit;

    use super::*;

    fn star() -> Plan {
        Plan {
            name: "wan".into(),
            hosts: 3,
            path: Conditions {
                rate: BitsPerSec::new(10_000_000_000),
                delay: Nanos(10_000_000),
                loss: "1%".parse().unwrap(),
                ..Conditions::default()
            },
            congestion: None,
            prefault: None,
            seed: 1,
        }
    }

    #[test]
    fn untouched_links_are_what_was_asked() {
        let plan = star();
        let link = Conditions { is_cut: true, ..plan.conditions() };
        let path = Path::new("c", &plan, &[link; 2], &[link; 2]);
        assert_eq!((path.rate_bps, path.rtt_s, path.loss), (10_000_000_000, 0.02, 0.01));
        assert_eq!((path.queue_bytes, path.overrun_limit_s), (62_500_000, 0.000_25));
    }

    #[test]
    fn a_changed_link_is_part_of_every_path_over_it() {
        let plan = star();
        let own = plan.conditions();
        let slow = Conditions {
            rate: BitsPerSec::new(1_000_000_000),
            delay: Nanos(45_000_000),
            loss: "5%".parse().unwrap(),
            background: Some("100mbit".parse().unwrap()),
            ..own
        };
        let path = Path::new("c", &plan, &[own, slow], &[slow, own]);
        assert_eq!(
            (path.rate_bps, path.queue_bytes, path.background_bps),
            (1_000_000_000, 6_250_000, 100_000_000)
        );
        assert_eq!(path.rtt_s, 0.1);
        assert!((path.loss - (1.0 - 0.95 * 0.99_f64.sqrt())).abs() < 1e-9, "{}", path.loss);
        assert_eq!(path.overrun_limit_s, 0.000_5);
    }

    #[test]
    fn of_two_links_of_one_rate_the_smaller_queue_counts() {
        let plan = star();
        let own = plan.conditions();
        let short = Conditions { queue: QueueLimit::Time(Nanos(1_000_000)), ..own };
        for there in [[own, short], [short, own]] {
            assert_eq!(Path::new("c", &plan, &there, &there).queue_bytes, 1_250_000);
        }
    }
}
