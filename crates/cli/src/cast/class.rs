//! Classes of receivers: a group, and its rate.

use anyhow::{anyhow, bail};
use farlink_cast::group::Group;
use farlink_wire::quantity::BitsPerSec;

/// A rate as somebody wants it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    Fixed(BitsPerSec),
    Found,
}

/// Reads a rate, or auto.
pub(super) fn pace(text: &str) -> anyhow::Result<Pace> {
    if text == "auto" {
        return Ok(Pace::Found);
    }
    let rate = text.parse().map_err(|error| anyhow!("{error}; or write auto, to have it found"))?;
    Ok(Pace::Fixed(rate))
}

/// A class of receivers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) group: Group,
    pub(super) pace: Pace,
}

/// Reads a class, as in 239.1.1.1:7000=95mbit.
pub(super) fn class(text: &str) -> anyhow::Result<Class> {
    let Some((group, rate)) = text.split_once('=') else {
        bail!("write a group and its rate, as in 239.1.1.1:7000=95mbit");
    };
    Ok(Class { group: group.parse()?, pace: pace(rate)? })
}
