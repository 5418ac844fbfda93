//! A far end through ssh: nothing listens there before, and nothing is left of it afterwards.
//!
//! ssh starts `farlink far-end` as the user that ssh let in, and carries a key each way; then the two talk over TCP with these
//! keys. Where the far end's port cannot be reached it connects to this host instead; where that cannot be reached either, each
//! connection goes through one more ssh, to the same port from inside.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use farlink_host::clock::monotonic;
use farlink_host::process;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_wire::bootstrap::{Answer, Invitation, MAX_LINES, Outcome, Ports};
use farlink_wire::message::{Text, VERSION};
use farlink_wire::quantity::{Bytes, Nanos};

use crate::channel::ChannelError;
use crate::control::ControlError;
use crate::dial::{Dial, DialError, Dialled, First, Route};
use crate::secure::{Identity, Trust};

mod callback;
mod callers;
mod command;
mod error;
mod far_end;
mod murmur;
mod ship;
mod tunnel;

pub use command::{CommandError, Ssh};
pub use error::{AnswerError, StartError};
pub use far_end::{FarEndError, join, serve};
pub use ship::ShipError;

use callback::{Callback, Line};
use ship::Shipment;
use tunnel::SshTunnel;

/// A far end that someone wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// How to get there.
    pub ssh: Ssh,
    /// Ports to listen on there; any that is free where absent.
    pub ports: Option<Ports>,
    /// The address to listen on there, and to connect to: that of a dedicated connection, where ssh takes another way. All of
    /// them, and that of ssh's host, where absent.
    pub bind: Option<IpAddr>,
}

/// What a user should know of how it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// There is no farlink there: this one is sent.
    Shipping {
        /// Where.
        host: String,
        /// How much.
        size: Bytes,
    },
    /// The far end's port is not reached: it connects to this host.
    Reversed {
        /// Where.
        host: String,
        /// Which port there.
        port: u16,
        /// Why.
        reason: String,
        /// Which port here.
        here: u16,
    },
    /// The far end's port is not reached, nor this host from there: connections go through ssh, which is slower.
    Blocked {
        /// Where.
        host: String,
        /// Which port.
        port: u16,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shipping { host, size } => {
                write!(
                    f,
                    "there is no farlink on {host}: sending this one, {size}, to ~/.cache/farlink there"
                )
            }
            Self::Reversed { host, port, reason, here } => write!(
                f,
                "port {port} of {host} cannot be reached ({reason}): it connects to port {here} here instead"
            ),
            Self::Blocked { host, port, reason } => write!(
                f,
                "port {port} of {host} cannot be reached ({reason}), nor this host from there: going through ssh, which is slower; \
                 open ports at either end and name them with --ports"
            ),
        }
    }
}

/// A far end that ssh has started, until this is dropped.
#[derive(Debug)]
pub struct FarEnd {
    ssh: Ssh,
    /// As ssh resolves it.
    host_name: String,
    bind: Option<IpAddr>,
    ports: Option<Ports>,
    /// Its name, by its own account.
    pub name: Text,
    port: u16,
    trust: Trust,
    tunnel: Arc<SshTunnel>,
    /// Ends the far end with this.
    process: Process,
}

