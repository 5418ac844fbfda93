//! What the two ends of a file transfer say to each other while it goes on.

use std::collections::VecDeque;
use std::sync::Arc;

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_wire::message::copy::{Account, Copy, Finished};
use farlink_wire::message::{Arrival, Message, STOPPED};
use farlink_wire::quantity::{BitsPerSec, Nanos};

use super::CopyError;
use super::file_event::FileEvent;
use super::lost::Lost;
use super::receiving::Receiving;
use super::sending::Sending;
use super::timing::Timing;
use super::worker::Shared;
use crate::channel::Channel;
use crate::control::{Control, MESSAGES_A_TURN};

/// One end of a file transfer.
pub(crate) enum End {
    /// It sends.
    Sender(Arc<Sending>),
    /// It receives.
    Receiver(Arc<Receiving>),
}

/// What came of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    /// The receiver's account.
    pub(crate) finished: Option<Finished>,
    /// When it came, or left.
    pub(crate) finished_at: Nanos,
    /// The sender's account.
    pub(crate) account: Option<Account>,
    /// It was stopped here.
    pub(crate) interrupted: bool,
}

/// What a conversation needs of who holds it.
pub(crate) trait Party {
    /// Something of it is to be looked at: samples that came, progress.
    fn observe(&mut self, end: &End, arrivals: &[Arrival]);
    /// These streams are lost: another may take the place of each. Asked often, also where none is, as others may be there by now: it
    /// must not wait for anything.
    fn replace(&mut self, end: &End, lost: Vec<Lost>) -> Result<(), CopyError>;
    /// The sender's account, when all is done.
    fn account(&mut self) -> Account;
    /// Whether this end goes when it has everything: the client, whom nobody else waits for.
    fn leaves_first(&self) -> bool {
        false
    }
    /// The server's consent has come.
    fn accepted(&mut self, _accept: farlink_wire::message::copy::Accept) {}
}

impl End {
    fn timing(&self) -> &Timing {
        match self {
            Self::Sender(sending) => &sending.timing,
            Self::Receiver(receiving) => &receiving.timing,
        }
    }

    fn take_messages(&self) -> Vec<Copy> {
        match self {
            Self::Sender(sending) => sending.take_messages(),
            Self::Receiver(receiving) => receiving.take_messages(),
        }
    }

    /// Whether what it has to say is not to wait for more.
    fn is_urgent(&self) -> bool {
        match self {
            Self::Sender(_) => true,
            Self::Receiver(receiving) => receiving.is_urgent(),
        }
    }

    fn take_lost(&self) -> Vec<Lost> {
        match self {
            Self::Sender(sending) => sending.take_lost(),
            Self::Receiver(receiving) => receiving.take_lost(),
        }
    }

    fn take_failure(&self) -> Option<CopyError> {
        match self {
            Self::Sender(sending) => sending.take_failure(),
            Self::Receiver(receiving) => receiving.take_failure(),
        }
    }

    fn on_message(&self, message: Copy) -> Result<(), CopyError> {
        match self {
            Self::Sender(sending) => sending.on_message(message),
            Self::Receiver(receiving) => receiving.on_message(message),
        }
    }

    /// All threads of it end.
    pub(crate) fn abort(&self) {
        self.stop(None);
    }

    /// As [`Self::abort`], and whoever talks is told why.
    pub(crate) fn fail(&self, error: CopyError) {
        self.stop(Some(error));
    }

    fn stop(&self, error: Option<CopyError>) {
        match self {
            Self::Sender(sending) => sending.abort(error),
            Self::Receiver(receiving) => receiving.abort(error),
        }
    }

    /// Waits until all threads have ended, after [`Self::abort`]: nothing is read or written then.
    pub(crate) fn wait(&self) {
        match self {
            Self::Sender(sending) => sending.timing.wait(),
            Self::Receiver(receiving) => {
                receiving.timing.wait();
                receiving.let_go();
            }
        }
    }

    /// What became of names since this was asked last.
    pub(crate) fn take_events(&self) -> Vec<FileEvent> {
        match self {
            Self::Sender(sending) => sending.take_events(),
            Self::Receiver(receiving) => receiving.take_events(),
        }
    }

    /// From now on no more bits per second than `limit`: the sender sees to it.
    pub(crate) fn hold(&self, limit: Option<BitsPerSec>) {
        match self {
            Self::Sender(sending) => sending.hold(limit),
            Self::Receiver(receiving) => receiving.ask_to_hold(limit),
        }
    }

