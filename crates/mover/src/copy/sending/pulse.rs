//! Whether what a data connection carries still arrives, at the sender.

use std::net::TcpStream;

use farlink_host::socket;
use farlink_host::tcp_info::TcpInfo;

/// A data connection that is at work.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Another handle of it, until its own is closed; absent within a host.
    tcp: Option<TcpStream>,
    /// Bytes that had arrived when it was felt last.
    acknowledged: u64,
}

impl Pulse {
    pub(super) const fn of(tcp: Option<TcpStream>) -> Self {
        Self { tcp, acknowledged: 0 }
    }

    /// Whether something has arrived since this was asked last.
    pub(super) fn feel(&mut self) -> bool {
        let info = self.tcp.as_ref().and_then(|tcp| TcpInfo::of(tcp).ok());
        let before = self.acknowledged;
        self.acknowledged = info.map_or(before, |info| info.acknowledged);
        self.acknowledged != before
    }

    /// Whether all that was written to it has arrived, as far as is known.
    pub(super) fn has_landed(&self) -> bool {
        self.tcp.as_ref().is_some_and(|tcp| socket::unacknowledged(tcp).is_ok_and(|bytes| bytes == 0))
    }

    /// Bytes that were given to it and have not arrived.
    pub(super) fn under_way(&self) -> u64 {
        self.tcp.as_ref().and_then(|tcp| socket::unacknowledged(tcp).ok()).unwrap_or(0)
    }

    /// It is about to be closed.
    pub(super) fn end(&mut self) {
        self.tcp = None;
    }
}
