//! The small files of `/proc` and `/sys` in which the kernel tells of itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A reader of such files that remembers which it was not allowed to read.
///
/// A file that is not there, or that has no answer (as the speed of an interface without one), is an absent fact.
#[derive(Debug, Default)]
pub struct KernelFiles {
    denied: Vec<PathBuf>,
}

impl KernelFiles {
    /// What the file says, without the space around it.
    pub fn text(&mut self, path: impl AsRef<Path>) -> Option<String> {
        let path = path.as_ref();
        match fs::read_to_string(path) {
            Ok(text) => Some(text.trim().to_owned()),
            Err(error) => {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    self.denied.push(path.to_owned());
                }
                None
            }
        }
    }

    /// What the file says, where that is one number or another single value.
    pub fn value<T: FromStr>(&mut self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// The last part of what the symbolic link leads to.
    pub fn link(&mut self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(path).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The names in a directory, in order.
    pub fn names(&mut self, directory: impl AsRef<Path>) -> Vec<String> {
        let directory = directory.as_ref();
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    self.denied.push(directory.to_owned());
                }
                return Vec::new();
            }
        };
        let mut names: Vec<_> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The files that this process was not allowed to read.
    #[must_use]
    pub fn denied(&self) -> &[PathBuf] {
        &self.denied
    }
}

/// The numbers of a list as the kernel writes it, `0-3,8` (bitmap_parselist in the kernel's lib/bitmap-str.c); empty
/// where it is none.
#[must_use]
pub fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (last.checked_sub(first)? < MOST_NUMBERS).then_some(first..=last)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// More processors than Linux can be built for (`NR_CPUS` is at most 8192).
const MOST_NUMBERS: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_of_numbers() {
        assert_eq!(numbers("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(numbers("5"), [5]);
        assert_eq!(numbers(""), [] as [u32; 0]);
        assert_eq!(numbers("3-1,x,0-4294967295"), [] as [u32; 0]);
    }

    #[test]
    fn what_is_not_there_is_absent_and_was_not_denied() {
        let mut files = KernelFiles::default();
        assert_eq!(files.text("/proc/none-such"), None);
        assert_eq!(files.names("/proc/none-such"), [] as [String; 0]);
        assert!(files.value::<u32>("/proc/sys/kernel/threads-max").is_some());
        assert!(files.denied().is_empty());
    }
}
