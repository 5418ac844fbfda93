//! Parity over blocks of packets: Reed-Solomon, so that any packet of parity stands in for any lost packet of its block.
//!
//! A block is a number of packets that follow each other in a product's stream, the last of a product shorter, and its last packet padded
//! with zeros. A receiver that has as many of its packets and its parity as the block has packets knows the whole block.

use farlink_wire::cast::Payload;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// Makes the parity of blocks. One serves all blocks of a session, one after the other.
pub struct ParityEncoder {
    encoder: ReedSolomonEncoder,
    payload: usize,
    /// Packets of a whole block, and of its parity.
    whole: (u16, u16),
    shards: Vec<Vec<u8>>,
}

/// Packets of parity for a block of `packets`, where one of `whole.0` has `whole.1`: its share of them, at least one. So a product of a few
/// packets is not followed by more parity than that.
#[must_use]
pub fn share(packets: u16, whole: (u16, u16)) -> u16 {
    let share = (u64::from(packets) * u64::from(whole.1)).div_ceil(u64::from(whole.0.max(1)));
    (share as u16).min(whole.1)
}

impl ParityEncoder {
    /// For blocks of at most `packets` packets with `parity` packets of parity, both at least 1.
    ///
    /// # Errors
    /// [`ParityError`] where the code cannot have so many.
    pub fn new(payload: Payload, packets: u16, parity: u16) -> Result<Self, ParityError> {
        let payload = usize::from(payload.get());
        let encoder = ReedSolomonEncoder::new(packets.into(), parity.into(), payload)
            .map_err(|_| ParityError::Counts { packets: packets.into(), parity: parity.into() })?;
        Ok(Self { encoder, payload, whole: (packets, parity), shards: Vec::new() })
    }

    /// Begins a block of so many packets, which has its [`share`] of parity.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn begin(&mut self, packets: u16) -> Result<(), ParityError> {
        self.shards.clear();
        let of = usize::from(share(packets, self.whole));
        self.encoder
            .reset(packets.into(), of, self.payload)
            .map_err(|_| ParityError::Counts { packets: packets.into(), parity: of })
    }

    /// Adds the block's next packet: a full payload, or the shorter one that ends a stream.
    ///
    /// # Errors
    /// [`ParityError::Payload`], [`ParityError::Surplus`].
    pub fn add(&mut self, packet: &[u8]) -> Result<(), ParityError> {
        let padded = padded(packet, self.payload)?;
        // The encoder itself would begin another block.
        if !self.shards.is_empty() {
            return Err(ParityError::Surplus);
        }
        self.encoder.add_original_shard(&*padded).map_err(|_| ParityError::Surplus)?;
        Ok(())
    }

    /// The payload of the block's packet of parity `index`, when all its packets were added.
    ///
    /// # Errors
    /// [`ParityError::TooFew`] where they were not, or there is no such packet of parity.
    pub fn parity(&mut self, index: u16) -> Result<&[u8], ParityError> {
        if self.shards.is_empty() {
            let made = self.encoder.encode().map_err(|_| ParityError::TooFew)?;
            self.shards = made.recovery_iter().map(<[u8]>::to_vec).collect();
        }
        self.shards.get(usize::from(index)).map(Vec::as_slice).ok_or(ParityError::TooFew)
    }
}

/// The lost packets of a block: `there` has those that came, by their place in the block, `parity` the packets of parity that came, by
/// their number of `of`. Each lost packet is a full payload, padded where it ends a stream.
///
/// # Errors
/// [`ParityError::TooFew`] where too few came, [`ParityError`] where they are no packets of one block.
pub fn rebuild<'a>(
    payload: Payload,
    packets: u16,
    of: u16,
    there: impl IntoIterator<Item = (u16, &'a [u8])>,
    parity: impl IntoIterator<Item = (u16, &'a [u8])>,
) -> Result<Vec<(u16, Vec<u8>)>, ParityError> {
    let size = usize::from(payload.get());
    let counts = ParityError::Counts { packets: packets.into(), parity: of.into() };
    let mut decoder = ReedSolomonDecoder::new(packets.into(), of.into(), size).map_err(|_| counts)?;
    for (index, packet) in there {
        let padded = padded(packet, size)?;
        decoder.add_original_shard(index.into(), &*padded).map_err(|_| ParityError::Surplus)?;
    }
    for (index, shard) in parity {
        if shard.len() != size {
            return Err(ParityError::Payload { bytes: shard.len() });
        }
        decoder.add_recovery_shard(index.into(), shard).map_err(|_| ParityError::Surplus)?;
    }
    let rebuilt = decoder.decode().map_err(|_| ParityError::TooFew)?;
    Ok(rebuilt.restored_original_iter().map(|(index, shard)| (index as u16, shard.to_vec())).collect())
}

fn padded(packet: &[u8], size: usize) -> Result<std::borrow::Cow<'_, [u8]>, ParityError> {
    if packet.len() == size {
        return Ok(packet.into());
    }
    if packet.is_empty() || packet.len() > size {
        return Err(ParityError::Payload { bytes: packet.len() });
    }
    let mut padded = packet.to_vec();
    padded.resize(size, 0);
    Ok(padded.into())
}

