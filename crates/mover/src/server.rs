//! The far end: takes connections, and holds as many sessions as it may at a time.
//!
//! A connection says first what it is. Until then it costs a few bytes and, after a while, nothing: a client that
//! is broken, slow or hostile cannot hold more than its bound.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::{self, Scope};

use farlink_host::circuit::MOST_BUFFER;
use farlink_host::clock::monotonic;
use farlink_host::fast_open;
use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_host::socket;
use farlink_wire::bootstrap::Ports;
use farlink_wire::message::Way;
use farlink_wire::quantity::{Bytes, Nanos};

use crate::automatic;
use crate::budget::Budget;
use crate::channel::ChannelError;
use crate::ports::for_circuits;
use crate::secure::{self, Admission, Identity};
use crate::tuning::first_window;

mod burden;
mod called;
mod door;
mod handshakes;
mod lobby;
mod places;
mod reception;
mod session;
mod turns;

pub use crate::budget::{LEAST, LEAST_OF_COPY};
pub(crate) use called::Called;
pub use places::{PlaceError, places};

use door::Door;
use handshakes::{Handshakes, Newcomer, Purpose};
use lobby::Lobby;
use reception::{Greeted, Reception};
use session::{Guest, House};
use turns::Copies;

/// What strangers may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transfers at a time. As many clients again may be about to ask.
    pub transfers: usize,
    /// Connections that have not yet said what they are, or whose session has not yet come.
    pub strangers: usize,
    /// How long a client may take to say what it wants.
    pub patience: Nanos,
    /// Memory that all transfers together may take; half of what the host has available when it begins to serve, where absent.
    pub memory: Option<Bytes>,
    /// Whether emulated hosts, which talk in clear and have no keys, may copy files as whoever runs the server.
    pub trusting: bool,
}

impl Default for Limits {
    /// 64 transfers; strangers for two clients of the most streams; 10 seconds.
    fn default() -> Self {
        let (memory, trusting) = (None, false);
        Self { transfers: 64, strangers: 1024, patience: Nanos(10_000_000_000), memory, trusting }
    }
}

