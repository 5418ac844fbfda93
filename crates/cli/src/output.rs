//! What the commands say: whoever closed the pipe has read enough, and a disk that is full where it goes to ends nothing else, but is told.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes `text` to the standard output.
pub(crate) fn print(text: &(impl AsRef<[u8]> + ?Sized)) {
    let mut out = io::stdout();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
        && !(error.raw_os_error() == Some(EIO) && is_device())
        && !IS_LOST.swap(true, Ordering::Relaxed)
    {
        tell(&format!("farlink: write the standard output: {error}: what was to stand there is lost"));
    }
}

/// Whether the standard output is a terminal, also one that is closed: nobody reads there any more.
fn is_device() -> bool {
    let out = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    out.and_then(|out| out.metadata()).is_ok_and(|about| about.file_type().is_char_device())
}

/// Whether something that was to be printed could not be.
pub(crate) fn is_lost() -> bool {
    IS_LOST.load(Ordering::Relaxed)
}

/// What a terminal that hung up says (write(2), tty_ioctl(4)); a disk that fails says so, too.
const EIO: i32 = 5;

static IS_LOST: AtomicBool = AtomicBool::new(false);

/// Writes `line` to the standard error.
pub(crate) fn tell(line: &str) {
    // In one piece: others may write there, too.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
