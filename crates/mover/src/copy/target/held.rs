//! A file that stands under its final name already, perhaps with the content that comes: an earlier run of the same command may have
//! finished it.

use std::fs::File;
use std::io;
use std::sync::OnceLock;

use farlink_flow::digest::BlockHasher;
use farlink_host::beneath::{Node, Status, status_of};
use farlink_host::{disk, namespace, sparse};
use farlink_wire::entry::{Digest, Entry, Kind, Metadata};

use super::placing::Place;
use super::{Target, TargetError, is_still};
use crate::copy::outgoing::holes;
use crate::copy::receiving::MOST_ZEROS;

/// A file of the right size under the final name, open to be read.
#[derive(Debug)]
pub struct Held {
    file: File,
    place: Place,
    /// What it was when it was opened, and when it began to be compared.
    found: Status,
    compared: OnceLock<Status>,
    size: u64,
    block_bytes: u64,
}

impl Target {
    /// The file under the final name of `entry`, where it is a regular one of the same size and no partial file is there. Nothing is made.
    pub fn held(&self, entry: &Entry, block_bytes: u64) -> Option<Held> {
        let Kind::File { size } = entry.kind else { return None };
        self.placing.expect(entry).ok()?;
        let place = self.placing.look(&entry.path, false).ok()??;
        let (partial, _) = self.partial_names(&entry.path);
        if place.directory.status(&partial).is_ok() {
            return None;
        }
        let status = place.directory.status(&place.name).ok()?;
        if status.node != Node::File || status.size != size {
            return None;
        }
        let file = place.directory.open_read(&place.name).ok()?;
        let found = status_of(&file).ok().filter(|opened| opened.is_same_file(&status))?;
        if self.options.read_back {
            // What is proven to be the same is what the disk has.
            disk::forget(&file).ok()?;
        }
        (found.size == size).then_some(Held {
            file,
            place,
            found,
            compared: OnceLock::new(),
            size,
            block_bytes,
        })
    }

    /// Gives `held`, whose content is what comes, the mode and the time of `entry`, and takes away what an earlier run may have left
    /// beside it.
    ///
    /// # Errors
    /// [`TargetError`], as where somebody else owns it and its mode or time is another, or where it is not what it was or where.
    pub fn keep(&self, held: &Held, entry: &Entry) -> Result<(), TargetError> {
        let failed = |source| TargetError::of("set the mode or time of", &held.place.shown, source);
        let metadata = &entry.metadata;
        let status = status_of(&held.file).map_err(failed)?;
        let time = |status: &Status| (status.mtime_s, status.mtime_ns);
        // Another of its names may have been given this time already.
        let is_as_found = time(&status) == time(held.compared.get().unwrap_or(&held.found))
            || time(&status) == (metadata.mtime_s, metadata.mtime_ns);
        if status.size != held.size
            || !is_as_found
            || !is_still(&held.place.directory, &held.place.name, &held.file).map_err(failed)?
        {
            return Err(held.changed());
        }
        let is_right = status.mode == metadata.mode & self.options.mode_mask && held.has_time_of(metadata);
        let refused =
            if is_right { None } else { self.set_metadata(&held.file, metadata).map_err(failed)? };
        // Its owner may do so wherever that is possible at all.
        if refused.is_some() && status.owner != namespace::user() {
            return Err(failed(io::ErrorKind::PermissionDenied.into()));
        }
        if self.options.fsync {
            // An earlier run may not have been asked to, or may have ended before it did.
            held.file.sync_all().and_then(|()| held.place.directory.sync()).map_err(failed)?;
        }
        // An earlier run may have ended between the last two steps of finishing it.
        let _ = held.place.directory.unlink(&self.partial_names(&entry.path).1);
        refused.map_or(Ok(()), |refused| Err(refused.at(&held.place.shown)))
    }
}

impl Held {
    /// Whether it was changed last when `metadata` says, so that it may well be the same.
    #[must_use]
    pub fn has_time_of(&self, metadata: &Metadata) -> bool {
        status_of(&self.file)
            .is_ok_and(|found| (found.mtime_s, found.mtime_ns) == (metadata.mtime_s, metadata.mtime_ns))
    }

    /// Whether there is nothing in the `count` blocks from `first`: as far as the file system tells, which may call it something.
    #[must_use]
    pub fn is_hole(&self, first: u32, count: u32) -> bool {
        let from = u64::from(first) * self.block_bytes;
        let end = self.size.min(from + u64::from(count) * self.block_bytes);
        sparse::is_hole(&self.file, from, end).unwrap_or(false)
    }