impl FarEnd {
    /// Starts a far end; `None` where `stop` was raised first. ssh may ask the user for a password meanwhile, and takes its time; where nobody
    /// can be asked it is given up when it has said nothing for `patience`.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        remote: &Remote,
        patience: Nanos,
        stop: &Wake,
        notice: &mut dyn FnMut(Notice),
    ) -> Result<Option<Self>, StartError> {
        let shipment =
            Shipment::of_this_program().map_err(|source| StartError::Ship { host: remote.host(), source })?;
        let patience = if process::may_be_asked() { Nanos::MAX } else { patience };
        Self::start_or_send(remote, &shipment, patience, stop, notice)
    }

    /// Starts the farlink that is there, or `shipment`.
    fn start_or_send(
        remote: &Remote,
        shipment: &Shipment,
        patience: Nanos,
        stop: &Wake,
        notice: &mut dyn FnMut(Notice),
    ) -> Result<Option<Self>, StartError> {
        let identity = Identity::generate().map_err(StartError::Key)?;
        let start = || Process::start(remote, &identity, shipment, patience, stop);
        let started = match start() {
            Err(StartError::Missing { host }) => {
                notice(Notice::Shipping { host: host.clone(), size: shipment.size() });
                if !shipment.send(&remote.ssh, stop).map_err(|source| StartError::Ship { host, source })? {
                    return Ok(None);
                }
                start()
            }
            other => other,
        };
        let Some((process, answer)) = started? else { return Ok(None) };
        let (key, port, name) = match answer.outcome {
            Outcome::Ready { key, port, host } => (key, port, host),
            Outcome::Failed(reason) => return Err(StartError::Failed { host: remote.host(), reason }),
        };
        let trust = Trust::new(&identity, Some(key)).map_err(StartError::Key)?;
        let tunnel = Arc::new(SshTunnel::new(remote, shipment, port));
        let (ssh, host_name) = (remote.ssh.clone(), remote.ssh.host_name());
        let Remote { bind, ports, .. } = *remote;
        Ok(Some(Self { ssh, host_name, bind, ports, name, port, trust, tunnel, process }))
    }

    /// Opens what `dial` asks for and says `first`, over TCP that this end or, where that is blocked, the far end begins, or else through
    /// ssh: `dial`'s route and trust are replaced by those that lead here, and are what they became when this returns. Each way has its own time,
    /// of at most `patience`: none is to lack what another took.
    ///
    /// # Errors
    /// [`DialError`].
    pub(crate) fn open(
        &self,
        dial: &mut Dial,
        first: First<'_>,
        patience: Nanos,
        stop: &Wake,
        notice: &mut dyn FnMut(Notice),
    ) -> Result<Option<Dialled>, DialError> {
        dial.trust = Some(self.trust.clone());
        let port = self.port;
        let addresses = match self.bind {
            Some(address) => vec![(address, port).into()],
            None => (self.host_name.as_str(), port).to_socket_addrs().map(Vec::from_iter).unwrap_or_default(),
        };
        let error = match open_directly(dial, &addresses, first, monotonic().after(patience), stop) {
            Err(error) if is_blocked(&error) => error,
            other => return other,
        };
        let reason = match &error {
            DialError::Connect { source, .. } => source.to_string(),
            DialError::Unanswered { .. } => "no answer".to_owned(),
            DialError::Untrusted { .. } => "another farlink listens there".to_owned(),
            other => crate::chain(other),
        };
        let host = self.ssh.host().to_owned();
        let line = Arc::clone(&self.process.stdin);
        let called = CALLED.min(patience);
        if let Ok(callback) = Callback::listen(host.clone(), self.ports, dial.bind, line, called) {
            let here = callback.port();
            dial.route = Route::Tunnel(Arc::new(callback));
            match dial.open(first, monotonic().after(Nanos(called.0.saturating_mul(3) / 2)), stop) {
                Err(error) if is_blocked(&error) => {}
                Ok(None) => return Ok(None),
                other => {
                    notice(Notice::Reversed { host, port, reason, here });
                    return other;
                }
            }
        }
        notice(Notice::Blocked { host, port, reason });
        dial.route = Route::Tunnel(Arc::<SshTunnel>::clone(&self.tunnel));
        dial.open(first, monotonic().after(patience), stop).map_err(|error| match error {
            DialError::Talk { source: ControlError::Channel(ChannelError::NotTls), .. } => {
                DialError::Noise { host: self.ssh.host().to_owned() }
            }
            other => other,
        })
    }
}

/// The same over TCP that this end begins, to each of `addresses` in turn: several hosts may have the name, and on the same port of another one's
/// far end listens.
fn open_directly(
    dial: &mut Dial,
    addresses: &[SocketAddr],
    first: First<'_>,
    until: Nanos,
    stop: &Wake,
) -> Result<Option<Dialled>, DialError> {
    let mut last = DialError::Nowhere;
    for (tried, address) in addresses.iter().enumerate() {
        let share = if tried + 1 == addresses.len() { SHORT_WHILE } else { LEAST_WHILE };
        dial.route = Route::Tcp(vec![*address]);
        match dial.open(first, monotonic().after(share).min(until), stop) {
            Err(error) if is_blocked(&error) => {
                // That somebody answered says more than that nobody did, and that more than that it was not tried.
                let has_answered = matches!(last, DialError::Untrusted { .. } | DialError::Talk { .. });
                if tried == 0 || !has_answered && !matches!(error, DialError::Otherwise { .. }) {
                    last = error;
                }
            }
            other => return other,
        }
    }
    Err(last)
}

/// Whether another way may lead there. The far end's key came through ssh: who has another is another.
fn is_blocked(error: &DialError) -> bool {
    !error.is_of_here()
        && matches!(
            error,
            DialError::Connect { .. }
                | DialError::Unanswered { .. }
                | DialError::Nowhere
                | DialError::Otherwise { .. }
                | DialError::Untrusted { .. }
                | DialError::Talk { .. }
        )
}

impl Remote {
    fn host(&self) -> String {
        self.ssh.host().to_owned()
    }
}

/// The ssh that runs the far end. It ends when its standard input is closed.
#[derive(Debug)]
struct Process {
    child: Child,
    stdin: Line,
    over: Wake,
}

