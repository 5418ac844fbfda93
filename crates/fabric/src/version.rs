//! Versions, of the provider and of what it speaks.

/// As libfabric writes versions.
pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// Ours.
pub(crate) const VERSION: u32 = version(0, 1);

/// The newest interface that an application may ask for: for those that ask for a newer one, the core leaves the provider out. Structures
/// of 2.5 differ from those of the 1.17 that we are built with at their ends alone, where we write nothing.
pub(crate) const INTERFACE: u32 = version(2, 5);
