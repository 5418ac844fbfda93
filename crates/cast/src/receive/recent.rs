//! The packets of a session with parity that came last: what lost ones are rebuilt from.

use std::collections::{BTreeMap, VecDeque};

use farlink_flow::cast::parity;
use farlink_flow::cast::receiver::Rebuild;
use farlink_wire::cast::Payload;
use farlink_wire::cast::packet::Data;

/// Payloads by product and offset; the oldest leave when there are too many.
#[derive(Debug, Default)]
pub(super) struct Recent {
    packets: BTreeMap<(u32, u64), Vec<u8>>,
    order: VecDeque<(u32, u64)>,
    bytes: usize,
}

impl Recent {
    /// Keeps the packets of a frame, of so much `payload` each: over the control connection several come at once.
    pub(super) fn keep(&mut self, product: u32, offset: u64, frame: &[u8], payload: Payload) {
        let full = payload.get();
        for (offset, packet) in (offset..).step_by(full.into()).zip(frame.chunks(full.into())) {
            let place = (product, offset);
            if self.packets.contains_key(&place) {
                continue;
            }
            self.bytes += packet.len();
            self.packets.insert(place, packet.to_vec());
            self.order.push_back(place);
        }
        while self.bytes > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.packets.remove(&oldest).map_or(0, |payload| payload.len());
        }
    }

    /// The lost packets of a block; none where too little of it is here still: they are asked for.
    pub(super) fn rebuild(&self, block: &Rebuild, payload: Payload) -> Vec<(Data, Vec<u8>)> {
        let full = u64::from(payload.get());
        let at = |index: u16| block.offset + u64::from(index) * full;
        let mut there = Vec::with_capacity(block.there.len());
        for index in &block.there {
            let Some(packet) = self.packets.get(&(block.product, at(*index))) else { return Vec::new() };
            there.push((*index, packet.as_slice()));
        }
        let shards = block.parity.iter().map(|(index, shard)| (*index, shard.as_slice()));
        // Packets and parity that do not fit each other rebuild nothing.
        let rebuilt = parity::rebuild(payload, block.packets, block.of, there, shards).unwrap_or_default();
        let cut = |(index, mut packet): (u16, Vec<u8>)| {
            let offset = at(index);
            packet.truncate(block.shape.stream().saturating_sub(offset).min(full) as usize);
            (Data { product: block.product, shape: block.shape, offset, repair: true }, packet)
        };
        rebuilt.into_iter().map(cut).collect()
    }
}

/// Bytes that are kept: of 1 Gb/s what comes in 0.13 s, many times what a block takes.
const MOST: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use farlink_flow::cast::parity::ParityEncoder;
    use farlink_wire::cast::Shape;

    use super::*;

    #[test]
    fn a_lost_packet_is_rebuilt_from_what_came_last() {
        let payload = Payload::try_from(256).unwrap();
        let shape = Shape::new(20, 900).unwrap();
        let stream: Vec<u8> = (0..shape.stream()).map(|at| (at % 251) as u8).collect();
        let packets: Vec<&[u8]> = stream.chunks(256).collect();
        let mut encoder = ParityEncoder::new(payload, packets.len() as u16, 1).unwrap();
        encoder.begin(packets.len() as u16).unwrap();
        packets.iter().for_each(|packet| encoder.add(packet).unwrap());
        let shard = encoder.parity(0).unwrap().to_vec();
        for lost in 0..packets.len() as u16 {
            let there: Vec<u16> = (0..packets.len() as u16).filter(|index| *index != lost).collect();
            let mut recent = Recent::default();
            let block = Rebuild {
                product: 3,
                shape,
                offset: 0,
                packets: packets.len() as u16,
                there: there.clone(),
                of: 1,
                parity: vec![(0, shard.clone())],
            };
            assert_eq!(recent.rebuild(&block, payload), []);
            // What is before the lost packet comes in one frame.
            recent.keep(3, 0, &stream[..usize::from(lost) * 256], payload);
            there.iter().filter(|index| **index > lost).for_each(|index| {
                recent.keep(3, u64::from(*index) * 256, packets[usize::from(*index)], payload);
            });
            let rebuilt = recent.rebuild(&block, payload);
            let data = Data { product: 3, shape, offset: u64::from(lost) * 256, repair: true };
            assert_eq!(rebuilt, [(data, packets[usize::from(lost)].to_vec())]);
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut recent = Recent::default();
        let payload = Payload::try_from(1000).unwrap();
        (0..30_000).for_each(|at| recent.keep(0, at * 1000, &[0; 1000], payload));
        assert!(recent.bytes <= MOST && recent.packets.len() == recent.order.len());
        assert!(recent.packets.contains_key(&(0, 29_999_000)) && !recent.packets.contains_key(&(0, 0)));
    }
}
