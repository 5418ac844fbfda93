//! What a copy would leave as it stands, where that is at another host: the sender tells each name, and the receiver judges it. Nothing is copied.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Poller, Wake, wait_for};
use farlink_wire::message::copy::{Copy, Judgement, Lack, MOST_REJECTIONS, Place, Verdict};
use farlink_wire::message::{MAX_ENTRIES, Message};
use farlink_wire::path::RelativePath;
use farlink_wire::quantity::Nanos;

use super::CopyError;
use super::file_event::{Became, FileEvent};
use super::target::Target;
use super::telling::{Name, SIGN};
use crate::chain;
use crate::control::{Control, ControlError, MESSAGES_A_TURN};

/// The receiver's part: says what would become of each name that it is told, until that was all, or one of `stops` is raised.
pub(super) fn answer(
    control: &mut Control,
    target: Option<&Target>,
    patience: Nanos,
    stops: &[&Wake],
) -> Result<(), CopyError> {
    let mut poller = Poller::new().map_err(CopyError::wait)?;
    poller.add(&*control, 0, Interest::Read).map_err(CopyError::wait)?;
    for stop in stops {
        poller.add(stop, STOP, Interest::Read).map_err(CopyError::wait)?;
    }
    let (mut judged, mut failing, mut ready) = (Vec::new(), 0, Vec::new());
    let mut next_sign = monotonic().after(SIGN);
    loop {
        let message = control.poll()?;
        let is_all = message.is_none();
        match message {
            Some(Message::Copy(Copy::Foretold { path, bytes, node })) => {
                let path =
                    named(&path).ok_or(CopyError::OutOfPlace { what: "a name that leads elsewhere" })?;
                let foreseen = |target: &Target| target.foresee(&path, bytes, &node);
                judged.push(match target.map_or(Ok(Verdict::Wanted), foreseen) {
                    Ok(verdict) => Judgement::Verdict(verdict),
                    Err(error) if error.is_final() => return Err(error.into()),
                    Err(error) => {
                        failing += 1;
                        Judgement::Failing(chain(&error).into())
                    }
                });
            }
            Some(Message::Copy(Copy::Total { .. })) => {
                // As it came: that was all.
                let total = Copy::Total { files: 0, packs: 0, entries: 0, bytes: 0 };
                for last in [Copy::Judged(judged), total] {
                    if !control.send_patiently(&Message::Copy(last), patience, stops)? {
                        return Ok(());
                    }
                }
                // Whoever is done hangs up, and what has not left by then is lost.
                control.flush_patiently(0, patience, stops)?;
                return Ok(());
            }
            Some(Message::Alive) | None => {}
            Some(other) => return Err(ControlError::out_of_place(&other).into()),
        }
        if !judged.is_empty() && (is_all || judged.len() == MAX_ENTRIES || failing == MOST_REJECTIONS) {
            let judged = Copy::Judged(std::mem::take(&mut judged));
            failing = 0;
            if !control.send_patiently(&Message::Copy(judged), patience, stops)? {
                return Ok(());
            }
        }
        let now = monotonic();
        if now >= next_sign {
            next_sign = now.after(SIGN);
            let is_said = control.send_patiently(&Message::Alive, patience, stops)?;
            // Of who never stops talking, too.
            if !is_said || stops.iter().any(|stop| stop.is_raised()) {
                return Ok(());
            }
        }
        if is_all {
            check_patience(control, patience)?;
            control.flush()?;
            let pause = if control.has_unsent() { BREATH } else { SIGN };
            poller.wait(pause, &mut ready).map_err(CopyError::wait)?;
            if ready.contains(&STOP) {
                return Ok(());
            }
        }
    }
}

/// The sender's part, of names that a walk says.
pub(super) struct Asking<'a> {
    control: Control,
    /// What the far end has said already.
    early: VecDeque<Message>,
    patience: Nanos,
    said: &'a Receiver<Option<Name>>,
    /// Names that are not told on yet, in the order of the walk, and whether the far end is still to judge each.
    names: VecDeque<(FileEvent, bool)>,
    /// Whether the far end was told all, and has judged all.
    is_told: bool,
    is_judged: bool,
}

impl<'a> Asking<'a> {
    /// Asks over `control`, by which the far end has said `early`, of what the walk `said`.
    pub(super) fn new(
        control: Control,
        early: VecDeque<Message>,
        patience: Nanos,
        said: &'a Receiver<Option<Name>>,
    ) -> Self {
        let names = VecDeque::new();
        Self { control, early, patience, said, names, is_told: false, is_judged: false }
    }

