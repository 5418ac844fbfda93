//! What is asked of a data connection's socket, and whether the kernel granted it.

use std::io;
use std::net::TcpStream;

use farlink_host::circuit::{Share, ShareError};
use farlink_host::congestion::{self, CongestionError, Loaded};
use farlink_host::process;
use farlink_host::socket;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::{Buffer, Name, Request, Streams, copy};
use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos};

use crate::automatic::AUTO;
use crate::role::Role;
use crate::{automatic, chain};

mod circuit_buffer;
mod circuit_watch;

pub(crate) use circuit_buffer::{Origin, suffices};
pub(crate) use circuit_watch::{CircuitWatch, OFTEN};

/// What is wanted of the data connections of one transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// How many there are.
    pub(crate) streams: Streams,
    /// Congestion control of the sender; the host's default where absent.
    pub(crate) congestion: Option<Name>,
    /// The wire's rate that is guaranteed, for all streams together.
    pub(crate) declared: Option<BitsPerSec>,
    /// Most that the kernel is to let through a second, all streams together, each its share.
    pub(crate) limit: Option<BitsPerSec>,
    /// Socket buffers; the kernel tunes them where absent.
    pub(crate) buffer: Option<Buffer>,
    /// Whether the congestion control is chosen when the round trip is known.
    pub(crate) chosen_later: bool,
}

impl From<&Request> for Tuning {
    fn from(request: &Request) -> Self {
        Self {
            streams: request.streams,
            congestion: request.congestion.clone(),
            declared: request.declared,
            limit: request.limit,
            buffer: request.buffer,
            chosen_later: automatic::is_asked(request.congestion.as_ref()),
        }
    }
}

impl From<&copy::Request> for Tuning {
    fn from(request: &copy::Request) -> Self {
        Self {
            streams: request.streams,
            congestion: request.congestion.clone(),
            declared: request.declared,
            // Its sender counts what it takes of the files.
            limit: None,
            buffer: request.buffer,
            chosen_later: automatic::is_asked(request.congestion.as_ref())
                || automatic::follows_path(request),
        }
    }
}

impl Tuning {
    /// Whether the sender's bursts may need pacing: no rate is held, no buffer bounds the window, and there is one stream. Several that are
    /// paced leave slow start later, all together, and lose more than their bursts would (bench/memory.md).
    pub(crate) const fn may_pace(&self) -> bool {
        self.declared.is_none() && self.limit.is_none() && self.buffer.is_none() && self.streams.get() == 1
    }
}

/// Asks for what `wanted` says of a data connection, and insists on it. What had to be loaded for that goes to `loaded`, and
/// need not outlive the choice of the last stream.
pub(crate) fn tune(
    stream: &TcpStream,
    role: Role,
    wanted: &Tuning,
    origin: Origin,
    loaded: &mut Option<Loaded>,
) -> Result<(), TuneError> {
    arrange(stream, role, wanted, origin)?;
    choose(stream, role, wanted, loaded)
}

/// Whether a receive buffer of `asked` bytes is of use: of a connection that was taken, how wide its window may be was said before.
fn check_window(stream: &TcpStream, role: Role, asked: u64) -> Result<(), TuneError> {
    if role != Role::Receiver || stream.peer_addr().is_err() {
        return Ok(());
    }
    let widest = TcpInfo::of(stream).map_err(TuneError::Option)?.widest;
    // A window has sixteen bits and a scale of fourteen at most: what lacks one unit of that is as good.
    if asked > widest + (widest >> 16) + 1 {
        return Err(TuneError::Narrow { asked: Bytes(asked), widest: Bytes(widest) });
    }
    Ok(())
}

