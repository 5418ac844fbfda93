//! What connections that nobody has claimed cost the kernel: memory for what came on them and was not read. Each has room for much, a
//! circuit's for most, before anybody has shown a key, and all connections of a host share one pool.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use farlink_host::socket;
use farlink_wire::quantity::{Bytes, Nanos};

use crate::channel::Channel;

/// The most that those who wait for their session may cost: half of what has the kernel hold all connections of the host short. A
/// copy in clear may send for a round trip before its session has come.
pub(super) fn most_waiting() -> Bytes {
    Bytes(socket::memory_before_pressure().0 / 2)
}

/// The most that those may cost who have not said what they are, and again those who have not shown their key: of them nobody sends much.
/// All three together leave a quarter.
pub(super) fn most_unknown() -> Bytes {
    Bytes(socket::memory_before_pressure().0 / 8)
}

/// What `channel` costs.
pub(super) fn of(channel: &Channel) -> u64 {
    channel.tcp().and_then(|tcp| socket::received_memory(tcp).ok()).unwrap_or(0)
}

/// Who of `crowd` is to go, so that the rest costs no more than `most`: of the address that costs most, what costs most.
pub(super) fn excess<K: Copy>(most: Bytes, crowd: impl IntoIterator<Item = (K, IpAddr, u64)>) -> Vec<K> {
    let mut by_address = BTreeMap::<IpAddr, (u64, Vec<(u64, K)>)>::new();
    let mut total = 0;
    for (key, address, cost) in crowd.into_iter().filter(|(_, _, cost)| *cost > 0) {
        total += cost;
        let (sum, theirs) = by_address.entry(whose(address)).or_default();
        *sum += cost;
        theirs.push((cost, key));
    }
    by_address.values_mut().for_each(|(_, theirs)| theirs.sort_by_key(|(cost, _)| *cost));
    let mut leaving = Vec::new();
    while total > most.0
        && let Some((sum, theirs)) = by_address.values_mut().max_by_key(|(sum, _)| *sum)
        && let Some((cost, key)) = theirs.pop()
    {
        *sum -= cost;
        total -= cost;
        leaving.push(key);
    }
    leaving
}

/// Who of `crowd`, the oldest first, is to go, so that another has room: the oldest, or that of the address that has more than half of it. Who fills
/// it by himself so shows nobody out but himself, and no crowd of many shows out somebody who opens several connections at once.
pub(super) fn who_goes<K: Copy>(crowd: impl IntoIterator<Item = (K, IpAddr)>) -> Option<K> {
    let mut by_address = BTreeMap::<IpAddr, (usize, Reverse<usize>, K)>::new();
    for (at, (key, address)) in crowd.into_iter().enumerate() {
        by_address.entry(whose(address)).or_insert((0, Reverse(at), key)).0 += 1;
    }
    let total: usize = by_address.values().map(|(count, ..)| count).sum();
    let most = by_address.values().find(|(count, ..)| count * 2 > total);
    most.or_else(|| by_address.values().max_by_key(|(_, at, _)| *at)).map(|(.., oldest)| *oldest)
}

/// Whose an address is: who has one of IPv6 has all of its 64 bits.
fn whose(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

/// How often it is looked at: what 10 Gb/s bring meanwhile is 60 MB.
pub(super) const OFTEN: Nanos = Nanos(50_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    #[test]
    fn nobody_goes_while_there_is_room() {
        assert!(excess(Bytes(30), [(1, HERE, 10), (2, THERE, 20)]).is_empty());
    }

    #[test]
    fn of_a_crowd_the_oldest_goes_or_that_of_the_address_that_is_most_of_it() {
        let alike = |low: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, low]);
        let crowd = [(1, HERE), (2, alike(1)), (3, alike(2)), (4, THERE), (5, alike(1))];
        assert_eq!(who_goes(crowd), Some(2));
        assert_eq!(who_goes([(1, HERE), (2, THERE), (3, THERE), (4, alike(1))]), Some(1));
        assert_eq!(who_goes::<u8>([]), None);
        assert_eq!(who_goes([(1, THERE), (2, HERE)]), Some(1));
    }

    #[test]
    fn the_heaviest_of_the_heaviest_address_goes_first() {
        let crowd = [(1, HERE, 25), (2, THERE, 20), (3, THERE, 10), (4, THERE, 0)];
        assert_eq!(excess(Bytes(35), crowd), [2]);
        assert_eq!(excess(Bytes(34), crowd), [2, 1]);
        assert_eq!(excess(Bytes(0), crowd).len(), 3);
    }
}
