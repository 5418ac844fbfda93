//! A stream of bytes between two ends: over TCP or a UNIX socket, in clear or under TLS.
//!
//! Whoever moves data reads and writes it blocking, with a bound on how long nothing may happen; the control connection polls
//! it. What differs between the four kinds ends here.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_host::socket::{send_file, send_with_more};
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::key::PublicKey;
use farlink_wire::quantity::Nanos;
use rustls::{ClientConfig, ServerConfig};

mod sealed;

use sealed::Sealed;

/// One end of a connection. What it does when nothing can be done at once is [`set_wait`](Self::set_wait)'s choice: at first
/// it returns [`ErrorKind::WouldBlock`].
///
/// Where a handshake is still to be done, reading and writing do it on the way.
#[derive(Debug)]
pub struct Channel {
    socket: Socket,
    sealed: Option<Box<Sealed>>,
    wait: Option<Wait>,
}

/// How long, and until when, a channel waits.
#[derive(Clone, Debug)]
pub struct Wait {
    /// How long nothing may happen.
    pub patience: Nanos,
    /// Ends every wait when it is raised.
    pub stop: Wake,
    /// Whether a far end that lives and takes nothing for now is waited for as long as that is so: whether it does anything is told elsewhere.
    pub while_full: bool,
}

/// What is beneath.
#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Channel {
    /// In clear, over TCP. What is written leaves at once.
    ///
    /// # Errors
    /// The kernel's.
    pub fn over_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Nagle's algorithm would hold the last words back for a round trip.
        stream.set_nodelay(true)?;
        Ok(Self { socket: Socket::Tcp(stream), sealed: None, wait: None })
    }

    /// In clear, over a UNIX socket.
    ///
    /// # Errors
    /// The kernel's.
    pub fn over_unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { socket: Socket::Unix(stream), sealed: None, wait: None })
    }

    /// From here on under TLS, as its client; `opening` goes in clear before it, in one write with what begins the handshake.
    ///
    /// # Errors
    /// The network's, or that of TLS inside.
    pub fn seal_as_client(&mut self, config: Arc<ClientConfig>, opening: &[u8]) -> io::Result<()> {
        self.sealed = Some(Box::new(Sealed::client(config, opening).map_err(io::Error::other)?));
        Ok(())
    }

    /// From here on under TLS, as its server, which has `received` of it already.
    ///
    /// # Errors
    /// The network's, or that of TLS inside.
    pub fn seal_as_server(&mut self, config: Arc<ServerConfig>, received: &[u8]) -> io::Result<()> {
        self.sealed = Some(Box::new(Sealed::server(config, received).map_err(io::Error::other)?));
        Ok(())
    }

    /// Waits from now on as `wait` says; where it is absent, never.
    pub fn set_wait(&mut self, wait: Option<Wait>) {
        self.wait = wait;
    }

    /// The TCP connection beneath, for its addresses, its options and what TCP knows of it.
    #[must_use]
    pub const fn tcp(&self) -> Option<&TcpStream> {
        match &self.socket {
            Socket::Tcp(stream) => Some(stream),
            Socket::Unix(_) => None,
        }
    }

    /// The TCP connection itself, where it is one in clear.
    ///
    /// # Errors
    /// The channel, where it is another.
    pub fn into_clear_tcp(self) -> Result<TcpStream, Self> {
        match self {
            Self { socket: Socket::Tcp(stream), sealed: None, .. } => Ok(stream),
            other => Err(other),
        }
    }

    /// Whether it is under TLS.
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// The key that the far side has proved to have; `None` in clear, and before that.
    #[must_use]
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.sealed.as_ref().and_then(|sealed| sealed.peer_key())
    }

    /// Goes on with the handshake and says whether it is over, and all that it sends has left: at once in clear.
    ///
    /// # Errors
    /// The network's, or [`ChannelError`] inside; not [`ErrorKind::WouldBlock`].
    pub fn shake_hands(&mut self) -> io::Result<bool> {
        match self.handshake() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether something that was written has not left.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.unsent() > 0)
    }

    /// Gives up what was written and has not left.
    pub(crate) fn discard_unsent(&mut self) {
        if let Some(sealed) = &mut self.sealed {
            sealed.discard();
        }
    }

    /// Says that nothing more will be sent: the far side reads the end.
    ///
    /// # Errors
    /// The network's.
    pub fn finish(&mut self) -> io::Result<()> {
        if let Some(sealed) = &mut self.sealed {
            sealed.close()?;
            self.send_sealed()?;
        }
        self.socket.shutdown(Shutdown::Write)
    }

    /// Ends both directions at once, for whoever reads or writes at either end.
    ///
    /// # Errors
    /// The network's.
    pub fn shutdown(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Both)
    }

    /// Nothing more is sent, whatever TLS would say at its end.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// Whether it can send pages of a file as they are: in clear over TCP.
    pub(crate) const fn takes_pages(&self) -> bool {
        matches!(self, Self { socket: Socket::Tcp(_), sealed: None, .. })
    }

    /// Sends `head`, and behind it `body`, which is what `file` has at `offset`: the file's own pages leave, without a copy, as far as its file
    /// system gives them. Whoever changes them meanwhile changes what arrives. Only where it [`takes_pages`](Self::takes_pages).
    pub(crate) fn write_with_pages(
        &mut self,
        head: &[u8],
        body: &[u8],
        file: &File,
        offset: u64,
    ) -> io::Result<()> {
        let mut left = head;
        while !left.is_empty() {
            let sent = self.patiently(Interest::Write, |socket| send_with_more(socket, left))?;
            left = &left[sent..];
        }
        let mut sent = 0;
        while sent < body.len() {
            let (at, count) = (offset + sent as u64, body.len() - sent);
            match self.patiently(Interest::Write, |socket| send_file(socket, file, at, count)) {
                Ok(more) if more > 0 => sent += more,
                // It ends before, cannot be read any more, or its file system gives no pages. Where it is the connection that failed, so does this.
                Ok(_) => return self.write_all(&body[sent..]),
                Err(error) if error.raw_os_error().is_some() => return self.write_all(&body[sent..]),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What is beneath TLS, to be read when nobody cares any more what it says.
    pub(crate) fn beneath(&self) -> impl Read {
        &self.socket
    }

    /// The handshake, whole.
    fn handshake(&mut self) -> io::Result<()> {
        loop {
            let Some(sealed) = &mut self.sealed else { return Ok(()) };
            let open = sealed.advance();
            // Also where it failed: the far side is told why.
            let sent = self.send_sealed();
            match open? {
                true => return sent,
                false => sent?,
            }
            self.fill()?;
        }
    }

    /// Takes more of what the far side sent under TLS.
    fn fill(&mut self) -> io::Result<()> {
        let Some(mut sealed) = self.sealed.take() else { return Ok(()) };
        let read = self.patiently(Interest::Read, |mut socket| socket.read(sealed.space()));
        let filled = read.and_then(|read| sealed.filled(read));
        self.sealed = Some(sealed);
        filled
    }

    /// Sends what is sealed.
    fn send_sealed(&mut self) -> io::Result<()> {
        while let Some(sealed) = self.sealed.take_if(|sealed| sealed.unsent() > 0) {
            let sent = self.patiently(Interest::Write, |mut socket| socket.write(sealed.sealed()));
            let sealed = self.sealed.insert(sealed);
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => sealed.sent(sent),
                Err(error) => return Err(self.last_words(error)),
            }
        }
        Ok(())
    }

    /// What TLS said before the far side left, where that is why nothing can be sent any more; `error` otherwise, and what else the far side
    /// said waits to be read.
    fn last_words(&mut self, error: io::Error) -> io::Error {
        if !is_closed(&error) {
            return error;
        }
        loop {
            let Some(sealed) = &mut self.sealed else { return error };
            match sealed.take_in() {
                Ok(true) => return error,
                Ok(false) if self.fill().is_err() => return error,
                Ok(false) => {}
                Err(said) if ChannelError::within(&said).is_some() => return said,
                Err(_) => return error,
            }
        }
    }

    /// Whether the far kernel lives, where what is written finds no room: it has answered of late, or the far end had none for what it has, and
    /// is asked whether it has some at intervals that double, up to two minutes. A process of this host, or ssh, ends its socket when it ends.
    fn is_alive(&self, patience: Nanos) -> bool {
        let Some(tcp) = self.tcp() else { return true };
        TcpInfo::of(tcp).is_ok_and(|info| {
            let is_full = info.window == 0 || info.unacknowledged == 0;
            info.answered < if is_full { Nanos(patience.0 / 2 * 5) } else { patience }
        })
    }

    /// Does `attempt` until it is done, waiting for `interest` where that is asked for.
    fn patiently<T>(
        &self,
        interest: Interest,
        mut attempt: impl FnMut(&Socket) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match attempt(&self.socket) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let Some(wait) = &self.wait else { return Err(error) };
                    match wait_for(&self.socket, interest, &wait.stop, wait.patience)? {
                        Waited::Ready => {}
                        Waited::Stopped => return Err(ChannelError::Stopped.into()),
                        Waited::Over
                            if wait.while_full
                                && interest == Interest::Write
                                && self.is_alive(wait.patience) => {}
                        Waited::Over => return Err(ChannelError::Silent { quiet: wait.patience }.into()),
                    }
                }
                other => return other,
            }
        }
    }
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.sealed.is_none() {
            return self.patiently(Interest::Read, |mut socket| socket.read(buffer));
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        // Once that is over, what cannot be sent does not keep it from reading: both ends may be about to send.
        if self.sealed.as_ref().is_some_and(|sealed| !sealed.is_shaken()) {
            self.handshake()?;
        }
        loop {
            let Some(sealed) = &mut self.sealed else { return Ok(0) };
            match sealed.open(buffer) {
                Ok(0) if sealed.has_ended() => return Ok(0),
                Ok(0) => {}
                Err(error) => {
                    let _ = self.send_sealed();
                    return Err(error);
                }
                read => return read,
            }
            self.fill()?;
        }
    }
}

