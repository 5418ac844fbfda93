//! From what is known of a transfer to its record.

use farlink_wire::message::Goal;
use farlink_wire::message::copy::Protect;
use farlink_wire::quantity::{BitsPerSec, Nanos};
use farlink_wire::record::{Buffers, Ends, Mode, Outcome, Record};
use serde_json::json;

use super::{MemoryError, Plan};
use crate::account::Account;
use crate::automatic;
use crate::chain;
use crate::record::{new_record, note_sent, protection};

/// A record with all that is known before anything moves.
pub(super) fn opened(plan: &Plan, started: String) -> Record {
    Record {
        mode: mode(plan.goal),
        streams: Some(plan.streams.into()),
        stripes: Some(1),
        congestion: plan.congestion.as_ref().map(|name| name.as_str().to_owned()),
        congestion_reason: plan.reason.clone(),
        congestion_chosen: automatic::is_asked(plan.congestion.as_ref()).then_some(true),
        declared_bps: plan.declared.map(BitsPerSec::get),
        limit_bps: plan.limit.map(BitsPerSec::get),
        buffer_bytes: plan.buffer.map(|buffer| buffer.get().into()),
        block_bytes: Some(plan.block.get().into()),
        protection: Some(protection(Protect::Clear).to_owned()),
        ..new_record(started)
    }
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
        note_sent(record, sent, Nanos::ZERO);
        record.extra.insert("zero_copy".to_owned(), json!(sent.zero_copy));
    }
    record.tcp = account.into_traces();
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
