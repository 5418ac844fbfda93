//! A connection on its way.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use farlink_host::readiness::{Interest, Poller};
use farlink_host::{fast_open, socket};
use farlink_wire::message::{GreetingError, Preamble};
use rustls::ClientConfig;

use super::{DialError, Place};
use crate::channel::{Channel, ChannelError};

/// What a connection says first.
#[derive(Debug)]
pub(super) struct Words {
    /// In clear.
    pub(super) preamble: Option<Preamble>,
    /// Behind that, what begins TLS; all else is within it.
    pub(super) sealed: Option<Arc<ClientConfig>>,
}

/// A connection that is being opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) channel: Channel,
    pub(super) key: u64,
    pub(super) is_connected: bool,
    pub(super) is_ready: bool,
    /// What is still to be said in clear.
    clear: Vec<u8>,
    /// What is still to be begun behind that.
    sealed: Option<Arc<ClientConfig>>,
    /// Whether the far end is to answer what was said in clear.
    wants_answer: bool,
}

impl Opening {
    /// Starts to connect to a place, and says `words` with the first segment where that may be. Of what is all in clear the last byte waits until the
    /// connection stands: the far end, which asks it for its round trip, hears of it when there is one, as ever.
    pub(super) fn start(
        channel: Channel,
        to: &Place,
        words: Words,
        key: u64,
        poller: &Poller,
    ) -> Result<Self, DialError> {
        let failed = |source| DialError::Connect { at: to.to_string(), source };
        let Words { preamble, sealed } = words;
        let is_silent = preamble.is_none() && sealed.is_none();
        let is_fast = match (channel.tcp(), to) {
            (Some(stream), Place::Address(address)) if is_silent => {
                socket::start_connecting(stream, *address).map(|()| false)
            }
            (Some(stream), Place::Address(address)) => fast_open::start_connecting(stream, *address),
            _ => Ok(false),
        };
        let is_fast = is_fast.map_err(failed)?;
        let wants_answer = is_fast && sealed.is_none();
        let clear = preamble.map(|preamble| Preamble { wants_answer, ..preamble }.encode().to_vec());
        let clear = clear.unwrap_or_default();
        let mut opening =
            Self { channel, key, is_connected: false, is_ready: false, clear, sealed, wants_answer };
        if is_fast {
            opening.speak_early().map_err(failed)?;
        }
        poller.add(&opening.channel, key, Interest::Write).map_err(failed)?;
        Ok(opening)
    }

    /// Which stream a data connection is to be.
    pub(super) const fn stream(&self) -> u16 {
        self.key as u16
    }

    /// It can be written: how did connecting go? From now on it is waited for to be read.
    pub(super) fn connected(&mut self, poller: &Poller) -> io::Result<()> {
        if let Some(stream) = self.channel.tcp() {
            socket::connected(stream)?;
        }
        self.is_connected = true;
        poller.remove(&self.channel)?;
        poller.add(&self.channel, self.key, Interest::Read)
    }

    fn speak_early(&mut self) -> io::Result<()> {
        if self.sealed.is_some() {
            self.speak()?;
            return fast_open::taken(self.channel.shake_hands()).map(drop);
        }
        let most = self.clear.len().saturating_sub(1);
        if let Some(taken) = fast_open::taken(self.channel.write(&self.clear[..most]))? {
            self.clear.drain(..taken);
        }
        Ok(())
    }

    /// Says what is still to be said, in clear once it is connected.
    pub(super) fn speak(&mut self) -> io::Result<()> {
        let clear = std::mem::take(&mut self.clear);
        match self.sealed.take() {
            Some(config) => self.channel.seal_as_client(config, &clear),
            // A fresh socket's buffer takes so little whole.
            None => self.channel.write_all(&clear),
        }
    }

    /// Whether the far end has heard it, where that is to be waited for.
    pub(super) fn is_heard(&mut self) -> io::Result<bool> {
        if !self.wants_answer {
            return self.channel.shake_hands();
        }
        let mut answer = [0; Preamble::ANSWER.len()];
        match self.channel.read_exact(&mut answer) {
            Ok(()) if answer == Preamble::ANSWER => self.wants_answer = false,
            Ok(()) => return Err(io::Error::other(GreetingError::NotFarlink)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(ChannelError::Cut.into()),
            Err(error) => return Err(error),
        }
        Ok(!self.wants_answer)
    }
}
