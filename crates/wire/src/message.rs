//! What the two ends of a memory transfer say to each other.
//!
//! Every connection goes to one TCP port. A *control* connection opens with a [`Hello`] from either end and
//! then carries [`Message`]s: a length of four bytes (big endian, at most [`MAX_MESSAGE`]) and that much JSON.
//! A *data* connection opens with a [`Preamble`] that names the session and the stream; when the transfer
//! starts, a [`Stamp`] and then nothing but payload follow in the direction of the transfer. Before that the server says
//! [`Preamble::ANSWER`] where the preamble asks for it.
//!
//! Where the two ends are not on one machine or one emulated connection, the control connection is TLS 1.3 from its first
//! byte, and all of the above is within it. A data connection says in its preamble, in clear, whether TLS follows it.
//!
//! ```text
//! client                                   server
//!   hello, Request  ─────────────────────►   (and a preamble on every data connection)
//!                   ◄─────────────────────  hello, Accept | Refuse
//!   stamp, payload  ═════════════════════►   (or the other way, where the far end sends)
//!        Alive …    ─────────────────────►
//!                   ◄─────────────────────  Arrived …, Received
//!   Sent            ─────────────────────►
//! ```
//!
//! A value that was decoded is within its bounds: nothing behind this module checks them again.

use serde::{Deserialize, Serialize};

use crate::quantity::{BitsPerSec, Nanos};
use crate::record::CongestionOrigin;
use crate::refusal::Refusal;

mod bounded;
pub mod copy;
mod goal;

pub use bounded::{Block, Buffer, Interval, Name, OutOfBounds, Patience, Streams, Text};
pub use goal::Goal;

/// The version of this protocol. Both ends must speak the same.
pub const VERSION: u16 = 7;

/// Whether the far side, which speaks version `theirs`, is understood.
///
/// # Errors
/// [`GreetingError::Version`].
pub const fn check_version(theirs: u16) -> Result<(), GreetingError> {
    if theirs == VERSION { Ok(()) } else { Err(GreetingError::Version { theirs, ours: VERSION }) }
}

/// Largest message, bytes: the sources and rules of a file transfer, or 256 rows of [`Message::Traced`] with every number at its longest.
pub const MAX_MESSAGE: usize = 256 * 1024;

/// Most entries of one [`Message::Arrived`] or [`Message::Traced`]: a longer list is sent as several.
pub const MAX_ENTRIES: usize = 256;

/// The first bytes of a control connection, from either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What the sender of this speaks.
    pub version: u16,
}

impl Hello {
    /// Bytes on the wire.
    pub const LEN: usize = 10;
    /// What opens a control connection.
    pub const MAGIC: [u8; 8] = *b"farlink\n";

    /// What this version says.
    #[must_use]
    pub const fn ours() -> Self {
        Self { version: VERSION }
    }

    /// As bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&Self::MAGIC);
        bytes[8..].copy_from_slice(&self.version.to_be_bytes());
        bytes
    }

    /// The hello at the start of `bytes`.
    ///
    /// # Errors
    /// [`GreetingError`] where it is none, or of another version.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, GreetingError> {
        let (magic, version) = bytes.split_at(8);
        if magic != Self::MAGIC {
            return Err(GreetingError::NotFarlink);
        }
        check_version(u16::from_be_bytes([version[0], version[1]])).map(|()| Self::ours())
    }
}

/// The secret of one session, chosen by the client, by which data connections find it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Serialize for Token {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", u128::from_be_bytes(self.0)))
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(&text, 16) {
            Ok(number) if digits => Ok(Self(number.to_be_bytes())),
            _ => Err(serde::de::Error::custom("a token is 32 hexadecimal digits")),
        }
    }
}

/// The first bytes of a data connection, from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// The session that it belongs to.
    pub token: Token,
    /// Which stream of it, from 0, below 16384.
    pub stream: u16,
    /// Whether TLS follows, and the payload within it.
    pub sealed: bool,
    /// Whether the server is to say [`ANSWER`](Self::ANSWER) before all else: where this leaves with the connection's first segment, nothing else
    /// tells the client in the first round trip how much the server has room for (RFC 7323, 2.2: the first answer's window is 64 KiB at most).
    pub wants_answer: bool,
}

