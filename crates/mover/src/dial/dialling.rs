//! Everything on its way to a far end at the same moment.

use core::num::NonZeroU16;
use std::io;

use farlink_flow::streams::Path;
use farlink_host::clock::monotonic;
use farlink_host::congestion::Loaded;
use farlink_host::readiness::{Poller, Wake};
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::{Message, Streams};
use farlink_wire::quantity::Nanos;

use super::{CONTROL, Dial, DialError, Dialled, First, Late, Opening, Place, STOP};
use crate::control::{Control, ControlError};
use crate::tuning::suffices;

/// Everything on its way.
pub(super) struct Dialling<'a> {
    dial: &'a Dial,
    at: &'a Place,
    stop: &'a Wake,
    poller: Poller,
    data: Vec<Opening>,
    talk: Talk,
    loaded: Option<Loaded>,
    /// What is known of the path, until it is used.
    path: Option<Path>,
    began: Nanos,
    /// Whether one more could not be opened before any stood: those that there are will do.
    is_enough: bool,
}

impl<'a> Dialling<'a> {
    /// With the control connection and the first data connections of `dial`, which began to connect `at` the far end at that time, until
    /// `stop` is raised.
    pub(super) fn new(
        (dial, at, stop): (&'a Dial, &'a Place, &'a Wake),
        poller: Poller,
        control: Opening,
        data: Vec<Opening>,
        (began, loaded): (Nanos, Option<Loaded>),
    ) -> Self {
        let talk = Talk { control: Speaker::Opening(control), sent: None, early: Vec::new(), is_over: false };
        Self { dial, at, stop, poller, data, talk, loaded, path: dial.path, began, is_enough: false }
    }

    /// Waits until everything stands, or, where the number of data connections follows from the path, one of them; `None` where it was
    /// stopped first.
    pub(super) fn run(mut self, first: First<'_>, until: Nanos) -> Result<Option<Dialled>, DialError> {
        let mut ready = Vec::new();
        while !self.may_begin() {
            let now = monotonic();
            if now >= until {
                return Err(DialError::Unanswered { at: self.at.to_string() });
            }
            let pause = if self.path.is_some() { until.since(now).min(OFTEN) } else { until.since(now) };
            self.poller.wait(pause, &mut ready).map_err(|source| self.failed(source))?;
            if ready.is_empty() {
                self.open_ahead();
            }
            for &key in &ready {
                match key {
                    STOP => return Ok(None),
                    CONTROL => self.hear(first)?,
                    key => {
                        self.count(|dialling| dialling.data.get(key as usize))?;
                        if let Err(error) = self.introduce(key as usize) {
                            return self.blame(key as usize, error);
                        }
                    }
                }
            }
        }
        match (self.talk.control, self.talk.sent) {
            (Speaker::Speaking(control), Some(sent)) => {
                let (ready, rest): (Vec<_>, Vec<_>) =
                    self.data.into_iter().partition(|opening| opening.is_ready);
                let data = ready.into_iter().map(|opening| (opening.stream(), opening.channel)).collect();
                // It may have said much, and is not waited for already.
                let _ = self.poller.remove(&control);
                let _ = self.poller.remove(self.stop);
                let (dial, at, poller, loaded) =
                    (self.dial.clone(), self.at.clone(), self.poller, self.loaded);
                let late = Late { dial, at: at.clone(), poller, data: rest, until, loaded };
                let late = Some(late).filter(|late| !late.data.is_empty() && !self.talk.is_over);
                Ok(Some(Dialled { control, data, late, sent, early: self.talk.early, at }))
            }
            _ => Err(DialError::Unanswered { at: self.at.to_string() }),
        }
    }

    /// Whether a transfer can begin. One whose streams nobody chose goes on with those that stand: others may be a round trip behind, as it was
    /// not known before that they are wanted.
    fn may_begin(&self) -> bool {
        let mut data = self.data.iter();
        let enough = if self.dial.path.is_some() {
            data.any(|opening| opening.is_ready)
        } else {
            data.all(|opening| opening.is_ready)
        };
        self.talk.is_over || self.talk.sent.is_some() && enough
    }

    fn failed(&self, source: io::Error) -> DialError {
        DialError::Connect { at: self.at.to_string(), source }
    }

    /// Once a connection stands, as `first` may: opens as many as its round trip asks for. What is too many was not introduced yet, or is closed before its handshake ends.
    fn count(&mut self, first: impl Fn(&Self) -> Option<&Opening>) -> Result<(), DialError> {
        let Some(path) = self.path else { return Ok(()) };
        let tcp = first(self).and_then(|opening| opening.channel.tcp());
        let rtt = tcp.and_then(|tcp| TcpInfo::of(tcp).ok()).map(|info| info.min_rtt);
        let Some(rtt) = rtt.filter(|rtt| *rtt > Nanos::ZERO) else { return Ok(()) };
        self.path = None;
        let streams = Path { rtt: Some(rtt), ..path }.streams();
        self.data.truncate(streams.get().into());
        if self.is_enough { Ok(()) } else { self.open_up_to(streams) }
    }

    /// While none stands: the longer that takes, the more there will be.
    fn open_ahead(&mut self) {
        let Some(path) = self.path.filter(|_| !self.is_enough) else { return };
        self.is_enough = self.open_up_to(path.ahead(monotonic().since(self.began))).is_err();
    }

    /// Has so many data connections on their way.
    fn open_up_to(&mut self, streams: NonZeroU16) -> Result<(), DialError> {
        if let Some(more) = streams.get().checked_sub(self.data.len() as u16).filter(|more| *more > 0) {
            self.at.prepare(more).map_err(|source| self.failed(source))?;
        }
        while self.data.len() < usize::from(streams.get()) {
            let key = self.data.len() as u16;
            let by = (&self.poller, self.stop);
            self.data.push(self.dial.start(self.at, (key.into(), key), by, Some(&mut self.loaded))?);
        }
        Ok(())
    }

    /// Now that `first` knows the round trip: do the buffers of a circuit, which were asked for before?
    fn measure(&self, first: &Opening) -> Result<(), DialError> {
        let info = first.channel.tcp().and_then(|tcp| TcpInfo::of(tcp).ok());
        let Some(info) = info.filter(|info| info.min_rtt > Nanos::ZERO) else { return Ok(()) };
        let Dial { role, tuning, .. } = self.dial;
        self.data
            .iter()
            .filter_map(|opening| opening.channel.tcp())
            .try_for_each(|tcp| suffices(tcp, *role, tuning, info.min_rtt))
            .map_err(DialError::tune)
    }

    /// There is news of a data connection.
    fn introduce(&mut self, index: usize) -> io::Result<()> {
        // One that was too many may have been ready as well.
        let Some(opening) = self.data.get_mut(index) else { return Ok(()) };
        if self.dial.introduce(opening, &self.poller)? {
            opening.is_ready = true;
            self.poller.remove(&opening.channel)?;
        }
        Ok(())
    }

    /// There is news of the control connection.
    fn hear(&mut self, first: First<'_>) -> Result<(), DialError> {
        if let Speaker::Opening(_) = self.talk.control {
            self.count(|dialling| match &dialling.talk.control {
                Speaker::Opening(opening) => Some(opening),
                _ => None,
            })?;
            // Where nothing was measured it stays at what there is.
            self.path = None;
            let Speaker::Opening(opening) = std::mem::replace(&mut self.talk.control, Speaker::Neither)
            else {
                return Ok(());
            };
            self.measure(&opening)?;
            let control = self.begin(opening).map_err(|source| self.failed(source))?;
            self.talk.control = Speaker::Speaking(control);
            let streams = u32::try_from(self.data.len()).ok().and_then(|count| Streams::try_from(count).ok());
            return self.say(Some(&first(streams.unwrap_or(self.dial.tuning.streams))));
        }
        let Speaker::Speaking(control) = &mut self.talk.control else { return Ok(()) };
        let wrong = |source| self.dial.explained(self.at.to_string(), source);
        loop {
            let message = match control.poll() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                // It had nothing to ask for, and said all: whoever reads that finds its end behind it.
                Err(ControlError::Ended) if !self.talk.early.is_empty() => {
                    self.talk.is_over = true;
                    return Ok(());
                }
                Err(error) => return Err(wrong(error)),
            };
            if let Message::Refuse(refusal) | Message::Failed(refusal) = message {
                return Err(DialError::Refused { at: self.at.to_string(), refusal });
            }
            self.talk.early.push((message, monotonic()));
            if self.talk.early.len() >= MOST_EARLY {
                // The rest waits in the socket.
                self.poller.remove(&*control).map_err(|source| self.failed(source))?;
                break;
            }
        }
        self.say(None)
    }

