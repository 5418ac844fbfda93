//! AES-256-GCM (RFC 5116), by whichever of two libraries is the faster on this processor.

use std::sync::LazyLock;

/// Bytes of a nonce.
pub const NONCE: usize = 12;

/// Bytes of a tag.
pub const TAG: usize = 16;

/// A key.
#[derive(Debug)]
pub struct Key(Library);

#[derive(Debug)]
enum Library {
    AwsLc(aws_lc_rs::aead::LessSafeKey),
    Ring(Box<ring::aead::LessSafeKey>),
}

impl Key {
    /// Of so many bytes.
    #[must_use]
    pub fn new(bytes: &[u8; 32]) -> Option<Self> {
        if prefers_ring() { Self::of_ring(bytes) } else { Self::of_aws_lc(bytes) }
    }

    fn of_aws_lc(bytes: &[u8; 32]) -> Option<Self> {
        use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
        let key = UnboundKey::new(&AES_256_GCM, bytes).ok()?;
        Some(Self(Library::AwsLc(LessSafeKey::new(key))))
    }

    fn of_ring(bytes: &[u8; 32]) -> Option<Self> {
        use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
        let key = UnboundKey::new(&AES_256_GCM, bytes).ok()?;
        Some(Self(Library::Ring(Box::new(LessSafeKey::new(key)))))
    }

    /// Encrypts the first bytes of `body` where they lie, and `rest` on its way behind them, and puts the tag behind both, by which they and
    /// `front` are authenticated: `body` has room for all of it. No two bodies of a key may have one nonce. Nothing where there is less
    /// room, or the cipher takes no body of that length (64 GiB).
    pub fn seal(&self, nonce: [u8; NONCE], front: &[u8], body: &mut [u8], rest: &[u8]) -> Option<()> {
        let (head, room) = body.split_at_mut_checked(body.len().checked_sub(rest.len() + TAG)?)?;
        match &self.0 {
            Library::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.seal_in_place_scatter(nonce, Aad::from(front), head, rest, room).ok()
            }
            Library::Ring(key) => {
                use ring::aead::{Aad, Nonce};
                room[..rest.len()].copy_from_slice(rest);
                let (body, tag) = body.split_at_mut(body.len() - TAG);
                let nonce = Nonce::assume_unique_for_key(nonce);
                let made = key.seal_in_place_separate_tag(nonce, Aad::from(front), body).ok()?;
                tag.copy_from_slice(made.as_ref());
                Some(())
            }
        }
    }

    /// Decrypts `sealed`, a body and its tag, where it lies: the body, if it and `front` are what was sealed.
    pub fn open<'a>(&self, nonce: [u8; NONCE], front: &[u8], sealed: &'a mut [u8]) -> Option<&'a [u8]> {
        match &self.0 {
            Library::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_in_place(nonce, Aad::from(front), sealed).ok().map(|body| &*body)
            }
            Library::Ring(key) => {
                use ring::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_in_place(nonce, Aad::from(front), sealed).ok().map(|body| &*body)
            }
        }
    }
}

/// Whether ring does AES-GCM faster here than aws-lc: it uses VAES with registers of 256 bits, and aws-lc only with 512.
#[must_use]
pub fn prefers_ring() -> bool {
    static PREFERS: LazyLock<bool> = LazyLock::new(detect);
    *PREFERS
}

#[cfg(target_arch = "x86_64")]
fn detect() -> bool {
    let vector = is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("avx2");
    let longer = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl");
    vector && !longer
}

#[cfg(not(target_arch = "x86_64"))]
const fn detect() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_libraries_say_the_same() {
        let keys = [Key::of_aws_lc(&[9; 32]).unwrap(), Key::of_ring(&[9; 32]).unwrap()];
        for len in [0, 1, 16, 100, 8972, 65_536] {
            let plain: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let sealed = keys.each_ref().map(|key| {
                let mut bytes = vec![0; len + TAG];
                key.seal([4; NONCE], b"front", &mut bytes, &plain).unwrap();
                bytes
            });
            assert_eq!(sealed[0], sealed[1]);
            // In one piece, or some of it from elsewhere.
            for key in &keys {
                for head in [0, len.min(1), len / 2, len.min(24), len] {
                    let mut bytes = vec![0xee; len + TAG];
                    bytes[..head].copy_from_slice(&plain[..head]);
                    key.seal([4; NONCE], b"front", &mut bytes, &plain[head..]).unwrap();
                    assert_eq!(bytes, sealed[0], "{head} of {len}");
                }
            }
            for key in &keys {
                let opens = |front: &[u8], nonce, damage: Option<usize>| {
                    let mut bytes = sealed[0].clone();
                    damage.into_iter().for_each(|at| bytes[at] ^= 1);
                    key.open([nonce; NONCE], front, &mut bytes).map(<[u8]>::to_vec)
                };
                assert_eq!(opens(b"front", 4, None).as_ref(), Some(&plain));
                assert_eq!(opens(b"other", 4, None), None);
                assert_eq!(opens(b"front", 5, None), None);
                assert_eq!(opens(b"front", 4, Some(len / 2)), None);
                assert_eq!(opens(b"front", 4, Some(len + TAG - 1)), None);
                assert_eq!(key.open([4; NONCE], b"front", &mut [0; TAG - 1]), None);
            }
        }
    }
}
