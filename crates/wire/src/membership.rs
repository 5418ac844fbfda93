//! What hosts say of the multicast groups that they want: IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810).

use core::net::IpAddr;

use crate::checksum::{fold, sum};
use crate::ip::IpHeader;

/// A message about groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// What a host wants from now on: a report or a leave of any version.
    Report(Vec<Wish>),
    /// A router asks who wants what.
    Query,
    /// Of a type that is not known here.
    Other,
}

/// What a host says of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The group: a multicast address.
    pub group: IpAddr,
    /// What about it.
    pub kind: Kind,
    /// Senders that it is about.
    pub sources: Vec<IpAddr>,
}

/// What a record of a report says (RFC 3376, 4.2.12; RFC 3810, 5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It wants these senders, as an answer to a query.
    IsInclude,
    /// It wants all senders but these, as an answer to a query.
    IsExclude,
    /// From now on it wants these senders alone: of none, the group no more.
    ToInclude,
    /// From now on it wants all senders but these.
    ToExclude,
    /// It wants these senders too.
    Allow,
    /// It wants these senders no more.
    Block,
}

/// Why a message about groups was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// It ends too early.
    #[error("{len} bytes end inside a message about groups")]
    Truncated {
        /// Bytes given.
        len: usize,
    },
    /// It was damaged.
    #[error("the checksum of a message about groups is wrong")]
    Checksum,
}

impl Membership {
    /// The message that `packet`, whose header is `ip`, carries; `None` where it is about something else.
    ///
    /// # Errors
    /// [`MembershipError`] where it is about groups and not sound.
    pub fn decode(ip: &IpHeader, packet: &[u8]) -> Result<Option<Self>, MembershipError> {
        let truncated = || MembershipError::Truncated { len: packet.len() };
        if !matches!(ip.protocol, IGMP | ICMPV6) {
            return Ok(None);
        }
        let message = packet.get(ip.payload_at..).ok_or_else(truncated)?;
        let known = match (ip.protocol, *message.first().ok_or_else(truncated)?) {
            (IGMP, 0x11) | (ICMPV6, 130) => Some(Self::Query),
            (IGMP, 0x12 | 0x16) => Some(single(message, 4, Kind::ToExclude).ok_or_else(truncated)?),
            (IGMP, 0x17) => Some(single(message, 4, Kind::ToInclude).ok_or_else(truncated)?),
            (IGMP, 0x22) => Some(records::<4>(message).ok_or_else(truncated)?),
            (ICMPV6, 131) => Some(single(message, 16, Kind::ToExclude).ok_or_else(truncated)?),
            (ICMPV6, 132) => Some(single(message, 16, Kind::ToInclude).ok_or_else(truncated)?),
            (ICMPV6, 143) => Some(records::<16>(message).ok_or_else(truncated)?),
            (IGMP, _) => Some(Self::Other),
            _ => None,
        };
        if known.is_some() && fold(sum(pseudo_header(ip, message.len()), message)) != 0xffff {
            return Err(MembershipError::Checksum);
        }
        Ok(known)
    }
}

/// What is summed before the message: nothing in IGMP (RFC 3376, 4.1.3), a pseudo-header in ICMPv6 (RFC 4443, 2.3).
fn pseudo_header(ip: &IpHeader, len: usize) -> u64 {
    match (ip.source, ip.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let lengths = len as u64 + u64::from(ICMPV6);
            sum(sum(lengths, &source.octets()), &destination.octets())
        }
        _ => 0,
    }
}

/// A message of the first versions: one group, at the end of a fixed part of 8 bytes (IGMP: of 4).
fn single(message: &[u8], address_len: usize, kind: Kind) -> Option<Membership> {
    let at = if address_len == 4 { 4 } else { 8 };
    let group = address(message.get(at..at + address_len)?)?;
    Some(report([Wish { group, kind, sources: Vec::new() }]))
}

/// A message of the last versions: records of addresses of `N` bytes.
fn records<const N: usize>(message: &[u8]) -> Option<Membership> {
    let count = usize::from(u16::from_be_bytes([*message.get(6)?, *message.get(7)?]));
    let mut rest = &message[8..];
    let mut wishes = Vec::new();
    for _ in 0..count {
        let (&[kind, extra_words, high, low], behind) = rest.split_first_chunk()?;
        let (group, behind) = behind.split_first_chunk::<N>()?;
        let sources_len = usize::from(u16::from_be_bytes([high, low])) * N;
        let (sources, behind) = behind.split_at_checked(sources_len)?;
        rest = behind.get(usize::from(extra_words) * 4..)?;
        let kind = match kind {
            1 => Kind::IsInclude,
            2 => Kind::IsExclude,
            3 => Kind::ToInclude,
            4 => Kind::ToExclude,
            5 => Kind::Allow,
            6 => Kind::Block,
            // RFC 3376, 4.2.12: of an unknown type, it is ignored.
            _ => continue,
        };
        let sources = sources.chunks_exact(N).filter_map(address).collect();
        wishes.push(Wish { group: address(group)?, kind, sources });
    }
    Some(report(wishes))
}

