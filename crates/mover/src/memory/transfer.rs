//! The transfer itself, from the first byte until both accounts are known. Both ends use it, in either role.

use std::net::TcpStream;
use std::sync::Arc;

use farlink_host::clock::monotonic;
use farlink_host::process::{cpu_of_process, cpu_of_thread};
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_wire::message::{MAX_ENTRIES, Message, Patience};
use farlink_wire::quantity::{Bytes, Nanos};
use farlink_wire::refusal::{Cause, Refusal};

use super::workers::StreamError;
use crate::account::Account;
use crate::chain;
use crate::control::{Control, ControlError};
use crate::role::Near;
use crate::tuning::CircuitWatch;

mod receive;
mod send;

pub(crate) use receive::receive;
pub(crate) use send::send;

/// How a transfer ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As asked.
    Complete,
    /// Someone stopped it.
    Interrupted,
}

/// What both roles need.
pub(crate) struct Session<'a> {
    pub(crate) near: Near,
    pub(crate) control: &'a mut Control,
    pub(crate) streams: &'a [TcpStream],
    /// Raised when this end is to stop.
    pub(crate) stop: &'a Wake,
    pub(crate) patience: Patience,
    /// Length of a sample.
    pub(crate) interval: Nanos,
    /// When the first byte may leave, on this host's clock, where this end knows.
    pub(crate) start: Nanos,
    /// How long the far end may take for its account once it was asked: two round trips and a second.
    pub(crate) answer: Nanos,
    pub(crate) meter: Meter,
    /// Looks at the circuit, where this end sends and there is one.
    pub(crate) circuit: Option<Arc<CircuitWatch>>,
    pub(crate) account: &'a mut Account,
    /// Told after every interval.
    pub(crate) observe: &'a mut dyn FnMut(&mut Account, Nanos),
}

impl Session<'_> {
    /// How often this end gives a sign of life.
    fn beat(&self) -> Nanos {
        Nanos(LONGEST_BEAT.0.min(self.patience.get().0 / 4))
    }

    /// A poller of the control connection, the stop and the end of the workers.
    fn poller(&self, done: &Wake) -> Result<Poller, TransferError> {
        let poller = Poller::new().map_err(ControlError::Wait)?;
        poller.add(&*self.control, CONTROL, Interest::Read).map_err(ControlError::Wait)?;
        poller.add(self.stop, STOP, Interest::Read).map_err(ControlError::Wait)?;
        poller.add(done, DONE, Interest::Read).map_err(ControlError::Wait)?;
        Ok(poller)
    }

    /// An error where the far end has said nothing for too long.
    fn check_silence(&self, now: Nanos) -> Result<(), TransferError> {
        let quiet = now.since(self.control.heard());
        if quiet > self.patience.get() {
            return Err(ControlError::Silent { quiet: self.patience.get() }.into());
        }
        Ok(())
    }

    /// Waits for what is ready, for `pause` at most; not at all where something of the control connection is `unheard`.
    fn wait(
        &self,
        poller: &mut Poller,
        pause: Nanos,
        unheard: bool,
        ready: &mut Vec<u64>,
    ) -> Result<(), TransferError> {
        poller.wait(if unheard { Nanos::ZERO } else { pause }, ready).map_err(ControlError::Wait)?;
        // What was read of it and not heard is nothing that the kernel knows of.
        if unheard && !ready.contains(&CONTROL) {
            ready.push(CONTROL);
        }
        Ok(())
    }

    /// Sends a long list as several messages.
    fn tell<T: Copy>(&mut self, list: &[T], message: fn(Vec<T>) -> Message) -> Result<(), TransferError> {
        for part in list.chunks(MAX_ENTRIES) {
            self.control.send(&message(part.to_vec()))?;
        }
        Ok(())
    }

    /// A stream broke: the control connection may say why within a moment, and is believed first.
    fn explain(&mut self, error: StreamError) -> TransferError {
        let until = monotonic().after(EXPLANATION).min(monotonic().after(self.patience.get()));
        loop {
            match self.control.next(until, self.stop) {
                Ok(Some(Message::Failed(refusal))) => return TransferError::FarSide(refusal),
                Err(ControlError::Ended) => return ControlError::Ended.into(),
                Ok(Some(_)) if monotonic() < until => {}
                Ok(_) | Err(_) => return error.into(),
            }
        }
    }
}

/// Counts CPU time from when it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meter {
    /// Of the whole process.
    Process(Nanos),
    /// Of the calling thread, and of workers that are added.
    Thread(Nanos),
}

impl Meter {
    /// Counts from now, as the end `near` counts: a server's other sessions are not this one's.
    pub(crate) fn new(near: Near) -> Self {
        match near {
            Near::Client => Self::Process(cpu_of_process()),
            Near::Server => Self::Thread(cpu_of_thread()),
        }
    }

    /// Time so far, of which `workers` was spent in threads that have ended.
    fn read(self, workers: Nanos) -> Nanos {
        match self {
            Self::Process(before) => cpu_of_process().since(before),
            Self::Thread(before) => cpu_of_thread().since(before).after(workers),
        }
    }
}

/// Why a transfer could not go on.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The control connection.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A data connection.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The far end gave up, and said why.
    #[error("the far side failed: {0}")]
    FarSide(Refusal),
    /// Every stream ended, with another number of bytes than was to be sent.
    #[error("{arrived} bytes arrived where {asked} were to be sent", arrived = .arrived.0, asked = .asked.0)]
    Short {
        /// What arrived.
        arrived: Bytes,
        /// What was asked for.
        asked: Bytes,
    },
    /// This server was told to end.
    #[error("the server was stopped")]
    ServerStopped,
    /// The kernel's own words.
    #[error("{attempt}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// The kernel's own words.
        source: std::io::Error,
    },
}

impl TransferError {
    /// As it is said to the far end.
    pub(crate) fn refusal(&self) -> Refusal {
        let cause = if matches!(self, Self::ServerStopped) { Cause::Stopped } else { Cause::Lasting };
        Refusal::new(cause, chain(self))
    }
}

const CONTROL: u64 = 0;
const STOP: u64 = 1;
const DONE: u64 = 2;

/// An end that has nothing to say says so at least this often.
const LONGEST_BEAT: Nanos = Nanos(500_000_000);

/// How long the control connection has to explain why a stream broke.
const EXPLANATION: Nanos = Nanos(2_000_000_000);
