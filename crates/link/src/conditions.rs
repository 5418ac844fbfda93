//! What a link is asked to be.

use std::fmt;
use std::str::FromStr;

use farlink_wire::quantity::{BitsPerSec, Bytes, Fraction, Nanos, QuantityError};

use crate::background::Background;
use crate::framing::Framing;
use crate::loss::Loss;

/// One direction of a connection, as asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// The wire's rate, framing included; `None` is a link without a rate, and so without a queue.
    pub rate: Option<BitsPerSec>,
    /// One-way delay: from the last bit's departure to its arrival.
    pub delay: Nanos,
    /// Segments that would have to wait behind more than this are dropped (tail drop).
    pub queue: QueueLimit,
    /// What is lost on the wire.
    pub loss: Loss,
    /// The delay varies by up to this much either way, uniformly; the order is kept.
    pub jitter: Nanos,
    /// Segments that arrive after later ones.
    pub reorder: Reorder,
    /// Share of segments that arrive twice.
    pub duplicate: Fraction,
    /// Share of segments in which a bit is flipped.
    pub corrupt: Fraction,
    /// Other traffic.
    pub background: Option<Background>,
    /// What the wire carries around each packet.
    pub framing: Framing,
    /// Largest IP packet: the size of background packets, and of the goodput's segments.
    pub mtu: u32,
    /// Nothing arrives.
    pub is_cut: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            rate: None,
            delay: Nanos::ZERO,
            queue: QueueLimit::default(),
            loss: Loss::None,
            jitter: Nanos::ZERO,
            reorder: Reorder::default(),
            duplicate: Fraction::default(),
            corrupt: Fraction::default(),
            background: None,
            framing: Framing::Ethernet,
            mtu: 9000,
            is_cut: false,
        }
    }
}

impl Conditions {
    /// Bytes that the queue holds; `None` where there is no rate to queue for.
    #[must_use]
    pub fn queue_bytes(&self) -> Option<u64> {
        self.rate.map(|rate| match self.queue {
            QueueLimit::Time(time) => rate.bytes_in(time),
            QueueLimit::Bytes(bytes) => bytes.0,
        })
    }

    /// Bytes that the link holds at most: in the queue and on the way.
    #[must_use]
    pub fn held_bytes(&self) -> Option<u64> {
        let extra = Nanos(self.delay.0 + self.jitter.0 + self.reorder.extra.0);
        Some(self.rate?.bytes_in(extra) + self.queue_bytes()?)
    }
}

/// How much a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// What leaves in this time at the link's rate.
    Time(Nanos),
    /// So many bytes of the wire.
    Bytes(Bytes),
}

impl Default for QueueLimit {
    /// 50 ms: a deep-buffered router's.
    fn default() -> Self {
        Self::Time(Nanos(50_000_000))
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => write!(f, "{time}"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for QueueLimit {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text.parse::<Bytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(as_bytes) => match text.parse::<Nanos>() {
                Ok(time) => Ok(Self::Time(time)),
                // A number alone may be either, so the error that says so; other units are likelier times.
                Err(QuantityError::NoUnit { .. }) => {
                    Err(QuantityError::NoUnit { text: text.to_owned(), example: "50ms or 62.5MB" })
                }
                Err(QuantityError::UnknownUnit { .. }) => Err(as_bytes),
                Err(as_time) => Err(as_time),
            },
        }
    }
}

/// Which segments arrive late, and by how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Share of segments.
    pub share: Fraction,
    /// How much later than their turn.
    pub extra: Nanos,
}

impl Default for Reorder {
    fn default() -> Self {
        Self { share: Fraction::default(), extra: Nanos(1_000_000) }
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.share, self.extra)
    }
}

impl FromStr for Reorder {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text.split_once(',') {
            Some((share, extra)) => Ok(Self { share: share.parse()?, extra: extra.parse()? }),
            None => Ok(Self { share: text.parse()?, ..Self::default() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_a_time_or_a_size() {
        assert_eq!("50ms".parse(), Ok(QueueLimit::Time(Nanos(50_000_000))));
        assert_eq!("62.5MB".parse(), Ok(QueueLimit::Bytes(Bytes(62_500_000))));
        assert_eq!(
            "50".parse::<QueueLimit>().unwrap_err().to_string(),
            "\"50\" has no unit: write it as in 50ms or 62.5MB"
        );
    }

    #[test]
    fn holds_the_bandwidth_delay_product_and_the_queue() {
        let conditions = Conditions {
            rate: BitsPerSec::new(10_000_000_000),
            delay: Nanos(183_000_000),
            ..Conditions::default()
        };
        assert_eq!(conditions.held_bytes(), Some(228_750_000 + 62_500_000 + 1_250_000));
    }

    #[test]
    fn reordering_has_a_share_and_perhaps_a_time() {
        assert_eq!("1%".parse::<Reorder>().unwrap().extra, Nanos(1_000_000));
        assert_eq!("1%,5ms".parse::<Reorder>().unwrap().extra, Nanos(5_000_000));
    }
}
