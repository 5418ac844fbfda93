//! Files with holes: where their data are, and how to write without filling the holes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc::off_t;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::{Whence, lseek};

/// The parts of a file that may hold anything but zeros, ascending: lseek(2), `SEEK_DATA` and `SEEK_HOLE`.
///
/// They are asked for one by one: a file may have any number of them.
#[derive(Debug)]
pub struct Extents<'a> {
    file: &'a File,
    from: u64,
    size: u64,
}

impl<'a> Extents<'a> {
    /// Of the first `size` bytes of `file`. Where its file system does not tell, all of it is data.
    #[must_use]
    pub const fn new(file: &'a File, size: u64) -> Self {
        Self { file, from: 0, size }
    }

    fn search(&self, from: u64, whence: Whence) -> Result<u64, Errno> {
        let from = off_t::try_from(from).map_err(|_| Errno::ENXIO)?;
        lseek(self.file, from, whence).map(|found| u64::try_from(found).unwrap_or(0))
    }
}

impl Iterator for Extents<'_> {
    type Item = io::Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.from >= self.size {
            return None;
        }
        let start = match self.search(self.from, Whence::SeekData) {
            Ok(start) => start,
            // lseek(2): no data behind it.
            Err(Errno::ENXIO) => self.size,
            Err(Errno::EINVAL) => self.from,
            Err(errno) => return Some(Err(self.give_up(errno))),
        };
        if start >= self.size {
            self.from = self.size;
            return None;
        }
        let end = match self.search(start, Whence::SeekHole) {
            Ok(end) => end.min(self.size),
            // It was cut meanwhile, or its file system does not tell.
            Err(Errno::ENXIO | Errno::EINVAL) => self.size,
            Err(errno) => return Some(Err(self.give_up(errno))),
        };
        self.from = end;
        Some(Ok(start..end))
    }
}

impl Extents<'_> {
    fn give_up(&mut self, errno: Errno) -> io::Error {
        self.from = self.size;
        errno.into()
    }
}

/// Whether there is nothing in `file` between `from` and `end`; false where its file system does not tell.
///
/// # Errors
/// As lseek(2).
pub fn is_hole(file: &File, from: u64, end: u64) -> io::Result<bool> {
    let next = Extents { file, from, size: end }.next().transpose()?;
    Ok(next.is_none_or(|data| data.start >= end))
}

/// Makes `file` `length` bytes long and reserves them on its disk, so that a full disk is known before anything is written, and blocks
/// that come out of order lie in order. False where the file system cannot, or gains nothing: then the file is only made as long.
///
/// # Errors
/// As fallocate(2): `ENOSPC` where there is no room.
pub fn preallocate(file: &File, length: u64) -> io::Result<bool> {
    let reserved = || -> Result<bool, Errno> {
        if length == 0 {
            return Ok(false);
        }
        // In memory there is no order to gain, and the pages would all be taken in one go before the first byte may be written.
        if let Some(about) = fstatfs(file).ok().filter(|about| about.filesystem_type() == TMPFS_MAGIC) {
            let has = file.metadata().map_or(0, |found| found.blocks() * 512);
            let free = about.blocks_available().saturating_mul(about.block_size() as u64);
            // One without blocks has as many as there is memory.
            let is_full = about.blocks() > 0 && length.saturating_sub(has) > free;
            return if is_full { Err(Errno::ENOSPC) } else { Ok(false) };
        }
        let length = off_t::try_from(length).map_err(|_| Errno::EFBIG)?;
        loop {
            match fallocate(file, FallocateFlags::empty(), 0, length) {
                Err(Errno::EINTR) => {}
                Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => return Ok(false),
                other => return other.map(|()| true),
            }
        }
    };
    let reserved = reserved()?;
    if !reserved {
        file.set_len(length)?;
    }
    Ok(reserved)
}

/// Makes a part of `file` a hole: it reads as zeros. False where the file system has no holes to make.
///
/// # Errors
/// As fallocate(2).
pub fn punch(file: &File, offset: u64, length: u64) -> io::Result<bool> {
    let off = |bytes| off_t::try_from(bytes).map_err(|_| Errno::EFBIG);
    let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match fallocate(file, mode, off(offset)?, off(length)?) {
        Ok(()) => Ok(true),
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes zeros over what is not zero in `file` from `from` to before `end`, and leaves holes where they are. `progress` is told of bytes that were
/// read, and says whether to go on.
///
/// # Errors
/// As lseek(2), pread(2) and pwrite(2); [`io::ErrorKind::Interrupted`] where `progress` ended it.
pub fn zero(file: &File, from: u64, end: u64, progress: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
    let (mut buffer, zeros) = (vec![0; PIECE], vec![0; PIECE]);
    for extent in (Extents { file, from, size: end }) {
        let mut data = extent?;
        while data.start < data.end {
            let part = PIECE.min((data.end - data.start) as usize);
            let read = read_at(file, data.start, &mut buffer[..part])?;
            if !is_zero(&buffer[..read]) {
                write_at(file, data.start, &zeros[..read])?;
            }
            if !progress(read as u64) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            data.start += part as u64;
        }
    }
    Ok(())
}

/// Reads from `offset` until `buffer` is full or the file ends; returns how much it was.
///
/// # Errors
/// As pread(2).
pub fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// As pwrite(2).
pub fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Writes what is not zero of `bytes` at `offset`, by pages of [`PAGE`] of the file. What is left out is not touched: it stays what it was.
///
/// # Errors
/// As pwrite(2).
pub fn write_data_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut begun = None;
    let mut at = 0;
    while at < bytes.len() {
        let page = PAGE - ((offset + at as u64) % PAGE as u64) as usize;
        let end = bytes.len().min(at + page);
        match (is_zero(&bytes[at..end]), begun) {
            (false, None) => begun = Some(at),
            (true, Some(from)) => {
                write_at(file, offset + from as u64, &bytes[from..at])?;
                begun = None;
            }
            _ => {}
        }
        at = end;
    }
    begun.map_or(Ok(()), |from| write_at(file, offset + from as u64, &bytes[from..]))
}

/// Whether there is nothing but zeros in `bytes`.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    // The first is zero, and each is as the one before it: memcmp(3), which is as fast as memory.
    bytes.split_first().is_none_or(|(first, rest)| *first == 0 && *rest == bytes[..rest.len()])
}

