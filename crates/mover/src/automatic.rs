//! `--congestion auto`: a choice between the congestion controls that the sender's host has.
//!
//! The choice follows what this mover measured on dedicated connections of 10 Gb/s (`bench/memory.md`). With its paced slow start
//! CUBIC moves as much as BBR or more up to 183 ms, for about half the CPU, and wherever a fixed buffer bounds the window. From 250 ms
//! on, one loss costs CUBIC tens of seconds of growth (RFC 9438, section 4.2: the time to a window of W segments is the cube root of
//! 0.75 W, 34 s for 10 Gb/s at 366 ms and MTU 9000), which BBR does not read as congestion, nor H-TCP grow by for long.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use farlink_host::congestion::{self, Loaded};
use farlink_host::netlink::Netlink;
use farlink_host::socket;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::{Name, copy};
use farlink_wire::quantity::Nanos;

/// How a transfer asks for it.
pub(crate) const AUTO: &str = "auto";

/// Whether `congestion`, as asked for, leaves the choice to the sender.
pub(crate) fn is_asked(congestion: Option<&Name>) -> bool {
    congestion.is_some_and(|name| name.as_str() == AUTO)
}

/// Whether a copy leaves it to the path how TCP sends.
pub(crate) fn follows_path(request: &copy::Request) -> bool {
    request.congestion.is_none() && request.declared.is_none() && request.buffer.is_none()
}

/// Before a connection is opened whose congestion control is chosen when its round trip is known: CUBIC, if that can be had. The kernel
/// goes on pacing a connection that began with BBR, whatever is chosen later.
pub(crate) fn begin(stream: &TcpStream) {
    // One that was taken has begun already: [`begin_all`]. Where there is no CUBIC it is the host's default, as without this.
    if stream.peer_addr().is_err() {
        let _ = socket::set_congestion(stream, BEGINNING);
    }
}

/// Whether a connection has what it [began](begin) with, and nothing of its route's.
pub(crate) fn is_as_begun(stream: &TcpStream) -> bool {
    socket::congestion(stream).is_ok_and(|has| has == BEGINNING)
}

/// Of a connection that was given something for a while: as it [began](begin).
pub(crate) fn begin_again(stream: &TcpStream) -> io::Result<()> {
    socket::set_congestion(stream, BEGINNING)
}

/// Before connections are taken: what they begin with, as in [`begin`]. The one that is to be as its host does is made so: [`as_host`].
pub(crate) fn begin_all(listener: &TcpListener) {
    let _ = socket::set_congestion(listener, BEGINNING);
}

/// Of a connection that was taken: the host's default, where it has what [`begin_all`] gave it, and not its route.
pub(crate) fn as_host(stream: &TcpStream) -> io::Result<()> {
    let Ok(far) = stream.peer_addr() else { return Ok(()) };
    if socket::congestion(stream)? != BEGINNING || route_has_own(far) {
        return Ok(());
    }
    let default = socket::default_congestion()?;
    if default == BEGINNING { Ok(()) } else { socket::set_congestion(stream, &default) }
}

/// Whether the route to `far` gives connections a congestion control; where that cannot be told it does not.
fn route_has_own(far: SocketAddr) -> bool {
    let own = Netlink::open().and_then(|mut netlink| netlink.route_congestion(far));
    own.is_ok_and(|own| own.is_some())
}

/// Whether a round trip takes less than a host's work on a piece of a file, as one of two connections over the same path has `measured` it, or the
/// other, which is `known`; zero where one has not: that has just begun saw one round trip, for which a busy host may have taken its time.
fn is_short(measured: Nanos, known: Nanos) -> bool {
    [measured, known].into_iter().any(|rtt| rtt > Nanos::ZERO && rtt < SHORT)
}

/// Why one that ends so soon has what it began with.
pub(crate) const UNSHOWN: &str =
    "its bursts were to show what the path carries, and it ended before they did";

/// How a copy's connection starts where nobody chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// As it goes on, and why where that is not as its host does.
    Settled(Option<String>),
    /// In bursts, which show what a path carries, or as its host does where it has begun so; together with the copy's other connections it
    /// gets what is to go on when that is known ([`follow`]). Why it is as it is until then.
    Together(Option<String>),
}

