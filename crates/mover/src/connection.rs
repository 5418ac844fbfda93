//! What an emulated host knows of its connection, and how well the emulator kept up.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::time::Duration;

use farlink_host::abstract_socket::connect_to_own;
use farlink_wire::record::{EmulatorHealth, Record};
use serde_json::Value;

/// The emulated connection that this host stands on, as its emulator showed it at one time.
///
/// Read leniently: an emulator of another release may say more, or less.
#[derive(Clone, Debug)]
pub struct Emulated(Value);

impl Emulated {
    /// Asks the emulator of this host; `None` where there is none.
    #[must_use]
    pub fn of_this_host() -> Option<Self> {
        // Anybody may have that name on a host that nobody emulates.
        let mut stream = connect_to_own(SOCKET).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(b"{\"show\":null}\n").ok()?;
        let mut line = String::new();
        BufReader::new(stream.take(LONGEST)).read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok().filter(Value::is_object).map(Self)
    }

    /// The addresses of its hosts that are in the ranges reserved for benchmarking.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let hosts = self.0["hosts"].as_array().into_iter().flatten();
        let listed = hosts.flat_map(|host| [&host["ipv4"], &host["ipv6"]]).filter_map(Value::as_str);
        listed
            .filter_map(|address| address.parse().ok())
            .filter(|address| is_for_benchmarks(*address))
            .collect()
    }

    /// Fills in what the emulator knows of the path to `peer`, a host's address or a group's, over which `record` was made.
    pub fn describe(&self, record: &mut Record, peer: IpAddr) {
        let ipv6 = peer.is_ipv6();
        let field = |name: &str| &self.0[name];
        let path = self.path(peer);
        record.rate_bps = path["rate_bps"].as_u64();
        record.rtt_s = path["rtt_s"].as_f64().or(record.rtt_s);
        record.loss = path["loss"].as_f64();
        record.queue_bytes = path["queue_bytes"].as_u64();
        record.background_bps = path["background_bps"].as_u64();
        record.framing = field("framing").as_str().map(str::to_owned);
        record.seed = field("seed").as_u64();
        let mtu = field("mtu").as_u64().and_then(|mtu| u32::try_from(mtu).ok());
        record.mtu = mtu.or(record.mtu);
        // What the emulator says is for IPv4; an IPv6 header is 20 bytes longer.
        record.goodput_bps = match (path["goodput_bps"].as_f64(), mtu) {
            (Some(goodput), Some(mtu)) if ipv6 && mtu > HEADERS_IPV6 => {
                Some(goodput * f64::from(mtu - HEADERS_IPV6) / f64::from(mtu - HEADERS_IPV4))
            }
            (goodput, _) if !ipv6 => goodput,
            _ => None,
        };
    }

    /// What the path to `peer` is; to a group, what the paths to all others have in common.
    fn path(&self, peer: IpAddr) -> Value {
        let Some(paths) = self.0["paths"].as_array() else { return self.0.clone() };
        let is_peer = |host: &&Value| {
            [&host["ipv4"], &host["ipv6"]]
                .iter()
                .any(|at| at.as_str().and_then(|at| at.parse().ok()) == Some(peer))
        };
        let name = self.0["hosts"].as_array().into_iter().flatten().find(is_peer).map(|host| &host["name"]);
        if let Some(path) = paths.iter().find(|path| name.is_some_and(|name| path["to"] == *name)) {
            return path.clone();
        }
        let mut common = paths.first().cloned().unwrap_or_default();
        if let Some(fields) = common.as_object_mut() {
            fields.retain(|field, value| paths.iter().all(|path| path[field] == *value));
        }
        common
    }

    /// Says of the connection to `peer` what it is, and how the emulator has done since this was seen.
    pub fn note_in(&self, record: &mut Record, peer: IpAddr) {
        self.describe(record, peer);
        record.emulator = Self::of_this_host().and_then(|now| now.health_since(self));
    }

    /// How late packets left from `before` until now, worst over the links; `None` where it does not say.
    #[must_use]
    pub fn health_since(&self, before: &Self) -> Option<EmulatorHealth> {
        let limit = self.0["overrun_limit_s"].as_f64()?;
        let stolen = |state: &Self| state.0["stolen_s"].as_f64();
        let stolen_s = stolen(self).map(|now| now - stolen(before).unwrap_or(0.0));
        let mut worst = EmulatorHealth { stolen_s, ..EmulatorHealth::default() };
        for link in self.0["links"].as_array()? {
            let same = |other: &&Value| other["from"] == link["from"] && other["to"] == link["to"];
            let earlier = before.0["links"].as_array().and_then(|links| links.iter().find(same));
            let late = Lateness::of(link).less(earlier.map(Lateness::of).unwrap_or_default());
            let unread = |link: &Value| link["dropped"]["unread"].as_u64().unwrap_or(0);
            let lost = unread(link) > earlier.map_or(0, unread);
            let p99 = late.percentile_99();
            worst.late_p99_s = worst.late_p99_s.max(p99);
            worst.late_max_s = worst.late_max_s.max(late.latest());
            worst.overrun |= p99 > limit || lost;
        }
        Some(worst)
    }
}

