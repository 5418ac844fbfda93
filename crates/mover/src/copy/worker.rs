//! Threads of an end of a file transfer.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Builder;

use super::CopyError;
use super::timing::Timing;

/// An end of a file transfer, as its threads know it.
pub(super) trait Shared: Send + Sync + 'static {
    /// Where their time is counted, and that they are at work.
    fn timing(&self) -> &Timing;
    /// It cannot go on: all of them end.
    fn abort(&self, failure: Option<CopyError>);
}

/// Does `work` in a thread called `name`, which is waited for before `shared` ends.
pub(super) fn start<S: Shared>(
    shared: &Arc<S>,
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    shared.timing().on_thread();
    let its = Arc::clone(shared);
    let whole = move || {
        let counted = its.timing().count();
        // A thread that panics must not look like a connection that broke.
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            its.abort(Some(CopyError::Panicked));
        }
        drop(counted);
        its.timing().on_end();
    };
    Builder::new().name(name.to_owned()).spawn(whole).map(drop).inspect_err(|_| shared.timing().on_end())
}
