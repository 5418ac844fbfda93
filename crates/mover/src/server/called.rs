//! Connections that this end began, because it was called: the server takes them as those that come to it.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use farlink_host::readiness::Wake;

/// Where they wait for the server.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    waiting: Arc<Mutex<Vec<(TcpStream, SocketAddr)>>>,
    wake: Wake,
}

impl Called {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { waiting: Arc::default(), wake: Wake::new()? })
    }

    /// Gives the server a connection to `at`.
    pub(crate) fn take(&self, stream: TcpStream, at: SocketAddr) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((stream, at));
        self.wake.raise();
    }

    /// What is raised when there is one.
    pub(super) const fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Those that wait.
    pub(super) fn drain(&self) -> Vec<(TcpStream, SocketAddr)> {
        self.wake.lower();
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
