use farlink_wire::checksum::{fold, sum};

use super::*;

const A: [u8; 4] = [198, 18, 0, 1];
const GROUP: [u8; 4] = [239, 1, 1, 1];
const OTHER: [u8; 4] = [239, 1, 1, 2];

/// An IPv4 packet of `protocol` from `source`.
fn packet(source: [u8; 4], destination: [u8; 4], protocol: u8, message: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 1, protocol, 0, 0];
    packet.extend(source);
    packet.extend(destination);
    packet.extend(message);
    packet
}

/// An IGMP message to all routers, its checksum set.
fn igmp(source: [u8; 4], message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let checksum = !fold(sum(0, &message));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet(source, [224, 0, 0, 22], 2, &message)
}

/// A report of IGMPv3 with one record.
fn report(kind: u8, group: [u8; 4], sources: &[[u8; 4]]) -> Vec<u8> {
    let head = [0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources.len() as u8];
    igmp(A, &[&head[..], &group, &sources.concat()].concat())
}

const TO_INCLUDE: u8 = 3;
const TO_EXCLUDE: u8 = 4;
const ALLOW: u8 = 5;
const BLOCK: u8 = 6;

impl Groups {
    fn say(&mut self, from: u8, packet: &[u8]) {
        assert!(self.learn(from, &IpHeader::decode(packet).unwrap(), packet), "taken for data");
    }

    fn heard(&self, from: u8, packet: &[u8]) -> Vec<usize> {
        let audience = self.audience(from, &IpHeader::decode(packet).unwrap(), packet);
        audience.unwrap_or_default().places().collect()
    }

    /// Who hears a datagram from host 0, whose address is `source`.
    fn datagram(&self, source: [u8; 4], group: [u8; 4]) -> Vec<usize> {
        self.heard(0, &packet(source, group, 17, &[0; 20]))
    }
}

#[test]
fn who_joined_hears_and_who_did_not_does_not() {
    let mut groups = Groups::new(4);
    let data = packet(A, GROUP, 17, &[0; 20]);
    assert!(!groups.learn(0, &IpHeader::decode(&data).unwrap(), &data));
    assert_eq!(groups.datagram(A, GROUP), [0; 0]);
    groups.say(1, &report(TO_EXCLUDE, GROUP, &[]));
    groups.say(3, &report(TO_EXCLUDE, GROUP, &[]));
    groups.say(2, &report(TO_EXCLUDE, OTHER, &[]));
    groups.say(3, &report(TO_EXCLUDE, [224, 0, 0, 251], &[]));
    assert_eq!((groups.datagram(A, GROUP), groups.datagram(A, OTHER)), (vec![1, 3], vec![2]));
    assert_eq!((groups.of(3), groups.of(0)), (vec![IpAddr::from(GROUP)], vec![]));
}

#[test]
fn a_sender_that_joined_too_does_not_hear_itself() {
    let mut groups = Groups::new(3);
    (0..3).for_each(|host| groups.say(host, &report(TO_EXCLUDE, GROUP, &[])));
    assert_eq!(groups.datagram(A, GROUP), [1, 2]);
}

#[test]
fn leaves_of_every_version_end_it() {
    for leave in [igmp(A, &[0x17, 0, 0, 0, 239, 1, 1, 1]), report(TO_INCLUDE, GROUP, &[])] {
        for join in [
            igmp(A, &[0x12, 0, 0, 0, 239, 1, 1, 1]),
            igmp(A, &[0x16, 0, 0, 0, 239, 1, 1, 1]),
            report(TO_EXCLUDE, GROUP, &[]),
        ] {
            let mut groups = Groups::new(3);
            groups.say(1, &join);
            groups.say(1, &join);
            assert_eq!(groups.datagram(A, GROUP), [1]);
            groups.say(2, &leave);
            assert_eq!(groups.datagram(A, GROUP), [1]);
            groups.say(1, &leave);
            assert_eq!((groups.datagram(A, GROUP), groups.joined.len()), (vec![], 0));
        }
    }
}

