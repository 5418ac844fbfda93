//! Interfaces, addresses and routes of one network namespace, over a blocking rtnetlink socket.
//!
//! A socket belongs to the namespace in which it was opened, wherever its owner goes later.

use std::io;
use std::net::{self, IpAddr, Ipv4Addr};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, Stats64};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

mod discipline;

pub use discipline::{Discipline, leaves};

/// A conversation with the kernel about one network namespace.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// Why the kernel did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The socket failed.
    #[error("rtnetlink socket")]
    Socket(#[source] io::Error),
    /// The kernel refused.
    #[error("rtnetlink: {asked}")]
    Refused {
        /// What was asked.
        asked: &'static str,
        /// As the kernel said it.
        source: io::Error,
    },
    /// An answer that is none.
    #[error("rtnetlink: {asked}: the kernel's answer was not understood")]
    Answer {
        /// What was asked.
        asked: &'static str,
    },
}

/// What a host's one interface should be.
#[derive(Clone, Debug)]
pub struct Interface<'a> {
    /// Interface index.
    pub index: u32,
    /// Largest IP packet.
    pub mtu: u32,
    /// Packets that may wait for their reader.
    pub queue_packets: u32,
    /// The host's own addresses, each with the length of the prefix that the interface leads to.
    pub addresses: &'a [(IpAddr, u8)],
    /// Default congestion control of the routes.
    pub congestion: Option<&'a str>,
}

impl Netlink {
    /// Opens a socket in the caller's network namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(NetlinkError::Socket)?;
        socket.bind_auto().map_err(NetlinkError::Socket)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(NetlinkError::Socket)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Brings the loopback interface up.
    ///
    /// # Errors
    /// [`NetlinkError`] as the kernel gave it.
    pub fn raise_loopback(&mut self) -> Result<(), NetlinkError> {
        self.set_link(LOOPBACK_INDEX, "raise the loopback interface", vec![])
    }

    /// Brings `interface` up with its addresses and routes: to where the addresses' prefixes lead, and to all multicast groups.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`] naming the step: the congestion control's, where the kernel does not have it.
    pub fn configure(&mut self, interface: &Interface<'_>) -> Result<(), NetlinkError> {
        let attributes =
            vec![LinkAttribute::Mtu(interface.mtu), LinkAttribute::TxQueueLen(interface.queue_packets)];
        self.set_link(interface.index, "raise the interface", attributes)?;
        for &(address, prefix) in interface.addresses {
            self.add_address(interface.index, address)?;
            self.add_route(interface, address, (address, prefix))?;
            if address.is_ipv4() {
                // Linux itself gives every interface such a route of IPv6 (`addrconf_add_mroute`).
                self.add_route(interface, address, GROUPS)?;
            }
        }
        Ok(())
    }

