//! What the records of all movers have alike.

use farlink_wire::message::copy::Protect;
use farlink_wire::message::{CircuitAccount, Host, Sent, Way};
use farlink_wire::quantity::Nanos;
use farlink_wire::record::{Hosts, Record, SCHEMA};
use serde_json::json;

use crate::facts;

/// A record of a transfer that was `started` then, by the calendar, and of which nothing else is known.
#[must_use]
pub fn new_record(started: String) -> Record {
    Record {
        schema: SCHEMA,
        started,
        tool: "farlink".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Record::default()
    }
}

/// How data are protected, in the words of records.
#[must_use]
pub const fn protection(protect: Protect) -> &'static str {
    match protect {
        Protect::Encrypt => "encrypted",
        Protect::Integrity => "integrity",
        Protect::Clear => "clear",
    }
}

/// Both hosts of a transfer that goes `way`, each in its role.
pub(crate) fn name_hosts(record: &mut Record, way: Way, near: &Host, far: &Host) {
    let (source, destination) = match way {
        Way::Forward => (near, far),
        Way::Reverse => (far, near),
    };
    record.source = Some(source.name.to_string());
    record.destination = Some(destination.name.to_string());
    record.hosts =
        Some(Hosts { source: facts::recorded(source), destination: Some(facts::recorded(destination)) });
}

/// What the sender says of its connections; it began `later` than the record.
pub(crate) fn note_sent(record: &mut Record, sent: &Sent, later: Nanos) {
    record.congestion = Some(sent.congestion.to_string()).filter(|name| !name.is_empty());
    record.congestion_origin = sent.origin;
    // Whoever chose last says why.
    if let Some(reason) = &sent.reason {
        record.congestion_reason = Some(reason.to_string());
    }
    record.mtu = Some(sent.mtu).filter(|mtu| *mtu > 0);
    if let Some(circuit) = sent.circuit {
        record.extra.insert("circuit".to_owned(), of_circuit(circuit, later));
    }
}

/// Whether a circuit held the declared rate, or when it fell back, as its sender has it, which began `later` than the record.
fn of_circuit(circuit: CircuitAccount, later: Nanos) -> serde_json::Value {
    match circuit.fell_back {
        None => json!({"held": true}),
        Some(at) => json!({"held": false, "fell_back_s": at.after(later).as_secs_f64()}),
    }
}
