//! From what is known of a file transfer to its record.

use farlink_wire::message::Way;
use farlink_wire::message::copy::Protect;
use farlink_wire::quantity::{BitsPerSec, Nanos};
use farlink_wire::record::{Buffers, Disk, Ends, Kind, Mode, Record};
use serde_json::json;

use super::conversation::Talk;
use super::plan::Plan;
use super::sending::Tally;
use crate::automatic;
use crate::connection::Emulated;
use crate::control::Control;
use crate::record::{new_record, note_sent, protection};

/// A record with all that is known before anything moves.
pub(super) fn opened(plan: &Plan, started: String) -> Record {
    // On one host it is one process.
    let protect = if plan.far.is_local() { Protect::Clear } else { plan.protect };
    Record {
        kind: Kind::File,
        mode: Mode::Size,
        stripes: Some(1),
        congestion_chosen: chooses_congestion(plan).then_some(true),
        streams_chosen: (plan.streams.is_none() && plan.declared.is_none() && !plan.far.is_local())
            .then_some(true),
        congestion: plan.congestion.as_ref().map(|name| name.as_str().to_owned()),
        congestion_reason: plan.reason.clone(),
        declared_bps: plan.declared.map(BitsPerSec::get),
        limit_bps: plan.limit_now().map(BitsPerSec::get),
        buffer_bytes: plan.buffer.map(|buffer| buffer.get().into()),
        protection: Some(protection(protect).to_owned()),
        ..new_record(started)
    }
}

/// Whether the sender chooses its congestion control by the path: where it is asked to, or nobody said how it is to send.
fn chooses_congestion(plan: &Plan) -> bool {
    let is_left_open = plan.congestion.is_none() && plan.buffer.is_none() && !plan.far.is_local();
    is_left_open || automatic::is_asked(plan.congestion.as_ref())
}

/// What came in earlier attempts.
#[derive(Debug, Default)]
pub(super) struct Before {
    bytes: u64,
    /// As a record has them.
    samples: Vec<(f64, u64)>,
}

impl Before {
    /// Of what an attempt left in `record`.
    pub(super) fn of(record: &Record) -> Self {
        Self { bytes: record.bytes, samples: record.samples.clone() }
    }
}

/// How it went, in time.
pub(super) struct Course<'a> {
    /// When the first byte might leave, here.
    pub(super) first: Nanos,
    /// When the first byte of the last attempt might.
    pub(super) attempt: Nanos,
    /// The round trip.
    pub(super) rtt: Nanos,
    /// Length of a sample.
    pub(super) interval: Nanos,
    /// Bytes that arrived, by interval.
    pub(super) samples: &'a [u64],
    /// Which way.
    pub(super) way: Way,
    /// What was done.
    pub(super) tally: Tally,
}

/// What was measured of an attempt, and came `before` it; of one that broke there is no `talk`. Arrival is when the news of it came, less what
/// that took: half a round trip.
pub(super) fn close(record: &mut Record, before: &Before, talk: Option<&Talk>, course: &Course<'_>) {
    let &Course { first, attempt, rtt, interval, samples, way, tally } = course;
    let finished = talk.and_then(|talk| talk.finished.as_ref());
    record.files = Some(tally.entries);
    record.bytes = before.bytes
        + finished.map_or(tally.acknowledged.saturating_sub(tally.same), |finished| finished.bytes);
    (record.duration_s, record.complete_s) = (None, None);
    if let (Some(talk), Some(finished)) = (talk, finished) {
        // A client that sends hears of the end half a round trip later; one that receives may start half a round trip later.
        let half = Nanos(rtt.0 / 2);
        let later = if way == Way::Forward { half.after(finished.since_last) } else { finished.since_last };
        let last = talk.finished_at.0.saturating_sub(later.0);
        let duration = Nanos(last.saturating_sub(first.0));
        record.duration_s = Some(duration.as_secs_f64());
        let complete = duration.after(finished.since_last).as_secs_f64();
        record.complete_s = Some(complete);
    }
    let duration = record.duration_s.unwrap_or(f64::MAX);
    // The receiver's intervals begin with the last attempt, and half a round trip later where that is the far end.
    let shift = attempt.since(first).after(if way == Way::Forward { Nanos(rtt.0 / 2) } else { Nanos::ZERO });
    let end = |index: usize| Nanos(interval.0 * (index as u64 + 1)).after(shift).as_secs_f64().min(duration);
    record.samples.clone_from(&before.samples);
    record.samples.extend(samples.iter().enumerate().map(|(index, bytes)| (end(index), *bytes)));
    if record.duration_s.is_none() {
        // As far as is known: until something came last.
        record.duration_s = record.samples.iter().rfind(|(_, bytes)| *bytes > 0).map(|(end, _)| *end);
    }
    if let (Some(account), Some(finished)) = (talk.and_then(|talk| talk.account.as_ref()), finished) {
        let sent = &account.transport;
        let seconds = |time: Nanos| Some(time.as_secs_f64());
        record.cpu_s = Some(Ends { sender: seconds(sent.cpu), receiver: seconds(finished.stages.cpu) });
        let (read, write) = (account.stages.disk, finished.stages.disk);
        record.disk_s = Some(Disk { read: seconds(read), write: seconds(write) });
        record.retransmits = Some(sent.retransmits);
        record.buffers = Some(Buffers { send: sent.buffer, receive: finished.buffer });
        note_sent(record, sent, attempt.since(first));
        if let Some(resumed) = account.careful_resume {
            let told = json!({"jump_bps": resumed.jump, "outcome": resumed.outcome});
            record.extra.insert("careful_resume".to_owned(), told);
        }
    }
}

/// What the emulator knows of the connection, where there is one under it.
pub(super) fn describe(record: &mut Record, before: &Emulated, control: &Control) {
    let Some(tcp) = control.channel().tcp() else { return };
    let (Ok(peer), Ok(here)) = (tcp.peer_addr(), tcp.local_addr()) else { return };
    if peer.ip() != here.ip() && before.addresses().contains(&peer.ip()) {
        before.note_in(record, peer.ip());
    }
}
