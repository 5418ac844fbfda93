//! `farlink far-end`: what ssh starts on the far host. No verb for people.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use farlink_mover::bootstrap;

/// Serve the one client that invites this process on standard input, until that ends.
#[derive(Debug, Args)]
pub(crate) struct FarEnd {
    /// Instead, join the standard streams to this port of a far end
    #[arg(long, value_name = "ADDRESS:PORT")]
    channel: Option<SocketAddr>,
}

impl FarEnd {
    /// Serves until nobody is there to serve.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.channel {
            Some(address) => bootstrap::join(io::stdin(), io::stdout(), address)
                .with_context(|| format!("join a channel to {address}"))?,
            None => bootstrap::serve(io::stdin(), io::stdout(), &|_| {})?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
