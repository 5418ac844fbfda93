//! How far the server's clock is from this host's.

use farlink_wire::quantity::Nanos;

/// The server's monotonic clock less this host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offset {
    nanos: i64,
    /// The truth is at most this far away.
    pub(crate) error: Nanos,
}

/// One exchange: a request that left here at `sent`, came there at `received`; its answer left there at
/// `answered` and came here at `returned`. Each on its own host's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) sent: Nanos,
    pub(crate) received: Nanos,
    pub(crate) answered: Nanos,
    pub(crate) returned: Nanos,
}

impl Offset {
    /// Both ends read one clock.
    pub(crate) const NONE: Self = Self { nanos: 0, error: Nanos::ZERO };

    /// From one exchange over a connection on which a message takes at least half of `min_rtt` each way
    /// (RFC 5905, 8): the middle of what is possible.
    pub(crate) fn estimate(exchange: Exchange, min_rtt: Nanos) -> Self {
        let Exchange { sent, received, answered, returned } = exchange;
        let there = received.0 as i128 - sent.0 as i128;
        let back = answered.0 as i128 - returned.0 as i128;
        let nanos = i64::try_from((there + back) / 2).unwrap_or(0);
        let queued = u64::try_from((there - back).max(0)).unwrap_or(u64::MAX);
        Self { nanos, error: Nanos(Nanos(queued).since(min_rtt).0 / 2) }
    }

    /// A time of the server's clock on this host's.
    pub(crate) fn to_here(self, there: Nanos) -> Nanos {
        Nanos(there.0.saturating_add_signed(self.nanos.saturating_neg()))
    }

    /// A time of this host's clock on the server's.
    pub(crate) fn to_there(self, here: Nanos) -> Nanos {
        Nanos(here.0.saturating_add_signed(self.nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(offset: u64, there: u64, work: u64, back: u64) -> Exchange {
        let sent = Nanos(1_000_000);
        let received = Nanos(sent.0 + there + offset);
        let answered = Nanos(received.0 + work);
        Exchange { sent, received, answered, returned: Nanos(answered.0 - offset + back) }
    }

    #[test]
    fn an_even_exchange_gives_the_offset_whatever_the_server_waited_for() {
        let offset = Offset::estimate(exchange(777_000, 50_000, 123_456, 50_000), Nanos(100_000));
        assert_eq!(offset.to_there(Nanos(10)), Nanos(777_010));
        assert_eq!(offset.to_here(Nanos(777_010)), Nanos(10));
        assert_eq!(offset.error, Nanos::ZERO);
    }

    #[test]
    fn a_message_that_was_late_is_within_the_error() {
        let offset = Offset::estimate(exchange(0, 250_000, 0, 50_000), Nanos(100_000));
        assert_eq!(offset.to_there(Nanos(0)), Nanos(100_000));
        assert_eq!(offset.error, Nanos(100_000));
    }

    #[test]
    fn no_exchange_overflows() {
        for (sent, received) in [(0, u64::MAX), (u64::MAX, 0)] {
            let exchange = Exchange {
                sent: Nanos(sent),
                received: Nanos(received),
                answered: Nanos(received),
                returned: Nanos(sent),
            };
            let offset = Offset::estimate(exchange, Nanos::ZERO);
            let _ = (offset.to_here(Nanos::MAX), offset.to_there(Nanos::ZERO));
        }
    }
}
