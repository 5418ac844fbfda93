//! A receiver's way to the sender: where it is, the connection to it, and its consent.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};

use farlink_host::clock::monotonic;
use farlink_host::datagram::MOST_AT_ONCE;
use farlink_host::multicast::GroupReceiver;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_host::socket;
use farlink_mover::channel::{Channel, ChannelError};
use farlink_mover::secure::Trusted;
use farlink_wire::cast::SessionId;
use farlink_wire::cast::control::{Control, Join, Welcome, Words};
use farlink_wire::cast::packet::Clear;
use farlink_wire::quantity::Nanos;

use crate::error::CastError;
use crate::line::{Filled, Line};

/// Where a sender is, by its name.
pub(crate) fn resolve(host: &str, port: u16) -> Result<SocketAddr, CastError> {
    let failed = |source| CastError::Resolve { host: host.to_owned(), source };
    let nowhere = || failed(io::Error::new(ErrorKind::NotFound, "the name has no address"));
    (host, port).to_socket_addrs().map_err(failed)?.next().ok_or_else(nowhere)
}

/// What came of waiting for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overheard {
    /// One came, from there: where it comes from is where the control connection goes.
    From(SocketAddr),
    /// Nothing at all came for so long as it was to be waited for.
    Nothing,
    /// The user ended it.
    Stopped,
}

/// Waits for a packet of a session other than `after`, from an address that is `wanted`, for as long as something comes at least once in each
/// `patience`, or until `stop` is raised.
pub(crate) fn overhear(
    socket: &GroupReceiver,
    after: Option<SessionId>,
    wanted: &dyn Fn(SocketAddr) -> bool,
    stop: &Wake,
    patience: Nanos,
) -> Result<Overheard, CastError> {
    let mut buffer = vec![0; MOST_AT_ONCE];
    loop {
        match wait_for(socket, Interest::Read, stop, patience).map_err(CastError::Wait)? {
            Waited::Stopped => return Ok(Overheard::Stopped),
            Waited::Over => return Ok(Overheard::Nothing),
            Waited::Ready => {}
        }
        while let Some(received) = socket.receive(&mut buffer).map_err(CastError::Wait)? {
            let first = received.bytes.min(received.packet);
            if let Ok(clear) = Clear::decode(&buffer[..first])
                && Some(clear.session) != after
                && wanted(received.from)
            {
                return Ok(Overheard::From(received.from));
            }
        }
    }
}

/// Connects to the sender at `at`, which is `trusted` where there are keys, and asks to join its session. `None` where `stop` was raised
/// first.
pub(crate) fn join(
    at: SocketAddr,
    trusted: Option<&Trusted>,
    request: Join,
    patience: Nanos,
    stop: &Wake,
) -> Result<Option<(Line, Box<Welcome>)>, CastError> {
    let failed = |source| CastError::Connect { at, source };
    let until = monotonic().after(patience);
    let stream = socket::unconnected(at).map_err(failed)?;
    socket::start_connecting(&stream, at).map_err(failed)?;
    match wait_for(&stream, Interest::Write, stop, patience).map_err(CastError::Wait)? {
        Waited::Ready => {}
        Waited::Stopped => return Ok(None),
        Waited::Over => return Err(CastError::Silent { at, quiet: patience }),
    }
    socket::connected(&stream).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let mut channel = Channel::over_tcp(stream).map_err(failed)?;
    if let Some(trusted) = trusted {
        channel.seal_as_client(trusted.trust.config(), &[]).map_err(failed)?;
    }
    let mut line = Line::new(channel);
    let talk = |source| told(at, trusted, source);
    // The handshake first: a request before it would go to whoever is there.
    while !line.shake_hands().map_err(talk)? {
        if !wait(&line, at, until, stop)? {
            return Ok(None);
        }
    }
    line.push(&Control::Words(Words::Join(Box::new(request))));
    loop {
        line.flush().map_err(talk)?;
        let filled = line.fill().map_err(talk)?;
        match line.next().map_err(|source| CastError::Protocol { at, source })? {
            Some(Control::Words(Words::Welcome(welcome))) => return Ok(Some((line, welcome))),
            Some(Control::Words(Words::Refuse(reason))) => {
                return Err(CastError::Refused { at, reason: reason.to_string() });
            }
            Some(_) => {}
            None if filled == Filled::Ended => return Err(talk(ErrorKind::UnexpectedEof.into())),
            None => {
                if !wait(&line, at, until, stop)? {
                    return Ok(None);
                }
            }
        }
    }
}

/// Waits for more to read; false where `stop` was raised.
fn wait(line: &Line, at: SocketAddr, until: Nanos, stop: &Wake) -> Result<bool, CastError> {
    let left = until.since(monotonic());
    match wait_for(line.channel(), Interest::Read, stop, left).map_err(CastError::Wait)? {
        Waited::Ready => Ok(true),
        Waited::Stopped => Ok(false),
        Waited::Over => Err(CastError::Silent { at, quiet: left }),
    }
}

/// What a failure of a connection that was there means.
pub(crate) fn told(at: SocketAddr, trusted: Option<&Trusted>, source: io::Error) -> CastError {
    let refused = trusted.and_then(|trusted| Some((trusted, trusted.trust.refused()?)));
    match (ChannelError::within(&source), refused, trusted) {
        (Some(ChannelError::Untrusted), Some((trusted, shown)), _) => {
            CastError::Credentials(trusted.complaint(shown))
        }
        (Some(ChannelError::NotAdmitted), _, Some(trusted)) => {
            CastError::NotAdmitted { at, key: trusted.trust.public() }
        }
        _ => CastError::Talk { at, source },
    }
}
