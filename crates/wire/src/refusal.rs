//! Why an end refuses, or gives up: a cause that the far end goes by, and words that a person reads.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::message::Text;

/// Why an end refuses what it was asked for, or gives up what it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What the far end may do about it.
    pub cause: Cause,
    /// What a person reads.
    pub words: Text,
}

/// What a far end may do that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// What the words say: to ask for the same again does no better, as far as who refuses knows.
    Lasting,
    /// What was asked for may be had soon: others have it for now, or whoever asks has it, from before a connection broke.
    Passing,
    /// The server was told to end: another may take its place.
    Stopped,
    /// The same was begun again by another command, which goes on with it.
    Overtaken,
    /// Whoever asks has had all that there is.
    Complete,
}

impl Refusal {
    /// For `cause`, as `words` say it.
    #[must_use]
    pub fn new(cause: Cause, words: impl Into<String>) -> Self {
        Self { cause, words: words.into().into() }
    }

    /// That lasts, as `words` say it.
    #[must_use]
    pub fn lasting(words: impl Into<String>) -> Self {
        Self::new(Cause::Lasting, words)
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.words.fmt(f)
    }
}
