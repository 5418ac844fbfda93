//! What the two ends of a file transfer say over the control connection. What is copied goes over data connections: see
//! [`crate::frame`].
//!
//! ```text
//! client                                             server
//!   hello, Request  ───────────────────────────────►   (frames on data connections may follow at once)
//!                   ◄───────────────────────────────  hello, Accept | Refuse
//! sender                                             receiver
//!   frames          ═══════════════════════════════►
//!                   ◄───────────────────────────────  Proven…, Wanted…, Acknowledged…, Stored…, Lost…, Arrived…
//!   Same…, Abandon…, Total ───────────────────────►
//!                   ◄───────────────────────────────  Finished
//!   Sent            ───────────────────────────────►
//! ```

use serde::{Deserialize, Serialize};

use super::{Buffer, Host, Interval, Name, Patience, Streams, Text, Token, Way};
use crate::entry::Digest;
use crate::quantity::{BitsPerSec, Bytes, Nanos};

/// How data are kept from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protect {
    /// TLS 1.3: nobody else reads or changes them.
    #[default]
    Encrypt,
    /// A keyed BLAKE3 over every frame: nobody else changes them; whoever is on the path reads them.
    Integrity,
    /// Nothing but TCP's checksum and the digests of content.
    Clear,
}

impl Protect {
    /// As in records and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Integrity => "integrity",
            Self::Clear => "clear",
        }
    }
}

/// A name on a host as somebody gave it: bytes, in messages as [`crate::path::readable`] writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Place(Vec<u8>);

impl Place {
    /// The place that `bytes` name: 1 to 4095 bytes, none of them NUL.
    ///
    /// # Errors
    /// Where it can be none.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, PlaceError> {
        let bytes = bytes.into();
        if bytes.is_empty() || bytes.len() > crate::path::RelativePath::MOST || bytes.contains(&0) {
            return Err(PlaceError { given: crate::path::readable(&bytes).chars().take(100).collect() });
        }
        Ok(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<String> for Place {
    type Error = PlaceError;

    fn try_from(text: String) -> Result<Self, PlaceError> {
        Self::new(crate::path::bytes_of(&text))
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        crate::path::readable(&place.0)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::path::readable(&self.0))
    }
}

/// Bytes that cannot name anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path {given:?} must have 1 to 4095 bytes and no NUL")]
pub struct PlaceError {
    /// As given, its beginning.
    pub given: String,
}

/// One rule of what is copied and what is not: the first that matches decides. How patterns match is the filter's to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Whether names that match are copied.
    pub include: bool,
    /// As the user wrote it.
    pub pattern: String,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The secret of the session.
    pub token: Token,
    /// Which way the files go.
    pub way: Way,
    /// Where the server reads: of [`Way::Reverse`], 1 to 1000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Place>,
    /// Where the server writes: of [`Way::Forward`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Place>,
    /// Whether there are several sources: the destination is a directory then.
    pub several: bool,
    /// Names partial files: the same for the same copy.
    pub key: Token,
    /// Names the command, by what it selects of that, too: who begins it again takes it over. `key` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Token>,
    /// Whether an earlier attempt of this copy did not end well: ask what is there before sending it.
    pub resume: bool,
    /// Leave files as they stand that are newer than those that come, or as old and as long. After an attempt that did not end well only newer ones
    /// are: others are compared.
    #[serde(default)]
    pub update: bool,
    /// Copy nothing: say what would be copied, or, of [`Way::Forward`], what would become of each name that is [told](Copy::Foretold).
    #[serde(default)]
    pub dry_run: bool,
    /// What is copied and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// The only names beneath the source that are copied, each with all that is in it; all of them where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<Place>>,
    /// Bytes to read of a source that has no end, such as `/dev/zero`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<Bytes>,
    /// How data are kept from others.
    pub protect: Protect,
    /// Of [`Protect::Integrity`]: what only the two ends know, since the control connection is under TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Whether content is hashed and checked.
    pub verify: bool,
    /// Whether a file is on disk before it has its name.
    pub fsync: bool,
    /// Whether it is read again from there, too.
    #[serde(default)]
    pub read_back: bool,
    /// Most bits per second, all streams together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<BitsPerSec>,
    /// Data connections to begin with.
    pub streams: Streams,
    /// Congestion control of the sender's sockets; where absent, the sender follows the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Name>,
    /// The wire's rate that the connection's owner guarantees, for all streams together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<BitsPerSec>,
    /// Socket buffers; the kernel tunes them where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Buffer>,
    /// What the client has saved of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<SavedPath>,
    /// Length of a sample.
    pub interval: Interval,
    /// How long either end may be silent.
    pub patience: Patience,
    /// What the host is.
    pub host: Host,
}

