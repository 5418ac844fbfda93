//! How much of a receive buffer is TCP's window: the kernel counts a packet's memory, not its payload.

use farlink_host::kernel_version::KernelVersion;

/// The share of a buffer that the kernel offers as a window (`tcp_win_from_space` in its include/net/tcp.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overhead {
    /// From Linux 6.6: a share that the kernel measures on what arrives. It begins with a half
    /// (`TCP_DEFAULT_SCALING_RATIO`), which is what can be counted on.
    Measured,
    /// Before: what `net.ipv4.tcp_adv_win_scale` says.
    Chosen(i8),
}

impl Overhead {
    /// That of a kernel, as `uname -r` names it, with its `tcp_adv_win_scale`; the kernel's own default, a half,
    /// where neither is known.
    pub(crate) fn of(release: &str, scale: Option<i64>) -> Self {
        match (KernelVersion::of(release), scale) {
            (Some(version), Some(scale @ -31..=31)) if version < MEASURES => Self::Chosen(scale as i8),
            _ => Self::Measured,
        }
    }

    /// The window that a buffer of `space` bytes offers.
    pub(crate) const fn window(self, space: u64) -> u64 {
        match self {
            Self::Measured => space / 2,
            Self::Chosen(scale) if scale <= 0 => space >> -scale,
            Self::Chosen(scale) => space - (space >> scale),
        }
    }

    /// The smallest buffer that offers a window of `window` bytes.
    pub(crate) const fn space(self, window: u64) -> u64 {
        match self {
            Self::Measured => window.saturating_mul(2),
            Self::Chosen(scale) if scale <= 0 => {
                if scale < -31 || window > u64::MAX >> 31 {
                    u64::MAX
                } else {
                    window << -scale
                }
            }
            Self::Chosen(scale) => {
                let parts = (1_u64 << scale) - 1;
                window.saturating_add(window.div_ceil(parts))
            }
        }
    }
}

/// The first kernel that measures the share.
const MEASURES: KernelVersion = KernelVersion(6, 6);

/// The largest window: 65,535 shifted by 14 (RFC 7323, 2.3).
pub(crate) const MOST_WINDOW: u64 = 65_535 << 14;

/// The largest without window scaling: 16 bits (RFC 9293, 3.1).
pub(crate) const UNSCALED_WINDOW: u64 = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_from_linux_6_6_whatever_the_setting_says() {
        assert_eq!(Overhead::of("6.18.44-1-amd64", Some(3)), Overhead::Measured);
        assert_eq!(Overhead::of("6.6.0", Some(3)), Overhead::Measured);
        assert_eq!(Overhead::of("6.5.13", Some(3)), Overhead::Chosen(3));
        assert_eq!(Overhead::of("5.14.0-427.el9", Some(-2)), Overhead::Chosen(-2));
        assert_eq!(Overhead::of("5.14", None), Overhead::Measured);
        assert_eq!(Overhead::of("odd", Some(1)), Overhead::Measured);
    }

    #[test]
    fn the_shares_are_the_kernels() {
        assert_eq!(Overhead::Chosen(1).window(1 << 20), 1 << 19);
        assert_eq!(Overhead::Chosen(2).window(1 << 20), 3 << 18);
        assert_eq!(Overhead::Chosen(0).window(1 << 20), 1 << 20);
        assert_eq!(Overhead::Chosen(-2).window(1 << 20), 1 << 18);
    }

    proptest::proptest! {
        #[test]
        fn the_buffer_for_a_window_offers_it(scale in -31i8..=31, window in 1u64..1 << 33) {
            for overhead in [Overhead::Measured, Overhead::Chosen(scale)] {
                proptest::prop_assert!(overhead.window(overhead.space(window)) >= window, "{:?}", overhead);
            }
        }
    }
}
