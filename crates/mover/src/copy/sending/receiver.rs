//! What the receiver says, at the sender.

use std::sync::Arc;

use farlink_host::clock::monotonic;
use farlink_wire::message::copy::{Copy, Lack, Rejected, Rejection, Unit};

use super::{Ending, Sending, State};
use crate::copy::CopyError;
use crate::copy::file_event::{Became, FileEvent};
use crate::copy::lost::Lost;

impl Sending {
    /// Takes a message of the receiver.
    pub(crate) fn on_message(&self, message: Copy) -> Result<(), CopyError> {
        let mut guard = self.state();
        let state = &mut *guard;
        state.far_ahead = None;
        match message {
            Copy::Acknowledged(units) => {
                for unit in units {
                    state.on_acknowledged(unit, self.manner.report);
                }
            }
            Copy::Damaged(units) => {
                let mut hopeless = Vec::new();
                for unit in units {
                    match (state.on_damaged(unit), unit) {
                        (false, _) => {}
                        (true, Unit::Block(file, _)) => hopeless.extend(state.files.get(&file).cloned()),
                        (true, Unit::Pack(_)) => return Err(CopyError::Damaged { times: MOST_DAMAGED }),
                    }
                }
                if state.damaged.len() > MOST_DAMAGED_UNITS {
                    return Err(CopyError::Damaged { times: MOST_DAMAGED });
                }
                drop(guard);
                for file in hopeless {
                    let reason = CopyError::Damaged { times: MOST_DAMAGED }.to_string();
                    self.abandon(&file, Became::Lacking(Lack::Failed, reason));
                }
                self.changed.notify_all();
                return Ok(());
            }
            Copy::Proven { file, blocks, last } => {
                let blocks = blocks.into_iter().map(|block| (block.index, block.digest));
                state.schedule.on_proven(file, blocks, last);
            }
            Copy::Wanted { pack, runs, last } => {
                state.on_wanted(pack, &runs, last, self.manner.report)?;
                state.settle_total();
            }
            Copy::Newer { pack, runs } if self.manner.may_stay => state.on_newer(pack, &runs)?,
            Copy::Stored(files) => {
                for (number, digest) in files {
                    state.schedule.on_closed(number);
                    if let Some(file) = state.files.remove(&number) {
                        state.close_name(self.manner.report, file.event(digest, file.stored()));
                    }
                }
            }
            Copy::Rejected(rejections) => {
                let is_directory = |rejection: &&Rejection| matches!(rejection.of, Rejected::Directory(_));
                state.bare += rejections.iter().filter(is_directory).count() as u64;
                if state.bare > state.supply.entries + MOST_UNSENT {
                    return Err(CopyError::OutOfPlace { what: "more directories than there are" });
                }
                for rejection in rejections {
                    state.on_rejected(rejection, self.manner.may_stay, self.manner.report);
                }
            }
            Copy::Lost(stream) => {
                drop(guard);
                self.on_lost(Lost::of_far_side(stream));
                return Ok(());
            }
            // A client's limit is its own.
            Copy::Limit(limit) if !self.manner.report => self.hold(limit),
            Copy::Finished(_) => {
                state.ending = Ending::Finished;
                drop(guard);
                self.steering.end();
                self.changed.notify_all();
                return Ok(());
            }
            _ => return Err(CopyError::OutOfPlace { what: "what only a sender says" }),
        }
        drop(guard);
        self.changed.notify_all();
        Ok(())
    }
}

impl State {
    /// True where that happens again and again.
    fn on_damaged(&mut self, unit: Unit) -> bool {
        let was_acknowledged = self.schedule.on_damaged(unit);
        let is_known = match unit {
            Unit::Block(file, index) => self.files.get(&file).is_some_and(|file| index < file.blocks()),
            Unit::Pack(pack) => self.packs.contains_key(&pack),
        };
        if !is_known {
            return false;
        }
        let times = self.damaged.entry(unit).or_default();
        *times += 1;
        let is_hopeless = *times >= MOST_DAMAGED;
        let Unit::Block(file, index) = unit else { return is_hopeless };
        let Some(file) = self.files.get(&file) else { return false };
        file.on_damaged();
        if was_acknowledged {
            self.tally.acknowledged = self.tally.acknowledged.saturating_sub(file.on_gone(index));
        }
        is_hopeless
    }

