//! The control connection: greetings, then messages, never blocking for longer than was asked.

use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::{GreetingError, Hello, Message, MessageError};
use farlink_wire::quantity::Nanos;

use crate::backlog::Backlog;
use crate::channel::{Channel, ChannelError, is_closed};

/// One end of a control connection.
///
/// What is sent waits in memory until the far side takes it: call [`flush`](Self::flush) now and then.
#[derive(Debug)]
pub(crate) struct Control {
    channel: Channel,
    greeted: bool,
    received: Vec<u8>,
    unsent: Backlog,
    /// Whether the far side takes nothing more; what it said before may still be read.
    is_deaf: bool,
    heard: Nanos,
}

impl Control {
    /// An end over `channel`, of which `received` was read already.
    pub(crate) fn new(mut channel: Channel, received: Vec<u8>) -> Self {
        channel.set_wait(None);
        Self {
            channel,
            greeted: false,
            received,
            unsent: Backlog::default(),
            is_deaf: false,
            heard: monotonic(),
        }
    }

    /// The connection, for its addresses, what TCP knows of it, and the key that the far side has shown.
    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The least round trip that was seen on its path, where that is TCP's.
    pub(crate) fn least_rtt(&self) -> Option<Nanos> {
        let info = self.channel.tcp().and_then(|tcp| TcpInfo::of(tcp).ok())?;
        Some(info.min_rtt).filter(|rtt| *rtt > Nanos::ZERO)
    }

