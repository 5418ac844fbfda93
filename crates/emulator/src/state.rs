//! How an emulation stands: the JSON object that `farlink link --json` prints and every mover reads.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::path::Path;

/// An emulated connection, as asked and as it went so far. Counters are cumulative.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// What others call it.
    pub name: String,
    /// Every random choice derives from it.
    pub seed: u64,
    /// The wire's rate.
    pub rate_bps: u64,
    /// Payload rate of TCP over IPv4 with timestamps, in full segments.
    pub goodput_bps: f64,
    /// Round-trip time of a path.
    pub rtt_s: f64,
    /// Share of segments lost in each direction of a path.
    pub loss: f64,
    /// Bytes that the queue holds.
    pub queue_bytes: u64,
    /// Mean rate of other traffic.
    pub background_bps: u64,
    /// `ethernet`, `sonet` or `none`.
    pub framing: String,
    /// Largest IP packet.
    pub mtu: u32,
    /// The hosts' default congestion control, where one was asked for.
    pub congestion: Option<String>,
    /// What else was asked, as written on the command line.
    pub asked: Map<String, Value>,
    /// `fifo`, or `other: ` and why.
    pub scheduling: String,
    /// Lateness above which a run is overrun, over the shortest path.
    pub overrun_limit_s: f64,
    /// CPU seconds of the emulator's threads.
    pub cpu_s: f64,
    /// CPU seconds that this virtual machine's host gave to others, where it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stolen_s: Option<f64>,
    /// What the hosts could not be given.
    pub notes: Vec<String>,
    /// The hosts.
    pub hosts: Vec<HostState>,
    /// The links, or those of the part that was asked for.
    pub links: Vec<LinkState>,
    /// Pairs of hosts between which nothing passes, as they were cut.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut_pairs: Vec<[String; 2]>,
    /// Where a host asked: its paths to the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<Path>,
}

/// The name of a star's middle, where a link starts or ends.
pub const CORE: &str = "core";

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostState {
    /// Its name.
    pub name: String,
    /// Its IPv4 address.
    pub ipv4: String,
    /// Its IPv6 address.
    pub ipv6: String,
    /// The multicast groups that it has joined, but for those of the link alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

/// A link: one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkState {
    /// The host, or `core`, at its start.
    pub from: String,
    /// The host, or `core`, at its end.
    pub to: String,
    /// The wire's rate.
    pub rate_bps: u64,
    /// One-way delay.
    pub delay_s: f64,
    /// Share of segments lost.
    pub loss: f64,
    /// Whether nothing passes.
    pub cut: bool,
    /// Super-packets offered.
    pub packets: u64,
    /// Segments offered.
    pub segments: u64,
    /// Bytes of IP packets offered.
    pub bytes: u64,
    /// Segments that did not arrive, by cause.
    pub dropped: Dropped,
    /// Packets of the background traffic that were offered, each as large as the MTU.
    pub background_packets: u64,
    /// Of them, those that were dropped, by cause.
    pub background_dropped: BackgroundDropped,
    /// Segments in which a bit was flipped.
    pub corrupted: u64,
    /// Segments that arrived twice.
    pub duplicated: u64,
    /// Segments that arrived late.
    pub reordered: u64,
    /// Packets that the receiving kernel would not take, or that were for nobody.
    pub refused: u64,
    /// Of `packets`, those with data for a multicast group; on a way from the core, the copies that it made for the host.
    pub multicast_packets: u64,
    /// Of `segments`, the same.
    pub multicast_segments: u64,
    /// Segments that reached the core for a group that nobody else had joined.
    pub multicast_unwanted: u64,
    /// Bytes that wait now.
    pub queue_bytes: u64,
    /// The most that ever waited.
    pub queue_max_bytes: u64,
    /// How late packets left: `[upper bound in seconds, count]`.
    pub late: Vec<(f64, u64)>,
}

/// Packets of the background traffic that went no further, by cause. What the wire loses of the others is nobody's to miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackgroundDropped {
    /// The queue was full.
    pub queue: u64,
    /// The link was cut.
    pub cut: u64,
}

/// Segments that did not arrive, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    /// The queue was full.
    pub queue: u64,
    /// Lost on the wire.
    pub loss: u64,
    /// The link, or the pair of hosts, was cut.
    pub cut: u64,
    /// Packets that the emulator was too late to read: their run says more of the emulator than of the connection.
    pub unread: u64,
}