impl Request {
    /// Whether the receiver is asked what is there before anything is sent.
    #[must_use]
    pub const fn asks_first(&self) -> bool {
        self.resume || self.update
    }
}

/// What a path carried before: RFC 9959's saved parameters of congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPath {
    /// Payload, bits per second: what arrived, all connections together.
    pub rate: BitsPerSec,
    /// The least round trip.
    pub rtt: Nanos,
    /// Whether a queue stood then: it carries no more.
    pub is_full: bool,
}

/// 256 random bits from which the tags of frames are made.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub Digest);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A server's consent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accept {
    /// What the host is.
    pub host: Host,
}

/// A part of the work: what a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Unit {
    /// Block of a file.
    #[serde(rename = "b")]
    Block(u32, u32),
    /// A pack.
    #[serde(rename = "p")]
    Pack(u32),
}

/// A block that a receiver has from an earlier attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenBlock {
    /// Which block of the file.
    #[serde(rename = "i")]
    pub index: u32,
    /// Its digest, computed again from what is there.
    #[serde(rename = "d")]
    pub digest: Digest,
}

/// In what way a name is not there as it is at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    /// It is nothing that can be copied, such as a FIFO, or is the destination itself.
    Skipped,
    /// An earlier source has something of its name, of which that is told which became of it.
    Later,
    /// What stands there is to stay: [`Request::update`] was asked for, and it is as old and as long. That is no lack.
    Current,
    /// Likewise: it is newer.
    Newer,
    /// It was not copied, though it should have been.
    Failed,
    /// Likewise: it was begun, and could not be read to its end as it was then. Another time it may.
    Abandoned,
    /// Its content is there, without the mode or the time that it should have.
    Bare,
    /// A directory that was said to be copied is there, without its mode or its time, or without what should be in it.
    Unfinished,
}

/// What a name stands for, as far as one that is foretold is compared. Times are seconds and nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Node {
    /// A regular file, and when it was changed.
    #[serde(rename = "f")]
    File(i64, u32),
    /// A directory, likewise.
    #[serde(rename = "d")]
    Directory(i64, u32),
    /// A symbolic link, and what it says.
    #[serde(rename = "l")]
    Symlink(Place),
}

/// What becomes of a name at the receiver of a copy that leaves files as they stand ([`Request::update`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It is copied.
    #[serde(rename = "w")]
    Wanted,
    /// What stands there is as old and as long, and stays.
    #[serde(rename = "c")]
    Current,
    /// What stands there is newer, and stays.
    #[serde(rename = "n")]
    Newer,
}

/// What would become of a name that is foretold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Judgement {
    /// This.
    #[serde(rename = "v")]
    Verdict(Verdict),
    /// It could not be copied, for this reason.
    #[serde(rename = "f")]
    Failing(Text),
}

/// Why one name was not copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// Which: a file's number, or a pack's number and the place in it.
    pub of: Rejected,
    /// In what way.
    pub lack: Lack,
    /// Why, with the path.
    pub reason: Text,
}

/// What was not copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejected {
    /// A file that comes in blocks.
    File(u32),
    /// An entry of a pack.
    Item(u32, u32),
    /// The mode or times of this directory, at the end.
    Directory(Place),
}

/// Time that an end's threads spent, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// Reading or writing files.
    pub disk: Nanos,
    /// Hashing.
    pub digest: Nanos,
    /// Waiting for the network to take or bring bytes.
    pub network: Nanos,
    /// CPU time of the process.
    pub cpu: Nanos,
    /// Threads that these are summed over.
    pub threads: u32,
}

/// The receiver's account when everything is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Bytes of content that arrived on data connections, also those that came twice.
    pub bytes: u64,
    /// From the arrival of the last byte until now.
    pub since_last: Nanos,
    /// Where its time went.
    pub stages: Stages,
    /// `SO_RCVBUF` as the kernel reported it.
    pub buffer: u64,
}

/// The sender's account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Where its time went.
    pub stages: Stages,
    /// What TCP says of the streams.
    pub transport: super::Sent,
    /// Time in which the receiver's window, and in which the send buffer, held a stream up, of the time that it had something to send:
    /// all streams together.
    pub busy: Nanos,
    /// Held up by the receiver's window.
    pub receiver_limited: Nanos,
    /// Held up by the sender's buffer.
    pub buffer_limited: Nanos,
    /// What it knows of the path; absent where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<SavedPath>,
    /// What became of a careful resume; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub careful_resume: Option<CarefulResumeAccount>,
}

