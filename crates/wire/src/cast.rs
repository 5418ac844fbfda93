//! What the ends of a multicast session say: [`packet`]s to the whole group by UDP, and [`control`] frames between the sender and one
//! receiver over a connection of TLS.
//!
//! A *session* is one run of a sender. It numbers its *products* from 0, in the order in which they are first sent. A product is sent as
//! a *stream* of bytes, [`Shape`]: its [`Announcement`], its content, and the digest of its content. So what is lost of any of these is
//! asked for and repaired in one way, by byte ranges, and nothing has to be said of a product before it is sent. The stream is cut into
//! packets of one length, which the session fixes; all but the last of a product are full.
//!
//! ```text
//! receiver                              sender
//!   Join          ──── control ─────►
//!                 ◄─── control ──────   Welcome | Refuse        (the session, its key, where it is)
//!                 ◄═══ group ════════   data, parity, status
//!   Nack, Have,
//!   Report, Failed ─── control ─────►
//!                 ◄─── control ──────   Repair, Gone, Lost
//!                 ◄─── control ──────   End | BreakOff
//!   Leave         ──── control ─────►
//! ```
//!
//! A value that was decoded is within its bounds: nothing behind this module checks them again.

use std::fmt;

use serde::{Deserialize, Serialize};

mod announcement;
pub mod control;
pub mod packet;
mod shape;

pub use announcement::{Announcement, AnnouncementError};
pub use shape::{Part, Shape};

/// The longest stream of a product, bytes: 128 TiB, so that an offset has 48 bits.
pub const MOST_STREAM: u64 = 1 << 47;

/// Payload of a full packet, bytes: even, because parity is computed over pairs of bytes, and within a jumbo frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Payload(u16);

impl Payload {
    /// Least bytes: more than any header, so that a packet is mostly payload.
    pub const LEAST: u16 = 256;
    /// Most bytes: what a frame of 9,216 bytes carries, and no packet needs IP fragments.
    pub const MOST: u16 = 9000;

    /// The most that packets of at most `mtu` bytes carry beside `ip_udp` bytes of IP and UDP headers; `None` out of bounds.
    #[must_use]
    pub fn within(mtu: u32, ip_udp: u32) -> Option<Self> {
        let room = mtu.checked_sub(ip_udp)?.checked_sub(packet::OVERHEAD as u32)?;
        Self::try_from((room & !1).min(u32::from(Self::MOST)) as u16).ok()
    }

    /// In bytes.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for Payload {
    type Error = &'static str;

    fn try_from(bytes: u16) -> Result<Self, Self::Error> {
        match bytes {
            Self::LEAST..=Self::MOST if bytes.is_multiple_of(2) => Ok(Self(bytes)),
            _ => Err("the payload of a packet must be an even number of bytes, 256 to 9000"),
        }
    }
}

impl From<Payload> for u16 {
    fn from(payload: Payload) -> Self {
        payload.0
    }
}

/// Names a session: random, so that a group that another session uses is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for SessionId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(&text, 16) {
            Ok(number) if digits => Ok(Self(number)),
            _ => Err(serde::de::Error::custom("a session is 16 hexadecimal digits")),
        }
    }
}

/// How far a sender's first pass has come: everything before it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The product that is being sent, or the next one.
    pub product: u32,
    /// Bytes of its stream that were sent.
    pub offset: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_fills_the_packet_and_is_even() {
        assert_eq!(Payload::within(1500, 28).map(Payload::get), Some(1416));
        assert_eq!(Payload::within(1500, 48).map(Payload::get), Some(1396));
        assert_eq!(Payload::within(9001, 28).map(Payload::get), Some(8916));
        assert_eq!(Payload::within(65_535, 28).map(Payload::get), Some(9000));
        assert_eq!(Payload::within(300, 28), None);
        assert_eq!(Payload::within(20, 28), None);
        assert!(Payload::try_from(257).is_err() && Payload::try_from(9002).is_err());
    }

    #[test]
    fn a_session_reads_back_from_how_it_is_shown() {
        let session = SessionId(0x0123_4567_89ab_cdef);
        let text = serde_json::to_string(&session).unwrap();
        assert_eq!(text, "\"0123456789abcdef\"");
        assert_eq!(serde_json::from_str::<SessionId>(&text).unwrap(), session);
        assert!(serde_json::from_str::<SessionId>("\"+123456789abcdef\"").is_err());
    }
}
