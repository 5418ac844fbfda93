//! The other end of a file transfer, and the ways to reach it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use farlink_flow::streams::Path;
use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_wire::message::copy::{Copy, Protect, Request};
use farlink_wire::message::{Message, Way};
use farlink_wire::quantity::Nanos;

use crate::bootstrap::{self, FarEnd, Remote};
use crate::channel::{Channel, ChannelError};
use crate::control::ControlError;
use crate::copy::CopyError;
use crate::dial::{Dial, DialError, Dialled, Place, Route};
use crate::far_host::FarHost;
use crate::role::{Near, Role};
use crate::secure::{Credentials, Trusted};
use crate::tuning::Tuning;

pub(crate) mod opened;

use opened::{Line, Opened};

/// The other end of a file transfer.
#[derive(Debug)]
pub enum Far {
    /// This process.
    Local,
    /// A `farlink serve` that listens.
    Server(Server),
    /// What ssh starts.
    Ssh(Remote),
}

/// A `farlink serve` that listens.
#[derive(Debug)]
pub struct Server {
    /// Where.
    pub target: FarHost,
    /// Keys of both; nobody is trusted, and nobody shown, where absent: only an emulated host lets that in.
    pub credentials: Option<Credentials>,
}

/// What this end brings along.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThisEnd {
    /// Its address to connect from; the kernel's choice where absent.
    pub(crate) bind: Option<IpAddr>,
    /// What it knows of the path, where nobody chose the number of connections.
    pub(crate) path: Option<Path>,
}

impl Far {
    /// Whether it is this process.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::Local)
    }

    /// What the user calls the other host; `None` where there is none.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Local => None,
            Self::Server(server) => Some(&server.target.host),
            Self::Ssh(remote) => Some(remote.ssh.host()),
        }
    }

    /// Connects, and asks for `request`; `None` where `stop` was raised first. What a person should know of the way, `warn` is told at once.
    pub(crate) fn open(
        &self,
        request: &Request,
        this: ThisEnd,
        stop: &Wake,
        warn: &mut dyn FnMut(String),
    ) -> Result<Option<Opened>, CopyError> {
        match self {
            Self::Local => crate::copy::local::open(request).map(Some),
            Self::Server(server) => server.open(request, this, stop),
            Self::Ssh(remote) => through_ssh(remote, request, this, stop, warn),
        }
    }
}

/// Names it in the key of a copy.
impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("here"),
            Self::Server(server) => write!(f, "{}", server.target),
            Self::Ssh(remote) => write!(f, "ssh {}", remote.ssh.host()),
        }
    }
}

impl Server {
    fn open(&self, request: &Request, this: ThisEnd, stop: &Wake) -> Result<Option<Opened>, CopyError> {
        if self.credentials.is_none() && request.protect != Protect::Clear {
            return Err(CopyError::NoKeys);
        }
        let FarHost { host, port } = &self.target;
        let addresses = self.target.resolve()?;
        let trusted =
            self.credentials.as_ref().map(|credentials| credentials.trust(host, *port)).transpose()?;
        dial(Route::Tcp(addresses), trusted.as_ref(), request, this, stop)
    }
}

/// Opens everything over `route`.
fn dial(
    route: Route,
    trusted: Option<&Trusted>,
    request: &Request,
    this: ThisEnd,
    stop: &Wake,
) -> Result<Option<Opened>, CopyError> {
    let trust = trusted.map(|trusted| trusted.trust.clone());
    let dial = Dial { trust, ..wanted(route, request, this) };
    let first =
        |streams| vec![Message::Copy(Copy::Request(Box::new(Request { streams, ..request.clone() })))];
    let until = monotonic().after(request.patience.get());
    let dialled = match (dial.open(&first, until, stop), trusted) {
        (Ok(Some(dialled)), _) => dialled,
        (Ok(None), _) => return Ok(None),
        (Err(DialError::Untrusted { key, .. }), Some(trusted)) => return Err(trusted.complaint(key).into()),
        (Err(error), _) => return Err(error.into()),
    };
    Ok(Some(opened(dialled, dial, None, request)))
}

/// Starts a far end and opens everything to it.
fn through_ssh(
    remote: &Remote,
    request: &Request,
    this: ThisEnd,
    stop: &Wake,
    warn: &mut dyn FnMut(String),
) -> Result<Option<Opened>, CopyError> {
    let mut notice = |notice: bootstrap::Notice| warn(notice.to_string());
    let Some(far_end) = FarEnd::start(remote, request.patience.get(), stop, &mut notice)? else {
        return Ok(None);
    };
    let mut dial = wanted(Route::Tcp(Vec::new()), request, this);
    let first =
        |streams| vec![Message::Copy(Copy::Request(Box::new(Request { streams, ..request.clone() })))];
    let patience = request.patience.get();
    let Some(dialled) = far_end.open(&mut dial, &first, patience, stop, &mut notice)? else {
        return Ok(None);
    };
    Ok(Some(opened(dialled, dial, Some(far_end), request)))
}

/// What is to be opened for `request`.
fn wanted(route: Route, request: &Request, this: ThisEnd) -> Dial {
    Dial {
        route,
        trust: None,
        protect_data: request.protect == Protect::Encrypt,
        token: request.token,
        role: role(request.way),
        tuning: Tuning::from(request),
        path: this.path,
        bind: this.bind,
    }
}

fn opened(dialled: Dialled, dial: Dial, far_end: Option<FarEnd>, request: &Request) -> Opened {
    let Dialled { control, data, late, early, at, .. } = dialled;
    let line = Dialling { dial, at, patience: request.patience.get(), _far_end: far_end };
    Opened {
        control,
        data: data.into_iter().map(|(number, channel)| (number.into(), channel)).collect(),
        // It is reached by now.
        late: late.map(|late| late.within(request.patience.get())),
        line: Arc::new(line),
        early: early.into_iter().map(|(message, _)| message).collect(),
    }
}

/// What this end, the client, does with the payload.
fn role(way: Way) -> Role {
    Near::Client.role(way)
}

/// The way that was found.
#[derive(Debug)]
struct Dialling {
    dial: Dial,
    at: Place,
    patience: Nanos,
    /// What ssh started lives as long as the way to it.
    _far_end: Option<FarEnd>,
}

/// That no connection takes the place of one that is lost.
fn no_other(why: &str) -> CopyError {
    CopyError::NoStream { why: why.to_owned() }
}

impl Line for Dialling {
    fn another(&self, number: u32, stop: &Wake) -> Result<Channel, CopyError> {
        let number = u16::try_from(number).map_err(|_| no_other("65536 were made"))?;
        let until = monotonic().after(self.patience);
        self.dial.another(&self.at, number, until, stop)?.ok_or_else(|| no_other("it was given up"))
    }

    fn explained(&self, error: CopyError) -> CopyError {
        match error {
            CopyError::Talk(source @ ControlError::Channel(ChannelError::NotAdmitted)) => {
                self.dial.explained(self.at.to_string(), source).into()
            }
            other => other,
        }
    }
}
