//! What an emulation is asked to be, and what that means for each of its links.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use farlink_link::background::Background;
use farlink_link::conditions::{QueueLimit, Reorder};
use farlink_link::{Conditions, Framing, Loss};
use farlink_wire::quantity::{BitsPerSec, Bytes, Fraction, Nanos};

use crate::topology::Topology;

/// A connection between hosts: per path and direction, every two hosts see what is asked here.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What others call it.
    pub name: String,
    /// How many hosts, 2 to 32.
    pub hosts: u8,
    /// What each direction between two hosts is.
    pub path: Conditions,
    /// The hosts' default congestion control; `None` leaves the kernel's.
    pub congestion: Option<String>,
    /// Kernel memory to have touched before the first packet.
    pub prefault: Option<Bytes>,
    /// Every random choice derives from it.
    pub seed: u64,
}

/// Why a plan cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Too few or too many.
    #[error("--hosts {hosts}: a connection has 2 to {MOST_HOSTS} hosts")]
    Hosts {
        /// As asked.
        hosts: u8,
    },
    /// Longer than any planet's.
    #[error("RTT {rtt}: at most {}", MOST_RTT)]
    Rtt {
        /// As asked.
        rtt: Nanos,
    },
    /// Below IPv6's, or above what an IP packet can be.
    #[error("MTU {mtu}: 1280 (IPv6's least, RFC 8200) to 65535")]
    Mtu {
        /// As asked.
        mtu: u32,
    },
    /// Nothing would ever queue.
    #[error("no rate: a connection has one, as in 10gbit")]
    Rate,
    /// SONET is OC-192 here.
    #[error("rate {rate} with sonet framing: OC-192 carries 9.58464gbit and no other rate; leave out --rate")]
    Sonet {
        /// As asked.
        rate: BitsPerSec,
    },
    /// Names become socket names and arguments.
    #[error("name {name:?}: 1 to 32 letters, digits, dots, underscores or hyphens")]
    Name {
        /// As asked.
        name: String,
    },
    /// More than there is memory for.
    #[error(
        "{needed} bytes on the way and in queues at once: at most {MOST_HELD} fit the emulator; \
         lower the rate, the RTT or the queue"
    )]
    Held {
        /// For both directions.
        needed: u64,
    },
    /// Every segment would be dropped, but for those that meet an idle wire.
    #[error("queue {queue} is zero: give it a time at the rate, or a size, as in 50ms or 62.5MB")]
    Queue {
        /// As asked.
        queue: QueueLimit,
    },
    /// Nothing would be left.
    #[error("background {background} leaves nothing of rate {rate}: keep it below")]
    Background {
        /// As asked.
        background: Background,
        /// As asked.
        rate: BitsPerSec,
    },
    /// Each of two access links loses every 2n-th, and what one has lost the other cannot lose.
    #[error(
        "loss every:{every} of paths over two access links: at least every:{LEAST_PERIOD_OF_STAR}; \
         a share, as in 10%, may be any"
    )]
    Period {
        /// As asked.
        every: u64,
    },
    /// The delay cannot vary below zero.
    #[error("jitter {jitter} is more than the one-way delay {delay}: the mean would not be what was asked")]
    Jitter {
        /// As asked.
        jitter: Nanos,
        /// Of one link.
        delay: Nanos,
    },
}

