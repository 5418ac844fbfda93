//! What the sender and one receiver say to each other over the control connection: frames of a head (what it is, and the length of its
//! body, big endian) and a body.
//!
//! What is said once a session is JSON, [`Words`]; what is said of products is binary, since a group of a thousand says it often.

use super::{Announcement, MOST_STREAM, Shape};
use crate::entry::Digest;
use crate::message::{GreetingError, Text, check_version};
use crate::quantity::Nanos;
use crate::rest::{Rest, Short, u48_bytes};

mod words;

pub use words::{BlockPackets, Join, Leave, Wanted, Welcome, Words};

/// Bytes of a frame's head.
pub const HEAD: usize = 5;

/// Most bytes of a frame's body: [`MOST_REPAIR`] with its header.
pub const MOST_BODY: usize = REPAIR + MOST_REPAIR;

/// Most payload of one [`Repair`], bytes.
pub const MOST_REPAIR: usize = 64 * 1024;

/// Most ranges of one [`Control::Nack`], those of all products together.
pub const MOST_RANGES: usize = 1024;

/// Most runs of products of one frame.
pub const MOST_RUNS: usize = 1024;

/// Most packets of a block of parity, and most packets of parity for it.
pub const MOST_BLOCK: u16 = 1024;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// Either: what is said once.
    Words(Words),
    /// Either: to be sent back as it is, so that round trips can be measured.
    Echo {
        /// Whether this is the answer.
        answer: bool,
        /// Means something to who asked only.
        stamp: u64,
    },
    /// Receiver: what it lacks. At most [`MOST_RANGES`] ranges in all.
    Nack(Vec<Want>),
    /// Receiver: these products are stored, and their digests were right: runs of first and count, ascending. At most [`MOST_RUNS`].
    Have(Vec<(u32, u32)>),
    /// Receiver: how it fares.
    Report(Report),
    /// Receiver: this product it cannot store, and wants no more of it.
    Failed {
        /// The product.
        product: u32,
        /// Why, as far as it remembers where it says so again over another connection.
        reason: Text,
    },
    /// Sender: bytes of a product's stream, to this receiver alone.
    Repair(Repair<'a>),
    /// Sender: these products are held no longer: ask for them by [`Want::catch_up`]. Runs as those of [`Control::Have`].
    Gone(Vec<(u32, u32)>),
    /// Sender: this product cannot be had any more.
    Lost {
        /// The product.
        product: u32,
        /// Its name, readable, as the receiver may not have got that; empty where the sender does not know it any more.
        path: Text,
        /// What it was, where the sender had sent all of it: a receiver looks whether it has that from before, and says so or that it has not.
        whole: Option<Box<Whole>>,
        /// Why.
        reason: Text,
    },
    /// Sender: this product cannot be had any more, and a later one has its name: nobody lacks anything.
    Superseded {
        /// The product.
        product: u32,
    },
}

/// What a product is, but for its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Its name and metadata.
    pub announcement: Announcement,
    /// Bytes of its content.
    pub content: u64,
    /// The digest of that.
    pub digest: Digest,
}

/// What a receiver lacks of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The product.
    pub product: u32,
    /// Whether all of these were asked for before.
    pub again: bool,
    /// Whether the sender had said that it holds the product no longer.
    pub catch_up: bool,
    /// First byte of the stream and number of bytes of each, ascending, apart from each other, none empty. They may end behind the
    /// stream's end: a receiver that knows nothing of a product asks for [`MOST_STREAM`] bytes.
    pub ranges: Vec<(u64, u64)>,
}

/// How a receiver fares since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Packets of the group that it could have received.
    pub packets: u64,
    /// Those of them that it did not.
    pub lost: u64,
    /// Packets that it dropped because they were forged, replayed or malformed.
    pub refused: u64,
    /// Bytes of streams that are there, of complete products and others.
    pub bytes: u64,
    /// Of these, bytes that were sent again, to the group or to it alone, or rebuilt.
    pub repaired: u64,
    /// Round trip over the control connection; zero where it is not known.
    pub rtt: Nanos,
    /// When it was made, by a clock of the receiver's own.
    pub at: Nanos,
}

impl Report {
    /// What of it came after another was made by the same receiver.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            lost: self.lost.saturating_sub(before.lost),
            refused: self.refused.saturating_sub(before.refused),
            bytes: self.bytes.saturating_sub(before.bytes),
            repaired: self.repaired.saturating_sub(before.repaired),
            rtt: self.rtt,
            at: self.at,
        }
    }
}

