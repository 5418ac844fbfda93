//! Why a file transfer failed.

use std::io;

use farlink_wire::message::copy::PlaceError;
use farlink_wire::refusal::{Cause, Refusal};

use super::filter::FilterError;
use super::source::{SourceError, SourcePathError};
use super::target::TargetError;
use crate::chain;
use crate::control::ControlError;

/// Why a file transfer failed as a whole. One line that names the far end or the path, the reason, and where there is one the mend.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The far end refused, or gave up.
    #[error("the far end: {0}")]
    FarEnd(Refusal),
    /// As above, where both ends are in this process.
    #[error("{0}")]
    OtherEnd(Refusal),
    /// The far end cannot be talked to.
    #[error(transparent)]
    Talk(#[from] ControlError),
    /// What came has no place where it came.
    #[error("the far side sent what has no place here: {what}")]
    OutOfPlace {
        /// What came.
        what: &'static str,
    },
    /// What came on a data connection is no frame.
    #[error("the far side sent what this version does not understand")]
    Frame(#[from] farlink_wire::frame::FrameError),
    /// A block of a file that was not said.
    #[error("the far side sent part of a file that it had not named: number {file}")]
    UnknownFile {
        /// The file's number.
        file: u32,
    },
    /// A block that its file does not have.
    #[error("the far side sent a block that its file does not have: number {index} of file {file}")]
    NoSuchBlock {
        /// The file's number.
        file: u32,
        /// The block's.
        index: u32,
    },
    /// One number for two files.
    #[error("the far side named two files by one number")]
    Contradiction,
    /// A frame whose tag is wrong.
    #[error("data were changed on their way: a frame's tag is wrong")]
    Forged,
    /// Something on the way changes what passes.
    #[error(
        "it was changed on its way {times} times: protect it with --protect encrypt, or have the network cards and what is between them \
         looked at"
    )]
    Damaged {
        /// How often.
        times: u32,
    },
    /// More than a far end is asked for at a time.
    #[error(
        "{count} sources, where a far host is asked for {most} at a time: write a pattern in quotes, or --files-from"
    )]
    ManySources {
        /// How many.
        count: usize,
        /// Most.
        most: usize,
    },
    /// More than a request has room for.
    #[error(
        "the names, rules and lists of this copy take {bytes} bytes, and a request has {most}: copy in parts, or name a directory with fewer \
         rules of --include and --exclude or their files"
    )]
    LongRequest {
        /// As they are sent.
        bytes: usize,
        /// Most.
        most: usize,
    },
    /// A path that this key may not reach.
    #[error(
        "this key may not {to} {place}: its line in the server's authorized_keys has no {to}=DIRECTORY, with a directory that this is in, \
         before the key"
    )]
    NotAllowed {
        /// `read` or `write`.
        to: &'static str,
        /// The path.
        place: String,
    },
    /// A link that a client may have made.
    #[error(
        "{place} leads through a symbolic link, where keys may write: name in authorized_keys what it leads to, or a directory outside of \
         what keys may write"
    )]
    Led {
        /// What a key may reach, as the server's list has it.
        place: String,
    },
    /// A directory that a key may reach cannot be opened.
    #[error("open {place}, which a key may reach")]
    Granted {
        /// What a key may reach, as the server's list has it.
        place: String,
        /// The kernel's own words.
        source: io::Error,
    },
    /// A path that leads up: beneath what is granted nothing does.
    #[error("{place} leads up by ..: write it without, as it is beneath what this key may reach")]
    LeadsUp {
        /// The path.
        place: String,
    },
    /// Integrity needs a secret that only both ends know, which comes of TLS.
    #[error(
        "integrity was asked for, and the control connection has no key for it: use farlink:// with keys, or ssh"
    )]
    Unprotected,
    /// Integrity is of digests.
    #[error("integrity without verification is none: leave out --no-verify")]
    Unverified,
    /// Others have the memory that it would take.
    #[error(
        "there is no memory left for the numbers of what came: give `farlink serve` there more (--memory), or try again later"
    )]
    Memory,
    /// A defect of ours.
    #[error("a thread of this copy failed: please report it, with what stands above")]
    Panicked,
    /// All data connections broke, and none can take their place.
    #[error("no data connection is left: {why}")]
    NoStream {
        /// Why there is no other.
        why: String,
    },
    /// A source cannot be looked at.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The destination cannot be written to.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A rule is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A path is wrong.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The way to the far end.
    #[error(transparent)]
    Dial(Box<crate::dial::DialError>),
    /// The far end's name.
    #[error(transparent)]
    Reach(#[from] crate::far_host::ResolveError),
    /// Nobody to trust, or nobody to be.
    #[error(transparent)]
    Credentials(Box<crate::secure::CredentialsError>),
    /// The far end that ssh should start.
    #[error(transparent)]
    Start(Box<crate::bootstrap::StartError>),
    /// The server was told to end; another may take its place.
    #[error("the far side ended: {0}")]
    FarStopped(Refusal),
    /// What is protected needs keys.
    #[error(
        "data without keys cannot be protected: make a key with `farlink keygen`, or write --protect clear"
    )]
    NoKeys,
    /// A source's path is wrong.
    #[error(transparent)]
    SourcePath(#[from] SourcePathError),
    /// A data connection does not get what was asked for.
    #[error("on host {host}")]
    Tune {
        /// That host.
        host: String,
        /// What was not granted.
        source: crate::tuning::TuneError,
    },
    /// The kernel's own words.
    #[error("{attempt}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// The kernel's own words.
        source: io::Error,
    },
}

