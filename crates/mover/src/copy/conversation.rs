//! What the two ends of a file transfer say to each other while it goes on.

use std::collections::VecDeque;

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_wire::message::copy::{Account, Copy, Finished};
use farlink_wire::message::{Arrival, Message};
use farlink_wire::quantity::Nanos;
use farlink_wire::refusal::Cause;

use super::CopyError;
use super::end::End;
use super::lost::Lost;
use crate::control::{Control, ControlError, MESSAGES_A_TURN};

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

/// Talks over `control` until both accounts are there; `wake` is raised when the end has something to say, and `early` is what the far
/// side has said already.
pub(crate) fn talk(
    control: &mut Control,
    end: &End,
    wake: &Wake,
    stops: &[&Wake],
    patience: Nanos,
    party: &mut dyn Party,
    early: VecDeque<Message>,
) -> Result<Talk, CopyError> {
    let _counted = end.timing().count();
    let mut poller = Poller::new().map_err(CopyError::wait)?;
    poller.add(&*control, CONTROL, Interest::Read).map_err(CopyError::wait)?;
    poller.add(wake, WAKE, Interest::Read).map_err(CopyError::wait)?;
    for stop in stops {
        poller.add(stop, STOP, Interest::Read).map_err(CopyError::wait)?;
    }
    let mut conversation = Conversation::new(control, end, party, early);
    let mut ready = Vec::new();
    // Whoever takes what became of names may take his time, and what is said of more waits in the network meanwhile.
    let mut listened = true;
    loop {
        wake.lower();
        if let Some(failure) = end.take_failure() {
            return Err(failure);
        }
        let turned = monotonic();
        conversation.replace_lost(turned)?;
        conversation.pass_on(turned)?;
        let now = monotonic();
        if !conversation.has_all() {
            conversation.say_what_is_due(now)?;
        }
        if conversation.has_all() || conversation.has_said_all() {
            end.abort();
            return Ok(conversation.talk);
        }
        let listens = !end.is_untold();
        if listens != std::mem::replace(&mut listened, listens) {
            let changed = if listens {
                poller.add(&*conversation.control, CONTROL, Interest::Read)
            } else {
                poller.remove(&*conversation.control)
            };
            changed.map_err(CopyError::wait)?;
        }
        let heard = if listens { conversation.hear()? } else { conversation.excuse(now) };
        if heard == Heard::Last {
            return Ok(conversation.talk);
        }
        conversation.check_patience(now, patience)?;
        let pause = if heard == Heard::More { Nanos::ZERO } else { conversation.pause(turned) };
        poller.wait(pause, &mut ready).map_err(CopyError::wait)?;
        if ready.contains(&STOP) {
            conversation.talk.interrupted = true;
            return Ok(conversation.talk);
        }
    }
}

/// A conversation that goes on.
struct Conversation<'a> {
    control: &'a mut Control,
    end: &'a End,
    party: &'a mut dyn Party,
    talk: Talk,
    /// What the far side has said before anybody listened.
    early: VecDeque<Message>,
    /// What waits until the far side takes it: digests of a large file that is there are megabytes.
    pending: VecDeque<Copy>,
    /// Data connections that are lost, and since when.
    lost: Vec<(Nanos, Lost)>,
    next_sign: Nanos,
    next_look: Nanos,
    next_account: Nanos,
    /// From when on what may wait for more is said, and how long that waits.
    next_words: Nanos,
    hold: Nanos,
    /// When this end looked last.
    looked: Nanos,
    /// Whether it has nothing more to say than what waits.
    is_leaving: bool,
}

/// What was heard of the far side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// All that has come.
    All,
    /// Some of it: more may have come.
    More,
    /// The last that there is to hear.
    Last,
}

impl<'a> Conversation<'a> {
    fn new(
        control: &'a mut Control,
        end: &'a End,
        party: &'a mut dyn Party,
        early: VecDeque<Message>,
    ) -> Self {
        let now = monotonic();
        Self {
            control,
            end,
            party,
            talk: Talk::default(),
            early,
            pending: VecDeque::new(),
            lost: Vec::new(),
            next_sign: now,
            next_look: now,
            next_account: now,
            next_words: now,
            hold: Nanos::ZERO,
            looked: now,
            is_leaving: false,
        }
    }

