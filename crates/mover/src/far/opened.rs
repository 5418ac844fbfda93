//! The other end of a file transfer, once it was reached.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use farlink_host::readiness::Wake;
use farlink_wire::message::Message;

use crate::channel::Channel;
use crate::control::Control;
use crate::copy::CopyError;
use crate::dial::Late;

/// A far end that was asked.
pub(crate) struct Opened {
    /// The control connection; the request has left on it.
    pub(crate) control: Control,
    /// Data connections that stand, and their numbers; with those that are late these count from 0.
    pub(crate) data: Vec<(u32, Channel)>,
    /// Those that are still on their way.
    pub(crate) late: Option<Late>,
    /// The way by which more come.
    pub(crate) line: Arc<dyn Line>,
    /// What the far end has said already.
    pub(crate) early: VecDeque<Message>,
}

/// The way to a far end that was reached.
pub(crate) trait Line: fmt::Debug + Send + Sync {
    /// Data connection `number`; an error where `stop` was raised first. It may take as long as the far end may be silent.
    fn another(&self, number: u32, stop: &Wake) -> Result<Channel, CopyError>;

    /// What a failure of the conversation with it means: that a key is not let in may be heard of after everything was opened.
    fn explained(&self, error: CopyError) -> CopyError {
        error
    }
}
