//! `farlink copy SOURCE… DESTINATION`: files and trees, verified, resumable, over several connections at once.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::{ArgGroup, Args};
use farlink_flow::timetable::Timetable;
use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_host::signal;
use farlink_mover::copy::{self, CopyError, Finished, Foretold, Plan};
use farlink_mover::far::Far;
use farlink_mover::memory;
use farlink_mover::record::protection;
use farlink_mover::record_file::RecordFile;
use farlink_wire::bootstrap::Ports;
use farlink_wire::frame::MOST_FILE;
use farlink_wire::message::copy::{Protect, Rule};
use farlink_wire::message::{Buffer, Goal, Interval, Name, Patience, Streams, Way};
use farlink_wire::profile_model::Wishes;
use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos};
use farlink_wire::record::Outcome;

use crate::auto;
use crate::exit::{BROKEN, INTERRUPTED, NONE, REFUSED, SOME};
use crate::memory::{buffer, circuit, congestion, interval, patience, round_trip, streams};
use crate::output::{print, tell};

mod list;
mod location;
mod manifest;
mod report;
mod rules;
mod teller;

use location::{Location, Reach};
use report::Report;
use teller::Teller;

/// Copy files and trees to or from another host: verified, resumable with the same command, and encrypted.
///
/// Either side is a path, USER@HOST:PATH or HOST:PATH (through ssh), or farlink://HOST/PATH or farlink://HOST:PORT/PATH (a
/// `farlink serve` that knows your key).
/// A directory is copied into DESTINATION; with a slash behind it, what is in it is. Names appear at the destination complete or not
/// at all, and a copy that was cut short is taken up by the same command.
///
/// Exit codes: 0 all is copied; 1 some names are not, and each was named; 2 refused, nothing was begun; 3 it was begun, and the
/// connection or the far end failed: run the same command again; 4 none of the names is copied, and each was named; 130 interrupted.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("listed").args(["files_from", "include_from", "exclude_from"]).multiple(true))]
pub(crate) struct Copy {
    /// What to copy, and behind it where to
    #[arg(value_name = "SOURCE… DESTINATION", required = true, num_args = 1..)]
    places: Vec<std::ffi::OsString>,
    /// Print what would be copied, and copy nothing; with --update the destination is asked, and what would stay is left out
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Copy what matches GLOB although a later rule excludes it; rules are tried in their order, the first that matches decides
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true, value_parser = glob)]
    include: Vec<String>,
    /// Do not copy what matches GLOB
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true, value_parser = glob)]
    exclude: Vec<String>,
    /// Copy what matches a pattern of FILE, which has one a line, where no rule before it excludes that; - is standard input
    #[arg(long, value_name = "FILE")]
    include_from: Vec<PathBuf>,
    /// Do not copy what matches a pattern of FILE; there, too, "+ " before a pattern includes and "- " excludes
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Copy only the names that FILE lists, one a line, each beneath SOURCE and with all that is in it; - is standard input
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// What the files of --files-from, --include-from and --exclude-from list ends with a NUL, not with its line, as find -print0 writes it
    #[arg(long, requires = "listed")]
    from0: bool,
    /// Copy no faster than this, all connections together, as in 2gbit, or by this host's time of day, as in "08:00,2gbit 18:00,off"
    #[arg(long, value_name = "RATE")]
    limit: Option<Timetable>,
    /// Parallel TCP connections, up to 512; by the path's round trip and rate otherwise, 2 of a circuit
    #[arg(long, short = 'P', value_name = "N", value_parser = streams)]
    streams: Option<Streams>,
    /// Congestion control of the sender, as in cubic, or auto to let it choose; the host's default otherwise, or BBR over a long path where that is CUBIC
    #[arg(long, short = 'C', value_name = "NAME", value_parser = congestion)]
    congestion: Option<Name>,
    /// Hold this rate of the wire, which the connection's owner guarantees: congestion control circuit
    #[arg(long, value_name = "RATE", conflicts_with = "congestion")]
    circuit: Option<BitsPerSec>,
    /// Socket buffers at both ends, as in 64MiB; the kernel tunes them otherwise
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    buffer: Option<Buffer>,
    /// Begin as slowly as TCP does, also where a copy of the last day showed what the path carries (RFC 9959)
    #[arg(long)]
    no_careful_resume: bool,
    /// Choose congestion control, streams and buffers by a profile model, FILE or the one in its usual place; what is named
    /// here stays as named
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    auto: Option<Option<PathBuf>>,
    /// The round trip that --auto chooses by; measured otherwise, of a farlink:// server
    #[arg(long, value_name = "TIME", requires = "auto", value_parser = round_trip)]
    rtt: Option<Nanos>,
    /// How data are kept from others: encrypt (where nothing is said), integrity (not from readers), or clear
    #[arg(long, value_name = "HOW", value_parser = protect)]
    protect: Option<Protect>,
    /// Do not hash and check content
    #[arg(long)]
    no_verify: bool,
    /// Have every file on disk before it gets its name
    #[arg(long)]
    fsync: bool,
    /// Read every file again from the disk, and compare it, before it gets its name; what --fsync does is done too
    #[arg(long, conflicts_with = "no_verify")]
    read_back: bool,
    /// Ask first what is there already, and copy what is not; that is done anyway after an attempt that did not end well
    #[arg(long)]
    resume: bool,
    /// Leave files as they stand that are newer at the destination, or as old and as long there: neither is read
    #[arg(long, short, conflicts_with = "length")]
    update: bool,
    /// Attempts after the first, where the connection breaks, counted anew once more was copied; with 0, files that changed while they were read are not tried once more either
    #[arg(long, value_name = "N", default_value_t = 3)]
    retries: u32,
    /// Read this much of a source that has no end, such as /dev/zero
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["include", "exclude", "include_from", "exclude_from"])]
    length: Option<Bytes>,
    /// Start the far end by this command instead of ssh, as rsync's -e
    #[arg(long, short = 'e', value_name = "COMMAND")]
    ssh: Option<String>,
    /// Ports on which a far end that ssh starts may listen, as in 50000-50100
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<Ports>,
    /// Connect from this address of this host
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<std::net::IpAddr>,
    /// The key to show to farlink:// servers; the one in ~/.config/farlink/identity otherwise
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// The keys of farlink:// servers; those in ~/.config/farlink/known_hosts otherwise
    #[arg(long, value_name = "FILE")]
    known_hosts: Option<PathBuf>,
    /// Show no key and protect nothing: `farlink serve --no-auth` on an emulated host lets that in
    #[arg(long, conflicts_with_all = ["identity", "known_hosts"])]
    no_auth: bool,
    /// Length of a sample of the record
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    interval: Interval,
    /// Give up when the far end has been silent for this long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience)]
    timeout: Patience,
    /// Append the transfer's record to this file
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    record: Option<PathBuf>,
    /// Write what became of each name to this file, one JSON object a line, with its BLAKE3 digest
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Print progress, what became of each name, and the record on standard output, one JSON object a line
    #[arg(long)]
    json: bool,
    /// Print no progress and no summary
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
    /// Print each name, and progress also where standard error is no terminal
    #[arg(long, short)]
    verbose: bool,
}

