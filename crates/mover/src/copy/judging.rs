//! What a copy would leave as it stands, where that is at another host: the sender tells each name, and the receiver judges it. Nothing is copied.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_wire::message::copy::{Copy, Place};
use farlink_wire::message::{MAX_ENTRIES, Message};
use farlink_wire::path::RelativePath;
use farlink_wire::quantity::Nanos;

use super::CopyError;
use super::file_event::{Became, FileEvent};
use super::target::Target;
use super::telling::{Name, SIGN};
use crate::control::{Control, ControlError};

/// The receiver's part: says what would become of each name that it is told, until that was all, or one of `stops` is raised.
pub(super) fn answer(
    control: &mut Control,
    target: &Target,
    patience: Nanos,
    stops: &[&Wake],
) -> Result<(), CopyError> {
    let mut poller = Poller::new().map_err(CopyError::wait)?;
    poller.add(&*control, 0, Interest::Read).map_err(CopyError::wait)?;
    for stop in stops {
        poller.add(stop, 1, Interest::Read).map_err(CopyError::wait)?;
    }
    let (mut verdicts, mut ready) = (Vec::new(), Vec::new());
    let mut next_sign = monotonic().after(SIGN);
    loop {
        let message = control.poll()?;
        let is_all = message.is_none();
        match message {
            Some(Message::Copy(Copy::Foretold { path, bytes, node })) => {
                let path = named(&path).ok_or(CopyError::Contradiction)?;
                verdicts.push(target.foresee(&path, bytes, &node));
            }
            Some(Message::Copy(Copy::Total { .. })) => {
                control.send_patiently(&Message::Copy(Copy::Judged(verdicts)), patience)?;
                // Whoever is done hangs up, and what has not left by then is lost.
                return Ok(control.flush_patiently(0, patience)?);
            }
            Some(Message::Alive) | None => {}
            Some(other) => return Err(ControlError::out_of_place(&other).into()),
        }
        if !verdicts.is_empty() && (is_all || verdicts.len() == MAX_ENTRIES) {
            let judged = Copy::Judged(std::mem::take(&mut verdicts));
            control.send_patiently(&Message::Copy(judged), patience)?;
        }
        let now = monotonic();
        if now >= next_sign {
            next_sign = now.after(SIGN);
            control.send_patiently(&Message::Alive, patience)?;
        }
        if is_all {
            check_patience(control, patience)?;
            poller.wait(SIGN, &mut ready).map_err(CopyError::wait)?;
            if ready.contains(&1) {
                return Ok(());
            }
        }
    }
}

/// The sender's part, of names that a walk says.
pub(super) struct Asking<'a> {
    pub(super) control: Control,
    /// What the far end has said already.
    pub(super) early: VecDeque<Message>,
    pub(super) patience: Nanos,
    pub(super) said: &'a Receiver<Option<Name>>,
    /// Names that the far end was told and has not judged.
    pub(super) asked: VecDeque<FileEvent>,
    /// Whether all were told.
    pub(super) is_told: bool,
}

impl Asking<'_> {
    /// Tells the far end what the walk says meanwhile; what is not to be judged goes to `hear` at once.
    pub(super) fn tell(&mut self, hear: &mut dyn FnMut(FileEvent)) -> Result<(), CopyError> {
        while !self.is_told && self.asked.len() < MOST_ASKED {
            let message = match self.said.try_recv() {
                Ok(Some(name)) => match name.message().filter(|_| name.node.is_some()) {
                    Some(message) => {
                        self.asked.push_back(name.event);
                        message
                    }
                    None => {
                        hear(name.event);
                        continue;
                    }
                },
                Ok(None) => {
                    self.is_told = true;
                    Copy::Total { files: 0, packs: 0, entries: 0, bytes: 0 }
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(CopyError::Panicked),
            };
            self.control.send_patiently(&Message::Copy(message), self.patience)?;
        }
        Ok(())
    }

    /// Takes what the far end has said, and hands what would become of names to `hear`; false where it has said nothing.
    pub(super) fn listen(&mut self, hear: &mut dyn FnMut(FileEvent)) -> Result<bool, CopyError> {
        let message = match self.early.pop_front() {
            Some(message) => Some(message),
            None => self.control.poll()?,
        };
        match message {
            Some(Message::Copy(Copy::Judged(verdicts))) => {
                for verdict in verdicts {
                    let event = self.asked.pop_front();
                    let event = event.ok_or(CopyError::OutOfPlace { what: "what nobody asked" })?;
                    hear(FileEvent { what: Became::of(verdict), ..event });
                }
            }
            Some(Message::Alive | Message::Copy(Copy::Accept(_))) => {}
            Some(Message::Failed(reason) | Message::Refuse(reason)) => {
                return Err(CopyError::FarEnd { reason });
            }
            Some(other) => return Err(ControlError::out_of_place(&other).into()),
            None => {
                check_patience(&self.control, self.patience)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether all is told and judged.
    pub(super) fn is_done(&self) -> bool {
        self.is_told && self.asked.is_empty()
    }
}

/// What would become of `name` at a `target` of this host.
pub(super) fn judged(name: Name, target: Option<&Target>) -> FileEvent {
    let Name { event, node } = name;
    let path = Place::try_from(event.path.clone()).ok();
    let path = path.and_then(|path| named(&path));
    match (target, node, path) {
        (Some(target), Some(node), Some(path)) => {
            let what = Became::of(target.foresee(&path, event.bytes, &node));
            FileEvent { what, ..event }
        }
        _ => event,
    }
}

/// What `name`, as it is told, stands for beneath the destination; that itself is a dot.
fn named(name: &Place) -> Option<RelativePath> {
    if name.as_bytes() == b"." { Some(RelativePath::root()) } else { RelativePath::new(name.as_bytes()).ok() }
}

/// An error where the far end has been silent for longer than `patience`.
fn check_patience(control: &Control, patience: Nanos) -> Result<(), ControlError> {
    let quiet = monotonic().since(control.heard());
    if quiet > patience { Err(ControlError::Silent { quiet }) } else { Ok(()) }
}

/// Names that a far end is told before it has judged: it answers in a few bytes each, which so always find room.
const MOST_ASKED: usize = 4096;
