//! `farlink memory HOST`: move memory to, or from, a far end, and measure it.

use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use farlink_host::circuit::Share;
use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_host::signal;
use farlink_mover::Progress;
use farlink_mover::far_host::FarHost;
use farlink_mover::memory::{self, Finished, Plan};
use farlink_mover::record_file::RecordFile;
use farlink_mover::secure::Credentials;
use farlink_wire::message::{Block, Buffer, Goal, Interval, Name, Patience, Streams, Way};
use farlink_wire::profile_model::Wishes;
use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos};
use farlink_wire::record::{Ends, Outcome, Record};

use crate::auto;
use crate::exit::INTERRUPTED;
use crate::output::{print, tell};

/// Move memory from this process to that of `farlink serve` on another host, and measure it.
///
/// The bytes are made here, really received there, and kept nowhere.
#[derive(Debug, Args)]
pub(crate) struct Memory {
    #[arg(value_name = "HOST[:PORT]", help = "The far end: HOST, HOST:PORT or [IPV6]:PORT")]
    host: FarHost,
    /// Move this much, as in 2GiB, and take the time that it takes
    #[arg(long, value_name = "SIZE", conflicts_with = "seconds", value_parser = size)]
    bytes: Option<Goal>,
    /// Move for this many seconds, and count what arrives within them
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = time)]
    seconds: Goal,
    /// Parallel TCP connections, up to 512; 1 otherwise
    #[arg(long, short = 'P', value_name = "N", value_parser = streams)]
    streams: Option<Streams>,
    /// Congestion control of the sender, as in cubic, or auto to let it choose; the host's default otherwise
    #[arg(long, short = 'C', value_name = "NAME", value_parser = congestion)]
    congestion: Option<Name>,
    /// Hold this rate of the wire, which the connection's owner guarantees: congestion control circuit
    #[arg(long, value_name = "RATE", conflicts_with = "congestion")]
    circuit: Option<BitsPerSec>,
    /// Send no faster than this, all streams together, as in 2gbit; each has its share
    #[arg(long, value_name = "RATE", conflicts_with = "circuit")]
    limit: Option<BitsPerSec>,
    /// Socket buffers at both ends, as in 64MiB; the kernel tunes them otherwise
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    buffer: Option<Buffer>,
    /// Bytes per write; 1MiB otherwise
    #[arg(long, value_name = "SIZE", value_parser = block)]
    block: Option<Block>,
    /// Choose congestion control, streams, buffers and block by a profile model, FILE or the one in its usual place;
    /// what is named here stays as named
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    auto: Option<Option<PathBuf>>,
    /// The round trip that --auto chooses by; measured otherwise
    #[arg(long, value_name = "TIME", requires = "auto", value_parser = round_trip)]
    rtt: Option<Nanos>,
    /// Whether to send without a copy; as it pays otherwise: with a copy to an end on the same machine
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no)]
    zero_copy: Option<bool>,
    /// Let the far end send
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Length of a sample
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    interval: Interval,
    /// Give up when the far end has been silent for this long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = patience)]
    timeout: Patience,
    /// Threads at this end; half of the processors otherwise, and never more than streams
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: Option<u16>,
    /// Connect from this address of this host
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Show the key in this file, also to a far end on this machine, instead of the one in ~/.config/farlink/identity
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Trust the far ends in this file instead of those in ~/.config/farlink/known_hosts
    #[arg(long, value_name = "FILE")]
    known_hosts: Option<PathBuf>,
    /// Append the transfer's record to this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print the transfer's record on standard output, as one line
    #[arg(long)]
    json: bool,
    /// Print no progress and no summary
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
    /// Print progress also where standard error is no terminal
    #[arg(long, short)]
    verbose: bool,
}

