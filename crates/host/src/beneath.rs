//! Open directories, and names that are resolved beneath them by the kernel: openat2(2).
//!
//! Whatever someone makes of the tree meanwhile, no name leads out of it. What a name's last component is made, renamed or removed
//! is said relative to the open directory that it is in: such a name has one component.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2, readlinkat, renameat};
use nix::libc;
use nix::sys::stat::{
    FchmodatFlags, Mode, UtimensatFlags, fchmodat, fstat, fstatat, futimens, mkdirat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

pub use names::Names;
pub use status::{Node, Status};
pub use tree::Tree;

mod device;
mod names;
mod status;
mod tree;

/// A directory that is held open.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    /// Whether it is `/`, beneath which everything is.
    whole: bool,
}

/// What becomes of symbolic links within a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// They are followed as long as they stay beneath the directory: for what this host's user says.
    Follow,
    /// They are an error: for what a peer says.
    Refuse,
}

impl Directory {
    /// Opens `path`, which is this process's own choice: whatever it leads through.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        Ok(Self { fd, whole: path == Path::new("/") })
    }

    /// The directory `path` beneath this one; the empty path is this one.
    ///
    /// # Errors
    /// As openat2(2): `ENOTDIR` where it is none; [`is_link_in_the_way`] and [`leads_out`] tell the others.
    pub fn open_dir(&self, path: &[u8], links: Links) -> io::Result<Self> {
        let path = if path.is_empty() { b"." } else { path };
        let fd = self.resolve(path, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty(), links)?;
        Ok(Self { fd, whole: false })
    }

    /// Opens the regular file `path` to be read, without a trace in its access time where that is permitted.
    ///
    /// # Errors
    /// As openat2(2); [`io::ErrorKind::InvalidInput`] where it is no regular file.
    pub fn open_read(&self, path: &[u8]) -> io::Result<File> {
        let opened = match self.open_file(path, OFlag::O_RDONLY | OFlag::O_NOATIME) {
            // open(2): only the owner may leave no trace.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => self.open_file(path, OFlag::O_RDONLY),
            opened => opened,
        };
        regular(opened)
    }

    /// Opens the regular file `path`, which is there, to be read and written.
    ///
    /// # Errors
    /// As [`Self::open_read`].
    pub fn open_write(&self, path: &[u8]) -> io::Result<File> {
        regular(self.open_file(path, OFlag::O_RDWR))
    }

    /// Opens `path`, which should be a regular file. Where somebody holds a lease on it (fcntl(2), `F_SETLEASE`), as Samba and the kernel's
    /// NFS server do for who has it open over the network, it is waited until that is given up: the kernel sees to it.
    fn open_file(&self, path: &[u8], flags: OFlag) -> io::Result<OwnedFd> {
        let leased = match self.resolve(path, flags | HARMLESS, Mode::empty(), Links::Refuse) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => error,
            opened => return opened,
        };
        let found = self.resolve(path, OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty(), Links::Refuse)?;
        if Status::from(fstat(&found)?).node != Node::File {
            return Err(leased);
        }
        let by_number = format!("/proc/self/fd/{}", found.as_raw_fd());
        loop {
            match open(by_number.as_str(), flags | OFlag::O_CLOEXEC, Mode::empty()) {
                Err(Errno::EINTR) => {}
                opened => return Ok(opened?),
            }
        }
    }

    /// Makes the file `path`, which only its owner may read, and opens it to be read and written.
    ///
    /// # Errors
    /// As openat2(2): `EEXIST` where anything has that name.
    pub fn create_new(&self, path: &[u8]) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | HARMLESS;
        Ok(File::from(self.resolve(path, flags, Mode::S_IRUSR | Mode::S_IWUSR, Links::Refuse)?))
    }

    /// Makes the directory `name` in this one, less what the process's umask takes away.
    ///
    /// # Errors
    /// As mkdirat(2).
    pub fn make_dir(&self, name: &[u8], mode: u16) -> io::Result<()> {
        Ok(mkdirat(&self.fd, single(name)?, Mode::from_bits_truncate(mode.into()))?)
    }

    /// Makes `name` a symbolic link that says `target`.
    ///
    /// # Errors
    /// As symlinkat(2).
    pub fn symlink(&self, target: &[u8], name: &[u8]) -> io::Result<()> {
        Ok(symlinkat(target, &self.fd, single(name)?)?)
    }

    /// What the symbolic link `name` says.
    ///
    /// # Errors
    /// As readlinkat(2).
    pub fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&self.fd, single(name)?)?.into_vec())
    }

    /// Gives what is `name` here the name `to_name` in `to`, in the place of whatever has it.
    ///
    /// # Errors
    /// As renameat(2).
    pub fn rename(&self, name: &[u8], to: &Self, to_name: &[u8]) -> io::Result<()> {
        Ok(renameat(&self.fd, single(name)?, &to.fd, single(to_name)?)?)
    }

    /// Removes the name `name`, which is no directory's.
    ///
    /// # Errors
    /// As unlinkat(2).
    pub fn unlink(&self, name: &[u8]) -> io::Result<()> {
        Ok(unlinkat(&self.fd, single(name)?, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Removes the directory `name`, in which there is nothing.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn remove_dir(&self, name: &[u8]) -> io::Result<()> {
        Ok(unlinkat(&self.fd, single(name)?, UnlinkatFlags::RemoveDir)?)
    }

    /// What `name` is; a symbolic link is itself.
    ///
    /// # Errors
    /// As fstatat(2).
    pub fn status(&self, name: &[u8]) -> io::Result<Status> {
        Ok(fstatat(&self.fd, single(name)?, AtFlags::AT_SYMLINK_NOFOLLOW)?.into())
    }

    /// Its path, as the kernel has it now.
    ///
    /// # Errors
    /// As readlink(2).
    pub fn path(&self) -> io::Result<PathBuf> {
        fs::read_link(self.by_number())
    }

    /// What this directory is.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn own_status(&self) -> io::Result<Status> {
        Ok(fstat(&self.fd)?.into())
    }

    /// Sets this directory's permission bits.
    ///
    /// # Errors
    /// As fchmodat(2).
    pub fn set_mode(&self, mode: u16) -> io::Result<()> {
        // fchmod(2) refuses a descriptor that only names its file; "." is that file, whatever happens to its name.
        let mode = Mode::from_bits_truncate(mode.into());
        match fchmodat(&self.fd, ".", mode, FchmodatFlags::FollowSymlink) {
            // Its owner may not search it, and may let himself.
            Err(Errno::EACCES) => {
                Ok(fchmodat(AT_FDCWD, &*self.by_number(), mode, FchmodatFlags::FollowSymlink)?)
            }
            set => Ok(set?),
        }
    }

    /// Sets this directory's modification time.
    ///
    /// # Errors
    /// As utimensat(2).
    pub fn set_mtime(&self, seconds: i64, nanoseconds: u32) -> io::Result<()> {
        let mtime = TimeSpec::new(seconds, nanoseconds.into());
        let follow = UtimensatFlags::FollowSymlink;
        match utimensat(&self.fd, ".", &ACCESSED, &mtime, follow) {
            Err(Errno::EACCES) => Ok(utimensat(AT_FDCWD, &*self.by_number(), &ACCESSED, &mtime, follow)?),
            set => Ok(set?),
        }
    }

    /// A path to it that needs no right to search it.
    fn by_number(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// Sets the modification time of `name`; of a symbolic link its own.
    ///
    /// # Errors
    /// As utimensat(2).
    pub fn set_mtime_of(&self, name: &[u8], seconds: i64, nanoseconds: u32) -> io::Result<()> {
        let mtime = TimeSpec::new(seconds, nanoseconds.into());
        let flags = UtimensatFlags::NoFollowSymlink;
        Ok(utimensat(&self.fd, single(name)?, &ACCESSED, &mtime, flags)?)
    }

    /// Sets the permission bits of the file or directory `name`, which nobody need have the right to read.
    ///
    /// # Errors
    /// As openat2(2) and fchmodat(2); `ELOOP` of a symbolic link.
    pub fn set_mode_of(&self, name: &[u8], mode: u16) -> io::Result<()> {
        let named = Self {
            fd: self.resolve(
                single(name)?.as_os_str().as_bytes(),
                OFlag::O_PATH,
                Mode::empty(),
                Links::Refuse,
            )?,
            whole: false,
        };
        let mode = Mode::from_bits_truncate(mode.into());
        Ok(fchmodat(AT_FDCWD, &*named.by_number(), mode, FchmodatFlags::FollowSymlink)?)
    }

    /// The names in this directory, in the order of their bytes.
    ///
    /// # Errors
    /// As openat2(2) and getdents(2).
    pub fn list(&self) -> io::Result<Names> {
        Names::read(self.reopen()?)
    }

    /// Waits until the names in this directory are on the disk.
    ///
    /// # Errors
    /// As fsync(2).
    pub fn sync(&self) -> io::Result<()> {
        self.syncing()?.sync_all()
    }

    /// A descriptor to write the directory to its disk through, also when its mode does not let it be opened any more.
    ///
    /// # Errors
    /// As openat2(2).
    pub fn syncing(&self) -> io::Result<File> {
        self.reopen().map(File::from)
    }

    /// A descriptor through which the directory's content can be read.
    fn reopen(&self) -> io::Result<OwnedFd> {
        self.resolve(b".", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty(), Links::Refuse)
    }

    fn resolve(&self, path: &[u8], flags: OFlag, mode: Mode, links: Links) -> io::Result<OwnedFd> {
        let within = match links {
            Links::Refuse => ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS,
            // Beneath `/` an absolute link stays beneath as well.
            Links::Follow if self.whole => ResolveFlag::RESOLVE_IN_ROOT,
            Links::Follow => ResolveFlag::RESOLVE_BENEATH,
        };
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(mode)
            .resolve(within | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        for _ in 0..MOST_ATTEMPTS {
            match openat2(&self.fd, path, how) {
                // openat2(2): something was renamed while ".." was resolved.
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(Errno::ENOSYS) => {
                    let said = "the kernel cannot keep names beneath a directory: use Linux 5.6 or later";
                    return Err(io::Error::new(io::ErrorKind::Unsupported, said));
                }
                opened => return Ok(opened?),
            }
        }
        Err(Errno::EAGAIN.into())
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What an open file is.
///
/// # Errors
/// As fstat(2).
pub fn status_of(file: &File) -> io::Result<Status> {
    Ok(fstat(file)?.into())
}

/// Sets an open file's modification time.
///
/// # Errors
/// As futimens(2).
pub fn set_mtime(file: &File, seconds: i64, nanoseconds: u32) -> io::Result<()> {
    Ok(futimens(file, &ACCESSED, &TimeSpec::new(seconds, nanoseconds.into()))?)
}

/// When what gets a modification time was accessed last. To leave that as it is, `UTIME_OMIT`, has file systems of programs (bindfs 1.14)
/// leave both times, and say nothing.
const ACCESSED: TimeSpec = TimeSpec::UTIME_NOW;

/// Whether a path was not followed because it leads through a symbolic link that is refused.
#[must_use]
pub fn is_link_in_the_way(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ELOOP)
}

/// Whether a file was not locked because nothing can be on its file system, or the service for that does not run (NFS).
#[must_use]
pub fn is_without_locks(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(libc::ENOLCK)
}

/// Whether a mode or a time could not be set for what the file system is: FAT, one whose rights are access lists alone, one of the network.
#[must_use]
pub fn is_not_kept(error: &io::Error) -> bool {
    let known = [Errno::EPERM, Errno::EACCES, Errno::EINVAL, Errno::ENOSYS, Errno::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|error| known.contains(&Errno::from_raw(error)))
}

/// Whether a path was not followed because it leads out of its directory.
#[must_use]
pub fn leads_out(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EXDEV)
}

/// Whether something was not opened because this process, or the host, has as many files open as it may.
#[must_use]
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// What was opened as a file, where it is a regular one.
fn regular(opened: io::Result<OwnedFd>) -> io::Result<File> {
    let refused = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    match opened {
        Ok(fd) => match Status::from(fstat(&fd)?).node {
            Node::File => Ok(File::from(fd)),
            node => refused(format!("it is {node}")),
        },
        // open(2): it is a socket, or a device without a driver.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => refused("it is no file".into()),
        Err(error) => Err(error),
    }
}

/// `name`, where it is a name of one component: anything else would lead elsewhere.
fn single(name: &[u8]) -> io::Result<&Path> {
    match name {
        b"" | b"." | b".." => Err(Errno::EINVAL.into()),
        name if name.contains(&b'/') => Err(Errno::EINVAL.into()),
        name => Ok(Path::new(std::ffi::OsStr::from_bytes(name))),
    }
}

/// Opening waits for no writer of a FIFO, follows no link and takes no terminal.
const HARMLESS: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY);

/// A tree in which somebody renames without end is an error in the end.
const MOST_ATTEMPTS: u32 = 128;

#[cfg(test)]
mod tests;
