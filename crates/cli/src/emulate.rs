//! `farlink emulate`: a long dedicated connection on this machine.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::Args;
use farlink_emulator::state::State;
use farlink_emulator::{Emulation, Plan};
use farlink_host::contain::{self, Event, Events, Rights};
use farlink_link::background::Background;
use farlink_link::conditions::{QueueLimit, Reorder};
use farlink_link::{Framing, Loss};
use farlink_wire::quantity::{BitsPerSec, Bytes, Fraction, Nanos};

use crate::BAD_INPUT;

/// Emulate a long dedicated connection between hosts on this machine.
///
/// With a COMMAND, runs it on host a and ends with it; without, stays until Ctrl-C. Hosts are named a, b, c …,
/// and find each other by these names; their addresses are also in the environment: FARLINK_A, FARLINK_A6, ….
/// Other commands run on a host with `farlink on NAME/HOST -- COMMAND`.
#[derive(Debug, Args)]
pub(crate) struct Emulate {
    /// What `farlink on` and `farlink link` call it.
    #[arg(long)]
    name: Option<String>,
    /// How many hosts (2 to 32); more than two are a star around a core without limits.
    #[arg(long, default_value_t = 2)]
    hosts: u8,
    /// The wire's rate, framing included [default: 10gbit; with sonet framing 9.58464gbit].
    #[arg(long)]
    rate: Option<BitsPerSec>,
    /// Round-trip time between any two hosts.
    #[arg(long, default_value = "0ms")]
    rtt: Nanos,
    /// What waits before the bottleneck at most: a time at the rate, or a size.
    #[arg(long, default_value = "50ms")]
    queue: QueueLimit,
    /// Loss in each direction: 1%, every:1000, burst:SHARE,LENGTH or gemodel:p,r[,1-h[,1-k]].
    #[arg(long, default_value = "0%")]
    loss: Loss,
    /// The one-way delay varies by up to this much either way; the order is kept.
    #[arg(long, default_value = "0ms")]
    jitter: Nanos,
    /// Share of segments that arrive late, and how late: 1%,2ms.
    #[arg(long, value_name = "SHARE[,TIME]", default_value = "0%")]
    reorder: Reorder,
    /// Share of segments that arrive twice.
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    duplicate: Fraction,
    /// Share of segments in which a bit is flipped.
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    corrupt: Fraction,
    /// Other traffic that takes its share of rate and queue in each direction: 3gbit, or 3gbit,on-off:100ms.
    #[arg(long, value_name = "LOAD")]
    background: Option<Background>,
    /// What the wire carries around each packet: ethernet, sonet (PPP over OC-192) or none.
    #[arg(long, default_value = "ethernet")]
    framing: Framing,
    /// Largest IP packet, bytes.
    #[arg(long, default_value_t = 9000)]
    mtu: u32,
    /// The hosts' default congestion control [default: the kernel's].
    #[arg(long)]
    congestion: Option<String>,
    /// Kernel memory to touch before the first packet, for the hosts' queues and buffers: about four times what
    /// is on its way. For virtual machines whose free memory is taken back, where first touching it is slow.
    #[arg(long, value_name = "SIZE")]
    prefault: Option<Bytes>,
    /// Every random choice derives from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Say that it is up as one line of JSON.
    #[arg(long)]
    json: bool,
    /// What to run on host a.
    #[arg(last = true)]
    command: Vec<OsString>,
}

impl Emulate {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let plan = self.plan();
        plan.check()?;
        // Before the user namespace, in which every user is root.
        let socket = socket();
        let code = contain::run(|events, rights| match self.stand(plan, &socket, &events, rights) {
            Ok(code) => code,
            Err(error) => {
                eprintln!("farlink: {error:#}");
                BAD_INPUT
            }
        })?;
        Ok(ExitCode::from(code))
    }

    fn plan(&self) -> Plan {
        let default = if self.framing == Framing::Sonet { Framing::OC192 } else { 10_000_000_000 };
        Plan {
            name: self.name.clone().unwrap_or_else(|| format!("emulation-{}", std::process::id())),
            hosts: self.hosts,
            rate: self.rate.or(BitsPerSec::new(default)).unwrap_or(BitsPerSec(std::num::NonZeroU64::MIN)),
            rtt: self.rtt,
            queue: self.queue,
            loss: self.loss,
            jitter: self.jitter,
            reorder: self.reorder,
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            background: self.background,
            framing: self.framing,
            mtu: self.mtu,
            congestion: self.congestion.clone(),
            prefault: self.prefault,
            seed: self.seed,
        }
    }

    /// Makes the connection, and keeps it for as long as it is wanted.
    fn stand(&self, plan: Plan, socket: &str, events: &Events, rights: Rights) -> anyhow::Result<u8> {
        let emulation = Emulation::start(plan, socket, rights)?;
        let state = emulation.state();
        let Some((program, arguments)) = self.command.split_first() else {
            if self.json {
                println!("{}", serde_json::to_string(&state)?);
            } else {
                println!("{}", up(&state));
            }
            say_notes(&state);
            while !matches!(events.wait(), Event::Terminate | Event::Interrupt) {}
            return Ok(0);
        };
        say_notes(&state);
        let mut command = Command::new(program);
        command.args(arguments);
        match emulation.spawn(0, &mut command) {
            Ok(child) => Ok(events.wait_for(child.id())),
            Err(error) => {
                eprintln!("farlink: start {program:?} on host a: {error}");
                Ok(NOT_FOUND)
            }
        }
    }
}

/// One line for a person.
fn up(state: &State) -> String {
    let hosts: Vec<_> = state.hosts.iter().map(|host| format!("{} {}", host.name, host.ipv4)).collect();
    let rate = BitsPerSec::new(state.rate_bps).map(|rate| rate.to_string()).unwrap_or_default();
    let rtt = Nanos::from_secs_f64(state.rtt_s);
    let name = &state.name;
    format!(
        "{name} is up: {}; {rate}, RTT {rtt}, {} framing, MTU {}; try: farlink on {name}/b -- ping a; Ctrl-C ends it",
        hosts.join(", "),
        state.framing,
        state.mtu
    )
}

/// What could not be had, for those who measure.
fn say_notes(state: &State) {
    if state.scheduling != "fifo" {
        eprintln!(
            "farlink: note: the emulator runs without priority ({}), so packets may leave late",
            state.scheduling
        );
    }
    for note in &state.notes {
        eprintln!("farlink: note: {note}");
    }
}

/// What stands for this user in the names of control sockets.
pub(crate) fn socket() -> String {
    format!("farlink/{}", farlink_host::namespace::user())
}

/// The name and the host of `wan/b`.
pub(crate) fn split_target(target: &str) -> anyhow::Result<(&str, &str)> {
    target.split_once('/').with_context(|| format!("{target:?} names no host: write it as in wan/b"))
}

/// A command that could not be started, as env(1) and the shells have it.
pub(crate) const NOT_FOUND: u8 = 127;
