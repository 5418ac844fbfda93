//! What connections that nobody has claimed cost the kernel: memory for what came on them and was not read. Each has room for much, a
//! circuit's for most, before anybody has shown a key, and all connections of a host share one pool.

use std::collections::BTreeMap;
use std::net::IpAddr;

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
        let (sum, theirs) = by_address.entry(address).or_default();
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

/// How often it is looked at: what 10 Gb/s bring meanwhile is 60 MB.
pub(super) const OFTEN: Nanos = Nanos(50_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    #[test]
    fn nobody_goes_while_there_is_room() {
        assert!(excess(Bytes(30), [(1, HERE, 10), (2, THERE, 20)]).is_empty());
    }

    #[test]
    fn the_heaviest_of_the_heaviest_address_goes_first() {
        let crowd = [(1, HERE, 25), (2, THERE, 20), (3, THERE, 10), (4, THERE, 0)];
        assert_eq!(excess(Bytes(35), crowd), [2]);
        assert_eq!(excess(Bytes(34), crowd), [2, 1]);
        assert_eq!(excess(Bytes(0), crowd).len(), 3);
    }
}