impl Plan {
    /// Refuses what cannot be.
    ///
    /// # Errors
    /// [`PlanError`] naming the value, the reason and the mend.
    pub fn check(&self) -> Result<(), PlanError> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !(1..=32).contains(&self.name.len()) || !self.name.chars().all(good) {
            return Err(PlanError::Name { name: self.name.clone() });
        }
        if !(2..=MOST_HOSTS).contains(&self.hosts) {
            return Err(PlanError::Hosts { hosts: self.hosts });
        }
        let Conditions { rate, mtu, loss, .. } = self.path;
        if !(1280..=65_535).contains(&mtu) {
            return Err(PlanError::Mtu { mtu });
        }
        rate.ok_or(PlanError::Rate)?;
        check_conditions(&self.path)?;
        if let (true, Loss::Periodic(every)) = (self.is_star(), loss)
            && every < LEAST_PERIOD_OF_STAR
        {
            return Err(PlanError::Period { every });
        }
        let links = self.topology().links();
        check_links(&vec![self.conditions(); links])
    }

    /// Whether each host has an access link to a core, rather than the two one link.
    #[must_use]
    pub const fn is_star(&self) -> bool {
        self.topology().is_star()
    }

    /// Which links there are.
    pub(crate) const fn topology(&self) -> Topology {
        Topology::of(self.hosts as usize)
    }

    /// The conditions of each link: of a path's one link, or of each of its two access links.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        if self.is_star() { access(self.path) } else { self.path }
    }

    /// The names of the hosts: a, b, … z, aa, ab, …
    pub fn host_names(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.hosts).map(|index| {
            let letter = |i: u8| char::from(b'a' + i);
            if index < 26 { letter(index).to_string() } else { format!("a{}", letter(index - 26)) }
        })
    }
}

/// What each of two access links does where a path does `whole`.
#[must_use]
pub fn access(whole: Conditions) -> Conditions {
    let half = |share: Fraction| Fraction::new(1.0 - (1.0 - share.get()).sqrt()).unwrap_or_default();
    Conditions {
        delay: Nanos(whole.delay.0 / 2),
        loss: whole.loss.halved(),
        jitter: Nanos(whole.jitter.0 / 2),
        reorder: Reorder { share: half(whole.reorder.share), ..whole.reorder },
        // The second link doubles what the first did, too: (1 + h)² copies of each.
        duplicate: Fraction::new((1.0 + whole.duplicate.get()).sqrt() - 1.0).unwrap_or_default(),
        corrupt: half(whole.corrupt),
        ..whole
    }
}

/// The round-trip time of a path that has `conditions` in each direction.
#[must_use]
pub const fn round_trip(conditions: &Conditions) -> Nanos {
    Nanos(conditions.delay.0.saturating_mul(2))
}

/// Refuses conditions of a path, or of an access link, that cannot be.
///
/// # Errors
/// [`PlanError`] naming the value.
fn check_conditions(conditions: &Conditions) -> Result<(), PlanError> {
    if let (Framing::Sonet, Some(rate)) = (conditions.framing, conditions.rate)
        && rate.get() != Framing::OC192
    {
        return Err(PlanError::Sonet { rate });
    }
    let rtt = round_trip(conditions);
    if rtt > MOST_RTT {
        return Err(PlanError::Rtt { rtt });
    }
    if matches!(conditions.queue, QueueLimit::Time(Nanos(0)) | QueueLimit::Bytes(Bytes(0))) {
        return Err(PlanError::Queue { queue: conditions.queue });
    }
    if let (Some(background), Some(rate)) = (conditions.background, conditions.rate)
        && background.rate >= rate
    {
        return Err(PlanError::Background { background, rate });
    }
    if conditions.jitter > conditions.delay {
        return Err(PlanError::Jitter { jitter: conditions.jitter, delay: conditions.delay });
    }
    Ok(())
}

/// Refuses links that cannot be, or that together hold more than there is memory for.
///
/// # Errors
/// [`PlanError`] naming the value.
pub fn check_links(links: &[Conditions]) -> Result<(), PlanError> {
    links.iter().try_for_each(check_conditions)?;
    let needed = links.iter().filter_map(Conditions::held_bytes).fold(0, u64::saturating_add);
    if needed > MOST_HELD { Err(PlanError::Held { needed }) } else { Ok(()) }
}

/// The IPv4 address of host `index`: of the range for benchmarking (RFC 2544, appendix C.2.2).
#[must_use]
pub fn ipv4(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, index as u8 + 1)
}

/// The IPv6 address of host `index`: of the range for benchmarking (RFC 5180, 8).
#[must_use]
pub fn ipv6(index: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, index as u16 + 1)
}

/// The host of an address, where there may be one.
#[must_use]
pub fn host_of(address: IpAddr) -> Option<usize> {
    let index = match address {
        IpAddr::V4(address) => u32::from(address).checked_sub(u32::from(ipv4(0)))?.into(),
        IpAddr::V6(address) => u128::from(address).checked_sub(u128::from(ipv6(0)))?,
    };
    (index < u128::from(MOST_HOSTS)).then_some(index as usize)
}

