//! Frames on a data connection that nobody else may change: with `--protect integrity` a keyed BLAKE3 stands behind each.
//!
//! The key is of this connection alone, derived from the session's secret. A frame's tag covers its number on the connection, so that
//! none can be left out, moved or said twice, and all its bytes; of a block's payload the digest, which follows it.

use blake3::Hasher;

/// The tag of frames, of the sender or of the receiver of one connection.
#[derive(Debug)]
pub(crate) struct Seal {
    key: [u8; 32],
    number: u64,
    frame: Hasher,
}

impl Seal {
    /// Bytes of a tag.
    pub(crate) const LEN: usize = 32;

    /// For connection `stream` of the session whose secret is `secret`.
    pub(crate) fn new(secret: &[u8; 32], stream: u32) -> Self {
        let mut key = Hasher::new_derive_key("farlink 2026-11-21 integrity of a data connection");
        key.update(secret);
        key.update(&stream.to_be_bytes());
        let key = *key.finalize().as_bytes();
        let mut seal = Self { key, number: 0, frame: Hasher::new_keyed(&key) };
        seal.begin();
        seal
    }

    fn begin(&mut self) {
        self.frame = Hasher::new_keyed(&self.key);
        self.frame.update(&self.number.to_be_bytes());
        self.number += 1;
    }

    /// Takes bytes of the frame.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.frame.update(bytes);
    }

    /// The frame ends: its tag. The next begins.
    pub(crate) fn tag(&mut self) -> [u8; Self::LEN] {
        let tag = *self.frame.finalize().as_bytes();
        self.begin();
        tag
    }

    /// The frame ends: whether `tag` is its tag, compared in constant time. The next begins.
    pub(crate) fn verify(&mut self, tag: &[u8; Self::LEN]) -> bool {
        let ours = self.frame.finalize();
        self.begin();
        // `blake3::Hash` compares in constant time.
        ours == blake3::Hash::from_bytes(*tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_of_one_frame_at_one_place_of_one_connection() {
        let secret = [7; 32];
        let (mut sender, mut receiver) = (Seal::new(&secret, 3), Seal::new(&secret, 3));
        for frame in [&b"one"[..], b"two", b"two"] {
            sender.update(frame);
            let tag = sender.tag();
            receiver.update(frame);
            assert!(receiver.verify(&tag));
        }
        sender.update(b"x");
        let tag = sender.tag();
        receiver.update(b"y");
        assert!(!receiver.verify(&tag), "other bytes");
        receiver.update(b"x");
        assert!(!receiver.verify(&tag), "another place");
        let mut other = Seal::new(&secret, 4);
        other.update(b"one");
        let first = other.tag();
        let mut again = Seal::new(&secret, 3);
        again.update(b"one");
        assert!(!again.verify(&first), "another connection");
    }
}