impl From<crate::dial::DialError> for CopyError {
    fn from(error: crate::dial::DialError) -> Self {
        Self::Dial(Box::new(error))
    }
}

impl From<crate::bootstrap::StartError> for CopyError {
    fn from(error: crate::bootstrap::StartError) -> Self {
        Self::Start(Box::new(error))
    }
}

impl From<crate::secure::CredentialsError> for CopyError {
    fn from(error: crate::secure::CredentialsError) -> Self {
        Self::Credentials(Box::new(error))
    }
}

impl CopyError {
    pub(super) fn wait(source: io::Error) -> Self {
        Self::System { attempt: "wait for the far side", source }
    }

    pub(super) fn working_directory(source: io::Error) -> Self {
        Self::System { attempt: "find the working directory", source }
    }

    /// As it is said where both ends are in this process.
    pub(super) fn of_here(self) -> Self {
        if let Self::FarEnd(refusal) = self { Self::OtherEnd(refusal) } else { self }
    }

    /// Whether the far end could not be reached: it may be starting again.
    #[must_use]
    pub fn is_unreached(&self) -> bool {
        use crate::bootstrap::StartError;
        use crate::dial::DialError;
        use crate::far_host::ResolveError;
        match self {
            Self::Dial(error) => match &**error {
                DialError::Connect { .. } | DialError::Unanswered { .. } => true,
                DialError::Talk { source, .. } => matches!(
                    source,
                    ControlError::Ended
                        | ControlError::EndedUngreeted
                        | ControlError::EndedUnshaken
                        | ControlError::Silent { .. }
                        | ControlError::Broken(_)
                ),
                _ => false,
            },
            Self::Start(error) => {
                matches!(**error, StartError::NotReached { .. } | StartError::Silent { .. })
            }
            Self::Reach(error) => matches!(error, ResolveError::Unknown { .. }),
            // Within a round trip of being there again.
            Self::Talk(ControlError::EndedUngreeted | ControlError::EndedUnshaken) => true,
            _ => false,
        }
    }

    /// Whether the far end refused for now: what this copy takes others have, or the copy itself, from before its connections broke.
    #[must_use]
    pub fn is_put_off(&self) -> bool {
        matches!(self.far_cause(), Some(Cause::Passing | Cause::Stopped))
    }

    /// Why the far end refused, or gave up, where it did.
    fn far_cause(&self) -> Option<Cause> {
        use crate::dial::DialError;
        match self {
            Self::FarEnd(refusal) | Self::OtherEnd(refusal) => Some(refusal.cause),
            Self::Dial(error) => match &**error {
                DialError::Refused { refusal, .. } => Some(refusal.cause),
                _ => None,
            },
            _ => None,
        }
    }

    /// As it is said to the far end.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        let cause = if matches!(self, Self::Memory) { Cause::Passing } else { Cause::Lasting };
        Refusal::new(cause, chain(self))
    }

    /// Whether the same command would do no better: another has taken this copy over, or it cannot be where it was to go.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.far_cause() == Some(Cause::Overtaken)
            || matches!(self, Self::Target(TargetError::Destination(_)))
    }

    /// Whether the same command may do better later: the connection or the far end went away.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::NoStream { .. }
                | Self::FarStopped(_)
                | Self::Talk(
                    ControlError::Ended
                        | ControlError::Silent { .. }
                        | ControlError::Broken(_)
                        | ControlError::NotReading { .. }
                )
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_there_and_cannot_be_reached_may_come_back() {
        use crate::bootstrap::StartError;
        use crate::dial::DialError;
        use crate::far_host::ResolveError;
        let host = || "host".to_owned();
        let source = || io::ErrorKind::HostUnreachable.into();
        let talk = |source| CopyError::from(DialError::Talk { at: host(), source });
        for unreached in [
            CopyError::from(StartError::NotReached { host: host() }),
            CopyError::Reach(ResolveError::Unknown { host: host(), source: source() }),
            CopyError::from(DialError::Connect { at: host(), source: source() }),
            talk(ControlError::Ended),
            talk(ControlError::EndedUngreeted),
            CopyError::Talk(ControlError::EndedUngreeted),
        ] {
            assert!(unreached.is_unreached(), "{unreached:?}");
        }
        for not in [
            CopyError::from(StartError::Missing { host: host() }),
            CopyError::Reach(ResolveError::NoAddress { host: host() }),
            CopyError::from(DialError::Nowhere),
        ] {
            assert!(!not.is_unreached(), "{not:?}");
        }
    }

    #[test]
    fn who_is_refused_for_now_may_ask_again_however_the_refusal_came() {
        let refused = |refusal| {
            let at = "host:5210".to_owned();
            CopyError::from(crate::dial::DialError::Refused { at, refusal })
        };
        let is_put_off = |cause| {
            let refusal = Refusal::new(cause, "whatever it says: try again later");
            let both = [refused(refusal.clone()).is_put_off(), CopyError::FarEnd(refusal).is_put_off()];
            assert!(both[0] == both[1], "{cause:?}");
            both[0]
        };
        assert!(is_put_off(CopyError::Memory.refusal().cause));
        assert!(is_put_off(Cause::Passing) && is_put_off(Cause::Stopped));
        assert!(!is_put_off(Cause::Lasting) && !is_put_off(Cause::Overtaken));
        assert!(!CopyError::NoStream { why: "broken".to_owned() }.is_put_off());
    }
}
