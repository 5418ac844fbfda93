//! What the wire carries around each IP packet.

use std::fmt;
use std::str::FromStr;

use farlink_wire::quantity::BitsPerSec;

/// How IP packets are framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Preamble, header, frame check sequence and gap of IEEE 802.3; short frames are padded.
    #[default]
    Ethernet,
    /// PPP in the payload of OC-192 (RFC 2615 with RFC 1662: flag, address, control, protocol, 32-bit check).
    Sonet,
    /// IP packets alone.
    None,
}

impl Framing {
    /// The payload rate of OC-192 (STS-192c): 9.58464 Gb/s.
    pub const OC192: u64 = 9_584_640_000;

    /// Bytes of the wire for an IP packet of `len` bytes.
    #[must_use]
    pub fn wire_len(self, len: u32) -> u32 {
        match self {
            Self::Ethernet => len.max(ETHERNET_LEAST) + ETHERNET_OVERHEAD,
            Self::Sonet => len + SONET_OVERHEAD,
            Self::None => len,
        }
    }

    /// Payload bits per second of TCP over IPv4 with timestamps, in full segments: the C of every formula.
    #[must_use]
    pub fn goodput(self, rate: BitsPerSec, mtu: u32) -> f64 {
        let payload = f64::from(mtu.saturating_sub(TCP_HEADERS));
        rate.get() as f64 * payload / f64::from(self.wire_len(mtu))
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "ethernet",
            Self::Sonet => "sonet",
            Self::None => "none",
        })
    }
}

/// A name that is no framing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no framing: choose ethernet, sonet or none")]
pub struct UnknownFraming(String);

impl FromStr for Framing {
    type Err = UnknownFraming;

    fn from_str(text: &str) -> Result<Self, UnknownFraming> {
        match text {
            "ethernet" => Ok(Self::Ethernet),
            "sonet" => Ok(Self::Sonet),
            "none" => Ok(Self::None),
            _ => Err(UnknownFraming(text.to_owned())),
        }
    }
}

/// Preamble and delimiter 8, header 14, check sequence 4, gap 12 (IEEE 802.3, 3.1.1 and 4.4.2).
const ETHERNET_OVERHEAD: u32 = 38;

/// Shortest payload of an Ethernet frame (IEEE 802.3, 3.2.8).
const ETHERNET_LEAST: u32 = 46;

/// Flag 1, address and control 2, protocol 2, check sequence 4 (RFC 1662, 3.1; RFC 2615, 3).
const SONET_OVERHEAD: u32 = 9;

/// IPv4 20, TCP 20, timestamps 12 (RFC 7323, appendix A).
const TCP_HEADERS: u32 = 52;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_of_ten_gigabit_ethernet_with_jumbo_frames() {
        let rate = BitsPerSec::new(10_000_000_000).unwrap();
        assert_eq!(Framing::Ethernet.goodput(rate, 9000).round(), 9_900_420_447.0);
        assert_eq!(Framing::Ethernet.goodput(rate, 1500).round(), 9_414_824_447.0);
    }

    #[test]
    fn pads_short_frames() {
        assert_eq!(Framing::Ethernet.wire_len(28), 84);
        assert_eq!(Framing::Sonet.wire_len(28), 37);
        assert_eq!(Framing::None.wire_len(28), 28);
    }
}
