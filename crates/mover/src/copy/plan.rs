//! What a file transfer is to be, and what came of it.

use farlink_flow::timetable::Timetable;
use farlink_host::clock::time_of_day;
use farlink_wire::message::copy::{Place, Protect, Rule};
use farlink_wire::message::{Buffer, Interval, Name, Patience, Streams, Way};
use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos};
use farlink_wire::record::Record;

use super::file_event::FileEvent;
use super::{Bottleneck, CopyError};
use crate::far::Far;

/// A file transfer as somebody wants it.
#[derive(Debug)]
pub struct Plan {
    /// When the command began, by the monotonic clock: what is measured before it is carried out is part of it.
    pub began: Nanos,
    /// The other end.
    pub far: Far,
    /// Whether the files go there or come from there.
    pub way: Way,
    /// This host's address to connect from; the kernel's choice where absent.
    pub bind: Option<std::net::IpAddr>,
    /// What is copied, on the host that sends.
    pub sources: Vec<Place>,
    /// Where to, on the host that receives.
    pub destination: Place,
    /// What is copied of them and what is not.
    pub rules: Vec<Rule>,
    /// The only names beneath the source that are copied, each with all that is in it; all of them where absent.
    pub names: Option<Vec<Place>>,
    /// Bytes of a source that has no end.
    pub length: Option<Bytes>,
    /// Ask first what is there; by what is remembered of earlier attempts where absent.
    pub resume: Option<bool>,
    /// Leave files as they stand at the destination that are newer, or as old and as long.
    pub update: bool,
    /// How data are kept from others.
    pub protect: Protect,
    /// Whether content is hashed and checked.
    pub verify: bool,
    /// Whether a file is on disk before it has its name.
    pub fsync: bool,
    /// Whether it is read again from there, too.
    pub read_back: bool,
    /// Most bits per second, all streams together, by this host's time of day.
    pub limit: Option<Timetable>,
    /// Data connections; by the path where absent.
    pub streams: Option<Streams>,
    /// Congestion control; the sender's default where absent.
    pub congestion: Option<Name>,
    /// The wire's rate that is guaranteed.
    pub declared: Option<BitsPerSec>,
    /// Socket buffers; the kernel tunes them where absent.
    pub buffer: Option<Buffer>,
    /// Whether it begins with what the path carried before.
    pub careful_resume: bool,
    /// Length of a sample.
    pub interval: Interval,
    /// How long the far end may be silent.
    pub patience: Patience,
    /// Attempts behind each other that copy nothing, where the connection breaks; 0 is one attempt in all.
    pub retries: u32,
    /// Why congestion control and all else was chosen, where a profile model chose: for the record.
    pub reason: Option<String>,
    /// Whether what becomes of each name is of interest, also where all is well.
    pub report: bool,
}

impl Plan {
    /// Whether all that its sources have is copied, and no selection of it.
    pub(super) fn is_whole(&self) -> bool {
        self.rules.is_empty() && self.names.is_none()
    }

    /// The limit that holds now.
    pub(super) fn limit_now(&self) -> Option<BitsPerSec> {
        self.limit.as_ref().and_then(|limit| limit.at(time_of_day()))
    }
}

/// What a transfer tells while it goes on.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// How it goes.
    Progress(Progress),
    /// What became of a name.
    File(FileEvent),
    /// What a person should know, though it goes on.
    Warning(String),
    /// It is begun anew: what became of each name is told again.
    Again,
}

/// Who is told how a transfer goes, and must not wait for anything before it has heard: the far end takes who is silent for gone.
pub trait Listener {
    /// Something is to be told.
    fn hear(&mut self, notice: Notice);

    /// Whether it has heard so much more than it could tell that the transfer is to wait.
    fn is_behind(&self) -> bool {
        false
    }
}

impl<F: FnMut(Notice)> Listener for F {
    fn hear(&mut self, notice: Notice) {
        self(notice);
    }
}

/// How it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Bytes of content that are done.
    pub bytes: u64,
    /// Of so many, as far as they are known.
    pub of_bytes: u64,
    /// Names that are done.
    pub entries: u64,
    /// Of so many, as far as they are known.
    pub of_entries: u64,
    /// Whether all are known.
    pub known: bool,
    /// Seconds since the first byte might leave.
    pub seconds: f64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Names that are there now, copied or the same before.
    pub entries: u64,
    /// Those of them that stand as they did, as they are newer than what came.
    pub newer: u64,
    /// Names that should be and are not.
    pub failed: u64,
    /// Those of them whose content is there, without the mode or the time that the file system does not keep.
    pub bare: u64,
    /// Names that are nothing that can be copied.
    pub skipped: u64,
    /// Bytes of content of all names.
    pub bytes: u64,
    /// Bytes that were there already and were proven.
    pub same: u64,
    /// What bound it.
    pub bottleneck: Option<Bottleneck>,
    /// Attempts after the first.
    pub retries: u32,
}

/// What came of it. There is a record of whatever was measured, also where it failed.
#[derive(Debug)]
pub struct Finished {
    /// Its record.
    pub record: Record,
    /// Counts.
    pub summary: Summary,
    /// Why it failed as a whole, where it did.
    pub error: Option<CopyError>,
    /// Whether anything was copied, or content came, before it failed.
    pub begun: bool,
}
