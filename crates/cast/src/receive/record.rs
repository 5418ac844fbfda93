//! The record of a receiver's part in a session.

use farlink_host::process;
use farlink_mover::connection::Emulated;
use farlink_mover::facts;
use farlink_wire::cast::control::Welcome;
use farlink_wire::message::copy::Protect;
use farlink_wire::quantity::Nanos;
use farlink_wire::record::{Hosts, Kind, Mode, Outcome, Record, SCHEMA};
use serde_json::json;

use super::{Plan, Progress};

/// What is known of it when it has ended.
pub(super) struct Course<'a> {
    pub(super) plan: &'a Plan,
    pub(super) welcome: Option<&'a Welcome>,
    pub(super) started: String,
    /// From the start of the command, or the end of the session before, until it had joined.
    pub(super) setup: Option<Nanos>,
    /// From the first packet until it had everything.
    pub(super) duration: Option<Nanos>,
    pub(super) progress: &'a Progress,
    pub(super) buffer: u64,
    pub(super) cpu: Nanos,
    pub(super) before: Option<&'a Emulated>,
    pub(super) outcome: Outcome,
    pub(super) error: Option<String>,
}

impl Course<'_> {
    pub(super) fn record(&self) -> Record {
        let (host, tally, report) = (facts::host(), self.progress.tally, self.progress.report);
        let random = process::random().unwrap_or_default();
        let mut record = Record {
            schema: SCHEMA,
            id: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            kind: Kind::Cast,
            mode: Mode::Size,
            started: self.started.clone(),
            setup_s: self.setup.map(Nanos::as_secs_f64),
            duration_s: self.duration.map(Nanos::as_secs_f64),
            bytes: self.progress.stored_bytes,
            files: Some(tally.stored.into()),
            destination: Some(host.name.to_string()),
            tool: "farlink".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            outcome: self.outcome,
            error: self.error.clone(),
            ..Record::default()
        };
        if let Some(welcome) = self.welcome {
            record.source = Some(welcome.host.name.to_string());
            record.hosts =
                Some(Hosts { source: facts::recorded(&welcome.host), destination: facts::recorded(&host) });
            let encrypted = welcome.protect == Protect::Encrypt;
            record.protection = Some(if encrypted { "encrypted" } else { "integrity" }.to_owned());
        }
        if let Some(before) = self.before {
            before.describe(&mut record, self.plan.group.address().is_ipv6());
            record.emulator = Emulated::of_this_host().and_then(|after| after.health_since(before));
        }
        let cast = json!({
            "group": self.plan.group.to_string(),
            "payload_bytes": self.welcome.map(|welcome| welcome.payload.get()),
            "buffer_bytes": self.buffer,
            "products": tally.stored,
            "failed": tally.failed,
            "caught_up": tally.caught_up,
            "packets": report.packets,
            "lost": report.lost,
            "refused": report.refused,
            "duplicates": tally.duplicates,
            "repaired_bytes": tally.repaired,
            "nacks": tally.nacks,
            "rtt_s": report.rtt.as_secs_f64(),
            "cpu_s": self.cpu.as_secs_f64(),
        });
        record.extra.insert("cast".to_owned(), cast);
        record
    }
}