impl Start {
    /// Of a connection that stands, over a path with round trips of `known`, zero where that is not known.
    pub(crate) fn of(stream: &TcpStream, known: Nanos) -> io::Result<Self> {
        let (has, default) = (socket::congestion(stream)?, socket::default_congestion()?);
        if is_short(TcpInfo::of(stream)?.min_rtt, known) {
            let reason =
                format!("a round trip is shorter than {SHORT}, which {default} would pace for nothing");
            return Ok(Self::Settled((has == BEGINNING && has != default).then_some(reason)));
        }
        if !over_a_long_path(&has, &default).is_with_bbr(&has, &default) {
            return follow(stream, &mut Bbr::default()).map(Self::Settled);
        }
        Ok(Self::Together((has == BEGINNING).then(|| UNSHOWN.to_owned())))
    }
}

/// Which BBR a copy's connections are given.
#[derive(Debug, Default)]
pub(crate) enum Bbr {
    /// The kernel's.
    #[default]
    Kernels,
    /// Ours, in larger pieces; there as long as this, if it was this process that loaded it.
    Larger(#[expect(dead_code, reason = "it is there for as long as this is")] Option<Loaded>),
}

impl Bbr {
    /// Whether it is worth while to [`load`](Self::load) one for many connections over round trips of `rtt`.
    pub(crate) fn pays_to_load(rtt: Nanos) -> bool {
        rtt >= PIECES_FROM
    }

    /// The best that can be had; tens of milliseconds of a processor.
    pub(crate) fn load() -> Self {
        // It spares processors' time and nothing else: that it cannot be had is nothing to tell.
        congestion::ensure(LARGER).map_or(Self::Kernels, Self::Larger)
    }

    /// Gives it to a connection: whether it has it.
    fn give(&mut self, stream: &TcpStream) -> bool {
        self.give_ours(stream) || congestion::choose(stream, "bbr", &mut None).is_ok()
    }

    fn give_ours(&mut self, stream: &TcpStream) -> bool {
        if matches!(self, Self::Kernels) {
            return false;
        }
        let given = socket::set_congestion(stream, LARGER);
        if given.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            // It was another process's, which has ended: the kernel looks for a module each time that it is asked for one that is not there.
            *self = Self::Kernels;
        }
        given.is_ok()
    }
}

/// What is chosen over a long path where nobody chose, and why where that is not the host's default. It is the default, or what the route has of
/// its own (but CUBIC, which is taken for the beginning); where that default is the kernel's, which nobody chose either, it is `bbr`, if that
/// can be had.
pub(crate) fn follow(stream: &TcpStream, bbr: &mut Bbr) -> io::Result<Option<String>> {
    let (has, default) = (socket::congestion(stream)?, socket::default_congestion()?);
    match over_a_long_path(&has, &default) {
        Long::Kept => {}
        Long::Bbr if bbr.give(stream) => {
            let reason = format!("{default}, this host's default, takes too long to grow again after a loss");
            return Ok(Some(reason));
        }
        // It has the default already.
        Long::Bbr => {}
        Long::Default if default == "bbr" && bbr.give_ours(stream) => {
            return Ok(Some(format!("{default}, this host's default, in larger pieces")));
        }
        Long::Default => socket::set_congestion(stream, &default)?,
    }
    Ok(None)
}

/// What becomes of a connection's congestion control over a long path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Long {
    /// It is the default, or the route's.
    Kept,
    /// It was chosen for a short path.
    Default,
    /// Nobody chose it.
    Bbr,
}

impl Long {
    /// Whether that is BBR, which takes a path's rate from what was delivered.
    fn is_with_bbr(self, has: &str, default: &str) -> bool {
        match self {
            Self::Kept => matches!(has, "bbr" | LARGER),
            Self::Default => matches!(default, "bbr" | LARGER),
            Self::Bbr => true,
        }
    }
}

fn over_a_long_path(has: &str, default: &str) -> Long {
    match (has, default) {
        (BEGINNING, BEGINNING) => Long::Bbr,
        (BEGINNING, _) => Long::Default,
        _ => Long::Kept,
    }
}

