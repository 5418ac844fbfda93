//! Which hosts of a star have joined which multicast groups, and so for whom its core copies a packet.
//!
//! As a snooping switch does it (RFC 4541), without time: nobody asks the hosts what they want, so that what a host
//! has joined holds until it leaves.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use farlink_wire::ip::IpHeader;
use farlink_wire::membership::{Kind, Membership, Wish};

use crate::plan::MOST_HOSTS;

/// What the hosts have joined.
#[derive(Debug)]
pub(crate) struct Groups {
    joined: HashMap<IpAddr, Vec<(u8, Filter)>>,
    /// Hosts that asked the others as multicast routers do: they hear everything (RFC 4541, 2.1.1).
    routers: Hosts,
    everyone: Hosts,
}

/// A set of hosts, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts(u32);

/// The senders that one host wants in one group (RFC 3376, 3).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Filter {
    /// These.
    Include(BTreeSet<IpAddr>),
    /// All but these.
    Exclude(BTreeSet<IpAddr>),
}

impl Hosts {
    const _ALL_FIT: () = assert!(MOST_HOSTS as u32 <= u32::BITS);

    /// One host.
    pub(crate) const fn one(host: u8) -> Self {
        Self(1 << host)
    }

    /// The first `count` hosts.
    fn first(count: usize) -> Self {
        (0..count as u8).map(Self::one).fold(Self::default(), Self::and)
    }

    const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether there are none.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their places, in order.
    pub(crate) fn places(self) -> impl Iterator<Item = usize> {
        (0..u32::BITS as usize).filter(move |place| self.0 >> place & 1 == 1)
    }
}

impl Groups {
    /// Nothing joined, by `hosts` hosts.
    pub(crate) fn new(hosts: usize) -> Self {
        Self { joined: HashMap::new(), routers: Hosts::default(), everyone: Hosts::first(hosts) }
    }

    /// Host `from` sends `packet`, whose header is `ip`: learns from it what the host wants. Whether that is what the
    /// packet is about: else it is data.
    pub(crate) fn learn(&mut self, from: u8, ip: &IpHeader, packet: &[u8]) -> bool {
        match Membership::decode(ip, packet) {
            Ok(Some(Membership::Report(wishes))) => {
                wishes.into_iter().for_each(|wish| self.grant(from, wish));
            }
            // RFC 4541, 2.1.1: a query from nowhere is another switch's, and of no router.
            Ok(Some(Membership::Query)) if !ip.source.is_unspecified() => {
                self.routers = self.routers.and(Hosts::one(from));
            }
            Ok(None) => return false,
            Ok(Some(_)) | Err(_) => {}
        }
        true
    }

    /// The hosts that get a copy of `packet`, which is for a group and from host `from`; `None` where it is no data, and
    /// goes no further.
    pub(crate) fn audience(&self, from: u8, ip: &IpHeader, packet: &[u8]) -> Option<Hosts> {
        let others = |hosts: Hosts| hosts.without(Hosts::one(from));
        match Membership::decode(ip, packet) {
            // RFC 4541, 2.1.1: hosts that heard each other's reports would keep their own back.
            Ok(Some(Membership::Report(_))) => Some(others(self.routers)).filter(|hosts| !hosts.is_empty()),
            Ok(Some(Membership::Query | Membership::Other)) => Some(others(self.everyone)),
            Ok(None) if is_for_everyone(ip.destination) => Some(others(self.everyone)),
            Ok(None) => Some(others(self.members(ip.destination, ip.source).and(self.routers))),
            Err(_) => None,
        }
    }

    /// The groups that host `host` has joined, in order, but for those of the link alone: its kernel joins them by itself.
    pub(crate) fn of(&self, host: usize) -> Vec<IpAddr> {
        let has = |members: &[(u8, Filter)]| members.iter().any(|(member, _)| usize::from(*member) == host);
        let mut groups: Vec<_> = self
            .joined
            .iter()
            .filter(|(_, members)| has(members))
            .map(|(group, _)| *group)
            .filter(reaches_beyond_the_link)
            .collect();
        groups.sort();
        groups
    }

    fn members(&self, group: IpAddr, source: IpAddr) -> Hosts {
        let members = self.joined.get(&group).into_iter().flatten();
        let wanting = members.filter(|(_, filter)| filter.wants(source));
        wanting.fold(Hosts::default(), |hosts, (host, _)| hosts.and(Hosts::one(*host)))
    }

    fn grant(&mut self, host: u8, wish: Wish) {
        let groups = self.joined.len();
        let members = match self.joined.get_mut(&wish.group) {
            Some(members) => members,
            None if groups < MOST_GROUPS => self.joined.entry(wish.group).or_default(),
            None => return,
        };
        let place = members.iter().position(|(member, _)| *member == host);
        let was = place.map_or(Filter::Include(BTreeSet::new()), |place| members.swap_remove(place).1);
        let filter = was.after(wish.kind, wish.sources.into_iter().take(MOST_SOURCES).collect());
        if filter != Filter::Include(BTreeSet::new()) {
            members.push((host, filter));
        }
        if members.is_empty() {
            self.joined.remove(&wish.group);
        }
    }
}

impl Filter {
    fn wants(&self, source: IpAddr) -> bool {
        match self {
            Self::Include(sources) => sources.contains(&source),
            Self::Exclude(sources) => !sources.contains(&source),
        }
    }

    /// What it is after a record of `kind` about `sources` (RFC 3376, 6.4, without timers: the one host behind the link is
    /// asked by nobody, and means what it says).
    fn after(self, kind: Kind, sources: BTreeSet<IpAddr>) -> Self {
        match (kind, self) {
            (Kind::ToInclude, _) => Self::Include(sources),
            (Kind::IsExclude | Kind::ToExclude, _) => Self::Exclude(sources),
            (Kind::IsInclude | Kind::Allow, Self::Include(was)) => Self::Include(bounded(&was | &sources)),
            (Kind::IsInclude | Kind::Allow, Self::Exclude(was)) => Self::Exclude(&was - &sources),
            (Kind::Block, Self::Include(was)) => Self::Include(&was - &sources),
            (Kind::Block, Self::Exclude(was)) => Self::Exclude(bounded(&was | &sources)),
        }
    }
}

fn bounded(sources: BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
    sources.into_iter().take(MOST_SOURCES).collect()
}

/// Whether a group is everyone's without being joined: 224.0.0.0/24 (RFC 4541, 2.1.2) and all nodes of a link (RFC 4541, 3).
fn is_for_everyone(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[..3] == Ipv4Addr::new(224, 0, 0, 0).octets()[..3],
        IpAddr::V6(group) => group == ALL_NODES,
    }
}

/// Whether a group has members beyond one link: not 224.0.0.0/24 (RFC 5771, 4), nor the two narrowest scopes of IPv6
/// (RFC 7346, 2).
fn reaches_beyond_the_link(group: &IpAddr) -> bool {
    match group {
        IpAddr::V4(_) => !is_for_everyone(*group),
        IpAddr::V6(group) => group.octets()[1] & 15 > 2,
    }
}

/// RFC 4291, 2.7.1.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Groups that are joined at once: more are not, so that no host can fill the emulator's memory.
///
/// Linux lets a socket join 20 (`igmp_max_memberships`).
const MOST_GROUPS: usize = 16_384;

/// Senders that one host may name in one group, for the same reason.
///
/// Linux lets a socket name 10 of IPv4 (`igmp_max_msf`) and 64 of IPv6 (`mld_max_msf`).
const MOST_SOURCES: usize = 1024;

#[cfg(test)]
mod tests;
