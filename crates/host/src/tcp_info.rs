//! What the kernel says of a TCP connection (`TCP_INFO`).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use farlink_wire::quantity::Nanos;
use nix::errno::Errno;
use nix::libc::{self, socklen_t};

/// The part of `struct tcp_info` that the movers record. A field that the kernel is too old to have is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Segments that left and are not acknowledged.
    pub unacknowledged: u32,
    /// Largest segment that is sent, bytes of payload.
    pub send_mss: u32,
    /// Largest IP packet of the path, bytes.
    pub path_mtu: u32,
    /// Smoothed round-trip time.
    pub srtt: Nanos,
    /// Least round-trip time that was seen lately.
    pub min_rtt: Nanos,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Segments sent again so far.
    pub retransmits: u32,
    /// Pacing rate, bits per second; `None` where there is no limit.
    pub pacing_bps: Option<u64>,
    /// Bytes that the far kernel has acknowledged; of who dialled, its SYN is counted as one.
    pub acknowledged: u64,
    /// Time in which there was something to send or to be acknowledged.
    pub busy: Nanos,
    /// Of that, held up by the receiver's window.
    pub receiver_limited: Nanos,
    /// Of that, held up by the send buffer.
    pub buffer_limited: Nanos,
    /// Segments that have arrived, in whatever order; counted modulo 2^32.
    pub delivered: u32,
    /// How long ago the far kernel last answered.
    pub answered: Nanos,
    /// Bytes that the far end has room for, as it last said.
    pub window: u32,
    /// Bytes that it was given to send and has not sent once.
    pub unsent: u32,
    /// Bytes that this end can say it has room for at most: what the connection began with is for good (RFC 7323, 2.2).
    pub widest: u64,
}

impl TcpInfo {
    /// Congestion window, bytes.
    #[must_use]
    pub const fn cwnd_bytes(&self) -> u64 {
        self.cwnd as u64 * self.send_mss as u64
    }

    /// Of `socket`, as it is now.
    ///
    /// # Errors
    /// The kernel's, where `socket` is no TCP connection.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut bytes = [0u8; LEN];
        let mut length = LEN as socklen_t;
        // SAFETY: the descriptor is borrowed for the whole call, and the kernel writes at most `length` bytes
        // into `bytes`, which is that long, and the new length into `length`.
        let rc = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        Errno::result(rc)?;
        Ok(Self::decode(&bytes))
    }

    /// Offsets are those of `struct tcp_info` in Linux's `include/uapi/linux/tcp.h`; it only ever grows.
    fn decode(bytes: &[u8; LEN]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let micros = |at: usize| Nanos(u64::from(word(at)) * 1000);
        let long = |at: usize| {
            let mut value = [0; 8];
            value.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(value)
        };
        let pacing = long(104);
        Self {
            send_mss: word(16),
            unacknowledged: word(24),
            path_mtu: word(60),
            srtt: micros(68),
            // The kernel says "never measured" with all bits set.
            min_rtt: if word(148) == u32::MAX { Nanos::ZERO } else { micros(148) },
            cwnd: word(80),
            retransmits: word(100),
            pacing_bps: (pacing != u64::MAX && pacing != 0).then(|| pacing.saturating_mul(8)),
            acknowledged: long(120),
            busy: Nanos(long(168).saturating_mul(1000)),
            receiver_limited: Nanos(long(176).saturating_mul(1000)),
            buffer_limited: Nanos(long(184).saturating_mul(1000)),
            unsent: word(144),
            delivered: word(192),
            answered: Nanos(u64::from(word(56)) * 1_000_000),
            window: word(228),
            widest: u64::from(u16::MAX) << receive_scale(bytes[6]),
        }
    }
}

/// Of the byte that has both scales, the receiver's: a bit field, which begins at the low end where numbers do.
const fn receive_scale(both: u8) -> u8 {
    if cfg!(target_endian = "little") { both >> 4 } else { both & 0xf }
}

/// Bytes up to and including `tcpi_snd_wnd`.
const LEN: usize = 232;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_fresh_connection_has_a_window_and_a_round_trip_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = TcpInfo::of(&near).unwrap();
        assert!(info.cwnd >= 1 && info.send_mss >= 500, "{info:?}");
        assert!(info.min_rtt > Nanos::ZERO && info.min_rtt < Nanos(1_000_000_000), "{info:?}");
        assert_eq!(info.retransmits, 0);
        assert!(info.path_mtu >= 1280, "{info:?}");
        assert!(info.widest >= 65_535 && info.widest < 1 << 30, "{info:?}");
    }

    #[test]
    fn no_limit_is_no_rate() {
        let mut bytes = [0; LEN];
        bytes[104..112].fill(0xff);
        assert_eq!(TcpInfo::decode(&bytes).pacing_bps, None);
        bytes[104..112].copy_from_slice(&125u64.to_ne_bytes());
        assert_eq!(TcpInfo::decode(&bytes).pacing_bps, Some(1000));
    }

    #[test]
    fn a_file_has_none() {
        assert!(TcpInfo::of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