    /// Whether something waits for the far side to take it.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.channel.has_unsent()
    }

    /// Bytes that wait for the far side.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Sends `message`, and waits where much waits already; no longer than `patience` without the far side taking any, or saying anything.
    /// It is for those who do not listen, and whom nothing else would tell that the far side has closed. False where one of `stops` was
    /// raised while it waited: then nothing was sent.
    pub(crate) fn send_patiently(
        &mut self,
        message: &Message,
        patience: Nanos,
        stops: &[&Wake],
    ) -> Result<bool, ControlError> {
        if !self.flush_patiently(MOST_UNSENT / 2, patience, stops)? {
            return Ok(false);
        }
        self.send(message)?;
        self.is_heard()?;
        Ok(true)
    }

    /// Waits until no more than `most` bytes wait for the far side, as [`send_patiently`](Self::send_patiently) does.
    pub(crate) fn flush_patiently(
        &mut self,
        most: usize,
        patience: Nanos,
        stops: &[&Wake],
    ) -> Result<bool, ControlError> {
        let (mut left, mut since) = (self.unsent.len(), monotonic());
        while self.unsent.len() > most || most == 0 && self.has_unsent() {
            if stops.iter().any(|stop| stop.is_raised()) {
                return Ok(false);
            }
            if self.unsent.len() < left {
                (left, since) = (self.unsent.len(), monotonic());
            }
            self.take_in()?;
            since = since.max(self.heard);
            if monotonic().since(since) > patience {
                return Err(ControlError::NotReading { unsent: left });
            }
            let mut poller = Poller::new().map_err(ControlError::Wait)?;
            poller.add(&self.channel, 0, Interest::Write).map_err(ControlError::Wait)?;
            poller.wait(BREATH, &mut Vec::new()).map_err(ControlError::Wait)?;
            self.flush()?;
        }
        self.is_heard()?;
        Ok(true)
    }

    /// Keeps what has arrived for the next [`poll`](Self::poll), up to a bound: that there is anything tells that the far side lives. That it
    /// has ended is for that to say.
    fn take_in(&mut self) -> Result<(), ControlError> {
        if self.received.len() < MOST_KEPT {
            let mut chunk = [0; 4096];
            match self.channel.read(&mut chunk) {
                Ok(0) => {}
                Ok(read) => {
                    self.received.extend(&chunk[..read]);
                    self.heard = monotonic();
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) if is_closed(&error) => {}
                Err(source) => return Err(self.ended(ControlError::of(source))),
            }
        }
        Ok(())
    }

    /// An error where the far side takes nothing more.
    fn is_heard(&self) -> Result<(), ControlError> {
        if self.is_deaf { Err(self.ended(ControlError::Ended)) } else { Ok(()) }
    }

    /// When the far side was last heard of.
    pub(crate) fn heard(&self) -> Nanos {
        self.heard
    }

    /// For so long this end heard nobody, as it was itself not there: stopped, or its machine asleep.
    pub(crate) fn excuse(&mut self, absent: Nanos) {
        self.heard = self.heard.after(absent).min(monotonic());
    }

    /// Says which version this is.
    pub(crate) fn greet(&mut self) -> Result<(), ControlError> {
        self.unsent.push(&Hello::ours().encode());
        self.flush()
    }

    /// Sends `message`, now or when the far side takes it.
    pub(crate) fn send(&mut self, message: &Message) -> Result<(), ControlError> {
        self.add(message)?;
        self.flush()
    }

    /// Sends `message` with what else there is to say, by the next [`flush`](Self::flush): alone each would be a packet.
    pub(crate) fn add(&mut self, message: &Message) -> Result<(), ControlError> {
        self.unsent.push(&message.encode());
        if self.unsent.len() > MOST_UNSENT {
            return Err(ControlError::NotReading { unsent: self.unsent.len() });
        }
        Ok(())
    }

    /// Sends what the far side takes of what waits.
    pub(crate) fn flush(&mut self) -> Result<(), ControlError> {
        self.unsent.flush(&mut self.channel).or_else(|source| self.cannot_send(source))
    }

    /// Nothing can be sent: where the far side closed, what it said before is read first, and then that it did.
    fn cannot_send(&mut self, source: io::Error) -> Result<(), ControlError> {
        if is_closed(&source) {
            self.is_deaf = true;
            self.unsent.clear();
            self.channel.discard_unsent();
            return Ok(());
        }
        Err(self.ended(ControlError::of(source)))
    }

    /// An end is named after how far the two had come.
    fn ended(&self, error: ControlError) -> ControlError {
        match error {
            ControlError::Ended if self.greeted => ControlError::Ended,
            ControlError::Ended if self.channel.is_sealed() && self.channel.peer_key().is_none() => {
                ControlError::EndedUnshaken
            }
            ControlError::Ended => ControlError::EndedUngreeted,
            other => other,
        }
    }

    /// The next message, where it has arrived whole.
    pub(crate) fn poll(&mut self) -> Result<Option<Message>, ControlError> {
        loop {
            if let Some(message) = self.decode()? {
                return Ok(Some(message));
            }
            let mut chunk = [0; 16 * 1024];
            match self.channel.read(&mut chunk) {
                Ok(0) => return Err(self.ended(ControlError::Ended)),
                Ok(read) => {
                    self.received.extend(&chunk[..read]);
                    self.heard = monotonic();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(self.ended(ControlError::of(source))),
            }
        }
    }

    fn decode(&mut self) -> Result<Option<Message>, ControlError> {
        if !self.greeted {
            let Some((hello, _)) = self.received.split_first_chunk::<{ Hello::LEN }>() else {
                // Too short to be judged whole: one byte that differs is enough to know.
                let known = self.received.len().min(Hello::MAGIC.len());
                if self.received[..known] != Hello::MAGIC[..known] {
                    return Err(GreetingError::NotFarlink.into());
                }
                return Ok(None);
            };
            Hello::decode(hello)?;
            self.greeted = true;
            self.received.drain(..Hello::LEN);
        }
        let Some((message, length)) = Message::decode(&self.received)? else { return Ok(None) };
        self.received.drain(..length);
        Ok(Some(message))
    }

    /// Ends it after what was sent last: that is read at the far side although this end leaves without reading all that came. Waits until
    /// the far side has left, or for a moment.
    pub(crate) fn part(mut self) {
        let until = monotonic().after(PARTING);
        while self.has_unsent() && monotonic() < until && self.flush().is_ok() {
            if self.has_unsent() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        if self.channel.end_writing().is_err() {
            return;
        }
        let wait = |poller: &mut Poller| poller.wait(until.since(monotonic()), &mut Vec::new());
        let Ok(mut poller) = Poller::new() else { return };
        if poller.add(&self.channel, 0, Interest::Read).is_err() {
            return;
        }
        let mut bytes = [0; 4096];
        while monotonic() < until {
            let read = self.channel.beneath().read(&mut bytes);
            match read {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if wait(&mut poller).is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// The next message, waited for until `until`; `None` where `stop` was raised first.
    pub(crate) fn next(&mut self, until: Nanos, stop: &Wake) -> Result<Option<Message>, ControlError> {
        let mut poller = Poller::new().map_err(ControlError::Wait)?;
        poller.add(&self.channel, 0, Interest::Read).map_err(ControlError::Wait)?;
        poller.add(stop, 1, Interest::Read).map_err(ControlError::Wait)?;
        let mut ready = Vec::new();
        loop {
            self.flush()?;
            if let Some(message) = self.poll()? {
                return Ok(Some(message));
            }
            // What waited for the end of the handshake may go now.
            self.flush()?;
            let now = monotonic();
            if now >= until {
                return Err(ControlError::Silent { quiet: now.since(self.heard) });
            }
            // A part that was not taken at once is offered again soon.
            let longest = if self.has_unsent() { Nanos(10_000_000) } else { until.since(now) };
            poller.wait(longest, &mut ready).map_err(ControlError::Wait)?;
            if ready.contains(&1) {
                return Ok(None);
            }
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Why a control connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The far side closed it, or its process ended.
    #[error("the far side ended midway")]
    Ended,
    /// The far side closed it without a word.
    #[error("the far side closed the connection without a word: it may not be farlink")]
    EndedUngreeted,
    /// The far side closed it before it had shown a key.
    #[error(
        "the far side closed the connection before it had shown a key: it may not be farlink, or have no keys \
         (run `farlink keygen` there and list this key in its authorized_keys; a `farlink serve --no-auth` \
         takes who shows no key: copy with --no-auth, measure without --identity)"
    )]
    EndedUnshaken,
    /// No word for too long.
    #[error("the far side has been silent for {quiet}")]
    Silent {
        /// For how long.
        quiet: Nanos,
    },
    /// The far side takes nothing.
    #[error("the far side does not read: {unsent} bytes wait for it")]
    NotReading {
        /// Bytes that wait.
        unsent: usize,
    },
    /// Not farlink, or of another version.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// Bytes that are no message.
    #[error("the far side sent what this version does not understand")]
    Message(#[from] MessageError),
    /// A message that has no place where it came.
    #[error("the far side sent what has no place here: {what}")]
    OutOfPlace {
        /// What came.
        what: &'static str,
    },
    /// The two do not trust each other, or do not speak the same.
    #[error(transparent)]
    Channel(ChannelError),
    /// The network's own words.
    #[error("the connection to the far side broke")]
    Broken(#[source] io::Error),
    /// The kernel's, of waiting.
    #[error("wait for the far side")]
    Wait(#[source] io::Error),
}

impl ControlError {
    /// What the channel says of itself.
    fn of_channel(error: &io::Error) -> Option<Self> {
        ChannelError::within(error).map(|error| match error {
            ChannelError::Unshaken | ChannelError::Cut => Self::Ended,
            other => Self::Channel(other.clone()),
        })
    }

    /// Of what a channel could not do.
    pub(crate) fn of(error: io::Error) -> Self {
        match Self::of_channel(&error) {
            Some(error) => error,
            None if is_closed(&error) => Self::Ended,
            None => Self::Broken(error),
        }
    }

    /// A message that has no place where it came.
    pub(crate) fn out_of_place(message: &Message) -> Self {
        let what = match message {
            Message::Request(_) => "a request",
            Message::Accept(_) => "consent",
            Message::Refuse(_) => "a refusal",
            Message::Alive => "a sign of life",
            Message::Arrived(_) => "a count of arrivals",
            Message::Traced(_) => "a trace",
            Message::Stop => "a request to stop",
            Message::Received(_) => "a receiver's account",
            Message::Sent(_) => "a sender's account",
            Message::Failed(_) => "a failure",
            Message::Copy(_) => "a word of a file transfer",
        };
        Self::OutOfPlace { what }
    }
}

/// How long an end that leaves waits for the far side to leave.
const PARTING: Nanos = Nanos(2_000_000_000);

/// How long it is waited at once for the far side to take something.
const BREATH: Nanos = Nanos(2_000_000);

/// Messages that are heard at a time: whoever never stops talking is not to keep an end from anything else.
pub(crate) const MESSAGES_A_TURN: u32 = 64;

/// Bytes that are kept of what the far side says to who does not listen: it has hardly anything to say then.
const MOST_KEPT: usize = 1 << 16;

/// Bytes that may wait for the far side: minutes of reports, where it only pauses.
const MOST_UNSENT: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use farlink_wire::refusal::Refusal;

    use super::*;
    use crate::chain;
    use crate::channel::tests::{Ends, tcp};

    fn pair() -> (Control, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Control::new(Channel::over_tcp(near).unwrap(), Vec::new()), listener.accept().unwrap().0)
    }

    fn said(bytes: &[u8]) -> String {
        let (mut control, mut far) = pair();
        far.write_all(bytes).unwrap();
        drop(far);
        chain(&control.next(Nanos::MAX, &Wake::new().unwrap()).unwrap_err())
    }

    #[test]
    fn says_what_the_far_side_is_not() {
        assert_eq!(said(b"HT"), "the far side is not farlink");
        assert_eq!(said(b""), "the far side closed the connection without a word: it may not be farlink");
        assert!(said(b"farlink\n\x00\x01").starts_with("the far side speaks version 1"));
        assert_eq!(said(b"farlink\n\x00\x07\x00"), "the far side ended midway");
        let odd = said(b"farlink\n\x00\x07\x00\x00\x00\x02{}");
        assert!(
            odd.starts_with("the far side sent what this version does not understand: a malformed"),
            "{odd}"
        );
    }

    #[test]
    fn who_waits_for_one_that_does_not_read_is_stopped() {
        let (mut control, far) = pair();
        let stop = Wake::new().unwrap();
        stop.raise();
        let words = Message::Failed(Refusal::lasting("x".repeat(1000)));
        // As much goes as both sockets and the backlog hold; the next one would wait without end.
        let mut told = 0;
        while control.send_patiently(&words, Nanos::MAX, &[&stop]).unwrap() {
            told += 1;
        }
        assert!(told > 0);
        drop(far);
    }

    #[test]
    fn what_is_added_leaves_with_the_next_flush() {
        let (mut control, mut far) = pair();
        let message = Message::Alive.encode();
        control.add(&Message::Alive).unwrap();
        control.add(&Message::Alive).unwrap();
        assert_eq!(control.unsent(), 2 * message.len());
        control.flush().unwrap();
        let mut came = vec![0; 2 * message.len()];
        far.read_exact(&mut came).unwrap();
        assert_eq!(came, message.repeat(2));
    }

    #[test]
    fn the_last_words_of_who_closed_are_heard_by_who_was_speaking() {
        let (mut control, mut far) = pair();
        control.send(&Message::Alive).unwrap();
        far.write_all(&Hello::ours().encode()).unwrap();
        far.write_all(&Message::Failed(Refusal::lasting("no room")).encode()).unwrap();
        // What was not read there makes the end a reset.
        drop(far);
        // It comes when a process that another test is starting has let go of its copy, too.
        while !control.is_deaf {
            control.send(&Message::Alive).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let told = control.send_patiently(&Message::Alive, Nanos::ZERO, &[]);
        assert!(matches!(told, Err(ControlError::EndedUngreeted)), "{told:?}");
        let stop = Wake::new().unwrap();
        let heard = control.next(Nanos::MAX, &stop).unwrap();
        assert_eq!(heard, Some(Message::Failed(Refusal::lasting("no room"))));
        assert!(matches!(control.next(Nanos::MAX, &stop), Err(ControlError::Ended)));
    }

    #[test]
    fn under_tls_they_are_too() {
        let (near, mut far) = Ends::new().seal(tcp());
        let mut control = Control::new(near, Vec::new());
        let stop = Wake::new().unwrap();
        let speaking = std::thread::spawn(move || {
            far.write_all(&Hello::ours().encode()).unwrap();
            far.write_all(&Message::Alive.encode()).unwrap();
            far
        });
        assert_eq!(control.next(Nanos::MAX, &stop).unwrap(), Some(Message::Alive));
        let mut far = speaking.join().unwrap();
        control.send(&Message::Alive).unwrap();
        far.write_all(&Message::Failed(Refusal::lasting("no room")).encode()).unwrap();
        drop(far);
        for _ in 0..3 {
            control.send(&Message::Alive).unwrap();
        }
        assert!(!control.has_unsent());
        assert_eq!(
            control.next(Nanos::MAX, &stop).unwrap(),
            Some(Message::Failed(Refusal::lasting("no room")))
        );
        assert!(matches!(control.next(Nanos::MAX, &stop), Err(ControlError::Ended)));
    }

    #[test]
    fn messages_arrive_in_order_however_they_are_cut() {
        let (mut control, far) = pair();
        let mut bytes = Hello::ours().encode().to_vec();
        bytes.extend(Message::Alive.encode());
        bytes.extend(Message::Stop.encode());
        let writer = std::thread::spawn(move || {
            for byte in bytes {
                (&far).write_all(&[byte]).unwrap();
            }
            far
        });
        let stop = Wake::new().unwrap();
        assert_eq!(control.next(Nanos::MAX, &stop).unwrap(), Some(Message::Alive));
        assert_eq!(control.next(Nanos::MAX, &stop).unwrap(), Some(Message::Stop));
        let _far = writer.join().unwrap();
        assert!(matches!(control.next(monotonic(), &stop), Err(ControlError::Silent { .. })));
        stop.raise();
        assert_eq!(control.next(Nanos::MAX, &stop).unwrap(), None);
    }
}
