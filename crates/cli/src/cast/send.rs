//! `farlink cast send`: files to a group.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, bail};
use clap::Args;
use farlink_cast::error::CastError;
use farlink_cast::group::Group;
use farlink_cast::send::{self, Finished, Hold, Piped, Plan, Rate};
use farlink_host::readiness::Wake;
use farlink_host::signal;
use farlink_mover::copy::source::SourcePath;
use farlink_mover::secure::{Admission, Identity, Places};
use farlink_wire::message::copy::Protect;
use farlink_wire::path::RelativePath;
use farlink_wire::quantity::{BitsPerSec, Fraction, Nanos};

use super::class::{Class, Pace, class, pace};
use super::end::End;
use super::products;
use super::table::{Table, name};
use super::telling::{Telling, summary};
use crate::exit::{BROKEN, INTERRUPTED, REFUSED, SOME};
use crate::keys_again::keep_up;
use crate::output::{print, tell};

/// Send files and trees to the receivers of a group.
///
/// It waits for receivers, sends everything once to all of them at the rate that is named, repairs what single ones lose, and ends
/// when all of them have everything. Receivers that come later get what they missed.
#[derive(Debug, Args)]
pub(super) struct Send {
    /// Files and directories; - is what comes by standard input, read to its end before anything is sent
    #[arg(value_name = "FILE|DIRECTORY|-", required_unless_present = "watch")]
    sources: Vec<OsString>,
    /// The group's address and port, as in 239.1.1.1:7000; control connections are at the same port of this host
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "groups")]
    group: Option<Group>,
    /// Send to the group at this rate, which the path must have to spare: all headers are counted. With auto, as fast as receivers
    /// lose less than 0.5%, which is found while products are sent
    #[arg(long, value_name = "RATE|auto", required_unless_present = "groups", value_parser = pace)]
    rate: Option<Pace>,
    /// With a rate that is found: look no higher; than 100gbit otherwise
    #[arg(long, value_name = "RATE")]
    max_rate: Option<BitsPerSec>,
    /// Classes of receivers, each with a group and a rate of its own, as in 239.1.1.1:7000=95mbit,239.1.1.2:7001=950mbit
    #[arg(long, value_name = "ADDRESS:PORT=RATE,…", value_delimiter = ',', conflicts_with_all = ["group", "rate"], value_parser = class)]
    groups: Vec<Class>,
    /// Repair what single receivers lose at this rate beside the group's; in 0.1% of the group's otherwise
    #[arg(long, value_name = "RATE")]
    repair_rate: Option<BitsPerSec>,
    /// Send so much parity, as in 5% of what is sent: what is lost is then rebuilt without being asked for
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    parity: Fraction,
    /// Send what appears in this directory: what is moved there, or closed after it was written, until Ctrl-C
    #[arg(long, value_name = "DIRECTORY")]
    watch: Option<OsString>,
    /// Repair a product for so long at least after it was sent; then it is gone, and those who lack it catch up over their connection
    #[arg(long, value_name = "TIME", default_value = "30s")]
    hold: Nanos,
    /// Repair it for so many times as long as sending it took, where that is longer
    #[arg(long, value_name = "FACTOR", default_value_t = 10.0, value_parser = factor)]
    hold_factor: f64,
    /// How packets are protected: encrypt, or integrity (authenticated, not encrypted)
    #[arg(long, value_name = "HOW", default_value = "encrypt", value_parser = group_protect)]
    protect: Protect,
    /// The name of what comes by standard input, a source that is -; stdin where nothing is said
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Begin when so many receivers are there; those that have left again do not count
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = receivers)]
    receivers: u32,
    /// Wait so long for them at most, and begin with those that are there; where nobody is, end with 2
    #[arg(long, value_name = "TIME")]
    wait: Option<Nanos>,
    /// Routers that packets may cross, and one
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..))]
    ttl: u8,
    /// Let in whom this file lists instead of authorized_keys in ~/.config/farlink, or in /etc/farlink for root
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth")]
    keys: Option<PathBuf>,
    #[command(flatten)]
    end: End,
}