    fn on_acknowledged(&mut self, unit: Unit, report: bool) {
        let is_news = self.schedule.on_acknowledged(unit, monotonic());
        match unit {
            // What went twice is said to be there twice.
            Unit::Block(..) if !is_news => {}
            Unit::Block(file, index) => {
                let bytes = self.files.get(&file).map_or(0, |file| file.on_there(index));
                self.tally.acknowledged += bytes;
            }
            Unit::Pack(number) => {
                let Some(planned) = self.packs.remove(&number) else { return };
                self.ahead -= planned.entries.len();
                self.tally.acknowledged += planned.bytes();
                for (at, event) in planned.events(&Became::Copied).into_iter().enumerate() {
                    if self.refused.remove(&(number, at as u32)) {
                        continue;
                    }
                    if planned.failed(at) {
                        // It was told when it failed.
                        self.tally.entries += 1;
                    } else {
                        self.close_name(report, event);
                    }
                }
            }
        }
    }

    /// The receiver wants these of an offer, and has the others.
    fn on_wanted(
        &mut self,
        offer: u32,
        runs: &[(u32, u32)],
        last: bool,
        report: bool,
    ) -> Result<(), CopyError> {
        let Some(planned) = self.packs.get(&offer).filter(|planned| planned.offer).map(Arc::clone) else {
            return Ok(());
        };
        if !planned.want(runs) {
            return Err(CopyError::OutOfPlace { what: "items of an offer that it has not" });
        }
        if !last {
            return Ok(());
        }
        self.packs.remove(&offer);
        self.schedule.on_acknowledged(Unit::Pack(offer), monotonic());
        self.ahead -= planned.entries.len();
        self.supply.offers -= 1;
        for (at, event) in planned.unwanted() {
            // It stays, and was told as a failure.
            if self.refused.contains(&(offer, at)) {
                continue;
            }
            self.tally.same += event.bytes;
            self.tally.acknowledged += event.bytes;
            self.close_name(report, event);
        }
        let failed = (0..planned.entries.len()).filter(|at| planned.failed(*at));
        self.tally.entries += failed.filter(|at| !self.refused.contains(&(offer, *at as u32))).count() as u64;
        // Of those that it wants, too: no honest one has refused them.
        self.refused.retain(|(pack, _)| *pack != offer);
        let wanted = planned.wanted();
        if !wanted.entries.is_empty() {
            let number = self.supply.pack_numbers;
            self.supply.pack_numbers += 1;
            self.supply.packs += 1;
            self.ahead += wanted.entries.len();
            self.packs.insert(number, Arc::new(wanted));
            self.schedule.on_pack(number);
        }
        Ok(())
    }

    /// The receiver has newer ones of these of an offer, and will want none of them.
    fn on_newer(&self, offer: u32, runs: &[(u32, u32)]) -> Result<(), CopyError> {
        let planned = self.packs.get(&offer).filter(|planned| planned.offer);
        if planned.is_none_or(|planned| planned.leave(runs)) {
            return Ok(());
        }
        Err(CopyError::OutOfPlace { what: "items of an offer that it has not" })
    }

    fn on_rejected(&mut self, rejection: Rejection, may_stay: bool, report: bool) {
        // What a peer says that does not fit is a failure as any other.
        let lack = match (&rejection.of, rejection.lack) {
            (Rejected::File(_) | Rejected::Item(..), Lack::Bare) => Lack::Bare,
            (Rejected::Directory(_), Lack::Unfinished) => Lack::Unfinished,
            _ => Lack::Failed,
        };
        let stays = Became::standing(rejection.lack).filter(|_| may_stay);
        let what = Became::Lacking(lack, rejection.reason.to_string());
        match rejection.of {
            Rejected::File(number) => {
                self.schedule.on_closed(number);
                if let Some(file) = self.files.remove(&number) {
                    if let Some(stays) = stays {
                        // It may have come, and another have been there by then.
                        let bytes = file.rest();
                        self.tally.same += bytes;
                        self.tally.acknowledged += bytes;
                        return self.close_name(report, file.event(None, stays));
                    }
                    self.close_name(report, file.event(None, what).far());
                }
            }
            Rejected::Item(number, item) => {
                let event = self.packs.get(&number).and_then(|planned| planned.event(item as usize));
                if let Some(event) = event.filter(|_| self.refused.insert((number, item))) {
                    let is_far = stays.is_none();
                    let what = stays.unwrap_or(what);
                    self.close_name(report, FileEvent { what, digest: None, is_far, ..event });
                }
            }
            Rejected::Directory(path) => {
                self.tally.failed += 1;
                if report {
                    let path = path.to_string();
                    self.events.push(FileEvent::of(path, what).far());
                }
            }
        }
    }
}

/// How often the same may come damaged: by chance it does once in a billion blocks, and something on the way that changes certain bytes
/// does each time.
pub(super) const MOST_DAMAGED: u32 = 8;

/// And how many things may come damaged in all, of which it is remembered: 100 GB of the smallest blocks.
const MOST_DAMAGED_UNITS: usize = 100_000;

/// Directories that a receiver may say something of which it was not sent: those above what was.
const MOST_UNSENT: u64 = 10_000;
