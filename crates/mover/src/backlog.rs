//! Bytes that wait until a connection takes them, which is never waited for.

use std::io::{self, ErrorKind, Write};

/// What is to be sent, in its order.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: Vec<u8>,
    /// How many of `bytes` have left.
    left: usize,
}

impl Backlog {
    /// Sends `bytes` when [`Self::flush`] is called next.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Has `encode` add to what is sent when [`Self::flush`] is called next.
    pub fn push_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.bytes);
    }

    /// Bytes that wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() - self.left
    }

    /// Whether none does.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives up what waits.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.left = 0;
    }

    /// Sends as much as `connection` takes, and has that send what it keeps itself.
    ///
    /// # Errors
    /// As its write(2); [`ErrorKind::WriteZero`] where it takes nothing any more. What was not taken waits on.
    pub fn flush(&mut self, connection: &mut impl Write) -> io::Result<()> {
        while !self.is_empty() {
            match connection.write(&self.bytes[self.left..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(taken) => self.left += taken,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.is_empty() {
            self.clear();
        } else if self.left > MOST_KEPT {
            self.bytes.drain(..self.left);
            self.left = 0;
        }
        match connection.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            flushed => flushed,
        }
    }
}

/// Bytes that are kept though they have left: what waits behind them is moved less often.
const MOST_KEPT: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes a call, until it has room for no more.
    struct Narrow {
        a_call: usize,
        room: usize,
        taken: Vec<u8>,
        is_interrupted: bool,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.is_interrupted = !self.is_interrupted;
            if self.is_interrupted {
                return Err(ErrorKind::Interrupted.into());
            }
            let taken = bytes.len().min(self.a_call).min(self.room);
            if taken == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.room -= taken;
            self.taken.extend(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            if self.room == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        }
    }

    #[test]
    fn what_is_taken_in_parts_leaves_in_its_order_and_once() {
        let said: Vec<u8> = (0..4 * MOST_KEPT).map(|at| (at % 251) as u8).collect();
        let (mut backlog, mut narrow) =
            (Backlog::default(), Narrow { a_call: 5000, room: 0, taken: Vec::new(), is_interrupted: false });
        for part in said.chunks(MOST_KEPT / 3) {
            backlog.push(part);
            narrow.room += part.len() / 2;
            backlog.flush(&mut narrow).unwrap();
            assert_eq!(narrow.room, 0);
        }
        assert!(!backlog.is_empty());
        narrow.room = said.len();
        backlog.flush(&mut narrow).unwrap();
        assert!(backlog.is_empty() && narrow.taken == said);
    }

    #[test]
    fn a_connection_that_takes_nothing_any_more_is_an_error() {
        let mut backlog = Backlog::default();
        backlog.push(b"said");
        let mut nobody: &mut [u8] = &mut [];
        assert_eq!(backlog.flush(&mut nobody).unwrap_err().kind(), ErrorKind::WriteZero);
        assert_eq!(backlog.len(), 4);
        backlog.clear();
        backlog.flush(&mut nobody).unwrap();
    }
}
