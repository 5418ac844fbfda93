//! Operations under way: whose they are, and what the program lent to them.

use std::sync::Arc;

use farlink_flow::fabric::operation::{EndpointId, Identity, Memory, Operation, Region};

use crate::address_vector::Addresses;
use crate::memory::Parts;
use crate::object::Context;
use crate::peers::identity;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// What it was lent.
    pub(crate) parts: Parts,
    /// What the program knows it by.
    pub(crate) context: Context,
    /// What its completion says it was: to send or to receive, tagged or not.
    pub(crate) flags: u64,
    /// Whether the program wants to hear of its success.
    pub(crate) told: bool,
    /// Whether it takes message after message.
    pub(crate) several: bool,
    /// Whether it receives.
    pub(crate) receives: bool,
}

/// All of them. An operation's number is its region's, too.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    slots: Vec<Option<Pending>>,
    free: Vec<usize>,
    /// Whom the program knows.
    addresses: Option<Arc<Addresses>>,
}

impl Operations {
    /// Peers are where `addresses` say.
    pub(crate) fn bind(&mut self, addresses: Arc<Addresses>) {
        self.addresses = Some(addresses);
    }

    /// One more.
    pub(crate) fn add(&mut self, pending: Pending) -> Operation {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(pending);
        Operation(at as u64)
    }

    /// One that ended.
    pub(crate) fn take(&mut self, operation: Operation) -> Option<Pending> {
        let at = usize::try_from(operation.0).ok()?;
        let taken = self.slots.get_mut(at)?.take()?;
        self.free.push(at);
        Some(taken)
    }

    /// One that goes on.
    pub(crate) fn one(&self, operation: Operation) -> Option<&Pending> {
        self.slots.get(usize::try_from(operation.0).ok()?)?.as_ref()
    }

    /// The receives that the program knows by `context`: one may have begun, and another not.
    pub(crate) fn receives_of(&self, context: Context) -> impl Iterator<Item = Operation> {
        let its = move |slot: &Option<Pending>| {
            slot.as_ref().is_some_and(|its| its.receives && its.context == context)
        };
        (0..)
            .map(Operation)
            .zip(&self.slots)
            .filter(move |(_, slot)| its(slot))
            .map(|(operation, _)| operation)
    }
}

impl Memory for Operations {
    fn read(&self, region: Region, offset: usize, into: &mut [u8]) {
        match self.one(Operation(region.0)) {
            Some(its) => its.parts.read(offset, into),
            None => debug_assert!(false, "{region:?} is read after its operation ended"),
        }
    }

    fn write(&mut self, region: Region, offset: usize, bytes: &[u8]) {
        match self.one(Operation(region.0)) {
            Some(its) => its.parts.write(offset, bytes),
            None => debug_assert!(false, "{region:?} is written after its operation ended"),
        }
    }

    fn identity(&self, endpoint: EndpointId) -> Option<Identity> {
        let addresses = self.addresses.as_ref()?;
        addresses.at(addresses.place_of(endpoint.0)?).ok().as_ref().map(identity)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::ptr;

    use farlink_wire::fabric::address::Address;

    use super::*;

    fn pending(context: usize, receives: bool) -> Pending {
        // SAFETY: no memory is lent.
        let parts = unsafe { Parts::one(ptr::null(), 0) }.unwrap();
        let context = Context(ptr::without_provenance_mut::<c_void>(context));
        Pending { parts, context, flags: 0, told: true, several: false, receives }
    }

    #[test]
    fn a_receive_is_found_by_its_context_while_it_is_under_way() {
        let mut operations = Operations::default();
        operations.add(pending(1, false));
        let receive = operations.add(pending(1, true));
        let context = Context(ptr::without_provenance_mut(1));
        assert!(operations.receives_of(context).eq([receive]));
        let second = operations.add(pending(1, true));
        assert!(operations.receives_of(context).eq([receive, second]));
        assert!(operations.take(second).is_some());
        assert!(operations.take(receive).is_some());
        assert!(operations.take(receive).is_none());
        assert_eq!(operations.receives_of(context).count(), 0);
        assert_eq!(operations.add(pending(2, true)), receive);
    }

    #[test]
    fn an_endpoint_is_where_the_program_was_told_that_it_is() {
        let (mut operations, addresses) = (Operations::default(), Arc::<Addresses>::default());
        let address = Address { endpoint: 2, host: 3, at: ([10, 0, 0, 1], 7).into(), process: 1, rank: None };
        operations.bind(Arc::clone(&addresses));
        assert_eq!(operations.identity(EndpointId(2)), None);
        let place = addresses.insert(address).unwrap();
        assert_eq!(operations.identity(EndpointId(2)), Some(identity(&address)));
        assert_eq!(operations.identity(EndpointId(3)), None);
        addresses.remove(place).unwrap();
        assert_eq!(operations.identity(EndpointId(2)), None);
    }
}