impl Memory {
    /// Moves, measures, and leaves a record however that ended.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut file = self.record.as_deref().map(RecordFile::open).transpose()?;
        let stop = signal::on_termination().context("catch signals")?;
        let live = !self.quiet && (self.verbose || io::stderr().is_terminal());
        let (json, quiet) = (self.json, self.quiet);
        let Some(plan) = self.plan(&stop)? else { return Ok(ExitCode::from(INTERRUPTED)) };
        let Finished { record, error } = memory::run(&plan, &stop, &mut |progress| {
            if live {
                tell(&line(&progress));
            }
        });
        let kept = file.as_mut().map(|file| file.append(&record)).transpose();
        if json {
            print(&record.line());
        } else if kept.is_err() {
            // Nothing that was measured is lost.
            print(&record.line());
        } else if !quiet && error.is_none() {
            print(&summary(&record));
        }
        match (error, kept) {
            (Some(error), Ok(_)) => Err(error.into()),
            (Some(error), Err(unkept)) => {
                Err(anyhow!("{:#}; and {:#}", anyhow::Error::from(error), anyhow::Error::from(unkept)))
            }
            (None, Err(unkept)) => Err(unkept.into()),
            (None, Ok(_)) if record.outcome == Outcome::Interrupted => Ok(ExitCode::from(INTERRUPTED)),
            (None, Ok(_)) => Ok(ExitCode::SUCCESS),
        }
    }

    /// What is wanted; `None` where `stop` was raised while the round trip was measured.
    fn plan(self, stop: &Wake) -> anyhow::Result<Option<Plan>> {
        let wishes = Wishes {
            congestion: self.congestion.clone(),
            declared: self.circuit,
            streams: self.streams,
            buffer: self.buffer,
            block: self.block,
        };
        let mut plan = Plan {
            began: monotonic(),
            target: self.host,
            credentials: credentials(self.identity, self.known_hosts),
            way: if self.reverse { Way::Reverse } else { Way::Forward },
            goal: self.bytes.unwrap_or(self.seconds),
            streams: self.streams.map_or_else(|| streams("1"), Ok)?,
            congestion: self.congestion,
            reason: None,
            declared: self.circuit,
            limit: self.limit,
            bind: self.bind,
            buffer: self.buffer,
            block: self.block.map_or_else(|| block("1MiB"), Ok)?,
            zero_copy: self.zero_copy,
            interval: self.interval,
            patience: self.timeout,
            threads: self.threads.map(usize::from),
        };
        if let Some(file) = &self.auto {
            let model = auto::read(file.as_deref())?;
            let measured = match self.rtt {
                Some(rtt) => Some(rtt),
                None => memory::round_trip(&plan.target, plan.bind, plan.patience, stop)?,
            };
            let Some(rtt) = measured else { return Ok(None) };
            let choice = auto::choose(MOVER, plan.goal, plan.way, &wishes, &model, rtt)?;
            plan.congestion = choice.congestion;
            plan.declared = choice.declared;
            plan.streams = choice.streams;
            plan.buffer = choice.buffer;
            plan.block = choice.block.unwrap_or(plan.block);
            plan.reason = Some(choice.reason);
        }
        if let Some(declared) = plan.declared {
            plan.congestion = Some(circuit(declared, plan.streams)?);
        }
        Ok(Some(plan))
    }
}

/// The files that were named, and the usual ones beside them; `None` where none was.
fn credentials(identity: Option<PathBuf>, known_hosts: Option<PathBuf>) -> Option<Credentials> {
    let named = identity.is_some() || known_hosts.is_some();
    named.then(|| {
        let usual = Credentials::of_user();
        Credentials {
            identity: identity.unwrap_or(usual.identity),
            known_hosts: known_hosts.unwrap_or(usual.known_hosts),
        }
    })
}

/// How it goes, once a second.
fn line(progress: &Progress) -> String {
    format!(
        "{:>5.0} s  {:>7.3} Gb/s  mean {:>7.3} Gb/s  {:>8} retransmits  cwnd {}",
        progress.at.as_secs_f64(),
        progress.latest_bps / 1e9,
        progress.mean_bps / 1e9,
        progress.retransmits,
        Bytes(progress.cwnd_bytes),
    )
}

