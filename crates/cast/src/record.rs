//! What the records of both ends of a session have alike.

use farlink_host::process;
use farlink_mover::record::new_record;
use farlink_wire::quantity::Nanos;
use farlink_wire::record::{Kind, Mode, Outcome, Record};
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
        let random: [u8; 16] = process::random().unwrap_or_default();
        Record {
            id: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            kind: Kind::Cast,
            mode: Mode::Size,
            setup_s: self.setup.map(Nanos::as_secs_f64),
            duration_s: self.duration.map(Nanos::as_secs_f64),
            outcome: self.outcome,
            error: self.error.clone(),
            ..new_record(self.started.clone())
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

/// More than a round trip takes, with what waits before it: the rest is a clock's.
pub(crate) const MOST_RTT: Nanos = Nanos(10_000_000_000);