/// Why there is no parity, or nothing could be rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParityError {
    /// The code has no such numbers.
    #[error(
        "{packets} packets with {parity} of parity: a block needs at least 1 of each, and 65,536 at most"
    )]
    Counts {
        /// Of data.
        packets: usize,
        /// Of parity.
        parity: usize,
    },
    /// Not as long as the block's packets are.
    #[error("a packet of {bytes} bytes, which no block of this session has")]
    Payload {
        /// Its length.
        bytes: usize,
    },
    /// More than the block has, or one twice.
    #[error("a packet that the block does not have, or has already")]
    Surplus,
    /// Less than the block has packets.
    #[error("too few packets for this block")]
    TooFew,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: u16 = 256;

    fn payload() -> Payload {
        Payload::try_from(PAYLOAD).unwrap()
    }

    fn block(packets: u16, last: usize) -> Vec<Vec<u8>> {
        let byte = |packet: u16, at: usize| ((at * 7 + usize::from(packet) * 31) % 251) as u8;
        (0..packets)
            .map(|packet| {
                let len = if packet == packets - 1 { last } else { PAYLOAD.into() };
                (0..len).map(|at| byte(packet, at)).collect()
            })
            .collect()
    }

    fn parity(encoder: &mut ParityEncoder, block: &[Vec<u8>], of: u16) -> Vec<Vec<u8>> {
        encoder.begin(block.len() as u16).unwrap();
        block.iter().for_each(|packet| encoder.add(packet).unwrap());
        (0..of).map(|index| encoder.parity(index).unwrap().to_vec()).collect()
    }

    #[test]
    fn any_parity_stands_in_for_any_lost_packet() {
        let mut encoder = ParityEncoder::new(payload(), 20, 3).unwrap();
        for (packets, last) in [(20, 256), (20, 1), (1, 100), (7, 255)] {
            let block = block(packets, last);
            let of = share(packets, (20, 3));
            let made = parity(&mut encoder, &block, of);
            for lost in 0..packets {
                let gone = |index: u16| index == lost || of > 1 && index == (lost + 1) % packets;
                let there = (0..packets).filter(|index| !gone(*index));
                let rebuilt = rebuild(
                    payload(),
                    packets,
                    of,
                    there.map(|index| (index, &block[usize::from(index)][..])),
                    // The first, and the last where there are more.
                    [0, of - 1][..usize::from(of).min(2)]
                        .iter()
                        .map(|&index| (index, &made[usize::from(index)][..])),
                )
                .unwrap();
                assert_eq!(rebuilt.len(), (0..packets).filter(|index| gone(*index)).count());
                for (index, packet) in rebuilt {
                    let (known, padding) = packet.split_at(block[usize::from(index)].len());
                    assert_eq!(known, block[usize::from(index)]);
                    assert!(padding.iter().all(|byte| *byte == 0));
                }
            }
        }
    }

    #[test]
    fn a_short_block_has_its_share_of_parity() {
        let shares = [1, 20, 21, 40, 41, 60].map(|packets| share(packets, (60, 3)));
        assert_eq!(shares, [1, 1, 2, 2, 3, 3]);
        assert_eq!([share(1, (65, 13)), share(64, (64, 64)), share(9, (1024, 1))], [1, 64, 1]);
    }

    #[test]
    fn too_few_packets_rebuild_nothing_and_odd_ones_are_refused() {
        let mut encoder = ParityEncoder::new(payload(), 4, 1).unwrap();
        let block = block(4, 256);
        let made = parity(&mut encoder, &block, 1);
        let there = || (0..2u16).map(|index| (index, &block[usize::from(index)][..]));
        assert_eq!(rebuild(payload(), 4, 1, there(), [(0, &made[0][..])]), Err(ParityError::TooFew));
        let short = [(0, &made[0][..10])];
        assert_eq!(rebuild(payload(), 4, 1, there(), short), Err(ParityError::Payload { bytes: 10 }));
        let twice = there().chain(there());
        assert_eq!(rebuild(payload(), 4, 1, twice, []), Err(ParityError::Surplus));
        assert_eq!(encoder.add(&[0; 256]), Err(ParityError::Surplus));
        assert!(ParityEncoder::new(payload(), 0, 1).is_err() && rebuild(payload(), 4, 0, [], []).is_err());
        encoder.begin(4).unwrap();
        assert_eq!(encoder.parity(0).err(), Some(ParityError::TooFew));
    }
}
