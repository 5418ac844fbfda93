//! What ends a transfer.

use serde::{Deserialize, Serialize};

use super::bounded::OutOfBounds;
use crate::quantity::{Bytes, Nanos};

/// What ends a transfer: a number of bytes, or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub enum Goal {
    /// All of so many bytes have arrived: 1 B to 1 PB.
    Size(Bytes),
    /// The time is over: 10 ms to 24 h.
    Duration(Nanos),
}

impl Goal {
    /// A transfer of `bytes`.
    ///
    /// # Errors
    /// [`OutOfBounds`] where nobody would wait for it, or nothing would be moved.
    pub fn size(bytes: Bytes) -> Result<Self, OutOfBounds> {
        let most = Bytes(1_000_000_000_000_000);
        OutOfBounds::check("the number of bytes", bytes, Bytes(1), most).map(Self::Size)
    }

    /// A transfer of `time`.
    ///
    /// # Errors
    /// [`OutOfBounds`] where nobody would wait for it, or nothing would be moved.
    pub fn duration(time: Nanos) -> Result<Self, OutOfBounds> {
        let day = Nanos(86_400_000_000_000);
        OutOfBounds::check("the time", time, Nanos(10_000_000), day).map(Self::Duration)
    }
}

/// A goal as it travels.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Unchecked {
    Size(Bytes),
    Duration(Nanos),
}

impl TryFrom<Unchecked> for Goal {
    type Error = OutOfBounds;

    fn try_from(goal: Unchecked) -> Result<Self, OutOfBounds> {
        match goal {
            Unchecked::Size(bytes) => Self::size(bytes),
            Unchecked::Duration(time) => Self::duration(time),
        }
    }
}

impl From<Goal> for Unchecked {
    fn from(goal: Goal) -> Self {
        match goal {
            Goal::Size(bytes) => Self::Size(bytes),
            Goal::Duration(time) => Self::Duration(time),
        }
    }
}
