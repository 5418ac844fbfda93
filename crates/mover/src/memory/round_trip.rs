//! How long the round trip to a far end is, before anything is asked of it.

use std::net::{IpAddr, SocketAddr};

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_host::socket;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::Patience;
use farlink_wire::quantity::Nanos;

use super::MemoryError;
use crate::dial::{DialError, foreign};
use crate::far_host::{FarHost, ResolveError};

/// The round trip to `target` from the address `bind`, or what the kernel chooses, as the kernel sees it when a connection opens; `None` where `stop` was raised first.
///
/// # Errors
/// [`MemoryError`] where there is nobody to connect to.
pub fn round_trip(
    target: &FarHost,
    bind: Option<IpAddr>,
    patience: Patience,
    stop: &Wake,
) -> Result<Option<Nanos>, MemoryError> {
    let mut addresses = target.resolve()?;
    if let Some(from) = bind {
        addresses.retain(|address| address.is_ipv4() == from.is_ipv4());
        if addresses.is_empty() {
            return Err(DialError::Otherwise { from }.into());
        }
    }
    let until = monotonic().after(patience.get());
    let mut last = None;
    for (tried, &address) in addresses.iter().enumerate() {
        let now = monotonic();
        let share = until.since(now).0 / (addresses.len() - tried) as u64;
        match opened(address, bind, now.after(Nanos(share)), stop) {
            Ok(found) => return Ok(found),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| ResolveError::NoAddress { host: target.host.clone() }.into(), MemoryError::Dial))
}

fn opened(
    address: SocketAddr,
    bind: Option<IpAddr>,
    until: Nanos,
    stop: &Wake,
) -> Result<Option<Nanos>, DialError> {
    let failed = |source| DialError::Connect { at: address.to_string(), source };
    let stream = socket::unconnected(address).map_err(failed)?;
    if let Some(bind) = bind {
        socket::bind(&stream, bind).map_err(|source| foreign(bind, source)).map_err(failed)?;
    }
    socket::start_connecting(&stream, address).map_err(failed)?;
    let mut poller = Poller::new().map_err(failed)?;
    poller.add(stop, STOP, Interest::Read).map_err(failed)?;
    poller.add(&stream, OPENED, Interest::Write).map_err(failed)?;
    let mut ready = Vec::new();
    loop {
        let now = monotonic();
        if now >= until {
            return Err(DialError::Unanswered { at: address.to_string() });
        }
        poller.wait(until.since(now), &mut ready).map_err(failed)?;
        if ready.contains(&STOP) {
            return Ok(None);
        }
        if ready.contains(&OPENED) {
            socket::connected(&stream).map_err(failed)?;
            return TcpInfo::of(&stream).map(|info| Some(info.min_rtt)).map_err(failed);
        }
    }
}

/// Keys of what is waited for.
const STOP: u64 = 0;
const OPENED: u64 = 1;
