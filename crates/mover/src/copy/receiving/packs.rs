//! Packs of what is small, and offers of them, at the receiver.

use farlink_flow::digest;
use farlink_wire::entry::{Digest, Kind};
use farlink_wire::frame::{Item, Pack};
use farlink_wire::message::copy::{Copy, Lack, Rejected, Rejection, Unit, Verdict};
use farlink_wire::message::{MAX_ENTRIES, Text};

use super::Receiving;
use crate::budget;
use crate::chain;
use crate::copy::CopyError;
use crate::copy::file_event::Became;
use crate::copy::outgoing::size;
use crate::copy::target::TargetError;
use crate::copy::timing::Stage;

impl Receiving {
    /// A pack has come. One that another connection has brought and is storing is left to it, however long that takes: what comes of
    /// it, that it is here or was damaged, is of both.
    pub(crate) fn on_pack(&self, pack: &Pack<'_>) -> Result<(), CopyError> {
        let number = pack.pack;
        let mut state = self.state();
        if state.arrivals.has_pack(number) {
            state.outbox.acknowledged.push(Unit::Pack(number));
            drop(state);
            self.wake.raise();
            return Ok(());
        }
        if !state.storing.insert(number) {
            return Ok(());
        }
        drop(state);
        let stored = self.store_pack(pack);
        self.state().storing.remove(&number);
        if stored? {
            self.settle();
        }
        self.wake.raise();
        Ok(())
    }

    /// Stores a pack that is not here yet; false where it is not here afterwards either, or was brought by somebody else meanwhile.
    fn store_pack(&self, pack: &Pack<'_>) -> Result<bool, CopyError> {
        let number = pack.pack;
        let mut rejected = Vec::new();
        let mut stored = Vec::new();
        let mut is_whole = true;
        for (at, item) in pack.items.iter().enumerate() {
            if item.digest == Digest::ABSENT {
                self.state().lacks = true;
                continue;
            }
            // A pack has thousands of names, and a disk may take its time for each.
            if self.state().over {
                is_whole = false;
                break;
            }
            match self.put(item) {
                Ok(Some(Verdict::Newer)) => {
                    rejected.push((item, Became::Newer));
                    let (of, lack) = (Rejected::Item(number, at as u32), Lack::Newer);
                    self.state().outbox.rejected.push(Rejection { of, lack, reason: Text::default() });
                }
                Ok(Some(Verdict::Wanted | Verdict::Current)) => stored.push(item),
                Ok(None) => {
                    // Damaged on its way: the whole pack again, and what is right in it is written twice.
                    self.state().outbox.damaged.push(Unit::Pack(number));
                    return Ok(false);
                }
                Err(error) if error.is_final() => return Err(error.into()),
                Err(error) => {
                    let (lack, reason) = (error.lack(), chain(&error));
                    rejected.push((item, Became::Lacking(lack, reason.clone())));
                    let of = Rejected::Item(number, at as u32);
                    self.state().outbox.rejected.push(Rejection { of, lack, reason: reason.into() });
                }
            }
        }
        let mut state = self.state();
        self.check_numbers(&state)?;
        if !state.arrivals.on_pack(number) {
            // An answer to an offer has said meanwhile that it is here.
            state.outbox.acknowledged.push(Unit::Pack(number));
            return Ok(false);
        }
        state.numbers.insert(number);
        // What the sender could not read is done, too: it has said why.
        state.entries += pack.items.iter().filter(|item| item.digest == Digest::ABSENT).count() as u64;
        for item in stored {
            let digest = Some(item.digest)
                .filter(|_| self.manner.verify && matches!(item.entry.kind, Kind::File { .. }));
            state.close_name(
                self.manner.report,
                &item.entry,
                item.content.len() as u64,
                digest,
                Became::Copied,
            );
        }
        for (item, what) in rejected {
            state.close_name(self.manner.report, &item.entry, item.content.len() as u64, None, what);
        }
        // What of it is there was told to whom that is told; the sender is not, as it is not all.
        if is_whole {
            state.outbox.acknowledged.push(Unit::Pack(number));
        }
        Ok(is_whole)
    }

