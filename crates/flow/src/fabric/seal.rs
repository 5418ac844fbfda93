//! Datagrams of a job, sealed and opened: AES-256-GCM (RFC 5116). Each context has keys of its own, derived from the job's, one for each
//! 2^22 numbers; the nonce is the datagram's number and the direction that it goes in, which no two datagrams of a context share.

use core::fmt::{self, Debug, Formatter};

use farlink_wire::fabric::datagram::Clear;

use super::operation::EndpointId;
use crate::aead::{Key, NONCE};

/// Seals and opens the datagrams of one context.
pub struct Cipher {
    /// What its keys are derived from.
    secret: [u8; 32],
    /// Of the newest epoch in which its owner sealed something.
    epoch: u64,
    key: Key,
}

impl Debug for Cipher {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

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
        hasher.update(b"farlink mpi 4").update(&from.0.to_be_bytes()).update(&to.0.to_be_bytes());
        let secret = *hasher.update(&number.to_be_bytes()).finalize().as_bytes();
        Some(Self { key: key_of(&secret, 0)?, epoch: 0, secret })
    }

    /// Makes a datagram of `datagram`, whose body stands behind [`Clear::LEN`] bytes and before its tag, but for its end, `rest`, for
    /// which there is room there.
    ///
    /// # Panics
    /// Where it has no room for these.
    pub fn seal(&mut self, clear: Clear, direction: Direction, datagram: &mut [u8], rest: &[u8]) {
        datagram[..Clear::LEN].copy_from_slice(&clear.encode());
        let (front, body) = datagram.split_at_mut(Clear::LEN);
        let nonce = nonce(clear.number, direction);
        let sealed = self.with_key(clear.number, direction, |key| key.seal(nonce, front, body, rest));
        assert!(sealed.is_some(), "no room for {} bytes and a tag", rest.len());
    }

    /// The body of a datagram that is genuine.
    pub fn open<'a>(
        &mut self,
        clear: Clear,
        direction: Direction,
        datagram: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let (front, sealed) = datagram.split_at_mut_checked(Clear::LEN)?;
        let nonce = nonce(clear.number, direction);
        self.with_key(clear.number, direction, |key| key.open(nonce, front, sealed))
    }

    /// Does something with the key of a number's epoch. That of the newest is kept, once a datagram of the owner's was sealed by it or proved
    /// to be; any other is made for the moment: what is overtaken where one epoch follows another, acknowledgements that came alone, of
    /// which there are fewer, and what is forged.
    fn with_key<T>(
        &mut self,
        number: u64,
        direction: Direction,
        act: impl FnOnce(&Key) -> Option<T>,
    ) -> Option<T> {
        let epoch = number / EPOCH;
        if epoch == self.epoch {
            return act(&self.key);
        }
        let key = key_of(&self.secret, epoch)?;
        let done = act(&key)?;
        if direction == Direction::Forth && epoch > self.epoch {
            (self.epoch, self.key) = (epoch, key);
        }
        Some(done)
    }
}

/// Datagrams of a direction that one key seals: both directions together are no more than the 2^23 that RFC 9001 (6.6, of packets as long as
/// these) has a key of AES-GCM seal.
const EPOCH: u64 = 1 << 22;

fn key_of(secret: &[u8; 32], epoch: u64) -> Option<Key> {
    Key::new(blake3::keyed_hash(secret, &epoch.to_be_bytes()).as_bytes())
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
        let open = |mut cipher: Cipher, clear, direction, mut datagram: [u8; 45]| {
            cipher.open(clear, direction, &mut datagram).map(<[u8]>::to_vec)
        };
        assert_eq!(open(cipher(1, a, b, 7), clear, Direction::Forth, sealed).unwrap(), b"xxxxx");
        for other in [cipher(2, a, b, 7), cipher(1, a, c, 7), cipher(1, b, a, 7), cipher(1, a, b, 8)] {
            assert!(open(other, clear, Direction::Forth, sealed).is_none());
        }
        let right = || cipher(1, a, b, 7);
        assert!(open(right(), clear, Direction::Back, sealed).is_none());
        for number in [10, 9 + EPOCH] {
            assert!(open(right(), Clear { number, ..clear }, Direction::Forth, sealed).is_none());
        }
        for at in 0..sealed.len() {
            let mut damaged = sealed;
            damaged[at] ^= 1;
            assert!(open(right(), clear, Direction::Forth, damaged).is_none());
        }
    }

    #[test]
    fn each_epoch_has_a_key_of_its_own() {
        let cipher = || Cipher::new(&[1; 32], EndpointId(1), EndpointId(2), 7).unwrap();
        let (mut ours, mut theirs) = (cipher(), cipher());
        let mut seal = |number, direction| {
            let clear = Clear { about: About::Data, context: 7, source: 1, number };
            let mut sealed = [b'x'; Clear::LEN + 5 + TAG];
            ours.seal(clear, direction, &mut sealed, &[]);
            (clear, sealed)
        };
        // What is overtaken, or answered, where one epoch follows another.
        let numbers = [EPOCH - 2, EPOCH, EPOCH - 1, EPOCH + 1, 5 * EPOCH, 0];
        for (number, epoch) in numbers.into_iter().zip([0, 1, 1, 1, 5, 5]) {
            for direction in [Direction::Back, Direction::Forth] {
                let (clear, mut sealed) = seal(number, direction);
                // Forged, as if it were of a later one.
                let mut forged = sealed;
                let later = Clear { number: number + 9 * EPOCH, ..clear };
                assert!(theirs.open(later, direction, &mut forged).is_none());
                assert_eq!(theirs.open(clear, direction, &mut sealed).unwrap(), b"xxxxx");
            }
            assert_eq!(theirs.epoch, epoch);
        }
        // The same, with the same nonce and head, is another by another epoch's key, and only that opens it.
        let sealed = |epoch: u64| {
            let mut sealed = [b'x'; 5 + TAG];
            key_of(&ours.secret, epoch).unwrap().seal([0; NONCE], &[], &mut sealed, &[]).unwrap();
            sealed
        };
        assert_ne!(sealed(0)[..5], sealed(1)[..5]);
        let opened =
            |by: u64| key_of(&ours.secret, by)?.open([0; NONCE], &[], &mut sealed(1)).map(<[u8]>::len);
        assert_eq!([0, 1, 2].map(opened), [None, Some(5), None]);
    }
}
