//! `farlink emulate`: a long dedicated connection on this machine.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::Args;
use farlink_emulator::client::Client;
use farlink_emulator::state::State;
use farlink_emulator::{Emulation, Plan};
use farlink_host::contain::{self, Event, Events, Rights};
use farlink_link::{Conditions, Framing};
use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos};

use crate::exit::{DONE, INTERRUPTED, NOT_FOUND, REFUSED};
use crate::output::{is_lost, print, tell};
use crate::path_options::PathOptions;

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
    #[command(flatten)]
    path: PathOptions,
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
    /// Say that it is up as one line of JSON; with a COMMAND it is not said.
    #[arg(long, conflicts_with = "command")]
    json: bool,
    /// What to run on host a.
    #[arg(last = true)]
    command: Vec<OsString>,
}

impl Emulate {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let plan = self.plan();
        plan.check()?;
        if Client::here().is_ok() {
            bail!("this is an emulated host: emulate outside of it, or on more hosts (--hosts)");
        }
        // Before the user namespace, in which every user is root.
        let socket = socket();
        let code = contain::run(|events, rights| match self.stand(plan, &socket, &events, rights) {
            Ok(code) => code,
            Err(error) => {
                tell(&format!("farlink: {error:#}"));
                REFUSED
            }
        })?;
        Ok(ExitCode::from(code))
    }

    fn plan(&self) -> Plan {
        let rate = if self.framing == Framing::Sonet { Framing::OC192 } else { USUAL_RATE };
        let usual = Conditions {
            rate: BitsPerSec::new(rate),
            framing: self.framing,
            mtu: self.mtu,
            ..Conditions::default()
        };
        Plan {
            name: self.name.clone().unwrap_or_else(|| format!("emulation-{}", std::process::id())),
            hosts: self.hosts,
            path: self.path.clone().into_change().on(usual),
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
            let said = if self.json { serde_json::to_string(&state)? } else { up(&state) };
            print(&format!("{said}\n"));
            say_notes(&state);
            while !matches!(events.wait(), Event::Terminate | Event::Interrupt) {}
            fail_with(&emulation)?;
            // What was to say that it is up is known to be lost by this process alone.
            return Ok(if is_lost() { REFUSED } else { DONE });
        };
        say_notes(&state);
        let mut command = Command::new(program);
        command.args(arguments);
        emulation.equip(&mut command);
        // It was meant for the command, which is not there to have it.
        if events.is_interrupted() {
            return Ok(INTERRUPTED);
        }
        match emulation.spawn(0, &mut command) {
            Ok(child) => {
                let code = events.wait_for(child.id());
                fail_with(&emulation)?;
                Ok(code)
            }
            Err(error) => {
                tell(&format!("farlink: start {program:?} on host a: {error}"));
                Ok(NOT_FOUND)
            }
        }
    }
}

/// Says why nothing passed any more, where that ended it.
fn fail_with(emulation: &Emulation) -> anyhow::Result<()> {
    emulation.failure().map_or(Ok(()), |error| {
        Err(error).context("the emulation has ended: a host's device, or memory for what is on its way")
    })
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
        tell(&format!(
            "farlink: note: the emulator runs without priority ({}), so packets may leave late",
            state.scheduling
        ));
    }
    for note in &state.notes {
        tell(&format!("farlink: note: {note}"));
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

/// Of a link that nobody gave a rate: what the studies' connections had.
const USUAL_RATE: u64 = 10_000_000_000;
