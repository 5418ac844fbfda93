//! The parity of a session: how much there is, and what it is.

use farlink_flow::cast::parity::{ParityEncoder, ParityError};
use farlink_wire::cast::Payload;
use farlink_wire::cast::control::BlockPackets;
use farlink_wire::cast::packet::{Data, Parity};
use farlink_wire::quantity::Fraction;

use crate::error::CastError;

/// Makes parity of what is sent for the first time, where any is asked for.
pub(super) struct Redundancy {
    share: Fraction,
    payload: u64,
    block: BlockPackets,
    parity: u16,
    encoder: Option<ParityEncoder>,
}

impl Redundancy {
    /// So many packets of parity as `share` of those of data says.
    pub(super) fn new(share: Fraction, payload: Payload) -> Result<Self, CastError> {
        let (packets, parity) = counts(share.get());
        let block = BlockPackets::try_from(packets).unwrap_or_default();
        let encoder = (parity > 0)
            .then(|| ParityEncoder::new(payload, packets, parity))
            .transpose()
            .map_err(|source| CastError::Parity { share, source })?;
        Ok(Self { share, payload: payload.get().into(), block, parity, encoder })
    }

    /// Packets of a block; 0 where there is no parity.
    pub(super) const fn block(&self) -> BlockPackets {
        self.block
    }

    /// Packets of parity for each block.
    pub(super) const fn parity(&self) -> u16 {
        self.parity
    }

    /// A packet of the first pass leaves, the next of its product.
    pub(super) fn add(&mut self, header: &Data, offset: u64, payload: &[u8]) -> Result<(), CastError> {
        let share = self.share;
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        let block = u64::from(self.block.get()) * self.payload;
        let mut add = || {
            if offset.is_multiple_of(block) {
                let left = header.shape.stream() - offset;
                encoder.begin(left.min(block).div_ceil(self.payload) as u16)?;
            }
            encoder.add(payload)
        };
        add().map_err(|source| CastError::Parity { share, source })
    }

    /// The payload of a packet of parity over the block that was added last.
    pub(super) fn parity_of(&mut self, parity: &Parity) -> Result<&[u8], CastError> {
        let share = self.share;
        let made = match &mut self.encoder {
            Some(encoder) => encoder.parity(parity.index),
            None => Err(ParityError::TooFew),
        };
        made.map_err(|source| CastError::Parity { share, source })
    }
}

/// Packets of a block, and of its parity: a block is as short as the share allows, so that what it makes up for is there soon.
fn counts(share: f64) -> (u16, u16) {
    if share <= 0.0 {
        return (0, 0);
    }
    let parity = (share * f64::from(USUAL)).round().max(1.0);
    let packets = (parity / share).round().clamp(1.0, f64::from(MOST));
    (packets as u16, parity as u16)
}

/// Packets of a block, where the share has no other in mind: at 1 Gb/s a millisecond.
const USUAL: u16 = 64;

/// Most packets of a block.
const MOST: u16 = 1024;

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn there_is_as_much_parity_as_was_asked_for() {
        assert_eq!(counts(0.0), (0, 0));
        assert_eq!(counts(0.05), (60, 3));
        assert_eq!(counts(0.01), (100, 1));
        assert_eq!(counts(0.2), (65, 13));
        assert_eq!(counts(1.0), (64, 64));
        assert_eq!(counts(1e-6), (1024, 1));
    }
}
