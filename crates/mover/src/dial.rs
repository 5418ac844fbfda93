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
//!
//! Where the far kernel has given this one a cookie ([`fast_open`](farlink_host::fast_open)), the second line leaves with the first, but for what
//! is in clear: of a preamble the last byte waits, and hello and request do.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use farlink_flow::streams::Path;
use farlink_host::clock::monotonic;
use farlink_host::congestion::Loaded;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_host::socket;
use farlink_wire::message::{Message, Preamble, Streams, Token};
use farlink_wire::quantity::Nanos;

use crate::automatic;
use crate::channel::{Channel, ChannelError};
use crate::control::{Control, ControlError};
use crate::ports::for_circuits;
use crate::role::Role;
use crate::secure::Trust;
use crate::tuning::{self, Origin, TuneError, Tuning, arrange, insist, tune};

mod dialling;
mod error;
mod late;
mod opening;

use dialling::Dialling;
pub use error::DialError;
pub(crate) use error::foreign;
pub(crate) use late::Late;
use opening::{Opening, Words};

/// Another way than to connect by which connections are opened: through a program that has one already, or by being connected to.
pub(crate) trait Tunnel: fmt::Debug + Send + Sync {
    /// So many are to be opened.
    ///
    /// # Errors
    /// The kernel's.
    fn prepare(&self, _count: u16) -> io::Result<()> {
        Ok(())
    }

    /// One more connection to the far end; it waits for none once `stop` is raised.
    ///
    /// # Errors
    /// The kernel's, where there is none.
    fn open(&self, stop: &Wake) -> io::Result<Channel>;

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
    /// The data connections that stand, in order, and which streams they are: all, where their number was given.
    pub(crate) data: Vec<(u16, Channel)>,
    /// The others, where it follows from the round trip: a transfer begins without them.
    pub(crate) late: Option<Late>,
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
            Route::Tcp(addresses) => {
                let fits = |at: &&SocketAddr| self.bind.is_none_or(|bind| bind.is_ipv4() == at.is_ipv4());
                addresses.iter().filter(fits).copied().map(Place::Address).collect()
            }
            Route::Tunnel(tunnel) => vec![Place::Tunnel(Arc::clone(tunnel))],
        };
        let mut last = None;
        for (tried, at) in places.iter().enumerate() {
            let now = monotonic();
            let share = until.since(now).0 / (places.len() - tried) as u64;
            match self.open_at(at, first, now.after(Nanos(share)), stop) {
                Err(DialError::Connect { .. }) if stop.is_raised() => return Ok(None),
                Err(error @ (DialError::Connect { .. } | DialError::Unanswered { .. })) => last = Some(error),
                other => return other,
            }
        }
        let any = !matches!(&self.route, Route::Tcp(addresses) if addresses.is_empty());
        Err(match (last, self.bind) {
            (Some(error), _) => error,
            (None, Some(from)) if any => DialError::Otherwise { from },
            (None, _) => DialError::Nowhere,
        })
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
        let words = Words { preamble: None, sealed: self.trust.as_ref().map(Trust::config) };
        let control = Opening::start(self.socket_to(at, stop).map_err(failed)?, at, words, CONTROL, &poller)?;
        let mut data = Vec::new();
        let mut loaded = None;
        let began = monotonic();
        let is_tcp = control.channel.tcp().is_some();
        let later = is_tcp && tuning::is_to_be_loaded(self.role, &self.tuning);
        for key in 0..self.tuning.streams.get() {
            let loaded = if later { None } else { Some(&mut loaded) };
            data.push(self.start(at, (key.into(), key), (&poller, stop), loaded)?);
        }
        // Meanwhile the first round trip passes. What is not allowed was said before.
        if later {
            loaded = tuning::load(self.role, &self.tuning).map_err(DialError::tune)?;
        }
        Dialling::new((self, at, stop), poller, control, data, (began, loaded)).run(first, until)
    }

    /// Starts to connect for the data of `stream`; a congestion control that was asked for by name is chosen when the connection stands, where there is no
    /// room for what is `loaded`.
    fn start(
        &self,
        at: &Place,
        (key, stream): (u64, u16),
        (poller, stop): (&Poller, &Wake),
        loaded: Option<&mut Option<Loaded>>,
    ) -> Result<Opening, DialError> {
        let failed = |source| DialError::Connect { at: at.to_string(), source };
        let channel = self.socket_to(at, stop).map_err(failed)?;
        if let Some(tcp) = channel.tcp() {
            // Before connecting: the window that is offered, and its scale, depend on the buffer.
            let tuned = match loaded {
                Some(loaded) => tune(tcp, self.role, &self.tuning, Origin::Fresh, loaded),
                None => {
                    // One that began with BBR would be paced for good.
                    automatic::begin(tcp);
                    arrange(tcp, self.role, &self.tuning, Origin::Fresh)
                }
            };
            tuned.map_err(DialError::tune)?;
        }
        let trust = self.trust.as_ref().filter(|_| self.protect_data);
        let preamble = Preamble { token: self.token, stream, sealed: trust.is_some(), wants_answer: false };
        let words = Words { preamble: Some(preamble), sealed: trust.map(Trust::config) };
        Opening::start(channel, &self.data_place(at).map_err(failed)?, words, key, poller)
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
        let mut opening = match self.start(at, (0, stream), (&poller, stop), Some(&mut None)) {
            Err(DialError::Connect { .. }) if stop.is_raised() => return Ok(None),
            other => other?,
        };
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
            if ready.contains(&0) && self.introduce(&mut opening, &poller).map_err(|e| self.told(at, e))? {
                return Ok(Some(opening.channel));
            }
        }
    }

    /// A socket for a connection to `at`; not connected yet where that is TCP.
    fn socket_to(&self, at: &Place, stop: &Wake) -> io::Result<Channel> {
        match at {
            Place::Address(address) => {
                let stream = socket::unconnected(*address)?;
                if let Some(bind) = self.bind {
                    socket::bind(&stream, bind).map_err(|source| foreign(bind, source))?;
                }
                Channel::over_tcp(stream)
            }
            Place::Tunnel(tunnel) => tunnel.open(stop),
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
    fn introduce(&self, opening: &mut Opening, poller: &Poller) -> io::Result<bool> {
        if !opening.is_connected {
            opening.connected(poller)?;
            if let Some(stream) = opening.channel.tcp() {
                insist(stream, self.role, &self.tuning).map_err(io::Error::other)?;
            }
            opening.speak()?;
        }
        opening.is_heard()
    }

    /// What a failure of a connection that was there means.
    fn told(&self, at: &Place, error: io::Error) -> DialError {
        let at = at.to_string();
        match error.downcast::<TuneError>() {
            Ok(source) => DialError::tune(source),
            Err(error) if ChannelError::within(&error).is_some() => {
                self.explained(at, ControlError::of(error))
            }
            Err(source) => DialError::Connect { at, source },
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

/// Keys of what is waited for; data connections count from 0.
const STOP: u64 = u64::MAX;
const CONTROL: u64 = u64::MAX - 1;
