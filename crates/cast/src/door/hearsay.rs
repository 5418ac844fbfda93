//! What a door tells the thread of its sender, which may stand still for as long as a file system or a terminal does.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Heard;

/// The door's end.
#[derive(Debug)]
pub(crate) struct Hearsay {
    sender: SyncSender<(u32, Heard)>,
    waiting: Waiting,
    most_repeated: usize,
}

/// The sender's.
#[derive(Debug)]
pub(crate) struct Hearing {
    receiver: Receiver<(u32, Heard)>,
    waiting: Waiting,
}

/// How much waits.
#[derive(Clone, Debug, Default)]
struct Waiting(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// Of each receiver of which anything does.
    of: HashMap<u32, u32>,
    /// Of what is said again.
    repeated: usize,
}

impl Waiting {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both ends.
pub(crate) fn hearsay() -> (Hearsay, Hearing) {
    with_room(MOST_REPEATED)
}

/// With room for so much of what is said again.
pub(super) fn with_room(most_repeated: usize) -> (Hearsay, Hearing) {
    let (sender, receiver) = sync_channel(most_repeated + MOST_ONCE);
    let waiting = Waiting::default();
    let hearing = Hearing { receiver, waiting: waiting.clone() };
    (Hearsay { sender, waiting, most_repeated }, hearing)
}

impl Hearsay {
    /// Tells it of a receiver; unless much waits, of it or of all, and it is said once more in any case: so that receivers, whose connections the door reads no
    /// further while it waits for room, have answers from it.
    pub(super) fn tell(&self, receiver: u32, heard: Heard) {
        let mut counts = self.waiting.counts();
        let own = counts.of.get(&receiver).copied().unwrap_or(0);
        let is_too_much = own >= MOST_OF_ONE || counts.repeated >= self.most_repeated;
        // That it lives is said by whatever else waits of it.
        if heard.is_repeated() && is_too_much || heard.is_empty() && own > 0 {
            return;
        }
        counts.of.insert(receiver, own + 1);
        counts.repeated += usize::from(heard.is_repeated());
        drop(counts);
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

    /// Whether it says that the receiver lives, and no more.
    fn is_empty(&self) -> bool {
        matches!(self, Self::Have(runs) if runs.is_empty())
    }
}

impl Hearing {
    /// What was told first.
    pub(crate) fn next(&self) -> Result<(u32, Heard), TryRecvError> {
        self.receiver.try_recv().inspect(|(receiver, heard)| self.count(*receiver, heard))
    }

    #[cfg(test)]
    pub(super) fn wait(&self) -> (u32, Heard) {
        self.receiver.recv().inspect(|(receiver, heard)| self.count(*receiver, heard)).unwrap()
    }

    fn count(&self, receiver: u32, heard: &Heard) {
        let mut counts = self.waiting.counts();
        counts.repeated -= usize::from(heard.is_repeated());
        match counts.of.get_mut(&receiver) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(counts.of.remove(&receiver)),
        }
    }
}

/// What waits at most that is said again.
const MOST_REPEATED: usize = 4096;

/// And of one receiver before what it says again is left out: half a second's of one that asks, and has something, each millisecond.
const MOST_OF_ONE: u32 = 1024;

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

    #[test]
    fn one_that_never_stops_talking_takes_nobody_elses_room() {
        let (door, hearing) = hearsay();
        for _ in 0..MOST_REPEATED {
            door.tell(1, Heard::Have(Vec::new()));
            door.tell(1, Heard::Have(vec![(0, 1)]));
            door.tell(1, nack(false, false));
        }
        door.tell(2, nack(false, false));
        door.tell(2, Heard::Report(Report::default()));
        let all: Vec<_> = std::iter::from_fn(|| hearing.next().ok()).collect();
        assert_eq!(all.iter().filter(|(receiver, _)| *receiver == 2).count(), 2);
        assert_eq!(all.iter().filter(|(_, heard)| heard.is_empty()).count(), 1, "one is enough");
        let again = all.iter().filter(|(receiver, heard)| *receiver == 1 && heard.is_repeated()).count();
        assert!(again < MOST_OF_ONE as usize, "{again}");
        door.tell(1, Heard::Have(Vec::new()));
        assert!(hearing.next().is_ok(), "what was taken does not count any more");
    }
}
