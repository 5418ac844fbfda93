//! TLS over a stream of bytes that somebody else reads and writes: bytes of records in, plaintext out, and back.
//!
//! The records of one read of the socket are decrypted where they are, and many are encrypted before one write: at 10 Gb/s
//! every call of the kernel for 16 KiB would be felt.

use std::fmt;
use std::io;
use std::sync::Arc;

use farlink_wire::key::PublicKey;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, CommonState, Error, InvalidMessage, OtherError,
    ServerConfig,
};

use super::ChannelError;
use crate::secure::{PROTOCOL, Unlisted, shown};

/// One end of a TLS connection.
#[derive(Debug)]
pub(super) struct Sealed {
    side: Side,
    /// Records as they came.
    incoming: Buffer,
    /// What was decrypted and nobody has taken.
    opened: Buffer,
    /// Records that are to be sent.
    outgoing: Buffer,
    /// The far side has said that nothing more comes.
    ended: bool,
    /// The handshake is over, and was judged.
    shaken: Option<PublicKey>,
    /// It failed before.
    failed: Option<ChannelError>,
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

impl Side {
    fn state(&self) -> &CommonState {
        match self {
            Self::Client(client) => client,
            Self::Server(server) => server,
        }
    }
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client(_) => "Client(..)",
            Self::Server(_) => "Server(..)",
        })
    }
}

impl Sealed {
    /// The client's end; `opening` is sent in clear before all else.
    pub(super) fn client(config: Arc<ClientConfig>, opening: &[u8]) -> Result<Self, Error> {
        // Names say nothing here, keys do: this one is never sent.
        let name = ServerName::try_from("farlink").map_err(|_| Error::UnsupportedNameType)?;
        let mut sealed = Self::new(Side::Client(UnbufferedClientConnection::new(config, name)?));
        sealed.outgoing.extend(opening);
        Ok(sealed)
    }

    /// The server's end, which has `received` of what the client sent.
    pub(super) fn server(config: Arc<ServerConfig>, received: &[u8]) -> Result<Self, Error> {
        let mut sealed = Self::new(Side::Server(UnbufferedServerConnection::new(config)?));
        sealed.incoming.extend(received);
        Ok(sealed)
    }

    fn new(side: Side) -> Self {
        let (incoming, opened, outgoing) = (Buffer::default(), Buffer::default(), Buffer::default());
        Self { side, incoming, opened, outgoing, ended: false, shaken: None, failed: None }
    }

    /// Whether the handshake is over.
    pub(super) fn is_shaken(&self) -> bool {
        self.shaken.is_some()
    }

    /// The key that the far side has proved to have.
    pub(super) fn peer_key(&self) -> Option<PublicKey> {
        self.shaken
    }

    /// Whether the far side has said that nothing more comes, and all of it was taken.
    pub(super) fn has_ended(&self) -> bool {
        self.ended && self.opened.is_empty()
    }

    /// Bytes that are sealed and not sent.
    pub(super) fn unsent(&self) -> usize {
        self.outgoing.len()
    }

    /// What is sealed and not sent.
    pub(super) fn sealed(&self) -> &[u8] {
        self.outgoing.filled()
    }

    /// So much of it was sent.
    pub(super) fn sent(&mut self, count: usize) {
        self.outgoing.consume(count);
    }

    /// What is sealed will never be sent.
    pub(super) fn discard(&mut self) {
        self.outgoing = Buffer::default();
    }

    /// Where what comes next may be put; [`filled`](Self::filled) says how much that was.
    pub(super) fn space(&mut self) -> &mut [u8] {
        // A handshake is short, and strangers make many of them.
        let most = if self.shaken.is_some() { LARGEST } else { FIRST };
        self.incoming.space(most)
    }

    /// So much has come: nothing where the connection has ended.
    pub(super) fn filled(&mut self, count: usize) -> io::Result<()> {
        match (count, self.shaken) {
            (0, None) => Err(ChannelError::Unshaken.into()),
            (0, Some(_)) => Err(ChannelError::Cut.into()),
            (count, _) => {
                self.incoming.grow(count);
                // Records are done with as they come; what stays is a message that claims to be longer than any is.
                let most = if self.shaken.is_some() { 2 * LARGEST } else { LONGEST_HANDSHAKE };
                if self.incoming.len() > most {
                    return Err(self.fail(ChannelError::Endless));
                }
                Ok(())
            }
        }
    }

