//! Products that the sender cannot send any more, and that this end may have from before: it was started again, and the sender's files have been
//! removed since.

use farlink_flow::cast::receiver::Failure;
use farlink_host::readiness::Wake;
use farlink_mover::copy::target::TargetError;
use farlink_wire::cast::control::{Control, Whole};
use farlink_wire::message::Text;
use farlink_wire::quantity::Nanos;

use super::{Attendance, signs_of_life};
use crate::line::Line;
use crate::receive::Notice;
use crate::storage::{Storage, reason};

/// One of them.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) product: u32,
    /// What it was.
    pub(super) whole: Whole,
    /// Why it cannot be sent.
    pub(super) reason: Text,
}

impl Attendance {
    /// Looks for the next of them where it would have been stored, and says what came of that; false where there is none.
    pub(super) fn look_for_next(
        &mut self,
        now: Nanos,
        storage: &Storage,
        (line, stop): (&mut Line, &Wake),
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> bool {
        let Some(Lost { product, whole, reason: why }) = self.lost.pop_front() else { return false };
        if self.machine.is_done(product) {
            return true;
        }
        let path = whole.announcement.path.to_string();
        if !self.items.has_begun(product) {
            self.forget_early(product);
            if !self.newest.announce(product, &whole.announcement.path) {
                self.supersede(product);
                return true;
            }
            let standing =
                storage.standing(whole.announcement, whole.content, &mut signs_of_life(line, stop));
            match standing {
                Ok(Some(item)) => self.items.insert(product, item),
                // The user does not wait for it: that is no failure of the product's.
                Err(_) if stop.is_raised() => return true,
                // What cannot be read is not what it should be.
                Ok(None) | Err(_) => {}
            }
        }
        match self.items.get_mut(product).map(|item| storage.finish(item, whole.digest)) {
            Some(Ok(true)) => {
                self.machine.on_standing(product);
                self.on_stored(now, product, None, tell);
            }
            // It has its name, and stays there.
            Some(Err(error @ TargetError::Refused { .. })) => {
                self.machine.on_standing(product);
                self.on_stored(now, product, Some(reason(&error)), tell);
            }
            Some(Ok(false) | Err(_)) | None => {
                if !self.items.has_begun(product) {
                    self.nameless.insert(product, path);
                }
                line.push(&Control::Failed {
                    product,
                    reason: Text::from(Failure::Lost(why.clone()).to_string()),
                });
                self.machine.on_lost(product, why);
            }
        }
        true
    }
}