impl Preamble {
    /// Bytes on the wire.
    pub const LEN: usize = 26;
    /// What opens a data connection.
    pub const MAGIC: [u8; 8] = *b"fardata\n";
    /// What a server says to who asks to be answered.
    pub const ANSWER: [u8; 1] = *b"\n";

    /// As bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&Self::MAGIC);
        bytes[8..24].copy_from_slice(&self.token.0);
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        let stream = (self.stream & STREAM) | flag(self.sealed, SEALED) | flag(self.wants_answer, ANSWERED);
        bytes[24..].copy_from_slice(&stream.to_be_bytes());
        bytes
    }

    /// The preamble that `bytes` are.
    ///
    /// # Errors
    /// [`GreetingError::NotFarlink`] where they are none.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, GreetingError> {
        let (magic, rest) = bytes.split_at(8);
        if magic != Self::MAGIC {
            return Err(GreetingError::NotFarlink);
        }
        let (token, stream) = rest.split_at(16);
        let mut secret = [0; 16];
        secret.copy_from_slice(token);
        let stream = u16::from_be_bytes([stream[0], stream[1]]);
        let (sealed, wants_answer) = (stream & SEALED != 0, stream & ANSWERED != 0);
        Ok(Self { token: Token(secret), stream: stream & STREAM, sealed, wants_answer })
    }

    /// Whether what begins with `said`, all but the last byte of it or more, asks to be answered.
    #[must_use]
    pub fn asks(said: &[u8]) -> bool {
        said.starts_with(&Self::MAGIC)
            && said.get(24).is_some_and(|high| u16::from(*high) << 8 & ANSWERED != 0)
    }
}

/// The bit of a preamble's stream that says that TLS follows.
const SEALED: u16 = 1 << 15;

/// The bit that says that the server is to answer.
const ANSWERED: u16 = 1 << 14;

/// The bits that say which stream.
const STREAM: u16 = ANSWERED - 1;

/// The eight bytes before the payload of every stream: when the first byte might leave, on the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub Nanos);

impl Stamp {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// As bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        self.0.0.to_be_bytes()
    }

    /// The stamp that `bytes` are.
    #[must_use]
    pub fn decode(bytes: [u8; Self::LEN]) -> Self {
        Self(Nanos(u64::from_be_bytes(bytes)))
    }
}

/// Why the first bytes of a connection were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// Other bytes than ours.
    #[error("the far side is not farlink")]
    NotFarlink,
    /// Ours, of another version.
    #[error(
        "the far side speaks version {theirs}, this is version {ours}: install the same release at both ends"
    )]
    Version {
        /// What the far side speaks.
        theirs: u16,
        /// What we speak.
        ours: u16,
    },
}

/// Which way the payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From the client to the server.
    Forward,
    /// From the server to the client.
    Reverse,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The secret of the session.
    pub token: Token,
    /// Which way the payload goes.
    pub way: Way,
    /// What ends the transfer.
    pub goal: Goal,
    /// Data connections.
    pub streams: Streams,
    /// Congestion control of the sender's sockets; the host's default where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Name>,
    /// The wire's rate that the connection's owner guarantees, for all streams together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<BitsPerSec>,
    /// Most payload a second, all streams together, each its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<BitsPerSec>,
    /// Socket buffers; the kernel tunes them where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Buffer>,
    /// Bytes per write.
    pub block: Block,
    /// Whether the sender is to send without a copy; as it pays where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_copy: Option<bool>,
    /// Length of a sample.
    pub interval: Interval,
    /// How long either end may be silent.
    pub patience: Patience,
    /// What the host is.
    pub host: Host,
}

/// What an end says of its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: Text,
    /// Kernel release.
    pub kernel: Text,
    /// Logical processors that the process may use.
    pub cores: u32,
    /// Names the monotonic clock: two ends with the same one need no estimate of the offset.
    pub clock: Text,
}

impl Host {
    /// Whether both ends read the same clock: they are on one machine.
    #[must_use]
    pub fn shares_clock(&self, other: &Self) -> bool {
        self.clock == other.clock && self.clock != Text::default()
    }
}

