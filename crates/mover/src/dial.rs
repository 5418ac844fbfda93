//! Reaching a far end: the control connection and all data connections are opened at the same moment, and what the client has
//! to say first leaves with the first round trip that can carry it.
//!
//! ```text
//! client                                              server
//!   SYN                       control and data  ──►
//!   ClientHello (data: preamble, ClientHello)   ──►            (in clear: hello and request, or preamble, now)
//!                                               ◄──  ServerHello … Finished
//!   Finished, hello and request within TLS      ──►            (data: Finished, and payload at once)
//! ```

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use farlink_flow::streams::Path;
use farlink_host::clock::monotonic;
use farlink_host::congestion::Loaded;
use farlink_host::process;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_host::socket;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::key::PublicKey;
use farlink_wire::message::{Message, Preamble, Streams, Text, Token};
use farlink_wire::quantity::Nanos;

use crate::channel::{Channel, ChannelError};
use crate::control::{Control, ControlError};
use crate::secure::Trust;
use crate::server::for_circuits;
use crate::tuning::{Origin, Role, TuneError, Tuning, suffices, tune};

/// Another way than to connect by which connections are opened: through a program that has one already, or by being connected to.
pub(crate) trait Tunnel: fmt::Debug + Send + Sync {
    /// So many are to be opened.
    ///
    /// # Errors
    /// The kernel's.
    fn prepare(&self, _count: u16) -> io::Result<()> {
        Ok(())
    }

    /// One more connection to the far end.
    ///
    /// # Errors
    /// The kernel's, where there is none.
    fn open(&self) -> io::Result<Channel>;

    /// What it is, for messages.
    fn name(&self) -> String;
}

/// How connections get to the far end.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// By TCP, to the first of these addresses that answers.
    Tcp(Vec<SocketAddr>),
    /// Through something else.
    Tunnel(Arc<dyn Tunnel>),
}

/// What is to be opened.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    /// Which way.
    pub(crate) route: Route,
    /// Who is trusted; everything is in clear where that is absent.
    pub(crate) trust: Option<Trust>,
    /// Whether the data are under TLS too.
    pub(crate) protect_data: bool,
    /// The secret of the session.
    pub(crate) token: Token,
    /// What this end does with the payload.
    pub(crate) role: Role,
    /// What is wanted of the data connections.
    pub(crate) tuning: Tuning,
    /// What is known of the path where nobody chose the number of connections: it follows from the first round trip.
    pub(crate) path: Option<Path>,
    /// This host's address to connect from; the kernel's choice where absent.
    pub(crate) bind: Option<IpAddr>,
}

/// What is to be said first, of a transfer by so many data connections.
pub(crate) type First<'a> = &'a dyn Fn(Streams) -> Vec<Message>;

/// A far end that is there.
#[derive(Debug)]
pub(crate) struct Dialled {
    /// The control connection, on which all that was to be said first was said.
    pub(crate) control: Control,
    /// The data connections, in order.
    pub(crate) data: Vec<Channel>,
    /// When what was to be said first left.
    pub(crate) sent: Nanos,
    /// What has been heard meanwhile, and when.
    pub(crate) early: Vec<(Message, Nanos)>,
    /// Where it is.
    pub(crate) at: Place,
}

/// Where a far end was reached.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Address(SocketAddr),
    Tunnel(Arc<dyn Tunnel>),
}

impl Place {
    fn prepare(&self, count: u16) -> io::Result<()> {
        match self {
            Self::Address(_) => Ok(()),
            Self::Tunnel(tunnel) => tunnel.prepare(count),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Tunnel(tunnel) => f.write_str(&tunnel.name()),
        }
    }
}

impl Dial {
    /// Opens everything and says `first`; `None` where `stop` was raised first. Each address has its share of the time.
    ///
    /// # Errors
    /// [`DialError`]; that of the last address where none answers.
    pub(crate) fn open(
        &self,
        first: First<'_>,
        until: Nanos,
        stop: &Wake,
    ) -> Result<Option<Dialled>, DialError> {
        let places: Vec<_> = match &self.route {
            Route::Tcp(addresses) => addresses.iter().copied().map(Place::Address).collect(),
            Route::Tunnel(tunnel) => vec![Place::Tunnel(Arc::clone(tunnel))],
        };
        let mut last = None;
        for (tried, at) in places.iter().enumerate() {
            let now = monotonic();
            let share = until.since(now).0 / (places.len() - tried) as u64;
            match self.open_at(at, first, now.after(Nanos(share)), stop) {
                Err(error @ (DialError::Connect { .. } | DialError::Unanswered { .. })) => last = Some(error),
                other => return other,
            }
        }
        Err(last.unwrap_or(DialError::Nowhere))
    }