    /// What passed interface `index`, and what was dropped, since it exists.
    ///
    /// # Errors
    /// [`NetlinkError`] as the kernel gave it.
    pub fn counters(&mut self, index: u32) -> Result<Stats64, NetlinkError> {
        let asked = "read the interface's counters";
        let stats = self.link(index, asked)?.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(stats),
            _ => None,
        });
        stats.ok_or(NetlinkError::Answer { asked })
    }

    /// The largest IP packet that the driver of interface `index` would take, where it says so (Linux 5.0).
    ///
    /// # Errors
    /// [`NetlinkError`] as the kernel gave it.
    pub fn most_mtu(&mut self, index: u32) -> Result<Option<u32>, NetlinkError> {
        let link = self.link(index, "read the interface's largest MTU")?;
        Ok(link.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::MaxMtu(most) => (most > 0).then_some(most),
            _ => None,
        }))
    }

    /// The congestion control that the route to `far` gives connections (`congctl` of ip-route(8)), by the interface that the address names
    /// where it names one; `None` where it leaves that to the host.
    ///
    /// # Errors
    /// [`NetlinkError`] as the kernel gave it: there may be no route.
    pub fn route_congestion(&mut self, far: net::SocketAddr) -> Result<Option<String>, NetlinkError> {
        let asked = "read the route";
        let address = far.ip().to_canonical();
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(route_address(address))];
        if let net::SocketAddr::V6(far) = far
            && far.scope_id() != 0
        {
            message.attributes.push(RouteAttribute::Oif(far.scope_id()));
        }
        let route = match self.ask(asked, RouteNetlinkMessage::GetRoute(message), NLM_F_REQUEST)? {
            Some(RouteNetlinkMessage::NewRoute(route)) => route,
            _ => return Err(NetlinkError::Answer { asked }),
        };
        let mut metrics = route.attributes.into_iter().filter_map(|attribute| match attribute {
            RouteAttribute::Metrics(metrics) => Some(metrics),
            _ => None,
        });
        Ok(metrics.next().into_iter().flatten().find_map(|metric| match metric {
            RouteMetric::CcAlgo(name) => Some(name.trim_end_matches('\0').to_owned()),
            _ => None,
        }))
    }

    fn link(&mut self, index: u32, asked: &'static str) -> Result<LinkMessage, NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        match self.ask(asked, RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            _ => Err(NetlinkError::Answer { asked }),
        }
    }

    fn set_link(
        &mut self,
        index: u32,
        asked: &'static str,
        attributes: Vec<LinkAttribute>,
    ) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes = attributes;
        self.ask(asked, RouteNetlinkMessage::SetLink(message), NLM_F_REQUEST | NLM_F_ACK).map(drop)
    }

    fn add_address(&mut self, index: u32, address: IpAddr) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        // The host alone: the route below, with its congestion control, leads to the others.
        message.header.prefix_len = if address.is_ipv4() { 32 } else { 128 };
        message.header.flags = AddressHeaderFlags::Nodad;
        message.header.scope = AddressScope::Universe;
        message.header.index = index;
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.ask("add the address", RouteNetlinkMessage::NewAddress(message), flags).map(drop)
    }

    fn add_route(
        &mut self,
        interface: &Interface<'_>,
        source: IpAddr,
        (destination, prefix): (IpAddr, u8),
    ) -> Result<(), NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(source);
        message.header.destination_prefix_length = prefix;
        message.header.table = libc_table_main();
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = if source.is_ipv4() { RouteScope::Link } else { RouteScope::Universe };
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            RouteAttribute::Destination(network(destination, prefix)),
            RouteAttribute::PrefSource(route_address(source)),
            RouteAttribute::Oif(interface.index),
        ];
        if let Some(name) = interface.congestion {
            message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::CcAlgo(name.to_owned())]));
        }
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        let asked = if interface.congestion.is_some() {
            "add the route with its congestion control"
        } else {
            "add the route"
        };
        self.ask(asked, RouteNetlinkMessage::NewRoute(message), flags).map(drop)
    }

    /// Sends one request and reads its answer: a message, or the bare acknowledgement as `None`.
    fn ask(
        &mut self,
        asked: &'static str,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Option<RouteNetlinkMessage>, NetlinkError> {
        self.send(request, flags)?;
        loop {
            let (answer, _) = self.socket.recv_from_full().map_err(NetlinkError::Socket)?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
                .map_err(|_| NetlinkError::Answer { asked })?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::Error(error) => match error.code {
                    None => Ok(None),
                    Some(_) => Err(NetlinkError::Refused { asked, source: error.to_io() }),
                },
                NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
                _ => Err(NetlinkError::Answer { asked }),
            };
        }
    }

    fn send(&mut self, request: RouteNetlinkMessage, flags: u16) -> Result<(), NetlinkError> {
        self.sequence += 1;
        let mut message = NetlinkMessage::from(request);
        message.header.flags = flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop).map_err(NetlinkError::Socket)
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

/// The network of `address` with a prefix of `prefix` bits.
fn network(address: IpAddr, prefix: u8) -> RouteAddress {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            RouteAddress::Inet((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            RouteAddress::Inet6((u128::from(address) & mask).into())
        }
    }
}

const fn libc_table_main() -> u8 {
    nix::libc::RT_TABLE_MAIN
}

/// Every multicast group of IPv4 (RFC 5771, 3).
const GROUPS: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4);

/// The loopback interface is the first of every network namespace (net/core/dev.c).
const LOOPBACK_INDEX: u32 = 1;
