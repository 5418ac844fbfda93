//! Products that the sender cannot send any more, and that may stand here all the same: this end was started again, and the sender's files
//! have been removed since.

use farlink_flow::cast::receiver::Failure;
use farlink_host::clock::{monotonic, rfc3339_now};
use farlink_host::readiness::Wake;
use farlink_mover::copy::target::TargetError;
use farlink_wire::cast::control::Whole;
use farlink_wire::message::Text;

use super::{Attendance, signs_of_life};
use crate::line::Line;
use crate::receive::Notice;
use crate::storage::{Storage, reason};

impl Attendance {
    /// Whether there is one to be looked for, and a file may be opened for that.
    pub(super) fn may_look(&self) -> bool {
        !self.lost.is_empty() && self.items.room() > 0
    }

    /// Looks for the newest of them where it would have been stored: whoever has that needs none before it of that name.
    pub(super) fn look_for_next(
        &mut self,
        storage: &Storage,
        (line, stop): (&mut Line, &Wake),
        tell: &mut dyn FnMut(Notice<'_>),
    ) {
        let Some((product, (whole, why))) = self.lost.pop_last() else { return };
        // What is whole waits for a newer one alone.
        if self.machine.is_done(product) || self.whole.contains_key(&product) || stop.is_raised() {
            return;
        }
        if !self.items.has_begun(product) {
            self.forget_early(product);
            if !self.newest.announce(product, &whole.announcement.path) {
                return self.supersede(product);
            }
            self.nameless.insert(product, whole.announcement.path.to_string());
        }
        let content = whole.content;
        let unwanted = match self.stands(product, whole, storage, (line, stop)) {
            Ok(true) => return self.on_standing(product, content, None, tell),
            // It has its name, and stays there.
            Err(error @ TargetError::Refused { .. }) => {
                return self.on_standing(product, content, Some(reason(&error)), tell);
            }
            // The user does not wait for it: that is no failure of the product's.
            Err(_) if stop.is_raised() => return,
            Err(error) => reason(&error),
            // The sender waits for this word.
            Ok(false) => Failure::Lost(why).to_string(),
        };
        self.machine.on_unwanted(product, Text::from(unwanted));
    }

    /// All of a product, of so many bytes, stands here.
    fn on_standing(
        &mut self,
        product: u32,
        content: u64,
        lacks: Option<String>,
        tell: &mut dyn FnMut(Notice<'_>),
    ) {
        let now = monotonic();
        if self.times.first.is_none() {
            (self.times.started, self.times.first) = (rfc3339_now(), Some(now));
        }
        self.machine.on_standing(product, content);
        self.on_stored(now, product, lacks, tell);
    }

    /// Whether all of a product is here, in what came of it or in what stands where it is to go: that has its name, mode and time then.
    fn stands(
        &mut self,
        product: u32,
        whole: Whole,
        storage: &Storage,
        (line, stop): (&mut Line, &Wake),
    ) -> Result<bool, TargetError> {
        let Whole { announcement, content, digest } = whole;
        if !self.items.has_begun(product) {
            let standing = storage.standing(announcement, content, &mut signs_of_life(line, stop))?;
            let Some(item) = standing else { return Ok(false) };
            self.items.insert(product, item);
        }
        self.items.get_mut(product).map_or(Ok(false), |item| storage.finish(item, digest))
    }
}