    fn begin(&self, mut opening: Opening) -> io::Result<Control> {
        opening.connected(&self.poller)?;
        opening.speak()?;
        Ok(Control::new(opening.channel, Vec::new()))
    }

    /// Says hello and `first`, where that is still to be said, as soon as the connection takes it.
    fn say(&mut self, first: Option<&[Message]>) -> Result<(), DialError> {
        let Speaker::Speaking(control) = &mut self.talk.control else { return Ok(()) };
        let wrong = |source| self.dial.explained(self.at.to_string(), source);
        let now = monotonic();
        if let Some(first) = first {
            control.greet().map_err(wrong)?;
            for message in first {
                control.send(message).map_err(wrong)?;
            }
        }
        control.flush().map_err(wrong)?;
        if self.talk.sent.is_none() && !control.has_unsent() {
            self.talk.sent = Some(now);
        }
        Ok(())
    }

    /// A data connection failed: the control connection may say why within a moment, and is believed first.
    fn blame(mut self, index: usize, error: io::Error) -> Result<Option<Dialled>, DialError> {
        let failure = self.dial.told(self.at, error);
        // What this host refuses the far end knows nothing of.
        if !self.data[index].is_connected || matches!(failure, DialError::Tune { .. }) {
            return Err(failure);
        }
        let Speaker::Speaking(control) = &mut self.talk.control else { return Err(failure) };
        let until = monotonic().after(EXPLANATION);
        loop {
            match control.next(until, self.stop) {
                Ok(Some(Message::Refuse(refusal) | Message::Failed(refusal))) => {
                    return Err(DialError::Refused { at: self.at.to_string(), refusal });
                }
                Ok(Some(_)) if monotonic() < until => {}
                Ok(Some(_)) => return Err(failure),
                Ok(None) => return Ok(None),
                Err(
                    source @ (ControlError::Channel(_)
                    | ControlError::Greeting(_)
                    | ControlError::EndedUngreeted
                    | ControlError::EndedUnshaken),
                ) => {
                    return Err(self.dial.explained(self.at.to_string(), source));
                }
                Err(_) => return Err(failure),
            }
        }
    }
}

/// The control connection on its way.
#[derive(Debug)]
struct Talk {
    control: Speaker,
    sent: Option<Nanos>,
    early: Vec<(Message, Nanos)>,
    /// Whether the far end has said its last word.
    is_over: bool,
}

#[derive(Debug)]
enum Speaker {
    Opening(Opening),
    Speaking(Control),
    /// Between the two.
    Neither,
}

/// How often it is asked whether more should be on their way, while none stands.
const OFTEN: Nanos = Nanos(10_000_000);

/// Messages that are kept while data connections are still on their way.
const MOST_EARLY: usize = 64;

/// How long the control connection has to explain why a data connection failed.
const EXPLANATION: Nanos = Nanos(2_000_000_000);