    fn open_at(
        &self,
        at: &Place,
        first: First<'_>,
        until: Nanos,
        stop: &Wake,
    ) -> Result<Option<Dialled>, DialError> {
        let failed = |source| DialError::Connect { at: at.to_string(), source };
        let poller = Poller::new().map_err(failed)?;
        poller.add(stop, STOP, Interest::Read).map_err(failed)?;
        at.prepare(1 + self.tuning.streams.get()).map_err(failed)?;
        let control = Opening::start(self.socket_to(at).map_err(failed)?, at, CONTROL, &poller)?;
        let mut data = Vec::new();
        let mut loaded = None;
        for key in 0..self.tuning.streams.get() {
            data.push(self.start(at, key.into(), &poller, &mut loaded)?);
        }
        let talk = Talk { control: Speaker::Opening(control), sent: None, early: Vec::new() };
        Dialling { dial: self, at, poller, data, talk, loaded, path: self.path }.run(first, until, stop)
    }

    /// Starts to connect for data.
    fn start(
        &self,
        at: &Place,
        key: u64,
        poller: &Poller,
        loaded: &mut Option<Loaded>,
    ) -> Result<Opening, DialError> {
        let failed = |source| DialError::Connect { at: at.to_string(), source };
        let channel = self.socket_to(at).map_err(failed)?;
        if let Some(stream) = channel.tcp() {
            // Before connecting: the window that is offered, and its scale, depend on the buffer.
            tune(stream, self.role, &self.tuning, Origin::Fresh, loaded).map_err(DialError::tune)?;
        }
        Opening::start(channel, &self.data_place(at).map_err(failed)?, key, poller)
    }

    /// One more data connection to the far end that `at` is, the one of `stream`; `None` where `stop` was raised first.
    ///
    /// # Errors
    /// [`DialError`].
    pub(crate) fn another(
        &self,
        at: &Place,
        stream: u16,
        until: Nanos,
        stop: &Wake,
    ) -> Result<Option<Channel>, DialError> {
        let failed = |source| DialError::Connect { at: at.to_string(), source };
        let mut poller = Poller::new().map_err(failed)?;
        poller.add(stop, STOP, Interest::Read).map_err(failed)?;
        let mut opening = self.start(at, 0, &poller, &mut None)?;
        let mut ready = Vec::new();
        loop {
            let now = monotonic();
            if now >= until {
                return Err(DialError::Unanswered { at: at.to_string() });
            }
            poller.wait(until.since(now), &mut ready).map_err(failed)?;
            if ready.contains(&STOP) {
                return Ok(None);
            }
            if ready.contains(&0)
                && self.introduce(&mut opening, stream, &poller).map_err(|e| self.told(at, e))?
            {
                return Ok(Some(opening.channel));
            }
        }
    }

    /// A socket for a connection to `at`; not connected yet where that is TCP.
    fn socket_to(&self, at: &Place) -> io::Result<Channel> {
        match at {
            Place::Address(address) => {
                let stream = socket::unconnected(*address)?;
                if let Some(bind) = self.bind {
                    socket::bind(&stream, bind)?;
                }
                Channel::over_tcp(stream)
            }
            Place::Tunnel(tunnel) => tunnel.open(),
        }
    }

    /// Where data connections go.
    fn data_place(&self, at: &Place) -> io::Result<Place> {
        match at {
            Place::Address(address) if self.tuning.declared.is_some() => {
                let next =
                    for_circuits(*address).ok_or_else(|| io::Error::other("no port comes after this one"))?;
                Ok(Place::Address(next))
            }
            other => Ok(other.clone()),
        }
    }

    /// Goes on with a data connection about which there is news, and says whether it is ready.
    fn introduce(&self, opening: &mut Opening, stream: u16, poller: &Poller) -> io::Result<bool> {
        if !opening.is_connected {
            opening.connected(poller)?;
            let trust = self.trust.as_ref().filter(|_| self.protect_data);
            let preamble = Preamble { token: self.token, stream, sealed: trust.is_some() }.encode();
            match trust {
                Some(trust) => opening.channel.seal_as_client(trust.config(), &preamble)?,
                // A fresh socket's buffer takes so little whole.
                None => io::Write::write_all(&mut opening.channel, &preamble)?,
            }
        }
        opening.channel.shake_hands()
    }

