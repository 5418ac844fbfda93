//! One datagram to the group.
//!
//! ```text
//!  0       1       2               8                              16
//!  ┌───────┬───────┬───────────────┬──────────────────────────────┐
//!  │version│   0   │ number (48)   │ session (64)                 │  clear, authenticated
//!  ├───────┼───────┼───────────────┼──────────────────────────────┤
//!  │ kind  │ flags │ head (16)     │ product (32)                 │  sealed, from here
//!  ├───────┴───────┴───────────────┼───────────────┬──────────────┤
//!  │ stream (48)   │ offset (48)   │ index (16)    │ of (16)      │
//!  ├───────────────┴───────────────┴───────────────┴──────────────┤
//!  │ payload …                                     │ tag (128)    │
//!  └───────────────────────────────────────────────┴──────────────┘
//! ```
//!
//! Integers are big endian. `number` counts the sender's packets: it is the nonce of the seal, and what replays and losses are told by.
//! Sealing itself is the flow's (`farlink_flow::cast::seal`): this module has the two headers.

use super::{MOST_STREAM, Position, SessionId, Shape};
use crate::rest::{Rest, Short, u48_bytes};

/// Bytes of the tag that ends a packet.
pub const TAG: usize = 16;

/// Bytes of a packet that are not payload.
pub const OVERHEAD: usize = Clear::LEN + Header::LEN + TAG;

/// Largest number of a packet: of full packets of 1,400 bytes, 394 petabytes.
pub const MOST_NUMBER: u64 = (1 << 48) - 1;

/// What can be read of a packet without the session's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clear {
    /// Whose packet it is.
    pub session: SessionId,
    /// The how-manieth of it, at most [`MOST_NUMBER`].
    pub number: u64,
}

impl Clear {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// As bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = VERSION;
        bytes[2..8].copy_from_slice(&u48_bytes(self.number));
        bytes[8..].copy_from_slice(&self.session.0.to_be_bytes());
        bytes
    }

    /// The clear header at the start of a datagram, which is long enough to be a packet.
    ///
    /// # Errors
    /// [`PacketError::Short`], [`PacketError::Version`].
    pub fn decode(datagram: &[u8]) -> Result<Self, PacketError> {
        if datagram.len() < OVERHEAD {
            return Err(PacketError::Short);
        }
        let mut rest = Rest(datagram);
        let (version, reserved) = (rest.u8()?, rest.u8()?);
        if version != VERSION || reserved != 0 {
            return Err(PacketError::Version { version });
        }
        Ok(Self { number: rest.u48()?, session: SessionId(rest.u64()?) })
    }
}

/// What a packet is: the sealed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Bytes of a product's stream: its payload.
    Data(Data),
    /// Parity over a block of a product's packets: its payload.
    Parity(Parity),
    /// Where the sender is, while it has nothing to send. No payload.
    Status(Position),
}

/// Bytes of a product's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// The product.
    pub product: u32,
    /// Its stream.
    pub shape: Shape,
    /// Where in the stream the payload begins. It ends within the stream.
    pub offset: u64,
    /// Whether it was sent before: a packet of the first pass says that all before it was sent.
    pub repair: bool,
}

/// One packet of parity: a shard of Reed-Solomon's code over the packets of a block, the last of a product padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity {
    /// The product.
    pub product: u32,
    /// Its stream.
    pub shape: Shape,
    /// Where in the stream the block begins.
    pub offset: u64,
    /// Which of the block's packets of parity, from 0.
    pub index: u16,
    /// How many there are, more than `index`.
    pub of: u16,
}