/// What is looked at at once: as much as is read fast.
const PIECE: usize = 256 << 10;

/// Bytes of a hole at least: what most file systems keep together.
pub const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::status_of;

    fn scratch(name: &str) -> File {
        let path = std::env::temp_dir().join(format!("sparse-{name}-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }

    #[test]
    fn data_are_found_between_holes() {
        let file = scratch("extents");
        file.set_len(1 << 20).unwrap();
        write_at(&file, 65_536, &[1; 65_536]).unwrap();
        write_at(&file, 524_288, &[1; 10]).unwrap();
        let extents: Vec<_> = Extents::new(&file, 1 << 20).map(Result::unwrap).collect();
        // A file system may have larger blocks than a page: what is data must be said to be.
        assert!(extents.iter().any(|extent| extent.start <= 65_536 && extent.end >= 131_072), "{extents:?}");
        assert!(extents.iter().any(|extent| extent.start <= 524_288 && extent.end >= 524_298), "{extents:?}");
        assert!(extents.windows(2).all(|pair| pair[0].end < pair[1].start), "{extents:?}");
        assert_eq!(Extents::new(&file, 0).count(), 0);
        assert_eq!(Extents::new(&scratch("none"), 100).count(), 0);
    }

    #[test]
    fn zeros_leave_holes_wherever_pages_begin() {
        let file = scratch("holes");
        let mut bytes = vec![0; 64 * PAGE];
        bytes[5 * PAGE - 1] = 1;
        bytes[40 * PAGE..42 * PAGE].fill(7);
        for offset in [0, 100, 3 * PAGE as u64 + 1] {
            file.set_len(0).unwrap();
            file.set_len(offset + bytes.len() as u64).unwrap();
            write_data_at(&file, offset, &bytes).unwrap();
            let mut read = vec![9; bytes.len() + 1];
            assert_eq!(read_at(&file, offset, &mut read).unwrap(), bytes.len());
            assert_eq!(read[..bytes.len()], bytes);
            assert!(status_of(&file).unwrap().blocks * 512 <= 8 * PAGE as u64, "{offset}");
        }
    }

    #[test]
    fn what_is_reserved_is_long_and_what_is_punched_is_empty() {
        let file = scratch("punch");
        preallocate(&file, 1 << 20).unwrap();
        assert_eq!(status_of(&file).unwrap().size, 1 << 20);
        write_at(&file, 0, &[1; 3 * PAGE]).unwrap();
        if punch(&file, PAGE as u64, PAGE as u64).unwrap() {
            let mut read = vec![9; 3 * PAGE];
            assert_eq!(read_at(&file, 0, &mut read).unwrap(), read.len());
            assert!(is_zero(&read[PAGE..2 * PAGE]) && read[0] == 1 && read[3 * PAGE - 1] == 1);
        }
    }

    #[test]
    fn what_is_not_zero_becomes_zero_and_holes_stay() {
        let file = scratch("zero");
        file.set_len(64 << 20).unwrap();
        let (first, second) = ((5 << 20) + 7, (40 << 20) - 3);
        for at in [first, second] {
            write_at(&file, at, &[1; 100_000]).unwrap();
        }
        let before = status_of(&file).unwrap().blocks;
        let mut read = 0;
        zero(&file, 0, second + 50_000, &mut |bytes| {
            read += bytes;
            true
        })
        .unwrap();
        let mut all = vec![9; 64 << 20];
        assert_eq!(read_at(&file, 0, &mut all).unwrap(), all.len());
        let stays = second as usize + 50_000..second as usize + 100_000;
        assert!(is_zero(&all[..stays.start]) && is_zero(&all[stays.end..]));
        assert!(all[stays].iter().all(|byte| *byte == 1), "what is behind the end stays");
        assert!(read >= 150_000, "{read}");
        assert!(status_of(&file).unwrap().blocks <= before, "holes are none any more");
        let ended = zero(&file, 0, 64 << 20, &mut |_| false).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn zero_is_told_from_all_else() {
        for length in [0, 1, 2, 15, 4096, 4097] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes), "{length}");
            for at in [0, length / 2, length.saturating_sub(1)] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = 1;
                    assert!(!is_zero(&bytes), "{length}, {at}");
                    bytes[at] = 0;
                }
            }
        }
    }
}
