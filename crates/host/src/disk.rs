//! How fast a directory's file system writes and reads, measured with a file that has no name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use farlink_wire::quantity::{Bytes, Nanos};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;

use crate::clock;
use crate::pages::Pages;
use crate::process;

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSpeed {
    /// Where.
    pub directory: PathBuf,
    /// Bits per second written, until they were on the disk.
    pub write_bps: u64,
    /// Bits per second read back.
    pub read_bps: u64,
    /// Bytes that were written, and read.
    pub bytes: Bytes,
    /// Whether the kernel's cache was out of the way (`O_DIRECT`); where it was not, reading may have been from memory.
    pub direct: bool,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// No file could be made.
    #[error("make a temporary file in {} to measure the disk: name a directory that you may write to", directory.display())]
    Make {
        /// Where.
        directory: PathBuf,
        /// As the kernel said it.
        source: io::Error,
    },
    /// The file could not be written or read.
    #[error("{doing} a temporary file in {}", directory.display())]
    Move {
        /// Where.
        directory: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// As the kernel said it.
        source: io::Error,
    },
}

/// Has what was written to `file` on the disk, and forgets it in memory: whoever reads it next reads the disk, where the file system has
/// one.
///
/// # Errors
/// The kernel's.
pub fn forget(file: &File) -> io::Result<()> {
    file.sync_data()?;
    Ok(posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
}

/// Has the file system say what it says of a file's content when the file is closed: on some, such as NFS, that there was no room for it.
///
/// # Errors
/// The kernel's.
pub fn settle(file: &File) -> io::Result<()> {
    // Each descriptor's end says so (close(2)); the file itself stays open.
    Ok(nix::unistd::close(file.try_clone()?)?)
}

/// Writes a file in `directory` and reads it back, each for a second or 256 MiB, whichever comes first.
///
/// The file has no name while it is written, so that nothing is left of it, whatever ends this process.
///
/// # Errors
/// [`DiskError`] naming the step.
pub fn measure(directory: &Path) -> Result<DiskSpeed, DiskError> {
    let make = |source| DiskError::Make { directory: directory.to_owned(), source };
    let failed = |doing| move |source| DiskError::Move { directory: directory.to_owned(), doing, source };
    let mut block = Pages::new(BLOCK).map_err(failed("allocate memory for"))?;
    fill(&mut block);
    let block = &mut block[..BLOCK];
    let (file, direct) = nameless(directory, block).map_err(make)?;
    let started = clock::monotonic();
    let mut written = 0;
    while written < MOST_BYTES && clock::monotonic().since(started) < MOST_TIME {
        file.write_all_at(block, written).map_err(failed("write"))?;
        written += BLOCK as u64;
    }
    file.sync_data().map_err(failed("write"))?;
    let write_bps = rate(written, clock::monotonic().since(started));
    // Best effort, for what is left in the cache where it could not be kept out of the way.
    let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    let started = clock::monotonic();
    let mut read = 0;
    while read < written && clock::monotonic().since(started) < MOST_TIME {
        file.read_exact_at(block, read).map_err(failed("read"))?;
        read += BLOCK as u64;
    }
    let read_bps = rate(read, clock::monotonic().since(started));
    Ok(DiskSpeed { directory: directory.to_owned(), write_bps, read_bps, bytes: Bytes(written), direct })
}

/// A file without a name in `directory`, and whether it goes around the kernel's cache.
fn nameless(directory: &Path, block: &[u8]) -> io::Result<(File, bool)> {
    // Some file systems open a file for direct I/O and refuse to write it, so one block is written.
    let usable = |flags| open(directory, flags).and_then(|file| file.write_all_at(block, 0).map(|()| file));
    match usable(libc::O_DIRECT) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok((usable(0)?, false)),
        direct => Ok((direct?, true)),
    }
}

fn open(directory: &Path, flags: libc::c_int) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.custom_flags(libc::O_TMPFILE | flags).open(directory) {
        // open(2): this file system has no nameless files.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {}
        opened => return opened,
    }
    let unguessable = process::random::<16>()?.map(|byte| format!("{byte:02x}")).concat();
    let path = directory.join(format!(".farlink-{unguessable}"));
    let made = options.create_new(true).custom_flags(flags).open(&path);
    // A file system that refuses direct I/O may have made the file all the same.
    let _ = std::fs::remove_file(&path);
    made
}

/// Bytes that no file system makes smaller: Marsaglia's xorshift64 ("Xorshift RNGs", 2003), from a fixed seed.
fn fill(bytes: &mut [u8]) {
    let mut state = SEED;
    for word in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_ne_bytes());
    }
}

/// Bits per second; a time too short for the clock counts as a nanosecond.
fn rate(bytes: u64, time: Nanos) -> u64 {
    let bits = u128::from(bytes) * 8_000_000_000 / u128::from(time.0.max(1));
    u64::try_from(bits).unwrap_or(u64::MAX)
}

/// Bytes in one write: what file movers use, and a multiple of any disk's sector, which `O_DIRECT` asks for.
const BLOCK: usize = 4 << 20;

/// Enough to pass the cache of a disk's controller, and little enough to wait for.
const MOST_BYTES: u64 = 256 << 20;

/// For slow disks.
const MOST_TIME: Nanos = Nanos(1_000_000_000);

/// Any but zero, which xorshift never leaves.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_and_leaves_nothing() {
        let directory = std::env::temp_dir().join(format!("disk-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let speed = measure(&directory);
        let left = std::fs::read_dir(&directory).unwrap().count();
        std::fs::remove_dir_all(&directory).unwrap();
        let speed = speed.unwrap();
        assert!(speed.write_bps > 0 && speed.read_bps > 0 && speed.bytes.0 >= BLOCK as u64, "{speed:?}");
        assert_eq!(left, 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = measure(Path::new("/no/such/directory")).unwrap_err();
        assert!(error.to_string().contains("/no/such/directory"), "{error}");
    }

    #[test]
    fn what_is_written_does_not_repeat_within_a_block() {
        let mut bytes = vec![0; 4096];
        fill(&mut bytes);
        assert!(bytes.chunks_exact(8).collect::<std::collections::HashSet<_>>().len() == 512);
    }
}