impl Copy {
    /// Copies, and leaves a record however it ended.
    pub(crate) fn run(self, matches: &clap::ArgMatches) -> anyhow::Result<ExitCode> {
        if let (Some(record), Some(manifest)) = (&self.record, &self.manifest) {
            manifest::check_apart(manifest, record)?;
        }
        let mut file = self.record.as_deref().map(RecordFile::open).transpose()?;
        let rules = rules::of(matches)?;
        let live = !self.quiet && !self.json && (self.verbose || io::stderr().is_terminal());
        let (dry_run, quiet, json, verbose) = (self.dry_run, self.quiet, self.json, self.verbose);
        let manifest = self.manifest.clone();
        let stop = signal::on_termination().context("catch signals")?;
        let Some(mut plan) = self.plan(rules, &stop)? else { return Ok(ExitCode::from(INTERRUPTED)) };
        if let Some(manifest) = &manifest {
            manifest::check(manifest, &plan)?;
        }
        let far = plan.far.host().map(str::to_owned);
        let report = Report::new((json, quiet), verbose, dry_run, live, manifest.as_deref(), far)?;
        plan.report = report.wants_names();
        let mut teller = Teller::start(report)?;
        if dry_run {
            return foretell(&plan, &stop, teller);
        }
        let Finished { record, summary, error, begun } = copy::run(&plan, &stop, &mut teller);
        let report = teller.end(&stop);
        let is_held_up = report.is_none();
        let written = report.map_or(Ok(()), |mut report| report.close(begun || error.is_none()));
        let kept = file.as_mut().map(|file| file.append(&record)).transpose();
        if is_held_up {
            // Who has the terminal, or reads, takes nothing.
            return Ok(ExitCode::from(INTERRUPTED));
        }
        if json || kept.is_err() {
            // Nothing that was measured is lost.
            print(&record.line());
        }
        // What became of the transfer is said, too.
        let unwritten: Vec<_> =
            kept.err().map(anyhow::Error::from).into_iter().chain(written.err()).collect();
        for error in &unwritten {
            tell(&format!("farlink: {error:#}"));
        }
        if let Some(error) = error {
            return of_failure(error, begun);
        }
        if !quiet && !json {
            print(&report::summary(&record, &summary, plan.verify));
        }
        Ok(match record.outcome {
            Outcome::Interrupted => ExitCode::from(INTERRUPTED),
            _ if !unwritten.is_empty() && summary.failed == 0 => ExitCode::from(REFUSED),
            _ => of_names(summary.failed, summary.entries + summary.bare),
        })
    }

