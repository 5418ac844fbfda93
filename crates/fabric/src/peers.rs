//! Peers by three names: the application's numbers, the machine's, and their own.

use std::collections::BTreeSet;
use std::sync::Arc;

use farlink_flow::fabric::endpoint::Endpoint;
use farlink_flow::fabric::operation::{EndpointId, HostId, Identity, PeerId};
use farlink_wire::fabric::address::Address;

use crate::address_vector::{Addresses, NOWHERE};
use crate::bindings::fi_addr_t;
use crate::entry::Code;

/// Who is who.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    addresses: Option<Arc<Addresses>>,
    /// By the application's numbers, those that it has used.
    peers: Vec<Option<PeerId>>,
    /// By the machine's.
    places: Vec<Option<fi_addr_t>>,
    /// How many addresses had been removed when these were remembered.
    removed: u64,
}

impl Peers {
    /// Numbers are those of `addresses`.
    pub(crate) fn bind(&mut self, addresses: Arc<Addresses>) {
        self.addresses = Some(addresses);
    }

    /// Whether there are numbers.
    pub(crate) const fn is_bound(&self) -> bool {
        self.addresses.is_some()
    }

    /// The peer that the application calls `place`.
    pub(crate) fn peer(&mut self, place: fi_addr_t, endpoint: &mut Endpoint) -> Result<PeerId, Code> {
        let at = usize::try_from(place).map_err(|_| Code::INVALID)?;
        self.forget_removed();
        if let Some(Some(peer)) = self.peers.get(at) {
            return Ok(*peer);
        }
        let address = self.addresses.as_ref().ok_or(Code::NO_ADDRESSES)?.at(place)?;
        let peer = endpoint.peer(identity(&address));
        put(&mut self.peers, at, peer);
        put(&mut self.places, peer.0 as usize, place);
        Ok(peer)
    }

    /// Numbers that were removed mean nobody any more, and nobody has them.
    fn forget_removed(&mut self) {
        let removed = self.addresses.as_ref().map_or(0, |addresses| addresses.removed());
        if removed != self.removed {
            (self.removed, self.peers, self.places) = (removed, Vec::new(), Vec::new());
        }
    }

    /// Makes all that the application knows known to the machine; whether these are all that ever send it something. Where they are fewer
    /// than the job has, an MPI makes the others known when it first speaks to them; where they are more, or nobody, or no launcher said how
    /// many it has, anybody may come.
    pub(crate) fn know_all(&mut self, endpoint: &mut Endpoint) -> bool {
        let Some(addresses) = self.addresses.clone() else { return false };
        let mut others = BTreeSet::new();
        for place in 0..addresses.places() {
            // Those that were removed are none.
            if addresses.at(place).is_ok()
                && let Ok(peer) = self.peer(place, endpoint)
            {
                others.extend(Some(peer).filter(|peer| !endpoint.is_itself(*peer)));
            }
        }
        let count = others.len() as u64;
        count > 0 && endpoint.processes().is_some_and(|processes| count + 1 == processes)
    }

    /// What the application calls a peer; no number, where it does not know it yet.
    pub(crate) fn place(&mut self, peer: PeerId, endpoint: &Endpoint) -> fi_addr_t {
        let at = peer.0 as usize;
        self.forget_removed();
        if let Some(Some(place)) = self.places.get(at) {
            return *place;
        }
        let its = endpoint.identity(peer).endpoint;
        let place = self.addresses.as_ref().and_then(|addresses| addresses.place_of(its.0));
        if let Some(place) = place {
            put(&mut self.places, at, place);
        }
        place.unwrap_or(NOWHERE)
    }

    /// What people find a peer by. Its number here is no rank; what its launcher said is.
    pub(crate) fn description(&mut self, peer: PeerId, endpoint: &Endpoint) -> String {
        let identity = endpoint.identity(peer);
        let place = self.place(peer, endpoint);
        match self.addresses.as_ref().map(|addresses| addresses.at(place)) {
            Some(Ok(Address { process, at, rank: Some(rank), .. })) => {
                format!("rank {rank} (process {process} at {at})")
            }
            Some(Ok(Address { process, at, .. })) => format!("the process {process} at {at}"),
            _ => format!("a process at {}", identity.address),
        }
    }
}