impl Limits {
    /// What all transfers together may take.
    fn budget(&self) -> Budget {
        let half = || process::memory_available().map_or(USUAL_MEMORY, |bytes| Bytes(bytes / 2));
        Budget::of(self.memory.unwrap_or_else(half))
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
        /// Whose key it has shown, as the list of keys says.
        who: Option<String>,
        /// What is read or written, readable; absent where it is memory.
        what: Option<String>,
    },
    /// A transfer has ended.
    Ended {
        /// The client.
        from: SocketAddr,
        /// Which way its payload went.
        way: Way,
        /// Payload bytes that arrived.
        bytes: u64,
        /// Names of a copy that failed, as far as this end knows.
        failed: u64,
    },
    /// A client is not let in, or is one too many. It may open several connections, each of which is refused.
    Refused {
        /// The client.
        from: SocketAddr,
        /// Why.
        reason: String,
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
    /// Who it is, and whom it lets in; nobody by a key where that is absent.
    keys: Option<(Identity, Arc<Admission>)>,
    /// Its addresses that only the hosts of its emulated connection reach.
    emulated: Vec<IpAddr>,
    /// Nobody is let in without a key, wherever they are.
    keys_only: bool,
    called: Called,
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
                Err(ServeError::LastPort) if attempts > 0 => {}
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
            automatic::begin_all(&listener);
            fast_open::admit(&listener);
            // It is a matter of time alone.
            let _ = socket::begin_with_window(&listener, first_window());
            let bound = listener.local_addr().map_err(|source| ServeError::Listen { address, source })?;
            if address.port() == chosen {
                chosen = bound.port();
            }
            let next = for_circuits(bound).ok_or(ServeError::LastPort)?;
            usual.push(listener);
            let wide = listen(next, Some(MOST_BUFFER.0 as u32))?;
            wide.iter().for_each(fast_open::admit);
            ample.extend(wide);
        }
        let count = usual.len();
        usual.append(&mut ample);
        // Who cannot list the addresses has none that is emulated.
        let emulated = places::emulated().unwrap_or_default();
        let called = Called::new().map_err(ServeError::Wait)?;
        Ok(Self { listeners: usual, usual: count, limits, keys: None, emulated, keys_only: false, called })
    }

    /// Shows `identity` to clients under TLS, and lets those in that `admission` lists.
    #[must_use]
    pub fn with_keys(mut self, identity: Identity, admission: Arc<Admission>) -> Self {
        self.keys = Some((identity, admission));
        self
    }

    /// As [`with_keys`](Self::with_keys), and lets nobody in without a key, also not from this machine.
    #[must_use]
    pub fn with_keys_only(mut self, identity: Identity, admission: Arc<Admission>) -> Self {
        self.keys_only = true;
        self.with_keys(identity, admission)
    }

    /// Listens on each of `addresses`, at the first of `ports` that is free on all of them; where those are absent, at one that
    /// the kernel chooses.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn bind_within(
        addresses: &[IpAddr],
        ports: Option<Ports>,
        limits: Limits,
    ) -> Result<Self, ServeError> {
        let at = |port| addresses.iter().map(|address| SocketAddr::new(*address, port)).collect::<Vec<_>>();
        let Some(ports) = ports else { return Self::bind(&at(0), limits) };
        for port in ports.candidates() {
            match Self::bind(&at(port), limits) {
                Err(ServeError::Listen { source, .. }) if source.kind() == ErrorKind::AddrInUse => {}
                Err(ServeError::LastPort) => {}
                other => return other,
            }
        }
        Err(ServeError::Taken { ports })
    }

    /// Where it listens for control connections.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners[..self.usual].iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Where it is given connections that were begun at this end.
    pub(crate) fn called(&self) -> Called {
        self.called.clone()
    }

    /// Serves until `stop` is raised; clients that are connected then are told.
    ///
    /// # Errors
    /// [`ServeError::Wait`].
    pub fn run(&self, stop: &Wake, observe: &(dyn Fn(Event) + Sync)) -> Result<(), ServeError> {
        // Not having more descriptors than before is no reason not to serve.
        let _ = process::raise_descriptor_limit(u64::MAX);
        let lobby = Lobby::new(self.limits.strangers);
        let transfers = AtomicUsize::new(0);
        let of_circuits =
            self.listeners[self.usual..].iter().filter_map(|listener| listener.local_addr().ok());
        let house = House {
            limits: self.limits,
            budget: self.limits.budget(),
            lobby,
            stop: stop.clone(),
            transfers,
            copies: Copies::default(),
            circuits: of_circuits.map(|address| address.port()).collect(),
        };
        let reception = Reception::new(house, observe);
        let handshakes = self.handshakes()?;
        let (reception, handshakes) = (&reception, handshakes.as_ref());
        thread::scope(|scope| {
            let outcome = self.receive(scope, reception, handshakes);
            let unshaken = handshakes.and_then(Handshakes::failure);
            // Also where it failed: the threads of this scope are waited for.
            reception.house.stop.raise();
            reception.house.lobby.close();
            unshaken.map_or(outcome, |source| Err(ServeError::Wait(source)))
        })
    }

    /// Takes connections until it is time to stop.
    fn receive<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        reception: &'env Reception<'env>,
        handshakes: Option<&'env Handshakes>,
    ) -> Result<(), ServeError> {
        for index in 0..handshakes.map_or(0, Handshakes::threads) {
            let work = move || self.welcome(handshakes, index, reception, scope);
            let named = thread::Builder::new().name("farlink-keys".to_owned());
            named.spawn_scoped(scope, work).map_err(ServeError::Wait)?;
        }
        let mut door = Door::new(self, &reception.house.stop, handshakes).map_err(ServeError::Wait)?;
        while let Some(greeted) = door.wait(&reception.house.lobby).map_err(ServeError::Wait)? {
            for greeted in greeted {
                reception.begin(scope, greeted);
            }
        }
        Ok(())
    }

    /// Where handshakes are done, where there are keys for them.
    fn handshakes(&self) -> Result<Option<Handshakes>, ServeError> {
        let Some((identity, admission)) = &self.keys else { return Ok(None) };
        let config = secure::server(identity, Arc::clone(admission))
            .map_err(|error| ServeError::Keys(io::Error::other(error)))?;
        let made = Handshakes::new(config, self.limits.strangers, self.limits.patience);
        made.map(Some).map_err(ServeError::Keys)
    }

    /// One thread's work: whoever has shown a key that is listed comes in.
    fn welcome<'scope, 'env>(
        &self,
        handshakes: Option<&Handshakes>,
        thread: usize,
        reception: &'env Reception<'env>,
        scope: &'scope Scope<'scope, 'env>,
    ) {
        let (Some(handshakes), Some((_, admission))) = (handshakes, &self.keys) else { return };
        let welcome = |newcomer: Newcomer| {
            let Newcomer { channel, from, purpose } = newcomer;
            let key = channel.peer_key();
            // The list may have changed since the handshake began.
            let Some(grant) = key.and_then(|key| admission.grant(key)) else { return };
            match purpose {
                Purpose::Data(preamble) => {
                    let until = monotonic().after(self.limits.patience);
                    reception.house.lobby.arrive(preamble, channel, until);
                    // Whoever waits in the lobby is looked after at the door.
                    self.called.wake().raise();
                }
                Purpose::Control => {
                    let guest = Guest { from, known: key.map(|key| (key, grant)) };
                    reception.begin(scope, Greeted { channel, guest, received: Vec::new(), refusal: None });
                }
            }
        };
        let refused = |from, error: &io::Error| {
            let reason = match ChannelError::within(error) {
                Some(unlisted @ ChannelError::Unlisted { .. }) => unlisted.to_string(),
                // Seen from here it is the far side that trusts, or has no key of ours.
                Some(ChannelError::NotAdmitted) => {
                    "the client does not trust this server's key: its known_hosts has another, or none"
                        .to_owned()
                }
                Some(ChannelError::Unshaken) => "the client left before it had shown a key".to_owned(),
                _ => format!("not let in: {error}"),
            };
            reception.observe(Event::Refused { from, reason });
        };
        if let Err(error) = handshakes.work(thread, &reception.house.stop, &welcome, &refused) {
            // Its share of those who come would wait without end.
            handshakes.fail(error);
            reception.house.stop.raise();
        }
    }
}

