//! A receiver's last words.

use farlink_host::clock::monotonic;
use farlink_host::process;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_wire::cast::control::{Control, Leave, Words};
use farlink_wire::quantity::Nanos;

use super::Attendance;
use crate::line::{Filled, Line};

impl Attendance {
    /// Says what came of it, and waits a moment for the sender to hear it, which ends the connection then.
    ///
    /// Closed before, a connection on which something still comes is reset, and the kernel forgets what was not yet acknowledged: where
    /// that is these last words, the sender goes on waiting for a receiver that is gone.
    pub(super) fn leave(&mut self, line: &mut Line) {
        self.machine.on_counts(self.opener.counts(), self.opener.refused().total());
        line.push(&Control::Report(self.machine.report(monotonic())));
        let tally = self.machine.tally();
        let leave = Leave {
            products: tally.stored,
            failed: tally.failed,
            caught_up: tally.caught_up,
            bytes: self.stored_bytes,
            cpu: process::cpu_of_process().since(self.cpu),
        };
        line.push(&Control::Words(Words::Leave(leave)));
        let until = monotonic().after(FAREWELL);
        // Also who was ended by the user says so.
        let Ok(never) = Wake::new() else { return drop(line.flush()) };
        while line.flush().is_ok() && line.has_unsent() && monotonic() < until {
            if wait_for(line.channel(), Interest::Write, &never, until.since(monotonic())).is_err() {
                break;
            }
        }
        line.finish();
        while !matches!(line.fill(), Ok(Filled::Ended) | Err(_)) {
            while let Ok(Some(_)) = line.next() {}
            let left = until.since(monotonic());
            match wait_for(line.channel(), Interest::Read, &never, left) {
                Ok(Waited::Ready) if left > Nanos::ZERO => {}
                _ => break,
            }
        }
    }
}

/// How long the last words may take.
const FAREWELL: Nanos = Nanos(2_000_000_000);
