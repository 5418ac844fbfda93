//! What the records of both ends of a session have alike.

use std::net::IpAddr;

use farlink_host::process;
use farlink_mover::connection::Emulated;
use farlink_wire::message::copy::Protect;
use farlink_wire::quantity::Nanos;
use farlink_wire::record::{Kind, Mode, Outcome, Record, SCHEMA};
use serde_json::Value;

/// The least of the round trips that were `known` and one that was seen now; zero is none. A control connection that loses something takes
/// longer to answer.
pub(crate) fn least_rtt(known: Nanos, seen: Nanos) -> Nanos {
    if known == Nanos::ZERO || seen == Nanos::ZERO { known.max(seen) } else { known.min(seen) }
}

/// When an end's part began, how long it took, and how it ended.
pub(crate) struct Frame {
    pub(crate) started: String,
    pub(crate) setup: Option<Nanos>,
    pub(crate) duration: Option<Nanos>,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<String>,
}

impl Frame {
    /// The record that it begins, with a number of its own.
    pub(crate) fn record(&self) -> Record {
        let random = process::random().unwrap_or_default();
        Record {
            schema: SCHEMA,
            id: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            kind: Kind::Cast,
            mode: Mode::Size,
            started: self.started.clone(),
            setup_s: self.setup.map(Nanos::as_secs_f64),
            duration_s: self.duration.map(Nanos::as_secs_f64),
            tool: "farlink".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            outcome: self.outcome,
            error: self.error.clone(),
            ..Record::default()
        }
    }
}

/// Adds what only a multicast session has; what is not known is left out.
pub(crate) fn add_cast(record: &mut Record, mut cast: Value) {
    leave_out_unknown(&mut cast);
    record.extra.insert("cast".to_owned(), cast);
}

fn leave_out_unknown(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(leave_out_unknown);
        }
        Value::Array(values) => values.iter_mut().for_each(leave_out_unknown),
        _ => {}
    }
}

/// How packets are protected, in the record's words.
pub(crate) fn protection(protect: Protect) -> String {
    if protect == Protect::Encrypt { "encrypted" } else { "integrity" }.to_owned()
}

/// Says of an emulated connection to `peer` what it is, and how the emulator did since `before`.
pub(crate) fn describe(record: &mut Record, before: Option<&Emulated>, peer: IpAddr) {
    if let Some(before) = before {
        before.describe(record, peer);
        record.emulator = Emulated::of_this_host().and_then(|after| after.health_since(before));
    }
}

/// More than a round trip takes, with what waits before it: the rest is a clock's.
pub(crate) const MOST_RTT: Nanos = Nanos(10_000_000_000);