#[test]
fn senders_are_told_apart_where_a_host_does() {
    let (one, two) = ([198, 18, 0, 1], [198, 18, 0, 2]);
    let mut groups = Groups::new(4);
    groups.say(3, &report(ALLOW, GROUP, &[one]));
    assert_eq!((groups.datagram(one, GROUP), groups.datagram(two, GROUP)), (vec![3], vec![]));
    groups.say(3, &report(ALLOW, GROUP, &[two]));
    groups.say(3, &report(BLOCK, GROUP, &[one]));
    assert_eq!((groups.datagram(one, GROUP), groups.datagram(two, GROUP)), (vec![], vec![3]));
    // The last sender is gone, and so is the membership: this is how Linux leaves a group of chosen senders.
    groups.say(3, &report(BLOCK, GROUP, &[two]));
    assert_eq!(groups.of(3), [] as [IpAddr; 0]);
    groups.say(3, &report(TO_EXCLUDE, GROUP, &[one]));
    assert_eq!((groups.datagram(one, GROUP), groups.datagram(two, GROUP)), (vec![], vec![3]));
    groups.say(3, &report(ALLOW, GROUP, &[one]));
    assert_eq!(groups.datagram(one, GROUP), [3]);
}

#[test]
fn groups_of_the_link_are_everyones() {
    let groups = Groups::new(3);
    assert_eq!(groups.datagram(A, [224, 0, 0, 251]), [1, 2]);
    assert_eq!(groups.datagram(A, [224, 0, 1, 1]), [0; 0]);
    let mut six = vec![0x60, 0, 0, 0, 0, 8, 17, 1];
    six.extend([0; 16]);
    six.extend(ALL_NODES.octets());
    six.extend([0; 8]);
    assert_eq!(groups.heard(0, &six), [1, 2]);
    // Solicited-node and other groups of the link are joined like any.
    six[39] = 0xfb;
    assert_eq!(groups.heard(0, &six), [0; 0]);
}

#[test]
fn a_report_is_kept_from_the_other_hosts_but_not_from_a_router() {
    let mut groups = Groups::new(4);
    let join = report(TO_EXCLUDE, GROUP, &[]);
    assert_eq!(groups.heard(1, &join), [0; 0]);
    let query = |source| igmp(source, &[0x11, 100, 0, 0, 0, 0, 0, 0]);
    // Of a switch, which wants no reports.
    groups.say(3, &query([0; 4]));
    assert_eq!(groups.heard(1, &join), [0; 0]);
    assert_eq!(groups.heard(3, &query([198, 18, 0, 4])), [0, 1, 2]);
    groups.say(3, &query([198, 18, 0, 4]));
    assert_eq!((groups.heard(1, &join), groups.datagram(A, GROUP)), (vec![3], vec![3]));
}

#[test]
fn what_is_unknown_is_everyones_and_what_is_damaged_nobodys() {
    let mut groups = Groups::new(3);
    assert_eq!(groups.heard(0, &igmp(A, &[0x30, 0, 0, 0, 0, 0, 0, 0])), [1, 2]);
    let mut damaged = report(TO_EXCLUDE, GROUP, &[]);
    *damaged.last_mut().unwrap() ^= 1;
    groups.say(1, &damaged);
    assert_eq!((groups.heard(0, &damaged), groups.joined.len()), (vec![], 0));
}

#[test]
fn no_host_fills_the_memory() {
    let mut groups = Groups::new(3);
    for index in 0..MOST_GROUPS as u32 + 10 {
        groups.say(1, &report(TO_EXCLUDE, (0xe100_0000 + index).to_be_bytes(), &[]));
    }
    assert_eq!(groups.joined.len(), MOST_GROUPS);
    for index in 0..MOST_SOURCES as u32 + 10 {
        groups.say(2, &report(ALLOW, [225, 0, 0, 0], &[index.to_be_bytes()]));
    }
    let members = &groups.joined[&IpAddr::from([225, 0, 0, 0])];
    assert!(matches!(&members[1].1, Filter::Include(sources) if sources.len() == MOST_SOURCES));
}
