//! Why there is no far end.

use std::io;

use farlink_wire::bootstrap::{BootstrapError, MAX_LINES};
use farlink_wire::message::Text;
use farlink_wire::quantity::Nanos;

use super::ship::ShipError;

/// Why there is no far end.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No key could be made.
    #[error("make a key for this transfer")]
    Key(#[source] io::Error),
    /// No ssh.
    #[error("start {program}")]
    Ssh {
        /// Which program.
        program: String,
        /// The kernel's own words.
        source: io::Error,
    },
    /// ssh did not get there; it has said why itself.
    #[error("ssh did not reach {host}")]
    NotReached {
        /// Where.
        host: String,
    },
    /// Nothing was heard of it, and nobody is asked for a password.
    #[error(
        "nothing has been heard of ssh to {host} for {patience}: see what it waits for by hand, or give it longer with --timeout"
    )]
    Silent {
        /// Where.
        host: String,
        /// How long it was waited.
        patience: Nanos,
    },
    /// There is no farlink.
    #[error("there is no farlink on {host}: install it there")]
    Missing {
        /// Where.
        host: String,
    },
    /// It ended at once.
    #[error(
        "{program} for {host} ended with exit code {code} before a farlink there answered{}: the account there must be allowed to run \
         commands, and the same release be installed at both ends",
        said.as_ref().map(|said| format!(", and said {said:?}")).unwrap_or_default()
    )]
    Ended {
        /// By which program it was to be started.
        program: String,
        /// Where.
        host: String,
        /// Its exit code.
        code: i32,
        /// The last line that came from there, where any did.
        said: Option<String>,
    },
    /// It answered what it should not.
    #[error("{host}")]
    Answer {
        /// Where.
        host: String,
        /// What is wrong with it.
        source: AnswerError,
    },
    /// It cannot listen.
    #[error("{host}: {reason}")]
    Failed {
        /// Where.
        host: String,
        /// Its words.
        reason: Text,
    },
    /// This farlink could not be sent there.
    #[error("send this farlink to {host}")]
    Ship {
        /// Where.
        host: String,
        /// Why.
        source: ShipError,
    },
}

/// Why a far end's answer is none.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// Far too much before it.
    #[error("more than {MAX_LINES} bytes came where one line was to: its login shell prints too much")]
    Long,
    /// Not ours.
    #[error(transparent)]
    Line(#[from] BootstrapError),
    /// The kernel's own words.
    #[error("read what ssh says")]
    Read(#[from] io::Error),
}