/// Memory for transfers where the kernel does not say what is available.
const USUAL_MEMORY: Bytes = Bytes(4 << 30);

/// Ports that are tried where the kernel chooses.
const CHOICES: u32 = 16;

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("listen on {address}{}", mend(source.kind()))]
    Listen {
        /// Which.
        address: SocketAddr,
        /// The kernel's own words.
        source: io::Error,
    },
    /// The data of circuits have no port.
    #[error("no port comes after {}, where the data of circuits go: choose one up to {}", u16::MAX, u16::MAX - 1)]
    LastPort,
    /// None of the ports is free.
    #[error("none of the ports {ports} is free, with the one after it: name others with --ports")]
    Taken {
        /// Which.
        ports: Ports,
    },
    /// The keys are no good.
    #[error("use the keys")]
    Keys(#[source] io::Error),
    /// The kernel's own words.
    #[error("wait for clients")]
    Wait(#[source] io::Error),
}

/// What mends that an address cannot be listened on.
const fn mend(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::AddrInUse => {
            ", or the port after it: end who listens there (`ss -ltnp`), or choose another with --port"
        }
        ErrorKind::AddrNotAvailable => ": choose one that `ip address` lists",
        ErrorKind::PermissionDenied => ": choose a port above 1023, or run it as root with --user",
        _ => "",
    }
}

/// Connections that the kernel completes before they are taken: two clients of the most streams.
const BACKLOG: u16 = 1024;
