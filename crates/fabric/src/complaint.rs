//! What is said to people: one line on stderr, which MPI's launcher carries to the terminal.
//!
//! libfabric's calls return numbers alone, and MPI libraries print those. What would mend it is said here.

use std::fmt::Display;
use std::io::{self, Write};

/// Says one line.
pub(crate) fn complain(what: impl Display) {
    // In one piece, so that lines of several processes stay lines; there is nobody to tell where stderr is closed.
    let _ = io::stderr().write_all(format!("farlink: {what}\n").as_bytes());
}

/// Says one line, and all causes of the error behind it.
pub(crate) fn complain_of(error: &dyn std::error::Error) {
    complain(chain(error));
}

/// An error, and all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        line.push_str(": ");
        line.push_str(&next.to_string());
        cause = next.source();
    }
    line
}
