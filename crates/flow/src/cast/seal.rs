//! Packets of a session, sealed and opened: authenticated always, encrypted where asked (AES-256-GCM, RFC 5116; its nonce is the
//! packet's number, which no two packets of a session share, and a session has a key of its own).

use std::ops::Range;

use farlink_wire::cast::SessionId;
use farlink_wire::cast::packet::{Clear, Header, MOST_NUMBER, OVERHEAD, PacketError, TAG};
use farlink_wire::message::copy::{Protect, Secret};

use super::window::{Counts, Window};
use crate::aead::{Key, NONCE};

/// Bytes of a packet before its payload.
const FRONT: usize = Clear::LEN + Header::LEN;

/// Seals the packets of a session. There is one, and it has the session's key to itself: a number that came twice would give the key
/// away.
pub struct Sealer {
    cipher: Cipher,
    session: SessionId,
    next: u64,
}

impl Sealer {
    /// Of a session whose key was never used before.
    ///
    /// # Errors
    /// [`SealError::Clear`].
    pub fn new(session: SessionId, key: &Secret, protect: Protect) -> Result<Self, SealError> {
        Ok(Self { cipher: Cipher::new(key, protect)?, session, next: 0 })
    }

    /// The number of the next packet.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Makes a packet of `payload` in `packet`, which has room for it and [`OVERHEAD`] bytes.
    ///
    /// # Errors
    /// [`SealError::Exhausted`] where the session has had all the packets that it may.
    pub fn seal(&mut self, header: &Header, payload: &[u8], packet: &mut [u8]) -> Result<(), SealError> {
        debug_assert_eq!(packet.len(), OVERHEAD + payload.len());
        if self.next > MOST_NUMBER {
            return Err(SealError::Exhausted);
        }
        let clear = Clear { session: self.session, number: self.next };
        self.next += 1;
        packet[..Clear::LEN].copy_from_slice(&clear.encode());
        packet[Clear::LEN..FRONT].copy_from_slice(&header.encode());
        let nonce = nonce(clear.number);
        let sealed = if self.cipher.encrypts {
            let (aad, body) = packet.split_at_mut(Clear::LEN);
            self.cipher.key.seal(nonce, aad, body, payload)
        } else {
            let (body, tag) = packet.split_at_mut(packet.len() - TAG);
            body[FRONT..].copy_from_slice(payload);
            self.cipher.key.seal(nonce, body, tag, &[])
        };
        sealed.ok_or(SealError::Exhausted)
    }
}

/// Opens the packets of a session, and drops what is none of it.
pub struct Opener {
    cipher: Cipher,
    session: SessionId,
    window: Window,
    refused: Refused,
}

/// Packets that were dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Of another session, an earlier one for instance.
    pub of_others: u64,
    /// That came before, or so late that it cannot be told.
    pub replayed: u64,
    /// Whose seal is broken: forged, or damaged on the way.
    pub forged: u64,
    /// No packets at all, or such as no sender sends.
    pub malformed: u64,
}

impl Refused {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.of_others + self.replayed + self.forged + self.malformed
    }
}

impl Opener {
    /// Of a session, from the packet of number `first` on.
    ///
    /// # Errors
    /// [`SealError::Clear`].
    pub fn new(session: SessionId, key: &Secret, protect: Protect, first: u64) -> Result<Self, SealError> {
        let (window, refused) = (Window::new(first), Refused::default());
        Ok(Self { cipher: Cipher::new(key, protect)?, session, window, refused })
    }

    /// What a datagram is, and where in it its payload stands. Each packet is opened once.
    ///
    /// # Errors
    /// [`Drop`]: it is counted, and that is all that is to be done about it.
    pub fn open(&mut self, datagram: &mut [u8]) -> Result<(Header, Range<usize>), Drop> {
        let opened = self.try_open(datagram);
        match &opened {
            // What was on its way, or waited to be read, when this end had not joined is nobody's fault.
            Ok(_) | Err(Drop::Early { .. }) => {}
            Err(Drop::OfAnother { .. }) => self.refused.of_others += 1,
            Err(Drop::Replayed { .. }) => self.refused.replayed += 1,
            Err(Drop::Forged { .. }) => self.refused.forged += 1,
            Err(Drop::Malformed(_)) => self.refused.malformed += 1,
        }
        opened
    }

    /// This end is back, and the sender's next packet has this number ([`Window::skip_to`]).
    pub fn skip_to(&mut self, number: u64) {
        self.window.skip_to(number);
    }

