//! The progress thread: it drives an endpoint while the application computes.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

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
        let thread = Builder::new()
            .name("farlink".to_owned())
            .spawn(move || {
                // The application's handlers run in the application's threads; without this, they may run here, too.
                let _ = farlink_host::signal::leave_to_others();
                // A lock that a panicking thread held tells everybody else.
                let _ = of_thread.drive();
            })
            .map_err(|error| {
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
