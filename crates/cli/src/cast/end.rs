//! What either end of a session is told alike.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use farlink_mover::record_file::{RecordFile, RecordFileError};
use farlink_wire::message::Patience;

use crate::memory::patience;

/// Options of both ends.
#[derive(Debug, Args)]
pub(super) struct End {
    /// Use this interface for the group; the routes say which otherwise
    #[arg(long, value_name = "NAME")]
    pub(super) interface: Option<String>,
    /// Let the thread that sends, or receives, go before ordinary ones (SCHED_RR); where that is refused, it is said
    #[arg(long)]
    pub(super) realtime: bool,
    /// Show the key in this file instead of identity in ~/.config/farlink; root's sender has its own in /etc/farlink
    #[arg(long, value_name = "FILE")]
    pub(super) identity: Option<PathBuf>,
    /// Show no key, and ask for none: among emulated hosts, where both ends say so
    #[arg(long, conflicts_with = "identity")]
    pub(super) no_auth: bool,
    /// Wait so long for a far end that is silent, or that was lost
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience)]
    pub(super) timeout: Patience,
    /// Append the session's record to this file
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
    /// Print what happens, progress, and the record on standard output, one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
    /// Print no progress and no summary
    #[arg(long, short)]
    pub(super) quiet: bool,
}

impl End {
    /// The file of records, open.
    pub(super) fn records(&self) -> Result<Option<RecordFile>, RecordFileError> {
        self.record.as_deref().map(RecordFile::open).transpose()
    }

    /// Whether somebody looks at how it goes.
    pub(super) fn is_watched(&self) -> bool {
        !self.quiet && !self.json && io::stderr().is_terminal()
    }
}