/// As [`tune`], all but a congestion control that was asked for by name: see [`insist`].
pub(crate) fn arrange(
    stream: &TcpStream,
    role: Role,
    wanted: &Tuning,
    origin: Origin,
) -> Result<(), TuneError> {
    if let Some(asked) = wanted.buffer.map(Buffer::get) {
        let granted = socket::set_buffer(stream, role.buffer(), asked).map_err(TuneError::Option)?;
        let asked = u64::from(asked);
        if granted < asked {
            let limit = role.buffer().limit();
            return Err(TuneError::Buffer { granted: Bytes(granted), asked: Bytes(asked), limit });
        }
        check_window(stream, role, asked)?;
    }
    if let Some(rate) = wanted.declared {
        let share = Share::of(rate, wanted.streams.into())?;
        if wanted.buffer.is_none() {
            circuit_buffer::ask(stream, role, share, wanted.streams, origin)?;
        }
        if role == Role::Sender {
            // Before the congestion control is chosen, which looks at it.
            let rate = share.rate().get() / 8;
            socket::set_greatest_rate(stream, rate).map_err(TuneError::Option)?;
        }
    }
    if let Some(limit) = wanted.limit.filter(|_| role == Role::Sender) {
        let share = limit.get() / 8 / u64::from(wanted.streams.get());
        socket::set_greatest_rate(stream, share.max(1)).map_err(TuneError::Option)?;
    }
    let tunes_itself = wanted.declared.is_none() && wanted.buffer.is_none();
    if role == Role::Receiver && tunes_itself && stream.peer_addr().is_err() {
        socket::begin_with_window(stream, first_window()).map_err(TuneError::Option)?;
    }
    if role == Role::Sender {
        if wanted.chosen_later {
            automatic::begin(stream);
        } else if wanted.congestion.is_none() {
            automatic::as_host(stream).map_err(TuneError::Option)?;
        }
    }
    Ok(())
}

/// Loads the congestion control that a sender asked for by name, where it is ours and not there yet.
pub(crate) fn load(role: Role, wanted: &Tuning) -> Result<Option<Loaded>, TuneError> {
    match named(role, wanted) {
        Some(name) => Ok(congestion::ensure(name)?),
        None => Ok(None),
    }
}

/// Whether [`load`] takes a while, and seems to be allowed.
pub(crate) fn is_to_be_loaded(role: Role, wanted: &Tuning) -> bool {
    named(role, wanted).is_some_and(congestion::is_to_be_loaded)
}

/// The congestion control of a sender, where one was asked for by name: what is chosen automatically needs the round trip, which an open
/// connection knows.
fn named(role: Role, wanted: &Tuning) -> Option<&str> {
    let name = wanted.congestion.as_ref().map(Name::as_str);
    name.filter(|name| role == Role::Sender && *name != AUTO)
}

/// Chooses the congestion control once the connection is open, where it has another: it was not there yet before, or a route has one of its
/// own (`congctl` of ip-route), which a connection gets as it is opened, whatever was chosen for it.
pub(crate) fn insist(stream: &TcpStream, role: Role, wanted: &Tuning) -> Result<(), TuneError> {
    let has = socket::congestion(stream).map_err(TuneError::Option)?;
    match &wanted.congestion {
        Some(name) if name.as_str() != has => match choose(stream, role, wanted, &mut None) {
            // It was chosen before, or this process may load it: the route has its own locked.
            Err(TuneError::Congestion(CongestionError::Forbidden { name: asked })) => {
                Err(TuneError::OtherCongestion { asked, granted: has })
            }
            other => other,
        },
        _ => Ok(()),
    }
}

/// The congestion control that is [`named`].
fn choose(
    stream: &TcpStream,
    role: Role,
    wanted: &Tuning,
    loaded: &mut Option<Loaded>,
) -> Result<(), TuneError> {
    let Some(asked) = named(role, wanted) else { return Ok(()) };
    congestion::choose(stream, asked, loaded)?;
    let granted = socket::congestion(stream).map_err(TuneError::Option)?;
    if granted != asked {
        return Err(TuneError::OtherCongestion { asked: asked.to_owned(), granted });
    }
    Ok(())
}

/// Keeps the queue of a sender's connection short, and its bursts from the path's queue where nothing else bounds them:
/// [`Tuning::may_pace`].
pub(crate) fn steady(stream: &TcpStream, may_pace: bool) -> io::Result<()> {
    widen(stream)?;
    if may_pace && TcpInfo::of(stream)?.srtt >= PACED_FROM {
        socket::pace(stream)?;
    }
    Ok(())
}

/// Has a sender's connection take as much as it may hold unsent.
pub(crate) fn widen(stream: &TcpStream) -> io::Result<()> {
    socket::set_unsent_limit(stream, UNSENT_LIMIT)
}

/// Bytes that a stream may hold unsent: 3 ms at 10 Gb/s, for which a busy host's scheduler may keep a sender waiting. The
/// kernel would take as much again as is on its way, which costs memory, and time to touch it; and what is left of
/// a sized transfer should go to the streams that are fast.
const UNSENT_LIMIT: u32 = 4 << 20;

