//! Which kernel this is, by the numbers that its features came with.

use std::fmt;

use crate::process;

/// The first two numbers of a kernel's release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    /// That of a release, as `uname -r` shows it; `None` where it does not begin with two numbers.
    #[must_use]
    pub fn of(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some(Self(major, minor)),
            _ => None,
        }
    }

    /// Whether a kernel of `release` may have what came with this version: it is that or later, or its number does not tell, as
    /// with those that take later features in under the number of an old one.
    #[must_use]
    pub fn may_be_in(self, release: &str) -> bool {
        release.contains(BACKPORTED) || Self::of(release).is_none_or(|version| version >= self)
    }

    /// As [`Self::may_be_in`], of this host's kernel.
    #[must_use]
    pub fn may_be_here(self) -> bool {
        self.may_be_in(&process::kernel_release())
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// In releases of Red Hat's Enterprise Linux and those made of its sources: 5.14.0-503.el9 has BPF of 6.8.
const BACKPORTED: &str = ".el";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_with_its_version() {
        assert_eq!(KernelVersion::of("6.18.44-1-amd64"), Some(KernelVersion(6, 18)));
        assert_eq!(KernelVersion::of("5.14.0-427.el9"), Some(KernelVersion(5, 14)));
        assert_eq!(KernelVersion::of("odd"), None);
        assert_eq!(KernelVersion::of(""), None);
    }

    #[test]
    fn what_came_later_is_not_in_an_older_kernel_unless_its_number_does_not_tell() {
        let came = KernelVersion(6, 10);
        for (release, may) in [
            ("6.10.0", true),
            ("7.0.1", true),
            ("6.8.0-45-generic", false),
            ("6.9.12", false),
            ("5.15.0", false),
            ("5.14.0-503.el9.x86_64", true),
            ("odd", true),
        ] {
            assert_eq!(came.may_be_in(release), may, "{release}");
        }
    }
}
