//! What a session needs of the host before it begins.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use farlink_host::multicast::{GroupReceiver, GroupSender, Interface};
use farlink_host::socket;
use farlink_mover::secure;
use farlink_mover::server::places;
use farlink_wire::cast::SessionId;
use rustls::ServerConfig;

use super::Plan;
use crate::error::CastError;
use crate::group::Group;

/// The sockets of a session.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) group: GroupSender,
    /// Hears who else sends to it.
    pub(super) others: GroupReceiver,
    pub(super) listeners: Vec<TcpListener>,
    pub(super) config: Option<Arc<ServerConfig>>,
}

impl Sockets {
    pub(super) fn open(plan: &Plan, session: SessionId) -> Result<Self, CastError> {
        let group = plan.group;
        let index = index(plan.interface.as_deref(), group)?;
        let port = group.address().port();
        let sender = GroupSender::open(group.address(), index, plan.ttl, port);
        let sender = sender.map_err(|error| refused("send to", group, error))?;
        if sender.source().is_unspecified() {
            let interface = "that the routes say for the group".to_owned();
            return Err(CastError::Unaddressed { interface, version: version(group) });
        }
        let others = GroupReceiver::join(group.address(), index, OTHERS_BUFFER);
        let others = others.map_err(|error| refused("join", group, error))?;
        if plan.keys.is_none() {
            places(Some(sender.source()), false)?;
        }
        let mut listeners = Vec::new();
        for place in places(None, plan.keys.is_some())? {
            let address = SocketAddr::new(place, port);
            match socket::listen(address, BACKLOG, None) {
                Ok(listener) => listeners.push(listener),
                Err(error) if socket::lacks_address(&error) => {}
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    return Err(CastError::Taken { address });
                }
                Err(source) => return Err(CastError::Listen { address, source }),
            }
        }
        let config = plan.keys.as_ref().map(|(identity, admission)| {
            secure::server_with_claim(identity, Arc::clone(admission), &claim(group, session))
                .map_err(|error| CastError::Key(std::io::Error::other(error)))
        });
        Ok(Self { group: sender, others, listeners, config: config.transpose()? })
    }

    /// Where receivers come to.
    pub(super) fn address(&self, plan: &Plan) -> SocketAddr {
        SocketAddr::new(self.group.source(), plan.group.address().port())
    }
}

/// What a session says of itself to whoever asks: nobody can take it for that of another session, or of another group.
pub(super) fn claim(group: Group, session: SessionId) -> String {
    let address = group.address();
    // Without a scope, which is each host's own.
    format!("farlink-cast/1 {} {session}", SocketAddr::new(address.ip(), address.port()))
}

/// The index of the interface that was named, where the group's packets can leave by it, and come.
pub(crate) fn index(name: Option<&str>, group: Group) -> Result<Option<u32>, CastError> {
    let Some(name) = name else {
        return if group.is_of_one_link() { Err(CastError::OneLink { group }) } else { Ok(None) };
    };
    let interface = name.to_owned();
    let found = match Interface::of_name(name) {
        Ok(found) => found,
        Err(source) => return Err(CastError::Interface { name: interface, source }),
    };
    let is_addressed = if group.address().is_ipv4() { found.has_ipv4 } else { found.has_ipv6 };
    match (found.is_up, is_addressed) {
        (false, _) => Err(CastError::Down { interface }),
        (true, false) => Err(CastError::Unaddressed { interface, version: version(group) }),
        (true, true) => Ok(Some(found.index)),
    }
}

/// The version of IP of a group.
const fn version(group: Group) -> u8 {
    if group.address().is_ipv4() { 4 } else { 6 }
}

/// What the kernel means by refusing a group's socket.
pub(crate) fn refused(attempt: &'static str, group: Group, source: std::io::Error) -> CastError {
    match source.kind() {
        // Of IPv6 a route that leads nowhere, such as the loopback interface's, has no address to send from.
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::AddrNotAvailable => {
            CastError::NoRoute { group }
        }
        ErrorKind::AddrInUse => CastError::Taken { address: group.address() },
        // ENODEV has no kind of its own.
        _ if source.raw_os_error() == Some(ENODEV) => CastError::NoRoute { group },
        _ => CastError::Socket { attempt, group, source },
    }
}

/// No such device: the routes say of none (errno(3)).
const ENODEV: i32 = 19;

/// Connections that wait to be taken: receivers come all at once.
const BACKLOG: u16 = 1024;

/// Bytes of the buffer for what others send: it says only that they do.
const OTHERS_BUFFER: u32 = 64 * 1024;