/// Bytes of a product's stream for one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair<'a> {
    /// The product.
    pub product: u32,
    /// Its stream.
    pub shape: Shape,
    /// Where in the stream the payload begins.
    pub offset: u64,
    /// At most [`MOST_REPAIR`] bytes, within the stream.
    pub payload: &'a [u8],
}

impl Control<'_> {
    /// Appends the whole frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let from = out.len();
        out.extend([0; HEAD]);
        out[from] = match self {
            Self::Words(words) => {
                // Infallible: every key is a string, and a vector takes every write.
                let _ = serde_json::to_writer(&mut *out, words);
                WORDS
            }
            Self::Echo { answer, stamp } => {
                out.push(u8::from(*answer));
                out.extend(stamp.to_be_bytes());
                ECHO
            }
            Self::Nack(wants) => {
                for want in wants {
                    put_want(want, out);
                }
                NACK
            }
            Self::Have(runs) => {
                put_runs(runs, out);
                HAVE
            }
            Self::Report(report) => {
                let Report { packets, lost, refused, bytes, repaired, rtt, at } = report;
                for value in [packets, lost, refused, bytes, repaired, &rtt.0, &at.0] {
                    out.extend(value.to_be_bytes());
                }
                REPORT
            }
            Self::Failed { product, reason } => {
                put_reason(*product, reason, out);
                FAILED
            }
            Self::Repair(repair) => {
                let header = repair_header(repair.product, repair.shape, repair.offset, repair.payload.len());
                out.truncate(from);
                out.extend(header);
                out.extend(repair.payload);
                return;
            }
            Self::Gone(runs) => {
                put_runs(runs, out);
                GONE
            }
            Self::Lost { product, path, whole, reason } => {
                put_short(path.as_str().as_bytes(), out);
                match whole {
                    Some(whole) => {
                        put_short(&whole.announcement.encode(), out);
                        out.extend(u48_bytes(whole.content));
                        out.extend(whole.digest.0);
                    }
                    None => put_short(&[], out),
                }
                put_reason(*product, reason, out);
                LOST
            }
            Self::Superseded { product } => {
                out.extend(product.to_be_bytes());
                SUPERSEDED
            }
        };
        let length = out.len() - from - HEAD;
        debug_assert!(length <= MOST_BODY, "a frame of {length} bytes");
        out[from + 1..from + HEAD].copy_from_slice(&(length as u32).to_be_bytes());
    }

    /// Bytes of the frame that `bytes` begin with, its head included; `None` where more must come first.
    ///
    /// # Errors
    /// [`ControlError::Kind`], [`ControlError::TooLong`].
    pub fn length(bytes: &[u8]) -> Result<Option<usize>, ControlError> {
        let Some(&[kind, a, b, c, d]) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
        if !(WORDS..=SUPERSEDED).contains(&kind) {
            return Err(ControlError::Kind { kind });
        }
        let length = u32::from_be_bytes([a, b, c, d]);
        if length as usize > MOST_BODY {
            return Err(ControlError::TooLong { length });
        }
        Ok(Some(HEAD + length as usize))
    }
}

impl<'a> Control<'a> {
    /// The first frame of `bytes` and the bytes that it took; `None` where more must come first.
    ///
    /// # Errors
    /// [`ControlError`] where no further bytes could make it one.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, ControlError> {
        let Some(length) = Self::length(bytes)? else { return Ok(None) };
        let Some(frame) = bytes.get(..length) else { return Ok(None) };
        let mut rest = Rest(&frame[HEAD..]);
        let control = match frame[0] {
            WORDS => {
                return serde_json::from_slice(rest.0)
                    .map(|words| Some((Self::Words(words), length)))
                    .map_err(|error| of_another_release(rest.0).unwrap_or(ControlError::Words(error)));
            }
            ECHO => match rest.u8()? {
                answer @ (0 | 1) => Self::Echo { answer: answer == 1, stamp: rest.u64()? },
                _ => return Err(ControlError::Malformed { what: "an echo's direction" }),
            },
            NACK => Self::Nack(wants(&mut rest)?),
            HAVE => Self::Have(runs(&mut rest)?),
            REPORT => Self::Report(Report {
                packets: rest.u64()?,
                lost: rest.u64()?,
                refused: rest.u64()?,
                bytes: rest.u64()?,
                repaired: rest.u64()?,
                rtt: Nanos(rest.u64()?),
                at: Nanos(rest.u64()?),
            }),
            FAILED => {
                let (product, reason) = reason(&mut rest)?;
                Self::Failed { product, reason }
            }
            REPAIR_KIND => Self::Repair(repair(&mut rest)?),
            GONE => Self::Gone(runs(&mut rest)?),
            SUPERSEDED => Self::Superseded { product: rest.u32()? },
            _ => {
                let path = text(short(&mut rest)?, "a name")?;
                let whole = whole(&mut rest)?.map(Box::new);
                let (product, reason) = reason(&mut rest)?;
                Self::Lost { product, path, whole, reason }
            }
        };
        if !rest.is_empty() {
            return Err(ControlError::Malformed { what: "bytes behind the end" });
        }
        Ok(Some((control, length)))
    }
}

