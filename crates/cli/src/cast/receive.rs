//! `farlink cast receive`: what a group's sessions bring.

use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use farlink_cast::group::Group;
use farlink_cast::receive::{self, Finished, Notice, Plan, Progress};
use farlink_host::network;
use farlink_host::scheduling::Scheduling;
use farlink_host::signal;
use farlink_mover::record_file::RecordFile;
use farlink_mover::secure::Credentials;
use farlink_wire::message::Buffer;
use farlink_wire::quantity::{Bytes, Nanos};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::end::End;
use super::products;
use super::telling::rate;
use crate::exit::{BROKEN, DONE, INTERRUPTED, REFUSED, SOME};
use crate::memory::buffer;
use crate::output::{print, tell};

/// Receive what is sent to a group.
///
/// It finds the sender by its packets, takes part in its session, and waits for the next one. Names appear complete or not at all;
/// what an earlier attempt has proven is not asked for again.
#[derive(Debug, Args)]
pub(super) struct Receive {
    /// The group's address and port, as in 239.1.1.1:7000
    #[arg(long, value_name = "ADDRESS:PORT")]
    group: Group,
    /// The directory to write to, or null: to compare digests and keep nothing
    #[arg(long, value_name = "DIRECTORY|null:")]
    into: OsString,
    /// The sender's host; the one that packets come from otherwise
    #[arg(long, value_name = "HOST")]
    from: Option<String>,
    /// End with the sender's session
    #[arg(long)]
    once: bool,
    /// Of a session that goes on already, take only what was sent first no longer ago than this, as in 1h; 0s for what is sent from the start of this on
    #[arg(long, value_name = "TIME")]
    since: Option<Nanos>,
    /// Wait so long for a session to join, for ever otherwise; where none is found by then, end with 2
    #[arg(long, value_name = "TIME")]
    wait: Option<Nanos>,
    /// Receive buffer of the group's socket, as in 8MiB; one that holds what comes in 100 ms otherwise
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    buffer: Option<Buffer>,
    /// The keys of senders; those in ~/.config/farlink/known_hosts otherwise
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth")]
    known_hosts: Option<PathBuf>,
    #[command(flatten)]
    end: End,
}

impl Receive {
    /// Receives, and leaves a record of each session however it ended.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let plan = self.plan()?;
        let file = self.end.records()?;
        let stop = signal::on_termination().context("catch signals")?;
        let bar = self.end.is_watched().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        let mut telling = Telling {
            json: self.end.json,
            quiet: self.end.quiet,
            patience: plan.patience,
            bar,
            file,
            unkept: None,
        };
        let finished = receive::run(&plan, &stop, &mut |notice| telling.on(notice));
        telling.keep(&finished);
        let is_begun = finished.progress.tally.bytes > 0;
        let (code, error) = match finished.error {
            // A refusal is where nothing was begun.
            Some(error) if error.is_passing() || is_begun => (BROKEN, Some(error)),
            Some(error) => (REFUSED, Some(error)),
            None if finished.interrupted => (INTERRUPTED, None),
            None if finished.progress.tally.failed > 0 || finished.lacks => (SOME, None),
            None => (DONE, None),
        };
        let unkept = telling.unkept.take();
        for reason in error.map(anyhow::Error::from).iter().chain(&unkept) {
            tell(&format!("farlink: {reason:#}"));
        }
        // That a record is not kept counts where nothing else is wrong.
        Ok(ExitCode::from(if code == DONE && unkept.is_some() { REFUSED } else { code }))
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let usual = Credentials::of_user();
        let credentials = Credentials {
            identity: self.end.identity.clone().unwrap_or(usual.identity),
            known_hosts: self.known_hosts.clone().unwrap_or(usual.known_hosts),
        };
        if self.into.as_bytes().starts_with(b"null:") && self.into.len() > 5 {
            bail!(
                "--into {}: write null: alone to keep nothing, or ./{0} for a directory",
                self.into.to_string_lossy()
            );
        }
        let into = if self.into == OsStr::new("null:") {
            None
        } else {
            let path =
                std::path::absolute(&self.into).with_context(|| format!("the directory {:?}", self.into))?;
            Some(path.as_os_str().as_bytes().to_vec())
        };
        Ok(Plan {
            group: self.group,
            interface: self.end.interface.clone(),
            into,
            from: self.from.clone(),
            once: self.once,
            since: self.since,
            wait: self.wait,
            credentials: Some(credentials).filter(|_| !self.end.no_auth),
            buffer: self.buffer.map(Buffer::get),
            realtime: self.end.realtime,
            patience: self.end.timeout.get(),
        })
    }
}

