//! How a group is heard: its socket, with room for what comes while this end is kept from reading.

use std::io;

use farlink_host::clock::monotonic;
use farlink_host::multicast::{GroupReceiver, Inbox};
use farlink_wire::quantity::Nanos;

use super::{Notice, Plan};
use crate::error::CastError;
use crate::send::sockets::{index, refused};

/// The group's socket.
#[derive(Debug)]
pub(super) struct Hearing {
    socket: GroupReceiver,
    room: Room,
}

impl Hearing {
    /// Joins the plan's group on the interface that it names, or as the routes say.
    ///
    /// # Errors
    /// Why that cannot be joined.
    pub(super) fn join(plan: &Plan) -> Result<Self, CastError> {
        let room = Room::new(plan.buffer);
        Ok(Self { socket: socket(plan, room.asked)?, room })
    }

    /// The same again, where nothing is heard: the interface may have been made anew by now, or the routes say another, and the kernel holds to
    /// the one that it was. What cannot be joined now may be later.
    pub(super) fn join_again(&mut self, plan: &Plan) {
        if let Ok(socket) = socket(plan, self.room.asked) {
            self.socket = socket;
        }
    }

    pub(super) const fn socket(&self) -> &GroupReceiver {
        &self.socket
    }

    /// Bytes of receive buffer that were asked for, and that were granted.
    pub(super) const fn buffer(&self) -> (u32, u64) {
        (self.room.asked, self.socket.buffer())
    }

    /// Takes what has come; says whether there was anything.
    pub(super) fn receive_all(
        &mut self,
        inbox: &mut Inbox,
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> io::Result<bool> {
        if !self.socket.receive_all(inbox)? {
            return Ok(false);
        }
        if let Some(asked) = self.room.on_read(monotonic(), inbox.bytes() as u64) {
            // Where that is refused, what there was is left: packets come as before.
            let _ = self.socket.resize(asked);
            let granted = self.socket.buffer();
            // Where less is granted, so it would be of more.
            self.room.grows = granted >= asked.into();
            tell(Notice::Grown { asked, granted });
        }
        Ok(true)
    }
}

fn socket(plan: &Plan, buffer: u32) -> Result<GroupReceiver, CastError> {
    let index = index(plan.interface.as_deref(), plan.group)?;
    let joined = GroupReceiver::join(plan.group.address(), index, buffer);
    joined.map_err(|error| refused("join", plan.group, error))
}

/// Follows how fast packets come, and says when they want a larger receive buffer. It never shrinks: the kernel takes memory for what
/// waits alone.
#[derive(Debug)]
struct Room {
    /// What was asked for.
    asked: u32,
    /// Whether it follows what comes.
    grows: bool,
    /// When the present look began, and the bytes that came since.
    begun: Nanos,
    came: u64,
}

impl Room {
    /// Of `buffer` bytes, or for what comes where that is absent.
    const fn new(buffer: Option<u32>) -> Self {
        let asked = match buffer {
            Some(bytes) => bytes,
            None => LEAST,
        };
        Self { asked, grows: buffer.is_none(), begun: Nanos::ZERO, came: 0 }
    }

    /// So many bytes of packets were read: the buffer to ask for now, where it is a larger one.
    fn on_read(&mut self, now: Nanos, bytes: u64) -> Option<u32> {
        self.came += bytes;
        let passed = now.since(self.begun);
        if !self.grows || passed < LOOK {
            return None;
        }
        let wanted = u128::from(self.came) * u128::from(HELD.0) / u128::from(passed.0);
        let wanted = wanted.min(MOST.into()) as u32;
        (self.begun, self.came) = (now, 0);
        if wanted <= self.asked {
            return None;
        }
        // In doublings: asking is a system call, and rates vary.
        self.asked = wanted.next_power_of_two();
        Some(self.asked)
    }
}

/// What there is at first, bytes: 100 ms of 600 Mb/s.
const LEAST: u32 = 8 << 20;

/// And at most: 100 ms of 10 Gb/s.
const MOST: u32 = 128 << 20;

/// For so long what comes finds room where nobody reads: where 8 MiB had room for 13 ms (5 Gb/s), two processors that also sent lost up to a
/// quarter; see `bench/cast.md`.
const HELD: Nanos = Nanos(100_000_000);

/// Over so long it is looked how fast packets come: longer than what is read at once, after a pause, seems fast.
const LOOK: Nanos = Nanos(10_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// What it asks for while `bits` a second come for 200 ms, a piece each millisecond.
    fn asked_at(room: &mut Room, bits: u64) -> Vec<u32> {
        (1..=200).filter_map(|ms| room.on_read(Nanos(ms * MS), bits / 8000)).collect()
    }

    #[test]
    fn it_holds_a_tenth_of_a_second_of_what_comes() {
        for (bits, asked) in
            [(600_000_000, 8), (1_000_000_000, 16), (5_000_000_000, 64), (10_000_000_000, 128)]
        {
            let mut room = Room::new(None);
            asked_at(&mut room, bits);
            assert_eq!(room.asked, asked << 20, "{bits} b/s");
        }
    }

    #[test]
    fn it_is_asked_for_once_and_bounded() {
        let mut room = Room::new(None);
        assert_eq!(asked_at(&mut room, 100_000_000_000), [MOST]);
        assert!(asked_at(&mut room, 1_000_000_000).is_empty());
    }

    #[test]
    fn a_size_that_was_named_stays() {
        let mut room = Room::new(Some(64 << 10));
        assert!(asked_at(&mut room, 10_000_000_000).is_empty());
        assert_eq!(room.asked, 64 << 10);
    }
}
