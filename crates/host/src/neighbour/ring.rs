//! Memory that one process writes records to and another reads them from.
//!
//! A page of positions and flags, and the records behind it: each begins at a multiple of 64 bytes with its length, and lies there in one
//! piece. Where the rest of the memory is too short for the next one, a mark says so, and it begins at the start. Positions count bytes and
//! never go back.
//!
//! Nothing that the other process wrote is believed: positions and lengths are checked against the memory that is there before it is touched.
//! That it does not change a record while it is read cannot be checked; it is of the same user and was let in.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::ftruncate;

/// Why a ring is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel refused to map it, or to say what it is.
    #[error("take a neighbour's memory")]
    System(#[source] io::Error),
    /// It could become shorter than it is, and who reads it then is killed.
    #[error("a neighbour's memory is not sealed")]
    Unsealed,
    /// It has no such length.
    #[error("a neighbour's memory has {bytes} bytes")]
    Size {
        /// Of the whole.
        bytes: u64,
    },
    /// The other side is where it cannot be.
    #[error("a neighbour says that it is at {theirs}, from {ours}")]
    Position {
        /// Where it says that it is.
        theirs: u64,
        /// Where this side is.
        ours: u64,
    },
    /// A record that does not fit.
    #[error("a neighbour's record at {at} has {len} bytes")]
    Record {
        /// Its position.
        at: u64,
        /// As it says.
        len: u32,
    },
}

/// The memory, mapped.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    capacity: usize,
}

/// What is written by one side alone, on cache lines of its own: two of 64 bytes, because processors fetch them in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
struct Apart<T>(T);

/// What both sides tell each other.
#[derive(Debug)]
#[repr(C)]
struct Header {
    written: Apart<AtomicU64>,
    read: Apart<AtomicU64>,
    reader_sleeps: Apart<AtomicU32>,
    writer_sleeps: Apart<AtomicU32>,
}

// SAFETY: the mapping has one owner, and moving that to another thread moves nothing else.
unsafe impl Send for Ring {}

impl Ring {
    /// A new one, and the file that another process maps it from.
    pub(super) fn create(capacity: usize) -> io::Result<(OwnedFd, Self)> {
        if !capacity.is_power_of_two() || !(LEAST..=MOST).contains(&capacity) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let memory = memfd_create("farlink", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        ftruncate(&memory, (HEADER + capacity) as i64)?;
        fcntl(&memory, FcntlArg::F_ADD_SEALS(SEALS | SealFlag::F_SEAL_SEAL))?;
        let ring = Self::map(&memory, capacity)?;
        Ok((memory, ring))
    }

    /// One that another process made.
    pub(super) fn adopt(memory: OwnedFd) -> Result<Self, RingError> {
        let seals = fcntl(&memory, FcntlArg::F_GET_SEALS).map_err(|error| RingError::System(error.into()))?;
        if !SealFlag::from_bits_retain(seals).contains(SEALS) {
            return Err(RingError::Unsealed);
        }
        let memory = File::from(memory);
        let bytes = memory.metadata().map_err(RingError::System)?.len();
        let capacity = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_sub(HEADER));
        let capacity = capacity
            .filter(|capacity| capacity.is_power_of_two() && (LEAST..=MOST).contains(capacity))
            .ok_or(RingError::Size { bytes })?;
        Self::map(&memory, capacity).map_err(RingError::System)
    }

    fn map(memory: &impl AsFd, capacity: usize) -> io::Result<Self> {
        let len = NonZeroUsize::new(HEADER + capacity).unwrap_or(NonZeroUsize::MIN);
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing. The file has that length, and is sealed so that it
        // keeps it.
        let base = unsafe { mmap(None, len, access, MapFlags::MAP_SHARED, memory, 0) }?;
        Ok(Self { base: base.cast(), capacity })
    }

    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of the longest record: one always fits into an empty ring, wherever that begins.
    pub(super) const fn longest(&self) -> usize {
        let half = self.capacity / 2 - STEP;
        if half < LONGEST { half } else { LONGEST }
    }

    const fn header(&self) -> &Header {
        // SAFETY: the mapping begins with a page, aligned as pages are, that holds nothing but atomics, for which every value is valid and
        // which other processes may change.
        unsafe { self.base.cast().as_ref() }
    }

    /// Bytes from a position to the end of the memory.
    pub(super) const fn to_end(&self, position: u64) -> usize {
        self.capacity - self.offset(position)
    }

