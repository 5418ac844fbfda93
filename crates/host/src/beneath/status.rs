//! What a name stands for.

use std::fmt;

use nix::libc;
use nix::sys::stat::FileStat;
use nix::unistd::{getegid, geteuid};

/// What is kept of stat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it is.
    pub node: Node,
    /// Bytes.
    pub size: u64,
    /// Permission bits, with set-id and sticky.
    pub mode: u16,
    /// Seconds of the modification time, since 1970.
    pub mtime_s: i64,
    /// Nanoseconds of it.
    pub mtime_ns: u32,
    /// The file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Units of 512 bytes that it takes.
    pub blocks: u64,
    /// Whether it has a second name.
    pub has_other_names: bool,
    /// Its owner's number.
    pub owner: u32,
    /// Its group's.
    pub group: u32,
}

/// Kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A UNIX socket.
    Socket,
    /// A block or character device.
    Device,
}

impl Status {
    /// Whether `other` is the same file, not only the like of it.
    #[must_use]
    pub const fn is_same_file(&self, other: &Self) -> bool {
        self.device == other.device && self.inode == other.inode
    }

    /// Whether less is kept of it than it is long: there may be holes.
    #[must_use]
    pub const fn is_sparse(&self) -> bool {
        self.blocks.saturating_mul(512) < self.size
    }
}

impl Status {
    /// Its permission bits, as a copy of it may have that is this process's own: what lets a program run as its owner or group is left out
    /// where that is another.
    #[must_use]
    pub fn mode_of_a_copy(&self) -> u16 {
        let mut mode = self.mode;
        if self.node == Node::File && self.owner != geteuid().as_raw() {
            mode &= !SET_USER;
        }
        if self.node == Node::File && self.group != getegid().as_raw() {
            mode &= !SET_GROUP;
        }
        mode
    }
}

/// A program runs as its owner.
const SET_USER: u16 = 0o4000;

/// A program runs as its group.
const SET_GROUP: u16 = 0o2000;

impl From<FileStat> for Status {
    fn from(stat: FileStat) -> Self {
        let node = match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => Node::File,
            libc::S_IFDIR => Node::Directory,
            libc::S_IFLNK => Node::Symlink,
            libc::S_IFIFO => Node::Fifo,
            libc::S_IFSOCK => Node::Socket,
            _ => Node::Device,
        };
        Self {
            node,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: (stat.st_mode & 0o7777) as u16,
            mtime_s: stat.st_mtime,
            // Some file systems have given nanoseconds beyond a second.
            mtime_ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0).min(999_999_999),
            device: stat.st_dev,
            inode: stat.st_ino,
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            has_other_names: stat.st_nlink > 1,
            owner: stat.st_uid,
            group: stat.st_gid,
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_runs_as_nobody_whose_it_is_not() {
        let mine = Status::from(nix::sys::stat::stat("/proc/self").unwrap());
        let (own, other) = ((mine.owner, mine.group), (mine.owner + 1, mine.group + 1));
        let mode = |node, (owner, _): (u32, u32), (_, group): (u32, u32)| {
            Status { node, owner, group, mode: 0o6755, ..mine }.mode_of_a_copy()
        };
        assert_eq!(mode(Node::File, own, own), 0o6755);
        assert_eq!(mode(Node::File, other, own), 0o2755);
        assert_eq!(mode(Node::File, own, other), 0o4755);
        assert_eq!(mode(Node::File, other, other), 0o755);
        assert_eq!(mode(Node::Directory, other, other), 0o6755);
    }
}
