//! A control connection as frames, without waiting for any of them.

use std::io::{self, ErrorKind, Read};

use farlink_mover::backlog::Backlog;
use farlink_mover::channel::Channel;
use farlink_wire::cast::control::{Control, ControlError, MOST_BODY};

/// Frames over a channel that never waits.
#[derive(Debug)]
pub(crate) struct Line {
    channel: Channel,
    received: Vec<u8>,
    /// Bytes of `received` that were taken.
    taken: usize,
    unsent: Backlog,
    /// Why nothing more can be read, until that is said: what came before it is taken first.
    broken: Option<io::Error>,
}

/// What reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Nothing more is there now.
    Dry,
    /// More may be there.
    More,
    /// The far side has ended.
    Ended,
}

impl Line {
    /// Over `channel`, whose handshake may still be to be done.
    pub(crate) fn new(channel: Channel) -> Self {
        Self { channel, received: Vec::new(), taken: 0, unsent: Backlog::default(), broken: None }
    }

    /// What is beneath.
    pub(crate) const fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Goes on with the handshake, and says whether it is over.
    pub(crate) fn shake_hands(&mut self) -> io::Result<bool> {
        self.channel.shake_hands()
    }

    /// Reads what has come, up to the most that a frame has and a little more.
    pub(crate) fn fill(&mut self) -> io::Result<Filled> {
        self.received.drain(..self.taken);
        self.taken = 0;
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let before = self.received.len();
        let mut space = [0; 16 * 1024];
        // With its length it is longer than its body: one that was never read to its end would never be taken.
        while self.received.len() < MOST_BODY + space.len() {
            match self.channel.read(&mut space) {
                Ok(0) => return Ok(Filled::Ended),
                Ok(count) => self.received.extend_from_slice(&space[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Filled::Dry),
                Err(error) if self.received.len() > before => {
                    self.broken = Some(error);
                    return Ok(Filled::More);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Filled::More)
    }

    /// Whether anything was read that is not taken.
    pub(crate) const fn has_received(&self) -> bool {
        self.received.len() > self.taken
    }

    /// The next frame of what was read.
    pub(crate) fn next(&mut self) -> Result<Option<Control<'_>>, ControlError> {
        let from = self.taken;
        let Some(length) = Control::length(&self.received[from..])? else { return Ok(None) };
        let Some(frame) = self.received.get(from..from + length) else { return Ok(None) };
        self.taken += length;
        Ok(Control::decode(frame)?.map(|(control, _)| control))
    }

    /// Sends a frame when [`Self::flush`] is called next.
    pub(crate) fn push(&mut self, control: &Control<'_>) {
        self.unsent.push_with(|bytes| control.encode(bytes));
    }

    /// Sends whole frames when [`Self::flush`] is called next.
    pub(crate) fn push_frames(&mut self, frames: &[u8]) {
        self.unsent.push(frames);
    }

    /// Sends as much as the connection takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.unsent.flush(&mut self.channel)
    }

    /// Bytes that wait to be sent.
    pub(crate) const fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Whether anything waits to be sent, here or beneath.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent() > 0 || self.channel.has_unsent()
    }

    /// Says that nothing more is sent.
    pub(crate) fn finish(&mut self) {
        let _ = self.channel.finish();
    }
}
