//! How processes of a host find each other: names, users, and what the one that connects says first.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    accept4, bind, getsockopt, recvmsg, sendmsg, socket, sockopt,
};
use nix::unistd::geteuid;

/// Who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// A number that means something to both.
    pub id: u64,
    /// What nobody else could say.
    pub proof: [u8; 32],
}

impl Introduction {
    fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..].copy_from_slice(&self.proof);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (id, proof) = rest.split_first_chunk()?;
        (*magic == MAGIC).then_some(Self { id: u64::from_le_bytes(*id), proof: proof.try_into().ok()? })
    }
}

/// A socket that hears those who connect to `name`.
pub(super) fn listen(name: &str) -> io::Result<OwnedFd> {
    let listener = open()?;
    bind(listener.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    nix::sys::socket::listen(&listener, Backlog::MAXCONN)?;
    Ok(listener)
}

/// One that connects; nobody of another user's is let in, and however many of those knock, they are not answered for long.
pub(super) fn accept(listener: &impl AsFd) -> io::Result<Option<OwnedFd>> {
    for _ in 0..MOST_REFUSED {
        match accept4(listener.as_fd().as_raw_fd(), SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC) {
            Ok(descriptor) => {
                // SAFETY: accept4(2) has just opened it, for us alone.
                let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
                if is_of_this_user(&socket)? {
                    return Ok(Some(socket));
                }
            }
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR | Errno::ECONNABORTED) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Connects to who listens to `name`, where that is of this user.
pub(super) fn connect(name: &str) -> io::Result<OwnedFd> {
    let socket = open()?;
    nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    if is_of_this_user(&socket)? { Ok(socket) } else { Err(Errno::EPERM.into()) }
}

/// Says who this is, and hands the memory over.
pub(super) fn send(socket: &OwnedFd, who: &Introduction, memory: &OwnedFd) -> io::Result<()> {
    let bytes = who.encode();
    let (parts, descriptors) = ([IoSlice::new(&bytes)], [memory.as_raw_fd()]);
    let with = [ControlMessage::ScmRights(&descriptors)];
    sendmsg::<UnixAddr>(socket.as_raw_fd(), &parts, &with, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Whether it is for want of descriptors, watches or memory, of which there may be some again.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS, Errno::ENOSPC];
    error.raw_os_error().is_some_and(|code| shortages.contains(&Errno::from_raw(code)))
}

/// Who connected, and its memory; `None` where it has not said so yet.
pub(super) fn receive(socket: &impl AsFd) -> io::Result<Option<(Introduction, OwnedFd)>> {
    // As many descriptors as one message has (SCM_MAX_FD): all are ours to close, whatever they are.
    let mut ancillary = cmsg_space!([RawFd; 253]);
    let mut bytes = [0; LEN + 1];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let descriptor = socket.as_fd().as_raw_fd();
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let got = match recvmsg::<UnixAddr>(descriptor, &mut parts, Some(&mut ancillary), flags) {
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
        other => other?,
    };
    let mut descriptors = Vec::new();
    for message in got.cmsgs()? {
        if let ControlMessageOwned::ScmRights(them) = message {
            // SAFETY: the kernel has just opened each for us alone.
            descriptors.extend(them.into_iter().map(|one| unsafe { OwnedFd::from_raw_fd(one) }));
        }
    }
    let len = got.bytes;
    let who = Introduction::decode(&bytes[..len]).ok_or(ErrorKind::InvalidData)?;
    match <[OwnedFd; 1]>::try_from(descriptors) {
        Ok([memory]) => Ok(Some((who, memory))),
        Err(_) => Err(ErrorKind::InvalidData.into()),
    }
}

/// Messages that arrive as they were sent, with an end that is told.
fn open() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    Ok(socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?)
}

fn is_of_this_user(socket: &OwnedFd) -> io::Result<bool> {
    let other = getsockopt(socket, sockopt::PeerCredentials)?;
    Ok(other.uid() == geteuid().as_raw())
}

/// Those of other users that are refused at a time.
const MOST_REFUSED: usize = 64;

/// Names this protocol and its version: a ring of another layout is another protocol.
const MAGIC: [u8; 8] = *b"flring01";

/// Bytes of an introduction.
const LEN: usize = 48;
