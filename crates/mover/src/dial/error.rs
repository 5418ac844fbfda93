//! Why a far end was not reached.

use std::io;
use std::net::IpAddr;

use farlink_host::process;
use farlink_wire::key::PublicKey;
use farlink_wire::refusal::Refusal;

use crate::control::ControlError;
use crate::tuning::TuneError;

/// Why a far end was not reached. One line that names it, the reason, and where there is one the mend.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// There is no address to try.
    #[error("there is no address to connect to")]
    Nowhere,
    /// There is none of the kind that this host's is.
    #[error("the far end has no address of the kind of {from}: leave out --bind, or name an {} address of this host", if from.is_ipv4() { "IPv6" } else { "IPv4" })]
    Otherwise {
        /// Where connections should come from.
        from: IpAddr,
    },
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
    #[error("{at} refused: {refusal}")]
    Refused {
        /// The far end.
        at: String,
        /// Its words.
        refusal: Refusal,
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
    /// What stands between the two says something of its own.
    #[error(
        "{host} says something through ssh before farlink there does: its login shell prints it, and `ssh {host} true` must print nothing \
         where data go through ssh; or open ports at either end and name them with --ports"
    )]
    Noise {
        /// The far end's host, as ssh has it.
        host: String,
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
    /// Whether no way leads anywhere from the address that connections should come from.
    pub(crate) fn is_of_here(&self) -> bool {
        let Self::Connect { source, .. } = self else { return false };
        source.get_ref().is_some_and(|inner| inner.is::<Foreign>())
    }

    pub(super) fn tune(source: TuneError) -> Self {
        Self::Tune { host: process::host_name(), source }
    }
}

/// An address from which no connection can come.
#[derive(Debug, thiserror::Error)]
#[error("{0} is no address of this host: name one that `ip address` lists, or leave out --bind")]
struct Foreign(IpAddr);

/// What the kernel's refusal to let a connection come from `address` means.
pub(crate) fn foreign(address: IpAddr, error: io::Error) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::AddrNotAvailable => io::Error::new(kind, Foreign(address)),
        _ => error,
    }
}

/// What to do about it, where that is known.
fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => " (start `farlink serve` there first)",
        _ => "",
    }
}