impl Header {
    /// Bytes on the wire.
    pub const LEN: usize = 24;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (kind, repair, product, shape, offset, index, of) = match *self {
            Self::Data(data) => (DATA, data.repair, data.product, Some(data.shape), data.offset, 0, 0),
            Self::Parity(parity) => {
                (PARITY, false, parity.product, Some(parity.shape), parity.offset, parity.index, parity.of)
            }
            Self::Status(position) => (STATUS, false, position.product, None, position.offset, 0, 0),
        };
        bytes[0] = kind;
        bytes[1] = u8::from(repair);
        if let Some(shape) = shape {
            bytes[2..4].copy_from_slice(&shape.head().to_be_bytes());
            bytes[8..14].copy_from_slice(&u48_bytes(shape.stream()));
        }
        bytes[4..8].copy_from_slice(&product.to_be_bytes());
        bytes[14..20].copy_from_slice(&u48_bytes(offset));
        bytes[20..22].copy_from_slice(&index.to_be_bytes());
        bytes[22..].copy_from_slice(&of.to_be_bytes());
        bytes
    }

    /// The header that `bytes` are, of a packet with so much `payload`.
    ///
    /// # Errors
    /// [`PacketError`]: whoever has the key can still send nonsense.
    pub fn decode(bytes: &[u8; Self::LEN], payload: usize) -> Result<Self, PacketError> {
        let mut rest = Rest(bytes);
        let (kind, flags, head, product) = (rest.u8()?, rest.u8()?, rest.u16()?, rest.u32()?);
        let (stream, offset, index, of) = (rest.u48()?, rest.u48()?, rest.u16()?, rest.u16()?);
        let malformed = |what| Err(PacketError::Malformed { what });
        if kind == STATUS {
            return match (flags, head, stream, index, of, payload) {
                (0, 0, 0, 0, 0, 0) if offset <= MOST_STREAM => Ok(Self::Status(Position { product, offset })),
                _ => malformed("a status with more than a position"),
            };
        }
        let Some(shape) = Shape::of_stream(head, stream) else {
            return malformed("the lengths of a stream");
        };
        match kind {
            DATA if flags > 1 || index != 0 || of != 0 => malformed("unknown flags"),
            DATA if payload == 0 || offset > stream || stream - offset < payload as u64 => {
                malformed("data outside of the stream")
            }
            DATA => Ok(Self::Data(Data { product, shape, offset, repair: flags == 1 })),
            PARITY if flags != 0 => malformed("unknown flags"),
            PARITY if payload == 0 || !payload.is_multiple_of(2) || offset >= stream => {
                malformed("parity outside of the stream")
            }
            PARITY if index >= of => malformed("the number of a packet of parity"),
            PARITY => Ok(Self::Parity(Parity { product, shape, offset, index, of })),
            _ => malformed("a kind of packet"),
        }
    }
}

/// Why a datagram is no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Shorter than any.
    #[error("a datagram that is too short for a packet")]
    Short,
    /// Of another version than ours, or not ours at all.
    #[error("a packet of version {version}, where this end speaks {VERSION}")]
    Version {
        /// As it claims.
        version: u8,
    },
    /// Out of bounds.
    #[error("a malformed packet: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
    },
}

impl From<Short> for PacketError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

/// Of these layouts: a byte that few other protocols begin with.
const VERSION: u8 = 0xc1;
const DATA: u8 = 1;
const PARITY: u8 = 2;
const STATUS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape::new(30, 100_000).unwrap()
    }

    fn headers() -> [(Header, usize); 3] {
        let (product, shape) = (u32::MAX, shape());
        [
            (Header::Data(Data { product, shape, offset: 99_062, repair: true }), 1000),
            (Header::Parity(Parity { product, shape, offset: 50, index: 2, of: 3 }), 1416),
            (Header::Status(Position { product, offset: MOST_STREAM }), 0),
        ]
    }

    #[test]
    fn headers_survive_the_wire() {
        for (header, payload) in headers() {
            assert_eq!(Header::decode(&header.encode(), payload), Ok(header));
        }
        let clear = Clear { session: SessionId(7), number: MOST_NUMBER };
        let mut datagram = clear.encode().to_vec();
        assert_eq!(Clear::decode(&datagram), Err(PacketError::Short));
        datagram.resize(OVERHEAD, 0);
        assert_eq!(Clear::decode(&datagram), Ok(clear));
        datagram[0] = 0;
        assert_eq!(Clear::decode(&datagram), Err(PacketError::Version { version: 0 }));
    }

    #[test]
    fn no_payload_leaves_its_stream() {
        let [(data, _), (parity, _), (status, _)] = headers();
        assert!(Header::decode(&data.encode(), 1001).is_err());
        assert!(Header::decode(&data.encode(), 0).is_err());
        assert!(Header::decode(&parity.encode(), 1415).is_err());
        assert!(Header::decode(&status.encode(), 1).is_err());
    }

    #[test]
    fn every_field_has_its_bounds() {
        for (header, payload) in headers() {
            for (at, byte) in [(0, 9), (1, 0xff), (2, 0xff), (22, 0)] {
                let mut bytes = header.encode();
                bytes[at] = byte;
                let same = bytes == header.encode();
                // A packet of parity has at least two there, so that the byte above says little.
                let unlikely = at == 22 && matches!(header, Header::Parity(_));
                assert!(same || unlikely || Header::decode(&bytes, payload).is_err(), "{header:?} byte {at}");
            }
        }
    }
}