    /// Goes on with the handshake as far as what has come allows, and says whether it is over.
    pub(super) fn advance(&mut self) -> io::Result<bool> {
        if self.shaken.is_some() {
            return Ok(true);
        }
        self.work(&mut [], &[])?;
        if self.side.state().is_handshaking() {
            return Ok(false);
        }
        if self.side.state().alpn_protocol() != Some(PROTOCOL) {
            return Err(self.fail(ChannelError::OtherProtocol));
        }
        self.shaken = shown(self.side.state().peer_certificates());
        if self.shaken.is_none() {
            return Err(self.fail(ChannelError::Untrusted));
        }
        Ok(true)
    }

    /// Decrypts into `buffer` what has come, and returns how much that was: 0 where more must come first.
    pub(super) fn open(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.opened.is_empty() {
            let count = self.opened.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.opened.filled()[..count]);
            self.opened.consume(count);
            return Ok(count);
        }
        self.work(buffer, &[]).map(|(read, _)| read)
    }

    /// Decrypts what has come, which waits to be [read](Self::open), and says whether the far side has ended.
    pub(super) fn take_in(&mut self) -> io::Result<bool> {
        self.work(&mut [], &[])?;
        Ok(self.ended)
    }

    /// Encrypts as much of `bytes` as goes out at once, and returns how much that was.
    pub(super) fn seal(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(LARGEST)];
        match self.work(&mut [], part)? {
            (_, 0) if !part.is_empty() => Err(ChannelError::Cut.into()),
            (_, taken) => Ok(taken),
        }
    }

    /// Says that nothing more will be sent.
    pub(super) fn close(&mut self) -> io::Result<()> {
        self.go_on(&mut [], &[], true).map(drop)
    }

    /// Goes on until more must come: what is read goes to `room`, what is beyond that waits; `message` is sealed when it may be.
    /// Returns how much was read, and how much sealed.
    fn work(&mut self, room: &mut [u8], message: &[u8]) -> io::Result<(usize, usize)> {
        self.go_on(room, message, false)
    }

    /// As [`work`](Self::work), and says at last that nothing more will be sent where that is to be `closing`.
    fn go_on(&mut self, room: &mut [u8], message: &[u8], closing: bool) -> io::Result<(usize, usize)> {
        if let Some(error) = &self.failed {
            return Err(error.clone().into());
        }
        let reading = !room.is_empty();
        let mut work = Work {
            room,
            read: 0,
            message,
            sealed: 0,
            closing,
            opened: &mut self.opened,
            outgoing: &mut self.outgoing,
            ended: &mut self.ended,
        };
        let outcome = loop {
            let incoming = self.incoming.filled_mut();
            let (discard, next) = match &mut self.side {
                Side::Client(client) => work.act(client.process_tls_records(incoming)),
                Side::Server(server) => work.act(server.process_tls_records(incoming)),
            };
            self.incoming.consume(discard);
            match next {
                Ok(Next::Again) if reading && work.room.is_empty() => break Ok(()),
                Ok(Next::Again) => {}
                Ok(Next::Wait) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let counts = (work.read, work.sealed);
        match outcome {
            // What came before the error is good.
            Err(error) if counts.0 == 0 => Err(self.fail(told(error))),
            Err(error) => {
                self.fail(told(error));
                Ok(counts)
            }
            Ok(()) => Ok(counts),
        }
    }

    /// Keeps the error, and takes out the alert that tells the far side of it.
    fn fail(&mut self, error: ChannelError) -> io::Error {
        let incoming = self.incoming.filled_mut();
        // One alert ends a connection: there is no second.
        match &mut self.side {
            Side::Client(client) => alert(client.process_tls_records(incoming), &mut self.outgoing),
            Side::Server(server) => alert(server.process_tls_records(incoming), &mut self.outgoing),
        }
        self.failed = Some(error.clone());
        error.into()
    }
}

/// What one call of [`Sealed::work`] has done so far.
struct Work<'a> {
    room: &'a mut [u8],
    read: usize,
    message: &'a [u8],
    sealed: usize,
    closing: bool,
    opened: &'a mut Buffer,
    outgoing: &'a mut Buffer,
    ended: &'a mut bool,
}

/// What is next after a state was handled.
enum Next {
    /// There may be more to do.
    Again,
    /// Nothing more can be done before more has come.
    Wait,
}

