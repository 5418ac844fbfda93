//! The exit codes of all verbs. What each verb has of them, and what they say there, is in its help and its guide.

/// All of it was done.
pub(crate) const DONE: u8 = 0;

/// Something was done, and some of it was not: a name that was not copied, a receiver that lacks a product, a finding of `farlink doctor`, ranks
/// that did not use Farlink.
pub(crate) const SOME: u8 = 1;

/// It was refused, and nothing was begun; or all is done, and what was to be written of that is not.
pub(crate) const REFUSED: u8 = 2;

/// It was begun, and the connection or the far end failed midway.
pub(crate) const BROKEN: u8 = 3;

/// Nothing of what was asked for was done, and each part of it was named.
pub(crate) const NONE: u8 = 4;

/// A command that could not be started, as env(1) and the shells have it.
pub(crate) const NOT_FOUND: u8 = 127;

/// Exit codes above this one are a signal's, and so many more than its number.
pub(crate) const SIGNAL: u8 = 128;

/// The user ended it: SIGINT, as shells have it.
pub(crate) const INTERRUPTED: u8 = SIGNAL + 2;
