//! A super-packet: one IP packet of up to 64 KiB that stands for many segments of the wire
//! (segmentation offload), and the runs of its segments that survive the link.
//!
//! What Linux would have sent is the reference: `tcp_gso_segment` (net/ipv4/tcp_offload.c),
//! `__udp_gso_segment` (net/ipv4/udp_offload.c), `inet_gso_segment` (net/ipv4/af_inet.c).

use std::ops::Range;

use crate::checksum::{fold, sum};
use crate::vnet::VnetHeader;

/// What there is to know of a packet before any of it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperPacket {
    vnet: VnetHeader,
    version: Version,
    transport: Transport,
    /// Where the transport header starts.
    transport_at: u16,
    /// Bytes of headers that each segment repeats.
    header_len: u16,
    /// Payload bytes of each segment but the last.
    segment_payload: u16,
    segments: u16,
    len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V4,
    V6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
    /// Anything that is one segment: nothing of it is ever rewritten but a checksum.
    Whole,
}

/// Why a packet was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Neither 4 nor 6.
    #[error("IP version {version}")]
    Version {
        /// As found.
        version: u8,
    },
    /// Less than the fixed part.
    #[error("an IPv4 header of {len} bytes, of 20 at least")]
    HeaderLen {
        /// As it says.
        len: usize,
    },
    /// Headers reach past the end.
    #[error("{len} bytes end inside the headers")]
    Truncated {
        /// Bytes given.
        len: usize,
    },
    /// A kind of segmentation that was never offered.
    #[error("segmentation type {gso_type} of protocol {protocol}")]
    Segmentation {
        /// As found.
        gso_type: u8,
        /// IP protocol number.
        protocol: u8,
    },
    /// Segments without a size.
    #[error("segment size {gso_size} for {payload} bytes of payload")]
    SegmentSize {
        /// As found.
        gso_size: u16,
        /// Bytes to segment.
        payload: usize,
    },
}

impl SuperPacket {
    /// Longest headers of a packet that is segmented: IPv6 with extension headers fits, and TCP's 60.
    pub const MOST_HEADERS: usize = 256;

    /// Understands `packet`, an IP packet as the kernel handed it over with `vnet`.
    ///
    /// # Errors
    /// [`PacketError`] where the packet is not what `vnet` says.
    pub fn parse(vnet: VnetHeader, packet: &[u8]) -> Result<Self, PacketError> {
        let truncated = PacketError::Truncated { len: packet.len() };
        let (version, protocol, ip_len) = match packet.first().ok_or(truncated.clone())? >> 4 {
            4 if packet.len() >= LEAST_V4 => (Version::V4, packet[9], usize::from(packet[0] & 15) * 4),
            6 if packet.len() >= 40 => (Version::V6, packet[6], 40),
            4 | 6 => return Err(truncated),
            version => return Err(PacketError::Version { version }),
        };
        if ip_len < LEAST_V4 {
            return Err(PacketError::HeaderLen { len: ip_len });
        }
        let whole = Self {
            vnet,
            version,
            transport: Transport::Whole,
            transport_at: 0,
            header_len: 0,
            segment_payload: 0,
            segments: 1,
            len: packet.len() as u32,
        };
        let needs = vnet.flags & VnetHeader::NEEDS_CHECKSUM != 0;
        let checksum_at = usize::from(vnet.checksum_start) + usize::from(vnet.checksum_offset);
        if needs && checksum_at + 2 > packet.len() {
            return Err(truncated);
        }
        // Extension headers stand between IPv6 and the transport: the kernel's checksum mark says where that starts.
        let transport_at = if needs { usize::from(vnet.checksum_start) } else { ip_len };
        let refused = PacketError::Segmentation { gso_type: vnet.gso_type, protocol };
        let transport = match (vnet.segmentation(), version) {
            (VnetHeader::GSO_NONE, _) => return Ok(whole),
            (VnetHeader::GSO_TCPV4, Version::V4) | (VnetHeader::GSO_TCPV6, Version::V6) => Transport::Tcp,
            (VnetHeader::GSO_UDP_L4, _) => Transport::Udp,
            _ => return Err(refused),
        };
        let header_len = match transport {
            Transport::Tcp => match packet.get(transport_at + 12) {
                Some(offset) => transport_at + usize::from(offset >> 4) * 4,
                None => return Err(truncated),
            },
            _ => transport_at + 8,
        };
        let fixed = if transport == Transport::Tcp { 20 } else { 8 };
        if transport_at < ip_len || header_len < transport_at + fixed || header_len > Self::MOST_HEADERS {
            return Err(refused);
        }
        let payload = packet.len().checked_sub(header_len).ok_or(truncated)?;
        let size = PacketError::SegmentSize { gso_size: vnet.gso_size, payload };
        if vnet.gso_size == 0 || payload == 0 {
            return Err(size);
        }
        let segments = u16::try_from(payload.div_ceil(usize::from(vnet.gso_size))).map_err(|_| size)?;
        if segments == 1 {
            return Ok(whole);
        }
        Ok(Self {
            transport,
            transport_at: transport_at as u16,
            header_len: header_len as u16,
            segment_payload: vnet.gso_size,
            segments,
            ..whole
        })
    }