    const fn offset(&self, position: u64) -> usize {
        position as usize & (self.capacity - 1)
    }

    /// The length of the record at a position, or [`MARK`].
    pub(super) fn length(&self, position: u64) -> &AtomicU32 {
        let offset = self.offset(position) & !(STEP - 1);
        // SAFETY: the offset is less than the capacity, so the address is within the mapping.
        let at = unsafe { self.base.add(HEADER + offset) };
        // SAFETY: it is aligned to 64 bytes, so that four of them are there. They are used as an atomic alone.
        unsafe { at.cast().as_ref() }
    }

    /// `len` bytes of the record at a position.
    ///
    /// # Panics
    /// Where the memory ends before.
    pub(super) fn bytes(&self, position: u64, len: usize) -> &[u8] {
        let at = self.place(position, len);
        // SAFETY: `len` bytes from there are mapped for the life of `self`, and always initialised. The other process leaves them alone
        // from when it publishes them until they are released; see the module's text on one that does not.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), len) }
    }

    /// As [`Self::bytes`], to write to.
    ///
    /// # Panics
    /// Where the memory ends before.
    pub(super) fn bytes_mut(&mut self, position: u64, len: usize) -> &mut [u8] {
        let at = self.place(position, len);
        // SAFETY: as above, and `self` is borrowed mutably. The other process leaves them alone from when it releases them until they are
        // published.
        unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len) }
    }

    fn place(&self, position: u64, len: usize) -> NonNull<u8> {
        assert!(len <= self.to_end(position) - PREFIX, "a record ends where the memory does");
        // SAFETY: the offset is less than the capacity, so the address is within the mapping.
        unsafe { self.base.add(HEADER + self.offset(position) + PREFIX) }
    }

    /// Where the writer is, as it said last.
    pub(super) fn written(&self) -> u64 {
        self.header().written.0.load(Ordering::Acquire)
    }

    /// Where the reader is, as it said last.
    pub(super) fn read(&self) -> u64 {
        self.header().read.0.load(Ordering::Acquire)
    }

    /// Says that all before `position` was written; true where the reader sleeps and is to be woken.
    pub(super) fn publish(&self, position: u64) -> bool {
        let header = self.header();
        header.written.0.store(position, Ordering::Release);
        take(&header.reader_sleeps.0)
    }

    /// Says that all before `position` was read; true where the writer sleeps and is to be woken.
    pub(super) fn release(&self, position: u64) -> bool {
        let header = self.header();
        header.read.0.store(position, Ordering::Release);
        take(&header.writer_sleeps.0)
    }

    pub(super) fn set_reader_sleeps(&self, sleeps: bool) {
        say(&self.header().reader_sleeps.0, sleeps);
    }

    pub(super) fn set_writer_sleeps(&self, sleeps: bool) {
        say(&self.header().writer_sleeps.0, sleeps);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and no borrow of it outlives `self`.
        let _ = unsafe { munmap(self.base.cast(), HEADER + self.capacity) };
    }
}

/// Bytes that a record of `len` bytes takes.
pub(super) const fn taken(len: usize) -> usize {
    (PREFIX + len).next_multiple_of(STEP)
}

/// Whether the other side said that it sleeps, after having moved on oneself.
///
/// One side stores its position and then loads the flag, the other stores the flag and then loads the position. With a full fence between,
/// at least one of them sees what the other stored, so that nobody sleeps on what is there.
fn take(sleeps: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::Relaxed) != 0
}

/// Says that one sleeps, before looking for the last time.
fn say(flag: &AtomicU32, sleeps: bool) {
    flag.store(sleeps.into(), Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// The least capacity, bytes.
pub const LEAST: usize = 4096;

/// The greatest capacity, bytes: more would not stay in any processor's cache.
pub const MOST: usize = 1 << 26;

/// What is ample for processes of one host: some 16 of the longest records.
pub const USUAL: usize = 1 << 20;

/// Bytes of the longest record, in a ring of 256 KiB and more.
pub const LONGEST: usize = 1 << 16;

/// In place of a length: the next record begins at the start of the memory.
pub(super) const MARK: u32 = u32::MAX;

/// Bytes before the records.
const HEADER: usize = 4096;

/// Records begin at multiples of it: a cache line's bytes.
pub(super) const STEP: usize = 64;

/// Bytes before a record's own: its length, and as many again, so that those are aligned as numbers of 64 bits are.
pub(super) const PREFIX: usize = 8;

/// The memory keeps its length: whoever reads behind a file's end is killed (SIGBUS).
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW);
