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
use farlink_wire::cast::control::{Control, ControlError, Join, Welcome, Words};
use farlink_wire::cast::packet::Clear;
use farlink_wire::message::check_version;
use farlink_wire::quantity::Nanos;

use crate::error::CastError;
use crate::group::Group;
use crate::line::{Filled, Line};

/// Where a sender of `group` is, by its name: of several addresses those of the group's version first, and each in its turn after the one
/// before was `tried` in vain.
pub(crate) fn resolve(host: &str, group: Group, tried: usize) -> Result<SocketAddr, CastError> {
    let failed = |source| CastError::Resolve { host: host.to_owned(), source };
    let group = group.address();
    let mut all: Vec<_> = (host, group.port()).to_socket_addrs().map_err(failed)?.collect();
    all.sort_by_key(|at| at.is_ipv4() != group.is_ipv4());
    let turn = tried.checked_rem(all.len());
    turn.map(|turn| all[turn])
        .ok_or_else(|| failed(io::Error::new(ErrorKind::NotFound, "the name has no address")))
}

/// What came of waiting for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overheard {
    /// One came, from there: where it comes from is where the control connection goes.
    From(SocketAddr),
    /// Nothing of that session or another that is wanted came for so long as it was to be waited for.
    Nothing,
    /// The user ended it.
    Stopped,
}

/// Waits for a packet of a session other than `after`, from an address that is `wanted`, for as long as packets of `after` come at least once in
/// each `patience`, or until `stop` is raised.
pub(crate) fn overhear(
    socket: &GroupReceiver,
    after: Option<SessionId>,
    wanted: &dyn Fn(SocketAddr) -> bool,
    stop: &Wake,
    patience: Nanos,
) -> Result<Overheard, CastError> {
    let mut buffer = vec![0; MOST_AT_ONCE];
    let mut until = monotonic().after(patience);
    loop {
        match wait_for(socket, Interest::Read, stop, until.since(monotonic())).map_err(CastError::Wait)? {
            Waited::Stopped => return Ok(Overheard::Stopped),
            Waited::Over => return Ok(Overheard::Nothing),
            Waited::Ready => {}
        }
        // However much comes, the user is heeded in between.
        for _ in 0..TAKEN_AT_ONCE {
            let Some(received) = socket.receive(&mut buffer).map_err(CastError::Wait)? else { break };
            let first = received.bytes.min(received.packet);
            let Ok(clear) = Clear::decode(&buffer[..first]) else { continue };
            if Some(clear.session) == after {
                until = monotonic().after(patience);
            } else if wanted(received.from) {
                return Ok(Overheard::From(received.from));
            }
        }
        // Others may fill the socket for as long as they like.
        if monotonic() >= until {
            return Ok(Overheard::Nothing);
        }
    }
}

/// Connects to the sender at `at`, which is `trusted` where there are keys, and asks to join its session: what was sent since this end waits
/// is nothing old. `None` where `stop` was raised first.
pub(crate) fn join(
    at: SocketAddr,
    trusted: Option<&Trusted>,
    (mut request, waits_since): (Join, Nanos),
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
    request.since = request.since.map(|since| since.max(monotonic().since(waits_since)));
    line.push(&Control::Words(Words::Join(Box::new(request))));
    loop {
        line.flush().map_err(talk)?;
        let filled = line.fill().map_err(talk)?;
        let said = line.next().map_err(|source| match source {
            ControlError::Version(source) => CastError::Version { at, source },
            source => CastError::Protocol { at, source },
        })?;
        match said {
            Some(Control::Words(Words::Welcome(welcome))) => {
                check_version(welcome.version).map_err(|source| CastError::Version { at, source })?;
                return Ok(Some((line, welcome)));
            }
            Some(Control::Words(Words::Refuse(refusal))) => {
                return Err(CastError::Refused { at, refusal });
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

/// Runs of packets of others that are looked at in one go.
pub(crate) const TAKEN_AT_ONCE: u32 = 64;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use farlink_mover::facts;
    use farlink_wire::cast::{Payload, Position};
    use farlink_wire::entry::Digest;
    use farlink_wire::message::VERSION;
    use farlink_wire::message::copy::{Protect, Secret};

    use super::*;

    #[test]
    fn a_sender_of_another_release_is_not_followed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let welcome = Welcome {
            version: VERSION - 1,
            host: facts::host(),
            session: SessionId(1),
            key: Secret(Digest([1; 32])),
            protect: Protect::Encrypt,
            payload: Payload::try_from(8000).unwrap(),
            block: 0.try_into().unwrap(),
            number: 0,
            wanted: 0,
            first: 0,
            position: Position { product: 0, offset: 0 },
            pace: Nanos(1_000_000),
        };
        let sender = thread::spawn(move || {
            let mut said = Vec::new();
            Control::Words(Words::Welcome(Box::new(welcome))).encode(&mut said);
            let (mut receiver, _) = listener.accept().unwrap();
            receiver.write_all(&said).unwrap();
            receiver.read_to_end(&mut said).unwrap();
        });
        let request = Join::new(facts::host(), 1);
        let joined = join(at, None, (request, monotonic()), Nanos(60_000_000_000), &Wake::new().unwrap());
        sender.join().unwrap();
        let error = joined.map(|_| ()).unwrap_err();
        assert!(matches!(error, CastError::Version { .. }) && !error.is_passing(), "{error:?}");
    }

    #[test]
    fn what_is_sent_while_a_session_is_waited_for_is_asked_for() {
        let second = |seconds: u64| Nanos(seconds * 1_000_000_000);
        for (since, least, most) in
            [(None, None, None), (Some(0), Some(5), Some(3600)), (Some(7200), Some(7200), Some(7200))]
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let at = listener.local_addr().unwrap();
            let sender = thread::spawn(move || {
                let (mut receiver, _) = listener.accept().unwrap();
                let mut said = vec![0; 4096];
                let mut length = 0;
                loop {
                    length += receiver.read(&mut said[length..]).unwrap();
                    match Control::decode(&said[..length]).unwrap() {
                        Some((Control::Words(Words::Join(join)), _)) => return join.since,
                        said => assert!(said.is_none(), "{said:?}"),
                    }
                }
            });
            let request = Join { since: since.map(second), ..Join::new(facts::host(), 1) };
            let waits_since = Nanos(monotonic().0.saturating_sub(second(5).0));
            let joined = join(at, None, (request, waits_since), second(60), &Wake::new().unwrap());
            assert!(joined.is_err(), "nobody welcomed it");
            let asked = sender.join().unwrap();
            assert!(asked >= least.map(second) && asked <= most.map(second), "{asked:?}");
        }
    }

    #[test]
    fn each_address_of_a_name_has_its_turn_and_those_like_the_groups_first() {
        let all: Vec<_> = ("localhost", 7000).to_socket_addrs().unwrap().collect();
        for group in ["239.1.1.1:7000", "[ff15::1]:7000"] {
            let group: Group = group.parse().unwrap();
            let turns: Vec<_> =
                (0..all.len()).map(|tried| resolve("localhost", group, tried).unwrap()).collect();
            let is_like = |at: &SocketAddr| at.is_ipv4() == group.address().is_ipv4();
            assert!(turns.is_sorted_by_key(|at| !is_like(at)), "{turns:?}");
            assert!(all.iter().all(|at| turns.contains(at)), "{turns:?} of {all:?}");
            assert_eq!(resolve("localhost", group, all.len()).unwrap(), turns[0]);
        }
    }
}
