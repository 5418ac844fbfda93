//! `farlink serve`: the far end of transfers.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use farlink_host::{process, signal};
use farlink_mover::connection::Emulated;
use farlink_mover::memory::PORT;
use farlink_mover::secure::{Admission, Identity, Places};
use farlink_mover::server::{Event, LEAST, LEAST_OF_COPY, Limits, Server, places};
use farlink_wire::message::Way;
use farlink_wire::quantity::Bytes;

use crate::keys_again::keep_up;
use crate::output::{print, tell};
use crate::refusals::Refusals;

/// Serve the far end of transfers, until Ctrl-C or SIGTERM; SIGHUP reads the keys again.
///
/// With keys it listens on every address, and lets in whoever shows a key that is listed. Without, it listens where nobody
/// else can reach it: on loopback addresses, and on the addresses of an emulated host.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The TCP port of control and data connections; the data of circuits go to the next one
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// Listen on this address alone
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Let in whom this file lists instead of authorized_keys in ~/.config/farlink, or in /etc/farlink for root
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Show the key in this file instead of identity in ~/.config/farlink, or in /etc/farlink for root
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Become this user once it listens
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Transfers at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Memory that all transfers together may take, as in 4GiB; half of what is available otherwise. A copy takes 24 MiB and 2 MiB a stream, and
    /// while they are open 128 bytes for each block of its files; who would take more than is left is told to try again later
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Let emulated hosts, which have no keys, copy files as whoever runs this
    #[arg(long)]
    no_auth: bool,
    /// Say on standard error when a transfer starts and how it ends
    #[arg(long, short)]
    verbose: bool,
}

impl Serve {
    /// Serves until it is told to end.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.check_memory()?;
        let stop = signal::on_termination().context("catch signals")?;
        // From here on: one that comes while the keys are read is not to end it.
        let list = self.list();
        let hung_up = list.as_ref().map(|_| signal::on_hangup()).transpose().context("catch signals")?;
        let keys = list.map(|list| self.keys(&list)).transpose()?;
        let addresses = places(self.bind, keys.is_some())?;
        let addresses: Vec<_> =
            addresses.into_iter().map(|address| SocketAddr::new(address, self.port)).collect();
        let limits = Limits {
            transfers: self.connections.into(),
            memory: self.memory,
            trusting: self.no_auth,
            ..Limits::default()
        };
        let mut server = Server::bind(&addresses, limits)?;
        let (mut reload, mut key) = (None, None);
        if let Some((identity, admission)) = keys {
            key = Some(identity.public());
            reload = hung_up.map(|hung_up| (hung_up, Arc::clone(&admission)));
            server = server.with_keys(identity, admission);
        }
        if let Some(user) = &self.user {
            process::become_user(user)?;
            // Better said now than when a key is to be taken back.
            if let Some(Err(error)) = reload.as_ref().map(|(_, admission)| admission.reload()) {
                tell(&format!(
                    "farlink: note: {:#}: SIGHUP will change nothing before {user} may read the list of keys, and enter its directory",
                    anyhow::Error::from(error)
                ));
            }
        }
        if self.no_auth && Emulated::of_this_host().is_none() {
            tell(
                "farlink: note: --no-auth lets in hosts of an emulated connection alone, and this host is on none",
            );
        }
        let places: Vec<_> = server.addresses().iter().map(ToString::to_string).collect();
        // Whoever started this waits for the line; whoever closed the pipe does not.
        print(&format!("listening on {}\n", places.join(", ")));
        if let Some(key) = key {
            print(&format!("its key is {key}\n"));
        }
        if let Some((hung_up, admission)) = reload {
            keep_up(hung_up, admission, stop.clone(), true).context("start to read the keys again")?;
        }
        let refusals = Mutex::new(Refusals::default());
        server.run(&stop, &|event| {
            if !self.verbose {
                return;
            }
            if let Event::Refused { from, reason } = &event {
                let mut refusals = refusals.lock().unwrap_or_else(PoisonError::into_inner);
                match refusals.tells(from.ip(), reason, Instant::now()) {
                    None => return,
                    Some(0) => {}
                    Some(untold) => tell(&format!("{untold} more were not let in")),
                }
            }
            tell(&sentence(&event));
        })?;
        match refusals.into_inner().unwrap_or_else(PoisonError::into_inner).untold() {
            0 => {}
            untold => tell(&format!("{untold} more were not let in")),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// An error where no transfer would be served, and a note where no copy would.
    fn check_memory(&self) -> anyhow::Result<()> {
        let Some(memory) = self.memory else { return Ok(()) };
        if memory < LEAST {
            bail!("--memory {memory} is less than any transfer takes: write at least {LEAST}");
        }
        if memory < LEAST_OF_COPY {
            tell(&format!(
                "farlink: note: --memory {memory} is less than a copy takes, so that none will be served: that is {LEAST_OF_COPY} and more"
            ));
        }
        Ok(())
    }

    /// The list of the keys that it lets in; `None` where nobody named keys and there are none in the usual place.
    fn list(&self) -> Option<PathBuf> {
        let keys = self.keys.clone().unwrap_or_else(|| Places::of_server().authorized_keys());
        (self.keys.is_some() || self.identity.is_some() || keys.exists()).then_some(keys)
    }

    /// Who this is, and whom it lets in by that list.
    fn keys(&self, list: &Path) -> anyhow::Result<(Identity, Arc<Admission>)> {
        let identity = self.identity.clone().unwrap_or_else(|| Places::of_server().identity());
        let identity = Identity::load(&identity)?;
        let owner = self.user.as_deref().map(process::user_number).transpose()?;
        Ok((identity, Arc::new(Admission::of_file_of(list, owner)?)))
    }
}

fn sentence(event: &Event) -> String {
    match event {
        Event::Started { from, streams, way, who, what } => {
            let who = who.as_ref().map_or_else(String::new, |who| format!(" ({who})"));
            let moved = match (way, what) {
                (Way::Forward, Some(what)) => format!("receiving to {what}"),
                (Way::Reverse, Some(what)) => format!("sending {what}"),
                (Way::Forward, None) => "receiving memory".to_owned(),
                (Way::Reverse, None) => "sending memory".to_owned(),
            };
            format!("{from}{who}: {moved}, {streams} {}", if *streams == 1 { "stream" } else { "streams" })
        }
        Event::Ended { from, way, bytes, failed } => {
            let (moved, done) = match way {
                Way::Forward => ("received", "stored"),
                Way::Reverse => ("sent", "sent"),
            };
            let lacking = match failed {
                0 => String::new(),
                1 => format!("; 1 name was not {done}"),
                more => format!("; {more} names were not {done}"),
            };
            format!("{from}: {} {moved}{lacking}", Bytes(*bytes))
        }
        Event::Refused { from, reason } | Event::Failed { from, reason } => format!("{from}: {reason}"),
    }
}
