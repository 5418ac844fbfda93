//! What the commands say: whoever closed the pipe has read enough, and a disk that is full where it goes to ends nothing else.

use std::io::{self, Write};

/// Writes `text` to the standard output.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes `line` to the standard error.
pub(crate) fn tell(line: &str) {
    // In one piece: others may write there, too.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