    /// Has others take the place of connections that were lost. Where the far end gave up, it says so on this one: not before that may have
    /// come is another opened.
    fn replace_lost(&mut self, now: Nanos) -> Result<(), CopyError> {
        self.lost.extend(self.end.take_lost().into_iter().map(|lost| (now, lost)));
        let ripe = self.lost.iter().take_while(|(at, _)| now.since(*at) >= GRACE).count();
        let ripe = self.lost.drain(..ripe).map(|(_, lost)| lost).collect();
        self.party.replace(self.end, ripe)
    }

    /// Says what the end has to say, as far as the far side takes it.
    fn pass_on(&mut self, now: Nanos) -> Result<(), CopyError> {
        let mut is_asked = false;
        while self.control.unsent() < MOST_UNSENT {
            // Not while some of it waits: an end that has more to say than the far side takes waits, too.
            if self.pending.is_empty()
                && !std::mem::replace(&mut is_asked, true)
                && (now >= self.next_words || self.end.is_urgent())
            {
                self.pending.extend(self.end.take_messages());
                if !self.pending.is_empty() {
                    self.next_words = now.after(self.hold);
                }
            }
            let Some(message) = self.pending.pop_front() else { break };
            if let Copy::Finished(finished) = &message {
                self.note_finished(finished.clone());
                // What arrived last is told before that was all.
                while self.tell_arrivals()? {}
            }
            self.control.add(&Message::Copy(message))?;
            if self.control.unsent() >= MOST_UNSENT {
                self.control.flush()?;
            }
        }
        Ok(self.control.flush()?)
    }

    /// Tells the far side what has arrived since it was told last; whether anything has.
    fn tell_arrivals(&mut self) -> Result<bool, CopyError> {
        let arrivals = self.end.take_arrivals();
        if arrivals.is_empty() {
            return Ok(false);
        }
        self.party.observe(self.end, &arrivals);
        self.control.add(&Message::Arrived(arrivals))?;
        Ok(true)
    }

    fn note_finished(&mut self, finished: Finished) {
        self.talk.finished = Some(finished);
        self.talk.finished_at = monotonic();
    }

    /// Whether a client has everything, and the sender's account of it: it need not wait for another.
    fn has_all(&self) -> bool {
        let is_told = self.talk.finished.is_some() && self.talk.account.is_some();
        is_told && self.end.knows_what_lacks() && self.party.leaves_first() && !self.control.has_unsent()
    }

    /// Whether a server has said its last words, and they have left.
    fn has_said_all(&self) -> bool {
        self.is_leaving && self.pending.is_empty() && !self.control.has_unsent()
    }

    /// Says that this end is there, how far it is, and what a sender accounts for: not while the far side has not taken what was said before.
    fn say_what_is_due(&mut self, now: Nanos) -> Result<(), CopyError> {
        let is_heard = self.control.unsent() == 0;
        if now >= self.next_sign && is_heard {
            if let End::Sender(sending) = self.end
                && let Some((entries, bytes)) = sending.extent()
            {
                self.control.add(&Message::Copy(Copy::Extent { entries, bytes }))?;
            }
            if !self.tell_arrivals()? {
                self.control.add(&Message::Alive)?;
            }
            let rtt = self.control.least_rtt();
            self.hold = rtt.map_or(Nanos::ZERO, |rtt| Nanos(rtt.0 / WORDS_A_ROUND_TRIP));
            self.next_sign = now.after(SIGN);
        }
        if let End::Sender(sending) = self.end
            && sending.has_sent_all()
            && self.pending.is_empty()
            && now >= self.next_account
            && is_heard
            && !self.is_leaving
        {
            // Before it is asked for: it arrives with the last bytes, and behind what is said of what lacks, but for what is read once more.
            self.control.add(&Message::Copy(Copy::Sent(Box::new(self.party.account()))))?;
            self.next_account = now.after(SIGN);
        }
        if now >= self.next_look {
            self.party.observe(self.end, &[]);
            self.next_look = now.after(LOOK);
        }
        Ok(self.control.flush()?)
    }

