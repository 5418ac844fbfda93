//! The progress thread: it drives an endpoint while the application computes.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use farlink_host::signal;

use crate::complaint::complain;
use crate::driver::Driver;
use crate::entry::Code;

/// A thread that runs.
#[derive(Debug)]
pub(crate) struct Progress {
    driver: Arc<Driver>,
    thread: JoinHandle<()>,
}

impl Progress {
    /// Starts driving.
    pub(crate) fn start(driver: &Arc<Driver>) -> Result<Self, Code> {
        let of_thread = Arc::clone(driver);
        // A lock that a panicking thread held tells everybody else.
        let work = move || {
            let _ = of_thread.drive();
        };
        // The application's handlers run in the application's threads; otherwise they may run in this one, too.
        let started = signal::undisturbed(|| Builder::new().name("farlink".to_owned()).spawn(work));
        let thread = started.map_err(|error| {
            complain(format_args!("start a thread: {error}"));
            Code::AGAIN
        })?;
        Ok(Self { driver: Arc::clone(driver), thread })
    }

    /// Ends it.
    pub(crate) fn stop(self) {
        self.driver.stop();
        // It panicked, and has said so itself.
        let _ = self.thread.join();
    }
}