/// How many packets left how late: upper bound of the lateness, and packets.
#[derive(Debug, Default)]
struct Lateness(Vec<(f64, u64)>);

impl Lateness {
    fn of(link: &Value) -> Self {
        let pair = |pair: &Value| Some((pair[0].as_f64()?, pair[1].as_u64()?));
        Self(link["late"].as_array().into_iter().flatten().filter_map(pair).collect())
    }

    /// Those that came since `before`; counts only grow.
    fn less(self, before: Self) -> Self {
        let before: BTreeMap<_, _> =
            before.0.into_iter().map(|(bound, count)| (bound.to_bits(), count)).collect();
        let since =
            |count: u64, bound: f64| count.saturating_sub(before.get(&bound.to_bits()).copied().unwrap_or(0));
        let mut left: Vec<_> =
            self.0.into_iter().map(|(bound, count)| (bound, since(count, bound))).collect();
        left.sort_by(|one, other| one.0.total_cmp(&other.0));
        Self(left)
    }

    /// The bound of the bucket in which 99% are reached.
    fn percentile_99(&self) -> f64 {
        let total: u128 = self.0.iter().map(|(_, count)| u128::from(*count)).sum();
        let mut reached = 0;
        let bucket = self.0.iter().find(|(_, count)| {
            reached += u128::from(*count);
            reached > 0 && reached * 100 >= total * 99
        });
        bucket.map_or(0.0, |(bound, _)| *bound)
    }

    /// The bound of the last bucket that has any.
    fn latest(&self) -> f64 {
        self.0.iter().rev().find(|(_, count)| *count > 0).map_or(0.0, |(bound, _)| *bound)
    }
}

/// Whether `address` is of a range reserved for benchmarking: 198.18.0.0/15 (RFC 2544) or 2001:2::/48 (RFC 5180).
pub(crate) fn is_for_benchmarks(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [198, 18 | 19, ..]),
        IpAddr::V6(address) => address.segments()[..3] == [0x2001, 0x2, 0],
    }
}

/// The emulator's abstract socket, seen inside its hosts alone.
const SOCKET: &str = "farlink";

/// How long the emulator may take to answer: it is on this machine.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of the longest answer that is read: 32 hosts with a link each way and full histograms are far below.
const LONGEST: u64 = 4 << 20;

/// IPv4 and TCP headers with the timestamp option, bytes.
const HEADERS_IPV4: u32 = 52;

