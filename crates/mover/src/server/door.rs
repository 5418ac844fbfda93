//! Where connections come in: whoever knocks is a stranger until its first bytes say what it is.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_host::socket;
use farlink_wire::message::{Hello, Preamble};
use farlink_wire::quantity::Nanos;
use farlink_wire::refusal::Refusal;

use super::handshakes::{Handshakes, Purpose};
use super::lobby::Lobby;
use super::reception::Greeted;
use super::session::Guest;
use super::{Server, burden, places};
use crate::channel::Channel;

/// A connection that has not yet said what it is.
struct Stranger {
    stream: TcpStream,
    from: SocketAddr,
    said: Vec<u8>,
    /// Whether it was told that it was heard.
    is_answered: bool,
    until: Nanos,
}

/// What a stranger turned out to be.
enum Kind {
    Unknown,
    Nobody,
    /// A control connection in clear.
    Control,
    /// A control connection under TLS.
    Sealed,
    Data(Preamble),
}

/// Takes connections and listens to their first bytes.
pub(super) struct Door<'a> {
    server: &'a Server,
    handshakes: Option<&'a Handshakes>,
    poller: Poller,
    strangers: BTreeMap<u64, Stranger>,
    next_key: u64,
    ready: Vec<u64>,
    /// When it is looked at what they cost.
    relieve_at: Nanos,
}

impl<'a> Door<'a> {
    pub(super) fn new(
        server: &'a Server,
        stop: &Wake,
        handshakes: Option<&'a Handshakes>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(stop, STOP, Interest::Read)?;
        for (key, listener) in server.listeners.iter().enumerate() {
            poller.add(listener, key as u64, Interest::Read)?;
        }
        poller.add(server.called.wake(), CALLED, Interest::Read)?;
        let next_key = server.listeners.len() as u64;
        let (strangers, ready) = (BTreeMap::new(), Vec::new());
        Ok(Self { server, handshakes, poller, strangers, next_key, ready, relieve_at: Nanos::ZERO })
    }

    /// Sends those away who cost the kernel too much.
    fn relieve(&mut self, lobby: &Lobby) {
        lobby.relieve(burden::most_waiting());
        let cost = |(key, stranger): (&u64, &Stranger)| {
            let cost = socket::received_memory(&stranger.stream).unwrap_or(0);
            (*key, stranger.from.ip(), cost)
        };
        for key in burden::excess(burden::most_unknown(), self.strangers.iter().map(cost)) {
            self.strangers.remove(&key);
        }
    }

    /// Waits for something to happen, and returns the clients that came with it; `None` where it is time to stop.
    pub(super) fn wait(&mut self, lobby: &Lobby) -> io::Result<Option<Vec<Greeted>>> {
        let now = monotonic();
        let waiting = lobby.sweep(now);
        self.strangers.retain(|_, stranger| stranger.until > now);
        let pause = if waiting || !self.strangers.is_empty() { burden::OFTEN } else { Nanos::MAX };
        if (waiting || !self.strangers.is_empty()) && now >= self.relieve_at {
            self.relieve(lobby);
            self.relieve_at = now.after(burden::OFTEN);
        }
        let mut ready = std::mem::take(&mut self.ready);
        self.poller.wait(pause, &mut ready)?;
        let mut greeted = Vec::new();
        for &key in &ready {
            if key == STOP {
                return Ok(None);
            }
            if key == CALLED {
                self.server.called.drain().into_iter().for_each(|(stream, to)| self.hear(stream, to));
                continue;
            }
            match self.server.listeners.get(key as usize) {
                Some(listener) => self.take(listener),
                None => greeted.extend(self.listen(key, lobby)),
            }
        }
        self.ready = ready;
        Ok(Some(greeted))
    }

