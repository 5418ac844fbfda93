//! UDP sockets: one that speaks with any peer, and what all of them share: runs of datagrams that the kernel cuts and joins.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::ethtool;
use crate::icmp::is_the_networks;
use crate::path_mtu;
use crate::socket::{Buffer, set_buffer};

mod run;

pub use run::{MOST_AT_ONCE, Received};
pub(crate) use run::{Runs, receive};

/// Speaks with any peer, and never waits.
///
/// What a network tells of earlier datagrams (nobody listens there, no way leads there) breaks nothing: such datagrams are lost, as others
/// are on their way.
#[derive(Debug)]
pub struct Datagrams {
    socket: UdpSocket,
    address: SocketAddr,
    payload: usize,
    send_buffer: u64,
    receive_buffer: u64,
    runs: Runs,
}

impl Datagrams {
    /// On a free port of `address`, with buffers of `buffer` bytes in both directions, or as much as this process may have.
    ///
    /// # Errors
    /// The kernel's: `EADDRNOTAVAIL` where no interface of this host has the address.
    pub fn open(address: IpAddr, buffer: u32) -> io::Result<Self> {
        let interface = Interface::of(address)?;
        let mut from = SocketAddr::new(address, 0);
        if let SocketAddr::V6(v6) = &mut from {
            v6.set_scope_id(interface.scope);
        }
        let socket = Socket::new(Domain::for_address(from), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        allow_fragments(&socket, address)?;
        let send_buffer = set_buffer(&socket, Buffer::Send, buffer)?;
        let receive_buffer = set_buffer(&socket, Buffer::Receive, buffer)?;
        socket.bind(&SockAddr::from(from))?;
        // Kernels before 5.0 have it not: then datagrams come one by one.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        let socket = UdpSocket::from(socket);
        let address = socket.local_addr()?;
        let runs = Runs::of(&socket);
        let payload = payload(interface.mtu, address.is_ipv4());
        Ok(Self { socket, address, payload, send_buffer, receive_buffer, runs })
    }

    /// Where datagrams come from, and go to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes that a datagram carries in one packet of the interface.
    #[must_use]
    pub const fn payload(&self) -> usize {
        self.payload
    }

    /// The send buffer that was granted, bytes.
    #[must_use]
    pub const fn send_buffer(&self) -> u64 {
        self.send_buffer
    }

    /// The receive buffer that was granted, bytes.
    #[must_use]
    pub const fn receive_buffer(&self) -> u64 {
        self.receive_buffer
    }

    /// Sends `bytes`, 65,507 or fewer, in datagrams of `segment` bytes, the last one shorter. Says false, and has sent nothing, where there
    /// is no room for them now: there is when the socket can be written.
    ///
    /// # Errors
    /// The kernel's, where it is not the network's: an address of another family, more bytes than a datagram has.
    pub fn send(&self, bytes: &[u8], segment: usize, to: SocketAddr) -> io::Result<bool> {
        let segment = u16::try_from(segment).map_err(|_| ErrorKind::InvalidInput)?;
        match self.runs.send(&self.socket, bytes, segment, to) {
            Ok(()) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS) => Ok(false),
                Some(code) if is_the_networks(code) => Ok(true),
                _ => Err(error),
            },
        }
    }

    /// What has come, into `buffer`, which should have [`MOST_AT_ONCE`] bytes; `None` where nothing has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        loop {
            match receive(&self.socket, buffer) {
                // Told once; the next call gives what has come.
                Err(error) if error.raw_os_error().is_some_and(is_the_networks) => {}
                other => return other,
            }
        }
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Lets routers cut packets that are too long for what follows: lost fragments are repaired as lost datagrams are, and a path that is
/// narrower than the interface works.
fn allow_fragments(socket: &Socket, address: IpAddr) -> io::Result<()> {
    let (level, name, never) = match address {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
    };
    path_mtu::set(socket, level, name, never)
}

/// What a datagram carries in a packet of `mtu` bytes, less the headers of IP and UDP.
fn payload(mtu: u32, v4: bool) -> usize {
    let (headers, longest) = if v4 { (28, 65_507) } else { (48, 65_527) };
    (mtu as usize).saturating_sub(headers).min(longest)
}

