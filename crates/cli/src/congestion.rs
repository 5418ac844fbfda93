//! `farlink congestion`: the congestion controls that transfers of this host can ask for.

use std::process::ExitCode;

use clap::Args;
use farlink_host::congestion::{self, CongestionError};
use farlink_host::socket;
use farlink_wire::record::CongestionOrigin;
use serde::Serialize;

use crate::output::print;

/// List the congestion controls that this host has, those that farlink would load on demand, and why not others.
///
/// Any command that takes --congestion loads what it needs and unloads it when it is done.
#[derive(Debug, Args)]
pub(crate) struct Congestion {
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    state: State,
    /// Absent where this process may not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<CongestionOrigin>,
    /// Why it cannot be had, and the mend.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Available,
    Loadable,
    Unavailable,
}

impl Congestion {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let entries = entries();
        let text = if self.json {
            serde_json::to_string(&entries)? + "\n"
        } else {
            entries.iter().map(|entry| format!("{:<12} {}\n", entry.name, entry.words())).collect()
        };
        print(&text);
        Ok(ExitCode::SUCCESS)
    }
}

impl Entry {
    fn words(&self) -> String {
        match (self.state, self.origin) {
            (State::Available, Some(CongestionOrigin::Bpf)) => {
                "available: loaded by another farlink (bpf)".to_owned()
            }
            (State::Available, Some(CongestionOrigin::Kernel)) => "available: the kernel's".to_owned(),
            (State::Available, None) => "available".to_owned(),
            (State::Loadable, _) => "can be loaded (bpf): --congestion does so".to_owned(),
            (State::Unavailable, _) => {
                format!("not available: {}", self.reason.as_deref().unwrap_or_default())
            }
        }
    }
}

/// The kernel's, then ours that it lacks.
fn entries() -> Vec<Entry> {
    let available = socket::available_congestion();
    let missing = congestion::ours().filter(|name| !available.iter().any(|known| known == name));
    let ours = missing.map(|name| match congestion::could_load(name) {
        Ok(()) => Entry {
            name: name.to_owned(),
            state: State::Loadable,
            origin: Some(CongestionOrigin::Bpf),
            reason: None,
        },
        Err(error) => Entry {
            name: name.to_owned(),
            state: State::Unavailable,
            origin: None,
            reason: Some(error.reason().to_owned()),
        },
    });
    let theirs = available.iter().map(|name| {
        let is_allowed = congestion::is_allowed(name);
        let forbidden = || CongestionError::Forbidden { name: name.clone() }.reason().to_owned();
        Entry {
            name: name.clone(),
            state: if is_allowed { State::Available } else { State::Unavailable },
            origin: congestion::origin(name),
            reason: (!is_allowed).then(forbidden),
        }
    });
    theirs.chain(ours).collect()
}