impl Send {
    /// Sends, and leaves a record however it ended.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let classes = self.classes()?;
        let (plans, keys) = self.plans(&classes)?;
        let mut file = self.end.records()?;
        let stop = signal::on_termination().context("catch signals")?;
        // A service has no terminal that would be closed.
        let has_terminal =
            io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
        let hung_up = if has_terminal || self.end.no_auth {
            None
        } else {
            Some(signal::on_hangup().context("catch signals")?)
        };
        let table = Table::new(self.end.is_watched());
        let (json, quiet) = (self.end.json, self.end.quiet);
        let key = keys.as_ref().map(|(identity, _)| identity.public());
        let telling = Mutex::new(Telling {
            json,
            quiet,
            several: plans.len() > 1,
            key,
            table,
            passed_over: HashSet::new(),
        });
        let over = Wake::new().context("make what ends waiting")?;
        if let (Some(hung_up), Some((_, admission))) = (hung_up, &keys) {
            keep_up(hung_up, Arc::clone(admission), over.clone(), false)
                .context("start to read the keys again")?;
        }
        let finished = run_all(&plans, &stop, &telling);
        over.raise();
        telling.lock().unwrap_or_else(PoisonError::into_inner).table.close();
        let is_begun = |finished: &Finished| finished.progress.totals.first_pass > 0;
        let any_begun = finished.iter().any(is_begun);
        // The worst of them is the answer.
        let mut worst = ExitCode::SUCCESS;
        let mut rank = 0;
        let (mut error, mut unkept) = (None, None);
        for (plan, finished) in plans.iter().zip(finished) {
            let kept = file.as_mut().map(|file| file.append(&finished.record)).transpose();
            if json || kept.is_err() {
                // Nothing that was measured is lost.
                print(&finished.record.line());
            }
            // Of the other classes there are records, too.
            unkept = unkept.or(kept.err());
            self.conclude(plan, &finished, plans.len() > 1);
            // A refusal is where nothing was begun.
            let is_broken = |error: &CastError| error.is_passing() || is_begun(&finished);
            let (this, code) = match (&finished.error, finished.interrupted) {
                (Some(CastError::Nobody { .. }), _) if any_begun => (1, SOME),
                (Some(CastError::Nobody { .. }), _) if plans.len() > 1 => (4, REFUSED),
                (Some(error), _) if is_broken(error) => (3, BROKEN),
                (Some(_), _) => (4, BROKEN),
                (None, true) => (2, INTERRUPTED),
                (None, false) if !finished.is_whole() => (1, SOME),
                (None, false) => (0, 0),
            };
            if this > rank {
                (rank, worst) = (this, ExitCode::from(code));
            }
            match finished.error {
                // It was told.
                Some(CastError::Nobody { .. }) if plans.len() > 1 => {}
                Some(broken) if this == 3 => {
                    tell(&format!("farlink: {:#}", anyhow::Error::from(broken)));
                }
                Some(refusal) => error = error.or(Some(refusal)),
                None => {}
            }
        }
        let Some(unkept) = unkept else { return error.map_or(Ok(worst), |error| Err(error.into())) };
        // That a record is not kept counts where nothing else is wrong.
        if rank == 0 {
            return Err(unkept.into());
        }
        tell(&format!("farlink: {:#}", anyhow::Error::from(unkept)));
        error.map_or(Ok(worst), |error| Err(error.into()))
    }

    /// Says what came of a session.
    fn conclude(&self, plan: &Plan, finished: &Finished, several: bool) {
        if finished.error.is_some() {
            return;
        }
        let of = if several { format!("{}: ", plan.group) } else { String::new() };
        if !self.end.json && !self.end.quiet {
            print(&(of.clone() + &summary(finished, self.watch.is_some())));
        }
        for peer in finished.progress.peers.values().filter(|peer| !peer.is_whole()) {
            let what = if peer.is_short && (finished.interrupted || peer.is_there) {
                "does not have everything".to_owned()
            } else if peer.is_short {
                "left before it had everything".to_owned()
            } else {
                format!("has not stored {}", products(peer.failed))
            };
            tell(&format!("farlink: {of}{} {what}", name(peer)));
        }
    }

    /// The groups, and their rates.
    fn classes(&self) -> anyhow::Result<Vec<Class>> {
        let classes = match (self.group, self.rate) {
            (Some(group), Some(pace)) => vec![Class { group, pace }],
            _ => self.groups.clone(),
        };
        for (at, class) in classes.iter().enumerate() {
            let port = class.group.address().port();
            if classes[..at].iter().any(|other| other.group.address().port() == port) {
                bail!("--groups has port {port} twice: each class has control connections at its own port");
            }
            let address = class.group.address().ip();
            if classes[..at].iter().any(|other| other.group.address().ip() == address) {
                bail!(
                    "--groups has {address} twice: networks forward by address, not by port, and each class would have the others' packets, too"
                );
            }
        }
        let is_found = |class: &Class| matches!(class.pace, Pace::Found);
        if self.max_rate.is_some() && !classes.iter().any(is_found) {
            bail!("--max-rate is of a rate that is found: write --rate auto, or leave it out");
        }
        Ok(classes)
    }

    fn plans(&self, classes: &[Class]) -> anyhow::Result<(Vec<Plan>, Option<Keys>)> {
        let at_once = watch_ends_twice(self.watch.is_some())?;
        let watch = self.watch.as_deref().map(source).transpose()?;
        let (sources, piped) = self.sources(watch.as_ref())?;
        let keys = self.keys()?;
        let plan = |class: &Class| Plan {
            group: class.group,
            interface: self.end.interface.clone(),
            ttl: self.ttl,
            rate: match class.pace {
                Pace::Fixed(rate) => Rate::Fixed(rate),
                Pace::Found => Rate::Found { most: self.max_rate.unwrap_or(HIGHEST) },
            },
            repair_rate: self.repair_rate,
            parity: self.parity,
            hold: Hold { floor: self.hold, of_multicast: self.hold_factor, ..Hold::default() },
            protect: self.protect,
            receivers: self.receivers,
            wait: self.wait,
            sessions: classes.len() as u32,
            realtime: self.end.realtime,
            piped: piped.clone(),
            sources: sources.clone(),
            watch: watch.clone(),
            at_once: at_once.clone(),
            keys: keys.clone(),
            patience: self.end.timeout.get(),
        };
        Ok((classes.iter().map(plan).collect(), keys))
    }

    fn sources(&self, watch: Option<&SourcePath>) -> anyhow::Result<(Vec<SourcePath>, Option<Piped>)> {
        let named = self.sources.iter().filter(|each| *each != "-");
        let sources = named.map(|each| source(each)).collect::<anyhow::Result<Vec<_>>>()?;
        let piped = self.sources.iter().filter(|each| *each == "-").count();
        if piped > 1 {
            bail!("standard input is named {piped} times, and can be read once: write one -");
        }
        let is_piped = piped > 0;
        if !is_piped && self.name.is_some() {
            bail!(
                "--name is of standard input, and no source is -: leave it out, files have their own names"
            );
        }
        // Among others they are named, and are no failure.
        let reasons: Vec<_> = self.sources.iter().map(|each| unsent(each)).collect();
        if !is_piped
            && watch.is_none()
            && let Some(Some(reason)) = reasons.first()
            && reasons.iter().all(Option::is_some)
        {
            bail!("the source {} is {reason}", sources[0]);
        }
        let piped = is_piped.then(|| self.piped(sources.iter().chain(watch))).transpose()?;
        Ok((sources, piped))
    }

    /// Standard input, kept in a file without a name: what was lost of it is read again. Receivers keep the last product of a name, so that
    /// it may have none of the others'.
    fn piped<'a>(&self, mut others: impl Iterator<Item = &'a SourcePath>) -> anyhow::Result<Piped> {
        let name = self.name.as_deref().unwrap_or(PIPED);
        let path = RelativePath::new(name.as_bytes()).context("--name")?;
        if path.is_root() {
            bail!("--name is empty: write the name that receivers are to give to standard input");
        }
        if let Some(other) = others.find(|other| other.base_name() == Some(path.as_bytes())) {
            bail!("standard input and {other} would both be {name:?} at receivers: write another --name");
        }
        let at = std::env::temp_dir().join(format!(".farlink-cast-{}", std::process::id()));
        let kept = || {
            let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&at);
            let mut file = options?;
            std::fs::remove_file(&at)?;
            io::copy(&mut io::stdin().lock(), &mut file)?;
            io::Result::Ok(file)
        };
        if self.end.is_watched() {
            tell("reading standard input: it is sent when it has ended");
        }
        let file = kept().with_context(|| format!("keep standard input in {}", at.display()))?;
        Ok(Piped { path, file: Arc::new(file) })
    }

    fn keys(&self) -> anyhow::Result<Option<Keys>> {
        if self.end.no_auth {
            return Ok(None);
        }
        let usual = Places::of_server();
        let keys = self.keys.clone().unwrap_or_else(|| usual.authorized_keys());
        let identity = Identity::load(&self.end.identity.clone().unwrap_or_else(|| usual.identity()))?;
        Ok(Some((identity, Arc::new(Admission::of_file(&keys)?))))
    }
}