/// The length of the prefixes that hold every host's address.
pub const PREFIXES: (u8, u8) = (15, 48);

/// Hosts of one emulation.
pub const MOST_HOSTS: u8 = 32;

/// An hour: the light's way to Jupiter and back and some more.
const MOST_RTT: Nanos = Nanos(3_600_000_000_000);

/// 16 GB: more than a minute of 2 Gb/s, or the two directions of 100 Gb/s for 0.6 s.
pub(crate) const MOST_HELD: u64 = 16_000_000_000;

/// From here on two links that lose every 2n-th each lose one in n together, but for 1%.
const LEAST_PERIOD_OF_STAR: u64 = 25;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;

    pub(crate) fn plan() -> Plan {
        Plan {
            name: "wan".into(),
            hosts: 2,
            path: Conditions {
                rate: Some("10gbit".parse().unwrap()),
                delay: Nanos(45_800_000),
                loss: "1%".parse().unwrap(),
                ..Conditions::default()
            },
            congestion: None,
            prefault: None,
            seed: 1,
        }
    }

    #[test]
    fn two_hosts_share_one_link_each_way() {
        let conditions = plan().conditions();
        assert_eq!(conditions.delay, Nanos(45_800_000));
        assert_eq!(conditions.loss.mean(), 0.01);
    }

    #[test]
    fn a_path_of_a_star_has_what_was_asked_end_to_end() {
        let conditions = Plan { hosts: 5, ..plan() }.conditions();
        assert_eq!(conditions.delay, Nanos(22_900_000));
        assert!((1.0 - (1.0 - conditions.loss.mean()).powi(2) - 0.01).abs() < 1e-12);
    }

    #[test]
    fn hosts_have_names_and_addresses() {
        let names: Vec<_> = Plan { hosts: 28, ..plan() }.host_names().collect();
        assert_eq!((names[0].as_str(), names[25].as_str(), names[27].as_str()), ("a", "z", "ab"));
        assert_eq!(host_of(ipv4(3).into()), Some(3));
        assert_eq!(host_of(ipv6(31).into()), Some(31));
        assert_eq!(host_of("198.18.0.0".parse().unwrap()), None);
        assert_eq!(host_of("239.1.1.1".parse().unwrap()), None);
    }

    #[test]
    fn refuses_what_cannot_be() {
        let refused = |plan: Plan| plan.check().unwrap_err().to_string();
        let with = |change: Change| Plan { path: change.on(plan().path), ..plan() };
        assert!(refused(Plan { hosts: 1, ..plan() }).contains("2 to 32"));
        assert!(refused(Plan { path: Conditions { mtu: 1000, ..plan().path }, ..plan() }).contains("1280"));
        assert!(
            refused(Plan { path: Conditions { rate: None, ..plan().path }, ..plan() }).contains("10gbit")
        );
        let sonet = Conditions { framing: Framing::Sonet, ..plan().path };
        assert!(refused(Plan { path: sonet, ..plan() }).contains("9.58464gbit"));
        assert!(refused(Plan { name: "a/b".into(), ..plan() }).contains("letters"));
        let long = Change { rtt: "2h".parse().ok(), ..Change::default() };
        assert!(refused(with(long)).contains("RTT 7200s: at most"));
        let none = Change { queue: "0B".parse().ok(), ..Change::default() };
        assert!(refused(with(none)).contains("is zero"));
        let full = Change { background: "10gbit".parse().ok(), ..Change::default() };
        assert!(refused(with(full)).contains("keep it below"));
        let shaking = Change { jitter: "50ms".parse().ok(), ..Change::default() };
        assert!(refused(with(shaking)).contains("one-way"));
        let much = Change { rate: "1tbit".parse().ok(), rtt: "1s".parse().ok(), ..Change::default() };
        assert!(refused(with(much)).contains("lower the rate"));
        assert_eq!(plan().check(), Ok(()));
    }
}
