//! Numbers and words of a message that cannot be out of their bounds.

use serde::{Deserialize, Serialize};

use crate::quantity::{Bytes, Nanos};

/// Why a value was refused. The message names the bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {given}: it must be {least} to {most}")]
pub struct OutOfBounds {
    /// What the value is.
    pub what: &'static str,
    /// As given.
    pub given: String,
    /// The least that would do.
    pub least: String,
    /// The most that would do.
    pub most: String,
}

impl OutOfBounds {
    pub(super) fn check<T: Copy + PartialOrd + std::fmt::Display>(
        what: &'static str,
        given: T,
        least: T,
        most: T,
    ) -> Result<T, Self> {
        if given < least || given > most {
            return Err(Self {
                what,
                given: given.to_string(),
                least: least.to_string(),
                most: most.to_string(),
            });
        }
        Ok(given)
    }
}

/// Number of data connections: 1 to 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Streams(u16);

impl Streams {
    /// The fewest.
    pub const ONE: Self = Self(1);

    /// As a number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u32> for Streams {
    type Error = OutOfBounds;

    fn try_from(number: u32) -> Result<Self, OutOfBounds> {
        OutOfBounds::check("the number of streams", number, 1, 512).map(|number| Self(number as u16))
    }
}

impl From<Streams> for u32 {
    fn from(streams: Streams) -> Self {
        Self::from(streams.0)
    }
}

/// A socket buffer: 4 KiB to 1023 MiB.
///
/// The kernel doubles what it is asked for and keeps it in a signed 32-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct Buffer(u32);

impl Buffer {
    /// In bytes.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<Bytes> for Buffer {
    type Error = OutOfBounds;

    fn try_from(bytes: Bytes) -> Result<Self, OutOfBounds> {
        OutOfBounds::check("the buffer", bytes, Bytes(4 << 10), Bytes(1023 << 20))
            .map(|bytes| Self(bytes.0 as u32))
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        Self(u64::from(buffer.0))
    }
}

/// Bytes per write: 4 KiB to 64 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct Block(u32);

impl Block {
    /// In bytes.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<Bytes> for Block {
    type Error = OutOfBounds;

    fn try_from(bytes: Bytes) -> Result<Self, OutOfBounds> {
        OutOfBounds::check("the block", bytes, Bytes(4 << 10), Bytes(64 << 20))
            .map(|bytes| Self(bytes.0 as u32))
    }
}

impl From<Block> for Bytes {
    fn from(block: Block) -> Self {
        Self(u64::from(block.0))
    }
}

/// Length of a sample: 10 ms to 10 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Nanos", into = "Nanos")]
pub struct Interval(Nanos);

impl Interval {
    /// As a time.
    #[must_use]
    pub const fn get(self) -> Nanos {
        self.0
    }
}

impl TryFrom<Nanos> for Interval {
    type Error = OutOfBounds;

    fn try_from(time: Nanos) -> Result<Self, OutOfBounds> {
        OutOfBounds::check("the interval", time, Nanos(10_000_000), Nanos(10_000_000_000)).map(Self)
    }
}

impl From<Interval> for Nanos {
    fn from(interval: Interval) -> Self {
        interval.0
    }
}

/// How long an end waits for the other before it gives up: 100 ms to 10 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Nanos", into = "Nanos")]
pub struct Patience(Nanos);

impl Patience {
    /// As a time.
    #[must_use]
    pub const fn get(self) -> Nanos {
        self.0
    }
}

impl TryFrom<Nanos> for Patience {
    type Error = OutOfBounds;

    fn try_from(time: Nanos) -> Result<Self, OutOfBounds> {
        OutOfBounds::check("the timeout", time, Nanos(100_000_000), Nanos(600_000_000_000)).map(Self)
    }
}

impl From<Patience> for Nanos {
    fn from(patience: Patience) -> Self {
        patience.0
    }
}

/// A congestion control's name, as Linux allows them: 1 to 15 letters, digits, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = OutOfBounds;

    fn try_from(text: String) -> Result<Self, OutOfBounds> {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        // TCP_CA_NAME_MAX is 16 with the final zero.
        if plain && (1..=15).contains(&text.len()) {
            return Ok(Self(text));
        }
        Err(OutOfBounds {
            what: "the congestion control's name",
            given: Text::from(text).0,
            least: "1".to_owned(),
            most: "15 letters, digits, '_' and '-'".to_owned(),
        })
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

/// Words from the far side, safe to show: at most 400 characters, none of them a control character.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Text(String);

impl Text {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        Self(text.chars().map(shown).take(400).collect())
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