/// A server's consent: every data connection is there and is as asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accept {
    /// What the host is.
    pub host: Host,
    /// When the request had arrived, on the server's clock.
    pub received: Nanos,
    /// When this left, on the server's clock; where the server sends, its first byte may leave now.
    pub sent: Nanos,
}

/// Bytes that arrived in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Which interval, from 0.
    #[serde(rename = "i")]
    pub index: u32,
    /// Bytes more than was said before.
    #[serde(rename = "b")]
    pub bytes: u64,
}

/// One stream as `TCP_INFO` showed it at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRow {
    /// Which stream.
    #[serde(rename = "s")]
    pub stream: u16,
    /// Time since the start.
    #[serde(rename = "t")]
    pub at: Nanos,
    /// Congestion window, bytes.
    #[serde(rename = "w")]
    pub cwnd: u64,
    /// Smoothed round-trip time.
    #[serde(rename = "r")]
    pub srtt: Nanos,
    /// Segments sent again so far.
    #[serde(rename = "x")]
    pub retransmits: u64,
    /// Pacing rate, bits per second; absent where there is none.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub pacing: Option<u64>,
}

/// The receiver's account when it has stopped counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Payload bytes.
    pub bytes: u64,
    /// From the start until the last of them had arrived, or the time was over.
    pub duration: Nanos,
    /// Whether the goal was reached.
    pub complete: bool,
    /// CPU time of the receiver.
    pub cpu: Nanos,
    /// `SO_RCVBUF` as the kernel reported it.
    pub buffer: u64,
}

/// The sender's account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// CPU time of the sender.
    pub cpu: Nanos,
    /// `SO_SNDBUF` as the kernel reported it.
    pub buffer: u64,
    /// Segments sent again, all streams.
    pub retransmits: u64,
    /// Congestion control, as the kernel named it.
    pub congestion: Text,
    /// Where that comes from, where the sender may know.
    pub origin: Option<CongestionOrigin>,
    /// Why it was chosen, where the sender chose.
    #[serde(default)]
    pub reason: Option<Text>,
    /// Largest IP packet of the path, as TCP knew it.
    pub mtu: u32,
    /// Whether it sent without a copy.
    pub zero_copy: bool,
    /// What became of the circuit; absent where there was none, or nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<CircuitAccount>,
}

/// What became of a circuit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CircuitAccount {
    /// When its first stream fell back, from the sender's start; it held where that is absent.
    pub fell_back: Option<Nanos>,
}

/// One message of a control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Client: what is asked for.
    Request(Request),
    /// Server: consent.
    Accept(Accept),
    /// Server: why not.
    Refuse(Refusal),
    /// Sender: the end is alive.
    Alive,
    /// Receiver: what arrived, also when nothing did.
    Arrived(Vec<Arrival>),
    /// Sender, where it is the server: its streams.
    Traced(Vec<TraceRow>),
    /// Sender: stop counting, and say [`Received`].
    Stop,
    /// Receiver: its account; it counts no more.
    Received(Received),
    /// Sender: its account; it sends no more.
    Sent(Sent),
    /// Either: why the transfer cannot go on.
    Failed(Refusal),
    /// Either: of a file transfer.
    Copy(copy::Copy),
}

impl Message {
    /// As bytes with their length in front.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        // Infallible: every key is a string, and a vector takes every write.
        let _ = serde_json::to_writer(&mut bytes, self);
        debug_assert!(bytes.len() - 4 <= MAX_MESSAGE, "a message of {} bytes", bytes.len());
        let length = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    /// The first message of `bytes` and the bytes that it took; `None` where more must come first.
    ///
    /// # Errors
    /// [`MessageError`] where no further bytes could make it one.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, MessageError> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_MESSAGE {
            return Err(MessageError::TooLong { length, most: MAX_MESSAGE });
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message: Self = serde_json::from_slice(body)
            .map_err(|error| MessageError::Malformed(error.to_string().into()))?;
        Ok(Some((message, 4 + length)))
    }
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// Longer than any.
    #[error("a message of {length} bytes, where {most} is the most")]
    TooLong {
        /// As it claims.
        length: usize,
        /// The bound.
        most: usize,
    },
    /// Not one of ours, or out of bounds.
    #[error("a malformed message: {0}")]
    Malformed(Text),
}

#[cfg(test)]
mod tests;
