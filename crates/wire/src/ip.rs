//! What an IP header says of a packet's way: from whom, for whom, and of what protocol.

use core::net::IpAddr;

/// The addresses and the protocol of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// From whom.
    pub source: IpAddr,
    /// For whom.
    pub destination: IpAddr,
    /// Protocol number of what follows: behind IPv6's hop-by-hop options, where there are any.
    pub protocol: u8,
    /// Where that starts.
    pub payload_at: usize,
}

impl IpHeader {
    /// The header of `packet`; `None` where it has not that of IPv4 (RFC 791, 3.1) or of IPv6 (RFC 8200, 3).
    #[must_use]
    pub fn decode(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Some(Self {
                source: <[u8; 4]>::try_from(packet.get(12..16)?).ok()?.into(),
                destination: <[u8; 4]>::try_from(packet.get(16..20)?).ok()?.into(),
                protocol: packet[9],
                payload_at: Some(usize::from(packet[0] & 15) * 4).filter(|len| *len >= 20)?,
            }),
            6 => {
                let (protocol, payload_at) = match *packet.get(6)? {
                    // RFC 8200, 4.3: the options' length is in units of 8 bytes, without the first.
                    HOP_BY_HOP => (*packet.get(40)?, 40 + (usize::from(*packet.get(41)?) + 1) * 8),
                    protocol => (protocol, 40),
                };
                Some(Self {
                    source: <[u8; 16]>::try_from(packet.get(8..24)?).ok()?.into(),
                    destination: <[u8; 16]>::try_from(packet.get(24..40)?).ok()?.into(),
                    protocol,
                    payload_at,
                })
            }
            _ => None,
        }
    }
}

/// IPv6's hop-by-hop options, as a protocol number.
const HOP_BY_HOP: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_before_the_payload() {
        let mut packet = [0; 24];
        (packet[0], packet[9]) = (0x46, 2);
        packet[16..20].copy_from_slice(&[224, 0, 0, 22]);
        let header = IpHeader::decode(&packet).unwrap();
        assert_eq!((header.protocol, header.payload_at), (2, 24));
        assert_eq!(header.destination, IpAddr::from([224, 0, 0, 22]));
        packet[0] = 0x44;
        assert_eq!(IpHeader::decode(&packet), None);
    }

    #[test]
    fn hop_by_hop_options_are_passed_over() {
        let mut packet = [0; 48];
        (packet[0], packet[6], packet[40]) = (0x60, 0, 58);
        packet[24] = 0xff;
        let header = IpHeader::decode(&packet).unwrap();
        assert_eq!((header.protocol, header.payload_at), (58, 48));
        assert!(header.destination.is_multicast());
        assert_eq!(IpHeader::decode(&packet[..40]), None);
    }

    proptest::proptest! {
        #[test]
        fn never_panics(packet in proptest::collection::vec(0u8.., 0..60)) {
            let _ = IpHeader::decode(&packet);
        }
    }
}
