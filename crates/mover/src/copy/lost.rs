//! A data connection that broke.

use std::io;

/// Which, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) stream: u32,
    pub(super) why: String,
}

impl Lost {
    pub(super) fn new(stream: u32, error: &io::Error) -> Self {
        // An end of its stream before that of its frames is how a far end that is gone is met.
        let why = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the far side closed it".to_owned(),
            _ => crate::chain(error),
        };
        Self { stream, why }
    }

    /// The far side has noticed.
    pub(super) fn of_far_side(stream: u32) -> Self {
        Self { stream, why: "the far side has lost it".to_owned() }
    }
}
