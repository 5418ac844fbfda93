//! Connections that the far end begins, where its port is not reached from here: this host listens, and ssh carries the call.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::fd::AsFd;
use std::process::ChildStdin;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_wire::bootstrap::{Call, Ports};

use super::SHORT_WHILE;
use crate::channel::Channel;
use crate::dial::Tunnel;

/// What ssh carries to the far end; nothing any more, once this end has gone.
pub(super) type Line = Arc<Mutex<Option<ChildStdin>>>;

/// Where the far end connects to.
#[derive(Debug)]
pub(super) struct Callback {
    listener: TcpListener,
    port: u16,
    bind: Option<IpAddr>,
    host: String,
    line: Line,
    stop: Wake,
    /// Connections that were asked for and not taken.
    asked: AtomicU16,
}

impl Callback {
    /// Listens at one of `ports`, at `bind`, for the far end on `host`, which hears of it by `line`.
    pub(super) fn listen(
        host: String,
        ports: Option<Ports>,
        bind: Option<IpAddr>,
        line: Line,
        stop: &Wake,
    ) -> io::Result<Self> {
        let listener = match bind {
            Some(address) => free(address, ports)?,
            // All addresses of both families, where the host has both.
            None => free(Ipv6Addr::UNSPECIFIED.into(), ports)
                .or_else(|_| free(Ipv4Addr::UNSPECIFIED.into(), ports))?,
        };
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port, bind, host, line, stop: stop.clone(), asked: AtomicU16::new(0) })
    }

    /// Where it listens.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }
}

/// Listens at the first of `ports` that is free, or at one that the kernel chooses.
fn free(address: IpAddr, ports: Option<Ports>) -> io::Result<TcpListener> {
    let Some(ports) = ports else { return TcpListener::bind((address, 0)) };
    let taken = io::Error::new(io::ErrorKind::AddrInUse, format!("none of the ports {ports} is free here"));
    ports.candidates().find_map(|port| TcpListener::bind((address, port)).ok()).ok_or(taken)
}

impl Tunnel for Callback {
    fn prepare(&self, count: u16) -> io::Result<()> {
        let call = Call { port: self.port, count, address: self.bind };
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(call.line().as_bytes())?;
        self.asked.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn open(&self) -> io::Result<Channel> {
        if self.asked.load(Ordering::Relaxed) == 0 {
            self.prepare(1)?;
        }
        self.asked.fetch_sub(1, Ordering::Relaxed);
        let until = monotonic().after(SHORT_WHILE);
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nodelay(true)?;
                    return Channel::over_tcp(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            match wait_for(self.listener.as_fd(), Interest::Read, &self.stop, until.since(monotonic()))? {
                Waited::Ready => {}
                Waited::Stopped => return Err(io::ErrorKind::Interrupted.into()),
                Waited::Over => {
                    let error = format!("nothing came to port {} here", self.port);
                    return Err(io::Error::new(io::ErrorKind::TimedOut, error));
                }
            }
        }
    }

    fn name(&self) -> String {
        format!("{}, which connects to port {} here", self.host, self.port)
    }
}
