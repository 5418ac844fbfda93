//! A datagram between the processes of a parallel program.
//!
//! ```text
//!  0       1       2                              8              16             24
//!  ┌───────┬───────┬──────────────────────────────┬──────────────┬──────────────┐
//!  │version│ kind  │         context (48)         │ source (64)  │ number (64)  │  clear, authenticated
//!  ├───────┴───────┴──────────────────────────────┴──────────────┴──────────────┤
//!  │ by kind …                                                     │ tag (128)  │  sealed
//!  └───────────────────────────────────────────────────────────────┴────────────┘
//! ```
//!
//! Integers are big endian. `context` is the sending context of the one whose data it is about, `source` the endpoint that this datagram
//! comes from, `number` the nonce of its seal: no two datagrams of a context and a direction share one.

use super::VERSION;
use crate::rest::{Rest, Short, u48_bytes};

/// What a datagram is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum About {
    /// Frames, in order: [`Data`] and they.
    Data = 0,
    /// Parity over some of them: [`Parity`] and a shard.
    Parity = 1,
    /// What came: [`Ack`].
    Ack = 2,
    /// Asks for the context to be admitted, before there is data. [`Connect`].
    Connect = 3,
    /// The context ends: all that it sent has arrived.
    Disconnect = 4,
    /// The process ends, or hears the other one no more: [`Farewell`].
    Farewell = 5,
    /// Frames, and what came the other way: [`Data`], [`JoinedAck`] and they.
    DataWithAck = 6,
}

/// What can be read without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clear {
    /// What it is about.
    pub about: About,
    /// The sending context, below 2^48: a process that begins 50,000 in a second, each with a key of its own, has enough for 178 years.
    pub context: u64,
    /// The endpoint that it comes from.
    pub source: u64,
    /// Which datagram of the context and direction.
    pub number: u64,
}

impl Clear {
    /// Bytes on the wire.
    pub const LEN: usize = 24;

    /// As bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = VERSION;
        bytes[1] = self.about as u8;
        bytes[2..8].copy_from_slice(&u48_bytes(self.context));
        bytes[8..16].copy_from_slice(&self.source.to_be_bytes());
        bytes[16..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// That of a datagram.
    ///
    /// # Errors
    /// [`DatagramError`].
    pub fn decode(datagram: &[u8]) -> Result<Self, DatagramError> {
        if datagram.len() < Self::LEN + TAG {
            return Err(DatagramError::Short);
        }
        let mut rest = Rest(datagram);
        let version = rest.u8()?;
        if version != VERSION {
            return Err(DatagramError::Version { version });
        }
        let about = match rest.u8()? {
            0 => About::Data,
            1 => About::Parity,
            2 => About::Ack,
            3 => About::Connect,
            4 => About::Disconnect,
            5 => About::Farewell,
            6 => About::DataWithAck,
            kind => return Err(DatagramError::Kind { kind }),
        };
        Ok(Self { about, context: rest.u48()?, source: rest.u64()?, number: rest.u64()? })
    }
}

/// Before the frames of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Which of the context's pieces this is: the same when it is sent again.
    pub piece: u32,
    /// The first piece that a coming parity may be about, itself where none will be.
    pub group: u32,
    /// The endpoint whose frames they are: another than the receiver where one process receives for all of its host.
    pub to: u64,
}

impl Data {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// As bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.piece.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.group.to_be_bytes());
        bytes[8..].copy_from_slice(&self.to.to_be_bytes());
        bytes
    }

    /// That of a sealed body, and the frames behind it.
    ///
    /// # Errors
    /// [`DatagramError::Short`].
    pub fn decode(body: &[u8]) -> Result<(Self, &[u8]), DatagramError> {
        let mut rest = Rest(body);
        let data = Self { piece: rest.u32()?, group: rest.u32()?, to: rest.u64()? };
        Ok((data, rest.0))
    }
}

/// Before a shard of parity: Reed-Solomon's over pieces, each with its length (16 bits) and its addressee (64) before it, padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity {
    /// The first piece.
    pub group: u32,
    /// How many pieces.
    pub pieces: u16,
    /// Which shard of parity.
    pub index: u16,
    /// How many there are.
    pub of: u16,
}

