//! The options that say what the path between two hosts is: the same when it is made and when it is changed.

use clap::Args;
use farlink_emulator::Change;
use farlink_emulator::asked::Asked;
use farlink_emulator::change::Others;
use farlink_link::Loss;
use farlink_link::conditions::{QueueLimit, Reorder};
use farlink_wire::quantity::{BitsPerSec, Fraction, Nanos};

/// What was asked of a path.
#[derive(Clone, Debug, Args)]
pub(crate) struct PathOptions {
    /// The wire's rate, framing included [at first: 10gbit, with sonet framing 9.58464gbit].
    #[arg(long)]
    rate: Option<Asked<BitsPerSec>>,
    /// Round-trip time between any two hosts; of one access link, its own [at first: 0ms].
    #[arg(long, value_name = "TIME")]
    rtt: Option<Asked<Nanos>>,
    /// What waits before the bottleneck at most: a time at the rate, or a size [at first: 50ms].
    #[arg(long, value_name = "TIME|SIZE")]
    queue: Option<Asked<QueueLimit>>,
    /// Loss in each direction: 1%, every:1000, burst:SHARE,LENGTH or gemodel:p,r[,1-h[,1-k]].
    #[arg(long)]
    loss: Option<Asked<Loss>>,
    /// The one-way delay varies by up to this much either way; the order is kept.
    #[arg(long, value_name = "TIME")]
    jitter: Option<Asked<Nanos>>,
    /// Share of segments that arrive late, and how late: 1%,2ms.
    #[arg(long, value_name = "SHARE[,TIME]")]
    reorder: Option<Asked<Reorder>>,
    /// Share of segments that arrive twice.
    #[arg(long, value_name = "SHARE")]
    duplicate: Option<Asked<Fraction>>,
    /// Share of segments in which a bit is flipped.
    #[arg(long, value_name = "SHARE")]
    corrupt: Option<Asked<Fraction>>,
    /// Other traffic that takes its share of rate and queue in each direction: 3gbit, 3gbit,on-off:100ms or none.
    #[arg(long, value_name = "LOAD")]
    background: Option<Asked<Others>>,
}

impl PathOptions {
    /// What they ask.
    pub(crate) fn into_change(self) -> Change {
        let Self { rate, rtt, queue, loss, jitter, reorder, duplicate, corrupt, background } = self;
        Change { rate, rtt, queue, loss, jitter, reorder, duplicate, corrupt, background, cut: None }
    }
}