/// What is asked of the interface that has an address.
struct Interface {
    mtu: u32,
    /// Its index where the address means nothing without.
    scope: u32,
}

impl Interface {
    fn of(address: IpAddr) -> io::Result<Self> {
        let has = |interface: &nix::ifaddrs::InterfaceAddress| {
            let Some(its) = &interface.address else { return false };
            let v4 = its.as_sockaddr_in().map(|its| IpAddr::V4(its.ip()));
            let its = v4.or_else(|| its.as_sockaddr_in6().map(|its| IpAddr::V6(its.ip())));
            // All of 127.0.0.0/8 is this host's, and the loopback interface names one of it.
            its.is_some_and(|its| its == address || its.is_loopback() && address.is_loopback())
        };
        let name = getifaddrs()?.find(has).ok_or(Errno::EADDRNOTAVAIL)?.interface_name;
        let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let scope = if link_local { if_nametoindex(name.as_str())? } else { 0 };
        Ok(Self { mtu: mtu(&name)?, scope })
    }
}

fn mtu(interface: &str) -> io::Result<u32> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    let mut request = ethtool::request(interface)?;
    // SAFETY: SIOCGIFMTU reads and writes one ifreq, which outlives the call, as the descriptor does.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    Errno::result(status)?;
    // SAFETY: the kernel has just written this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(u32::try_from(mtu).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn all(of: &Datagrams) -> (Vec<u8>, usize) {
        let (mut buffer, mut got, mut longest) = (vec![0; MOST_AT_ONCE], Vec::new(), 0);
        while let Some(received) = of.receive(&mut buffer).unwrap() {
            got.extend_from_slice(&buffer[..received.bytes]);
            longest = longest.max(received.packet);
        }
        (got, longest)
    }

    #[test]
    fn a_run_arrives_as_the_datagrams_that_it_is() {
        for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let left = Datagrams::open(address, 1 << 20).unwrap();
            let right = Datagrams::open(address, 1 << 20).unwrap();
            assert!(left.send_buffer() > 0 && right.receive_buffer() > 0);
            let run: Vec<u8> = (0..2500_u32).map(|at| at as u8).collect();
            for cuts in [true, false] {
                left.runs.set_cut(cuts);
                assert!(left.send(&run, 1000, right.address()).unwrap());
                assert_eq!(all(&right), (run.clone(), 1000));
            }
        }
    }

    #[test]
    fn a_datagram_fills_a_packet_of_the_interface() {
        assert_eq!((payload(9000, true), payload(9000, false)), (8972, 8952));
        assert_eq!((payload(65_536, true), payload(65_536, false)), (65_507, 65_488));
        let socket = Datagrams::open(Ipv4Addr::LOCALHOST.into(), 1 << 20).unwrap();
        let longest = vec![7; socket.payload()];
        assert!(socket.send(&longest, longest.len(), socket.address()).unwrap());
        assert_eq!(all(&socket).0, longest);
    }

    #[test]
    fn a_segment_that_the_path_does_not_carry_goes_in_fragments() {
        let socket = Datagrams::open(Ipv6Addr::LOCALHOST.into(), 1 << 20).unwrap();
        // One byte more than a packet of the loopback interface carries, twice would be more than the kernel takes.
        let run = vec![1; socket.payload() + 1];
        assert!(socket.send(&run, run.len(), socket.address()).unwrap());
        assert_eq!(all(&socket).0.len(), run.len());
    }

    #[test]
    fn a_peer_that_is_gone_breaks_nothing() {
        let socket = Datagrams::open(Ipv4Addr::LOCALHOST.into(), 1 << 20).unwrap();
        let gone = Datagrams::open(Ipv4Addr::LOCALHOST.into(), 1 << 20).unwrap().address();
        for _ in 0..3 {
            assert!(socket.send(b"anyone?", 7, gone).unwrap());
            assert_eq!(socket.receive(&mut [0; 16]).unwrap(), None);
        }
        assert!(socket.send(b"me", 2, socket.address()).unwrap());
        assert_eq!(all(&socket).0, b"me");
    }

    #[test]
    fn no_address_of_this_host_is_an_error() {
        let error = Datagrams::open(Ipv4Addr::new(192, 0, 2, 1).into(), 1 << 20).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    }
}
