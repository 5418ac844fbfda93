//! Descriptors that pass from one process to another over a UNIX socket (unix(7), `SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Sends `bytes`, and `descriptors` with the first of them.
///
/// # Errors
/// As sendmsg(2).
pub fn send(mut stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &control[..0] } else { &control[..] };
    let sent =
        sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None)?;
    stream.write_all(&bytes[sent..])
}

/// Receives all that comes until the other end closes, and the descriptors that come with the first of it.
///
/// # Errors
/// As recvmsg(2).
pub fn receive(mut stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; 64 << 10];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; MOST_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message =
        recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            // SAFETY: the kernel has just made these descriptors for this process, and nobody else owns them.
            descriptors.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    let first = message.bytes;
    bytes.truncate(first);
    stream.read_to_end(&mut bytes)?;
    Ok((bytes, descriptors))
}

/// More than any of our messages carries.
const MOST_DESCRIPTORS: usize = 16;
