//! `farlink cast send`: files to a group.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use farlink_cast::group::Group;
use farlink_cast::send::{self, Finished, Notice, Peer, Piped, Plan};
use farlink_host::scheduling::Scheduling;
use farlink_host::signal;
use farlink_mover::copy::source::SourcePath;
use farlink_mover::record_file::RecordFile;
use farlink_mover::secure::{Admission, Identity, Places};
use farlink_wire::message::Patience;
use farlink_wire::path::RelativePath;
use farlink_wire::quantity::{BitsPerSec, Bytes};
use serde_json::json;

use super::table::Table;
use super::{BROKEN, INTERRUPTED, SOME};
use crate::memory::{patience, print};

/// Send files and trees to the receivers of a group.
///
/// It waits for receivers, sends everything once to all of them at the rate that is named, repairs what single ones lose, and ends
/// when all of them have everything. Receivers that come later get what they missed.
#[derive(Debug, Args)]
pub(super) struct Send {
    /// Files and directories; - is what comes by standard input, read to its end before anything is sent
    #[arg(value_name = "FILE|DIRECTORY|-", required = true)]
    sources: Vec<OsString>,
    /// The group's address and port, as in 239.1.1.1:7000; control connections are at the same port of this host
    #[arg(long, value_name = "ADDRESS:PORT")]
    group: Group,
    /// Send to the group at this rate, which the path must have to spare: all headers are counted
    #[arg(long, value_name = "RATE")]
    rate: BitsPerSec,
    /// Send over this interface; the routes say which otherwise
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// The name of what comes by standard input
    #[arg(long, value_name = "NAME", default_value = "stdin")]
    name: String,
    /// Begin when so many receivers are there
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    receivers: u32,
    /// Routers that packets may cross, and one
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..))]
    ttl: u8,
    /// Let the sending thread go before ordinary ones (SCHED_RR); where that is refused, it is said
    #[arg(long)]
    realtime: bool,
    /// Let in whom this file lists instead of authorized_keys in ~/.config/farlink, or in /etc/farlink for root
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Show the key in this file instead of identity in ~/.config/farlink, or in /etc/farlink for root
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Let emulated hosts in, which have no keys
    #[arg(long, conflicts_with_all = ["keys", "identity"])]
    no_auth: bool,
    /// Wait so long for a receiver that is silent, or that was lost
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience)]
    timeout: Patience,
    /// Append the session's record to this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print what happens, progress, and the record on standard output, one JSON object a line
    #[arg(long)]
    json: bool,
    /// Print no progress and no summary
    #[arg(long, short)]
    quiet: bool,
}

impl Send {
    /// Sends, and leaves a record however it ended.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let plan = self.plan()?;
        let mut file = self.record.as_deref().map(RecordFile::open).transpose()?;
        let stop = signal::on_termination().context("catch signals")?;
        let mut telling = Telling {
            json: self.json,
            quiet: self.quiet,
            table: Table::new(!self.quiet && !self.json && io::stderr().is_terminal()),
        };
        let finished = send::run(&plan, &stop, &mut |notice| telling.on(&notice));
        telling.table.close();
        let kept = file.as_mut().map(|file| file.append(&finished.record)).transpose();
        if self.json || kept.is_err() {
            // Nothing that was measured is lost.
            print(&finished.record.line());
        }
        kept?;
        let is_whole = finished.is_whole();
        if finished.error.is_none() && !self.quiet {
            if !self.json {
                print(&summary(&finished));
            }
            for peer in finished.progress.peers.values().filter(|peer| peer.is_short) {
                eprintln!("farlink: {} left before it had everything", name(peer));
            }
        }
        match finished.error {
            Some(error) if error.is_passing() => {
                eprintln!("farlink: {:#}", anyhow::Error::from(error));
                Ok(ExitCode::from(BROKEN))
            }
            Some(error) => Err(error.into()),
            None if finished.interrupted => Ok(ExitCode::from(INTERRUPTED)),
            None if !is_whole => Ok(ExitCode::from(SOME)),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let mut sources = Vec::new();
        let mut piped = None;
        for source in &self.sources {
            if source == "-" {
                if piped.is_none() {
                    piped = Some(self.piped()?);
                }
                continue;
            }
            let path = std::path::absolute(source).with_context(|| format!("the source {source:?}"))?;
            if let Err(error) = path.metadata() {
                bail!("the source {}: {error}", path.display());
            }
            let mut bytes = path.as_os_str().as_bytes().to_vec();
            // What is in a directory is sent, as with copy.
            if source.as_bytes().ends_with(b"/") {
                bytes.push(b'/');
            }
            sources.push(SourcePath::new(bytes)?);
        }
        Ok(Plan {
            group: self.group,
            interface: self.interface.clone(),
            ttl: self.ttl,
            rate: self.rate,
            receivers: self.receivers,
            realtime: self.realtime,
            piped,
            sources,
            keys: self.keys()?,
            patience: self.timeout.get(),
        })
    }

