//! What the kernel granted a stream.

use std::net::TcpStream;

use farlink_host::{congestion, socket};
use farlink_wire::record::CongestionOrigin;

/// What the kernel granted a stream, as the sender found it when it joined.
#[derive(Clone, Debug, Default)]
pub(super) struct SocketFacts {
    pub(super) buffer: u64,
    pub(super) congestion: String,
    pub(super) origin: Option<CongestionOrigin>,
    /// Why it was chosen, where the sender chose.
    pub(super) reason: Option<String>,
}

impl SocketFacts {
    /// Of a TCP connection; empty of others.
    pub(super) fn of(tcp: Option<&TcpStream>) -> Self {
        let Some(tcp) = tcp else { return Self::default() };
        let name = socket::congestion(tcp).unwrap_or_default();
        Self {
            buffer: socket::buffer_size(tcp, socket::Buffer::Send).unwrap_or(0),
            origin: congestion::origin(&name),
            congestion: name,
            reason: None,
        }
    }
}
