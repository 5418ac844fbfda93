//! `farlink serve`: the far end of memory transfers.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use farlink_host::signal;
use farlink_mover::memory::PORT;
use farlink_mover::server::{Event, Limits, Server, places};
use farlink_wire::message::Way;
use farlink_wire::quantity::Bytes;

/// Serve the far end of memory transfers, until Ctrl-C or SIGTERM.
///
/// Without --no-auth it listens where nobody else can reach it: on loopback addresses, and on the addresses of an
/// emulated host.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The TCP port of control and data connections; the data of circuits go to the next one
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// Listen on this address alone
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Let anyone who reaches this host use the server
    #[arg(long)]
    no_auth: bool,
    /// Say on standard error when a transfer starts and how it ends
    #[arg(long, short)]
    verbose: bool,
}

impl Serve {
    /// Serves until it is told to end.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let stop = signal::on_termination().context("catch signals")?;
        let addresses = places(self.bind, self.no_auth)?;
        let addresses: Vec<_> =
            addresses.into_iter().map(|address| SocketAddr::new(address, self.port)).collect();
        let server = Server::bind(&addresses, Limits::default())?;
        let places: Vec<_> = server.addresses().iter().map(ToString::to_string).collect();
        // Whoever started this waits for the line; whoever closed the pipe does not.
        let _ =
            writeln!(io::stdout(), "listening on {}", places.join(", ")).and_then(|()| io::stdout().flush());
        server.run(&stop, &|event| {
            if self.verbose {
                eprintln!("{}", sentence(&event));
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn sentence(event: &Event) -> String {
    match event {
        Event::Started { from, streams, way } => {
            let way = match way {
                Way::Forward => "receiving",
                Way::Reverse => "sending",
            };
            format!("{from}: {way}, {streams} streams")
        }
        Event::Ended { from, bytes } => format!("{from}: {} arrived", Bytes(*bytes)),
        Event::Failed { from, reason } => format!("{from}: {reason}"),
    }
}
