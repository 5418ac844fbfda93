//! One end of a file transfer, whichever it is.

use std::sync::Arc;

use farlink_wire::message::Arrival;
use farlink_wire::message::copy::Copy;
use farlink_wire::quantity::BitsPerSec;

use super::CopyError;
use super::file_event::FileEvent;
use super::lost::Lost;
use super::receiving::Receiving;
use super::sending::{Sending, Tally};
use super::timing::Timing;
use super::worker::Shared;
use crate::channel::Channel;

/// One end of a file transfer.
pub(crate) enum End {
    /// It sends.
    Sender(Arc<Sending>),
    /// It receives.
    Receiver(Arc<Receiving>),
}

impl End {
    pub(super) fn timing(&self) -> &Timing {
        match self {
            Self::Sender(sending) => &sending.timing,
            Self::Receiver(receiving) => &receiving.timing,
        }
    }

    pub(super) fn take_messages(&self) -> Vec<Copy> {
        match self {
            Self::Sender(sending) => sending.take_messages(),
            Self::Receiver(receiving) => receiving.take_messages(),
        }
    }

    /// Whether what it has to say is not to wait for more.
    pub(super) fn is_urgent(&self) -> bool {
        match self {
            Self::Sender(_) => true,
            Self::Receiver(receiving) => receiving.is_urgent(),
        }
    }

    pub(super) fn take_lost(&self) -> Vec<Lost> {
        match self {
            Self::Sender(sending) => sending.take_lost(),
            Self::Receiver(receiving) => receiving.take_lost(),
        }
    }

    pub(super) fn take_failure(&self) -> Option<CopyError> {
        match self {
            Self::Sender(sending) => sending.take_failure(),
            Self::Receiver(receiving) => receiving.take_failure(),
        }
    }

    pub(super) fn on_message(&self, message: Copy) -> Result<(), CopyError> {
        match self {
            Self::Sender(sending) => sending.on_message(message),
            Self::Receiver(receiving) => receiving.on_message(message),
        }
    }

    /// What has arrived and was not told yet: nothing at a sender.
    pub(super) fn take_arrivals(&self) -> Vec<Arrival> {
        match self {
            Self::Sender(_) => Vec::new(),
            Self::Receiver(receiving) => receiving.take_arrivals(),
        }
    }

    /// Whether more is known of names than whoever listens here has taken: nothing more is to be heard then.
    pub(super) fn is_untold(&self) -> bool {
        matches!(self, Self::Receiver(receiving) if receiving.is_untold())
    }

    /// Whether all is known that is not there of what was to come, once that was all.
    pub(super) fn knows_what_lacks(&self) -> bool {
        match self {
            Self::Sender(_) => true,
            Self::Receiver(receiving) => receiving.knows_what_lacks(),
        }
    }

    /// All threads of it end.
    pub(crate) fn abort(&self) {
        self.stop(None);
    }

    /// As [`Self::abort`], and whoever talks is told why.
    pub(crate) fn fail(&self, error: CopyError) {
        self.stop(Some(error));
    }

    fn stop(&self, error: Option<CopyError>) {
        match self {
            Self::Sender(sending) => sending.abort(error),
            Self::Receiver(receiving) => receiving.abort(error),
        }
    }

    /// Waits until all threads have ended, after [`Self::abort`]: nothing is read or written then.
    pub(crate) fn wait(&self) {
        match self {
            Self::Sender(sending) => sending.timing.wait(),
            Self::Receiver(receiving) => {
                receiving.timing.wait();
                receiving.let_go();
            }
        }
    }

    /// How much is done.
    pub(super) fn tally(&self) -> Tally {
        match self {
            Self::Sender(sending) => sending.tally(),
            Self::Receiver(receiving) => receiving.tally(),
        }
    }

    /// What became of names since this was asked last.
    pub(crate) fn take_events(&self) -> Vec<FileEvent> {
        match self {
            Self::Sender(sending) => sending.take_events(),
            Self::Receiver(receiving) => receiving.take_events(),
        }
    }

    /// From now on no more bits per second than `limit`: the sender sees to it.
    pub(crate) fn hold(&self, limit: Option<BitsPerSec>) {
        match self {
            Self::Sender(sending) => sending.hold(limit),
            Self::Receiver(receiving) => receiving.ask_to_hold(limit),
        }
    }

    /// Data connections that are at work.
    pub(crate) fn streams(&self) -> usize {
        match self {
            Self::Sender(sending) => sending.streams(),
            Self::Receiver(receiving) => receiving.streams(),
        }
    }

    /// A data connection joins.
    pub(crate) fn join(&self, stream: u32, channel: Channel) -> Result<(), CopyError> {
        let started = match self {
            Self::Sender(sending) => super::stream_out::StreamOut::start(sending, stream, channel),
            Self::Receiver(receiving) => super::stream_in::StreamIn::start(receiving, stream, channel),
        };
        started.map_err(|source| CopyError::System { attempt: "begin to use a data connection", source })
    }
}