    /// How many packets came, and how many could have.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.window.counts()
    }

    /// What was dropped.
    #[must_use]
    pub const fn refused(&self) -> Refused {
        self.refused
    }

    fn try_open(&mut self, datagram: &mut [u8]) -> Result<(Header, Range<usize>), Drop> {
        let clear = Clear::decode(datagram)?;
        if clear.session != self.session {
            return Err(Drop::OfAnother { session: clear.session });
        }
        let is_early = self.window.is_before(clear.number);
        if !is_early && !self.window.is_new(clear.number) {
            return Err(Drop::Replayed { number: clear.number });
        }
        let payload = FRONT..datagram.len() - TAG;
        let (aad, sealed) = datagram.split_at_mut(self.cipher.authenticated(payload.end));
        let opened = self.cipher.key.open(nonce(clear.number), aad, sealed);
        opened.ok_or(Drop::Forged { number: clear.number })?;
        if is_early {
            return Err(Drop::Early { number: clear.number });
        }
        self.window.mark(clear.number);
        let Some(header) = datagram[Clear::LEN..].first_chunk() else {
            return Err(PacketError::Short.into());
        };
        Ok((Header::decode(header, payload.len())?, payload))
    }
}

struct Cipher {
    key: Key,
    encrypts: bool,
}

impl Cipher {
    fn new(key: &Secret, protect: Protect) -> Result<Self, SealError> {
        let encrypts = match protect {
            Protect::Encrypt => true,
            Protect::Integrity => false,
            Protect::Clear => return Err(SealError::Clear),
        };
        // A secret has the length that this cipher's keys have: nothing else is refused.
        let key = Key::new(&key.0.0).ok_or(SealError::Clear)?;
        Ok(Self { key, encrypts })
    }

    /// Of a packet's bytes before its tag, those that are authenticated and not encrypted.
    const fn authenticated(&self, body: usize) -> usize {
        if self.encrypts { Clear::LEN } else { body }
    }
}

