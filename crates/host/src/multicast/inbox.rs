//! Room for many datagrams, which one call of the kernel fills.

use std::io;
use std::mem;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;

use crate::datagram::{MOST_AT_ONCE, Received};

/// What a group brings at once.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    received: Vec<Received>,
}

impl Inbox {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: vec![0; SLOT * DATAGRAMS], received: Vec::with_capacity(DATAGRAMS) }
    }

    /// What the last call brought: what is known of each run of packets, and the run itself.
    pub fn each(&mut self) -> impl Iterator<Item = (Received, &mut [u8])> {
        let slots = self.bytes.chunks_mut(SLOT);
        self.received.iter().zip(slots).map(|(received, slot)| (*received, &mut slot[..received.bytes]))
    }

    /// Bytes that the last call brought.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.received.iter().map(|received| received.bytes).sum()
    }

    /// Whether there was room for no more: then more may be there.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.received.len() == DATAGRAMS
    }

    /// Takes what waits at a socket, as much as there is room for; says whether there was anything.
    pub(super) fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        self.received.clear();
        // SAFETY: all of these are plain values of C, for which zeros are valid.
        let mut headers: [libc::mmsghdr; DATAGRAMS] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; DATAGRAMS] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut from: [libc::sockaddr_storage; DATAGRAMS] = unsafe { mem::zeroed() };
        let mut ancillary = [Ancillary([0; ANCILLARY]); DATAGRAMS];
        let slots = self.bytes.chunks_mut(SLOT);
        let rooms = parts.iter_mut().zip(&mut from).zip(&mut ancillary).zip(slots);
        for (header, (((part, from), ancillary), slot)) in headers.iter_mut().zip(rooms) {
            part.iov_base = slot.as_mut_ptr().cast();
            part.iov_len = MOST_AT_ONCE;
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut *from).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = part;
            header.msg_iovlen = 1;
            header.msg_control = ancillary.0.as_mut_ptr().cast();
            header.msg_controllen = ANCILLARY as _;
        }
        let count = loop {
            // SAFETY: each of the headers points to memory of ours that lives until the call is over, and says how long that is.
            let count = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    headers.as_mut_ptr(),
                    DATAGRAMS as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            };
            match Errno::result(count) {
                Ok(count) => break count as usize,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(false),
                Err(errno) => return Err(errno.into()),
            }
        };
        for (header, (from, ancillary)) in headers[..count].iter().zip(from.iter().zip(&ancillary)) {
            let bytes = header.msg_len as usize;
            let joined = joined(&ancillary.0[..header.msg_hdr.msg_controllen.min(ANCILLARY)]);
            let from = address(from).ok_or(io::ErrorKind::InvalidData)?;
            self.received.push(Received { bytes, packet: joined.unwrap_or(bytes.max(1)), from });
        }
        Ok(true)
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}

/// Room for what the kernel says beside a datagram, aligned as its header must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Ancillary([u8; ANCILLARY]);

/// The length of the packets that were joined to a run, where the kernel said so (`UDP_GRO`): one header and a number is all that is asked
/// for.
fn joined(ancillary: &[u8]) -> Option<usize> {
    let header: &[u8; HEADER] = ancillary.first_chunk()?;
    let number = ancillary.get(HEADER..HEADER + size_of::<libc::c_int>())?;
    // The length of `cmsghdr` is as long as a pointer; level and type follow.
    let field = |at: usize| header.get(at..at + 4)?.try_into().ok().map(i32::from_ne_bytes);
    let place = (field(HEADER - 8)?, field(HEADER - 4)?);
    let bytes = i32::from_ne_bytes(number.try_into().ok()?);
    (place == (libc::SOL_UDP, libc::UDP_GRO))
        .then_some(usize::try_from(bytes).ok()?)
        .filter(|bytes| *bytes > 0)
}

fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is what it is, and a storage is as long and aligned as any address.
            let v4 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = u32::from_be(v4.sin_addr.s_addr).into();
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let (ip, port) = (v6.sin6_addr.s6_addr.into(), u16::from_be(v6.sin6_port));
            // With its scope: an address of the link leads nowhere without.
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id)))
        }
        _ => None,
    }
}

/// Datagrams of one call.
const DATAGRAMS: usize = 16;

/// Bytes from one datagram to the next: short ones do not all fall into the same sets of a processor's cache.
const SLOT: usize = MOST_AT_ONCE + 1536;

/// Bytes of a header of ancillary data, and of one with a number.
const HEADER: usize = size_of::<libc::cmsghdr>();
const ANCILLARY: usize = HEADER + 8;
