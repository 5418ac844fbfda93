//! Memory of the kernel's that has been touched, for the packets and socket buffers to come.
//!
//! A hypervisor may take a virtual machine's free memory back. What the guest's kernel allocates next is then
//! first touched again: 64 KiB take 170 µs in place of 13 (measured where this was written), so that a receiver's queue
//! that grows by a bandwidth-delay product costs seconds. What is taken back are whole free blocks of megabytes. So
//! memory is touched by queueing it in UNIX sockets, then freed but for a small part of every megabyte: the kernel hands
//! out the smallest blocks that fit first, which are now these, and they never grow together into one that is
//! worth taking.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use crate::socket::{Buffer, set_buffer};

/// Touched kernel memory, kept in small blocks until dropped.
#[derive(Debug)]
pub struct KernelMemory {
    _pins: Vec<Queue>,
    touched: u64,
}

/// A socket that nobody reads and what is queued for it.
type Queue = (UnixStream, UnixStream);

impl KernelMemory {
    /// Touches `bytes`, or as much as this process may: an ordinary user has too few descriptors for gigabytes.
    ///
    /// # Errors
    /// Where not even one socket can be had.
    pub fn touch(bytes: u64) -> io::Result<Self> {
        let piece = vec![0; PIECE];
        let (mut freed, mut pins) = (vec![queue()?], vec![queue()?]);
        let mut touched = 0;
        while touched < bytes {
            let is_pin = (touched / PIECE as u64) % PIECES_A_PIN == PIECES_A_PIN - 1;
            match fill(if is_pin { &mut pins } else { &mut freed }, &piece) {
                Ok(()) => touched += PIECE as u64,
                // Out of descriptors or of memory: what there is will do.
                Err(_) => break,
            }
        }
        Ok(Self { _pins: pins, touched })
    }

    /// How much was touched, bytes.
    #[must_use]
    pub const fn touched(&self) -> u64 {
        self.touched
    }
}

/// Queues `piece` in the last of `queues`, or in a new one where that is full.
fn fill(queues: &mut Vec<Queue>, piece: &[u8]) -> io::Result<()> {
    if let Some((into, _)) = queues.last_mut() {
        match into.write(piece) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return written.map(drop),
        }
    }
    let mut fresh = queue()?;
    fresh.0.write_all(piece)?;
    queues.push(fresh);
    Ok(())
}

fn queue() -> io::Result<Queue> {
    let (into, from) = UnixStream::pair()?;
    into.set_nonblocking(true)?;
    // Best effort: with the host's limit, it takes more of them.
    let _ = set_buffer(&into, Buffer::Send, QUEUE);
    Ok((into, from))
}

/// The block in which the kernel allocates the data of sockets (`PAGE_ALLOC_COSTLY_ORDER`: 8 pages of 4 KiB).
const PIECE: usize = 32 << 10;

/// One piece in every megabyte is kept.
const PIECES_A_PIN: u64 = 32;

/// What one socket is asked to queue.
const QUEUE: u32 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touches_what_was_asked() {
        let memory = KernelMemory::touch(5 << 20).unwrap();
        assert_eq!(memory.touched(), 5 << 20);
        assert!(!memory._pins.is_empty());
        assert_eq!(KernelMemory::touch(0).unwrap().touched(), 0);
    }
}
