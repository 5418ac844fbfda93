//! The ports of a server.

use std::net::SocketAddr;

/// The port of `farlink serve`, where none is given.
pub const PORT: u16 = 5210;

/// Where the data connections of a circuit go, of a server at `address`: the port after it, whose connections have their receive
/// buffer before they are made. The window in a SYN-ACK is never scaled, but the next one is that large. `None`
/// where no port is after it.
#[must_use]
pub(crate) fn for_circuits(address: SocketAddr) -> Option<SocketAddr> {
    Some(SocketAddr::new(address.ip(), address.port().checked_add(1)?))
}
