//! Runs of datagrams: the kernel cuts what one call sends (UDP segmentation offload) and joins what one call receives.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, getsockopt, recvmsg, sendmsg, sockopt,
};

/// Sends runs through one socket.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Whether the kernel cuts them.
    cut: AtomicBool,
}

impl Runs {
    /// Those of `socket`.
    pub(crate) fn of(socket: &impl AsFd) -> Self {
        // A kernel that knows no such option (before 4.18) would send the run as one datagram.
        Self { cut: AtomicBool::new(getsockopt(socket, sockopt::UdpGsoSegment).is_ok()) }
    }

    pub(crate) fn cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }

    /// Sends `run` in datagrams of `packet` bytes, the last one shorter; at most 65,507 bytes. Where it would block, nothing was
    /// sent.
    pub(crate) fn send(&self, socket: &UdpSocket, run: &[u8], packet: u16, to: SocketAddr) -> io::Result<()> {
        let to = SockaddrStorage::from(to);
        if run.len() <= usize::from(packet) {
            return Ok(send_one(socket, run, None, &to)?);
        }
        if self.cut() {
            match send_one(socket, run, Some(packet), &to) {
                // A device without checksum offload: as the datagrams that they are.
                Err(Errno::EIO) => self.cut.store(false, Ordering::Relaxed),
                // More than 64 datagrams, or such as this one path carries in fragments alone.
                Err(Errno::EINVAL | Errno::EMSGSIZE) => {}
                other => return Ok(other?),
            }
        }
        let mut packets = run.chunks(packet.max(1).into());
        packets.next().map_or(Ok(()), |first| send_one(socket, first, None, &to))?;
        for packet in packets {
            match send_one(socket, packet, None, &to) {
                // Having begun, it is not given up halfway: whoever sent it again would send the first ones twice. What finds no room
                // for so long is lost, as what a network had no room for.
                Err(Errno::EAGAIN | Errno::ENOBUFS) => {
                    let mut asked = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
                    let _ = poll(&mut asked, PollTimeout::from(PATIENCE));
                    let _ = send_one(socket, packet, None, &to);
                }
                other => other?,
            }
        }
        Ok(())
    }
}

fn send_one(
    socket: &UdpSocket,
    bytes: &[u8],
    packet: Option<u16>,
    to: &SockaddrStorage,
) -> Result<(), Errno> {
    let parts = [IoSlice::new(bytes)];
    let cut = packet.as_ref().map(ControlMessage::UdpGsoSegments);
    loop {
        match sendmsg(socket.as_raw_fd(), &parts, cut.as_slice(), MsgFlags::empty(), Some(to)) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

/// What came at once: packets of one length behind each other, the last one shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of all of them.
    pub bytes: usize,
    /// Bytes of each.
    pub packet: usize,
    /// Where they come from.
    pub from: SocketAddr,
}

/// What has come to `socket`, which does not block; `None` where nothing has.
pub(crate) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<Received>> {
    let mut ancillary = Ancillary([0; ANCILLARY]);
    let mut parts = [IoSliceMut::new(buffer)];
    let fd = socket.as_raw_fd();
    let got = loop {
        match recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut ancillary.0), MsgFlags::empty()) {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            other => break other?,
        }
    };
    let joined = got.cmsgs()?.find_map(|each| match each {
        ControlMessageOwned::UdpGroSegments(bytes) => usize::try_from(bytes).ok(),
        _ => None,
    });
    let from = got.address.as_ref().and_then(address).ok_or(ErrorKind::InvalidData)?;
    let packet = joined.filter(|bytes| *bytes > 0).unwrap_or(got.bytes.max(1));
    Ok(Some(Received { bytes: got.bytes, packet, from }))
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    let v6 = storage.as_sockaddr_in6()?;
    // With its scope: an address of the link leads nowhere without.
    Some(SocketAddr::V6((*v6).into()))
}

/// Where the kernel says how long the packets were that it joined: headers lie as its own do.
#[repr(align(8))]
struct Ancillary([u8; ANCILLARY]);

/// Bytes of a header and a number behind it.
// SAFETY: a number's size, of which it computes another.
const ANCILLARY: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::c_int>() as libc::c_uint) } as usize;

const _: () = assert!(align_of::<libc::cmsghdr>() <= align_of::<Ancillary>());

/// Bytes that one call may receive: what the kernel joins at most.
pub const MOST_AT_ONCE: usize = 65_536;

/// How long a datagram may wait for room, milliseconds: a send buffer of 4 MiB is sent at 10 Gb/s in less.
const PATIENCE: u8 = 10;