/// What came of it.
fn summary(record: &Record) -> String {
    let seconds = record.duration_s.unwrap_or(0.0);
    let mut text = format!("{} in {seconds:.3} s", Bytes(record.bytes));
    if seconds > 0.0 {
        text += &format!(": {:.3} Gb/s", record.bytes as f64 * 8.0 / seconds / 1e9);
    }
    if let Some(setup) = record.setup_s {
        text += &format!(", setup {:.1} ms", setup * 1e3);
    }
    if let Some(retransmits) = record.retransmits {
        text += &format!(", {retransmits} retransmits");
    }
    if let Some(Ends { sender: Some(sender), receiver: Some(receiver) }) = record.cpu_s
        && record.bytes > 0
    {
        text += &format!(", {:.3} CPU s per GB", (sender + receiver) / (record.bytes as f64 / 1e9));
    }
    if let (Some(name), Some(reason)) = (&record.congestion, &record.congestion_reason) {
        text += &format!(", {name} because {reason}");
    }
    text += &of_circuit(record);
    if record.emulator.is_some_and(|health| health.overrun) {
        text += ", the emulator fell behind";
    }
    if record.outcome == Outcome::Interrupted {
        text += " (interrupted)";
    }
    text + "\n"
}

/// What became of the circuit, where there was one and its sender said. One that was over before the sender could doubt its rate, or that
/// something else bound, was not given up, and yet brought less.
pub(crate) fn of_circuit(record: &Record) -> String {
    let Some(circuit) = record.extra.get("circuit") else { return String::new() };
    if let Some(at) = circuit["fell_back_s"].as_f64() {
        return format!(", circuit fell back at {at:.1} s");
    }
    let arriving = record.duration_s.map(|duration| duration - record.rtt_s.unwrap_or(0.0) / 2.0);
    let is_filled = record
        .declared_bps
        .zip(arriving)
        .is_some_and(|(declared, arriving)| record.bytes as f64 * 8.0 >= FILLED * declared as f64 * arriving);
    if is_filled { ", circuit held".to_owned() } else { ", circuit not filled".to_owned() }
}

/// The share of a declared rate that makes a circuit full: what headers, a queue's beginning and a slow last block leave of it.
const FILLED: f64 = 0.8;

fn size(text: &str) -> anyhow::Result<Goal> {
    Ok(Goal::size(text.parse()?)?)
}

/// Seconds: the unit is in the option's name, and may be written all the same.
fn time(text: &str) -> anyhow::Result<Goal> {
    let time = match text.trim().parse::<f64>() {
        Ok(seconds) => Nanos::from_secs_f64(seconds),
        Err(_) => text.parse()?,
    };
    Ok(Goal::duration(time)?)
}

pub(crate) fn streams(text: &str) -> anyhow::Result<Streams> {
    let number: u32 = text.parse().context("write a number, as in 10")?;
    Ok(number.try_into()?)
}

pub(crate) fn congestion(text: &str) -> anyhow::Result<Name> {
    if text == CIRCUIT {
        bail!("it holds a rate that is declared: write --circuit RATE instead, as in --circuit 10gbit");
    }
    Ok(text.to_owned().try_into()?)
}

/// The congestion control that holds `declared`, shared by `streams`.
pub(crate) fn circuit(declared: BitsPerSec, streams: Streams) -> anyhow::Result<Name> {
    Share::of(declared, streams.into()).map_err(|error| anyhow!("--circuit {declared}: {error}"))?;
    Ok(CIRCUIT.to_owned().try_into()?)
}

pub(crate) fn buffer(text: &str) -> anyhow::Result<Buffer> {
    Ok(text.parse::<Bytes>()?.try_into()?)
}

fn block(text: &str) -> anyhow::Result<Block> {
    Ok(text.parse::<Bytes>()?.try_into()?)
}

fn yes_or_no(text: &str) -> anyhow::Result<bool> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(anyhow!("write yes or no")),
    }
}

pub(crate) fn interval(text: &str) -> anyhow::Result<Interval> {
    Ok(text.parse::<Nanos>()?.try_into()?)
}

pub(crate) fn round_trip(text: &str) -> anyhow::Result<Nanos> {
    match text.parse()? {
        Nanos::ZERO => Err(anyhow!("a round trip takes time: write more than 0, as in 91.6ms")),
        time => Ok(time),
    }
}

pub(crate) fn patience(text: &str) -> anyhow::Result<Patience> {
    Ok(text.parse::<Nanos>()?.try_into()?)
}

/// The congestion control of circuits.
const CIRCUIT: &str = "circuit";

/// Memory is in the clear.
const MOVER: auto::Mover = auto::Mover { name: "farlink memory", protection: "clear" };
