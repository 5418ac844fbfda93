//! The record of a session.

use farlink_mover::connection::Emulated;
use farlink_mover::facts;
use farlink_mover::record::protection;
use farlink_wire::quantity::{BitsPerSec, Nanos};
use farlink_wire::record::{Disk, Ends, Hosts, Record};
use serde_json::{Value, json};

use super::{Peer, Plan, Progress, Rate};
use crate::record::{Frame, add_cast};

/// What is known of a session when it has ended.
pub(super) struct Course<'a> {
    pub(super) plan: &'a Plan,
    /// Set up is from the start of the command until the first packet might leave; it took from then until everybody had everything.
    pub(super) frame: Frame,
    pub(super) progress: &'a Progress,
    pub(super) payload: u16,
    pub(super) realtime: Option<bool>,
    /// How long reading files took.
    pub(super) read: Option<Nanos>,
    pub(super) cpu: Nanos,
    pub(super) before: Option<&'a Emulated>,
}

impl Course<'_> {
    pub(super) fn record(&self) -> Record {
        let host = facts::host();
        let mut record = Record {
            // Of a session that was ended, no more than was sent.
            bytes: self.progress.bytes.min(self.progress.totals.first_pass),
            declared_bps: match self.plan.rate {
                Rate::Fixed(rate) => Some(rate.get()),
                Rate::Found { .. } => None,
            },
            files: Some((self.progress.products - self.progress.unsent.0).into()),
            source: Some(host.name.to_string()),
            destination: Some(self.plan.group.to_string()),
            hosts: Some(Hosts { source: facts::recorded(&host), destination: None }),
            protection: Some(protection(self.plan.protect).to_owned()),
            rtt_s: self.known_rtts().max().map(Nanos::as_secs_f64),
            cpu_s: Some(Ends { sender: Some(self.cpu.as_secs_f64()), receiver: self.receivers_cpu_s() }),
            disk_s: self.read.map(|read| Disk { read: Some(read.as_secs_f64()), write: None }),
            ..self.frame.record()
        };
        if let Some(before) = self.before {
            before.note_in(&mut record, self.plan.group.address().ip());
        }
        add_cast(&mut record, self.cast());
        record
    }

    /// Round trips of the receivers that have measured theirs.
    fn known_rtts(&self) -> impl Iterator<Item = Nanos> {
        self.progress.peers.values().map(|peer| peer.rtt).filter(|rtt| *rtt > Nanos::ZERO)
    }

    /// CPU time of all receivers, where all of them have told theirs.
    fn receivers_cpu_s(&self) -> Option<f64> {
        let each = |peer: &Peer| peer.leave.map(|leave| leave.cpu.as_secs_f64());
        let all: Option<Vec<_>> = self.progress.peers.values().map(each).collect();
        all.filter(|all| !all.is_empty()).map(|all| all.iter().sum())
    }

    /// What only a multicast session has.
    fn cast(&self) -> Value {
        let totals = self.progress.totals;
        let receivers = self.progress.peers.values().map(|peer| {
            json!({
                "name": peer.host.name.to_string(),
                "address": peer.at.ip().to_string(),
                "products": peer.products,
                "failed": peer.failed,
                "skipped": Some(peer.wanted).filter(|skipped| *skipped > 0),
                "caught_up": peer.leave.map(|leave| leave.caught_up),
                "packets": peer.report.packets,
                "lost": peer.report.lost,
                "refused": peer.report.refused,
                "repaired_bytes": peer.report.repaired,
                "unicast_repair_bytes": peer.repaired,
                "rtt_s": Some(peer.rtt).filter(|rtt| *rtt > Nanos::ZERO).map(Nanos::as_secs_f64),
                "cpu_s": peer.leave.map(|leave| leave.cpu.as_secs_f64()),
                "complete": peer.is_whole(),
            })
        });
        let receivers = receivers.collect::<Vec<_>>();
        json!({
            "group": self.plan.group.to_string(),
            "payload_bytes": self.payload,
            "rate_bps": self.progress.rate.map(BitsPerSec::get),
            "rate_found": self.progress.rate_found,
            "first_pass_bytes": totals.first_pass,
            "multicast_repair_bytes": totals.multicast_repair,
            "unicast_repair_bytes": totals.unicast_repair,
            "parity_bytes": totals.parity,
            "wire_bytes": totals.group_wire,
            "nacks": totals.nacks,
            "gone": totals.gone,
            "realtime": self.realtime,
            "receivers": receivers,
            "receivers_long_gone": Some(self.progress.gone.receivers).filter(|gone| *gone > 0),
        })
    }
}
