//! Whether a circuit holds its rate, as its sender sees it: its pacing rate says at what it sends.

use std::sync::{Arc, Mutex, PoisonError};

use farlink_host::circuit::Share;
use farlink_host::clock::monotonic;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::CircuitAccount;
use farlink_wire::quantity::Nanos;

use super::Tuning;
use crate::connection::HEADERS_IPV6;

/// Looks at the streams of one circuit.
#[derive(Debug)]
pub(crate) struct CircuitWatch {
    /// Bits a second of the wire, each stream.
    share: u64,
    began: Nanos,
    seen: Mutex<Option<CircuitAccount>>,
}

impl CircuitWatch {
    /// Over what `wanted` says, whose first byte may leave at `began`; `None` where that is no circuit.
    pub(crate) fn of(wanted: &Tuning, began: Nanos) -> Option<Arc<Self>> {
        let share = Share::of(wanted.declared?, wanted.streams.into()).ok()?;
        Some(Arc::new(Self { share: share.rate().get(), began, seen: Mutex::default() }))
    }

    /// One of its streams is like this now.
    pub(crate) fn look(&self, info: &TcpInfo) {
        let Some(pacing) = info.pacing_bps else { return };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let account = seen.get_or_insert_default();
        if account.fell_back.is_none() && pacing < least_pace(self.share, info.path_mtu) {
            account.fell_back = Some(monotonic().since(self.began));
        }
    }

    /// What was seen; `None` where nothing was.
    pub(crate) fn account(&self) -> Option<CircuitAccount> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a sender looks, however long a sample is. Who falls back holds 95% of what arrived, no more than 95% of the rate, and takes four
/// periods of 50 ms or a round trip to come back to what passes for the whole (`judge` in `circuit.bpf.c`).
pub(crate) const OFTEN: Nanos = Nanos(100_000_000);

/// The payload's share of `declared` bits a second of the wire, less a 20th.
fn least_pace(declared: u64, mtu: u32) -> u64 {
    let mtu = mtu.max(LEAST_MTU);
    let payload = f64::from(mtu - HEADERS_IPV6) / f64::from(mtu + FRAMING);
    (declared as f64 * payload * 0.95) as u64
}

/// What Ethernet puts around a packet, bytes.
const FRAMING: u32 = 38;

/// Every path carries such packets (RFC 8200).
const LEAST_MTU: u32 = 1280;

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(streams: u32) -> Arc<CircuitWatch> {
        let wanted = Tuning {
            streams: streams.try_into().unwrap(),
            congestion: None,
            declared: Some("1gbit".parse().unwrap()),
            limit: None,
            buffer: None,
            chosen_later: false,
        };
        CircuitWatch::of(&wanted, monotonic()).unwrap()
    }

    fn paced(bps: Option<u64>) -> TcpInfo {
        TcpInfo { pacing_bps: bps, path_mtu: 9000, ..TcpInfo::default() }
    }

    #[test]
    fn what_was_never_seen_is_not_known() {
        let watch = watch(1);
        assert_eq!(watch.account(), None);
        watch.look(&paced(None));
        assert_eq!(watch.account(), None);
    }

    #[test]
    fn the_payloads_share_is_the_whole_rate() {
        let watch = watch(2);
        watch.look(&paced(Some(500_000_000 * 8928 / 9038)));
        assert_eq!(watch.account(), Some(CircuitAccount { fell_back: None }));
    }

    #[test]
    fn a_fallback_stays_known_when_the_rate_comes_back() {
        let watch = watch(1);
        for bps in [980_000_000, 850_000_000, 980_000_000] {
            watch.look(&paced(Some(bps)));
        }
        assert!(watch.account().unwrap().fell_back.is_some());
    }
}
