//! Why a far end was not reached.

use std::io;

use farlink_host::process;
use farlink_wire::key::PublicKey;
use farlink_wire::message::Text;

use crate::control::ControlError;
use crate::tuning::TuneError;

/// Why a far end was not reached. One line that names it, the reason, and where there is one the mend.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// There is no address to try.
    #[error("there is no address to connect to")]
    Nowhere,
    /// No connection.
    #[error("connect to {at}{}", mend(source))]
    Connect {
        /// Where to.
        at: String,
        /// The network's own words.
        source: io::Error,
    },
    /// No connection in time.
    #[error("connect to {at}: no answer")]
    Unanswered {
        /// Where to.
        at: String,
    },
    /// What was asked for cannot be had at this end.
    #[error("on host {host}")]
    Tune {
        /// This host.
        host: String,
        /// What was not granted.
        source: TuneError,
    },
    /// The far end does not do it.
    #[error("{at} refused: {reason}")]
    Refused {
        /// The far end.
        at: String,
        /// Its words.
        reason: Text,
    },
    /// The far end showed another key than the one that is trusted.
    #[error("{at} shows the key {key}, which is not the one that is trusted")]
    Untrusted {
        /// The far end.
        at: String,
        /// What it showed.
        key: PublicKey,
    },
    /// The far end does not trust us.
    #[error(
        "{at} does not let this key in: add a line \"read=/DIRECTORY write=/DIRECTORY {key}\" to the authorized_keys there"
    )]
    NotAdmitted {
        /// The far end.
        at: String,
        /// Ours.
        key: PublicKey,
    },
    /// The far end cannot be talked to.
    #[error("{at}")]
    Talk {
        /// The far end.
        at: String,
        /// What is wrong with it.
        source: ControlError,
    },
}

impl DialError {
    pub(super) fn tune(source: TuneError) -> Self {
        Self::Tune { host: process::host_name(), source }
    }
}

/// What to do about it, where that is known.
fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => " (start `farlink serve` there first)",
        _ => "",
    }
}
