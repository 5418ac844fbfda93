use super::*;

/// A packet as Linux hands it over: partial checksum, `payload` bytes in segments of `gso_size`.
fn tcp(version: u8, payload: usize, gso_size: u16) -> (VnetHeader, Vec<u8>) {
    let mut packet = ip_header(version, 6, 32 + payload);
    let transport_at = packet.len();
    let mut header = [0u8; 32];
    header[..4].copy_from_slice(&[0x13, 0x88, 0x14, 0x51]);
    header[4..8].copy_from_slice(&0xffff_fff0u32.to_be_bytes());
    header[12] = 8 << 4;
    header[13] = TCP_FIN | TCP_PSH | TCP_CWR | 0x10;
    packet.extend_from_slice(&header);
    packet.extend((0..payload).map(|i| (i * 7 + i / 251) as u8));
    let gso_type = if version == 4 { VnetHeader::GSO_TCPV4 } else { VnetHeader::GSO_TCPV6 };
    (vnet(gso_type, gso_size, transport_at, 16), packet)
}

fn udp(version: u8, payload: usize, gso_size: u16) -> (VnetHeader, Vec<u8>) {
    let mut packet = ip_header(version, 17, 8 + payload);
    let transport_at = packet.len();
    packet.extend_from_slice(&[0x13, 0x88, 0x14, 0x51]);
    packet.extend_from_slice(&((8 + payload) as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet.extend((0..payload).map(|i| i as u8));
    (vnet(VnetHeader::GSO_UDP_L4, gso_size, transport_at, 6), packet)
}

fn vnet(gso_type: u8, gso_size: u16, transport_at: usize, checksum_offset: u16) -> VnetHeader {
    VnetHeader {
        flags: VnetHeader::NEEDS_CHECKSUM,
        gso_type,
        header_len: 0,
        gso_size,
        checksum_start: transport_at as u16,
        checksum_offset,
    }
}

fn ip_header(version: u8, protocol: u8, body: usize) -> Vec<u8> {
    if version == 4 {
        let mut ip =
            vec![0x45, 0, 0, 0, 0x12, 0xff, 0x40, 0, 64, protocol, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
        put16(&mut ip, 2, (20 + body) as u16);
        ip
    } else {
        let mut ip = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
        put16(&mut ip, 4, body as u16);
        ip.extend((0..32).map(|i| i as u8 * 3));
        ip
    }
}

/// The verdict of a receiver that trusts nothing: header and transport checksums of a complete packet.
fn verified(packet: &[u8]) -> bool {
    let (ip_len, pseudo) = match packet[0] >> 4 {
        4 => {
            assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
            if fold(sum(0, &packet[..20])) != 0xffff {
                return false;
            }
            (20, sum(u64::from(packet[9]) + packet.len() as u64 - 20, &packet[12..20]))
        }
        _ => {
            assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - 40);
            (40, sum(u64::from(packet[6]) + packet.len() as u64 - 40, &packet[8..40]))
        }
    };
    fold(sum(pseudo, &packet[ip_len..])) == 0xffff
}

/// The segments of `run` completed one by one, as the wire would carry them.
fn segments_of(vnet: VnetHeader, packet: &[u8], run: Range<u16>) -> Vec<Vec<u8>> {
    let parsed = SuperPacket::parse(vnet, packet).unwrap();
    run.map(|index| {
        let mut out = Vec::new();
        parsed.complete(packet, index, &mut out);
        assert_eq!(out.len() - VnetHeader::LEN, parsed.segment_len(index) as usize);
        out.split_off(VnetHeader::LEN)
    })
    .collect()
}

#[test]
fn completes_segments_that_a_receiver_verifies() {
    for version in [4, 6] {
        for (vnet, packet) in [tcp(version, 20_001, 8948), udp(version, 5_000, 1452)] {
            let segments = SuperPacket::parse(vnet, &packet).unwrap().segments();
            for segment in segments_of(vnet, &packet, 0..segments) {
                assert!(verified(&segment), "IPv{version}");
            }
        }
    }
}

#[test]
fn numbers_and_flags_are_each_segments_own() {
    let (vnet, packet) = tcp(4, 25_000, 8948);
    let segments = segments_of(vnet, &packet, 0..3);
    let field = |segment: &[u8]| {
        let sequence = u32::from_be_bytes([segment[24], segment[25], segment[26], segment[27]]);
        (u16::from_be_bytes([segment[4], segment[5]]), sequence, segment[33])
    };
    assert_eq!(field(&segments[0]), (0x12ff, 0xffff_fff0, TCP_CWR | 0x10));
    assert_eq!(field(&segments[1]), (0x1300, 0xffff_fff0u32.wrapping_add(8948), 0x10));
    assert_eq!(field(&segments[2]), (0x1301, 0xffff_fff0u32.wrapping_add(17896), TCP_FIN | TCP_PSH | 0x10));
}

#[test]
fn a_whole_packet_goes_on_as_it_came() {
    let (vnet, packet) = tcp(6, 30_000, 1428);
    let parsed = SuperPacket::parse(vnet, &packet).unwrap();
    let mut head = Vec::new();
    let payload = parsed.cut(&packet, &(0..parsed.segments()), &mut head);
    assert_eq!((head.as_slice(), payload), (vnet.encode().as_slice(), 0..packet.len()));
}

#[test]
fn a_packet_without_marks_is_one_segment() {
    let (_, packet) = udp(4, 100, 0);
    let parsed = SuperPacket::parse(VnetHeader::default(), &packet).unwrap();
    assert_eq!((parsed.segments(), parsed.segment_len(0)), (1, 128));
}

#[test]
fn refuses_what_the_mark_cannot_mean() {
    let (vnet, packet) = tcp(4, 20_000, 8948);
    let parse = |vnet, packet: &[u8]| SuperPacket::parse(vnet, packet).unwrap_err();
    assert_eq!(
        parse(VnetHeader { gso_size: 0, ..vnet }, &packet),
        PacketError::SegmentSize { gso_size: 0, payload: 20_000 }
    );
    assert_eq!(
        parse(VnetHeader { gso_type: 4, ..vnet }, &packet),
        PacketError::Segmentation { gso_type: 4, protocol: 6 }
    );
    assert_eq!(parse(vnet, &[]), PacketError::Truncated { len: 0 });
    assert_eq!(parse(vnet, &[0x70]), PacketError::Version { version: 7 });
    assert_eq!(parse(vnet, &packet[..30]), PacketError::Truncated { len: 30 });
    let shorter = [&[0x44], &packet[1..]].concat();
    assert_eq!(parse(vnet, &shorter), PacketError::HeaderLen { len: 16 });
}

proptest::proptest! {
    /// Cutting a packet in runs and those in segments gives the same bytes as cutting it in segments at once.
    #[test]
    fn a_cut_run_stands_for_the_same_segments(
        v6: bool, is_tcp: bool, payload in 2usize..40_000, gso_size in 500u16..9000, from in 0u16..80, to in 1u16..80,
    ) {
        let version = if v6 { 6 } else { 4 };
        let (vnet, packet) = if is_tcp { tcp(version, payload, gso_size) } else { udp(version, payload, gso_size) };
        let parsed = SuperPacket::parse(vnet, &packet).unwrap();
        let from = from.min(parsed.segments() - 1);
        let run = from..to.clamp(from + 1, parsed.segments());
        let mut head = Vec::new();
        let body = parsed.cut(&packet, &run, &mut head);
        let cut_vnet = VnetHeader::decode(&head).unwrap();
        let mut cut = head.split_off(VnetHeader::LEN);
        cut.extend_from_slice(&packet[body]);
        let again = SuperPacket::parse(cut_vnet, &cut).unwrap();
        proptest::prop_assert_eq!(again.segments(), run.end - run.start);
        proptest::prop_assert_eq!(
            segments_of(cut_vnet, &cut, 0..again.segments()),
            segments_of(vnet, &packet, run)
        );
    }

    #[test]
    fn never_panics_on_any_packet(
        header in proptest::array::uniform10(0u8..), packet in proptest::collection::vec(0u8.., 0..300),
    ) {
        let vnet = VnetHeader::decode(&header).unwrap();
        if let Ok(parsed) = SuperPacket::parse(vnet, &packet) {
            let mut out = Vec::new();
            for index in 0..parsed.segments() {
                parsed.cut(&packet, &(index..index + 1), &mut out);
                parsed.complete(&packet, index, &mut out);
            }
        }
    }
}