    /// Segments of the wire.
    #[must_use]
    pub const fn segments(&self) -> u16 {
        self.segments
    }

    /// Bytes of an IP packet of the wire: segment `index`, headers and all.
    #[must_use]
    pub fn segment_len(&self, index: u16) -> u32 {
        if self.segments == 1 {
            return self.len;
        }
        let payload = self.payload_of(index..index + 1);
        u32::from(self.header_len) + payload.len() as u32
    }

    /// Where the payload of `run` stands in the packet.
    fn payload_of(&self, run: Range<u16>) -> Range<usize> {
        let at = |index: u16| {
            let offset =
                usize::from(self.header_len) + usize::from(index) * usize::from(self.segment_payload);
            offset.min(self.len as usize)
        };
        at(run.start)..at(run.end)
    }

    /// Whether `run` is all of the packet, which then goes on as it came.
    #[must_use]
    pub const fn is_whole(&self, run: &Range<u16>) -> bool {
        run.start == 0 && run.end == self.segments
    }

    /// Makes the headers of `run` and says where its payload stands in `packet`.
    ///
    /// `head` is cleared and receives the virtio-net header and the packet's headers; the run is `head`
    /// followed by the payload. Sequence numbers, identifications, lengths and checksums are the run's own.
    pub fn cut(&self, packet: &[u8], run: &Range<u16>, head: &mut Vec<u8>) -> Range<usize> {
        head.clear();
        if self.is_whole(run) {
            head.extend_from_slice(&self.vnet.encode());
            return 0..packet.len();
        }
        let single = run.end - run.start == 1;
        let vnet = VnetHeader {
            gso_type: if single { VnetHeader::GSO_NONE } else { self.vnet.gso_type },
            gso_size: if single { 0 } else { self.vnet.gso_size },
            header_len: self.header_len,
            flags: VnetHeader::NEEDS_CHECKSUM,
            checksum_start: self.transport_at,
            checksum_offset: if self.transport == Transport::Tcp { 16 } else { 6 },
        };
        head.extend_from_slice(&vnet.encode());
        head.extend_from_slice(&packet[..usize::from(self.header_len)]);
        let payload = self.payload_of(run.clone());
        let (ip, transport) = head[VnetHeader::LEN..].split_at_mut(usize::from(self.transport_at));
        let transport_len = transport.len() + payload.len();
        match self.transport {
            Transport::Tcp => self.cut_tcp(transport, run),
            Transport::Udp => put16(transport, 4, transport_len as u16),
            Transport::Whole => {}
        }
        let pseudo = self.cut_ip(ip, transport_len, run.start);
        put16(transport, usize::from(vnet.checksum_offset), fold(pseudo));
        payload
    }

    fn cut_tcp(&self, tcp: &mut [u8], run: &Range<u16>) {
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let skipped = u32::from(run.start) * u32::from(self.segment_payload);
        tcp[4..8].copy_from_slice(&sequence.wrapping_add(skipped).to_be_bytes());
        if run.end != self.segments {
            tcp[13] &= !(TCP_FIN | TCP_PSH);
        }
        if run.start != 0 {
            tcp[13] &= !TCP_CWR;
        }
    }

    /// Sets lengths, identification and header checksum; gives the pseudo-header's sum.
    fn cut_ip(&self, ip: &mut [u8], transport_len: usize, first: u16) -> u64 {
        match self.version {
            Version::V4 => {
                let total = ip.len() + transport_len;
                put16(ip, 2, total as u16);
                put16(ip, 4, u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(first));
                put16(ip, 10, 0);
                let checksum = !fold(sum(0, ip));
                put16(ip, 10, checksum);
                sum(u64::from(ip[9]) + transport_len as u64, &ip[12..20])
            }
            Version::V6 => {
                let length = ip.len() - 40 + transport_len;
                put16(ip, 4, length as u16);
                let protocol = if self.transport == Transport::Tcp { 6 } else { 17 };
                sum(protocol + transport_len as u64, &ip[8..40])
            }
        }
    }

    /// Writes segment `index` as it would stand on a wire: checksum completed, no marks for the receiver.
    ///
    /// `out` is cleared and receives a plain virtio-net header and the packet.
    pub fn complete(&self, packet: &[u8], index: u16, out: &mut Vec<u8>) {
        let payload = self.cut(packet, &(index..index + 1), out);
        out.extend_from_slice(&packet[payload]);
        let Some(vnet) = VnetHeader::decode(out) else { return };
        let plain = VnetHeader::default().encode();
        out[..VnetHeader::LEN].copy_from_slice(&plain);
        if vnet.flags & VnetHeader::NEEDS_CHECKSUM == 0 {
            return;
        }
        let covered = &mut out[VnetHeader::LEN + usize::from(vnet.checksum_start)..];
        let checksum = match !fold(sum(0, covered)) {
            // RFC 768: a UDP checksum of zero means none was made; TCP takes either form of zero.
            0 => 0xffff,
            checksum => checksum,
        };
        put16(covered, usize::from(vnet.checksum_offset), checksum);
    }
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The fixed part of IPv4's header (RFC 791, 3.1).
const LEAST_V4: usize = 20;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

#[cfg(test)]
mod tests;
