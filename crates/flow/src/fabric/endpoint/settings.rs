//! What may be chosen of an endpoint.

use farlink_wire::quantity::{BitsPerSec, Nanos};

use crate::fabric::transport::Kind;

/// What an endpoint is to do.
#[derive(Clone)]
pub struct Settings {
    /// The transport, and what of it may be chosen.
    pub transport: Kind,
    /// The job's key.
    pub key: [u8; 32],
    /// Bytes of a datagram's payload at most: 8,972 where packets have 9,000 bytes.
    pub payload: usize,
    /// The rate that this process may send with to other hosts; with none it is sought.
    pub rate: Option<BitsPerSec>,
    /// How many processes of this host send, this one included: each begins to seek its rate with its share of what one alone would.
    pub sharers: u64,
    /// Messages up to so many bytes go at once.
    pub eager: usize,
    /// Bytes of one message at most.
    pub most: usize,
    /// How many processes the job has, where that is known: so that what they may send to one unasked has a bound. All are to say the same.
    pub processes: Option<u64>,
    /// A peer that owes an answer, or whose message is waited for, and that says nothing for so long, has failed: at two thirds of it at
    /// the earliest.
    pub silence: Nanos,
    /// Whether peers of this host are reached by [`Endpoint::fill`](super::Endpoint::fill); otherwise by datagrams, too.
    pub nearby: bool,
    /// For what is chosen at random.
    pub seed: u64,
}

impl std::fmt::Debug for Settings {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("transport", &self.transport)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}
