//! UDP sockets of a multicast group: one that sends to it in runs of packets, and one that has joined it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use crate::datagram::{Received, Runs, receive};
use crate::icmp::is_the_networks;
use crate::path_mtu;
use crate::socket::{Buffer, set_buffer};

mod inbox;
mod interface;

pub use inbox::Inbox;
pub use interface::Interface;

/// Sends to a group.
#[derive(Debug)]
pub struct GroupSender {
    socket: UdpSocket,
    group: SocketAddr,
    source: IpAddr,
    mtu: u32,
    runs: Runs,
}

impl GroupSender {
    /// From `port` of this host to `group`, over the interface of that index, or the one that the routes say. Packets live for `ttl`
    /// hops, and this host does not hear them itself.
    ///
    /// # Errors
    /// The kernel's: `ENETUNREACH` where no route leads to the group, `EADDRINUSE` where the port is taken.
    pub fn open(group: SocketAddr, interface: Option<u32>, ttl: u8, port: u16) -> io::Result<Self> {
        let group = scoped(group, interface);
        let probe = sender(group, interface, ttl)?;
        probe.connect(&group.into())?;
        let mut from = local(&probe)?;
        from.set_port(port);
        let (level, name) = match group {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        let mtu = path_mtu::get(&probe, level, name)?;
        let socket = sender(group, interface, ttl)?;
        // With its scope, where it is link-local.
        socket.bind(&from.into())?;
        // A run of packets is one buffer of the kernel's: several fit, so that nobody waits for the device.
        set_buffer(&socket, Buffer::Send, SEND_BUFFER)?;
        let socket = UdpSocket::from(socket);
        let runs = Runs::of(&socket);
        Ok(Self { socket, group, source: from.ip(), mtu, runs })
    }

    /// The address of this host that packets come from.
    #[must_use]
    pub const fn source(&self) -> IpAddr {
        self.source
    }

    /// The longest IP packet that the interface carries, bytes.
    #[must_use]
    pub const fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Whether an error of [`Self::send`] tells how the network, or this host, is at the moment: no route or address, an interface that is down, a
    /// firewall, no memory. An address that is taken away is told as an invalid argument by some kernels.
    #[must_use]
    pub fn may_pass(error: &io::Error) -> bool {
        let is_of_interface = |code| matches!(code, libc::ENODEV | libc::EADDRNOTAVAIL | libc::EINVAL);
        let is_of_memory = |code| matches!(code, libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN);
        let is_so = |code| is_the_networks(code) || is_of_interface(code) || is_of_memory(code);
        error.raw_os_error().is_some_and(is_so)
    }

    /// Sends `run` in packets of `packet` bytes, the last one shorter; at most 65,507 bytes. Waits where the interface is busy.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&self, run: &[u8], packet: u16) -> io::Result<()> {
        self.runs.send(&self.socket, run, packet, self.group)
    }
}

/// Hears a group.
#[derive(Debug)]
pub struct GroupReceiver {
    socket: UdpSocket,
    buffer: u64,
}

impl GroupReceiver {
    /// Joins `group` on the interface of that index, or the one that the routes say, with a receive buffer of `buffer` bytes, or as much as
    /// this process may have.
    ///
    /// # Errors
    /// The kernel's: `ENODEV` where no route leads to the group.
    pub fn join(group: SocketAddr, interface: Option<u32>, buffer: u32) -> io::Result<Self> {
        let group = scoped(group, interface);
        let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        let granted = set_buffer(&socket, Buffer::Receive, buffer)?;
        // The group's address: what comes to this port otherwise is not for us.
        socket.bind(&group.into())?;
        match group {
            SocketAddr::V4(group) => {
                let on = interface.map_or(
                    InterfaceIndexOrAddress::Address(Ipv4Addr::UNSPECIFIED),
                    InterfaceIndexOrAddress::Index,
                );
                socket.join_multicast_v4_n(group.ip(), &on)?;
            }
            SocketAddr::V6(group) => socket.join_multicast_v6(group.ip(), group.scope_id())?,
        }
        // Kernels before 5.0 have it not: then packets come one by one.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        Ok(Self { socket: socket.into(), buffer: granted })
    }

    /// The receive buffer that was granted, bytes.
    #[must_use]
    pub const fn buffer(&self) -> u64 {
        self.buffer
    }

    /// Asks for a receive buffer of `bytes`, or as much as this process may have, for what comes from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn resize(&mut self, bytes: u32) -> io::Result<()> {
        self.buffer = set_buffer(&self.socket, Buffer::Receive, bytes)?;
        Ok(())
    }

    /// What has come, into `buffer`, which should have [`MOST_AT_ONCE`](crate::datagram::MOST_AT_ONCE) bytes; `None` where nothing has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        receive(&self.socket, buffer)
    }
}

impl GroupReceiver {
    /// What has come, as much of it as there is room for; false where nothing has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive_all(&self, inbox: &mut Inbox) -> io::Result<bool> {
        inbox.fill(self.socket.as_fd())
    }
}

