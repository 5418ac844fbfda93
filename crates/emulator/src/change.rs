//! What may be asked of a connection, when it is made or while it runs, and of which part of it.

use std::convert::Infallible;
use std::str::FromStr;

use farlink_link::background::{Background, BackgroundError};
use farlink_link::conditions::{QueueLimit, Reorder};
use farlink_link::{Conditions, Loss};
use farlink_wire::quantity::{BitsPerSec, Fraction, Nanos};
use serde::{Deserialize, Serialize};

use crate::asked::Asked;

/// What to change; `None` leaves it. What a field means is said at [`Conditions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Change {
    /// The wire's rate.
    pub rate: Option<Asked<BitsPerSec>>,
    /// Round-trip time: of a path, or of one access link.
    pub rtt: Option<Asked<Nanos>>,
    /// What the queue holds.
    pub queue: Option<Asked<QueueLimit>>,
    /// What is lost in each direction.
    pub loss: Option<Asked<Loss>>,
    /// How far the one-way delay varies.
    pub jitter: Option<Asked<Nanos>>,
    /// Segments that arrive late.
    pub reorder: Option<Asked<Reorder>>,
    /// Share of segments that arrive twice.
    pub duplicate: Option<Asked<Fraction>>,
    /// Share of segments in which a bit is flipped.
    pub corrupt: Option<Asked<Fraction>>,
    /// Other traffic.
    pub background: Option<Asked<Others>>,
    /// Whether nothing passes.
    pub cut: Option<bool>,
}

/// Other traffic, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Others(pub Option<Background>);

/// What part of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Every path.
    All,
    /// One host's access link, both ways.
    Host(String),
    /// The path between two hosts: it can only be cut and restored.
    Pair(String, String),
}

impl Change {
    /// Whether it leaves everything as it was.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// What `was` becomes by it.
    #[must_use]
    pub fn on(&self, was: Conditions) -> Conditions {
        fn or<T: Copy>(asked: Option<&Asked<T>>, was: T) -> T {
            asked.map_or(was, Asked::value)
        }
        Conditions {
            rate: self.rate.as_ref().map(Asked::value).or(was.rate),
            delay: self.rtt.as_ref().map_or(was.delay, |rtt| Nanos(rtt.value().0 / 2)),
            queue: or(self.queue.as_ref(), was.queue),
            loss: or(self.loss.as_ref(), was.loss),
            jitter: or(self.jitter.as_ref(), was.jitter),
            reorder: or(self.reorder.as_ref(), was.reorder),
            duplicate: or(self.duplicate.as_ref(), was.duplicate),
            corrupt: or(self.corrupt.as_ref(), was.corrupt),
            background: self.background.as_ref().map_or(was.background, |others| others.value().0),
            framing: was.framing,
            mtu: was.mtu,
            is_cut: self.cut.unwrap_or(was.is_cut),
        }
    }

    /// What `was` becomes where what this names is taken from `whole`.
    #[must_use]
    pub fn take(&self, was: Conditions, whole: Conditions) -> Conditions {
        fn either<T, A>(asked: Option<&A>, was: T, whole: T) -> T {
            if asked.is_some() { whole } else { was }
        }
        Conditions {
            rate: either(self.rate.as_ref(), was.rate, whole.rate),
            delay: either(self.rtt.as_ref(), was.delay, whole.delay),
            queue: either(self.queue.as_ref(), was.queue, whole.queue),
            loss: either(self.loss.as_ref(), was.loss, whole.loss),
            jitter: either(self.jitter.as_ref(), was.jitter, whole.jitter),
            reorder: either(self.reorder.as_ref(), was.reorder, whole.reorder),
            duplicate: either(self.duplicate.as_ref(), was.duplicate, whole.duplicate),
            corrupt: either(self.corrupt.as_ref(), was.corrupt, whole.corrupt),
            background: either(self.background.as_ref(), was.background, whole.background),
            framing: was.framing,
            mtu: was.mtu,
            is_cut: either(self.cut.as_ref(), was.is_cut, whole.is_cut),
        }
    }
}

impl FromStr for Others {
    type Err = BackgroundError;

    fn from_str(text: &str) -> Result<Self, BackgroundError> {
        Ok(Self(if text == "none" { None } else { Some(text.parse()?) }))
    }
}

impl FromStr for Target {
    type Err = Infallible;

    /// `c` or `a..b`: whether there are such hosts is the emulation's to say.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once("..") {
            None => Self::Host(text.to_owned()),
            Some((one, other)) => Self::Pair(one.to_owned(), other.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_stays_as_it_was() {
        let was = Conditions {
            rate: BitsPerSec::new(1_000_000_000),
            loss: "1%".parse().unwrap(),
            background: Some("100mbit".parse().unwrap()),
            is_cut: true,
            ..Conditions::default()
        };
        assert_eq!(Change::default().on(was), was);
        let change = Change {
            rtt: Some("183ms".parse().unwrap()),
            background: Some("none".parse().unwrap()),
            cut: Some(false),
            ..Change::default()
        };
        let changed = Conditions { delay: Nanos(91_500_000), background: None, is_cut: false, ..was };
        assert_eq!(change.on(was), changed);
        assert!(Change::default().is_nothing() && !change.is_nothing());
    }

    #[test]
    fn of_the_whole_only_what_is_named_is_taken() {
        let own = Conditions { loss: "5%".parse().unwrap(), is_cut: true, ..Conditions::default() };
        let whole = Conditions {
            delay: Nanos(45_000_000),
            jitter: Nanos(1_000_000),
            is_cut: false,
            ..Conditions::default()
        };
        let change = Change { rtt: Some("180ms".parse().unwrap()), ..Change::default() };
        assert_eq!(change.take(own, whole), Conditions { delay: Nanos(45_000_000), ..own });
        let restore = Change { cut: Some(false), ..Change::default() };
        assert_eq!(restore.take(own, whole), Conditions { is_cut: false, ..own });
    }

    #[test]
    fn a_part_is_a_host_or_two() {
        assert_eq!("c".parse(), Ok(Target::Host("c".into())));
        assert_eq!("a..b".parse(), Ok(Target::Pair("a".into(), "b".into())));
    }
}
