//! The transfer record: one JSON object a transfer, one line of a records file.
//!
//! What a mover does not know is absent, never guessed. Fields that this version does not know are kept.
//! `docs/records.md` is this file for people.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of this layout, in every record.
pub const SCHEMA: u32 = 1;

/// One transfer, whoever moved it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Unique to the transfer: 32 hexadecimal digits.
    pub id: String,
    /// What was moved.
    pub kind: Kind,
    /// What ended it.
    pub mode: Mode,
    /// When the first byte might leave: RFC 3339, UTC, nanoseconds.
    pub started: String,
    /// Seconds from the start of the command until the first byte might leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_s: Option<f64>,
    /// Seconds from then until the last byte had arrived at the receiver (mode `duration`: the time asked for).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<f64>,
    /// Payload bytes that arrived in that time.
    pub bytes: u64,
    /// Of files: from when the first byte might leave until everything was stored under its name, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_s: Option<f64>,

    /// Round-trip time of the connection, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_s: Option<f64>,
    /// The wire's rate, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Rate × payload / (payload + headers + framing): the C of every formula, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_bps: Option<f64>,
    /// Probability that a segment is lost on the way there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Bytes that the bottleneck's queue holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// Mean rate of other traffic on the way there, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background_bps: Option<u64>,
    /// `ethernet`, `sonet` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<String>,
    /// Largest IP packet, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,

    /// True where the mover chose by the path which congestion control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_chosen: Option<bool>,
    /// Parallel transport connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// True where the mover chose by the path how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams_chosen: Option<bool>,
    /// Hosts that share the work at one end (1 but for striped servers).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripes: Option<u32>,
    /// Congestion control as the kernel names it, as granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Where that congestion control came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_origin: Option<CongestionOrigin>,
    /// Why it was chosen, where `--congestion auto` left the choice to the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_reason: Option<String>,
    /// The rate that the connection's owner declared, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared_bps: Option<u64>,
    /// Most payload a second that was asked for, bit/s; of a timetable the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bps: Option<u64>,
    /// Socket buffer asked for at both ends, bytes; absent where the kernel tunes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<u64>,
    /// Socket buffers as the kernel reported them at the end, per end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffers: Option<Buffers>,
    /// Bytes per write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// Files of the transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// On whose behalf, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Name of the sending host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Name of the receiving host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// What moved it: `farlink`, `iperf3`, …
    pub tool: String,
    /// Its version.
    pub version: String,
    /// The hosts at both ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Hosts>,
    /// `clear`, `integrity` or `encrypted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protection: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, where it is not [`Outcome::Ok`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Segments sent again, all streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// CPU seconds, user and system, of the processes at both ends from the first byte to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<Ends>,
    /// Seconds that the disks were busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_s: Option<Disk>,
    /// `[t_s, bytes]`: bytes that arrived in the interval that ends `t_s` seconds after the first byte might leave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<(f64, u64)>,
    /// What the sender's kernel said of each stream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tcp: Vec<StreamTrace>,
    /// Seed of every random choice of the emulated connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The emulator's health during the transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulator: Option<EmulatorHealth>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Memory to memory.
    #[default]
    Memory,
    /// Files or trees.
    File,
    /// Through a mounted tree.
    Mount,
    /// Messages of an MPI program.
    Mpi,
    /// Multicast.
    Cast,
    /// Products of a feed.
    Feed,
}

/// What ended the transfer. Fixed-size and fixed-duration profiles are different curves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// All the bytes had arrived.
    #[default]
    Size,
    /// The time was over.
    Duration,
}

/// How the transfer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As asked.
    #[default]
    Ok,
    /// An error ended it; what was measured until then stands.
    Failed,
    /// The user ended it; what was measured until then stands.
    Interrupted,
}

/// Socket buffers that the kernel reported, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffers {
    /// `SO_SNDBUF` at the sender.
    pub send: u64,
    /// `SO_RCVBUF` at the receiver.
    pub receive: u64,
}

/// A number for each end that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ends {
    /// Of the sending end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<f64>,
    /// Of the receiving end, or of all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<f64>,
}

/// Seconds of disk time, of each end that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// Reading, at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<f64>,
    /// Writing, at the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<f64>,
}

/// The hosts at both ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hosts {
    /// The sending host.
    pub source: HostFacts,
    /// The receiving host; of many, as of a group, none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<HostFacts>,
}

/// What matters of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Kernel release.
    pub kernel: String,
    /// Logical processors that the process may use.
    pub cores: u32,
    /// File system of the data, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
}

/// One stream as `TCP_INFO` showed it, columns of equal length, one row an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamTrace {
    /// Which stream, from 0.
    pub stream: u32,
    /// Seconds since the first byte might leave.
    pub t_s: Vec<f64>,
    /// Congestion window, bytes.
    pub cwnd_bytes: Vec<u64>,
    /// Smoothed round-trip time, seconds.
    pub srtt_s: Vec<f64>,
    /// Segments sent again so far.
    pub retransmits: Vec<u64>,
    /// Pacing rate, bits per second; the kernel's "unlimited" is `null`.
    pub pacing_bps: Vec<Option<u64>>,
}

/// Where a congestion control comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CongestionOrigin {
    /// Built into the kernel, or a module of it.
    Kernel,
    /// A BPF program.
    Bpf,
}

/// How late the emulator's packets left, during the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EmulatorHealth {
    /// The latest, seconds.
    pub late_max_s: f64,
    /// The 99th percentile, seconds.
    pub late_p99_s: f64,
    /// Whether p99 passed 0.25 ms or 1% of the one-way delay, whichever is more, or packets were lost before
    /// the emulator could read them: the run says more of the emulator than of the connection.
    pub overrun: bool,
    /// CPU seconds that the host of this virtual machine gave to others, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_s: Option<f64>,
}

impl Record {
    /// The record as one line, with its line feed.
    #[must_use]
    pub fn line(&self) -> String {
        // Infallible: every key is a string and every number is finite or written as null.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// The record of one line.
    ///
    /// # Errors
    /// [`serde_json::Error`] with the column where the line breaks.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_fields_that_it_does_not_know() {
        let line = r#"{"schema":1,"id":"x","kind":"memory","mode":"size","started":"","bytes":5,"tool":"t","version":"1","outcome":"ok","lab":{"plan":"demo"}}"#;
        let record = Record::parse(line).unwrap();
        assert_eq!(record.extra["lab"]["plan"], "demo");
        assert_eq!(record.line().trim_end(), line);
    }

    #[test]
    fn leaves_out_what_is_not_known() {
        let line = Record { tool: "farlink".into(), ..Record::default() }.line();
        assert!(!line.contains("rtt_s") && !line.contains("null"), "{line}");
    }

    #[test]
    fn a_broken_line_is_an_error() {
        assert!(Record::parse("{\"schema\":1,").is_err());
        assert!(Record::parse("{\"kind\":\"teleport\"}").is_err());
    }
}
