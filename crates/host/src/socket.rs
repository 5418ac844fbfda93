//! TCP sockets: what a mover asks of them, and what the kernel granted.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

use farlink_wire::quantity::Bytes;
use nix::errno::Errno;
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::sendfile::sendfile64;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::process::page_bytes;

/// Which of a socket's two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// `SO_SNDBUF`.
    Send,
    /// `SO_RCVBUF`.
    Receive,
}

impl Buffer {
    /// The setting that bounds what an ordinary process may ask for.
    #[must_use]
    pub const fn limit(self) -> &'static str {
        match self {
            Self::Send => "net.core.wmem_max",
            Self::Receive => "net.core.rmem_max",
        }
    }
}

/// Asks for a buffer of `bytes`, beyond the host's limit where this process may, and returns what was granted:
/// half of what the kernel accounts, the other half being its own overhead. A buffer that is larger than any that this process may
/// ask for, as one that a connection has of its listener, stays as it is.
///
/// # Errors
/// The kernel's, where the socket takes no such option at all.
pub fn set_buffer(socket: impl AsFd, buffer: Buffer, bytes: u32) -> io::Result<u64> {
    let wanted = bytes as usize;
    let forced = match buffer {
        Buffer::Send => setsockopt(&socket, sockopt::SndBufForce, &wanted),
        Buffer::Receive => setsockopt(&socket, sockopt::RcvBufForce, &wanted),
    };
    // The kernel would make do with its limit, also where that is less than there is.
    if forced.is_err() && granted_buffer(&socket, buffer)? <= most_granted(buffer, wanted)? {
        set_within_limit(&socket, buffer, wanted)?;
    }
    granted_buffer(socket, buffer)
}

/// A buffer as it was granted: half of what the kernel accounts.
///
/// # Errors
/// The kernel's.
pub fn granted_buffer(socket: impl AsFd, buffer: Buffer) -> io::Result<u64> {
    Ok(buffer_size(socket, buffer)? / 2)
}

/// What this process is granted of `wanted` bytes, which a fresh socket tells: not every network namespace shows the limit. Where that is
/// all of them, nothing larger need be kept.
fn most_granted(buffer: Buffer, wanted: usize) -> io::Result<u64> {
    let fresh = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    set_within_limit(&fresh, buffer, wanted)?;
    let granted = granted_buffer(&fresh, buffer)?;
    Ok(if granted < wanted as u64 { granted } else { u64::MAX })
}

fn set_within_limit(socket: impl AsFd, buffer: Buffer, wanted: usize) -> io::Result<()> {
    match buffer {
        Buffer::Send => setsockopt(&socket, sockopt::SndBuf, &wanted),
        Buffer::Receive => setsockopt(&socket, sockopt::RcvBuf, &wanted),
    }?;
    Ok(())
}

/// A buffer's size as the kernel accounts it, its overhead included.
///
/// # Errors
/// The kernel's.
pub fn buffer_size(socket: impl AsFd, buffer: Buffer) -> io::Result<u64> {
    let size = match buffer {
        Buffer::Send => getsockopt(&socket, sockopt::SndBuf),
        Buffer::Receive => getsockopt(&socket, sockopt::RcvBuf),
    }?;
    Ok(size as u64)
}

/// The most bytes that a connection of this network namespace is sure to have on its way where the kernel tunes its buffers, whether it
/// sends or receives: half of the smaller buffer, as the kernel counts packets' memory, not payload. `None` where that is not known.
#[must_use]
pub fn greatest_window() -> Option<u64> {
    Some(greatest_receive_window()?.min(greatest_buffer("tcp_wmem")? / 2))
}

/// The same of a receiver's buffer alone.
#[must_use]
pub fn greatest_receive_window() -> Option<u64> {
    Some(greatest_buffer("tcp_rmem")? / 2)
}

fn greatest_buffer(setting: &str) -> Option<u64> {
    let text = fs::read_to_string(Path::new("/proc/sys/net/ipv4").join(setting)).ok()?;
    text.split_whitespace().nth(2)?.parse().ok()
}

/// Memory that the kernel holds for what came on `socket` and was not read, in order or not, its overhead included (`SO_MEMINFO`).
///
/// # Errors
/// The kernel's.
pub fn received_memory(socket: impl AsFd) -> io::Result<u64> {
    let mut parts = [0_u32; MEMORY_PARTS];
    let mut length = size_of_val(&parts) as libc::socklen_t;
    // SAFETY: the descriptor is borrowed for the whole call, and the kernel writes at most `length` bytes into `parts`, which is that
    // long, and the new length into `length`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            parts.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    Errno::result(status)?;
    Ok(parts[0].into())
}