/// Who an address is.
pub(crate) const fn identity(address: &Address) -> Identity {
    Identity { endpoint: EndpointId(address.endpoint), host: HostId(address.host), address: address.at }
}

fn put<T: Copy>(list: &mut Vec<Option<T>>, at: usize, value: T) {
    if list.len() <= at {
        list.resize(at + 1, None);
    }
    list[at] = Some(value);
}

#[cfg(test)]
mod tests {
    use farlink_flow::fabric::endpoint::Settings;
    use farlink_flow::fabric::transport::Kind;
    use farlink_wire::quantity::Nanos;

    use super::*;

    fn address(endpoint: u64) -> Address {
        Address { endpoint, host: endpoint, at: ([127, 0, 0, 1], 7).into(), process: 1, rank: None }
    }

    fn endpoint() -> Endpoint {
        endpoint_of(None)
    }

    /// One in a job of so many processes.
    fn endpoint_of(processes: Option<u64>) -> Endpoint {
        let settings = Settings {
            transport: Kind::Ud,
            key: [1; 32],
            payload: 1400,
            rate: None,
            sharers: 1,
            eager: 1 << 20,
            most: 1 << 30,
            processes,
            silence: Nanos(20_000_000_000),
            nearby: false,
            seed: 1,
        };
        Endpoint::new(Nanos(1), settings, identity(&address(1)))
    }

    #[test]
    fn a_number_that_was_removed_is_nobodys() {
        let mut endpoint = endpoint();
        let (mut peers, addresses) = (Peers::default(), Arc::<Addresses>::default());
        peers.bind(Arc::clone(&addresses));
        let [removed, other] = [2, 3].map(|number| addresses.insert(address(number)).unwrap());
        let [peer, its] = [removed, other].map(|place| peers.peer(place, &mut endpoint).unwrap());
        addresses.remove(removed).unwrap();
        assert_eq!(peers.peer(removed, &mut endpoint), Err(Code::INVALID));
        assert_eq!(peers.place(peer, &endpoint), NOWHERE);
        assert_eq!((peers.peer(other, &mut endpoint), peers.place(its, &endpoint)), (Ok(its), other));
        // It comes back under another number, and is who it was.
        let again = addresses.insert(address(2)).unwrap();
        assert_eq!((peers.peer(again, &mut endpoint), peers.place(peer, &endpoint)), (Ok(peer), again));
    }

    #[test]
    fn all_that_the_application_knows_are_made_known() {
        let mut endpoint = endpoint_of(Some(2));
        let (mut peers, addresses) = (Peers::default(), Arc::<Addresses>::default());
        peers.bind(Arc::clone(&addresses));
        // Nobody, and then itself alone.
        assert!(!peers.know_all(&mut endpoint));
        addresses.insert(address(1)).unwrap();
        assert!(!peers.know_all(&mut endpoint));
        let place = addresses.insert(address(2)).unwrap();
        assert!(peers.know_all(&mut endpoint));
        addresses.remove(place).unwrap();
        assert!(!peers.know_all(&mut endpoint));
    }

    #[test]
    fn in_a_job_that_has_more_or_fewer_others_may_come() {
        for (processes, are_all) in [(None, false), (Some(2), false), (Some(3), true), (Some(4), false)] {
            let mut endpoint = endpoint_of(processes);
            let (mut peers, addresses) = (Peers::default(), Arc::<Addresses>::default());
            peers.bind(Arc::clone(&addresses));
            // One of them has two numbers.
            for number in [1, 2, 3, 3] {
                addresses.insert(address(number)).unwrap();
            }
            assert_eq!(peers.know_all(&mut endpoint), are_all, "{processes:?}");
        }
    }
}
