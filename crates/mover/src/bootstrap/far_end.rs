//! The far end itself, which ssh starts: it serves one key until nobody is there to serve.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_wire::bootstrap::{Answer, BootstrapError, Call, Invitation, MAX_LINES, Outcome};
use farlink_wire::key::Grant;
use farlink_wire::message::VERSION;
use farlink_wire::quantity::Bytes;

use super::SHORT_WHILE;
use crate::chain;
use crate::channel::is_closed;
use crate::secure::{Admission, Identity};
use crate::server::{Called, Event, Limits, ServeError, Server};

/// Reads an invitation from `input`, answers it on `output`, and serves whom it invites until `input` ends. Whoever it is may do
/// what this process may: ssh has let them in as its user.
///
/// # Errors
/// [`FarEndError`].
pub fn serve(
    input: impl Read + Send + 'static,
    mut output: impl Write,
    observe: &(dyn Fn(Event) + Sync),
) -> Result<(), FarEndError> {
    let mut input = BufReader::new(input);
    let mut line = String::new();
    (&mut input).take(MAX_LINES as u64).read_line(&mut line).map_err(FarEndError::Read)?;
    let listening = Invitation::parse(&line).map_err(FarEndError::from).and_then(|asked| listen(&asked));
    let outcome = match &listening {
        Ok((_, outcome)) => outcome.clone(),
        Err(error) => Outcome::Failed(chain(error).into()),
    };
    let answer = Answer { version: VERSION, outcome };
    output.write_all(answer.line().as_bytes()).and_then(|()| output.flush()).map_err(FarEndError::Write)?;
    let (server, _) = listening?;
    let stop = Wake::new().map_err(FarEndError::Read)?;
    let (over, called) = (stop.clone(), server.called());
    thread::Builder::new()
        .name("farlink-invited".to_owned())
        .spawn(move || {
            // When this ends, so does the one who invited.
            while let Some(call) = next_call(&mut input) {
                answer_call(&call, &called);
            }
            over.raise();
        })
        .map_err(FarEndError::Read)?;
    Ok(server.run(&stop, observe)?)
}

/// The next call that `input` brings; what is none is passed over. `None` at its end.
fn next_call(input: &mut impl BufRead) -> Option<Call> {
    loop {
        let mut line = String::new();
        match input.take(MAX_LINES as u64).read_line(&mut line) {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        if let Ok(call) = Call::parse(&line) {
            return Some(call);
        }
    }
}

/// Connects to where it is called to, and has the server take these connections as if they had come.
fn answer_call(call: &Call, called: &Called) {
    let Some(address) = call.address.or_else(whence) else { return };
    let (to, secret) = (SocketAddr::new(address, call.port), call.secret.0);
    for _ in 0..call.count {
        let called = called.clone();
        let connect = move || {
            if let Ok(mut stream) = TcpStream::connect_timeout(&to, Duration::from_nanos(SHORT_WHILE.0))
                && stream.set_nodelay(true).is_ok()
                // A fresh socket's buffer takes so little whole.
                && stream.write_all(&secret).is_ok()
            {
                called.take(stream, to);
            }
        };
        // Whoever called hears nothing, and does without.
        let _ = thread::Builder::new().name("farlink-called".to_owned()).spawn(connect);
    }
}

/// Where ssh came from.
fn whence() -> Option<IpAddr> {
    std::env::var("SSH_CONNECTION").ok()?.split(' ').next()?.parse().ok()
}

/// Listens as it is asked to.
fn listen(asked: &Invitation) -> Result<(Server, Outcome), FarEndError> {
    let addresses: Vec<IpAddr> = match asked.bind {
        Some(address) => vec![address],
        None => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
    };
    let identity = Identity::generate().map_err(FarEndError::Read)?;
    let key = identity.public();
    let admission = Arc::new(Admission::of_one(asked.key, Grant::everything("ssh")));
    // Whoever it serves may have what the host has: they are its user, and nobody else could say how much.
    let limits = Limits { memory: Some(Bytes(u64::MAX)), ..Limits::default() };
    let server = Server::bind_within(&addresses, asked.ports, limits)?;
    let port = server.addresses().first().map_or(0, SocketAddr::port);
    let host = process::host_name().into();
    Ok((server.with_keys_only(identity, admission), Outcome::Ready { key, port, host }))
}

/// Joins `input` and `output` to the TCP port at `address`, until either side has ended both ways.
///
/// # Errors
/// The network's, where there is nobody.
pub fn join(
    mut input: impl Read + Send + 'static,
    mut output: impl Write,
    address: SocketAddr,
) -> io::Result<()> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut forth = stream.try_clone()?;
    thread::Builder::new().name("farlink-join".to_owned()).spawn(move || {
        let _ = pass(&mut input, &mut forth);
        let _ = forth.shutdown(Shutdown::Write);
    })?;
    // When the far end has said all, nobody waits for more of what is said to it. One that left has a reason, which the client knows by another way.
    match pass(&mut &stream, &mut output) {
        Err(error) if is_closed(&error) => Ok(()),
        passed => passed,
    }
}

/// Passes bytes on as they come, each time all that is there.
fn pass(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = vec![0; PASSED];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(read) => to.write_all(&bytes[..read]).and_then(|()| to.flush())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Bytes passed on at once.
const PASSED: usize = 256 << 10;

/// Why a far end does not serve.
#[derive(Debug, thiserror::Error)]
pub enum FarEndError {
    /// The invitation cannot be read.
    #[error("read the invitation")]
    Read(#[source] io::Error),
    /// It is none.
    #[error("the invitation is none")]
    Invitation(#[from] BootstrapError),
    /// Nobody hears the answer.
    #[error("answer the invitation")]
    Write(#[source] io::Error),
    /// It cannot listen.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_channel_of_a_far_end_that_left_has_ended_well() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let far = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            // What is not read when it is closed has it reset.
            assert_eq!(stream.peek(&mut [0]).unwrap(), 1);
        });
        let mut said = Vec::new();
        join(io::repeat(b'x').take(1), &mut said, address).unwrap();
        far.join().unwrap();
        assert!(said.is_empty());
        let nobody = (Ipv4Addr::LOCALHOST, 1).into();
        assert_eq!(
            join(io::empty(), &mut said, nobody).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }
}
