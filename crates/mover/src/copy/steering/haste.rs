//! First windows that grow by four a round trip, not two, while bursts show that the path is far from full: `bpf/suss.bpf.c`.

use std::net::TcpStream;

use farlink_host::congestion::{self, Loaded};
use farlink_host::socket;
use farlink_wire::quantity::Nanos;

use crate::automatic;

/// Where that stands.
#[derive(Debug, Default)]
pub(super) enum Haste {
    /// Nothing wants it.
    #[default]
    Idle,
    /// What it takes is being looked for.
    Awaited,
    /// It can be chosen; for as long as this, if it was this process that loaded it.
    There(Option<Loaded>),
    /// It is not to be had, or not wanted any more. What was loaded stays to the end: it takes a while to unload.
    Over(#[expect(dead_code, reason = "it is there for as long as this is")] Option<Loaded>),
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hasten {
    /// Nothing.
    Not,
    /// Find what it takes: [`Haste::on_found`] is to be told.
    Look,
    /// Have connections grow so that do not yet.
    Choose,
    /// Have none grow so any more.
    End,
}

impl Haste {
    /// Over round trips of `least`, of connections of which one has something `unsent`; `is_near` where the path may be half full soon.
    pub(super) fn advance(&mut self, least: Nanos, unsent: bool, is_near: bool) -> Hasten {
        match self {
            Self::Idle if is_near => {
                *self = Self::Over(None);
                Hasten::Not
            }
            Self::Idle if unsent && least >= SHORTEST => {
                *self = Self::Awaited;
                Hasten::Look
            }
            Self::There(loaded) if is_near => {
                *self = Self::Over(loaded.take());
                Hasten::End
            }
            Self::There(_) => Hasten::Choose,
            Self::Idle | Self::Awaited | Self::Over(_) => Hasten::Not,
        }
    }

    /// What [`Self::on_found`] is to be told; tens of milliseconds of a processor.
    pub(super) fn load() -> Option<Option<Loaded>> {
        congestion::ensure(FASTER).ok()
    }

    /// What it takes was looked for, and `found`.
    pub(super) fn on_found(&mut self, found: Option<Option<Loaded>>) {
        *self = found.map_or(Self::Over(None), Self::There);
    }

    /// Has a connection's window grow so; false where it goes on as it is, as where its route has something of its own.
    pub(super) fn choose(tcp: &TcpStream) -> bool {
        automatic::is_as_begun(tcp) && socket::set_congestion(tcp, FASTER).is_ok()
    }
}

/// The round trip below which slow start is over before anything could be loaded for it.
const SHORTEST: Nanos = Nanos(50_000_000);

/// The congestion control whose windows do.
const FASTER: &str = "suss";

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Nanos = Nanos(90_000_000);

    #[test]
    fn windows_grow_faster_where_there_is_more_to_send_until_the_path_is_half_full() {
        let mut haste = Haste::default();
        assert_eq!(haste.advance(LONG, false, false), Hasten::Not);
        assert_eq!(haste.advance(LONG, true, false), Hasten::Look);
        assert_eq!(haste.advance(LONG, true, false), Hasten::Not, "it is looked for once");
        haste.on_found(Some(None));
        assert_eq!(haste.advance(LONG, false, false), Hasten::Choose);
        assert_eq!(haste.advance(LONG, true, true), Hasten::End);
        assert_eq!(haste.advance(LONG, true, false), Hasten::Not);
    }

    #[test]
    fn they_do_not_where_that_is_not_to_be_had_or_comes_too_late() {
        let mut short = Haste::default();
        assert_eq!(short.advance(Nanos(20_000_000), true, false), Hasten::Not);
        let mut missing = Haste::default();
        assert_eq!(missing.advance(LONG, true, false), Hasten::Look);
        missing.on_found(None);
        assert_eq!(missing.advance(LONG, true, false), Hasten::Not);
        let mut late = Haste::default();
        assert_eq!(late.advance(LONG, true, true), Hasten::Not);
        assert_eq!(late.advance(LONG, true, false), Hasten::Not);
        let mut later = Haste::default();
        assert_eq!(later.advance(LONG, true, false), Hasten::Look);
        assert_eq!(later.advance(LONG, true, true), Hasten::Not);
        later.on_found(Some(None));
        assert_eq!(later.advance(LONG, true, true), Hasten::End);
    }
}
