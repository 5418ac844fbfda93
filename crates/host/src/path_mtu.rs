//! The longest packet that a path carries, as tracepath(8) finds it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::libc;

use crate::icmp::is_the_networks;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// The far end, as it was named.
    pub host: String,
    /// The longest packet that was let through, bytes; where nothing came back, the longest that nobody refused.
    pub bytes: u32,
    /// Whether the far end answered to such a packet.
    pub answered: bool,
    /// The interface that the path leaves this host by; absent where no interface has the address that it leaves from.
    pub interface: Option<String>,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum PathMtuError {
    /// The name leads nowhere.
    #[error("find host {host:?}")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's own words.
        source: io::Error,
    },
    /// No packet could be sent.
    #[error("send a packet to {address}")]
    Send {
        /// Where to.
        address: SocketAddr,
        /// The kernel's own words.
        source: io::Error,
    },
}

/// Sends datagrams that nobody may cut, as long as the first interface lets them be, to a port where nothing should listen, and
/// shorter ones where a router says that they are too long (RFC 1191, RFC 8201). The far end's refusal is the answer.
///
/// # Errors
/// [`PathMtuError`] naming the host.
pub fn measure(host: &str) -> Result<PathMtu, PathMtuError> {
    let found = (host, PORT).to_socket_addrs();
    let resolved = found.map_err(|source| PathMtuError::Resolve { host: host.to_owned(), source })?;
    let nowhere = || io::Error::new(ErrorKind::NotFound, "the name has no address");
    let address = resolved
        .into_iter()
        .next()
        .ok_or_else(|| PathMtuError::Resolve { host: host.to_owned(), source: nowhere() })?;
    let probed = probe(address).map_err(|source| PathMtuError::Send { address, source })?;
    let (bytes, answered, from) = probed;
    Ok(PathMtu { host: host.to_owned(), bytes, answered, interface: interface_of(from) })
}

/// The interface that has an address of this host.
fn interface_of(address: IpAddr) -> Option<String> {
    let has = |each: &InterfaceAddress| {
        let ip = each.address.as_ref();
        let v4 = ip.and_then(|ip| Some(IpAddr::from(ip.as_sockaddr_in()?.ip())));
        let v6 = ip.and_then(|ip| Some(IpAddr::from(ip.as_sockaddr_in6()?.ip())));
        v4.or(v6) == Some(address)
    };
    Some(getifaddrs().ok()?.find(has)?.interface_name)
}

/// The longest packet, whether it was answered, and the address of this host that it left from.
fn probe(address: SocketAddr) -> io::Result<(u32, bool, IpAddr)> {
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    let (level, discover, mtu, headers) = if address.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_MTU, 28)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_MTU, 48)
    };
    set(&socket, level, discover, libc::IP_PMTUDISC_DO)?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.connect(address)?;
    let from = socket.local_addr()?.ip();
    let mut known = get(&socket, level, mtu)?;
    for _ in 0..ATTEMPTS {
        let length = known.saturating_sub(headers).min(LONGEST);
        let sent = socket.send(&vec![0; length as usize]);
        let is_sent = sent.is_ok();
        let told = sent.and_then(|_| socket.recv(&mut [0; 1]).map(drop));
        let error = match told {
            Ok(()) => return Ok((known, true, from)),
            Err(error) => error,
        };
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::ConnectionRefused, _) => return Ok((known, true, from)),
            // A router's word, or the kernel's own memory of one.
            (_, Some(libc::EMSGSIZE)) => {}
            // Lost, or nobody says: once more.
            (ErrorKind::WouldBlock | ErrorKind::TimedOut, _) => {}
            // It came as far as a firewall that says so (the kernel's `icmp_err_convert`).
            (_, Some(code)) if is_sent && is_the_networks(code) => return Ok((known, false, from)),
            _ => return Err(error),
        }
        known = get(&socket, level, mtu)?;
    }
    Ok((known, false, from))
}

pub(crate) fn set(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is borrowed for the whole call, and the kernel reads one `int`.
    let status =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    Ok(Errno::result(status).map(drop)?)
}

pub(crate) fn get(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int) -> io::Result<u32> {
    let mut value: libc::c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is borrowed for the whole call, and the kernel writes one `int` at most.
    let status = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    Errno::result(status)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// The first of the ports that traceroute(8) uses.
const PORT: u16 = 33_434;

/// How long an answer may take: longer than any round trip on Earth.
const ANSWER: Duration = Duration::from_secs(1);

/// Datagrams that are sent at most: paths with several narrow places name them one after the other.
const ATTEMPTS: usize = 5;

/// The longest payload of a datagram.
const LONGEST: u32 = 65_507;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_answers_at_once() {
        let found = measure("127.0.0.1").unwrap();
        assert!(found.answered && found.bytes >= 1280, "{found:?}");
    }

    #[test]
    fn a_name_that_leads_nowhere_is_named() {
        let error = measure("no-such-host.invalid").unwrap_err();
        assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
    }
}