    /// What is wanted; `None` where `stop` was raised while the round trip was measured.
    fn plan(self, rules: Vec<Rule>, stop: &Wake) -> anyhow::Result<Option<Plan>> {
        let mut places = self.places;
        let destination = places.pop().filter(|_| !places.is_empty());
        let destination =
            destination.context("name a source and a destination: farlink copy SOURCE… DESTINATION")?;
        let sources: Vec<_> = places.into_iter().map(Location::parse).collect::<Result<_, _>>()?;
        let destination = Location::parse(destination)?;
        if let [only] = sources.as_slice() {
            only.check_alone(self.length)?;
        }
        let reach = Reach {
            ssh: self.ssh,
            ports: self.ports,
            identity: self.identity,
            known_hosts: self.known_hosts,
            no_keys: self.no_auth,
        };
        let way = way(&sources, &destination)?;
        let far_location = if way == Way::Forward { &destination } else { &sources[0] };
        let far = far_location.far(&reach)?;
        let of_connections = [
            ("--circuit", self.circuit.is_some()),
            ("--congestion", self.congestion.is_some()),
            ("--buffer", self.buffer.is_some()),
            ("--auto", self.auto.is_some()),
            ("--bind", self.bind.is_some()),
        ];
        if far.is_local()
            && let Some((option, _)) = of_connections.iter().find(|(_, is_given)| *is_given)
        {
            bail!("{option} is of a connection, and both sides are here: leave it out");
        }
        reach.check(&far)?;
        // Nothing can be protected without keys.
        let protect = self.protect.unwrap_or(if self.no_auth { Protect::Clear } else { Protect::Encrypt });
        if protect == Protect::Integrity && self.no_verify {
            bail!("--protect integrity checks digests: leave out --no-verify");
        }
        self.length.map_or(Ok(()), check_length)?;
        let names = self.files_from.as_deref().map(|file| list::read(file, self.from0)).transpose()?;
        if let Some(names) = &names {
            if sources.len() != 1 || self.length.is_some() {
                bail!("--files-from is of names beneath one source: name one directory, and no --length");
            }
            if way == Way::Reverse {
                list::check_request(names)?;
            }
        }
        let within = |source: &Location| if names.is_some() { source.within() } else { source.place() };
        let mut plan = Plan {
            began: monotonic(),
            far,
            bind: self.bind,
            way,
            sources: sources.iter().map(within).collect::<Result<_, _>>()?,
            destination: destination.place()?,
            rules,
            names,
            length: self.length,
            resume: self.resume.then_some(true),
            update: self.update,
            protect,
            verify: !self.no_verify,
            fsync: self.fsync || self.read_back,
            read_back: self.read_back,
            limit: self.limit.clone(),
            streams: self.streams,
            congestion: self.congestion.clone(),
            declared: self.circuit,
            buffer: self.buffer,
            careful_resume: !self.no_careful_resume,
            interval: self.interval,
            patience: self.timeout,
            retries: self.retries,
            report: false,
            reason: None,
        };
        if let Some(file) = &self.auto {
            let model = auto::read(file.as_deref())?;
            let measured = match (self.rtt, &plan.far) {
                (Some(rtt), _) => Some(rtt),
                (None, Far::Server(server)) => {
                    memory::round_trip(&server.target, plan.bind, plan.patience, stop)?
                }
                (None, _) => bail!("--auto needs the round trip: write it, as in --rtt 91.6ms"),
            };
            let Some(rtt) = measured else { return Ok(None) };
            let wishes = Wishes {
                congestion: self.congestion,
                declared: self.circuit,
                streams: self.streams,
                buffer: self.buffer,
                block: None,
            };
            let mover = auto::Mover { name: "farlink copy", protection: protection(protect) };
            let choice = auto::choose(mover, Goal::size(size_of(&sources))?, way, &wishes, &model, rtt)?;
            plan.congestion = choice.congestion;
            plan.declared = choice.declared;
            plan.streams = Some(choice.streams);
            plan.buffer = choice.buffer;
            plan.reason = Some(choice.reason);
        }
        if let Some(declared) = plan.declared {
            let streams = plan.streams.map_or_else(|| Streams::try_from(copy::CIRCUIT_STREAMS), Ok)?;
            plan.congestion = Some(circuit(declared, streams)?);
        }
        Ok(Some(plan))
    }
}

