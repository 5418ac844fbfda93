//! Operations under way: whose they are, and what the program lent to them.

use farlink_flow::fabric::operation::{Memory, Operation, Region};

use crate::memory::Parts;
use crate::object::Context;

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
}

impl Operations {
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
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::ptr;

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
}
