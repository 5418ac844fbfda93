//! From what is known of a transfer to its record.

use farlink_wire::message::{CircuitAccount, Goal, Host, Way};
use farlink_wire::quantity::{BitsPerSec, Nanos};
use farlink_wire::record::{Buffers, Ends, Hosts, Mode, Outcome, Record, SCHEMA};
use serde_json::json;

use super::{MemoryError, Plan};
use crate::account::Account;
use crate::{chain, facts};

/// A record with all that is known before anything moves.
pub(super) fn opened(plan: &Plan, started: String) -> Record {
    Record {
        schema: SCHEMA,
        mode: mode(plan.goal),
        started,
        streams: Some(plan.streams.into()),
        stripes: Some(1),
        congestion: plan.congestion.as_ref().map(|name| name.as_str().to_owned()),
        congestion_reason: plan.reason.clone(),
        declared_bps: plan.declared.map(BitsPerSec::get),
        buffer_bytes: plan.buffer.map(|buffer| buffer.get().into()),
        block_bytes: Some(plan.block.get().into()),
        tool: "farlink".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protection: Some("clear".to_owned()),
        ..Record::default()
    }
}

/// Both hosts, each in its role.
pub(super) fn name_hosts(record: &mut Record, way: Way, near: &Host, far: &Host) {
    let (source, destination) = match way {
        Way::Forward => (near, far),
        Way::Reverse => (far, near),
    };
    record.source = Some(source.name.to_string());
    record.destination = Some(destination.name.to_string());
    record.hosts =
        Some(Hosts { source: facts::recorded(source), destination: Some(facts::recorded(destination)) });
}

/// The two clocks were apart, and by how much the estimate may be wrong.
pub(super) fn note_clock_error(record: &mut Record, error: Nanos) {
    record.extra.insert("clock_error_s".to_owned(), json!(error.as_secs_f64()));
}

/// What was measured. Where the receiver gave no account, that is what it reported on the way.
pub(super) fn close(record: &mut Record, account: Account) {
    let received = account.received;
    let duration = received.map_or_else(|| account.sampled(), |received| received.duration);
    record.duration_s = Some(duration.as_secs_f64());
    record.bytes = received.map_or_else(|| account.bytes(), |received| received.bytes);
    record.samples = account.samples(duration);
    record.retransmits = account.retransmits();
    if let (Some(received), Some(sent)) = (received, &account.sent) {
        let (sender, receiver) = (sent.cpu.as_secs_f64(), received.cpu.as_secs_f64());
        record.cpu_s = Some(Ends { sender: Some(sender), receiver: Some(receiver) });
        record.buffers = Some(Buffers { send: sent.buffer, receive: received.buffer });
    }
    if let Some(sent) = &account.sent {
        record.congestion = Some(sent.congestion.to_string()).filter(|name| !name.is_empty());
        record.congestion_origin = sent.origin;
        // Whoever chose last says why.
        if let Some(reason) = &sent.reason {
            record.congestion_reason = Some(reason.to_string());
        }
        record.mtu = Some(sent.mtu).filter(|mtu| *mtu > 0);
        record.extra.insert("zero_copy".to_owned(), json!(sent.zero_copy));
        if let Some(circuit) = sent.circuit {
            note_circuit(record, circuit, Nanos::ZERO);
        }
    }
    record.tcp = account.into_traces();
}

/// Whether a circuit held the declared rate, or when it fell back, as its sender has it, which began `later` than the record.
pub(crate) fn note_circuit(record: &mut Record, circuit: CircuitAccount, later: Nanos) {
    let told = match circuit.fell_back {
        None => json!({"held": true}),
        Some(at) => json!({"held": false, "fell_back_s": at.after(later).as_secs_f64()}),
    };
    record.extra.insert("circuit".to_owned(), told);
}

/// How it ended.
pub(super) fn judge(record: &mut Record, error: Option<&MemoryError>, interrupted: bool) {
    record.outcome = match (error, interrupted) {
        (Some(_), _) => Outcome::Failed,
        (None, true) => Outcome::Interrupted,
        (None, false) => Outcome::Ok,
    };
    record.error = error.map(|error| chain(error));
}

/// The mode of a record, of a goal.
pub(super) const fn mode(goal: Goal) -> Mode {
    match goal {
        Goal::Size(_) => Mode::Size,
        Goal::Duration(_) => Mode::Duration,
    }
}
