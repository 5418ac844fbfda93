//! TCP Fast Open (RFC 7413): who has been to a host before sends its first bytes with the first segment, a round trip sooner.
//!
//! The far kernel gives a cookie to whoever opens a connection and asks for one, where `net.ipv4.tcp_fastopen` of its host lets it (the bit of
//! 2), and this kernel keeps that per address. A first segment that nobody answers is sent again without them, after a second. What goes with
//! one may come twice.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;

use crate::socket::{is_connecting, set_option};

/// As [`start_connecting`](crate::socket::start_connecting); where there is a cookie, nothing leaves until something is written, which goes with the
/// first segment as far as that has room. Says whether it is so.
///
/// # Errors
/// What is known at once: no route, no permission.
pub fn start_connecting(stream: &TcpStream, address: SocketAddr) -> io::Result<bool> {
    // A kernel that cannot connects as ever.
    let _ = setsockopt(stream, sockopt::TcpFastOpenConnect, &true);
    match SockRef::from(stream).connect(&address.into()) {
        Ok(()) => Ok(true),
        Err(error) if is_connecting(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What came of writing the first bytes of a connection that [waits for them](start_connecting): nothing where the kernel only connects.
///
/// # Errors
/// What is known at once.
pub fn taken<T>(written: io::Result<T>) -> io::Result<Option<T>> {
    match written {
        Err(error) if is_connecting(&error) || error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}

/// Has a listener give cookies, and take the first bytes of those who show one, where its host does.
pub fn admit(listener: impl AsFd) {
    let option = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN);
    let _ = set_option::<libc::c_int>(listener, option, &MOST);
}

/// Connections of a listener whose handshakes may be under way so. Those that were closed before they had answered count for another minute
/// (`reqsk_fastopen_remove` of the kernel's net/core/request_sock.c); who comes beyond that connects as ever.
const MOST: libc::c_int = 1024;
