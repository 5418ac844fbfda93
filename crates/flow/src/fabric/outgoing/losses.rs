//! What of that which left is taken for lost, and when.

use farlink_wire::quantity::Nanos;

use super::{Outgoing, REORDERED, What};
use crate::fabric::path::Path;

impl Outgoing {
    /// What was sent before others that arrived is lost, where these are many (RFC 9002, 6.1.1), or it has had time enough to arrive, too
    /// (6.1.2): of two short messages the second tells that the first was lost, and nothing may follow it until that is repaired.
    pub(super) fn find_lost(&mut self, now: Nanos, path: &mut Path) {
        self.late_at = None;
        let Some(highest) = self.highest else { return };
        let overtaken = (highest + 1).saturating_sub(REORDERED).saturating_sub(self.first_flight) as usize;
        let before = highest.saturating_sub(self.first_flight) as usize;
        let late = path.lateness();
        for index in 0..before.min(self.flights.len()) {
            let flight = &self.flights[index];
            if !flight.flies {
                continue;
            }
            let due = flight.at.after(late);
            if index < overtaken || due <= now {
                if let Some(bytes) = self.give_up(index) {
                    path.on_lost(bytes);
                    self.counts.lost += 1;
                }
            } else {
                // Those behind it left later.
                self.late_at = Some(due);
                break;
            }
        }
    }

    /// Time passed: what was overtaken and has not arrived since is lost.
    pub(super) fn find_late(&mut self, now: Nanos, path: &mut Path) {
        if self.late_at.is_some_and(|at| at <= now) {
            self.find_lost(now, path);
            self.find_unguarded();
            self.forget_settled();
        }
    }

    /// A datagram is not waited for any more: its bytes, where it was.
    fn give_up(&mut self, index: usize) -> Option<u32> {
        let flight = &mut self.flights[index];
        if !std::mem::take(&mut flight.flies) {
            return None;
        }
        let (what, bytes) = (flight.what, flight.bytes);
        let number = self.first_flight + index as u64;
        match what {
            What::Piece(piece)
                if self.held(piece).is_some_and(|held| !held.settled && held.flight == Some(number)) =>
            {
                self.guarded.push(piece);
            }
            What::Connect if self.full && !self.open => self.asks = true,
            _ => {}
        }
        Some(bytes)
    }

    /// What was lost goes again, where no parity on its way may bring it back.
    pub(super) fn find_unguarded(&mut self) {
        let mut guarded = std::mem::take(&mut self.guarded);
        guarded.retain(|number| {
            let Some(held) = self.held(*number).filter(|held| !held.settled) else { return false };
            let comes = held.parity.is_some_and(|last| self.highest < Some(last) && self.flies(last));
            let to_come = self.guard.has_parity_of(held.group);
            if !comes && !to_come {
                self.again.push_back(*number);
            }
            comes || to_come
        });
        self.guarded = guarded;
        let mut again = std::mem::take(&mut self.again);
        again.retain(|number| self.held(*number).is_some_and(|held| !held.settled));
        self.again = again;
    }

    /// Nothing is waited for any more. Where pieces are missing nobody knows whether anything was lost, for the other end may be late, or the
    /// path cut; what follows the last piece was lost as any other.
    pub(super) fn give_all_up(&mut self, path: &mut Path) {
        let (answered, missing) = (self.highest, self.owes_pieces());
        for index in 0..self.flights.len() {
            let Some(bytes) = self.give_up(index) else { continue };
            if missing && answered < Some(self.first_flight + index as u64) {
                path.on_forgotten(bytes);
            } else {
                path.on_lost(bytes);
                self.counts.lost += 1;
            }
        }
    }
}
