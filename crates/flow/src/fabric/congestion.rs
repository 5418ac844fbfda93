//! How much may be under way on a path, and how fast it leaves.

mod base;
mod known;
mod own_loss;
mod sought;

use std::fmt::Debug;

use farlink_wire::quantity::{BitsPerSec, Nanos};

pub use self::known::Known;
pub use self::sought::Sought;

/// What was seen of a path in about one round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// When it ended.
    pub now: Nanos,
    /// Bytes that arrived.
    pub arrived: u64,
    /// Datagrams of which it is known what became of them.
    pub known: u32,
    /// Those of them that were lost.
    pub lost: u32,
    /// The shortest round-trip time.
    pub rtt: Nanos,
    /// Whether more would have left, had the window been larger.
    pub limited: bool,
    /// Whether something would have left sooner, had the rate been higher.
    pub paced: bool,
}

/// One controller of a path.
pub trait Congestion: Debug + Send {
    /// A round ended.
    fn on_round(&mut self, _round: Round) {}

    /// Nothing was answered, and for so long that nobody knows what the path is like now.
    fn on_silence(&mut self) {}

    /// Bytes that may be under way, on a path of that round-trip time.
    fn window(&self, rtt: Option<Nanos>) -> u64;

    /// The rate to leave with, for a path of that round-trip time; none where nothing is known of it.
    fn rate(&self, rtt: Option<Nanos>) -> Option<BitsPerSec>;

    /// Bytes that may leave at once after silence, where `usual` is what a process that is late is let have.
    fn burst(&self, usual: u64) -> u64 {
        usual
    }
}

/// Bytes that are ever under way on a path whose rate is sought: 51 ms of 10 Gb/s. All of it is kept until it is acknowledged.
pub const MOST_WINDOW: u64 = 64 << 20;
