//! `farlink keygen`: make a key of one's own, and show what others need of it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use farlink_mover::secure::{Identity, Places};

use crate::output::print;

/// Make a key by which other hosts know this user, or this server, and print its public half.
///
/// The line that it prints goes into authorized_keys of the servers that shall let the key in, and into known_hosts of the
/// clients that shall trust a server that has it.
#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// Keep the key in this file instead of ~/.config/farlink/identity
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Make none: print the public half of the one that is there
    #[arg(long)]
    show: bool,
}

impl Keygen {
    /// Makes a key, or looks at the one that is there.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.identity.unwrap_or_else(|| Places::of_user().identity());
        let identity = if self.show { Identity::load(&path)? } else { Identity::create(&path)? };
        print(&format!("{}\n", identity.public()));
        Ok(ExitCode::SUCCESS)
    }
}
