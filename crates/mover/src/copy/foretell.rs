//! What a copy would copy, and nothing copied.

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_wire::message::copy::{Copy, Lack, Request};
use farlink_wire::message::{Message, Way};
use farlink_wire::quantity::Nanos;

use super::CopyError;
use super::attempt::{Attempt, Prepared, check, random};
use super::file_event::{Became, FileEvent};
use super::ledger::Halves;
use super::names::Names;
use super::plan::{Listener, Notice, Plan};
use super::telling::{self, SIGN};
use crate::control::ControlError;

/// What a copy would come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// Names that would be copied.
    pub entries: u64,
    /// Names that would not, for a reason that is an error.
    pub failed: u64,
    /// It was ended before all names were told.
    pub interrupted: bool,
}

/// Each name that `plan` would copy, and each that it would not for a reason; `listener` is told one at a time, until `stop` is raised. Where
/// it is behind, this waits for it.
///
/// # Errors
/// Where the far end cannot be asked.
pub fn foretell(plan: &Plan, stop: &Wake, listener: &mut dyn Listener) -> Result<Foretold, CopyError> {
    let mut counting = Counting { foretold: Foretold::default(), halves: Halves::default(), listener };
    let whole = ask(plan, stop, &mut counting)?;
    Ok(Foretold { interrupted: !whole, ..counting.foretold })
}

/// Who counts what is told, and has it told.
struct Counting<'a> {
    foretold: Foretold,
    halves: Halves,
    listener: &'a mut dyn Listener,
}

impl Counting<'_> {
    fn hear(&mut self, notice: Notice) {
        if let Notice::File(event) = &notice {
            match event.what {
                Became::Copied | Became::Same | Became::Newer => self.foretold.entries += 1,
                Became::Lacking(Lack::Skipped | Lack::Later, _) => {}
                Became::Lacking(Lack::Unfinished, _) => {
                    let is_news = u64::from(self.halves.add(&event.path));
                    self.foretold.failed += is_news;
                    // It was said to be copied.
                    self.foretold.entries = self.foretold.entries.saturating_sub(is_news);
                }
                Became::Lacking(..) => self.foretold.failed += 1,
            }
        }
        self.listener.hear(notice);
    }

    /// Waits while the listener is behind, and calls `meanwhile` often; false where `stop` was raised.
    fn wait(
        &self,
        stop: &Wake,
        meanwhile: &mut dyn FnMut() -> Result<(), ControlError>,
    ) -> Result<bool, ControlError> {
        let mut next_sign = monotonic().after(SIGN);
        while self.listener.is_behind() {
            let waited = wait_for(stop, Interest::Read, stop, BREATH).map_err(ControlError::Wait)?;
            if waited != Waited::Over {
                return Ok(false);
            }
            if monotonic() >= next_sign {
                next_sign = monotonic().after(SIGN);
                meanwhile()?;
            }
        }
        Ok(true)
    }
}

/// The names, as above; false where it was ended before the last.
fn ask(plan: &Plan, stop: &Wake, counting: &mut Counting<'_>) -> Result<bool, CopyError> {
    // It is nobody's to take over.
    let names = Names { command: random()?, ..Names::default() };
    let attempt = Attempt { plan, rules: &plan.rules, names, resume: false, stop };
    if plan.way == Way::Forward {
        if let Prepared::Sources(sources, filter) = attempt.prepare()? {
            let over = || stop.is_raised();
            let mut waited = Ok(true);
            telling::walk(&sources, &filter, plan.length, &over, |event| {
                counting.hear(Notice::File(event));
                waited = counting.wait(stop, &mut || Ok(()));
                matches!(waited, Ok(true))
            });
            waited?;
        }
        return Ok(!stop.is_raised());
    }
    let request = Request { dry_run: true, ..attempt.request(farlink_wire::message::Token(random()?)) };
    check(&request)?;
    let opened = plan.far.open(&request, attempt.this_end(request.saved), stop, &mut |text| {
        counting.hear(Notice::Warning(text));
    })?;
    let Some(opened) = opened else { return Ok(false) };
    let (mut control, mut early) = (opened.control, opened.early);
    loop {
        // The far end waits as long as it hears from here.
        if !counting.wait(stop, &mut || control.send(&Message::Alive))? {
            return Ok(false);
        }
        let until = monotonic().after(plan.patience.get());
        let message = match early.pop_front() {
            Some(message) => Some(message),
            None => control.next(until, stop)?,
        };
        match message {
            Some(Message::Copy(Copy::Foretold { path, bytes })) => {
                let (path, what) = (path.to_string(), Became::Copied);
                counting.hear(Notice::File(FileEvent { path, bytes, digest: None, what }));
            }
            Some(Message::Copy(Copy::Skipped { path, lack, reason })) => {
                let what = Became::Lacking(lack, reason.to_string());
                counting.hear(Notice::File(FileEvent {
                    path: path.to_string(),
                    bytes: 0,
                    digest: None,
                    what,
                }));
            }
            Some(Message::Copy(Copy::Total { .. })) => return Ok(true),
            None => return Ok(false),
            Some(Message::Alive | Message::Copy(Copy::Accept(_))) => {}
            Some(Message::Failed(reason) | Message::Refuse(reason)) => {
                return Err(CopyError::FarEnd { reason });
            }
            Some(other) => return Err(ControlError::out_of_place(&other).into()),
        }
    }
}

/// How long it waits at once for who is behind.
const BREATH: Nanos = Nanos(5_000_000);