/// Chooses for the connections of one transfer and returns why. What had to be loaded for it is loaded by the time that it
/// returns, and gone with the last connection.
pub(crate) fn choose(streams: &[TcpStream], is_buffer_fixed: bool) -> io::Result<String> {
    let rtts = streams.iter().map(|stream| TcpInfo::of(stream).map(|info| info.min_rtt));
    let rtt = rtts.collect::<io::Result<Vec<_>>>()?.into_iter().min().unwrap_or_default();
    let rtt = Nanos((rtt.0 + SHOWN / 2) / SHOWN * SHOWN);
    let (preferred, reason) = preference(rtt, is_buffer_fixed);
    let mut refused = Vec::new();
    for &name in preferred {
        let mut loaded: Option<Loaded> = None;
        match streams.iter().try_for_each(|stream| congestion::choose(stream, name, &mut loaded)) {
            Ok(()) if refused.is_empty() => return Ok(reason),
            Ok(()) => return Ok(format!("{reason}; not {}", refused.join(", not "))),
            Err(error) => refused.push(format!("{name}: {}", error.reason())),
        }
    }
    Ok(format!("the host's default: not {}", refused.join(", not ")))
}

/// Best first, and why.
fn preference(rtt: Nanos, is_buffer_fixed: bool) -> (&'static [&'static str], String) {
    if is_buffer_fixed {
        return (&["cubic", "htcp", "bbr"], "the buffer bounds the window".to_owned());
    }
    if rtt < LONG {
        return (&["cubic", "htcp", "bbr"], format!("the round trip of {rtt} is shorter than {LONG}"));
    }
    let reason = format!("after one loss the window would grow too slowly over a round trip of {rtt}");
    (&["bbr", "htcp", "cubic"], reason)
}

/// What connections begin with whose congestion control is chosen later. It is the kernel's default, too.
const BEGINNING: &str = "cubic";

/// BBR in larger pieces: `bpf/bbr_tso.bpf.c`.
const LARGER: &str = "bbr_tso";

/// The RTT from which it sends larger pieces than the kernel's by more than half as much again.
const PIECES_FROM: Nanos = Nanos(25_000_000);

/// To what a round trip is rounded: a tenth of a millisecond.
const SHOWN: u64 = 100_000;

/// The RTT below which a path needs no window to speak of (10 Gb/s: 6 MB), and pacing by a timer costs a sixth of the rate of a
/// processor that has other work (bench/copies.md).
const SHORT: Nanos = Nanos(5_000_000);

/// The RTT from which CUBIC was seen to lose more by a loss than BBR by its caution.
const LONG: Nanos = Nanos(250_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn first(rtt_ms: u64, is_buffer_fixed: bool) -> &'static str {
        preference(Nanos(rtt_ms * 1_000_000), is_buffer_fixed).0[0]
    }

    #[test]
    fn only_long_round_trips_without_a_fixed_buffer_want_bbr() {
        assert_eq!([first(0, false), first(183, false), first(366, false)], ["cubic", "cubic", "bbr"]);
        assert_eq!(first(366, true), "cubic");
    }

    #[test]
    fn a_path_is_short_where_one_of_its_connections_says_so() {
        let [short, stood_still, none] = [Nanos(400_000), Nanos(12_000_000), Nanos::ZERO];
        assert!(is_short(stood_still, short) && is_short(short, stood_still) && is_short(short, none));
        assert!(!is_short(stood_still, none) && !is_short(none, none) && !is_short(SHORT, SHORT));
    }

    #[test]
    fn over_a_long_path_the_kernels_own_default_gives_way_alone() {
        assert_eq!(over_a_long_path("cubic", "cubic"), Long::Bbr);
        assert_eq!(over_a_long_path("cubic", "htcp"), Long::Default);
        assert_eq!(over_a_long_path("htcp", "htcp"), Long::Kept);
        assert_eq!(over_a_long_path("htcp", "cubic"), Long::Kept, "the route has it");
    }

    #[test]
    fn what_administrators_chose_is_had_at_once_but_bbr() {
        let pairs =
            [("cubic", "cubic"), ("cubic", "bbr"), ("bbr", "bbr"), ("cubic", "htcp"), ("reno", "bbr")];
        let together = pairs.map(|(has, default)| over_a_long_path(has, default).is_with_bbr(has, default));
        assert_eq!(together, [true, true, true, false, false]);
    }

    #[test]
    fn the_reason_names_the_round_trip() {
        let (_, reason) = preference(Nanos(366_000_000), false);
        assert!(reason.contains("366ms") || reason.contains("366 ms"), "{reason}");
    }
}