    /// What a failure of a connection that was there means.
    fn told(&self, at: &Place, error: io::Error) -> DialError {
        let at = at.to_string();
        match ChannelError::within(&error) {
            Some(_) => self.explained(at, ControlError::from_receive(error)),
            None => DialError::Connect { at, source: error },
        }
    }

    /// What a failure of the conversation means.
    pub(crate) fn explained(&self, at: String, source: ControlError) -> DialError {
        let Some(trust) = &self.trust else { return DialError::Talk { at, source } };
        match (&source, trust.refused()) {
            (ControlError::Channel(ChannelError::Untrusted), Some(key)) => DialError::Untrusted { at, key },
            (ControlError::Channel(ChannelError::NotAdmitted), _) => {
                DialError::NotAdmitted { at, key: trust.public() }
            }
            _ => DialError::Talk { at, source },
        }
    }
}

/// A connection that is being opened.
#[derive(Debug)]
struct Opening {
    channel: Channel,
    key: u64,
    is_connected: bool,
    is_ready: bool,
}

impl Opening {
    fn start(channel: Channel, to: &Place, key: u64, poller: &Poller) -> Result<Self, DialError> {
        let failed = |source| DialError::Connect { at: to.to_string(), source };
        if let (Some(stream), Place::Address(address)) = (channel.tcp(), to) {
            socket::start_connecting(stream, *address).map_err(failed)?;
        }
        poller.add(&channel, key, Interest::Write).map_err(failed)?;
        Ok(Self { channel, key, is_connected: false, is_ready: false })
    }

    /// It can be written: how did connecting go? From now on it is waited for to be read.
    fn connected(&mut self, poller: &Poller) -> io::Result<()> {
        if let Some(stream) = self.channel.tcp() {
            socket::connected(stream)?;
        }
        self.is_connected = true;
        poller.remove(&self.channel)?;
        poller.add(&self.channel, self.key, Interest::Read)
    }
}

/// The control connection on its way.
#[derive(Debug)]
struct Talk {
    control: Speaker,
    sent: Option<Nanos>,
    early: Vec<(Message, Nanos)>,
}

#[derive(Debug)]
enum Speaker {
    Opening(Opening),
    Speaking(Control),
    /// Between the two.
    Neither,
}

/// Everything on its way.
struct Dialling<'a> {
    dial: &'a Dial,
    at: &'a Place,
    poller: Poller,
    data: Vec<Opening>,
    talk: Talk,
    loaded: Option<Loaded>,
    /// What is known of the path, until it is used.
    path: Option<Path>,
}

