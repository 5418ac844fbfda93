//! Connections through ssh: each is one more ssh whose standard streams are joined to the far end's port from inside.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};

use farlink_host::readiness::Wake;

use super::Remote;
use super::command::Ssh;
use super::ship::Shipment;
use crate::channel::Channel;
use crate::dial::Tunnel;

/// Where a far end listens, seen from its own host.
#[derive(Debug)]
pub(super) struct SshTunnel {
    ssh: Ssh,
    remote: String,
    children: Mutex<Vec<Child>>,
}

impl SshTunnel {
    pub(super) fn new(remote: &Remote, shipment: &Shipment, port: u16) -> Self {
        let inside = match remote.bind {
            None => "127.0.0.1".to_owned(),
            Some(IpAddr::V4(address)) => address.to_string(),
            Some(IpAddr::V6(address)) => format!("[{address}]"),
        };
        let remote_command = shipment.far_end(&format!("--channel {inside}:{port}"));
        Self { ssh: remote.ssh.clone(), remote: remote_command, children: Mutex::default() }
    }

    /// Forgets those that have ended.
    fn reap(children: &mut Vec<Child>) {
        children.retain_mut(|child| !child.try_wait().is_ok_and(|ended| ended.is_some()));
    }
}

impl Tunnel for SshTunnel {
    fn open(&self, _stop: &Wake) -> io::Result<Channel> {
        let (near, far) = UnixStream::pair()?;
        let (stdin, stdout) = (OwnedFd::from(far.try_clone()?), OwnedFd::from(far));
        let child =
            self.ssh.command(&self.remote).stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).spawn()?;
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        Self::reap(&mut children);
        children.push(child);
        Channel::over_unix(near)
    }

    fn name(&self) -> String {
        format!("{} through ssh", self.ssh.host())
    }
}

impl Drop for SshTunnel {
    fn drop(&mut self) {
        // Nobody talks through them any more.
        for child in self.children.get_mut().unwrap_or_else(PoisonError::into_inner) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