impl Process {
    /// Starts the far end and hears its answer; `None` where `stop` was raised first.
    fn start(
        remote: &Remote,
        identity: &Identity,
        shipment: &Shipment,
        patience: Nanos,
        stop: &Wake,
    ) -> Result<Option<(Self, Answer)>, StartError> {
        let failed = |source| StartError::Ssh { program: remote.ssh.program().to_owned(), source };
        let over = Wake::new().map_err(failed)?;
        let mut command = remote.ssh.command(&shipment.far_end(""));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let Remote { ports, bind, .. } = *remote;
        let invitation = Invitation { version: VERSION, key: identity.public(), ports, bind };
        if let Some(mut stdin) = stdin.as_ref() {
            // Who ended before reading it says why by its exit code.
            let _ = stdin.write_all(invitation.line().as_bytes());
        }
        let mut process = Self { child, stdin: Arc::new(Mutex::new(stdin)), over };
        let heard = match stdout {
            Some(stdout) => hear(stdout, patience, stop)
                .map_err(|source| StartError::Answer { host: remote.host(), source })?,
            None => Heard::Ended(None),
        };
        match heard {
            Heard::Answer(answer) => {
                murmur::start(&process.stdin, &process.over, murmur::EVERY).map_err(failed)?;
                Ok(Some((process, answer)))
            }
            Heard::Stopped => Ok(None),
            Heard::Ended(said) => Err(process.ended(remote, said)),
            Heard::Nothing => Err(StartError::Silent { host: remote.host(), patience }),
        }
    }

    /// Nothing more is said.
    fn hang_up(&self) {
        self.over.raise();
        drop(self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Why there is no answer.
    fn ended(&mut self, remote: &Remote, said: Option<String>) -> StartError {
        self.hang_up();
        let host = remote.host();
        match self.child.wait().map(|status| status.code()) {
            Ok(Some(NOT_FOUND)) => StartError::Missing { host },
            Ok(Some(SSH_FAILED)) => StartError::NotReached { host },
            Ok(code) => {
                let program = remote.ssh.program().to_owned();
                StartError::Ended { program, host, code: code.unwrap_or(-1), said }
            }
            Err(source) => StartError::Ssh { program: remote.ssh.program().to_owned(), source },
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends by itself when nobody can say anything to it any more; ssh then ends too, unless the network is gone.
        self.hang_up();
        let until = monotonic().after(FAREWELL);
        while monotonic() < until {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

enum Heard {
    Answer(Answer),
    Stopped,
    /// Behind this last line of somebody else's, where there was any.
    Ended(Option<String>),
    /// For too long.
    Nothing,
}

/// Hears the answer among what a login shell may print before it.
fn hear(mut stdout: ChildStdout, patience: Nanos, stop: &Wake) -> Result<Heard, AnswerError> {
    let (mut bytes, mut total) = (Vec::new(), 0);
    let mut last = None;
    loop {
        match wait_for(stdout.as_fd(), Interest::Read, stop, patience)? {
            Waited::Stopped => return Ok(Heard::Stopped),
            Waited::Over => return Ok(Heard::Nothing),
            Waited::Ready => {}
        }
        let mut chunk = [0; 4096];
        let read = match stdout.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        total += read;
        if read == 0 {
            return Ok(Heard::Ended(said(&bytes).or(last)));
        }
        if total > MAX_LINES {
            return Err(AnswerError::Long);
        }
        bytes.extend(&chunk[..read]);
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = bytes.drain(..=end).collect();
            if let Some(answer) = Answer::parse(&String::from_utf8_lossy(&line))? {
                return Ok(Heard::Answer(answer));
            }
            last = said(&line).or(last);
        }
    }
}

/// What a line says, or the beginning of that.
fn said(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line.trim_ascii());
    (!line.is_empty()).then(|| line.chars().take(MOST_SAID).collect())
}

/// Characters that are told of what a login there says.
const MOST_SAID: usize = 200;

/// How long one end may take to reach the other before another way is tried: three round trips to the far side of the world and back, with
/// one loss.
const SHORT_WHILE: Nanos = Nanos(3_000_000_000);

/// How long it may take to an address behind which there are others: two round trips to the far side of the world, and a loss of what begins them.
const LEAST_WHILE: Nanos = Nanos(2_000_000_000);

/// How long this end waits for whom it called to connect: to the time that they may take comes the call's way through ssh, and what busy
/// hosts take. Nothing is lost by the wait but where that way is blocked, too, and much where it is left for the slower one through ssh.
const CALLED: Nanos = Nanos(2 * SHORT_WHILE.0);

/// How long ssh may take to end once the far end has nobody to talk to.
const FAREWELL: Nanos = Nanos(2_000_000_000);

/// What a shell says of a command that is not there.
const NOT_FOUND: i32 = 127;

/// What ssh says when it fails itself.
const SSH_FAILED: i32 = 255;

#[cfg(test)]
mod tests;
