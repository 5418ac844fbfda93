//! Frames: what one process tells another, in order.
//!
//! ```text
//!  0      1       2          4            8                16                  24               32
//!  ┌──────┬───────┬──────────┬────────────┬────────────────┬───────────────────┬────────────────┐
//!  │kind  │ flags │    0     │ a (32)     │ b (64)         │ tag, or a receive │ data (64)      │ chunk …
//!  └──────┴───────┴──────────┴────────────┴────────────────┴───────────────────┴────────────────┘
//!   all                                    all but More                         Eager and Offer
//! ```
//!
//! Integers are big endian. `a` is the bytes of the chunk, or the number of an offer; `b` a length, or where a part stands. Frames stand
//! behind each other without padding; a chunk follows its frame.

use crate::rest::{Rest, Short};

/// What a message is matched by, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Its tag; a message without one is matched by order alone.
    pub tag: Option<u64>,
    /// The number that comes with it.
    pub data: Option<u64>,
    /// Bytes.
    pub len: u64,
}

/// One frame; parts of messages come with their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message begins, and what of it fits.
    Eager(Envelope, &'a [u8]),
    /// More of the message that the last [`Frame::Eager`] began.
    More(&'a [u8]),
    /// A message that will come when it is wanted.
    Offer {
        /// What it is.
        envelope: Envelope,
        /// What its sender knows it by.
        message: u32,
    },
    /// An offered message is wanted.
    Accept {
        /// Which.
        message: u32,
        /// What the receiver knows the receive by.
        receive: u32,
        /// Bytes that it takes, no more than the message has.
        len: u64,
    },
    /// An offered message is not wanted, and never will be.
    Decline {
        /// Which.
        message: u32,
    },
    /// A part of an accepted message.
    Part {
        /// The receive.
        receive: u32,
        /// Where in the message the part stands.
        offset: u64,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// All that the peer may have sent unasked by now, counted as [`cost`] counts.
    Credit {
        /// Since the beginning.
        until: u64,
    },
    /// Stands before all else that reaches a process by another of its host: which of the sender's pieces to it this is, so that none is
    /// taken twice where one comes by two ways. One that says nothing more has no number.
    Numbered {
        /// From 0.
        number: Option<u64>,
        /// All of the peer's pieces before that number came.
        taken: u64,
    },
    /// Nothing: to hear whether the peer is there.
    Nothing,
    /// Asks to be told when all that was said before it was taken.
    Ask {
        /// What its sender knows it by.
        message: u32,
    },
    /// All that was said before an [`Frame::Ask`] was taken.
    Receipt {
        /// Which.
        message: u32,
    },
    /// A process of the sender's host, to which it was to hand something on, is no more.
    Gone {
        /// Which endpoint it was.
        endpoint: u64,
    },
}

/// Bytes before the chunk of a message that begins; also the most that a frame has without its chunk.
pub const BEGIN: usize = 32;
/// Bytes of a part before its chunk, and of a frame that has none and is no offer.
pub const PART: usize = 24;
/// Bytes before the chunk of a message that goes on.
pub const MORE: usize = 8;

/// What a message that is sent unasked costs of a peer's credit: its bytes, and what it takes to remember it.
#[must_use]
pub const fn cost(len: u64) -> u64 {
    len.saturating_add(REMEMBERED)
}

const REMEMBERED: u64 = 128;

impl<'a> Frame<'a> {
    /// Bytes of the frame without its chunk.
    #[must_use]
    pub const fn head(&self) -> usize {
        match self {
            Self::Eager(..) | Self::Offer { .. } => BEGIN,
            Self::More(_) => MORE,
            _ => PART,
        }
    }

    /// Writes the frame's head, and leaves its chunk to the caller: `chunk` is how long it will be. Gives the bytes that were written.
    ///
    /// # Panics
    /// Where `into` is shorter than the head.
    pub fn encode_head(&self, chunk: usize, into: &mut [u8]) -> usize {
        let chunk = chunk as u32;
        let (kind, a, b, c, data) = match *self {
            Self::Eager(envelope, _) => {
                (EAGER, chunk, envelope.len, envelope.tag.unwrap_or(0), envelope.data.unwrap_or(0))
            }
            Self::Offer { envelope, message } => {
                (OFFER, message, envelope.len, envelope.tag.unwrap_or(0), envelope.data.unwrap_or(0))
            }
            Self::More(_) => (CONTINUED, chunk, 0, 0, 0),
            Self::Accept { message, receive, len } => (ACCEPT, message, len, receive.into(), 0),
            Self::Decline { message } => (DECLINE, message, 0, 0, 0),
            Self::Part { receive, offset, .. } => (PIECE, chunk, offset, receive.into(), 0),
            Self::Credit { until } => (CREDIT, 0, until, 0, 0),
            Self::Numbered { number, taken } => (NUMBERED, 0, number.unwrap_or(u64::MAX), taken, 0),
            Self::Nothing => (NOTHING, 0, 0, 0, 0),
            Self::Ask { message } => (ASK, message, 0, 0, 0),
            Self::Receipt { message } => (RECEIPT, message, 0, 0, 0),
            Self::Gone { endpoint } => (GONE, 0, endpoint, 0, 0),
        };
        let flags = match self {
            Self::Eager(envelope, _) | Self::Offer { envelope, .. } => {
                (u8::from(envelope.tag.is_some()) * TAGGED) | (u8::from(envelope.data.is_some()) * WITH_DATA)
            }
            _ => 0,
        };
        let mut bytes = [0; BEGIN];
        bytes[0] = kind;
        bytes[1] = flags;
        bytes[4..8].copy_from_slice(&a.to_be_bytes());
        bytes[8..16].copy_from_slice(&b.to_be_bytes());
        bytes[16..24].copy_from_slice(&c.to_be_bytes());
        bytes[24..].copy_from_slice(&data.to_be_bytes());
        let head = self.head();
        into[..head].copy_from_slice(&bytes[..head]);
        head
    }

    /// The first frame of `bytes`, and what stands behind it; nothing where there are none.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, FrameError> {
        let mut rest = Rest(bytes);
        if rest.is_empty() {
            return Ok(None);
        }
        let (kind, flags, _, a) = (rest.u8()?, rest.u8()?, rest.u16()?, rest.u32()?);
        let frame = match kind {
            EAGER | OFFER => {
                let (len, tag, data) = (rest.u64()?, rest.u64()?, rest.u64()?);
                let tag = (flags & TAGGED != 0).then_some(tag);
                let envelope = Envelope { tag, data: (flags & WITH_DATA != 0).then_some(data), len };
                if kind == OFFER {
                    Self::Offer { envelope, message: a }
                } else {
                    Self::Eager(envelope, rest.take(a as usize)?)
                }
            }
            CONTINUED => Self::More(rest.take(a as usize)?),
            ACCEPT | DECLINE | PIECE | CREDIT | NOTHING | GONE | NUMBERED | ASK | RECEIPT => {
                let (b, c) = (rest.u64()?, rest.u64()?);
                let receive = c as u32;
                match kind {
                    ACCEPT => Self::Accept { message: a, receive, len: b },
                    DECLINE => Self::Decline { message: a },
                    PIECE => Self::Part { receive, offset: b, bytes: rest.take(a as usize)? },
                    CREDIT => Self::Credit { until: b },
                    GONE => Self::Gone { endpoint: b },
                    ASK => Self::Ask { message: a },
                    RECEIPT => Self::Receipt { message: a },
                    NUMBERED => Self::Numbered { number: (b != u64::MAX).then_some(b), taken: c },
                    _ => Self::Nothing,
                }
            }
            kind => return Err(FrameError::Kind { kind }),
        };
        Ok(Some((frame, rest.0)))
    }
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// They end before the frame does.
    #[error("frames end in the middle of one")]
    Short,
    /// There is no such frame.
    #[error("there is no frame of kind {kind}")]
    Kind {
        /// As it stands there.
        kind: u8,
    },
    /// A message begins within another.
    #[error("a message begins within another")]
    Nested,
    /// A message comes unasked for which its sender was given no credit.
    #[error("a message comes unasked for which there was no credit")]
    Uncredited,
}

impl From<Short> for FrameError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

const EAGER: u8 = 1;
const CONTINUED: u8 = 2;
const OFFER: u8 = 3;
const ACCEPT: u8 = 4;
const DECLINE: u8 = 5;
const PIECE: u8 = 6;
const CREDIT: u8 = 7;
const NOTHING: u8 = 8;
const GONE: u8 = 9;
const NUMBERED: u8 = 10;
const ASK: u8 = 11;
const RECEIPT: u8 = 12;
const TAGGED: u8 = 1;
const WITH_DATA: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_they_were() {
        let envelope = Envelope { tag: Some(7 << 40), data: None, len: 1 << 40 };
        let untagged = Envelope { tag: None, data: Some(3), len: 5 };
        let frames = [
            Frame::Eager(untagged, b"hello"),
            Frame::Eager(envelope, b""),
            Frame::More(b"world"),
            Frame::Offer { envelope, message: 9 },
            Frame::Accept { message: 9, receive: u32::MAX, len: 1 << 39 },
            Frame::Decline { message: 1 },
            Frame::Part { receive: 4, offset: 1 << 38, bytes: b"part" },
            Frame::Credit { until: u64::MAX },
            Frame::Nothing,
            Frame::Gone { endpoint: 1 << 60 },
            Frame::Ask { message: 8 },
            Frame::Receipt { message: u32::MAX },
            Frame::Numbered { number: Some(1 << 40), taken: 1 << 41 },
            Frame::Numbered { number: None, taken: 0 },
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            let chunk: &[u8] = match frame {
                Frame::Eager(_, chunk) | Frame::More(chunk) | Frame::Part { bytes: chunk, .. } => chunk,
                _ => &[],
            };
            let mut head = [0; BEGIN];
            let written = frame.encode_head(chunk.len(), &mut head);
            bytes.extend_from_slice(&head[..written]);
            bytes.extend_from_slice(chunk);
        }
        let (mut rest, mut found) = (&bytes[..], Vec::new());
        while let Some((frame, behind)) = Frame::decode(rest).unwrap() {
            found.push(frame);
            rest = behind;
        }
        assert_eq!(found, frames);
        assert_eq!(Frame::decode(&bytes[..BEGIN - 1]), Err(FrameError::Short));
        assert_eq!(Frame::decode(&[99; 40]), Err(FrameError::Kind { kind: 99 }));
    }
}
