//! The far end: takes connections, and holds as many sessions as it may at a time.
//!
//! A connection says first what it is. Until then it costs a few bytes and, after a while, nothing: a client that
//! is broken, slow or hostile cannot hold more than its bound.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use farlink_host::clock::monotonic;
use farlink_host::process;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_host::socket;
use farlink_wire::message::{Hello, Preamble, Way};
use farlink_wire::quantity::Nanos;

use crate::control::Control;
use crate::tuning::AMPLE;

mod lobby;
mod places;
mod session;

pub use places::{PlaceError, places};

use lobby::Lobby;
use session::House;

/// What strangers may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transfers at a time. As many clients again may be about to ask, or to be refused.
    pub transfers: usize,
    /// Connections that have not yet said what they are, or whose session has not yet come.
    pub strangers: usize,
    /// How long a client may take to say what it wants.
    pub patience: Nanos,
}

impl Default for Limits {
    /// 64 transfers; strangers for two clients of the most streams; 10 seconds.
    fn default() -> Self {
        Self { transfers: 64, strangers: 1024, patience: Nanos(10_000_000_000) }
    }
}

/// What happens at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A transfer starts.
    Started {
        /// The client.
        from: SocketAddr,
        /// Its data connections.
        streams: u16,
        /// Which way its payload goes.
        way: Way,
    },
    /// A transfer has ended.
    Ended {
        /// The client.
        from: SocketAddr,
        /// Payload bytes that arrived.
        bytes: u64,
    },
    /// A client did not get what it wanted.
    Failed {
        /// The client.
        from: SocketAddr,
        /// Why.
        reason: String,
    },
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    /// Those for everything, then those for the data of circuits.
    listeners: Vec<TcpListener>,
    /// How many are for everything.
    usual: usize,
    limits: Limits,
}

/// Where the data connections of a circuit go, of a server at `address`: the port after it, whose connections have their receive
/// buffer before they are made. The window in a SYN-ACK is never scaled, but the next one is that large.
#[must_use]
pub(crate) const fn for_circuits(mut address: SocketAddr) -> SocketAddr {
    address.set_port(address.port().wrapping_add(1));
    address
}

impl Server {
    /// Listens on each of `addresses`, and on the port after it for the data of circuits. Where the port is 0, all have one that the
    /// kernel chooses. An IPv6 address is left out where the host has no IPv6, if another is there.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub fn bind(addresses: &[SocketAddr], limits: Limits) -> Result<Self, ServeError> {
        let mut attempts = if addresses.iter().any(|address| address.port() == 0) { CHOICES } else { 1 };
        loop {
            attempts -= 1;
            match Self::bind_all(addresses, limits) {
                // What is free for one of them, the kernel's choice, may be taken for another.
                Err(ServeError::Listen { source, .. })
                    if attempts > 0 && source.kind() == ErrorKind::AddrInUse => {}
                other => return other,
            }
        }
    }

    fn bind_all(addresses: &[SocketAddr], limits: Limits) -> Result<Self, ServeError> {
        let (mut usual, mut ample) = (Vec::new(), Vec::new());
        let mut chosen = 0;
        for &(mut address) in addresses {
            if address.port() == 0 {
                address.set_port(chosen);
            }
            let listen = |address, receive| match socket::listen(address, BACKLOG, receive) {
                Ok(listener) => Ok(Some(listener)),
                Err(error) if address.is_ipv6() && addresses.len() > 1 && socket::lacks_address(&error) => {
                    Ok(None)
                }
                Err(source) => Err(ServeError::Listen { address, source }),
            };
            let Some(listener) = listen(address, None)? else { continue };
            let bound = listener.local_addr().map_err(|source| ServeError::Listen { address, source })?;
            if address.port() == chosen {
                chosen = bound.port();
            }
            usual.push(listener);
            ample.extend(listen(for_circuits(bound), Some(AMPLE))?);
        }
        let count = usual.len();
        usual.append(&mut ample);
        Ok(Self { listeners: usual, usual: count, limits })
    }

    /// Where it listens for control connections.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners[..self.usual].iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Serves until `stop` is raised; clients that are connected then are told.
    ///
    /// # Errors
    /// [`ServeError::Wait`].
    pub fn run(self, stop: &Wake, observe: &(dyn Fn(Event) + Sync)) -> Result<(), ServeError> {
        // Not having more descriptors than before is no reason not to serve.
        let _ = process::raise_descriptor_limit();
        let lobby = Lobby::new(self.limits.strangers);
        let transfers = AtomicUsize::new(0);
        let house = House { limits: self.limits, lobby: Arc::clone(&lobby), stop: stop.clone(), transfers };
        let talking = AtomicUsize::new(0);
        thread::scope(|scope| {
            let mut door = Door::new(&self.listeners, stop, self.limits).map_err(ServeError::Wait)?;
            loop {
                let greeted = door.wait(&lobby).map_err(ServeError::Wait)?;
                let Some(greeted) = greeted else {
                    lobby.close();
                    return Ok(());
                };
                for Greeted { stream, from, received } in greeted {
                    let place = Talking::with(&talking);
                    if talking.load(Ordering::Acquire) > 2 * self.limits.transfers {
                        observe(Event::Failed { from, reason: "too many clients at a time".to_owned() });
                        continue;
                    }
                    let house = &house;
                    let talk = move || {
                        let _place = place;
                        if let Ok(control) = Control::new(stream, received) {
                            house.host(control, from, observe);
                        }
                    };
                    let session = thread::Builder::new().name("farlink-session".to_owned());
                    if let Err(error) = session.spawn_scoped(scope, talk) {
                        observe(Event::Failed { from, reason: format!("start a thread: {error}") });
                    }
                }
            }
        })
    }
}