struct Telling {
    json: bool,
    quiet: bool,
    /// How long a sender that was lost is waited for.
    patience: Nanos,
    bar: Option<ProgressBar>,
    file: Option<RecordFile>,
    /// Why a record could not be kept.
    unkept: Option<anyhow::Error>,
}

impl Telling {
    fn on(&mut self, notice: Notice<'_>) {
        let is_told = !matches!(notice, Notice::Progress(_)) || !self.quiet;
        if self.json
            && is_told
            && let Some(object) = object(&notice)
        {
            print(&(object.to_string() + "\n"));
        }
        match notice {
            Notice::Ready { asked, granted, scheduling } => {
                self.say_of_buffer(asked, granted);
                if let Some(Scheduling::Other { reason }) = scheduling {
                    self.say(&format!("farlink: the receiving thread is an ordinary one: {reason}"));
                }
            }
            Notice::Grown { asked, granted } => self.say_of_buffer(asked, granted),
            Notice::Joined { at, again, skipped } if !self.quiet && !self.json => {
                let mut text = format!("{} the session of {at}", if again { "back in" } else { "joined" });
                if skipped > 0 && !again {
                    text += &format!(", without the {} sent before", products(skipped));
                }
                self.say(&text);
            }
            Notice::Waiting { reason } => self.say(&format!("farlink: waiting for the sender: {reason}")),
            Notice::Unheard { group, sender: Some(at), .. } if is_of_this_host(at.ip()) => {
                self.say(&format!(
                    "farlink: nothing of the group {group} is heard here, as {at}, which sends to it, is on this host: what is sent \
                     comes later, over the connection to {at}"
                ));
            }
            Notice::Unheard { group, interface, sender: Some(at), .. } => {
                let interface = interface.unwrap_or("that the routes say");
                self.say(&format!(
                    "farlink: nothing of the group {group} comes by the interface {interface}, though {at} sends to it: \
                     what is sent comes later, over the connection to {at}; name the interface that the group comes by \
                     (--interface), or have the network between pass it on"
                ));
            }
            Notice::Unheard { group, interface, quiet, sender: None } => {
                let interface = interface.unwrap_or("that the routes say");
                self.say(&format!(
                    "farlink: nothing was heard of the group {group} on the interface {interface} for {quiet}: \
                     there may be no sender yet, or another interface leads to it (--interface), or it is on this host, whose \
                     own packets are not heard here (--from)"
                ));
            }
            Notice::Lost { at, reason } => {
                self.say(&format!("farlink: {at} was lost: {reason}; waiting {} for it", self.patience));
            }
            Notice::Stored { lacks: Some(lacks), .. } => self.say(&format!("farlink: {lacks}")),
            Notice::NotStored { path, reason } => self.say(&format!("farlink: {path}: not stored, {reason}")),
            Notice::Progress(progress) => {
                if let Some(bar) = &self.bar {
                    bar.set_message(line(progress));
                    bar.tick();
                }
            }
            Notice::Ended(finished) => {
                // The next session may be weeks long.
                if !self.keep(&finished)
                    && let Some(error) = &self.unkept
                {
                    self.say(&format!("farlink: {error:#}"));
                }
                if let Some(error) = finished.error {
                    self.say(&format!("farlink: {:#}", anyhow::Error::from(error)));
                }
            }
            _ => {}
        }
    }

    /// Keeps the record of a session, and says what came of it; whether it is kept.
    fn keep(&mut self, finished: &Finished) -> bool {
        // Where nothing was begun there is none.
        if finished.record.tool.is_empty() {
            return true;
        }
        let kept = self.file.as_mut().map(|file| file.append(&finished.record)).transpose();
        if self.json || kept.is_err() {
            print(&finished.record.line());
        }
        let is_kept = kept.is_ok();
        self.unkept = kept.err().map(anyhow::Error::from).or(self.unkept.take());
        if let Some(bar) = &self.bar {
            bar.set_message("");
        }
        // Also of one that broke off something may be there.
        if !self.quiet && !self.json && (finished.error.is_none() || finished.progress.tally.bytes > 0) {
            print(&summary(finished));
        }
        is_kept
    }

    /// Where less was granted.
    fn say_of_buffer(&self, asked: u32, granted: u64) {
        if granted < asked.into() {
            let (asked, granted) = (Bytes(asked.into()), Bytes(granted));
            self.say(&format!(
                "farlink: the kernel grants {granted} of the {asked} of receive buffer: raise net.core.rmem_max, or \
                 packets are lost in bursts"
            ));
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell(text)),
            None => tell(text),
        }
    }
}