impl Parity {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// As bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.group.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.pieces.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.index.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.of.to_be_bytes());
        bytes
    }

    /// That of a sealed body, and the shard behind it.
    ///
    /// # Errors
    /// [`DatagramError::Short`], [`DatagramError::Counts`].
    pub fn decode(body: &[u8]) -> Result<(Self, &[u8]), DatagramError> {
        let mut rest = Rest(body);
        let parity = Self { group: rest.u32()?, pieces: rest.u16()?, index: rest.u16()?, of: rest.u16()? };
        let _ = rest.u16()?;
        if parity.pieces == 0 || parity.index >= parity.of {
            return Err(DatagramError::Counts { pieces: parity.pieces, index: parity.index, of: parity.of });
        }
        Ok((parity, rest.0))
    }
}

/// What came of a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// All pieces before this one are there.
    pub piece: u32,
    /// Microseconds since the highest number came.
    pub delay_us: u32,
    /// Numbers of datagrams that came: first and one past the last of each run, highest first, at least one and at most [`Self::RUNS`].
    /// Of a run longer than 32 bits hold only the end is said: its beginning was acknowledged long ago.
    pub runs: Vec<(u64, u64)>,
}

impl Ack {
    /// Runs of numbers at most.
    pub const RUNS: usize = 48;

    /// Bytes on the wire, with so many runs.
    #[must_use]
    pub const fn len_with(runs: usize) -> usize {
        10 + runs * 12
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::len_with(self.runs.len()));
        self.encode_behind(&mut bytes);
        bytes
    }

    fn encode_behind(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.piece.to_be_bytes());
        bytes.extend_from_slice(&self.delay_us.to_be_bytes());
        bytes.extend_from_slice(&(self.runs.len() as u16).to_be_bytes());
        for &(first, end) in &self.runs {
            let first = first.max(end.saturating_sub(u32::MAX.into()));
            bytes.extend_from_slice(&first.to_be_bytes());
            bytes.extend_from_slice(&((end - first) as u32).to_be_bytes());
        }
    }

    /// That of a sealed body.
    ///
    /// # Errors
    /// [`DatagramError`].
    pub fn decode(body: &[u8]) -> Result<Self, DatagramError> {
        Self::decode_first(&mut Rest(body))
    }

    fn decode_first(rest: &mut Rest<'_>) -> Result<Self, DatagramError> {
        let (piece, delay_us, count) = (rest.u32()?, rest.u32()?, usize::from(rest.u16()?));
        if count > Self::RUNS {
            return Err(DatagramError::Runs { count });
        }
        let mut runs: Vec<(u64, u64)> = Vec::with_capacity(count);
        for _ in 0..count {
            let first = rest.u64()?;
            let end = first.checked_add(rest.u32()?.into()).ok_or(DatagramError::Runs { count })?;
            if end == first || runs.last().is_some_and(|(above, _)| *above < end) {
                return Err(DatagramError::Runs { count });
            }
            runs.push((first, end));
        }
        Ok(Self { piece, delay_us, runs })
    }
}

/// What came of a context of the one that data go to, before their frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedAck {
    /// Which context, below 2^48.
    pub context: u64,
    /// Which acknowledgement of that context: they are counted with those that leave alone.
    pub number: u64,
    /// What came.
    pub ack: Ack,
}

impl JoinedAck {
    /// Bytes on the wire, with so many runs.
    #[must_use]
    pub const fn len_with(runs: usize) -> usize {
        14 + Ack::len_with(runs)
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::len_with(self.ack.runs.len()));
        bytes.extend_from_slice(&u48_bytes(self.context));
        bytes.extend_from_slice(&self.number.to_be_bytes());
        self.ack.encode_behind(&mut bytes);
        bytes
    }

    /// That of what stands behind [`Data`], and the frames behind it.
    ///
    /// # Errors
    /// [`DatagramError`].
    pub fn decode(body: &[u8]) -> Result<(Self, &[u8]), DatagramError> {
        let mut rest = Rest(body);
        let (context, number) = (rest.u48()?, rest.u64()?);
        let ack = Ack::decode_first(&mut rest)?;
        Ok((Self { context, number, ack }, rest.0))
    }
}

/// Asks for a context to be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The host of the process that asks.
    pub host: u64,
    /// Whether it waits for the answer before it sends (a full handshake).
    pub full: bool,
}

impl Connect {
    /// Bytes on the wire.
    pub const LEN: usize = 9;

