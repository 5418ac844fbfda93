//! A TUN device with segmentation offload: one read or write moves a super-packet of up to 64 KiB
//! (Documentation/networking/tuntap.rst; drivers/net/tun.c).

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use farlink_wire::vnet::VnetHeader;
use nix::libc;

/// An open TUN device. It vanishes when it is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    index: u32,
    granted: Offloads,
}

/// What the kernel may leave to the reader, and take from the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Unfinished checksums.
    pub checksum: bool,
    /// TCP super-packets, IPv4 and IPv6.
    pub tcp_segment: bool,
    /// UDP super-packets, IPv4 and IPv6 (Linux 6.2).
    pub udp_segment: bool,
}

/// Why there is no TUN device.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The node cannot be opened.
    #[error("open {}{}", path.display(), mend(source))]
    Open {
        /// The node.
        path: PathBuf,
        /// As the kernel said it.
        source: io::Error,
    },
    /// The name does not fit.
    #[error("name {name:?} is longer than {max} bytes")]
    NameTooLong {
        /// As given.
        name: String,
        /// Without the final zero.
        max: usize,
    },
    /// The device was refused.
    #[error("create TUN device {name:?}")]
    Create {
        /// As given.
        name: String,
        /// As the kernel said it.
        source: io::Error,
    },
    /// The device has not what was insisted on.
    #[error(
        "TUN offloads: the kernel granted {granted:?}, but {required:?} are needed: Linux 6.2 or newer has them all"
    )]
    Offloads {
        /// What there is.
        granted: Offloads,
        /// What was insisted on.
        required: Offloads,
    },
}

impl Tun {
    /// Creates device `name` in the caller's network namespace, with as many offloads as the kernel grants.
    ///
    /// # Errors
    /// [`TunError`] naming the step.
    pub fn open(name: &str) -> Result<Self, TunError> {
        let path = Path::new(NODE);
        let open = |source| TunError::Open { path: path.to_owned(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .map_err(open)?;
        // SAFETY: an all-zero ifreq is a valid one: integers, and arrays of them.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let max = request.ifr_name.len() - 1;
        if name.len() > max {
            return Err(TunError::NameTooLong { name: name.to_owned(), max });
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        let create = |source| TunError::Create { name: name.to_owned(), source };
        // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) }).map_err(create)?;
        let header_len = VnetHeader::LEN as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one int, which outlives the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header_len) })
            .map_err(create)?;
        let granted = grant(&file);
        let index = nix::net::if_::if_nametoindex(name).map_err(|errno| create(errno.into()))?;
        Ok(Self { file, index, granted })
    }

    /// Fails where the device lacks something of `required`.
    ///
    /// # Errors
    /// [`TunError::Offloads`] with what was granted.
    pub fn require(&self, required: Offloads) -> Result<(), TunError> {
        let granted = self.granted;
        let lacks = (required.checksum && !granted.checksum)
            || (required.tcp_segment && !granted.tcp_segment)
            || (required.udp_segment && !granted.udp_segment);
        if lacks { Err(TunError::Offloads { granted, required }) } else { Ok(()) }
    }

    /// The interface's index in its network namespace.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Reads one virtio-net header and packet into `buffer`; `None` where there is none now.
    ///
    /// `buffer` must hold [`MOST`] bytes: the kernel cuts what does not fit.
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes one virtio-net header and packet, given in parts.
    ///
    /// # Errors
    /// As writev(2): `InvalidInput` for a packet that is none.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        (&self.file).write_vectored(parts).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Asks for all offloads, then for fewer, until the kernel agrees.
fn grant(file: &File) -> Offloads {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let all = Offloads { checksum: true, tcp_segment: true, udp_segment: true };
    let offers = [
        (tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6, all),
        (tcp, Offloads { udp_segment: false, ..all }),
        (libc::TUN_F_CSUM, Offloads { checksum: true, ..Offloads::default() }),
    ];
    let agreed = offers.into_iter().find(|(flags, _)| {
        // SAFETY: TUNSETOFFLOAD takes its flags by value.
        let status =
            unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(*flags)) };
        check(status).is_ok()
    });
    agreed.map_or_else(Offloads::default, |(_, granted)| granted)
}

fn check(status: libc::c_int) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (run as root, or let users open it: chmod 666 /dev/net/tun)",
        io::ErrorKind::NotFound => " (load the module: modprobe tun)",
        _ => "",
    }
}

/// Bytes that one read may need: the largest IP packet and the header before it.
pub const MOST: usize = 65_536 + VnetHeader::LEN;

const NODE: &str = "/dev/net/tun";