/// Who this is, and whom it lets in.
type Keys = (Identity, Arc<Admission>);

/// What a second Ctrl-C raises, where the first only ends what is `watched`.
fn watch_ends_twice(watched: bool) -> anyhow::Result<Option<Wake>> {
    watched.then(signal::on_second_termination).transpose().context("catch signals")
}

/// What standard input is called where nobody says.
const PIPED: &str = "stdin";

/// The highest rate that is looked for: of no network card as yet.
const HIGHEST: BitsPerSec = BitsPerSec(NonZeroU64::new(100_000_000_000).unwrap());

/// Carries out sessions, each in a thread of its own. Where one of them fails as a whole the others end too.
fn run_all(plans: &[Plan], stop: &Wake, telling: &Mutex<Telling>) -> Vec<Finished> {
    thread::scope(|scope| {
        let run = |plan: &'_ Plan| {
            let finished = send::run(plan, stop, &mut |notice| {
                telling.lock().unwrap_or_else(PoisonError::into_inner).on(plan.group, &notice);
            });
            match &finished.error {
                // Others may go on for weeks.
                Some(error @ CastError::Nobody { .. }) if plans.len() > 1 => {
                    let telling = telling.lock().unwrap_or_else(PoisonError::into_inner);
                    telling.table.say(&format!("farlink: {error}"));
                }
                Some(_) => stop.raise(),
                None => {}
            }
            finished
        };
        let running: Vec<_> = plans.iter().map(|plan| scope.spawn(move || run(plan))).collect();
        let ended = |thread: thread::ScopedJoinHandle<'_, Finished>| match thread.join() {
            Ok(finished) => finished,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        running.into_iter().map(ended).collect()
    })
}