/// A report of those wishes that are for groups.
fn report(wishes: impl IntoIterator<Item = Wish>) -> Membership {
    Membership::Report(wishes.into_iter().filter(|wish| wish.group.is_multicast()).collect())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

/// Protocol number of IGMP.
const IGMP: u8 = 2;

/// Protocol number of ICMPv6, of which MLD is a part.
const ICMPV6: u8 = 58;

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet with IGMP's router alert, its checksum set, as Linux sends it.
    fn igmp(message: &[u8]) -> Vec<u8> {
        let mut packet =
            vec![0x46, 0xc0, 0, 0, 0, 0, 0x40, 0, 1, 2, 0, 0, 198, 18, 0, 2, 224, 0, 0, 22, 0x94, 4, 0, 0];
        packet.extend(message);
        let checksum = !fold(sum(0, message));
        packet[26..28].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    /// An IPv6 packet with MLD's router alert, its checksum set, from the unspecified address.
    fn mld(message: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 8 + message.len() as u8, 0, 1];
        packet.extend([0; 16]);
        packet.extend(GROUP6);
        packet.extend([58, 0, 5, 2, 0, 0, 1, 0]);
        packet.extend(message);
        let ip = IpHeader::decode(&packet).unwrap();
        let checksum = !fold(sum(pseudo_header(&ip, message.len()), message));
        packet[50..52].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    const GROUP6: [u8; 16] = [0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];

    fn decoded(packet: &[u8]) -> Result<Option<Membership>, MembershipError> {
        Membership::decode(&IpHeader::decode(packet).unwrap(), packet)
    }

    fn wish(group: impl Into<IpAddr>, kind: Kind, sources: &[[u8; 4]]) -> Wish {
        let sources = sources.iter().map(|source| (*source).into()).collect();
        Wish { group: group.into(), kind, sources }
    }

    #[test]
    fn reads_a_report_and_a_leave_of_every_version_of_igmp() {
        let group = [239, 1, 1, 1];
        for (message, kind) in [(0x12, Kind::ToExclude), (0x16, Kind::ToExclude), (0x17, Kind::ToInclude)] {
            let packet = igmp(&[message, 0, 0, 0, 239, 1, 1, 1]);
            assert_eq!(decoded(&packet), Ok(Some(Membership::Report(vec![wish(group, kind, &[])]))));
        }
        let packet = igmp(&[
            0x22, 0, 0, 0, 0, 0, 0, 3, // three records
            4, 0, 0, 0, 239, 1, 1, 1, // of all senders
            6, 1, 0, 1, 239, 1, 1, 2, 198, 18, 0, 1, 9, 9, 9, 9, // of one, and a word that says nothing
            7, 0, 0, 0, 239, 1, 1, 3, // of an unknown type
        ]);
        let wishes =
            vec![wish(group, Kind::ToExclude, &[]), wish([239, 1, 1, 2], Kind::Block, &[[198, 18, 0, 1]])];
        assert_eq!(decoded(&packet), Ok(Some(Membership::Report(wishes))));
    }

    #[test]
    fn reads_a_report_and_a_leave_of_both_versions_of_mld() {
        for (message, kind) in [(131, Kind::ToExclude), (132, Kind::ToInclude)] {
            let packet = mld(&[&[message, 0, 0, 0, 0, 0, 0, 0], &GROUP6[..]].concat());
            assert_eq!(decoded(&packet), Ok(Some(Membership::Report(vec![wish(GROUP6, kind, &[])]))));
        }
        let packet = mld(&[&[143, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0], &GROUP6[..]].concat());
        let left = wish(GROUP6, Kind::ToInclude, &[]);
        assert_eq!(decoded(&packet), Ok(Some(Membership::Report(vec![left]))));
    }

    #[test]
    fn tells_queries_and_what_is_unknown_from_what_is_about_something_else() {
        assert_eq!(decoded(&igmp(&[0x11, 0, 0, 0, 0, 0, 0, 0])), Ok(Some(Membership::Query)));
        assert_eq!(decoded(&igmp(&[0x30, 0, 0, 0, 0, 0, 0, 0])), Ok(Some(Membership::Other)));
        // An echo request to the group.
        assert_eq!(decoded(&mld(&[128, 0, 0, 0, 0, 0, 0, 0])), Ok(None));
        let mut udp = igmp(&[0; 8]);
        udp[9] = 17;
        assert_eq!(decoded(&udp), Ok(None));
    }

    #[test]
    fn what_was_damaged_or_cut_off_is_refused() {
        let mut packet = igmp(&[0x16, 0, 0, 0, 239, 1, 1, 1]);
        packet[30] ^= 1;
        assert_eq!(decoded(&packet), Err(MembershipError::Checksum));
        let packet = igmp(&[0x22, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 1, 239, 1, 1, 1]);
        assert_eq!(decoded(&packet), Err(MembershipError::Truncated { len: packet.len() }));
        assert_eq!(decoded(&packet[..24]), Err(MembershipError::Truncated { len: 24 }));
    }

    #[test]
    fn an_address_that_is_no_group_is_not_joined() {
        let packet = igmp(&[0x16, 0, 0, 0, 198, 18, 0, 1]);
        assert_eq!(decoded(&packet), Ok(Some(Membership::Report(vec![]))));
    }
}