/// IPv6 and TCP headers with the timestamp option, bytes.
pub(crate) const HEADERS_IPV6: u32 = 72;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use serde_json::json;

    use super::*;

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    fn shown(late: &Value, unread: u64) -> Emulated {
        Emulated(json!({
            "rate_bps": 10_000_000_000u64, "goodput_bps": 8948.0, "rtt_s": 0.0916, "mtu": 9000, "seed": 7,
            "overrun_limit_s": 0.00025, "framing": "ethernet",
            "hosts": [{"name": "a", "ipv4": "198.18.0.1", "ipv6": "2001:2::1"}, {"name": "b", "ipv4": "10.0.0.1"}],
            "links": [{"from": "a", "to": "b", "dropped": {"unread": unread}, "late": late}],
        }))
    }

    #[test]
    fn lateness_is_what_came_between_two_looks() {
        let before = shown(&json!([[0.0001, 1000], [0.01, 500]]), 3);
        let after = shown(&json!([[0.0001, 1990], [0.001, 10], [0.01, 500]]), 3);
        let health = after.health_since(&before).unwrap();
        assert_eq!(
            health,
            EmulatorHealth { late_max_s: 0.001, late_p99_s: 0.0001, overrun: false, stolen_s: None }
        );
    }

    #[test]
    fn late_packets_and_packets_that_were_never_read_are_an_overrun() {
        let before = shown(&json!([[0.0001, 0]]), 3);
        assert!(shown(&json!([[0.0001, 50], [0.001, 50]]), 3).health_since(&before).unwrap().overrun);
        assert!(shown(&json!([[0.0001, 50]]), 4).health_since(&before).unwrap().overrun);
        assert!(!shown(&json!([]), 3).health_since(&before).unwrap().overrun);
    }

    #[test]
    fn only_addresses_for_benchmarks_are_its_own() {
        let expected: [IpAddr; 2] = ["198.18.0.1".parse().unwrap(), "2001:2::1".parse().unwrap()];
        assert_eq!(shown(&json!([]), 0).addresses(), expected);
    }

    #[test]
    fn goodput_is_that_of_the_ip_version() {
        let mut record = Record { rtt_s: Some(1.0), ..Record::default() };
        shown(&json!([]), 0).describe(&mut record, V4);
        assert_eq!((record.goodput_bps, record.rtt_s, record.seed), (Some(8948.0), Some(0.0916), Some(7)));
        shown(&json!([]), 0).describe(&mut record, V6);
        assert_eq!(record.goodput_bps, Some(8928.0));
    }

    #[test]
    fn each_path_of_a_star_is_described_by_itself() {
        let star = Emulated(json!({
            "rate_bps": 10_000_000_000u64, "rtt_s": 0.0916, "loss": 0.0, "mtu": 9000,
            "hosts": [{"name": "a", "ipv4": "198.18.0.1"}, {"name": "b", "ipv4": "198.18.0.2"}, {"name": "c", "ipv4": "198.18.0.3"}],
            "paths": [
                {"to": "b", "rate_bps": 10_000_000_000u64, "rtt_s": 0.0916, "loss": 0.0},
                {"to": "c", "rate_bps": 1_000_000_000u64, "rtt_s": 0.0916, "loss": 0.05},
            ],
        }));
        let described = |peer: &str| {
            let mut record = Record::default();
            star.describe(&mut record, peer.parse().unwrap());
            (record.rate_bps, record.rtt_s, record.loss)
        };
        assert_eq!(described("198.18.0.2"), (Some(10_000_000_000), Some(0.0916), Some(0.0)));
        assert_eq!(described("198.18.0.3"), (Some(1_000_000_000), Some(0.0916), Some(0.05)));
        // A group: what holds for all of it.
        assert_eq!(described("239.1.1.1"), (None, Some(0.0916), None));
    }

    #[test]
    fn an_emulator_that_says_little_is_no_error() {
        let mut record = Record { rtt_s: Some(1.0), ..Record::default() };
        let little = Emulated(json!({"hosts": 5, "links": [{}]}));
        little.describe(&mut record, V6);
        assert_eq!(record.rtt_s, Some(1.0));
        assert!(little.addresses().is_empty() && little.health_since(&little).is_none());
    }
}
