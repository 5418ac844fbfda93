//! Products of one name: the newest that can be had is stored, and the others until then are not thrown away.

use farlink_mover::copy::target::TargetError;
use farlink_wire::entry::Digest;
use farlink_wire::message::Text;
use farlink_wire::quantity::Nanos;

use super::Attendance;
use crate::receive::Notice;
use crate::storage::{InMemory, MOST_SMALL, Storage, reason};

impl Attendance {
    /// A product has its name.
    pub(super) fn on_stored(
        &mut self,
        now: Nanos,
        product: u32,
        lacks: Option<String>,
        tell: &mut dyn FnMut(Notice<'_>),
    ) {
        let Some(item) = self.items.remove(product) else { return };
        let (path, bytes, stood) = (item.path(), item.size(), item.stood());
        self.nameless.remove(&product);
        self.given_up.remove(&product);
        self.stored_bytes += bytes;
        self.came_bytes += item.came();
        self.times.last = Some(now);
        let older = self.newest.on_stored(product, |product| self.machine.is_done(product));
        older.into_iter().for_each(|older| self.supersede(older));
        tell(Notice::Stored { path, bytes, stood, lacks });
    }

    /// Everything of a product is there, and it is the newest of its name: compares its digest, and gives it its name.
    pub(super) fn finish(
        &mut self,
        now: Nanos,
        product: u32,
        digest: Digest,
        storage: &Storage,
        tell: &mut dyn FnMut(Notice<'_>),
    ) {
        let Some(item) = self.items.get_mut(product) else { return };
        let (finished, lacks) = match storage.finish(item, digest) {
            // It has its name, and stays there.
            Err(error @ TargetError::Refused { .. }) => (Ok(true), Some(reason(&error))),
            finished => (finished, None),
        };
        match finished {
            Ok(true) => {
                self.machine.on_checked(now, product, true);
                self.on_stored(now, product, lacks, tell);
            }
            Ok(false) => {
                Storage::begin_again(item);
                self.machine.on_checked(now, product, false);
            }
            Err(error) => self.machine.on_unwanted(product, Text::from(reason(&error))),
        }
    }

    /// Stores one that is whole, and for which no newer one of its name is to be waited any more; false where there is none.
    pub(super) fn finish_next(
        &mut self,
        now: Nanos,
        storage: &Storage,
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> bool {
        let next = self.whole.iter().rev().find(|(product, _)| !self.newest.has_newer(**product));
        let Some((product, digest)) = next.map(|(product, digest)| (*product, *digest)) else { return false };
        self.whole.remove(&product);
        self.finish(now, product, digest, storage, tell);
        true
    }

    /// Makes way for a product of so many bytes that is announced; false where it is to give way itself. There is one partial file of a
    /// name: where two products need it, it is the newer one's.
    pub(super) fn gives_way(&mut self, product: u32, content: u64) -> bool {
        if content <= MOST_SMALL && self.items.in_memory() == InMemory::Yes {
            return true;
        }
        for other in self.newest.others(product) {
            if !self.items.get_mut(other).is_some_and(|item| item.has_file()) {
                continue;
            }
            self.given_up.insert(other.max(product));
            if other > product {
                return false;
            }
            self.supersede(other);
        }
        true
    }

    /// A newer product has the name of this one: what there is of it is removed, and nothing more of it is asked for.
    pub(super) fn supersede(&mut self, product: u32) {
        if let Some(item) = self.items.remove(product) {
            Storage::abandon(&item);
        }
        self.whole.remove(&product);
        self.given_up.remove(&product);
        self.newest.on_failed(product);
        self.machine.on_superseded(product);
    }
}

/// What is said of an older one of a name when the newer one is lost.
pub(super) const GIVEN_UP: &str =
    "an older one of this name was given up for a newer one, which is not stored";