/// Bytes of the window that a connection offers at first. The kernel begins with 64 KiB, and trebles that in a round trip where it is used, which is
/// as fast as slow start needs it. No more than the kernel would come to by itself, nor a 64th of what holds all connections short.
pub(crate) fn first_window() -> u32 {
    let granted = socket::greatest_receive_window().unwrap_or(u64::MAX);
    let most = match socket::memory_before_pressure().0 / 64 {
        0 => granted,
        part => granted.min(part),
    };
    let most = most.min(FIRST_WINDOW);
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// What an eighth of 5 Gb/s, to which a careful resume over 10 Gb/s jumps, has on its way over 366 ms.
const FIRST_WINDOW: u64 = 32 << 20;

/// The RTT from which the kernel paces. A window of slow start that leaves in one burst, at twice the rate at which the
/// last one was acknowledged, overflows a queue of 50 ms at four to five times what the queue holds, which beyond this is
/// less than the path does: the stream would leave slow start at half the rate. Pacing costs half as much CPU again.
const PACED_FROM: Nanos = Nanos(250_000_000);

/// What was asked for and not granted, and how to get it. It is for the host where it happened: say which.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// A smaller buffer.
    #[error("a buffer of {asked} is not granted, only {granted}: run there `sysctl -w {limit}={}`", asked.0)]
    Buffer {
        /// What was asked for.
        asked: Bytes,
        /// What was granted.
        granted: Bytes,
        /// The setting that bounds it.
        limit: &'static str,
    },
    /// A window that is narrower than the buffer.
    #[error(
        "a buffer of {asked} is granted, but a connection's window is {widest} at most: run there \
         `sysctl -w net.ipv4.tcp_rmem='4096 131072 {}'`", asked.0
    )]
    Narrow {
        /// What was asked for.
        asked: Bytes,
        /// What the kernel can say that it has room for.
        widest: Bytes,
    },
    /// Too small a buffer for a circuit.
    #[error("a stream of {share} over a round trip of {rtt} needs a buffer of {needed}, and {granted} is granted: run there `sysctl -w {limit}={}`{}", asked.0, if *stale { ", and start farlink serve again" } else { "" })]
    Circuit {
        /// The stream's rate.
        share: BitsPerSec,
        /// The round trip.
        rtt: Nanos,
        /// What the rate needs over it.
        needed: Bytes,
        /// What leaves room for repairs.
        asked: Bytes,
        /// What was granted.
        granted: Bytes,
        /// The setting that bounds it.
        limit: &'static str,
        /// Whether it was granted to a listener: what may be asked for now comes too late.
        stale: bool,
    },
    /// No window holds what is under way.
    #[error(
        "no window is large enough for {share} over a round trip of {rtt}: share the circuit among more streams, --streams {streams}"
    )]
    Window {
        /// The stream's rate.
        share: BitsPerSec,
        /// The round trip.
        rtt: Nanos,
        /// How many have windows that are large enough.
        streams: u64,
    },
    /// No rate for a stream.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// No such congestion control, or not for this user.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// Another congestion control.
    #[error("asked for congestion control {asked:?}, the kernel chose {granted:?}")]
    OtherCongestion {
        /// What was asked for.
        asked: String,
        /// What the socket has.
        granted: String,
    },
    /// The kernel's own words.
    #[error("set a socket option")]
    Option(#[source] io::Error),
}

impl TuneError {
    /// The message with the host in front.
    #[must_use]
    pub(crate) fn on_this_host(&self) -> String {
        format!("on host {}: {}", process::host_name(), chain(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stream_that_nothing_else_bounds_may_be_paced() {
        let tuning = |streams: u32, declared: Option<&str>, buffer: Option<u32>| Tuning {
            streams: streams.try_into().unwrap(),
            congestion: None,
            declared: declared.map(|rate| rate.parse().unwrap()),
            limit: None,
            buffer: buffer.map(|bytes| Bytes(bytes.into()).try_into().unwrap()),
            chosen_later: false,
        };
        assert!(tuning(1, None, None).may_pace());
        assert!(!tuning(2, None, None).may_pace());
        assert!(!tuning(1, Some("1gbit"), None).may_pace());
        assert!(!tuning(1, None, Some(1 << 20)).may_pace());
    }
}
