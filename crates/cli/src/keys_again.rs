//! Lists of keys that are read again while who uses them goes on.

use std::io;
use std::sync::Arc;
use std::thread;

use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_mover::secure::Admission;
use farlink_wire::quantity::Nanos;

use crate::output::tell;

/// Reads the keys again whenever `hung_up` is raised, until `stop` is, and says what they may not have been meant to say: of those of before, too,
/// where `is_new` says that nobody has yet. It has a thread of its own, which nobody waits for: a file system that
/// does not answer keeps nobody from being served, nor the process from its end.
///
/// # Errors
/// The kernel's, of starting a thread.
pub(crate) fn keep_up(hung_up: Wake, admission: Arc<Admission>, stop: Wake, is_new: bool) -> io::Result<()> {
    let work = move || {
        if is_new {
            doubt(&admission);
        }
        while let Ok(Waited::Ready | Waited::Over) = wait_for(&hung_up, Interest::Read, &stop, Nanos::MAX) {
            hung_up.lower();
            read_again(&admission);
        }
    };
    thread::Builder::new().name("farlink-reload".to_owned()).spawn(work).map(drop)
}

fn read_again(admission: &Admission) {
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

/// Says what the list of keys may not have been meant to say.
fn doubt(admission: &Admission) {
    for doubt in admission.doubts() {
        tell(&format!("farlink: note: {doubt}"));
    }
}
