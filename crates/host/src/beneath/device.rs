//! The kernel's own devices of nothing: `/dev/zero` to read from without end, `/dev/null` to write to without trace.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag, fstat, major, minor};

use super::{Directory, Links};

impl Directory {
    /// Opens `path` where it is `/dev/zero`, or another device that gives bytes without end.
    ///
    /// # Errors
    /// As openat2(2); [`io::ErrorKind::InvalidInput`] where it is anything else.
    pub fn open_endless(&self, path: &[u8]) -> io::Result<File> {
        self.open_memory_device(path, OFlag::O_RDONLY, &ENDLESS)
    }

    /// Opens `path` where it is `/dev/null`, or another device that takes everything and keeps nothing.
    ///
    /// # Errors
    /// As [`Self::open_endless`].
    pub fn open_sink(&self, path: &[u8]) -> io::Result<File> {
        self.open_memory_device(path, OFlag::O_WRONLY, &SINKS)
    }

    fn open_memory_device(&self, path: &[u8], flags: OFlag, minors: &[u64]) -> io::Result<File> {
        let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        let open = |flags| -> io::Result<OwnedFd> {
            let fd = self.resolve(&path[start..], flags, Mode::empty(), Links::Follow)?;
            let status = fstat(&fd)?;
            let is_device = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
            // Major 1: the kernel's Documentation/admin-guide/devices.txt.
            let is_meant = is_device && major(status.st_rdev) == 1 && minors.contains(&minor(status.st_rdev));
            if is_meant { Ok(fd) } else { Err(io::ErrorKind::InvalidInput.into()) }
        };
        // To open what is something else would be seen: by who watches it, or reads from it.
        open(OFlag::O_PATH)?;
        open(flags | OFlag::O_NONBLOCK).map(File::from)
    }
}

/// `/dev/zero`, `/dev/random`, `/dev/urandom`.
const ENDLESS: [u64; 3] = [5, 8, 9];

/// `/dev/null`, `/dev/zero`.
const SINKS: [u64; 2] = [3, 5];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_devices_of_nothing_are_opened() {
        let root = Directory::open(Path::new("/")).unwrap();
        assert!(root.open_endless(b"/dev/zero").is_ok() && root.open_sink(b"dev/null").is_ok());
        for other in [&b"dev/null"[..], b"etc/passwd", b"dev", b"dev/tty"] {
            assert!(root.open_endless(other).is_err());
        }
        assert!(root.open_sink(b"etc/passwd").is_err());
    }
}
