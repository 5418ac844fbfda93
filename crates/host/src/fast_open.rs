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

/// Writes the first bytes of a connection that [waits for them](start_connecting), and returns how many the kernel took: 0 where it
/// only connects.
///
/// # Errors
/// What is known at once.
pub fn taken(written: io::Result<usize>) -> io::Result<usize> {
    match written {
        Err(error) if is_connecting(&error) || error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

/// Has a listener give cookies, and take the first bytes of those who show one, where its host does.
pub(crate) fn admit(listener: impl AsFd) {
    let option = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN);
    let _ = set_option::<libc::c_int>(listener, option, &MOST);
}

/// Connections of a listener that may have spoken and not yet answered: those of two clients of the most streams.
const MOST: libc::c_int = 256;