/// Tells what `plan` would copy, and copies nothing.
fn foretell(plan: &Plan, stop: &Wake, mut teller: Teller) -> anyhow::Result<ExitCode> {
    let foretold = copy::foretell(plan, stop, &mut teller);
    let Some(mut report) = teller.end(stop) else { return Ok(ExitCode::from(INTERRUPTED)) };
    let written = report.close(foretold.is_ok());
    if let (Err(_), Err(error)) = (&foretold, &written) {
        tell(&format!("farlink: {error:#}"));
    }
    let foretold = match foretold {
        Err(error) if error.is_put_off() => return of_failure(error, false),
        foretold => foretold?,
    };
    written?;
    report.conclude_foretold(&foretold);
    Ok(match foretold {
        Foretold { interrupted: true, .. } => ExitCode::from(INTERRUPTED),
        Foretold { failed, entries, .. } => of_names(failed, entries),
    })
}

/// Which way is copied, by where both sides are.
fn way(sources: &[Location], destination: &Location) -> anyhow::Result<Way> {
    let far_sources = sources.iter().filter(|source| source.is_far()).count();
    match (sources.iter().find(|source| source.is_far()), destination.is_far()) {
        (None, _) => Ok(Way::Forward),
        (Some(source), true) => {
            bail!("both {source} and {destination} are on other hosts: run farlink copy on one of them")
        }
        _ if far_sources < sources.len() => {
            bail!("some sources are here and some on another host: copy them by two commands")
        }
        _ if sources.iter().any(|source| !source.same_host(&sources[0])) => {
            bail!("the sources are on different hosts: copy them by a command for each")
        }
        _ => Ok(Way::Reverse),
    }
}

fn check_length(length: Bytes) -> anyhow::Result<()> {
    match length {
        Bytes(0) => bail!("--length {length}: there is nothing to read: write how much, as in 10GiB"),
        Bytes(bytes) if bytes > MOST_FILE => {
            bail!("--length {length}: no file has more than {}", Bytes(MOST_FILE))
        }
        _ => Ok(()),
    }
}

/// What is said of a copy that failed as a whole, of which something was `begun` or not.
fn of_failure(error: CopyError, begun: bool) -> anyhow::Result<ExitCode> {
    let (is_passing, may_go_on) = (error.is_passing(), begun && !error.is_final());
    // Of one that was put off nothing was begun, and the same command is to be given again.
    if !is_passing && !may_go_on && !error.is_put_off() {
        return Err(error.into());
    }
    let may_come_back = is_passing || may_go_on && error.is_unreached();
    let mend =
        if may_come_back { " (run the same command again: what is there is not sent again)" } else { "" };
    tell(&format!("farlink: {:#}{mend}", anyhow!(error)));
    Ok(ExitCode::from(BROKEN))
}

/// Whether some names, or all, are not copied.
fn of_names(failed: u64, copied: u64) -> ExitCode {
    match (failed, copied) {
        (0, _) => ExitCode::SUCCESS,
        (_, 0) => ExitCode::from(NONE),
        _ => ExitCode::from(SOME),
    }
}

/// Bytes of `sources` where they are files of this host; what the model is asked for otherwise.
fn size_of(sources: &[Location]) -> Bytes {
    let of = |source: &Location| match source {
        Location::Here(path) => {
            let found = std::fs::metadata(OsStr::from_bytes(path)).ok().filter(std::fs::Metadata::is_file);
            found.map(|file| file.len()).filter(|bytes| *bytes > 0)
        }
        _ => None,
    };
    Bytes(sources.iter().map(of).sum::<Option<u64>>().unwrap_or(USUAL_SIZE))
}

/// A pattern, and none of rsync's rules.
fn glob(text: &str) -> Result<String, &'static str> {
    if text.starts_with("- ") || text.starts_with("+ ") {
        return Err("a sign before the pattern is rsync's: write --exclude GLOB or --include GLOB");
    }
    Ok(text.to_owned())
}

fn protect(text: &str) -> anyhow::Result<Protect> {
    match text {
        "encrypt" => Ok(Protect::Encrypt),
        "integrity" => Ok(Protect::Integrity),
        "clear" => Ok(Protect::Clear),
        _ => bail!("write encrypt, integrity or clear"),
    }
}

/// Bytes of a copy of unknown size: so many that ramp-up matters and does not rule.
const USUAL_SIZE: u64 = 10 << 30;