/// `SK_MEMINFO_VARS` of the kernel's include/uapi/linux/sock_diag.h; the first is `SK_MEMINFO_RMEM_ALLOC`.
const MEMORY_PARTS: usize = 9;

/// What all TCP connections of the host together may hold before the kernel holds each short: the second number of `tcp_mem`. Where this
/// network namespace does not show it, a 16th of the memory, the kernel's own default (`tcp_init_mem` in its net/ipv4/tcp.c).
#[must_use]
pub fn memory_before_pressure() -> Bytes {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let pages =
        read("/proc/sys/net/ipv4/tcp_mem").split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    let of_memory = || {
        let meminfo = read("/proc/meminfo");
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kibibytes = total.and_then(|total| total.split_whitespace().next()?.parse::<u64>().ok());
        kibibytes.map_or(0, |kibibytes| kibibytes * 1024 / 16)
    };
    Bytes(pages.map_or_else(of_memory, |pages: u64| pages.saturating_mul(page_bytes())))
}

/// Chooses the congestion control. Read it back with [`congestion`]: the two must agree.
///
/// # Errors
/// `ENOENT` where the kernel has none of that name, `EPERM` where this process may not use it.
pub fn set_congestion(socket: impl AsFd, name: &str) -> io::Result<()> {
    Ok(setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(name))?)
}

/// The congestion control of a socket.
///
/// # Errors
/// The kernel's.
pub fn congestion(socket: impl AsFd) -> io::Result<String> {
    let name = getsockopt(&socket, sockopt::TcpCongestion)?;
    // The kernel fills the name up with zeros.
    Ok(name.to_string_lossy().trim_end_matches('\0').to_owned())
}

/// The congestion control that sockets of this host have where nobody chooses.
///
/// # Errors
/// The kernel's.
pub fn default_congestion() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?.trim().to_owned())
}

/// The congestion controls that sockets of this host may choose, as the kernel lists them.
#[must_use]
pub fn available_congestion() -> Vec<String> {
    let list = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    list.split_whitespace().map(str::to_owned).collect()
}

/// Makes the kernel pace what it sends: twice the window a round trip while it grows, 1.2 times later
/// (`tcp_pacing_ss_ratio`, `tcp_pacing_ca_ratio`), instead of sending as fast as acknowledgements come.
///
/// A greatest rate, however great, turns pacing on (`SO_MAX_PACING_RATE` in the kernel's net/core/sock.c).
///
/// # Errors
/// The kernel's.
pub fn pace(socket: impl AsFd) -> io::Result<()> {
    set_greatest_rate(socket, u64::MAX - 1)
}

/// Sends no faster than `bytes` a second, as the congestion control understands it (`SO_MAX_PACING_RATE`): `circuit`
/// takes it for the wire's rate that was declared.
///
/// # Errors
/// The kernel's.
pub fn set_greatest_rate(socket: impl AsFd, bytes: u64) -> io::Result<()> {
    let rate = libc::c_ulong::try_from(bytes).unwrap_or(libc::c_ulong::MAX - 1);
    set_option(socket, (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE), &rate)
}

/// Sets the option `name` of a protocol, or of all sockets, that neither `nix` nor `socket2` knows.
pub(crate) fn set_option<T>(
    socket: impl AsFd,
    (level, name): (libc::c_int, libc::c_int),
    value: &T,
) -> io::Result<()> {
    // SAFETY: the descriptor and the value are borrowed for the whole call, and the kernel reads no more than the value's size.
    let status = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            core::ptr::from_ref(value).cast(),
            size_of_val(value) as libc::socklen_t,
        )
    };
    Ok(Errno::result(status).map(drop)?)
}

/// Takes no more bytes into the send buffer while `bytes` in it were never sent (`TCP_NOTSENT_LOWAT`).
///
/// # Errors
/// The kernel's.
pub fn set_unsent_limit(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_notsent_lowat(bytes)
}

/// Has the kernel go on tuning the buffers of a connection from what they are, also where somebody fixed them (`SO_BUF_LOCK`, since
/// Linux 5.14).
///
/// # Errors
/// The kernel's.
pub fn tune_buffers(socket: impl AsFd) -> io::Result<()> {
    set_option(socket, (libc::SOL_SOCKET, libc::SO_BUF_LOCK), &libc::c_int::from(0u8))
}