/// One of the clients that a server talks with.
struct Talking<'a>(&'a AtomicUsize);

impl<'a> Talking<'a> {
    fn with(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Talking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A control connection whose first bytes were right.
struct Greeted {
    stream: TcpStream,
    from: SocketAddr,
    received: Vec<u8>,
}

/// A connection that has not yet said what it is.
struct Stranger {
    stream: TcpStream,
    from: SocketAddr,
    said: Vec<u8>,
    until: Nanos,
}

/// What a stranger turned out to be.
enum Kind {
    Unknown,
    Nobody,
    Control,
    Data(Preamble),
}

/// Takes connections and listens to their first bytes.
struct Door<'a> {
    listeners: &'a [TcpListener],
    limits: Limits,
    poller: Poller,
    strangers: BTreeMap<u64, Stranger>,
    next_key: u64,
    ready: Vec<u64>,
}

impl<'a> Door<'a> {
    fn new(listeners: &'a [TcpListener], stop: &Wake, limits: Limits) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(stop, STOP, Interest::Read)?;
        for (key, listener) in listeners.iter().enumerate() {
            poller.add(listener, key as u64, Interest::Read)?;
        }
        let next_key = listeners.len() as u64;
        Ok(Self { listeners, limits, poller, strangers: BTreeMap::new(), next_key, ready: Vec::new() })
    }

    /// Waits for something to happen, and returns the clients that came with it; `None` where it is time to stop.
    fn wait(&mut self, lobby: &Lobby) -> io::Result<Option<Vec<Greeted>>> {
        let now = monotonic();
        let waiting = lobby.sweep(now);
        self.strangers.retain(|_, stranger| stranger.until > now);
        let pause = if waiting || !self.strangers.is_empty() { SWEEP } else { Nanos::MAX };
        let mut ready = std::mem::take(&mut self.ready);
        self.poller.wait(pause, &mut ready)?;
        let mut greeted = Vec::new();
        for &key in &ready {
            if key == STOP {
                return Ok(None);
            }
            match self.listeners.get(key as usize) {
                Some(listener) => self.take(listener),
                None => greeted.extend(self.listen(key, lobby)),
            }
        }
        self.ready = ready;
        Ok(Some(greeted))
    }

    /// Takes the connections that wait at `listener`.
    fn take(&mut self, listener: &TcpListener) {
        loop {
            match listener.accept() {
                Ok((stream, from)) => {
                    // The oldest goes: whoever means well has said what it is within a round trip.
                    while self.strangers.len() >= self.limits.strangers {
                        self.strangers.pop_first();
                    }
                    let key = self.next_key;
                    let known = stream
                        .set_nonblocking(true)
                        .and_then(|()| self.poller.add(&stream, key, Interest::Read));
                    if known.is_ok() {
                        self.next_key += 1;
                        let until = monotonic().after(self.limits.patience);
                        self.strangers.insert(key, Stranger { stream, from, said: Vec::new(), until });
                    }
                }
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

    /// Listens to a stranger; whoever opened a control connection is returned.
    fn listen(&mut self, key: u64, lobby: &Lobby) -> Option<Greeted> {
        let kind = self.strangers.get_mut(&key)?.listen();
        if matches!(kind, Kind::Unknown) {
            return None;
        }
        let stranger = self.strangers.remove(&key)?;
        self.poller.remove(&stranger.stream).ok()?;
        match kind {
            Kind::Unknown | Kind::Nobody => None,
            Kind::Control => {
                let Stranger { stream, from, said, .. } = stranger;
                Some(Greeted { stream, from, received: said })
            }
            Kind::Data(preamble) => {
                lobby.arrive(preamble, stranger.stream, monotonic().after(self.limits.patience));
                None
            }
        }
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

/// Ports that are tried where the kernel chooses.
const CHOICES: u32 = 16;

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// The kernel's own words.
        source: io::Error,
    },
    /// The kernel's own words.
    #[error("wait for clients")]
    Wait(#[source] io::Error),
}

/// Connections that the kernel completes before they are taken: two clients of the most streams.
const BACKLOG: u16 = 1024;

/// How often strangers whose time is over are looked for.
const SWEEP: Nanos = Nanos(250_000_000);

/// The pause after a connection could not be taken.
const BREATH: Duration = Duration::from_millis(20);

/// The key of the stop; listeners and strangers count from 0.
const STOP: u64 = u64::MAX;
