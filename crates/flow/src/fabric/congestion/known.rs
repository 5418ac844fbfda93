//! A rate that is guaranteed: it is taken, and not searched for.

use farlink_wire::quantity::{BitsPerSec, Nanos};

use super::{Congestion, MOST_WINDOW};

/// Sends at the rate that the path is known to have, whatever is lost on the way.
#[derive(Clone, Copy, Debug)]
pub struct Known(pub BitsPerSec);

impl Congestion for Known {
    fn window(&self) -> u64 {
        MOST_WINDOW
    }

    fn rate(&self, _rtt: Option<Nanos>) -> Option<BitsPerSec> {
        Some(self.0)
    }
}
