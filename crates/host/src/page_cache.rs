//! Which files the kernel keeps in its page cache as they are read, so that it can send their pages as well.

use std::fs::File;

use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, F2FS_SUPER_MAGIC, FsType, NFS_SUPER_MAGIC, TMPFS_MAGIC,
    XFS_SUPER_MAGIC, fstatfs,
};

/// Whether what read(2) gives of `file` lies in pages that sendfile(2) then gives without reading it again. False where that is not known: FUSE
/// and 9p may read past the page cache, and then have it filled anew, or have something older there.
#[must_use]
pub fn has_pages(file: &File) -> bool {
    fstatfs(file).is_ok_and(|about| WITH_PAGES.contains(&about.filesystem_type()))
}

/// EXT4 has the magic number of its forebears, too.
const WITH_PAGES: [FsType; 6] =
    [EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, TMPFS_MAGIC, NFS_SUPER_MAGIC];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::memory_file;

    #[test]
    fn a_file_in_memory_has_pages_and_one_that_is_made_as_it_is_read_has_none() {
        assert!(has_pages(&memory_file("pages", b"content").unwrap()));
        assert!(!has_pages(&File::open("/proc/self/status").unwrap()));
    }
}
