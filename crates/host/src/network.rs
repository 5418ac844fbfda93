//! The network that this process sees: its name, and which of its addresses others reach it by.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

/// Names the network namespace: two processes of one kernel have the same where they share it, and processes of others never do.
///
/// # Errors
/// The kernel's, where `/proc` is not there.
pub fn name() -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::metadata("/proc/self/ns/net")?;
    Ok(format!("{}+{}+{}", boot.trim(), namespace.dev(), namespace.ino()))
}

/// Why this host has no such address.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// No interface has that name, none has that address.
    #[error(
        "no interface that is up has the name or the address {wanted:?}: there are {}",
        there.join(", ")
    )]
    Unknown {
        /// As asked.
        wanted: String,
        /// What could be asked for.
        there: Vec<String>,
    },
    /// Not even the loopback interface is up.
    #[error("this host has no IP address: is an interface up?")]
    None,
    /// The kernel does not tell.
    #[error("read the addresses of this host's interfaces")]
    Read(#[from] io::Error),
}

/// The address of this host by which others are to reach it: that of the interface `wanted`, or `wanted` itself; else the one that
/// datagrams to far away would have, else that of the first interface that leads out of the host, else that of the loopback interface.
///
/// # Errors
/// [`AddressError`].
pub fn address(wanted: Option<&str>) -> Result<IpAddr, AddressError> {
    let up: Vec<_> = getifaddrs().map_err(io::Error::from)?.filter(is_up).collect();
    let mut found: Vec<_> = up.iter().filter_map(|each| Some((each, ip(each)?))).collect();
    // IPv4 first, where an interface has both: names of interfaces are given for hosts, whose other ends have it too.
    found.sort_by_key(|(each, ip)| (is_loopback(each), is_link_local(*ip), ip.is_ipv6()));
    let Some(wanted) = wanted else {
        return way_out().or_else(|| found.first().map(|(_, ip)| *ip)).ok_or(AddressError::None);
    };
    let named = |(each, ip): &&(&InterfaceAddress, IpAddr)| {
        each.interface_name == wanted || wanted.parse::<IpAddr>().is_ok_and(|wanted| wanted == *ip)
    };
    found.iter().find(named).map(|(_, ip)| *ip).ok_or_else(|| AddressError::Unknown {
        wanted: wanted.to_owned(),
        there: found.iter().map(|(each, ip)| format!("{} ({ip})", each.interface_name)).collect(),
    })
}

/// The address that the default route has: nothing is sent, the kernel only looks.
fn way_out() -> Option<IpAddr> {
    FAR_AWAY.into_iter().find_map(|far| {
        let any: IpAddr =
            if far.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        socket.connect(SocketAddr::new(far, 9)).ok()?;
        let local = socket.local_addr().ok()?.ip();
        (!local.is_loopback() && !local.is_unspecified()).then_some(local)
    })
}

fn is_up(each: &InterfaceAddress) -> bool {
    each.flags.contains(InterfaceFlags::IFF_UP)
}

fn is_loopback(each: &InterfaceAddress) -> bool {
    each.flags.contains(InterfaceFlags::IFF_LOOPBACK)
}

fn ip(each: &InterfaceAddress) -> Option<IpAddr> {
    let address = each.address?;
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Addresses for documentation (RFC 5737, RFC 3849): only a default route leads there.
const FAR_AWAY: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_has_one_name() {
        assert_eq!(name().unwrap(), name().unwrap());
        assert!(name().unwrap().len() > 38);
    }

    #[test]
    fn the_loopback_interface_is_had_by_name_and_by_address() {
        assert_eq!(address(Some("lo")).unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(address(Some("127.0.0.1")).unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert!(address(None).is_ok());
    }

    #[test]
    fn an_unknown_interface_is_answered_with_those_that_are_there() {
        let error = address(Some("nosuch0")).unwrap_err().to_string();
        assert!(error.contains("nosuch0") && error.contains("lo (127.0.0.1)"), "{error}");
    }
}
