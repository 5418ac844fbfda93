//! Datagrams of a job, sealed and opened: AES-256-GCM (RFC 5116). Each context has a key of its own, derived from the job's; the nonce is
//! the datagram's number and the direction that it goes in, which no two datagrams of a context share.

use farlink_wire::fabric::datagram::Clear;

use super::operation::EndpointId;
use crate::aead::{Key, NONCE};

/// Seals and opens the datagrams of one context.
#[derive(Debug)]
pub struct Cipher(Key);

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the context's owner.
    Forth,
    /// To it: acknowledgements.
    Back,
}

impl Cipher {
    /// Of the context `number` that endpoint `from` has to endpoint `to`. Who has not the job's key has none of its contexts', and a
    /// datagram for one endpoint means nothing to another.
    #[must_use]
    pub fn new(job: &[u8; 32], from: EndpointId, to: EndpointId, number: u64) -> Option<Self> {
        let mut hasher = blake3::Hasher::new_keyed(job);
        hasher.update(b"farlink mpi 1").update(&from.0.to_be_bytes()).update(&to.0.to_be_bytes());
        let key = hasher.update(&number.to_be_bytes()).finalize();
        Key::new(key.as_bytes()).map(Self)
    }

    /// Makes a datagram of `datagram`, whose body stands behind [`Clear::LEN`] bytes and before its tag, but for its end, `rest`, for
    /// which there is room there.
    ///
    /// # Panics
    /// Where it has no room for these.
    pub fn seal(&self, clear: Clear, direction: Direction, datagram: &mut [u8], rest: &[u8]) {
        datagram[..Clear::LEN].copy_from_slice(&clear.encode());
        let (front, body) = datagram.split_at_mut(Clear::LEN);
        let sealed = self.0.seal(nonce(clear.number, direction), front, body, rest);
        assert!(sealed.is_some(), "no room for {} bytes and a tag", rest.len());
    }

    /// The body of a datagram that is genuine.
    pub fn open<'a>(&self, clear: Clear, direction: Direction, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let (front, sealed) = datagram.split_at_mut_checked(Clear::LEN)?;
        self.0.open(nonce(clear.number, direction), front, sealed)
    }
}

fn nonce(number: u64, direction: Direction) -> [u8; NONCE] {
    let mut bytes = [0; NONCE];
    bytes[0] = direction as u8;
    bytes[NONCE - 8..].copy_from_slice(&number.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use farlink_wire::fabric::datagram::{About, TAG};

    use super::*;

    #[test]
    fn a_datagram_opens_for_its_addressee_of_its_job_alone() {
        let (a, b, c) = (EndpointId(1), EndpointId(2), EndpointId(3));
        let cipher = |job: u8, from, to, number| Cipher::new(&[job; 32], from, to, number).unwrap();
        let clear = Clear { about: About::Data, context: 7, source: 1, number: 9 };
        let mut sealed = [b'x'; Clear::LEN + 5 + TAG];
        cipher(1, a, b, 7).seal(clear, Direction::Forth, &mut sealed, &[]);
        let open = |cipher: &Cipher, clear, direction, mut datagram: [u8; 45]| {
            cipher.open(clear, direction, &mut datagram).map(<[u8]>::to_vec)
        };
        assert_eq!(open(&cipher(1, a, b, 7), clear, Direction::Forth, sealed).unwrap(), b"xxxxx");
        for other in [cipher(2, a, b, 7), cipher(1, a, c, 7), cipher(1, b, a, 7), cipher(1, a, b, 8)] {
            assert!(open(&other, clear, Direction::Forth, sealed).is_none());
        }
        let right = cipher(1, a, b, 7);
        assert!(open(&right, clear, Direction::Back, sealed).is_none());
        assert!(open(&right, Clear { number: 10, ..clear }, Direction::Forth, sealed).is_none());
        for at in 0..sealed.len() {
            let mut damaged = sealed;
            damaged[at] ^= 1;
            assert!(open(&right, clear, Direction::Forth, damaged).is_none());
        }
    }
}
