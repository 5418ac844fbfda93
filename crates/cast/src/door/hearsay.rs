//! What a door tells the thread of its sender, which may stand still for as long as a file system or a terminal does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use super::Heard;

/// The door's end.
#[derive(Debug)]
pub(crate) struct Hearsay {
    sender: SyncSender<(u32, Heard)>,
    waiting: Arc<AtomicUsize>,
    most_repeated: usize,
}

/// The sender's.
#[derive(Debug)]
pub(crate) struct Hearing {
    receiver: Receiver<(u32, Heard)>,
    waiting: Arc<AtomicUsize>,
}

/// Both ends.
pub(crate) fn hearsay() -> (Hearsay, Hearing) {
    with_room(MOST_REPEATED)
}

/// With room for so much of what is said again.
pub(super) fn with_room(most_repeated: usize) -> (Hearsay, Hearing) {
    let (sender, receiver) = sync_channel(most_repeated + MOST_ONCE);
    let waiting = Arc::new(AtomicUsize::new(0));
    let hearing = Hearing { receiver, waiting: Arc::clone(&waiting) };
    (Hearsay { sender, waiting, most_repeated }, hearing)
}

impl Hearsay {
    /// Tells it of a receiver; unless much waits, and it is said once more in any case: so that receivers, whose connections the door reads no
    /// further while it waits for room, have answers from it.
    pub(super) fn tell(&self, receiver: u32, heard: Heard) {
        if heard.is_repeated() && self.waiting.load(Ordering::Acquire) >= self.most_repeated {
            return;
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        // Nobody hears it where the sender's thread has ended: then this one is about to.
        let _ = self.sender.send((receiver, heard));
    }
}

impl Heard {
    /// Whether the receiver says it again, as long as it holds. (What was stored and is damaged it says once, before it asks for it again.)
    fn is_repeated(&self) -> bool {
        match self {
            Self::Report(_) => true,
            Self::Nack(wants) => wants.iter().all(|want| want.again || !want.catch_up),
            _ => false,
        }
    }
}

impl Hearing {
    /// What was told first.
    pub(crate) fn next(&self) -> Result<(u32, Heard), TryRecvError> {
        self.receiver.try_recv().inspect(|_| self.count())
    }

    #[cfg(test)]
    pub(super) fn wait(&self) -> (u32, Heard) {
        self.receiver.recv().inspect(|_| self.count()).unwrap()
    }

    fn count(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What waits at most that is said again.
const MOST_REPEATED: usize = 4096;

/// And of what is said once: of each receiver that is little.
const MOST_ONCE: usize = 16_384;

#[cfg(test)]
mod tests {
    use farlink_wire::cast::control::{Report, Want};

    use super::*;

    fn nack(again: bool, catch_up: bool) -> Heard {
        Heard::Nack(vec![Want { product: 1, again, catch_up, ranges: vec![(0, 1)] }])
    }

    #[test]
    fn what_is_said_again_leaves_room_for_what_is_said_once() {
        let (door, hearing) = hearsay();
        for receiver in 0..2 * MOST_REPEATED as u32 {
            door.tell(
                receiver,
                if receiver % 2 == 0 { Heard::Report(Report::default()) } else { nack(false, false) },
            );
        }
        let said_once = [nack(false, true), Heard::Have(vec![(0, 1)]), Heard::Writable, Heard::Left(None)];
        let kinds = said_once.len();
        for heard in said_once {
            door.tell(7, heard);
        }
        for _ in 0..MOST_REPEATED {
            assert!(hearing.next().unwrap().1.is_repeated());
        }
        for _ in 0..kinds {
            let (receiver, heard) = hearing.next().unwrap();
            assert!(receiver == 7 && !heard.is_repeated(), "{heard:?}");
        }
        assert!(hearing.next().is_err());
        door.tell(1, nack(true, true));
        assert!(hearing.wait().1.is_repeated(), "there is room again");
    }
}
