//! The record of a receiver's part in a session.

use farlink_mover::connection::Emulated;
use farlink_mover::facts;
use farlink_mover::record::protection;
use farlink_wire::cast::control::Welcome;
use farlink_wire::quantity::Nanos;
use farlink_wire::record::{Disk, Ends, Hosts, Record};
use serde_json::json;

use super::{Plan, Progress};
use crate::record::{Frame, add_cast};

/// What is known of it when it has ended.
pub(super) struct Course<'a> {
    pub(super) plan: &'a Plan,
    pub(super) welcome: Option<&'a Welcome>,
    pub(super) seed: Option<u64>,
    /// Set up is from the start of the command, or the end of the session before, until the first packet came; it took from then until it
    /// had everything.
    pub(super) frame: Frame,
    pub(super) progress: &'a Progress,
    /// Bytes of receive buffer that were asked for, and that were granted.
    pub(super) buffer: (u32, u64),
    pub(super) realtime: Option<bool>,
    pub(super) cpu: Nanos,
    /// How long writing files took, where any are written.
    pub(super) written: Option<Nanos>,
    pub(super) samples: Vec<(f64, u64)>,
    pub(super) before: Option<&'a Emulated>,
}

impl Course<'_> {
    pub(super) fn record(&self) -> Record {
        let (host, tally, report) = (facts::host(), self.progress.tally, self.progress.report);
        let mut record = Record {
            bytes: self.progress.came_bytes,
            files: Some((tally.stored - tally.superseded).into()),
            destination: Some(host.name.to_string()),
            rtt_s: Some(self.progress.rtt).filter(|rtt| *rtt > Nanos::ZERO).map(Nanos::as_secs_f64),
            buffer_bytes: Some(self.buffer.0.into()),
            cpu_s: Some(Ends { sender: None, receiver: Some(self.cpu.as_secs_f64()) }),
            disk_s: self.written.map(|written| Disk { read: None, write: Some(written.as_secs_f64()) }),
            samples: self.samples.clone(),
            ..self.frame.record()
        };
        if let Some(welcome) = self.welcome {
            record.source = Some(welcome.host.name.to_string());
            record.hosts = Some(Hosts {
                source: facts::recorded(&welcome.host),
                destination: Some(facts::recorded(&host)),
            });
            record.protection = Some(protection(welcome.protect).to_owned());
        }
        if let Some(before) = self.before {
            before.note_in(&mut record, self.plan.group.address().ip());
        }
        let cast = json!({
            "group": self.plan.group.to_string(),
            "since_s": self.plan.since.map(Nanos::as_secs_f64),
            "skipped": self.plan.since.and(self.welcome).map(|welcome| welcome.wanted),
            "payload_bytes": self.welcome.map(|welcome| welcome.payload.get()),
            "granted_buffer_bytes": self.buffer.1,
            "products": tally.stored,
            "replaced": tally.superseded,
            "failed": tally.failed,
            "caught_up": tally.caught_up,
            "packets": report.packets,
            "lost": report.lost,
            "refused": report.refused,
            "duplicates": tally.duplicates,
            "repaired_bytes": tally.repaired,
            "kept_bytes": tally.found,
            "nacks": tally.nacks,
            "realtime": self.realtime,
            "seed": self.seed,
        });
        add_cast(&mut record, cast);
        record
    }
}
