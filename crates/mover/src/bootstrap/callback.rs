//! Connections that the far end begins, where its port is not reached from here: this host listens, and ssh carries the call.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::process::ChildStdin;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farlink_host::clock::monotonic;
use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_host::socket;
use farlink_wire::bootstrap::{Call, Ports};
use farlink_wire::message::Token;
use farlink_wire::quantity::Nanos;

use super::callers::Callers;
use crate::channel::Channel;
use crate::dial::Tunnel;
use crate::tuning::first_window;

/// What ssh carries to the far end; nothing any more, once this end has gone.
pub(super) type Line = Arc<Mutex<Option<ChildStdin>>>;

/// Where the far end connects to.
#[derive(Debug)]
pub(super) struct Callback {
    callers: Mutex<Callers>,
    /// What the far end says first: nobody else knows it.
    secret: Token,
    port: u16,
    bind: Option<IpAddr>,
    host: String,
    line: Line,
    /// How long it is waited for.
    patience: Nanos,
    /// Connections that were asked for and not taken.
    asked: AtomicU16,
}

impl Callback {
    /// Listens at one of `ports`, at `bind`, for the far end on `host`, which hears of it by `line` and is waited for with `patience`.
    pub(super) fn listen(
        host: String,
        ports: Option<Ports>,
        bind: Option<IpAddr>,
        line: Line,
        patience: Nanos,
    ) -> io::Result<Self> {
        let listener = match bind {
            Some(address) => free(address, ports)?,
            // All addresses of both families, where the host has both.
            None => free(Ipv6Addr::UNSPECIFIED.into(), ports)
                .or_else(|_| free(Ipv4Addr::UNSPECIFIED.into(), ports))?,
        };
        listener.set_nonblocking(true)?;
        // It is a matter of time alone.
        let _ = socket::begin_with_window(&listener, first_window());
        let port = listener.local_addr()?.port();
        let secret = Token(process::random()?);
        let callers = Mutex::new(Callers::of(listener, secret)?);
        Ok(Self { callers, secret, port, bind, host, line, patience, asked: AtomicU16::new(0) })
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

impl Callback {
    /// Has the far end connect `count` times.
    fn call(&self, count: u16) -> io::Result<()> {
        let call = Call { port: self.port, count, address: self.bind, secret: self.secret };
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(call.line().as_bytes())
    }
}

impl Tunnel for Callback {
    fn prepare(&self, count: u16) -> io::Result<()> {
        self.call(count)?;
        self.asked.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn open(&self, stop: &Wake) -> io::Result<Channel> {
        // From here on, and not from when others have what they wait for.
        let until = monotonic().after(self.patience);
        // Several open at a time: each takes one that was asked for, or asks for its own.
        let one_less = |asked: u16| asked.checked_sub(1);
        if self.asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
            self.call(1)?;
        }
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = callers.next(until, stop).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => io::Error::new(
                error.kind(),
                format!("nothing of the far end's came to port {} here", self.port),
            ),
            _ => error,
        })?;
        Channel::over_tcp(stream)
    }

    fn name(&self) -> String {
        format!("{}, which connects to port {} here", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::net::TcpStream;
    use std::process::{Command, Stdio};
    use std::thread;

    use super::super::CALLED;
    use super::*;

    #[test]
    fn a_stop_ends_the_wait_of_all_who_open_at_a_time() {
        let mut deaf =
            Command::new("sh").args(["-c", "cat >/dev/null"]).stdin(Stdio::piped()).spawn().unwrap();
        let line: Line = Arc::new(Mutex::new(deaf.stdin.take()));
        let callback = Callback::listen("far".to_owned(), None, None, Arc::clone(&line), CALLED).unwrap();
        let stop = Wake::new().unwrap();
        let open = || callback.open(&stop).unwrap_err().kind();
        thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            stop.raise();
            for each in all {
                assert_eq!(each.join().unwrap(), io::ErrorKind::Interrupted);
            }
        });
        drop(line.lock().unwrap().take());
        deaf.wait().unwrap();
    }

    #[test]
    fn a_stranger_does_not_take_the_place_of_the_far_end() {
        // What is said to the far end comes back, so that this test can be it.
        let mut echo =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat is there");
        let line: Line = Arc::new(Mutex::new(echo.stdin.take()));
        let (stop, bind) = (Wake::new().unwrap(), Some(Ipv4Addr::LOCALHOST.into()));
        let callback = Callback::listen("far".to_owned(), None, bind, Arc::clone(&line), CALLED).unwrap();
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, callback.port())).unwrap();
        let silent = connect();
        let (mut wrong, mut short) = (connect(), connect());
        wrong.write_all(&[0; 100]).unwrap();
        callback.prepare(1).unwrap();
        let mut said = String::new();
        BufReader::new(echo.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let secret = Call::parse(&said).unwrap().secret.0;
        short.write_all(&secret[..15]).unwrap();
        // What is wrong from its first byte on is told no sooner than what is right up to its last.
        let mut guesses = [connect(), connect()];
        guesses[0].write_all(&[!secret[0]]).unwrap();
        guesses[1].write_all(&[&secret[..15], &[!secret[15]]].concat()).unwrap();
        let mut far = connect();
        far.write_all(&secret).unwrap();
        far.write_all(b"hello").unwrap();
        let channel = callback.open(&stop).unwrap();
        let [mut first, mut last] = guesses;
        first.set_nonblocking(true).unwrap();
        assert_eq!(first.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(last.read(&mut [0]).unwrap(), 0);
        let stream = channel.tcp().unwrap();
        assert_eq!(stream.peer_addr().unwrap(), far.local_addr().unwrap());
        stream.set_nonblocking(false).unwrap();
        let mut heard = [0; 5];
        let mut from = stream;
        from.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        // A stop ends the wait for another, whoever else is there.
        stop.raise();
        assert_eq!(callback.open(&stop).unwrap_err().kind(), io::ErrorKind::Interrupted);
        drop((silent, line.lock().unwrap().take()));
        echo.wait().unwrap();
    }
}