/// Has connections that `socket` opens, or takes, offer a window of `bytes` from their first segment that may say so, or as much as this
/// process may ask for; the kernel goes on tuning from there. Where it cannot go on (before Linux 5.14), or has as much, nothing changes.
///
/// # Errors
/// The kernel's.
pub fn begin_with_window(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    if u64::from(bytes) <= granted_buffer(&socket, Buffer::Receive)? || tune_buffers(&socket).is_err() {
        return Ok(());
    }
    set_buffer(&socket, Buffer::Receive, bytes)?;
    tune_buffers(socket)
}

/// Has the kernel offer a window of `bytes`, up to half of what it gives any connection (`tcp_rmem`), from the next segment on, instead of
/// doubling it a round trip from 64 KiB; it goes on tuning from there. A buffer that somebody fixed stays.
///
/// Whoever is to be woken only when so much has come needs room for it (`tcp_set_rcvlowat` of the kernel's net/ipv4/tcp.c), and keeps that
/// when woken for every byte again.
///
/// # Errors
/// The kernel's.
pub fn offer_window(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let wake_at = |bytes: libc::c_int| set_option(&socket, (libc::SOL_SOCKET, libc::SO_RCVLOWAT), &bytes);
    wake_at(libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX))?;
    wake_at(1)
}

/// Bytes that `socket` was given to send and the far kernel has not acknowledged (`SIOCOUTQ`, tcp(7)).
///
/// # Errors
/// The kernel's.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, which is TIOCOUTQ's number, writes one int, which outlives the call; so does the descriptor.
    let rc = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    Errno::result(rc)?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Has the kernel ask the far one after `time` without a word, and again up to `retries` times, each after `interval`: where nothing comes
/// back the connection ends with `ETIMEDOUT`. Who only reads would not find out otherwise that a flow is dropped on its way.
///
/// # Errors
/// The kernel's.
pub fn keep_alive(socket: impl AsFd, time: Duration, interval: Duration, retries: u32) -> io::Result<()> {
    let wanted = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(retries);
    SockRef::from(&socket).set_tcp_keepalive(&wanted)
}

/// Makes closing throw away what was not yet sent, and tell the far side so, rather than deliver it first.
///
/// # Errors
/// The kernel's.
pub fn discard_on_close(socket: impl AsFd) -> io::Result<()> {
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))
}

/// A socket for a connection to `address`, not yet connected, that never blocks.
///
/// # Errors
/// The kernel's.
pub fn unconnected(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Gives a socket that is not connected yet the address of this host that it connects from.
///
/// # Errors
/// The kernel's, where this host has no such address or the other end's is of another family.
pub fn bind(stream: &TcpStream, address: IpAddr) -> io::Result<()> {
    SockRef::from(stream).bind(&SocketAddr::new(address, 0).into())
}

/// Starts to connect; the socket becomes writable when [`connected`] can tell how that went.
///
/// # Errors
/// What is known at once: no route, no permission.
pub fn start_connecting(stream: &TcpStream, address: SocketAddr) -> io::Result<()> {
    match SockRef::from(stream).connect(&address.into()) {
        Err(error) if is_connecting(&error) => Ok(()),
        other => other,
    }
}

/// Whether a connection is only on its way.
#[must_use]
pub(crate) fn is_connecting(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS)
}

/// How connecting went.
///
/// # Errors
/// Why it failed: refused, timed out, unreachable.
pub fn connected(stream: &TcpStream) -> io::Result<()> {
    stream.take_error()?.map_or(Ok(()), Err)
}

/// Listens on `address` alone: an IPv6 address takes no IPv4 connections. With `receive`, connections that come have that much
/// receive buffer from the start, or as much as this process may ask for; their first window is then as large.
///
/// # Errors
/// The kernel's: in use, not an address of this host, no permission.
pub fn listen(address: SocketAddr, backlog: u16, receive: Option<u32>) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if let Some(bytes) = receive {
        set_buffer(&socket, Buffer::Receive, bytes)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog.into())?;
    Ok(socket.into())
}

/// Whether listening failed because this host has no such address, or no such kind of address.
#[must_use]
pub fn lacks_address(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT))
}

/// A file of `content` that lives in memory alone.
///
/// # Errors
/// The kernel's: no memory, no descriptors.
pub fn memory_file(name: &str, content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    file.write_all(content)?;
    Ok(file)
}