/// Whether words that are not understood name another version than ours.
fn of_another_release(words: &[u8]) -> Option<ControlError> {
    let words: serde_json::Value = serde_json::from_slice(words).ok()?;
    let version = words.as_object()?.values().next()?.get("version")?.as_u64()?;
    check_version(u16::try_from(version).ok()?).err().map(ControlError::Version)
}

/// Bytes of a frame with a [`Repair`] that come before its payload.
pub const REPAIR_HEADER: usize = HEAD + REPAIR;

/// The frame of a [`Repair`] but for its `payload` bytes, so that they can be read to where they are sent from.
#[must_use]
pub fn repair_header(product: u32, shape: Shape, offset: u64, payload: usize) -> [u8; REPAIR_HEADER] {
    debug_assert!((1..=MOST_REPAIR).contains(&payload), "a repair of {payload} bytes");
    let mut bytes = [0; REPAIR_HEADER];
    bytes[0] = REPAIR_KIND;
    bytes[1..5].copy_from_slice(&((REPAIR + payload) as u32).to_be_bytes());
    bytes[5..9].copy_from_slice(&product.to_be_bytes());
    bytes[9..11].copy_from_slice(&shape.head().to_be_bytes());
    bytes[11..17].copy_from_slice(&u48_bytes(shape.stream()));
    bytes[17..].copy_from_slice(&u48_bytes(offset));
    bytes
}

fn repair<'a>(rest: &mut Rest<'a>) -> Result<Repair<'a>, ControlError> {
    let (product, head, stream, offset) = (rest.u32()?, rest.u16()?, rest.u48()?, rest.u48()?);
    let shape =
        Shape::of_stream(head, stream).ok_or(ControlError::Malformed { what: "the lengths of a stream" })?;
    let payload = rest.take(rest.0.len())?;
    if payload.is_empty() || offset > stream || stream - offset < payload.len() as u64 {
        return Err(ControlError::Malformed { what: "a repair outside of the stream" });
    }
    Ok(Repair { product, shape, offset, payload })
}

fn put_want(want: &Want, out: &mut Vec<u8>) {
    debug_assert!((1..=MOST_RANGES).contains(&want.ranges.len()));
    out.extend(want.product.to_be_bytes());
    out.push(u8::from(want.again) | u8::from(want.catch_up) << 1);
    out.extend((want.ranges.len() as u16).to_be_bytes());
    for (offset, length) in &want.ranges {
        out.extend(u48_bytes(*offset));
        out.extend(u48_bytes(*length));
    }
}

fn wants(rest: &mut Rest<'_>) -> Result<Vec<Want>, ControlError> {
    let (mut wants, mut room) = (Vec::new(), MOST_RANGES);
    while !rest.is_empty() {
        let (product, flags, count) = (rest.u32()?, rest.u8()?, usize::from(rest.u16()?));
        if flags > 3 || count == 0 || count > room {
            return Err(ControlError::Malformed { what: "the ranges of a NACK" });
        }
        // By product and kind, each once: else a frame could ask for all of a product a thousand times.
        let is_next =
            wants.last().is_none_or(|last: &Want| (last.product, last.again) < (product, flags & 1 != 0));
        if !is_next {
            return Err(ControlError::Malformed { what: "the order of a NACK" });
        }
        room -= count;
        let mut ranges = Vec::with_capacity(count);
        let mut from = 0;
        for _ in 0..count {
            let (offset, length) = (rest.u48()?, rest.u48()?);
            if offset < from || length == 0 || offset + length > MOST_STREAM {
                return Err(ControlError::Malformed { what: "the ranges of a NACK" });
            }
            from = offset + length + 1;
            ranges.push((offset, length));
        }
        wants.push(Want { product, again: flags & 1 != 0, catch_up: flags & 2 != 0, ranges });
    }
    Ok(wants)
}

