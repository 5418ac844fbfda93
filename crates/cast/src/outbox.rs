//! What the sender's thread has to say to receivers, until the door's thread has sent it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use farlink_host::readiness::Wake;
use farlink_wire::cast::control::Control;

/// Frames for each receiver.
#[derive(Debug)]
pub(crate) struct Outbox {
    mail: Mutex<BTreeMap<u32, Mail>>,
    /// Receivers that are there no more, which the door has not heard.
    closed: Mutex<Vec<u32>>,
    /// Raised when there is something to send.
    pub(crate) wake: Wake,
    /// Whether receivers were told that the session is broken off: they leave when they have heard it.
    broken_off: AtomicBool,
}

/// What one receiver is to get.
#[derive(Debug, Default)]
struct Mail {
    frames: Vec<u8>,
    /// Bytes of frames that were taken and wait for the network.
    waiting: usize,
    /// Whether the sender was told to wait.
    is_full: bool,
}

impl Outbox {
    pub(crate) const fn new(wake: Wake) -> Self {
        Self {
            mail: Mutex::new(BTreeMap::new()),
            closed: Mutex::new(Vec::new()),
            wake,
            broken_off: AtomicBool::new(false),
        }
    }

    /// Has `write` append frames for `receiver`; false where it takes no more until further notice.
    pub(crate) fn post(&self, receiver: u32, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mail) = mail.get_mut(&receiver) else { return true };
        write(&mut mail.frames);
        // Once told to wait it waits until it is told to go on, though less may wait by now.
        mail.is_full |= mail.frames.len() + mail.waiting > MOST_WAITING;
        self.wake.raise();
        !mail.is_full
    }

    /// Has one frame sent; false as [`Self::post`].
    pub(crate) fn say(&self, receiver: u32, control: &Control<'_>) -> bool {
        self.post(receiver, |out| control.encode(out))
    }

    /// The session is broken off.
    pub(crate) fn break_off(&self) {
        self.broken_off.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub(crate) fn is_broken_off(&self) -> bool {
        self.broken_off.load(Ordering::Relaxed)
    }

    /// There is a receiver of that number.
    pub(crate) fn open(&self, receiver: u32) {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).insert(receiver, Mail::default());
    }

    /// There is none any more: its connection is of no use.
    pub(crate) fn close(&self, receiver: u32) {
        let closed = self.mail.lock().unwrap_or_else(PoisonError::into_inner).remove(&receiver);
        if closed.is_some() {
            self.closed.lock().unwrap_or_else(PoisonError::into_inner).push(receiver);
            self.wake.raise();
        }
    }

    /// Takes those that were closed since it was asked before.
    pub(crate) fn closed(&self) -> Vec<u32> {
        std::mem::take(&mut *self.closed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the sender's thread has a receiver of that number: it may have given it up.
    pub(crate) fn is_open(&self, receiver: u32) -> bool {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&receiver)
    }

    /// The receivers that something is to be sent to.
    pub(crate) fn addressees(&self) -> Vec<u32> {
        let mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        mail.iter().filter(|(_, mail)| !mail.frames.is_empty()).map(|(receiver, _)| *receiver).collect()
    }

    /// Takes what is to be sent to `receiver`.
    pub(crate) fn take(&self, receiver: u32) -> Vec<u8> {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        mail.get_mut(&receiver).map(|mail| std::mem::take(&mut mail.frames)).unwrap_or_default()
    }

    /// So many bytes wait for the network; says whether the sender may go on that was told to wait.
    pub(crate) fn waits(&self, receiver: u32, waiting: usize) -> bool {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mail) = mail.get_mut(&receiver) else { return false };
        mail.waiting = waiting;
        let goes_on = mail.is_full && mail.frames.len() + waiting <= MOST_WAITING / 2;
        mail.is_full &= !goes_on;
        goes_on
    }
}

/// Bytes that wait for one receiver before repairs for it stop: two of the largest, and what the kernel's own buffer holds beside.
const MOST_WAITING: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_waits_until_half_has_left() {
        let outbox = Outbox::new(Wake::new().unwrap());
        assert!(outbox.post(1, |out| out.extend([0; 10])), "nobody is there");
        assert!(!outbox.is_open(1));
        outbox.open(1);
        assert!(outbox.is_open(1));
        outbox.wake.lower();
        [1, 2].into_iter().for_each(|receiver| outbox.close(receiver));
        assert_eq!((outbox.wake.is_raised(), outbox.closed(), outbox.closed()), (true, vec![1], vec![]));
        outbox.open(1);
        assert!(outbox.post(1, |out| out.extend(vec![0; MOST_WAITING])));
        assert!(!outbox.post(1, |out| out.push(0)));
        assert_eq!((outbox.addressees(), outbox.wake.is_raised()), (vec![1], true));
        assert_eq!(outbox.take(1).len(), MOST_WAITING + 1);
        assert!(!outbox.waits(1, MOST_WAITING) && outbox.waits(1, 10) && !outbox.waits(1, 10));
    }

    #[test]
    fn one_that_was_told_to_wait_is_told_to_go_on_whatever_was_said_meanwhile() {
        let outbox = Outbox::new(Wake::new().unwrap());
        outbox.open(1);
        assert!(!outbox.post(1, |out| out.extend(vec![0; MOST_WAITING + 1])));
        outbox.take(1);
        assert!(!outbox.waits(1, MOST_WAITING / 2 + 1));
        assert!(!outbox.post(1, |out| out.push(0)));
        outbox.take(1);
        assert!(outbox.waits(1, MOST_WAITING / 2));
    }
}