    /// Takes connections that wait at `listener`: of a flood some, so that those that are there are heard, and what is to end ends.
    fn take(&mut self, listener: &TcpListener) {
        for _ in 0..MOST_AT_ONCE {
            match listener.accept() {
                Ok((stream, from)) => self.hear(stream, from),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    // Out of descriptors or memory: a stranger's may do, and a pause keeps this from spinning.
                    self.strangers.pop_first();
                    thread::sleep(BREATH);
                    return;
                }
            }
        }
    }

    /// Has a stranger, and waits for what it says.
    fn hear(&mut self, stream: TcpStream, from: SocketAddr) {
        // Whoever means well has said what it is within a round trip.
        while self.strangers.len() >= self.server.limits.strangers {
            let crowd = self.strangers.iter().map(|(key, stranger)| (*key, stranger.from.ip()));
            let Some(leaving) = burden::who_goes(crowd) else { break };
            self.strangers.remove(&leaving);
        }
        let key = self.next_key;
        let known = stream.set_nonblocking(true).and_then(|()| self.poller.add(&stream, key, Interest::Read));
        if known.is_ok() {
            self.next_key += 1;
            let until = monotonic().after(self.server.limits.patience);
            self.strangers
                .insert(key, Stranger { stream, from, said: Vec::new(), is_answered: false, until });
        }
    }

    /// Listens to a stranger; whoever opened a control connection is returned.
    fn listen(&mut self, key: u64, lobby: &Lobby) -> Option<Greeted> {
        let kind = self.strangers.get_mut(&key)?.listen();
        if matches!(kind, Kind::Unknown) {
            return None;
        }
        let Stranger { stream, from, said, .. } = self.strangers.remove(&key)?;
        self.poller.remove(&stream).ok()?;
        let channel = Channel::over_tcp(stream).ok()?;
        let purpose = match kind {
            Kind::Unknown | Kind::Nobody => return None,
            Kind::Control => return self.in_clear(channel, from, said),
            Kind::Data(preamble) if !preamble.sealed => {
                lobby.arrive(preamble, channel, monotonic().after(self.server.limits.patience));
                return None;
            }
            Kind::Data(preamble) => Purpose::Data(preamble),
            Kind::Sealed => Purpose::Control,
        };
        let said = if matches!(kind, Kind::Sealed) { &said[..] } else { &[] };
        // Without keys there is nobody to let in: it is closed.
        let _ = self.handshakes?.take(channel, said, from, purpose);
        None
    }

    /// A client that shows no key: welcome where only this machine reaches.
    fn in_clear(&self, channel: Channel, from: SocketAddr, said: Vec<u8>) -> Option<Greeted> {
        let here = channel.tcp()?.local_addr().ok()?;
        let is_welcome =
            !self.server.keys_only && places::is_private(here.ip(), from.ip(), &self.server.emulated);
        let refusal =
            (!is_welcome).then(|| Refusal::lasting(format!("{} takes clients with keys only", here.ip())));
        Some(Greeted { channel, guest: Guest { from, known: None }, received: said, refusal })
    }
}

impl Stranger {
    /// Reads what it has said, and no byte beyond the longest greeting: the rest is for others to read.
    fn listen(&mut self) -> Kind {
        let mut bytes = [0; Preamble::LEN];
        match self.stream.read(&mut bytes[self.said.len()..]) {
            Ok(0) => return Kind::Nobody,
            Ok(read) => {
                let from = self.said.len();
                self.said.extend(&bytes[from..from + read]);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return Kind::Nobody,
        }
        if self.said.first() == Some(&HANDSHAKE) {
            return Kind::Sealed;
        }
        if Preamble::asks(&self.said) && !self.is_answered {
            // A fresh socket's buffer has room.
            if self.stream.write_all(&Preamble::ANSWER).is_err() {
                return Kind::Nobody;
            }
            self.is_answered = true;
        }
        let known = self.said.len().min(8);
        if self.said[..known] == Hello::MAGIC[..known] && known == 8 {
            return Kind::Control;
        }
        if let Ok(whole) = <&[u8; Preamble::LEN]>::try_from(self.said.as_slice()) {
            return Preamble::decode(whole).map_or(Kind::Nobody, Kind::Data);
        }
        let possible =
            [Hello::MAGIC, Preamble::MAGIC].iter().any(|magic| self.said[..known] == magic[..known]);
        if possible { Kind::Unknown } else { Kind::Nobody }
    }
}

/// The first byte of TLS: a record of the handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 0x16;

/// The pause after a connection could not be taken.
const BREATH: Duration = Duration::from_millis(20);

/// The keys of the stop and of connections that were begun here; listeners and strangers count from 0.
const STOP: u64 = u64::MAX;
const CALLED: u64 = u64::MAX - 1;

/// Connections that are taken before those that are there are heard.
const MOST_AT_ONCE: usize = 64;
