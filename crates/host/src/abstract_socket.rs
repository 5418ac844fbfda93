//! Sockets of a host whose names are in no file system (unix(7)), and who is behind them: whoever comes first has a name.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};

use crate::namespace::user;

/// Connects to who listens to `name`, where that is this user or root. It does not wait.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] where that is another user, [`io::ErrorKind::WouldBlock`] where nobody takes it; as connect(2).
pub fn connect_to_own(name: &str) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    let peer = peer_user(&stream)?;
    if peer == user() || peer == 0 { Ok(stream) } else { Err(Errno::EACCES.into()) }
}

/// A name that only one process of this host has at a time: for as long as this is kept, and no longer than the process lives.
#[derive(Debug)]
pub struct Sole {
    _socket: UnixDatagram,
}

/// Takes `name` for this process; `None` where another has it.
///
/// # Errors
/// As bind(2).
pub fn take(name: &str) -> io::Result<Option<Sole>> {
    match UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?) {
        Ok(socket) => Ok(Some(Sole { _socket: socket })),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// The user at the other end, as the caller's user namespace numbers them: of one that listened, who did.
///
/// # Errors
/// As getsockopt(2).
pub fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(&stream.as_fd(), PeerCredentials)?.uid())
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn name(of: &str) -> String {
        format!("farlink-test/{}/{of}", std::process::id())
    }

    #[test]
    fn what_is_this_users_own_is_spoken_with() {
        let name = name("own");
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let mut stream = connect_to_own(&name).unwrap();
        stream.write_all(b"!").unwrap();
        let mut said = [0];
        listener.accept().unwrap().0.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"!");
    }

    #[test]
    fn a_name_that_is_taken_is_free_again_when_that_ends() {
        let taken = take(&name("sole")).unwrap();
        assert!(taken.is_some());
        assert!(take(&name("sole")).unwrap().is_none());
        assert!(take(&name("another")).unwrap().is_some());
        drop(taken);
        assert!(take(&name("sole")).unwrap().is_some());
    }

    #[test]
    fn nobody_is_waited_for_who_does_not_answer() {
        let name = name("full");
        let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        // Those that it leaves waiting, until no more may.
        let mut waiting = Vec::new();
        let refused = loop {
            match connect_to_own(&name) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert!(!waiting.is_empty());
        let nobody = connect_to_own(&self::name("nobody")).unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::ConnectionRefused);
    }
}