/// Sends up to `count` bytes of `file` from `offset` without a copy in this process.
///
/// # Errors
/// `EAGAIN` where the socket's buffer is full; the connection's end otherwise.
pub fn send_file(socket: impl AsFd, file: &File, offset: u64, count: usize) -> io::Result<usize> {
    let mut offset = i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
    Ok(sendfile64(&socket, file, Some(&mut offset), count)?)
}

/// Sends up to all of `bytes`, and tells the kernel that more follows: it waits for that to fill the segment.
///
/// # Errors
/// `EAGAIN` where the socket's buffer is full; the connection's end otherwise.
pub fn send_with_more(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    SockRef::from(&socket).send_with_flags(bytes, libc::MSG_MORE | libc::MSG_NOSIGNAL)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::tcp_info::TcpInfo;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_granted_buffer_is_what_was_asked() {
        let (near, _far) = pair();
        for buffer in [Buffer::Send, Buffer::Receive] {
            assert_eq!(set_buffer(&near, buffer, 100_000).unwrap(), 100_000);
            assert_eq!(buffer_size(&near, buffer).unwrap(), 200_000);
        }
    }

    #[test]
    fn connections_begin_with_the_window_of_their_listener_and_are_tuned_from_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        begin_with_window(&listener, 4 << 20).unwrap();
        let granted = granted_buffer(&listener, Buffer::Receive).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        near.write_all(&[1]).unwrap();
        while unacknowledged(&near).unwrap() > 0 {
            std::thread::yield_now();
        }
        let window = u64::from(TcpInfo::of(&near).unwrap().window);
        // The window of a SYN-ACK has sixteen bits; all but its head is offered with the next segment.
        assert!(window >= granted / 2, "{window} of {granted}");
        let fixed = set_buffer(&far, Buffer::Receive, 50_000).unwrap();
        tune_buffers(&far).unwrap();
        offer_window(&far, 1 << 20).unwrap();
        assert!(granted_buffer(&far, Buffer::Receive).unwrap() > fixed);
    }

    #[test]
    fn a_window_is_offered_at_once_and_a_byte_still_wakes() {
        let (mut near, mut far) = pair();
        let offered = 1 << 20;
        let most = fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
        let most = most.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap();
        offer_window(&far, offered as u32).unwrap();
        assert!(buffer_size(&far, Buffer::Receive).unwrap() >= offered.min(most / 2));
        far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        near.write_all(&[1]).unwrap();
        far.read_exact(&mut [0]).unwrap();
        set_buffer(&far, Buffer::Receive, 100_000).unwrap();
        offer_window(&far, offered as u32).unwrap();
        assert_eq!(granted_buffer(&far, Buffer::Receive).unwrap(), 100_000);
    }

    #[test]
    fn a_silent_far_kernel_is_asked_as_often_as_was_said() {
        let (near, _far) = pair();
        let second = Duration::from_secs;
        keep_alive(&near, second(20), second(10), 3).unwrap();
        let socket = SockRef::from(&near);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), second(20));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), second(10));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
    }

    #[test]
    fn what_was_sent_is_acknowledged_or_waits_to_be() {
        let (mut near, mut far) = pair();
        near.write_all(b"five!").unwrap();
        far.read_exact(&mut [0; 5]).unwrap();
        let of = || TcpInfo::of(&near).unwrap().acknowledged + unacknowledged(&near).unwrap();
        // Who dialled has its SYN counted.
        assert_eq!(of(), 6);
    }

    #[test]
    fn what_came_and_was_not_read_takes_memory() {
        let (mut near, mut far) = pair();
        assert_eq!(received_memory(&far).unwrap(), 0);
        near.write_all(&[1; 10_000]).unwrap();
        far.peek(&mut [0]).unwrap();
        assert!(received_memory(&far).unwrap() > 0);
        far.read_exact(&mut [0; 10_000]).unwrap();
        assert_eq!(received_memory(&far).unwrap(), 0);
        assert!(memory_before_pressure() > Bytes(1 << 20));
    }

    #[test]
    fn congestion_control_reads_back() {
        let (near, _far) = pair();
        assert!(available_congestion().contains(&congestion(&near).unwrap()));
        set_congestion(&near, "reno").unwrap();
        assert_eq!(congestion(&near).unwrap(), "reno");
        assert_eq!(set_congestion(&near, "none_such").unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn a_memory_file_is_sent_as_it_is() {
        let (near, mut far) = pair();
        let file = memory_file("test", b"0123456789").unwrap();
        assert_eq!(send_file(&near, &file, 4, 3).unwrap(), 3);
        drop(near);
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"456");
    }
}