impl Write for Channel {
    /// Takes up to all of `bytes`. Where it waits, what it took has left; where it does not, [`flush`](Self::flush) it later.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.sealed.is_none() {
            return self.patiently(Interest::Write, |mut socket| socket.write(bytes));
        }
        self.handshake()?;
        // What is sealed and waits is bounded: first it leaves.
        self.send_sealed()?;
        let Some(sealed) = &mut self.sealed else { return Ok(0) };
        let taken = sealed.seal(bytes)?;
        match self.send_sealed() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(taken),
            other => other.map(|()| taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_sealed()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Socket {
    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).read(buffer),
            Socket::Unix(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).write(bytes),
            Socket::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Whether the far side has closed the connection, as whoever writes learns.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// Why a channel cannot go on, where that is not the network's fault. It comes inside an [`io::Error`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChannelError {
    /// Its user ended the wait.
    #[error("the wait was ended")]
    Stopped,
    /// Nothing happened for too long.
    #[error("nothing came or went for {quiet}")]
    Silent {
        /// For how long.
        quiet: Nanos,
    },
    /// The far side closed it before the handshake was over.
    #[error("the far side closed the connection before it had shown its key")]
    Unshaken,
    /// A message that is longer than any.
    #[error("the far side's messages have no end")]
    Endless,
    /// The end of what was sent is missing: the connection was cut, by whomever.
    #[error("the connection ended midway")]
    Cut,
    /// The far side does not trust our key.
    #[error("the far side does not know this key")]
    NotAdmitted,
    /// We do not trust the far side's.
    #[error("the far side showed another key than the one that is trusted")]
    Untrusted,
    /// We do not let the far side's in.
    #[error("the far side shows the key {key}, which authorized_keys does not list")]
    Unlisted {
        /// What it showed.
        key: PublicKey,
    },
    /// Another program, or another version.
    #[error("the far side speaks TLS, but is not farlink")]
    OtherProtocol,
    /// Something else than TLS, as who has no keys speaks.
    #[error(
        "the far side does not speak TLS: it is not farlink, or one side has keys and the other --no-auth"
    )]
    NotTls,
    /// What breaks the rules of TLS.
    #[error("the far side breaks the rules of TLS: {0}")]
    Tls(rustls::Error),
}

impl From<ChannelError> for io::Error {
    fn from(error: ChannelError) -> Self {
        Self::other(error)
    }
}

impl ChannelError {
    /// The one inside `error`.
    #[must_use]
    pub fn within(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

#[cfg(test)]
pub(crate) mod tests;
