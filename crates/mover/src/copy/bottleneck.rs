//! What bounds a transfer, from where the time of both ends went and what TCP says.

use farlink_wire::message::copy::{Account, Finished, Stages};
use farlink_wire::quantity::{BitsPerSec, Nanos};

/// What bounds a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// TCP's windows: more streams or larger buffers would help.
    NetworkWindow,
    /// The path's rate.
    NetworkRate,
    /// The rate that was asked not to be exceeded.
    Limit,
    /// Reading at the source.
    SourceDisk,
    /// Writing at the destination.
    DestinationDisk,
    /// The processors of either end: hashing, encryption and copying.
    Processor,
}

impl Bottleneck {
    /// Whether it is the network.
    pub(super) const fn is_network(self) -> bool {
        matches!(self, Self::NetworkWindow | Self::NetworkRate)
    }

    /// As a person reads it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NetworkWindow => "network window",
            Self::NetworkRate => "network rate",
            Self::Limit => "--limit",
            Self::SourceDisk => "source disk",
            Self::DestinationDisk => "destination disk",
            Self::Processor => "CPU",
        }
    }
}

/// What bound a transfer whose data took `duration` to arrive; `cores` are those of the hosts, sender's and receiver's.
///
/// A stage that every thread of an end spends most of its time in is the bottleneck there. Where both ends wait for the network most of
/// the time it is the network: its window where the receiver's window or the congestion window held TCP up, its rate otherwise; or `limit`, what was
/// permitted in the mean, where that was nearly had.
pub(super) fn judge(
    duration: Nanos,
    sender: &Account,
    receiver: &Finished,
    cores: (u32, u32),
    limit: Option<BitsPerSec>,
) -> Bottleneck {
    let sending = Shares::of(&sender.stages);
    let receiving = Shares::of(&receiver.stages);
    // Until all was stored.
    let whole = duration.after(receiver.since_last);
    if busy(&sender.stages, whole, cores.0) || busy(&receiver.stages, whole, cores.1) {
        return Bottleneck::Processor;
    }
    // Where the sender waits for the network and the receiver for its disk, the disk is why the sender waits.
    if receiving.disk > HALF {
        return Bottleneck::DestinationDisk;
    }
    if sending.disk > HALF {
        return Bottleneck::SourceDisk;
    }
    if sending.digest > HALF || receiving.digest > HALF {
        return Bottleneck::Processor;
    }
    let rate = receiver.bytes as f64 * 8.0 / duration.as_secs_f64();
    if limit.is_some_and(|limit| rate >= limit.get() as f64 * NEARLY) {
        return Bottleneck::Limit;
    }
    let held = sender.receiver_limited.0.saturating_add(sender.buffer_limited.0);
    if held * 2 > sender.busy.0 && sender.busy > Nanos::ZERO {
        return Bottleneck::NetworkWindow;
    }
    Bottleneck::NetworkRate
}

/// Shares of the time that an end's threads spent at anything.
#[derive(Clone, Copy, Debug)]
struct Shares {
    disk: f64,
    digest: f64,
}

impl Shares {
    fn of(stages: &Stages) -> Self {
        let total = (stages.disk.0 + stages.digest.0 + stages.network.0).max(1) as f64;
        Self { disk: stages.disk.0 as f64 / total, digest: stages.digest.0 as f64 / total }
    }
}

/// Whether an end's process had all of its host's processors most of the time.
fn busy(stages: &Stages, duration: Nanos, cores: u32) -> bool {
    let had = u128::from(duration.0) * u128::from(cores.min(stages.threads).max(1));
    u128::from(stages.cpu.0) * 10 > had * 9
}

const HALF: f64 = 0.5;

/// What of a limit is had where that is what holds a copy up: it may have had to wait for its first windows.
const NEARLY: f64 = 0.9;

#[cfg(test)]
mod tests {
    use farlink_wire::message::Sent;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ends(sending: [u64; 3], receiving: [u64; 3], limited: u64) -> (Account, Finished) {
        let stages = |[disk, digest, network]: [u64; 3]| Stages {
            disk: Nanos(disk),
            digest: Nanos(digest),
            network: Nanos(network),
            cpu: Nanos(1),
            threads: 4,
        };
        let transport = Sent {
            cpu: Nanos(0),
            buffer: 0,
            retransmits: 0,
            congestion: String::new().into(),
            origin: None,
            reason: None,
            mtu: 0,
            zero_copy: false,
            circuit: None,
        };
        let account = Account {
            stages: stages(sending),
            transport,
            busy: Nanos(100),
            receiver_limited: Nanos(limited),
            buffer_limited: Nanos(0),
            ..Account::default()
        };
        let finished = Finished { bytes: 0, since_last: Nanos(0), stages: stages(receiving), buffer: 0 };
        (account, finished)
    }

    #[test]
    fn processors_that_stored_what_had_come_had_the_time_that_this_took() {
        let (account, mut finished) = ends([1, 1, 8], [8, 1, 1], 0);
        finished.stages.cpu = Nanos(4 * SECOND);
        let judged = |finished: &Finished| judge(Nanos(SECOND / 100), &account, finished, (4, 4), None);
        assert_eq!(judged(&finished), Bottleneck::Processor);
        finished.since_last = Nanos(10 * SECOND);
        assert_eq!(judged(&finished), Bottleneck::DestinationDisk);
    }

    #[test]
    fn the_stage_that_takes_the_time_is_named() {
        let of = |(account, finished): (Account, Finished)| {
            judge(Nanos(SECOND), &account, &finished, (8, 8), BitsPerSec::new(1000))
        };
        assert_eq!(of(ends([90, 5, 5], [1, 1, 98], 0)), Bottleneck::SourceDisk);
        assert_eq!(of(ends([1, 1, 98], [90, 5, 5], 0)), Bottleneck::DestinationDisk);
        assert_eq!(of(ends([1, 90, 9], [1, 1, 98], 0)), Bottleneck::Processor);
        assert_eq!(of(ends([1, 1, 98], [1, 1, 98], 80)), Bottleneck::NetworkWindow);
        assert_eq!(of(ends([1, 1, 98], [1, 1, 98], 0)), Bottleneck::NetworkRate);
        let (mut account, finished) = ends([1, 1, 98], [1, 1, 98], 0);
        account.stages.cpu = Nanos(4 * SECOND);
        assert_eq!(judge(Nanos(SECOND), &account, &finished, (4, 8), None), Bottleneck::Processor);
        let nearly = |bytes| {
            let (account, finished) = ends([1, 1, 98], [1, 1, 98], 80);
            of((account, Finished { bytes, ..finished }))
        };
        assert_eq!([nearly(113), nearly(112)], [Bottleneck::Limit, Bottleneck::NetworkWindow]);
    }
}