    /// Standard input, kept in a file without a name: what was lost of it is read again.
    fn piped(&self) -> anyhow::Result<Piped> {
        let path = RelativePath::new(self.name.as_bytes()).context("--name")?;
        if path.is_root() {
            bail!("--name is empty: write the name that receivers are to give to standard input");
        }
        let at = std::env::temp_dir().join(format!(".farlink-cast-{}", std::process::id()));
        let kept = || {
            let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&at);
            let mut file = options?;
            std::fs::remove_file(&at)?;
            io::copy(&mut io::stdin().lock(), &mut file)?;
            io::Result::Ok(file)
        };
        let file = kept().with_context(|| format!("keep standard input in {}", at.display()))?;
        Ok(Piped { path, file: Arc::new(file) })
    }

    fn keys(&self) -> anyhow::Result<Option<(Identity, Arc<Admission>)>> {
        if self.no_auth {
            return Ok(None);
        }
        let usual = Places::of_server();
        let keys = self.keys.clone().unwrap_or_else(|| usual.authorized_keys());
        let identity = Identity::load(&self.identity.clone().unwrap_or_else(|| usual.identity()))?;
        Ok(Some((identity, Arc::new(Admission::of_file(&keys)?))))
    }
}

struct Telling {
    json: bool,
    quiet: bool,
    table: Table,
}

impl Telling {
    fn on(&mut self, notice: &Notice<'_>) {
        if self.json {
            print(&(object(notice).to_string() + "\n"));
        }
        match notice {
            Notice::Ready { scheduling: Some(Scheduling::Other { reason }), .. } => {
                self.table.say(&format!("farlink: the sending thread is an ordinary one: {reason}"));
            }
            Notice::Ready { at, .. } if !self.quiet && !self.json => {
                self.table.say(&format!("receivers come to {at}"));
            }
            Notice::Joined(peer) if !self.quiet && !self.json => {
                self.table.say(&format!("{} has joined", name(peer)));
            }
            Notice::Left(peer) if !self.json && peer.leave.is_none() => {
                self.table.say(&format!("farlink: {} was lost", name(peer)));
            }
            Notice::Refused { from, reason } => {
                self.table.say(&format!("farlink: {from} was not let in: {reason}"));
            }
            Notice::NotSent(not) => {
                self.table.say(&format!("farlink: {}: not sent, {}", not.path, not.reason));
            }
            Notice::NotStored { peer, path, reason } => {
                self.table.say(&format!("farlink: {} has not stored {path}: {reason}", name(peer)));
            }
            Notice::Progress(progress) => self.table.show(progress),
            _ => {}
        }
    }
}

/// A notice as an object.
fn object(notice: &Notice<'_>) -> serde_json::Value {
    let peer_of =
        |peer: &Peer| json!({"name": peer.host.name.to_string(), "address": peer.at.ip().to_string()});
    match notice {
        Notice::Ready { at, .. } => json!({"ready": {"at": at.to_string()}}),
        Notice::Joined(peer) => json!({"joined": peer_of(peer)}),
        Notice::Left(peer) => {
            let mut object = peer_of(peer);
            object["complete"] = (!peer.is_short && peer.failed == 0).into();
            object["lost"] = peer.leave.is_none().into();
            json!({"left": object})
        }
        Notice::Refused { from, reason } => {
            json!({"refused": {"address": from.ip().to_string(), "reason": reason}})
        }
        Notice::NotSent(not) => {
            json!({"path": not.path, "outcome": if not.failed { "failed" } else { "skipped" }, "reason": not.reason})
        }
        Notice::NotStored { peer, path, reason } => {
            let name = peer.host.name.to_string();
            json!({"path": path, "outcome": "not stored", "receiver": name, "reason": reason})
        }
        Notice::Progress(progress) => {
            let receivers = progress.peers.values().map(|peer| {
                let mut object = peer_of(peer);
                object["products"] = peer.products.into();
                object["failed"] = peer.failed.into();
                object["behind"] = peer.behind.into();
                object["bytes"] = peer.report.bytes.into();
                object["lost_packets"] = peer.report.lost.into();
                object["unicast_repair_bytes"] = peer.repaired.into();
                object["there"] = peer.is_there.into();
                object
            });
            json!({"progress": {
                "seconds": progress.seconds,
                "products": progress.products,
                "first_pass_bytes": progress.totals.first_pass,
                "multicast_repair_bytes": progress.totals.multicast_repair,
                "unicast_repair_bytes": progress.totals.unicast_repair,
                "receivers": receivers.collect::<Vec<_>>(),
            }})
        }
    }
}

/// A receiver, as people know it.
pub(super) fn name(peer: &Peer) -> String {
    format!("{} ({})", peer.host.name, peer.at.ip())
}

/// What came of it.
fn summary(finished: &Finished) -> String {
    let progress = &finished.progress;
    let whole = progress.peers.values().filter(|peer| !peer.is_short && peer.failed == 0).count();
    let mut text = format!(
        "{} products, {} to {whole} of {} receivers",
        progress.products,
        Bytes(progress.bytes),
        progress.peers.len()
    );
    if let Some(seconds) = finished.record.duration_s.filter(|seconds| *seconds > 0.0) {
        let rate = progress.bytes as f64 * 8.0 / seconds / 1e6;
        text += &format!(" in {seconds:.3} s: {rate:.1} Mb/s");
    }
    let repaired = progress.totals.multicast_repair + progress.totals.unicast_repair;
    if repaired > 0 {
        text += &format!(", {} sent again", Bytes(repaired));
    }
    if finished.interrupted {
        text += " (interrupted)";
    }
    text + "\n"
}