    /// Data connections that are at work.
    pub(crate) fn streams(&self) -> usize {
        match self {
            Self::Sender(sending) => sending.streams(),
            Self::Receiver(receiving) => receiving.streams(),
        }
    }

    /// A data connection joins.
    pub(crate) fn join(&self, stream: u32, channel: Channel) -> Result<(), CopyError> {
        let started = match self {
            Self::Sender(sending) => super::stream_out::StreamOut::start(sending, stream, channel),
            Self::Receiver(receiving) => super::stream_in::StreamIn::start(receiving, stream, channel),
        };
        started.map_err(|source| CopyError::System { attempt: "begin to use a data connection", source })
    }
}

/// Talks over `control` until both accounts are there; `wake` is raised when the end has something to say, and `early` is what the far
/// side has said already.
pub(crate) fn talk(
    control: &mut Control,
    end: &End,
    wake: &Wake,
    stops: &[&Wake],
    patience: Nanos,
    party: &mut dyn Party,
    mut early: VecDeque<Message>,
) -> Result<Talk, CopyError> {
    let _counted = end.timing().count();
    let mut poller = Poller::new().map_err(CopyError::wait)?;
    poller.add(&*control, CONTROL, Interest::Read).map_err(CopyError::wait)?;
    poller.add(wake, WAKE, Interest::Read).map_err(CopyError::wait)?;
    for stop in stops {
        poller.add(stop, STOP, Interest::Read).map_err(CopyError::wait)?;
    }
    let (mut talk, mut ready) = (Talk::default(), Vec::new());
    // What waits until the far side takes it: digests of a large file that is there are megabytes.
    let mut pending = VecDeque::new();
    let mut lost: Vec<(Nanos, Lost)> = Vec::new();
    let (mut next_sign, mut next_look, mut next_account) = (monotonic(), monotonic(), monotonic());
    let mut looked = monotonic();
    // From when on what may wait for more is said, and how long that waits.
    let (mut next_words, mut hold) = (monotonic(), Nanos::ZERO);
    loop {
        wake.lower();
        if let Some(failure) = end.take_failure() {
            return Err(failure);
        }
        let turned = monotonic();
        lost.extend(end.take_lost().into_iter().map(|lost| (turned, lost)));
        // Where the far end gave up, it says so on this connection: not before that may have come is another opened.
        let ripe = lost.iter().take_while(|(at, _)| turned.since(*at) >= GRACE).count();
        let ripe: Vec<_> = lost.drain(..ripe).map(|(_, lost)| lost).collect();
        party.replace(end, ripe)?;
        let mut is_asked = false;
        while control.unsent() < MOST_UNSENT {
            // Not while some of it waits: an end that has more to say than the far side takes waits, too.
            if pending.is_empty()
                && !std::mem::replace(&mut is_asked, true)
                && (turned >= next_words || end.is_urgent())
            {
                pending.extend(end.take_messages());
                if !pending.is_empty() {
                    next_words = turned.after(hold);
                }
            }
            let Some(message) = pending.pop_front() else { break };
            if let Copy::Finished(finished) = &message {
                talk.finished = Some(finished.clone());
                talk.finished_at = monotonic();
                // What arrived last is told before that was all.
                while let News::Some(news) = News::of(end) {
                    party.observe(end, &news);
                    control.add(&Message::Arrived(news))?;
                }
            }
            control.add(&Message::Copy(message))?;
            if control.unsent() >= MOST_UNSENT {
                control.flush()?;
            }
        }
        control.flush()?;
        // A client that has everything, and the sender's account of it, need not wait for another.
        if talk.finished.is_some() && talk.account.is_some() && party.leaves_first() && control.unsent() == 0
        {
            end.abort();
            return Ok(talk);
        }
        let now = monotonic();
        if now >= next_sign {
            if let End::Sender(sending) = end
                && let Some((entries, bytes)) = sending.extent()
            {
                control.add(&Message::Copy(Copy::Extent { entries, bytes }))?;
            }
            match News::of(end) {
                News::Some(news) => {
                    party.observe(end, &news);
                    control.add(&Message::Arrived(news))?;
                }
                News::None => control.add(&Message::Alive)?,
            }
            hold = control.least_rtt().map_or(Nanos::ZERO, |rtt| Nanos(rtt.0 / WORDS_A_ROUND_TRIP));
            next_sign = now.after(SIGN);
        }
        if let End::Sender(sending) = end
            && sending.has_sent_all()
            && pending.is_empty()
            && now >= next_account
        {
            // Before it is asked for: it arrives with the last bytes, and behind all that is said of what lacks.
            control.add(&Message::Copy(Copy::Sent(Box::new(party.account()))))?;
            next_account = now.after(SIGN);
        }
        if now >= next_look {
            party.observe(end, &[]);
            next_look = now.after(LOOK);
        }
        control.flush()?;
        // Whoever never stops talking is not to keep this end from anything else.
        let mut turn = MESSAGES_A_TURN;
        while turn > 0
            && let Some(message) =
                early.pop_front().map_or_else(|| control.poll(), |message| Ok(Some(message)))?
        {
            turn -= 1;
            match message {
                Message::Alive => {}
                Message::Arrived(news) => party.observe(end, &news),
                Message::Failed(reason) if reason.as_str().ends_with(STOPPED) => {
                    return Err(CopyError::FarStopped);
                }
                Message::Failed(reason) | Message::Refuse(reason) => {
                    return Err(CopyError::FarEnd { reason });
                }
                Message::Copy(Copy::Accept(accept)) => party.accepted(accept),
                Message::Copy(Copy::Finished(finished)) => {
                    talk.finished = Some(finished.clone());
                    talk.finished_at = monotonic();
                    end.on_message(Copy::Finished(finished))?;
                    party.observe(end, &[]);
                    let account = party.account();
                    control.send(&Message::Copy(Copy::Sent(Box::new(account.clone()))))?;
                    talk.account = Some(account);
                    return Ok(talk);
                }
                Message::Copy(Copy::Sent(account)) => {
                    talk.account = Some(*account);
                    if talk.finished.is_some() {
                        end.abort();
                        return Ok(talk);
                    }
                }
                Message::Copy(message) => {
                    end.on_message(message)?;
                }
                other => return Err(crate::control::ControlError::out_of_place(&other).into()),
            }
        }
        // A process that was stopped, as by Ctrl-Z, goes on where its far end has waited: one of the same process has.
        let absent = now.since(looked);
        looked = now;
        if absent > ABSENCE {
            control.excuse(absent);
        }
        if now.since(control.heard()) > patience {
            return Err(crate::control::ControlError::Silent { quiet: now.since(control.heard()) }.into());
        }
        let waits = control.unsent() > 0 || !pending.is_empty();
        let longest = if turn == 0 {
            Nanos::ZERO
        } else if waits {
            BREATH
        } else {
            // What was not due at this turn's beginning, and has become so since, is not to wait for anything else.
            let next = if turned < next_words { next_words.min(next_sign) } else { next_sign };
            next.min(next_look).since(monotonic()).min(LOOK)
        };
        poller.wait(longest, &mut ready).map_err(CopyError::wait)?;
        if ready.contains(&STOP) {
            talk.interrupted = true;
            return Ok(talk);
        }
    }
}

