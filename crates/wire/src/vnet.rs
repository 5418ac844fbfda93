//! The virtio-net header before every packet of a TUN device opened with `IFF_VNET_HDR`
//! (`struct virtio_net_hdr`, include/uapi/linux/virtio_net.h; virtio 1.2, 5.1.6). Host byte order, 10 bytes.

/// What the kernel says of a packet's checksum and of the segments that it stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`Self::NEEDS_CHECKSUM`] and others.
    pub flags: u8,
    /// [`Self::GSO_NONE`] and others, perhaps with [`Self::GSO_ECN`].
    pub gso_type: u8,
    /// Bytes of headers that each segment repeats, as the kernel hints.
    pub header_len: u16,
    /// Payload bytes of each segment but the last.
    pub gso_size: u16,
    /// Where the sum of an unfinished checksum starts.
    pub checksum_start: u16,
    /// Where the checksum stands, from `checksum_start`.
    pub checksum_offset: u16,
}

impl VnetHeader {
    /// Bytes of the header.
    pub const LEN: usize = 10;
    /// The checksum field holds the pseudo-header's sum only (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    pub const NEEDS_CHECKSUM: u8 = 1;
    /// One segment.
    pub const GSO_NONE: u8 = 0;
    /// TCP over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// TCP over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// UDP, each segment a datagram.
    pub const GSO_UDP_L4: u8 = 5;
    /// The first segment alone carries CWR.
    pub const GSO_ECN: u8 = 0x80;

    /// The header at the start of `bytes`; `None` where there are fewer than [`Self::LEN`].
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self {
            flags: b[0],
            gso_type: b[1],
            header_len: u16::from_ne_bytes([b[2], b[3]]),
            gso_size: u16::from_ne_bytes([b[4], b[5]]),
            checksum_start: u16::from_ne_bytes([b[6], b[7]]),
            checksum_offset: u16::from_ne_bytes([b[8], b[9]]),
        })
    }

    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[0] = self.flags;
        b[1] = self.gso_type;
        b[2..4].copy_from_slice(&self.header_len.to_ne_bytes());
        b[4..6].copy_from_slice(&self.gso_size.to_ne_bytes());
        b[6..8].copy_from_slice(&self.checksum_start.to_ne_bytes());
        b[8..10].copy_from_slice(&self.checksum_offset.to_ne_bytes());
        b
    }

    /// The kind of segmentation without the ECN mark.
    #[must_use]
    pub const fn segmentation(&self) -> u8 {
        self.gso_type & !Self::GSO_ECN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn reads_back_what_it_wrote(bytes in proptest::array::uniform10(0u8..)) {
            proptest::prop_assert_eq!(VnetHeader::decode(&bytes).unwrap().encode(), bytes);
        }
    }

    #[test]
    fn a_short_header_is_none() {
        assert_eq!(VnetHeader::decode(&[0; 9]), None);
    }
}