/// What became of a careful resume (RFC 9959).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarefulResumeAccount {
    /// What all connections jumped to together, payload, bits per second.
    pub jump: BitsPerSec,
    /// How that went.
    pub outcome: CarefulResumeOutcome,
}

/// How a jump went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CarefulResumeOutcome {
    /// All was sent before that was known.
    Unvalidated,
    /// It arrived.
    Confirmed,
    /// Something of it was lost, or waited in a queue.
    Retreated,
}

/// One message of a file transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Copy {
    /// Client: what is asked for.
    Request(Box<Request>),
    /// Server: consent.
    Accept(Accept),
    /// Receiver: of this file these blocks are there, and where `last` no others are.
    Proven {
        /// The file.
        file: u32,
        /// At most [`MOST_PROVEN`].
        blocks: Vec<ProvenBlock>,
        /// Whether that is all.
        last: bool,
    },
    /// Sender: these blocks that the receiver has are the same here. At most [`super::MAX_ENTRIES`].
    Same(Vec<Unit>),
    /// Receiver: of this offer these are wanted, the others are there already. At most [`super::MAX_ENTRIES`] runs a message: first, and
    /// how many.
    Wanted {
        /// The pack that was offered.
        pack: u32,
        /// First entry and number of entries.
        runs: Vec<(u32, u32)>,
        /// Whether that is all.
        last: bool,
    },
    /// Receiver: of this offer these are not wanted, as what stands there is newer; said before what is. At most [`super::MAX_ENTRIES`] runs a
    /// message.
    Newer {
        /// The pack that was offered.
        pack: u32,
        /// First entry and number of entries.
        runs: Vec<(u32, u32)>,
    },
    /// Receiver: these are written. At most [`super::MAX_ENTRIES`].
    Acknowledged(Vec<Unit>),
    /// Receiver: these came damaged and are to be sent again.
    Damaged(Vec<Unit>),
    /// Receiver: these files have their final names, and the digests of all that is in them.
    Stored(Vec<(u32, Option<Digest>)>),
    /// Receiver: these it cannot store.
    Rejected(Vec<Rejection>),
    /// Either: this data connection is lost; what it carried and was not acknowledged is to be sent again.
    Lost(u32),
    /// Client, where it receives: from now on no more bits per second than this, all streams together; without a limit where absent.
    Limit(Option<BitsPerSec>),
    /// Sender: this file cannot be read to its end.
    Abandon {
        /// The file.
        file: u32,
        /// Why.
        reason: Text,
        /// Whether it is as it was, so that what came of it is worth keeping.
        #[serde(default)]
        keep: bool,
    },
    /// Sender, where it is the server: a name that it does not copy, and why.
    Skipped {
        /// The name.
        path: Place,
        /// In what way.
        lack: Lack,
        /// Why.
        reason: Text,
    },
    /// Sender, where nothing is copied: this would be, with so many bytes.
    Foretold {
        /// The name.
        path: Place,
        /// Bytes of content.
        bytes: u64,
        /// What it stands for, which says what becomes of it where the receiver leaves files as they stand.
        node: Node,
    },
    /// Receiver, where nothing is copied: what would become of the next names that were foretold, in their order. At most
    /// [`super::MAX_ENTRIES`], of which [`MOST_REJECTIONS`] would fail.
    Judged(Vec<Judgement>),
    /// Sender, where it is the server: how much there is to copy as far as it is known.
    Extent {
        /// Names.
        entries: u64,
        /// Bytes of content.
        bytes: u64,
    },
    /// Sender: there are so many files that come in blocks and so many packs, and no more.
    Total {
        /// Files, also those that were abandoned.
        files: u32,
        /// Packs with content.
        packs: u32,
        /// Names.
        entries: u64,
        /// Bytes of content.
        bytes: u64,
    },
    /// Receiver: everything is stored or rejected.
    Finished(Finished),
    /// Sender: its account; it sends no more.
    Sent(Box<Account>),
}

/// Most blocks of one [`Copy::Proven`]: 100 bytes of JSON each.
pub const MOST_PROVEN: usize = 512;

/// Most rejections of one message: 400 characters each.
pub const MOST_REJECTIONS: usize = 16;

/// Most sources of a request.
pub const MOST_SOURCES: usize = 1000;