/// What has arrived at a receiver and was not told yet.
enum News {
    Some(Vec<Arrival>),
    None,
}

impl News {
    fn of(end: &End) -> Self {
        match end {
            End::Receiver(receiving) => match receiving.take_arrivals() {
                news if news.is_empty() => Self::None,
                news => Self::Some(news),
            },
            End::Sender(_) => Self::None,
        }
    }
}

const CONTROL: u64 = 0;
const WAKE: u64 = 1;
const STOP: u64 = 2;

/// How often an end says that it is alive, and the receiver what arrived.
const SIGN: Nanos = Nanos(200_000_000);

/// How often progress is looked at.
const LOOK: Nanos = Nanos(100_000_000);

/// Bytes that may wait for the far side before more is held back.
const MOST_UNSENT: usize = 256 * 1024;

/// How long after a data connection broke another takes its place.
const GRACE: Nanos = Nanos(200_000_000);

/// From how long on an end that did not look was not there.
const ABSENCE: Nanos = Nanos(1_000_000_000);

/// How often an end says what may wait for more. A connection that has said little may have ten packets on their way (RFC 6928), and
/// the last words, with which a copy ends, wait behind them.
const WORDS_A_ROUND_TRIP: u64 = 6;

/// How soon it is tried again to send what waits.
const BREATH: Nanos = Nanos(2_000_000);