impl AsFd for GroupReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `group` on the interface of that index: the same link-local address is of another group on each (RFC 4007, 5).
const fn scoped(group: SocketAddr, interface: Option<u32>) -> SocketAddr {
    match (group, interface) {
        (SocketAddr::V6(of), Some(index)) => {
            SocketAddr::V6(SocketAddrV6::new(*of.ip(), of.port(), of.flowinfo(), index))
        }
        _ => group,
    }
}

fn sender(group: SocketAddr, interface: Option<u32>, ttl: u8) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    if group.is_ipv4() {
        socket.set_multicast_loop_v4(false)?;
        socket.set_multicast_ttl_v4(ttl.into())?;
        if let Some(index) = interface {
            send_over(&socket, index)?;
        }
    } else {
        socket.set_multicast_loop_v6(false)?;
        socket.set_multicast_hops_v6(ttl.into())?;
        if let Some(index) = interface {
            socket.set_multicast_if_v6(index)?;
        }
    }
    Ok(socket)
}

/// `IP_MULTICAST_IF` by index: the address of an interface may be another's too.
fn send_over(socket: &Socket, index: u32) -> io::Result<()> {
    let any = libc::in_addr { s_addr: 0 };
    let request = libc::ip_mreqn { imr_multiaddr: any, imr_address: any, imr_ifindex: index as libc::c_int };
    // SAFETY: the descriptor is borrowed for the whole call, and the kernel reads one `ip_mreqn`.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_IF,
            (&raw const request).cast(),
            size_of_val(&request) as libc::socklen_t,
        )
    };
    Ok(Errno::result(status).map(drop)?)
}

fn local(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Bytes of the send buffer: some 16 runs.
const SEND_BUFFER: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::MOST_AT_ONCE;
    use nix::ifaddrs::getifaddrs;

    #[test]
    fn a_link_local_group_is_of_the_interface() {
        let group: SocketAddr = "[ff02::1234]:7000".parse().unwrap();
        assert_eq!(scoped(group, Some(7)).to_string(), "[ff02::1234%7]:7000");
        assert_eq!(scoped(group, None), group);
        assert_eq!(scoped("[ff02::1234%3]:7000".parse().unwrap(), None).to_string(), "[ff02::1234%3]:7000");
        let of_ipv4: SocketAddr = "239.1.1.1:7000".parse().unwrap();
        assert_eq!(scoped(of_ipv4, Some(7)), of_ipv4);
        // Where an interface here has a link-local address: both ends of a group.
        let addresses = getifaddrs().unwrap().filter_map(|each| each.address);
        let ours = addresses.filter_map(|address| address.as_sockaddr_in6().copied());
        let Some(ours) = ours.into_iter().find(|at| at.ip().is_unicast_link_local()) else { return };
        for index in [Some(ours.scope_id()), None] {
            let group = scoped(group, Some(ours.scope_id()));
            let sender = GroupSender::open(group, index, 1, 0).unwrap();
            assert!(matches!(sender.source(), IpAddr::V6(from) if from.is_unicast_link_local()));
            GroupReceiver::join(group, index, 65_536).unwrap();
            sender.send(b"hello", 5).unwrap();
        }
    }

    #[test]
    fn a_receive_buffer_can_be_resized() {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let mut receiver = GroupReceiver { socket: socket.into(), buffer: 0 };
        for bytes in [16 << 10, 64 << 10, 128 << 10] {
            receiver.resize(bytes).unwrap();
            assert_eq!(receiver.buffer(), u64::from(bytes));
        }
    }

    #[test]
    fn a_run_arrives_as_the_packets_that_it_is() {
        // To a socket of this host in place of a group: a group's packets do not come back to their host.
        let receiver = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        receiver.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let at = local(&receiver).unwrap();
        let receiver = GroupReceiver { socket: receiver.into(), buffer: 0 };
        setsockopt(&receiver.socket, sockopt::UdpGroSegment, &true).unwrap();
        let sender = GroupSender::open(at, None, 1, 0).unwrap();
        assert_eq!(sender.source(), at.ip());
        let run: Vec<u8> = (0..2500_u32).map(|at| at as u8).collect();
        for cuts in [true, false] {
            sender.runs.set_cut(cuts);
            sender.send(&run, 1000).unwrap();
            let (mut buffer, mut got) = (vec![0; MOST_AT_ONCE], Vec::new());
            while let Some(received) = receiver.receive(&mut buffer).unwrap() {
                assert!(received.packet <= 1000 && received.from.ip() == at.ip());
                got.extend_from_slice(&buffer[..received.bytes]);
            }
            assert_eq!(got, run);
            sender.send(&run, 1000).unwrap();
            let (mut inbox, mut got) = (Inbox::new(), Vec::new());
            while receiver.receive_all(&mut inbox).unwrap() {
                for (received, bytes) in inbox.each() {
                    assert!(received.packet <= 1000 && received.from.ip() == at.ip());
                    assert_eq!(received.bytes, bytes.len());
                    got.extend_from_slice(bytes);
                }
            }
            assert_eq!(got, run);
        }
    }
}