fn nonce(number: u64) -> [u8; NONCE] {
    let mut bytes = [0; NONCE];
    bytes[NONCE - 8..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Why packets cannot be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// They would not be.
    #[error("packets to a group are always authenticated: ask for encrypt or integrity")]
    Clear,
    /// There are no numbers left.
    #[error("the session has sent {MOST_NUMBER} packets: begin another")]
    Exhausted,
}

/// Why a datagram was dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Drop {
    /// The group is used by another session too, or this is left of an earlier one.
    #[error("a packet of the session {session}, which is not this one")]
    OfAnother {
        /// As it says in clear.
        session: SessionId,
    },
    /// It was sent before this end had joined: what it carries is asked for.
    #[error("the packet {number} was sent before this end had joined")]
    Early {
        /// As it says in clear.
        number: u64,
    },
    /// It came before, or very late.
    #[error("the packet {number} came before")]
    Replayed {
        /// As it says in clear.
        number: u64,
    },
    /// Not made with the session's key, or changed since.
    #[error("the packet {number} is forged or damaged")]
    Forged {
        /// As it says in clear.
        number: u64,
    },
    /// No packet.
    #[error(transparent)]
    Malformed(#[from] PacketError),
}

#[cfg(test)]
mod tests {
    use farlink_wire::cast::{Position, Shape, packet::Data};
    use farlink_wire::entry::Digest;

    use super::*;

    const SESSION: SessionId = SessionId(77);
    const KEY: Secret = Secret(Digest([3; 32]));

    fn header() -> Header {
        let shape = Shape::new(20, 1000).unwrap();
        Header::Data(Data { product: 3, shape, offset: 16, repair: false })
    }

    fn sealed(sealer: &mut Sealer) -> Vec<u8> {
        let mut packet = vec![0; OVERHEAD + 100];
        sealer.seal(&header(), &[0x5a; 100], &mut packet).unwrap();
        packet
    }

    fn both(protect: Protect) -> (Sealer, Opener) {
        (Sealer::new(SESSION, &KEY, protect).unwrap(), Opener::new(SESSION, &KEY, protect, 0).unwrap())
    }

    #[test]
    fn what_was_sealed_opens_once() {
        for protect in [Protect::Encrypt, Protect::Integrity] {
            let (mut sealer, mut opener) = both(protect);
            for number in 0..3 {
                assert_eq!(sealer.next(), number);
                let packet = sealed(&mut sealer);
                let hidden = packet[FRONT..packet.len() - TAG].iter().any(|byte| *byte != 0x5a);
                assert_eq!(hidden, protect == Protect::Encrypt);
                let mut first = packet.clone();
                let (read, payload) = opener.open(&mut first).unwrap();
                assert_eq!(read, header());
                assert_eq!(first[payload], [0x5a; 100]);
                assert_eq!(opener.open(&mut packet.clone()), Err(Drop::Replayed { number }));
            }
            assert_eq!(opener.counts(), Counts { sent: 3, received: 3 });
            assert_eq!(opener.refused(), Refused { replayed: 3, ..Refused::default() });
        }
    }

    #[test]
    fn a_packet_that_was_changed_anywhere_is_dropped_and_the_true_one_still_opens() {
        for protect in [Protect::Encrypt, Protect::Integrity] {
            let (mut sealer, mut opener) = both(protect);
            let packet = sealed(&mut sealer);
            for at in 0..packet.len() {
                let mut changed = packet.clone();
                changed[at] ^= 1;
                assert!(opener.open(&mut changed).is_err(), "byte {at}");
            }
            for end in 0..packet.len() {
                assert!(opener.open(&mut packet[..end].to_vec()).is_err(), "{end} bytes");
            }
            assert!(opener.open(&mut packet.clone()).is_ok());
            assert_eq!(opener.refused().total(), 2 * packet.len() as u64);
        }
    }

    #[test]
    fn what_was_sent_before_this_end_joined_is_left_out_and_no_refusal() {
        let (mut sealer, _) = both(Protect::Encrypt);
        let mut opener = Opener::new(SESSION, &KEY, Protect::Encrypt, 2).unwrap();
        let mut packets: Vec<_> = (0..3).map(|_| sealed(&mut sealer)).collect();
        for (number, packet) in (0..2).zip(&mut packets) {
            assert_eq!(opener.open(packet), Err(Drop::Early { number }));
        }
        let mut forged = packets[2].clone();
        forged[..Clear::LEN].copy_from_slice(&sealed(&mut both(Protect::Encrypt).0)[..Clear::LEN]);
        assert_eq!(opener.open(&mut forged), Err(Drop::Forged { number: 0 }));
        assert!(opener.open(&mut packets[2]).is_ok());
        assert_eq!(
            (opener.counts(), opener.refused()),
            (Counts { sent: 1, received: 1 }, Refused { forged: 1, ..Refused::default() })
        );
    }

    #[test]
    fn packets_of_other_keys_and_sessions_are_dropped() {
        let (mut sealer, _) = both(Protect::Encrypt);
        let packet = sealed(&mut sealer);
        let wrong = Secret(Digest([4; 32]));
        let mut opener = Opener::new(SESSION, &wrong, Protect::Encrypt, 0).unwrap();
        assert_eq!(opener.open(&mut packet.clone()), Err(Drop::Forged { number: 0 }));
        let mut opener = Opener::new(SessionId(1), &KEY, Protect::Encrypt, 0).unwrap();
        assert_eq!(opener.open(&mut packet.clone()), Err(Drop::OfAnother { session: SESSION }));
        let mut opener = Opener::new(SESSION, &KEY, Protect::Integrity, 0).unwrap();
        assert_eq!(opener.open(&mut packet.clone()), Err(Drop::Forged { number: 0 }));
        // One that joins later takes nothing from before.
        let mut opener = Opener::new(SESSION, &KEY, Protect::Encrypt, 1).unwrap();
        assert_eq!(opener.open(&mut packet.clone()), Err(Drop::Early { number: 0 }));
    }

    #[test]
    fn nothing_is_sent_in_clear() {
        assert_eq!(Sealer::new(SESSION, &KEY, Protect::Clear).err(), Some(SealError::Clear));
        assert_eq!(Opener::new(SESSION, &KEY, Protect::Clear, 0).err(), Some(SealError::Clear));
    }

    #[test]
    fn a_number_is_never_used_twice() {
        let (mut sealer, _) = both(Protect::Encrypt);
        sealer.next = MOST_NUMBER;
        let mut packet = vec![0; OVERHEAD];
        let status = Header::Status(Position::default());
        assert_eq!(sealer.seal(&status, &[], &mut packet), Ok(()));
        assert_eq!(sealer.seal(&status, &[], &mut packet), Err(SealError::Exhausted));
    }
}
