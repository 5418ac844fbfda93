//! The names in a directory, packed: a directory of a million names is a few dozen megabytes.

use std::io;
use std::os::fd::OwnedFd;

use nix::dir::Dir;

/// Names, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    bytes: Vec<u8>,
    /// Of each name where it begins in `bytes`, shifted by eight, and its length, at most 255.
    spans: Vec<u64>,
}

impl Names {
    /// What the directory `fd` has, but for itself and what it is in.
    pub(super) fn read(fd: OwnedFd) -> io::Result<Self> {
        let mut names = Self::default();
        for entry in Dir::from_fd(fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name)?;
            }
        }
        let Self { bytes, spans } = &mut names;
        spans.sort_unstable_by_key(|&span| cut(bytes, span));
        Ok(names)
    }

    fn push(&mut self, name: &[u8]) -> io::Result<()> {
        // NAME_MAX is 255 on every Linux file system; a longer one could not be opened.
        let length = u8::try_from(name.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidFilename))?;
        self.spans.push((self.bytes.len() as u64) << 8 | u64::from(length));
        self.bytes.extend(name);
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The name with this number, from 0.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&[u8]> {
        self.spans.get(index).map(|&span| cut(&self.bytes, span))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|&span| cut(&self.bytes, span))
    }
}

fn cut(bytes: &[u8], span: u64) -> &[u8] {
    let (start, length) = ((span >> 8) as usize, (span & 0xff) as usize);
    &bytes[start..start + length]
}
