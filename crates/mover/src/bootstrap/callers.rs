//! Who connects to a port that waits for the far end: many may, and only who says what ssh has carried there is the far end.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::net::{TcpListener, TcpStream};

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Poller, Waited, Wake, wait_for};
use farlink_wire::message::Token;
use farlink_wire::quantity::Nanos;

/// Connections that came, until they are known or time is over for them.
#[derive(Debug)]
pub(super) struct Callers {
    listener: TcpListener,
    poller: Poller,
    secret: Token,
    /// Who has not said all of the secret yet.
    strangers: BTreeMap<u64, Stranger>,
    next: u64,
    /// The far end's connections that nobody has taken.
    known: Vec<TcpStream>,
}

#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    said: Vec<u8>,
    until: Nanos,
}

impl Callers {
    /// Those who come to `listener`, which must not block, and say `secret`.
    pub(super) fn of(listener: TcpListener, secret: Token) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER, Interest::Read)?;
        let (strangers, known) = (BTreeMap::new(), Vec::new());
        Ok(Self { listener, poller, secret, strangers, next: 0, known })
    }

    /// The next connection of the far end, behind the secret, waited for until `until`, or until `stop` is raised.
    pub(super) fn next(&mut self, until: Nanos, stop: &Wake) -> io::Result<TcpStream> {
        let mut ready = Vec::new();
        loop {
            if let Some(stream) = self.known.pop() {
                return Ok(stream);
            }
            let now = monotonic();
            if stop.is_raised() {
                return Err(ErrorKind::Interrupted.into());
            }
            if now >= until {
                return Err(ErrorKind::TimedOut.into());
            }
            self.strangers.retain(|_, stranger| stranger.until > now);
            match wait_for(&self.poller, Interest::Read, stop, until.since(now).min(OFTEN))? {
                Waited::Stopped => return Err(ErrorKind::Interrupted.into()),
                Waited::Over => continue,
                Waited::Ready => self.poller.wait(Nanos::ZERO, &mut ready)?,
            }
            for &key in &ready {
                match key {
                    LISTENER => self.accept()?,
                    key => self.hear(key)?,
                }
            }
        }
    }

    /// Takes connections that wait, some at a time.
    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..MOST_AT_ONCE {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            self.poller.add(&stream, self.next, Interest::Read)?;
            // Of a crowd the oldest goes.
            if self.strangers.len() >= MOST_STRANGERS {
                self.strangers.pop_first();
            }
            let until = monotonic().after(PATIENCE);
            self.strangers.insert(self.next, Stranger { stream, said: Vec::new(), until });
            self.hear(self.next)?;
            self.next += 1;
        }
        Ok(())
    }

    /// Listens to a stranger, and to no byte behind the secret.
    fn hear(&mut self, key: u64) -> io::Result<()> {
        let Some(stranger) = self.strangers.get_mut(&key) else { return Ok(()) };
        let mut bytes = [0; SECRET];
        match stranger.stream.read(&mut bytes[stranger.said.len()..]) {
            Ok(read) if read > 0 => {
                let from = stranger.said.len();
                stranger.said.extend(&bytes[from..from + read]);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            _ => {
                self.strangers.remove(&key);
                return Ok(());
            }
        }
        // No sooner, and in the same time whatever is wrong: who is told how far it is right needs a few thousand guesses.
        if stranger.said.len() == SECRET
            && let Some(Stranger { stream, said, .. }) = self.strangers.remove(&key)
            && blake3::hash(&said) == blake3::hash(&self.secret.0)
        {
            self.poller.remove(&stream)?;
            self.known.push(stream);
        }
        Ok(())
    }
}

const LISTENER: u64 = u64::MAX;

/// Bytes of the secret.
const SECRET: usize = 16;

/// Those who are listened to at a time: the far end's are as many as it was asked for, no more than 513, and say the secret at once.
const MOST_STRANGERS: usize = 600;

/// Those that are taken before the others are heard.
const MOST_AT_ONCE: usize = 64;

/// How long who connects may take to say the secret: as long as one end may take to reach the other.
const PATIENCE: Nanos = super::SHORT_WHILE;

/// How often it is looked at whose time is over.
const OFTEN: Nanos = Nanos(500_000_000);