    /// Takes what the far side says, and no more at once than lets this end do anything else: whoever never stops talking is not to keep it
    /// from that.
    fn hear(&mut self) -> Result<Heard, CopyError> {
        for _ in 0..MESSAGES_A_TURN {
            let early = self.early.pop_front();
            let Some(message) = early.map_or_else(|| self.control.poll(), |message| Ok(Some(message)))?
            else {
                return Ok(Heard::All);
            };
            match message {
                Message::Alive => {}
                Message::Arrived(news) => self.party.observe(self.end, &news),
                Message::Failed(refusal) if refusal.cause == Cause::Stopped => {
                    return Err(CopyError::FarStopped(refusal));
                }
                Message::Failed(refusal) | Message::Refuse(refusal) => {
                    return Err(CopyError::FarEnd(refusal));
                }
                Message::Copy(Copy::Accept(accept)) => self.party.accepted(accept),
                Message::Copy(Copy::Finished(_)) if self.is_leaving => {
                    return Err(CopyError::OutOfPlace { what: "that everything is there, again" });
                }
                Message::Copy(Copy::Finished(finished)) => {
                    self.note_finished(finished.clone());
                    self.end.on_message(Copy::Finished(finished))?;
                    self.party.observe(self.end, &[]);
                    let account = self.party.account();
                    let sent = Copy::Sent(Box::new(account.clone()));
                    self.talk.account = Some(account);
                    if let End::Sender(sending) = self.end
                        && !self.party.leaves_first()
                    {
                        // They leave as the far side takes them: of what lacks there may be much.
                        self.pending.extend(sending.last_words());
                        self.pending.push_back(sent);
                        self.is_leaving = true;
                        self.pass_on(monotonic())?;
                        if self.has_said_all() {
                            return Ok(Heard::Last);
                        }
                        continue;
                    }
                    self.control.send(&Message::Copy(sent))?;
                    return Ok(Heard::Last);
                }
                Message::Copy(Copy::Sent(account)) => {
                    self.talk.account = Some(*account);
                    // A client that sends knows by itself what lacks, and says no more of it.
                    let is_known = !self.party.leaves_first() || self.end.knows_what_lacks();
                    if self.talk.finished.is_some() && is_known {
                        self.end.abort();
                        return Ok(Heard::Last);
                    }
                }
                Message::Copy(message) => self.end.on_message(message)?,
                other => return Err(ControlError::out_of_place(&other).into()),
            }
        }
        Ok(Heard::More)
    }

    /// Nobody listens to the far side for now, and it is not its silence that this end hears.
    fn excuse(&mut self, now: Nanos) -> Heard {
        self.control.excuse(now);
        Heard::All
    }

    /// Checks that the far side was heard in time. A process that was stopped, as by Ctrl-Z, goes on where its far end has waited: one of the
    /// same process has.
    fn check_patience(&mut self, now: Nanos, patience: Nanos) -> Result<(), CopyError> {
        let absent = now.since(std::mem::replace(&mut self.looked, now));
        if absent > ABSENCE {
            self.control.excuse(absent);
        }
        let quiet = now.since(self.control.heard());
        if quiet > patience { Err(ControlError::Silent { quiet }.into()) } else { Ok(()) }
    }

    /// How long to wait for anything, in a turn that began at `turned`.
    fn pause(&self, turned: Nanos) -> Nanos {
        if self.control.has_unsent() || !self.pending.is_empty() {
            return BREATH;
        }
        // What was not due at this turn's beginning, and has become so since, is not to wait for anything else.
        let words = if turned < self.next_words { self.next_words } else { Nanos::MAX };
        words.min(self.next_sign).min(self.next_look).since(monotonic()).min(LOOK)
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
