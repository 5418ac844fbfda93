//! The buffer of a circuit's stream: as much as its path holds, which is known only once there is a connection.

use std::net::TcpStream;

use farlink_host::circuit::Share;
use farlink_host::socket;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::Streams;
use farlink_wire::quantity::{Bytes, Nanos};

use super::{TuneError, Tuning};
use crate::role::Role;

/// Where a data connection has its buffers from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A socket of its own.
    Fresh,
    /// The listener for circuits, before there was a connection.
    Listener,
}

impl Origin {
    /// Of a connection that a server has, whose listeners for circuits are at `ports`.
    pub(crate) fn of(stream: &TcpStream, ports: &[u16]) -> Self {
        let here = stream.local_addr().map(|address| address.port());
        if here.is_ok_and(|port| ports.contains(&port)) { Self::Listener } else { Self::Fresh }
    }
}

/// Asks for the buffer of a stream that has `share`. Of a connection that stands, whose round trip is known, it insists on what that needs.
pub(super) fn ask(
    stream: &TcpStream,
    role: Role,
    share: Share,
    streams: Streams,
    origin: Origin,
) -> Result<(), TuneError> {
    let buffer = role.buffer();
    let inherited = socket::granted_buffer(stream, buffer).map_err(TuneError::Option)?;
    let rtt = stream.peer_addr().is_ok().then(|| round_trip(stream));
    let asked = rtt.map_or(Bytes::default(), |rtt| share.buffer(rtt)).max(share.buffer_at_first());
    let asked = u32::try_from(asked.0).unwrap_or(u32::MAX);
    let granted = socket::set_buffer(stream, buffer, asked).map_err(TuneError::Option)?;
    let Some(rtt) = rtt else { return Ok(()) };
    // What the listener lacked was missing from the first window, and that grows slowly.
    let stale = origin == Origin::Listener && role == Role::Receiver;
    judge(role, share, streams, rtt, if stale { inherited } else { granted }, stale)
}

/// Whether the buffer of a data connection that is on its way does over a round trip of `rtt`.
///
/// # Errors
/// [`TuneError`], where it does not and nobody else fixed it.
pub(crate) fn suffices(stream: &TcpStream, role: Role, wanted: &Tuning, rtt: Nanos) -> Result<(), TuneError> {
    let Some(rate) = wanted.declared.filter(|_| wanted.buffer.is_none()) else { return Ok(()) };
    let share = Share::of(rate, wanted.streams.into())?;
    let granted = socket::granted_buffer(stream, role.buffer()).map_err(TuneError::Option)?;
    judge(role, share, wanted.streams, rtt, granted, false)
}

fn judge(
    role: Role,
    share: Share,
    streams: Streams,
    rtt: Nanos,
    granted: u64,
    stale: bool,
) -> Result<(), TuneError> {
    let needed = share.window(rtt);
    if let Some(streams) = share.streams_needed(streams.into(), rtt) {
        return Err(TuneError::Window { share: share.rate(), rtt, streams });
    }
    if granted >= needed.0 {
        return Ok(());
    }
    let limit = role.buffer().limit();
    let (asked, granted) = (share.buffer(rtt), Bytes(granted));
    Err(TuneError::Circuit { share: share.rate(), rtt, needed, asked, granted, limit, stale })
}

/// The least round trip of a connection that was seen.
fn round_trip(stream: &TcpStream) -> Nanos {
    TcpInfo::of(stream).map_or(Nanos::ZERO, |info| info.min_rtt)
}