impl Work<'_> {
    /// Handles one state; returns how many bytes of what has come are done with, too.
    fn act<Data>(&mut self, status: UnbufferedStatus<'_, '_, Data>) -> (usize, Result<Next, Error>) {
        let discard = status.discard;
        (discard, status.state.and_then(|state| self.handle(state)))
    }

    fn handle<Data>(&mut self, state: ConnectionState<'_, '_, Data>) -> Result<Next, Error> {
        match state {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    self.take(record?.payload);
                }
            }
            ConnectionState::EncodeTlsData(mut data) => encode(&mut data, self.outgoing)?,
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => *self.ended = true,
            ConnectionState::WriteTraffic(mut traffic) if !self.message.is_empty() => {
                let message = std::mem::take(&mut self.message);
                let space = self.outgoing.space(sealed_length(message.len()));
                let length = traffic.encrypt(message, space).map_err(|error| match error {
                    EncryptError::EncryptExhausted => Error::EncryptError,
                    EncryptError::InsufficientSize(_) => {
                        Error::General("a record is longer than it can be".into())
                    }
                })?;
                self.outgoing.grow(length);
                self.sealed = message.len();
            }
            ConnectionState::WriteTraffic(mut traffic) if std::mem::take(&mut self.closing) => {
                let length = traffic.queue_close_notify(self.outgoing.space(FIRST));
                self.outgoing.grow(length.map_err(|_| Error::EncryptError)?);
            }
            // Nothing else comes: early data are not taken.
            _ => return Ok(Next::Wait),
        }
        Ok(Next::Again)
    }

    /// What was decrypted goes to the reader, and what is beyond its buffer waits.
    fn take(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(self.room.len());
        let (filled, room) = std::mem::take(&mut self.room).split_at_mut(count);
        filled.copy_from_slice(&bytes[..count]);
        self.room = room;
        self.read += count;
        self.opened.extend(&bytes[count..]);
    }
}

/// Takes the alert out that a failure left behind.
fn alert<Data>(status: UnbufferedStatus<'_, '_, Data>, outgoing: &mut Buffer) {
    if let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state {
        let _ = encode(&mut data, outgoing);
    }
}

/// Takes a record of the handshake, or an alert, to what is to be sent.
fn encode<Data>(data: &mut EncodeTlsData<'_, Data>, outgoing: &mut Buffer) -> Result<(), Error> {
    let mut length = data.encode(outgoing.space(FIRST));
    if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) = length {
        length = data.encode(outgoing.space(required_size));
    }
    outgoing.grow(length.map_err(|error| Error::General(error.to_string()))?);
    Ok(())
}

/// Bytes that the records of `length` bytes have, at most: each has a header, a type and a tag (RFC 8446, 5.2), and a new key
/// may be told before them.
const fn sealed_length(length: usize) -> usize {
    length + length.div_ceil(RECORD) * 22 + 256
}

/// What a failure of TLS means here.
fn told(error: Error) -> ChannelError {
    match error {
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            ChannelError::Untrusted
        }
        Error::InvalidCertificate(CertificateError::Other(OtherError(ref reason)))
            if let Some(Unlisted(key)) = reason.downcast_ref() =>
        {
            ChannelError::Unlisted { key: *key }
        }
        // What a far end says that has refused a key as one that is not listed, and one that shows no reason.
        Error::AlertReceived(AlertDescription::CertificateUnknown | AlertDescription::AccessDenied) => {
            ChannelError::NotAdmitted
        }
        Error::NoApplicationProtocol | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            ChannelError::OtherProtocol
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => ChannelError::NotTls,
        other => ChannelError::Tls(other),
    }
}

/// Bytes between a writer and a reader: those at the front go first.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    const fn len(&self) -> usize {
        self.end - self.start
    }

    const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// At least `count` bytes behind what is there, to be written and then [grown](Self::grow) by.
    fn space(&mut self, count: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < count {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.bytes.len() - self.end < count {
                self.bytes.resize(self.end + count, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    const fn grow(&mut self, count: usize) {
        self.end += count;
    }

    fn extend(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
            self.grow(bytes.len());
        }
    }
}

/// Plaintext of a record, bytes, at most (RFC 8446, 5.1).
const RECORD: usize = 16 << 10;

/// Plaintext that is sealed before it is sent, and what is read at once, bytes: eight records. They stay in a processor's
/// cache of the second level between the kernel and the cipher.
const LARGEST: usize = 8 * RECORD;

/// What is read at once of a handshake, bytes: either side's is shorter, and strangers may make many of them.
const FIRST: usize = 4 << 10;

/// Bytes of a handshake that may wait for the rest of a message: with the longest key agreement there are some 3,000.
const LONGEST_HANDSHAKE: usize = 32 << 10;