impl Dialling<'_> {
    fn run(mut self, first: First<'_>, until: Nanos, stop: &Wake) -> Result<Option<Dialled>, DialError> {
        let mut ready = Vec::new();
        while self.talk.sent.is_none() || self.data.iter().any(|opening| !opening.is_ready) {
            let now = monotonic();
            if now >= until {
                return Err(DialError::Unanswered { at: self.at.to_string() });
            }
            self.poller.wait(until.since(now), &mut ready).map_err(|source| self.failed(source))?;
            for &key in &ready {
                match key {
                    STOP => return Ok(None),
                    CONTROL => self.hear(first)?,
                    key => {
                        self.count(|dialling| dialling.data.get(key as usize))?;
                        if let Err(error) = self.introduce(key as usize) {
                            return self.blame(key as usize, error, stop);
                        }
                    }
                }
            }
        }
        match (self.talk.control, self.talk.sent) {
            (Speaker::Speaking(control), Some(sent)) => {
                let data = self.data.into_iter().map(|opening| opening.channel).collect();
                Ok(Some(Dialled { control, data, sent, early: self.talk.early, at: self.at.clone() }))
            }
            _ => Err(DialError::Unanswered { at: self.at.to_string() }),
        }
    }

    fn failed(&self, source: io::Error) -> DialError {
        DialError::Connect { at: self.at.to_string(), source }
    }

    /// Once a connection stands, as `first` may: opens as many as its round trip asks for. What is too many was not introduced yet.
    fn count(&mut self, first: impl Fn(&Self) -> Option<&Opening>) -> Result<(), DialError> {
        let Some(path) = self.path else { return Ok(()) };
        let tcp = first(self).and_then(|opening| opening.channel.tcp());
        let rtt = tcp.and_then(|tcp| TcpInfo::of(tcp).ok()).map(|info| info.min_rtt);
        let Some(rtt) = rtt.filter(|rtt| *rtt > Nanos::ZERO) else { return Ok(()) };
        self.path = None;
        let streams = Path { rtt: Some(rtt), ..path }.streams().get();
        let count = usize::from(streams);
        self.data.truncate(count);
        if let Some(more) = streams.checked_sub(self.data.len() as u16).filter(|more| *more > 0) {
            self.at.prepare(more).map_err(|source| self.failed(source))?;
        }
        while self.data.len() < count {
            let key = self.data.len() as u64;
            self.data.push(self.dial.start(self.at, key, &self.poller, &mut self.loaded)?);
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
        if self.dial.introduce(opening, index as u16, &self.poller)? {
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
        while let Some(message) = control.poll().map_err(wrong)? {
            if let Message::Refuse(reason) | Message::Failed(reason) = message {
                return Err(DialError::Refused { at: self.at.to_string(), reason });
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
        if let Some(trust) = &self.dial.trust {
            opening.channel.seal_as_client(trust.config(), &[])?;
        }
        Control::new(opening.channel, Vec::new())
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
    fn blame(mut self, index: usize, error: io::Error, stop: &Wake) -> Result<Option<Dialled>, DialError> {
        let failure = self.dial.told(self.at, error);
        if !self.data[index].is_connected {
            return Err(failure);
        }
        let Speaker::Speaking(control) = &mut self.talk.control else { return Err(failure) };
        let until = monotonic().after(EXPLANATION);
        loop {
            match control.next(until, stop) {
                Ok(Some(Message::Refuse(reason) | Message::Failed(reason))) => {
                    return Err(DialError::Refused { at: self.at.to_string(), reason });
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(source @ ControlError::Channel(_)) => {
                    return Err(self.dial.explained(self.at.to_string(), source));
                }
                Err(_) => return Err(failure),
            }
        }
    }
}

/// Why a far end was not reached. One line that names it, the reason, and where there is one the mend.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// There is no address to try.
    #[error("there is no address to connect to")]
    Nowhere,
    /// No connection.
    #[error("connect to {at}{}", mend(source))]
    Connect {
        /// Where to.
        at: String,
        /// The network's own words.
        source: io::Error,
    },
    /// No connection in time.
    #[error("connect to {at}: no answer")]
    Unanswered {
        /// Where to.
        at: String,
    },
    /// What was asked for cannot be had at this end.
    #[error("on host {host}")]
    Tune {
        /// This host.
        host: String,
        /// What was not granted.
        source: TuneError,
    },
    /// The far end does not do it.
    #[error("{at} refused: {reason}")]
    Refused {
        /// The far end.
        at: String,
        /// Its words.
        reason: Text,
    },
    /// The far end showed another key than the one that is trusted.
    #[error("{at} shows the key {key}, which is not the one that is trusted")]
    Untrusted {
        /// The far end.
        at: String,
        /// What it showed.
        key: PublicKey,
    },
    /// The far end does not trust us.
    #[error(
        "{at} does not let this key in: add a line \"read=/DIRECTORY write=/DIRECTORY {key}\" to the authorized_keys there"
    )]
    NotAdmitted {
        /// The far end.
        at: String,
        /// Ours.
        key: PublicKey,
    },
    /// The far end cannot be talked to.
    #[error("{at}")]
    Talk {
        /// The far end.
        at: String,
        /// What is wrong with it.
        source: ControlError,
    },
}

impl DialError {
    fn tune(source: TuneError) -> Self {
        Self::Tune { host: process::host_name(), source }
    }
}

/// What to do about it, where that is known.
fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => " (start `farlink serve` there first)",
        _ => "",
    }
}

/// Keys of what is waited for; data connections count from 0.
const STOP: u64 = u64::MAX;
const CONTROL: u64 = u64::MAX - 1;

/// Messages that are kept while data connections are still on their way.
const MOST_EARLY: usize = 64;

/// How long the control connection has to explain why a data connection failed.
const EXPLANATION: Nanos = Nanos(2_000_000_000);