fn receivers(text: &str) -> anyhow::Result<u32> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => bail!("{text:?} is not a number of receivers: write 1 or more"),
    }
}

fn factor(text: &str) -> anyhow::Result<f64> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor >= 0.0 => Ok(factor),
        _ => bail!("write a number from 0 on"),
    }
}

fn group_protect(text: &str) -> anyhow::Result<Protect> {
    match text {
        "encrypt" => Ok(Protect::Encrypt),
        "integrity" => Ok(Protect::Integrity),
        _ => bail!("packets of a group are authenticated at least: write encrypt or integrity"),
    }
}

/// Why nothing is sent of a source by what it is itself. With a slash behind its name, what it leads to is looked at.
fn unsent(named: &OsStr) -> Option<&'static str> {
    let kind = std::fs::symlink_metadata(Path::new(named)).ok()?.file_type();
    match kind {
        _ if kind.is_symlink() => Some(
            "a symbolic link, which is not sent: name what it leads to, or write a slash behind one that leads to a directory",
        ),
        _ if kind.is_file() || kind.is_dir() => None,
        _ => Some("no file and no directory, and nothing else is sent: name others, or pipe it in as -"),
    }
}

/// A file or directory as it is named on this host.
fn source(named: &OsStr) -> anyhow::Result<SourcePath> {
    let path = std::path::absolute(named).with_context(|| format!("the source {named:?}"))?;
    if let Err(error) = path.metadata() {
        bail!("the source {}: {error}", path.display());
    }
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    // What is in a directory is sent, as with copy.
    if named.as_bytes().ends_with(b"/") {
        bytes.push(b'/');
    }
    Ok(SourcePath::new(bytes)?)
}