fn put_runs(runs: &[(u32, u32)], out: &mut Vec<u8>) {
    debug_assert!(runs.len() <= MOST_RUNS);
    for (first, count) in runs {
        out.extend(first.to_be_bytes());
        out.extend(count.to_be_bytes());
    }
}

fn runs(rest: &mut Rest<'_>) -> Result<Vec<(u32, u32)>, ControlError> {
    let mut runs = Vec::with_capacity((rest.0.len() / 8).min(MOST_RUNS));
    let mut from = 0;
    while !rest.is_empty() {
        let (first, count) = (rest.u32()?, rest.u32()?);
        let end = u64::from(first) + u64::from(count);
        if u64::from(first) < from || count == 0 || end > 1 << 32 || runs.len() == MOST_RUNS {
            return Err(ControlError::Malformed { what: "runs of products" });
        }
        from = end;
        runs.push((first, count));
    }
    Ok(runs)
}

/// Bytes, with their number before them: a name, or an announcement.
fn put_short(bytes: &[u8], out: &mut Vec<u8>) {
    debug_assert!(u16::try_from(bytes.len()).is_ok(), "{} bytes", bytes.len());
    out.extend((bytes.len() as u16).to_be_bytes());
    out.extend(bytes);
}

fn short<'a>(rest: &mut Rest<'a>) -> Result<&'a [u8], ControlError> {
    let length = rest.u16()?;
    Ok(rest.take(length.into())?)
}

fn whole(rest: &mut Rest<'_>) -> Result<Option<Whole>, ControlError> {
    let head = short(rest)?;
    if head.is_empty() {
        return Ok(None);
    }
    let (content, digest) = (rest.u48()?, Digest(rest.array()?));
    if Shape::new(head.len(), content).is_none() {
        return Err(ControlError::Malformed { what: "the lengths of a stream" });
    }
    let announcement =
        Announcement::decode(head).map_err(|_| ControlError::Malformed { what: "what a product was" })?;
    Ok(Some(Whole { announcement, content, digest }))
}

fn put_reason(product: u32, reason: &Text, out: &mut Vec<u8>) {
    out.extend(product.to_be_bytes());
    out.extend(reason.as_str().as_bytes());
}

fn reason(rest: &mut Rest<'_>) -> Result<(u32, Text), ControlError> {
    let product = rest.u32()?;
    let reason = text(rest.take(rest.0.len())?, "a reason")?;
    Ok((product, reason))
}

fn text(bytes: &[u8], what: &'static str) -> Result<Text, ControlError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ControlError::Malformed { what })?;
    Ok(Text::from(text.to_owned()))
}

/// Whether this is how a record of TLS begins (RFC 8446, section 5.1): an alert, or a handshake.
const fn is_of_tls(kind: u8) -> bool {
    matches!(kind, 21 | 22)
}

const TLS: &str =
    ", as TLS has: one end shows keys and the other none; --no-auth is for both, or for neither";

/// Why bytes are no frame.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Of no kind that there is.
    #[error("a control frame of the unknown kind {kind}{}", if is_of_tls(*kind) { TLS } else { "" })]
    Kind {
        /// As it claims.
        kind: u8,
    },
    /// Longer than any.
    #[error("a control frame of {length} bytes, where {MOST_BODY} is the most")]
    TooLong {
        /// As it claims.
        length: u32,
    },
    /// It ends before what it should contain.
    #[error("a control frame that ends too early")]
    Short,
    /// Out of bounds.
    #[error("a malformed control frame: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
    },
    /// What another release says.
    #[error(transparent)]
    Version(GreetingError),
    /// Not what is said once a session.
    #[error("a malformed control frame")]
    Words(#[source] serde_json::Error),
}

impl From<Short> for ControlError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

const WORDS: u8 = 1;
const ECHO: u8 = 2;
const NACK: u8 = 3;
const HAVE: u8 = 4;
const REPORT: u8 = 5;
const FAILED: u8 = 6;
const REPAIR_KIND: u8 = 7;
const GONE: u8 = 8;
const LOST: u8 = 9;
const SUPERSEDED: u8 = 10;
/// Bytes of a repair's body before its payload.
const REPAIR: usize = 18;

#[cfg(test)]
mod tests;