    /// As bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.host.to_be_bytes());
        bytes[8] = u8::from(self.full);
        bytes
    }

    /// That of a sealed body.
    ///
    /// # Errors
    /// [`DatagramError::Short`].
    pub fn decode(body: &[u8]) -> Result<Self, DatagramError> {
        let mut rest = Rest(body);
        Ok(Self { host: rest.u64()?, full: rest.u8()? != 0 })
    }
}

/// The last that a process says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Farewell {
    /// Numbered pieces that it ever sent to the process that it says this to: those that are still on their way by another process come
    /// before its end.
    pub pieces: u64,
}

impl Farewell {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// As bytes.
    #[must_use]
    pub const fn encode(self) -> [u8; Self::LEN] {
        self.pieces.to_be_bytes()
    }

    /// That of a sealed body.
    ///
    /// # Errors
    /// [`DatagramError::Short`].
    pub fn decode(body: &[u8]) -> Result<Self, DatagramError> {
        Ok(Self { pieces: Rest(body).u64()? })
    }
}

/// Bytes of the tag that ends a datagram.
pub const TAG: usize = 16;

/// Bytes of a datagram with frames that are none.
pub const OVERHEAD: usize = Clear::LEN + Data::LEN + TAG;

/// Why a datagram is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// It ends too early.
    #[error("too short")]
    Short,
    /// Of another version of Farlink.
    #[error("version {version} of the protocol, this is {VERSION}: run the same Farlink on all hosts")]
    Version {
        /// As it says.
        version: u8,
    },
    /// There is no such kind.
    #[error("there is no datagram of kind {kind}")]
    Kind {
        /// As it says.
        kind: u8,
    },
    /// No parity has such numbers.
    #[error("shard {index} of {of} over {pieces} pieces")]
    Counts {
        /// Pieces.
        pieces: u16,
        /// Which shard.
        index: u16,
        /// How many shards.
        of: u16,
    },
    /// No acknowledgement has such runs.
    #[error("{count} runs that are too many, empty or in no order")]
    Runs {
        /// How many.
        count: usize,
    },
}

impl From<Short> for DatagramError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_what_they_were() {
        let clear = Clear { about: About::Ack, context: 7 << 40, source: u64::MAX, number: 1 << 50 };
        let mut datagram = clear.encode().to_vec();
        assert_eq!(Clear::decode(&datagram), Err(DatagramError::Short));
        datagram.extend([0; TAG]);
        assert_eq!(Clear::decode(&datagram), Ok(clear));
        datagram[0] = 9;
        assert_eq!(Clear::decode(&datagram), Err(DatagramError::Version { version: 9 }));
        let data = Data { piece: 8, group: 3, to: 5 };
        assert_eq!(Data::decode(&data.encode()), Ok((data, &[][..])));
        let parity = Parity { group: 1, pieces: 64, index: 2, of: 3 };
        assert_eq!(Parity::decode(&parity.encode()), Ok((parity, &[][..])));
        assert!(Parity::decode(&Parity { index: 3, ..parity }.encode()).is_err());
        let ack = Ack { piece: 4, delay_us: 20, runs: vec![(10, 12), (3, 7), (0, 1)] };
        assert_eq!(Ack::decode(&ack.encode()), Ok(ack.clone()));
        let joined = JoinedAck { context: 7 << 40, number: 1 << 50, ack: ack.clone() };
        let mut body = joined.encode();
        assert_eq!(body.len(), JoinedAck::len_with(3));
        body.extend(b"frames");
        assert_eq!(JoinedAck::decode(&body), Ok((joined, &b"frames"[..])));
        assert_eq!(JoinedAck::decode(&body[..20]), Err(DatagramError::Short));
        let overlapping = Ack { runs: vec![(10, 12), (3, 11)], ..ack };
        assert!(Ack::decode(&overlapping.encode()).is_err());
        let connect = Connect { host: 3, full: true };
        assert_eq!(Connect::decode(&connect.encode()), Ok(connect));
        let farewell = Farewell { pieces: 1 << 40 };
        assert_eq!(Farewell::decode(&farewell.encode()), Ok(farewell));
    }

    #[test]
    fn of_a_run_that_32_bits_do_not_hold_the_end_is_said() {
        for end in [u64::from(u32::MAX), 1 << 32, (1 << 32) + 5, u64::MAX] {
            let ack = Ack { piece: 0, delay_us: 0, runs: vec![(0, end)] };
            let runs = Ack::decode(&ack.encode()).map(|ack| ack.runs);
            assert_eq!(runs, Ok(vec![(end - u64::from(u32::MAX), end)]));
        }
    }
}
