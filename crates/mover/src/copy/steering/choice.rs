//! Which BBR connections that are steered together are given: one must be loaded first, and nobody waits long for that.

use farlink_wire::quantity::Nanos;

use crate::automatic::Bbr;

/// The choice, and where it stands.
#[derive(Debug, Default)]
pub(super) enum Choice {
    /// Nobody asked for it.
    #[default]
    Open,
    /// One is being loaded, since then.
    Loading(Nanos),
    /// It is made.
    Made(Bbr),
}

impl Choice {
    /// Where it is `wanted`, as much is sent or connections are to have what keeps the path: whether one is to be loaded now, for which
    /// [`Self::on_loaded`] is told.
    pub(super) fn advance(&mut self, now: Nanos, rtt: Nanos, wanted: bool) -> bool {
        match self {
            Self::Open if wanted && Bbr::pays_to_load(rtt) => {
                *self = Self::Loading(now);
                return true;
            }
            Self::Open if wanted => *self = Self::Made(Bbr::default()),
            Self::Loading(since) if now.since(*since) >= PATIENCE => *self = Self::Made(Bbr::default()),
            _ => {}
        }
        false
    }

    /// `bbr` is what could be had; where that took too long, it is given back.
    pub(super) fn on_loaded(&mut self, bbr: Bbr) -> Option<Bbr> {
        if matches!(self, Self::Loading(_)) {
            *self = Self::Made(bbr);
            return None;
        }
        Some(bbr)
    }

    /// What was chosen, once it is.
    pub(super) const fn made(&mut self) -> Option<&mut Bbr> {
        match self {
            Self::Made(bbr) => Some(bbr),
            _ => None,
        }
    }
}

/// It takes tens of milliseconds, or as long as a host has no time.
const PATIENCE: Nanos = Nanos(300_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Nanos = Nanos(90_000_000);

    #[test]
    fn one_is_loaded_once_where_it_is_wanted_over_a_long_path() {
        let (mut choice, now) = (Choice::default(), Nanos(1));
        assert!(!choice.advance(now, LONG, false) && choice.made().is_none());
        assert!(choice.advance(now, LONG, true) && choice.made().is_none());
        assert!(!choice.advance(now, LONG, true));
        assert!(choice.on_loaded(Bbr::Larger(None)).is_none());
        assert!(matches!(choice.made(), Some(Bbr::Larger(_))));
        assert!(!choice.advance(now.after(PATIENCE), LONG, true));
        assert!(matches!(choice.made(), Some(Bbr::Larger(_))));
    }

    #[test]
    fn what_takes_too_long_comes_too_late() {
        let (mut choice, now) = (Choice::default(), Nanos(1));
        assert!(choice.advance(now, LONG, true));
        assert!(!choice.advance(now.after(PATIENCE), LONG, true));
        assert!(matches!(choice.made(), Some(Bbr::Kernels)));
        assert!(matches!(choice.on_loaded(Bbr::Larger(None)), Some(Bbr::Larger(_))));
        assert!(matches!(choice.made(), Some(Bbr::Kernels)));
    }

    #[test]
    fn nothing_is_loaded_over_a_short_path() {
        let mut choice = Choice::default();
        assert!(!choice.advance(Nanos(1), Nanos(10_000_000), true));
        assert!(matches!(choice.made(), Some(Bbr::Kernels)));
    }
}