    /// Runs of its blocks in which there is nothing, first and number, where these are so many that it would take minutes to hash nothing.
    #[must_use]
    pub fn vast_holes(&self) -> Vec<(u32, u32)> {
        let holes = self.holes();
        let bytes: u64 = holes.iter().map(|(_, count)| u64::from(*count) * self.block_bytes).sum();
        if bytes > MOST_ZEROS { holes } else { Vec::new() }
    }

    fn holes(&self) -> Vec<(u32, u32)> {
        let data = sparse::Extents::new(&self.file, self.size);
        // Where the file system does not tell, the rest of it is data.
        let mut failed = false;
        let data = data.map(|extent| {
            extent.unwrap_or_else(|_| {
                failed = true;
                0..self.size
            })
        });
        holes(self.size, data)
    }

    /// The digests of all its blocks, but for those that are [`without`](Self::blocks) any. `progress` is told of bytes that were read, and
    /// says whether to go on.
    ///
    /// # Errors
    /// [`TargetError`], also where it does not go on.
    pub fn proven(
        &self,
        without: &[(u32, u32)],
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<(u32, Digest)>, TargetError> {
        if let Ok(now) = status_of(&self.file) {
            let _ = self.compared.set(now);
        }
        let mut digests = Vec::new();
        let mut take = |_, piece: &[u8]| {
            if progress(piece.len() as u64) { Ok(()) } else { Err(self.interrupted()) }
        };
        self.blocks(without, &mut take, &mut |index, digest| {
            digests.push((index, digest));
            Ok(())
        })?;
        Ok(digests)
    }

    /// Hands all its content to `take`, from the beginning: offset and bytes; and behind each block its number and digest to `end`; `without`
    /// the blocks of these runs, which ascend.
    ///
    /// # Errors
    /// [`TargetError`], those of `take` and `end` included.
    pub fn blocks(
        &self,
        without: &[(u32, u32)],
        take: &mut Take<'_>,
        end: &mut dyn FnMut(u32, Digest) -> Result<(), TargetError>,
    ) -> Result<(), TargetError> {
        let blocks = self.size.div_ceil(self.block_bytes) as u32;
        let mut buffer = vec![0; READ_BYTES];
        let mut next = 0;
        let end_of_all = (blocks, 0);
        let within = without.iter().chain([&end_of_all]).flat_map(|(first, count)| {
            let between = next..*first;
            next = first + count;
            between
        });
        // To read nothing takes longer than to know it, and room in the kernel's memory.
        let holes = self.holes();
        let mut empty = holes.iter().flat_map(|(first, count)| *first..first + count).peekable();
        for index in within {
            while empty.next_if(|each| *each < index).is_some() {}
            let is_empty = empty.peek() == Some(&index);
            let mut hasher = BlockHasher::new(self.size, self.block_bytes, index);
            let from = u64::from(index) * self.block_bytes;
            self.each(
                from,
                (self.size - from).min(self.block_bytes),
                &mut buffer,
                is_empty,
                &mut |offset, piece| {
                    hasher.update(piece);
                    take(offset, piece)
                },
            )?;
            end(index, hasher.finish())?;
        }
        Ok(())
    }

    /// Somebody else writes it.
    pub(in crate::copy) fn changed(&self) -> TargetError {
        TargetError::of("copy", &self.place.shown, io::Error::other("it was changed while it was compared"))
    }

    /// What was begun with it was given up.
    pub(in crate::copy) fn interrupted(&self) -> TargetError {
        TargetError::of("read again", &self.place.shown, io::ErrorKind::Interrupted.into())
    }

    fn each(
        &self,
        from: u64,
        length: u64,
        buffer: &mut [u8],
        is_empty: bool,
        take: &mut Take<'_>,
    ) -> Result<(), TargetError> {
        if is_empty {
            buffer.fill(0);
        }
        let failed = |source| TargetError::of("read again", &self.place.shown, source);
        let mut at = 0;
        while at < length {
            let count = (length - at).min(buffer.len() as u64) as usize;
            let piece = &mut buffer[..count];
            if !is_empty && sparse::read_at(&self.file, from + at, piece).map_err(failed)? < count {
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
            take(from + at, piece)?;
            at += count as u64;
        }
        Ok(())
    }
}

/// Takes bytes and where they stand.
type Take<'a> = dyn FnMut(u64, &[u8]) -> Result<(), TargetError> + 'a;

/// Bytes that are read at once.
const READ_BYTES: usize = 256 * 1024;