fn object(notice: &Notice<'_>) -> Option<serde_json::Value> {
    Some(match notice {
        Notice::Ready { granted, .. } => json!({"ready": {"buffer_bytes": granted}}),
        Notice::Grown { granted, .. } => json!({"grown": {"buffer_bytes": granted}}),
        Notice::Joined { at, again, skipped } => {
            json!({"joined": {"at": at.to_string(), "again": again, "skipped": skipped}})
        }
        Notice::Waiting { reason } => json!({"waiting": {"reason": reason}}),
        Notice::Unheard { group, interface, quiet, sender } => {
            let sender = sender.map(|at| at.to_string());
            json!({"unheard": {
                "group": group.to_string(), "interface": interface, "seconds": quiet.as_secs_f64(), "sender": sender,
            }})
        }
        Notice::Lost { at, reason } => json!({"lost": {"at": at.to_string(), "reason": reason}}),
        Notice::Stored { path, bytes, stood, lacks } => {
            let outcome = if *stood { "same" } else { "stored" };
            let mut object = json!({"path": path, "bytes": bytes, "outcome": outcome});
            if let Some(lacks) = lacks {
                object["lacks"] = json!(lacks);
            }
            object
        }
        Notice::NotStored { path, reason } => {
            json!({"path": path, "outcome": "failed", "reason": reason})
        }
        Notice::Progress(progress) => json!({"progress": {
            "seconds": progress.seconds,
            "products": progress.tally.stored,
            "of_products": progress.products,
            "bytes": progress.report.bytes,
            "repaired_bytes": progress.tally.repaired,
            "packets": progress.report.packets,
            "lost_packets": progress.report.lost,
            "behind_bytes": progress.behind,
        }}),
        Notice::Ended(_) => return None,
    })
}

/// Whether an address is one of this host's.
fn is_of_this_host(ip: IpAddr) -> bool {
    network::address(Some(&ip.to_string())).is_ok()
}

/// Bytes that are worth a word: names and digests of products are not.
const WORTH_A_WORD: u64 = 64 << 10;

/// How it goes, in a line.
fn line(progress: &Progress) -> String {
    let of = progress.products.map_or_else(String::new, |products| format!(" of {products}"));
    format!(
        "{:>6.1} s  {} received  {}{of} {}  {} repaired  {} lost  {} behind",
        progress.seconds,
        Bytes(progress.report.bytes),
        progress.tally.stored,
        if progress.products.is_none() && progress.tally.stored == 1 { "product" } else { "products" },
        Bytes(progress.tally.repaired),
        progress.report.lost,
        Bytes(progress.behind),
    )
}

/// What came of a session.
fn summary(finished: &Finished) -> String {
    let (progress, tally) = (&finished.progress, finished.progress.tally);
    let mut text = products(tally.stored - tally.superseded);
    if let Some(all) = progress.products.filter(|all| finished.error.is_some() && *all > tally.stored) {
        text += &format!(" of {}", all - tally.superseded);
    }
    text += &format!(", {}", Bytes(progress.stored_bytes));
    let there = progress.stored_bytes - progress.came_bytes;
    if there >= WORTH_A_WORD {
        text += &format!(" ({} of it from an earlier attempt)", Bytes(there));
    }
    if let Some(seconds) = finished.record.duration_s.filter(|seconds| *seconds > 0.0) {
        text += &format!(" in {seconds:.3} s{}", rate(progress.came_bytes, seconds));
    }
    if tally.superseded > 0 {
        text += &format!("; {} replaced by newer ones first", products(tally.superseded));
    }
    if progress.report.lost > 0 {
        text += &format!(", {} of {} packets lost", progress.report.lost, progress.report.packets);
    }
    if tally.failed > 0 {
        let are = if tally.failed == 1 { "is" } else { "are" };
        text += &format!("; {} {are} not stored", products(tally.failed));
    }
    let rest = tally.bytes.saturating_sub(progress.stored_bytes);
    if (finished.interrupted || finished.error.is_some()) && rest >= WORTH_A_WORD {
        text += &format!("; {} of what is not whole", Bytes(rest));
    }
    if finished.lacks {
        text += "; products of a session before it are not stored";
    }
    if finished.interrupted {
        text += " (interrupted)";
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use farlink_flow::cast::receiver::Tally;
    use farlink_wire::cast::control::Report;

    use super::*;

    #[test]
    fn a_line_says_what_came_what_was_repaired_and_what_is_behind() {
        let mut progress = Progress {
            tally: Tally { stored: 3, repaired: 40 << 10, ..Tally::default() },
            report: Report { packets: 2000, lost: 7, bytes: 2 << 20, ..Report::default() },
            behind: 8 << 10,
            seconds: 12.34,
            ..Progress::default()
        };
        assert_eq!(
            line(&progress),
            "  12.3 s  2MiB received  3 products  40KiB repaired  7 lost  8KiB behind"
        );
        progress.products = Some(9);
        assert!(line(&progress).contains("  3 of 9 products  "), "{}", line(&progress));
    }
}