    /// Stores one entry, unless something that stays has come to stand there since it was wanted; `None` where its content is damaged.
    fn put(&self, item: &Item<'_>) -> Result<Option<Verdict>, TargetError> {
        let timing = &self.timing;
        match &item.entry.kind {
            // What a device would keep is nothing.
            _ if self.manner.sink.is_some() => {}
            Kind::File { .. } => {
                if self.manner.verify
                    && timing.during(Stage::Digest, || digest::whole(item.content)) != item.digest
                {
                    return Ok(None);
                }
                let verdict = timing.during(Stage::Disk, || self.verdict(&item.entry))?;
                if verdict != Verdict::Wanted {
                    return Ok(Some(verdict));
                }
                timing.during(Stage::Disk, || self.manner.target.put(&item.entry, item.content))?;
            }
            Kind::Directory => {
                if !self.directories.grow(budget::of_directory(item.entry.path.as_bytes())) {
                    return Err(TargetError::memory(&item.entry));
                }
                timing.during(Stage::Disk, || self.manner.target.directory(&item.entry))?;
            }
            Kind::Symlink { .. } => timing.during(Stage::Disk, || self.manner.target.symlink(&item.entry))?,
        }
        Ok(Some(Verdict::Wanted))
    }

    /// An offer has come: which of these are not here? One that another connection brought is answered for both.
    pub(crate) fn on_offer(&self, offer: &Pack<'_>) -> Result<(), CopyError> {
        let mut state = self.state();
        self.check_numbers(&state)?;
        if !state.numbers.insert(offer.pack) {
            return Ok(());
        }
        drop(state);
        let (mut runs, mut newer) = (Vec::new(), Vec::new());
        let (mut same, mut rejected) = (Vec::new(), Vec::new());
        for (at, item) in offer.items.iter().enumerate() {
            if item.digest == Digest::ABSENT {
                let mut state = self.state();
                state.lacks = true;
                state.entries += 1;
                continue;
            }
            let verdict = match item.entry.kind {
                Kind::File { .. } => self.timing.during(Stage::Disk, || self.judge(item)),
                // As cheap to make again as to compare.
                _ => Ok(Verdict::Wanted),
            };
            match verdict {
                Ok(Verdict::Wanted) => add_to(&mut runs, at as u32),
                Ok(verdict) => {
                    if verdict == Verdict::Newer {
                        add_to(&mut newer, at as u32);
                    }
                    same.push((item, Became::of(verdict)));
                }
                Err(error) if error.is_final() => return Err(error.into()),
                Err(error) => {
                    let (lack, reason) = (error.lack(), chain(&error));
                    rejected.push((at as u32, item, lack, reason));
                }
            }
        }
        let pack = offer.pack;
        let mut state = self.state();
        for (item, what) in same {
            let bytes = size(&item.entry);
            state.done += bytes;
            // Zeros stand for what was not read.
            let digest = Some(item.digest).filter(|digest| *digest != Digest::default());
            state.close_name(self.manner.report, &item.entry, bytes, digest, what);
        }
        // Before the answer, at whose end everything that is not wanted is there.
        for (at, item, lack, reason) in rejected {
            let of = Rejected::Item(pack, at);
            state.outbox.rejected.push(Rejection { of, lack, reason: reason.clone().into() });
            let what = Became::Lacking(lack, reason);
            state.close_name(self.manner.report, &item.entry, size(&item.entry), None, what);
        }
        for chunk in newer.chunks(MAX_ENTRIES) {
            state.outbox.say(Copy::Newer { pack, runs: chunk.to_vec() });
        }
        let mut chunks = runs.chunks(MAX_ENTRIES).peekable();
        if chunks.peek().is_none() {
            state.outbox.say(Copy::Wanted { pack, runs: Vec::new(), last: true });
        }
        while let Some(chunk) = chunks.next() {
            let last = chunks.peek().is_none();
            state.outbox.say(Copy::Wanted { pack, runs: chunk.to_vec(), last });
        }
        drop(state);
        self.wake.raise();
        Ok(())
    }

    /// What becomes of a file that is offered. What cannot be looked at is wanted, and fails when it comes.
    ///
    /// # Errors
    /// What it lacks that stays.
    fn judge(&self, item: &Item<'_>) -> Result<Verdict, TargetError> {
        let holds = || self.manner.sink.is_none() && self.manner.target.holds(&item.entry, item.digest);
        match self.verdict(&item.entry) {
            Err(error) if error.is_final() || matches!(error, TargetError::Refused { .. }) => Err(error),
            Ok(verdict @ (Verdict::Current | Verdict::Newer)) => Ok(verdict),
            Ok(Verdict::Wanted) | Err(_) if holds() => Ok(Verdict::Current),
            Ok(Verdict::Wanted) | Err(_) => Ok(Verdict::Wanted),
        }
    }
}

/// Adds what comes behind all of `runs` to them.
fn add_to(runs: &mut Vec<(u32, u32)>, at: u32) {
    match runs.last_mut() {
        Some((first, count)) if *first + *count == at => *count += 1,
        _ => runs.push((at, 1)),
    }
}