    /// A turn: what has come is heard and what is known handed to `hear`, and the far end is told what the walk has found. False where nothing of that
    /// was to be done.
    pub(super) fn turn(&mut self, hear: &mut dyn FnMut(FileEvent)) -> Result<bool, CopyError> {
        let mut is_news = false;
        for _ in 0..MESSAGES_A_TURN {
            // Behind the last word the far end leaves.
            if self.is_judged || !self.listen()? {
                break;
            }
            is_news = true;
        }
        for _ in 0..NAMES_A_TURN {
            let Some((event, _)) = self.names.pop_front_if(|(_, is_open)| !*is_open) else { break };
            is_news = true;
            hear(event);
        }
        Ok(self.tell()? || is_news)
    }

    /// Tells the far end what the walk says meanwhile; whether that was anything.
    fn tell(&mut self) -> Result<bool, CopyError> {
        let mut is_any = false;
        while !self.is_told && self.names.len() < MOST_ASKED && self.control.unsent() < MOST_UNSENT {
            let message = match self.said.try_recv() {
                Ok(Some(name)) => {
                    let asks = name.node.is_some().then(|| name.message()).flatten();
                    self.names.push_back((name.event, asks.is_some()));
                    asks
                }
                Ok(None) => {
                    self.is_told = true;
                    Some(Copy::Total { files: 0, packs: 0, entries: 0, bytes: 0 })
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(CopyError::Panicked),
            };
            is_any = true;
            if let Some(message) = message {
                self.control.add(&Message::Copy(message))?;
            }
        }
        self.control.flush()?;
        Ok(is_any)
    }

    /// Takes a message of the far end; false where there is none.
    fn listen(&mut self) -> Result<bool, CopyError> {
        let message = match self.early.pop_front() {
            Some(message) => Some(message),
            None => self.control.poll()?,
        };
        match message {
            Some(Message::Copy(Copy::Judged(judged))) => {
                let mut open = self.names.iter_mut().filter(|(_, is_open)| *is_open);
                for judgement in judged {
                    let (event, is_open) = open.next().ok_or(CopyError::OutOfPlace { what: UNASKED })?;
                    event.is_far = matches!(judgement, Judgement::Failing(_));
                    event.what = match judgement {
                        Judgement::Verdict(verdict) => Became::of(verdict),
                        Judgement::Failing(reason) => Became::Lacking(Lack::Failed, reason.to_string()),
                    };
                    *is_open = false;
                }
            }
            Some(Message::Copy(Copy::Total { .. })) => {
                self.is_judged = true;
                if !self.is_told || self.names.iter().any(|(_, is_open)| *is_open) {
                    return Err(CopyError::OutOfPlace { what: "that all names are judged" });
                }
            }
            Some(Message::Alive | Message::Copy(Copy::Accept(_))) => {}
            Some(Message::Failed(refusal) | Message::Refuse(refusal)) => {
                return Err(CopyError::FarEnd(refusal));
            }
            Some(other) => return Err(ControlError::out_of_place(&other).into()),
            None => {
                check_patience(&self.control, self.patience)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Says that this end is alive.
    pub(super) fn live(&mut self) -> Result<(), ControlError> {
        self.control.send(&Message::Alive)
    }

    /// Waits a moment for the far end to say something, or for the walk, unless `stop` is raised.
    pub(super) fn wait(&self, stop: &Wake) -> Result<(), ControlError> {
        wait_for(&self.control, Interest::Read, stop, BREATH).map(drop).map_err(ControlError::Wait)
    }

    /// Whether all is judged and told on.
    pub(super) fn is_done(&self) -> bool {
        self.is_judged && self.names.is_empty()
    }
}

/// What would become of `name` at a `target` of this host.
///
/// # Errors
/// Why nothing can be copied to it.
pub(super) fn judged(name: Name, target: Option<&Target>) -> Result<FileEvent, CopyError> {
    let Name { event, node } = name;
    let path = Place::try_from(event.path.clone()).ok();
    let path = path.and_then(|path| named(&path));
    match (target, node, path) {
        (Some(target), Some(node), Some(path)) => {
            let what = match target.foresee(&path, event.bytes, &node) {
                Ok(verdict) => Became::of(verdict),
                Err(error) if error.is_final() => return Err(error.into()),
                Err(error) => Became::Lacking(error.lack(), chain(&error)),
            };
            Ok(FileEvent { what, ..event })
        }
        _ => Ok(event),
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

/// Names that wait for the far end to judge them: what a second has of them over a long path.
const MOST_ASKED: usize = 1 << 15;

/// Bytes that wait for the far end to read them.
const MOST_UNSENT: usize = 64 << 10;

/// Names that are handed on before it is looked at anything else.
const NAMES_A_TURN: usize = 256;

/// What a far end says of names that it was not told.
const UNASKED: &str = "what nobody asked";

/// How long a sender waits at once.
const BREATH: Nanos = Nanos(5_000_000);

/// What is waited for besides the connection.
const STOP: u64 = 1;
