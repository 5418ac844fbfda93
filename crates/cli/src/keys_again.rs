//! Lists of keys that are read again while who uses them goes on.

use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_mover::secure::Admission;
use farlink_wire::quantity::Nanos;

use crate::output::tell;

/// Reads the keys again whenever it is told to, until `stop` is raised.
pub(crate) fn keep_up(hung_up: &Wake, admission: &Admission, stop: &Wake) {
    while let Ok(Waited::Ready | Waited::Over) = wait_for(hung_up, Interest::Read, stop, Nanos::MAX) {
        hung_up.lower();
        match admission.reload() {
            Ok(count) => {
                let keys = if count == 1 { "key is" } else { "keys are" };
                tell(&format!("farlink: {count} {keys} let in"));
                doubt(admission);
            }
            Err(error) => {
                tell(&format!("farlink: {:#}; the keys of before stay", anyhow::Error::from(error)));
            }
        }
    }
}

/// Says what the list of keys may not have been meant to say.
pub(crate) fn doubt(admission: &Admission) {
    for doubt in admission.doubts() {
        tell(&format!("farlink: note: {doubt}"));
    }
}
