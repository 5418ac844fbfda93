//! Which receive takes which message: receives in the order in which they were posted, messages in the order in which they came.

use std::collections::{BTreeMap, VecDeque};

use farlink_wire::fabric::frame::{Envelope, cost};
use rustc_hash::FxHashMap;

use crate::fabric::operation::{Memory, Operation, PeerId, Receive, Received, Region, Wanted};

/// Receives that wait for messages, messages that wait for receives, and those that found each other.
#[derive(Debug, Default)]
pub(super) struct Matching {
    posted: VecDeque<Posted>,
    waiting: BTreeMap<u64, Waiting>,
    next_waiting: u64,
    waiting_bytes: usize,
    most_bytes: usize,
    landings: FxHashMap<u32, (Landing, Message)>,
    next_landing: u32,
    /// What is under way in regions that take message after message.
    multi: FxHashMap<Operation, Multi>,
    /// Whose messages were that a peer which failed took along though they were claimed.
    taken_along: FxHashMap<u64, PeerId>,
}

/// A receive that waits, and what of its region is left.
#[derive(Clone, Copy, Debug)]
struct Posted {
    receive: Receive,
    offset: usize,
    left: usize,
}

impl Posted {
    const fn is_of_anybody(&self) -> bool {
        // Those of messages without a tag are an MPI library's own, which it may leave for ever.
        let is_programs = matches!(self.receive.wanted, Wanted::Tagged { .. });
        is_programs && self.receive.from.is_none() && self.receive.multi.is_none()
    }
}

/// A message that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) number: u64,
    pub(super) from: PeerId,
    pub(super) envelope: Envelope,
    pub(super) body: Body,
    pub(super) claimed: bool,
}

/// What there is of a message that waits.
#[derive(Debug)]
pub(super) enum Body {
    /// Its bytes, as far as they came.
    Bytes(Vec<u8>),
    /// Its sender's word.
    Offer { message: u32 },
}

/// Where a message goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landing {
    operation: Operation,
    region: Region,
    offset: usize,
    /// Bytes that there are for it.
    pub(super) room: usize,
    multi: bool,
}

/// The message that goes there.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: PeerId,
    envelope: Envelope,
    got: u64,
    awaited: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Multi {
    under_way: u32,
    closed: bool,
}

/// What became of a receive that was to be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// It had begun, or is none.
    Nothing,
    /// It is no more.
    Whole,
    /// It takes no more messages, and ends with the last of those that it took.
    Closed,
}

impl Waiting {
    fn is_for(&self, from: Option<PeerId>, wanted: Wanted) -> bool {
        !self.claimed && accepts(from, wanted, self.from, &self.envelope)
    }
}

fn accepts(from: Option<PeerId>, wanted: Wanted, sender: PeerId, envelope: &Envelope) -> bool {
    from.is_none_or(|from| from == sender)
        && match (wanted, envelope.tag) {
            (Wanted::Tagged { tag, ignore }, Some(found)) => (tag ^ found) & !ignore == 0,
            (Wanted::Untagged, None) => true,
            _ => false,
        }
}

impl Matching {
    /// Most bytes that waited at a time.
    pub(super) const fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// Waits for a message.
    pub(super) fn post(&mut self, receive: Receive) {
        if receive.multi.is_some() {
            self.multi.insert(receive.operation, Multi::default());
        }
        self.posted.push_back(Posted { receive, offset: 0, left: receive.len });
    }

    /// The next message for the receive that was posted last, taken from those that wait.
    pub(super) fn match_posted(&mut self, operation: Operation) -> Option<(Landing, Waiting)> {
        let Posted { receive, .. } =
            *self.posted.back().filter(|each| each.receive.operation == operation)?;
        let number = self.find_waiting(receive.from, receive.wanted)?.number;
        let waiting = self.take(number)?;
        let landing = self.take_room(self.posted.len() - 1, &waiting.envelope);
        Some((landing, waiting))
    }

    /// The first receive that takes a message that comes now.
    pub(super) fn match_arriving(&mut self, from: PeerId, envelope: Envelope) -> Option<Landing> {
        let index = self
            .posted
            .iter()
            .position(|Posted { receive, .. }| accepts(receive.from, receive.wanted, from, &envelope))?;
        Some(self.take_room(index, &envelope))
    }

    /// Room for a message in the region of a posted receive, which is posted no longer where it has no more.
    fn take_room(&mut self, index: usize, envelope: &Envelope) -> Landing {
        let Posted { receive, offset, left } = &mut self.posted[index];
        let (operation, region) = (receive.operation, receive.region);
        let Some(least) = receive.multi else {
            let landing = Landing { operation, region, offset: 0, room: *left, multi: false };
            self.posted.remove(index);
            return landing;
        };
        let room = (envelope.len as usize).min(*left);
        let landing = Landing { operation, region, offset: *offset, room, multi: true };
        *offset += room;
        *left -= room;
        let closed = *left < least.max(1);
        if closed {
            self.posted.remove(index);
        }
        let multi = self.multi.entry(operation).or_default();
        multi.under_way += 1;
        multi.closed |= closed;
        landing
    }

    /// Where a message goes that one receive takes for itself.
    pub(super) const fn land_alone(receive: &Receive) -> Landing {
        Landing {
            operation: receive.operation,
            region: receive.region,
            offset: 0,
            room: receive.len,
            multi: false,
        }
    }

    /// Begins to write a message of which `awaited` bytes will come: the number of the landing.
    pub(super) fn begin(&mut self, landing: Landing, from: PeerId, envelope: Envelope, awaited: u64) -> u32 {
        // After four thousand million others one may still be under way.
        while self.landings.contains_key(&self.next_landing) {
            self.next_landing = self.next_landing.wrapping_add(1);
        }
        let number = self.next_landing;
        self.next_landing = self.next_landing.wrapping_add(1);
        let message = Message { from, envelope, got: 0, awaited };
        self.landings.insert(number, (landing, message));
        number
    }

    /// Writes a part, and says when the message is there.
    pub(super) fn write_part(
        &mut self,
        number: u32,
        from: PeerId,
        offset: u64,
        bytes: &[u8],
        memory: &mut dyn Memory,
    ) -> Option<Received> {
        let (landing, message) =
            self.landings.get_mut(&number).filter(|(_, message)| message.from == from)?;
        let room = (landing.room as u64).saturating_sub(offset) as usize;
        let fits = &bytes[..bytes.len().min(room)];
        if !fits.is_empty() {
            memory.write(landing.region, landing.offset + offset as usize, fits);
        }
        message.got += bytes.len() as u64;
        if message.got < message.awaited {
            return None;
        }
        let (landing, message) = self.landings.remove(&number)?;
        let envelope = message.envelope;
        let last = !landing.multi || self.multi_ended(landing.operation);
        Some(Received {
            operation: landing.operation,
            from,
            tag: envelope.tag,
            data: envelope.data,
            offset: landing.offset,
            len: envelope.len as usize,
            cut: (envelope.len as usize).saturating_sub(landing.room),
            last,
        })
    }

    fn multi_ended(&mut self, operation: Operation) -> bool {
        let Some(multi) = self.multi.get_mut(&operation) else { return true };
        multi.under_way -= 1;
        let ended = multi.closed && multi.under_way == 0;
        if ended {
            self.multi.remove(&operation);
        }
        ended
    }

    /// A message waits: its number.
    pub(super) fn wait(&mut self, from: PeerId, envelope: Envelope, body: Body) -> u64 {
        let number = self.next_waiting;
        self.next_waiting += 1;
        self.waiting.insert(number, Waiting { number, from, envelope, body, claimed: false });
        number
    }

    /// More of a message that waits.
    pub(super) fn add(&mut self, number: u64, chunk: &[u8]) {
        if let Some(Waiting { body: Body::Bytes(bytes), .. }) = self.waiting.get_mut(&number) {
            bytes.extend_from_slice(chunk);
            self.waiting_bytes += chunk.len();
            self.most_bytes = self.most_bytes.max(self.waiting_bytes);
        }
    }

    /// The first message that such a receive would take.
    pub(super) fn find_waiting(&mut self, from: Option<PeerId>, wanted: Wanted) -> Option<&mut Waiting> {
        self.waiting.values_mut().find(|each| each.is_for(from, wanted))
    }

    /// Whether there is one.
    pub(super) fn has_waiting(&mut self, from: Option<PeerId>, wanted: Wanted) -> bool {
        self.find_waiting(from, wanted).is_some()
    }

    /// Takes a message from those that wait.
    pub(super) fn take(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        if let Body::Bytes(bytes) = &waiting.body {
            self.waiting_bytes -= bytes.len();
        }
        Some(waiting)
    }

    /// Whose message `number` was, where a peer that failed took it along; once.
    pub(super) fn lost(&mut self, number: u64) -> Option<PeerId> {
        self.taken_along.remove(&number)
    }

    /// Takes those that are offered and that nobody wants, each by its sender and number.
    pub(super) fn take_offers(&mut self) -> Vec<(PeerId, u32)> {
        let mut offers = Vec::new();
        self.waiting.retain(|_, each| {
            let Body::Offer { message } = each.body else { return true };
            offers.push((each.from, message));
            false
        });
        offers
    }

    /// What messages of a peer cost that wait, whole.
    pub(super) fn waiting_cost(&self, peer: PeerId) -> u64 {
        let its = self.waiting.values().filter(|each| each.from == peer);
        its.filter(|each| matches!(each.body, Body::Bytes(_))).map(|each| cost(each.envelope.len)).sum()
    }

    /// Takes a receive back that is posted.
    pub(super) fn cancel(&mut self, operation: Operation) -> Cancelled {
        let Some(index) = self.posted.iter().position(|each| each.receive.operation == operation) else {
            return Cancelled::Nothing;
        };
        self.posted.remove(index);
        // A region in which messages are under way is not the program's before they are there.
        if let Some(multi) = self.multi.get_mut(&operation).filter(|multi| multi.under_way > 0) {
            multi.closed = true;
            return Cancelled::Closed;
        }
        self.multi.remove(&operation);
        Cancelled::Whole
    }

    /// Whether a receive waits for that peer alone, or one of its messages is on its way.
    pub(super) fn awaits(&self, peer: PeerId) -> bool {
        self.posted.iter().any(|each| each.receive.from == Some(peer))
            || self.landings.values().any(|(_, message)| message.from == peer)
    }

    /// Whether a receive of one message waits for whoever sends it.
    pub(super) fn awaits_anybody(&self) -> bool {
        self.posted.iter().any(Posted::is_of_anybody)
    }

    /// Receives of one message of whoever sends it: there is nobody left.
    pub(super) fn fail_of_anybody(&mut self) -> Vec<Operation> {
        let (gone, stay): (VecDeque<_>, _) = self.posted.drain(..).partition(Posted::is_of_anybody);
        self.posted = stay;
        gone.iter().map(|each| each.receive.operation).collect()
    }

    /// Receives that will never be served, since their peer failed.
    pub(super) fn fail(&mut self, peer: PeerId) -> Vec<Operation> {
        let (gone, stay): (VecDeque<_>, _) =
            self.posted.drain(..).partition(|each| each.receive.from == Some(peer));
        self.posted = stay;
        let mut ended: Vec<Operation> = gone.iter().map(|each| each.receive.operation).collect();
        let begun: Vec<Landing> = self
            .landings
            .extract_if(|_, (_, message)| message.from == peer)
            .map(|(_, (landing, _))| landing)
            .collect();
        for landing in begun {
            // A region for many messages goes on with the others'.
            if !landing.multi || self.multi_ended(landing.operation) {
                ended.push(landing.operation);
            }
        }
        // Of a region of its messages alone nothing is under way any more.
        for operation in gone.iter().map(|each| each.receive.operation) {
            self.multi.remove(&operation);
        }
        let is_whole = |each: &Waiting| matches!(&each.body, Body::Bytes(bytes) if bytes.len() as u64 == each.envelope.len);
        for (number, lost) in self.waiting.extract_if(.., |_, each| each.from == peer && !is_whole(each)) {
            if lost.claimed {
                self.taken_along.insert(number, peer);
            }
        }
        self.waiting_bytes = self
            .waiting
            .values()
            .map(|each| match &each.body {
                Body::Bytes(bytes) => bytes.len(),
                Body::Offer { .. } => 0,
            })
            .sum();
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_is_cancelled_takes_no_more_and_ends_with_what_it_took() {
        let (mut matching, from, operation) = (Matching::default(), PeerId(4), Operation(7));
        let (wanted, region) = (Wanted::Untagged, Region(1));
        let envelope = Envelope { tag: None, data: None, len: 10 };
        struct Nowhere;
        impl Memory for Nowhere {
            fn read(&self, _: Region, _: usize, _: &mut [u8]) {}
            fn write(&mut self, _: Region, _: usize, _: &[u8]) {}
        }
        matching.post(Receive { from: None, wanted, region, len: 100, operation, multi: Some(1) });
        let slots = [0, 1].map(|_| {
            let landing = matching.match_arriving(from, envelope).unwrap();
            matching.begin(landing, from, envelope, 10)
        });
        assert_eq!(matching.cancel(operation), Cancelled::Closed);
        assert_eq!(matching.cancel(operation), Cancelled::Nothing);
        assert!(matching.match_arriving(from, envelope).is_none());
        let ends = slots.map(|slot| matching.write_part(slot, from, 0, &[7; 10], &mut Nowhere).unwrap().last);
        assert_eq!(ends, [false, true]);
        assert!(matching.multi.is_empty() && matching.landings.is_empty());
    }

    #[test]
    fn no_two_messages_under_way_have_one_number() {
        let (mut matching, from) = (Matching::default(), PeerId(4));
        let (wanted, region) = (Wanted::Untagged, Region(1));
        let envelope = Envelope { tag: None, data: None, len: 10 };
        let mut begin = |next: Option<u32>| {
            matching.next_landing = next.unwrap_or(matching.next_landing);
            let receive =
                Receive { from: None, wanted, region, len: 10, operation: Operation(7), multi: None };
            matching.begin(Matching::land_alone(&receive), from, envelope, 10)
        };
        assert_eq!([Some(0), Some(u32::MAX)].map(&mut begin), [0, u32::MAX]);
        assert_eq!([None, Some(u32::MAX)].map(&mut begin), [1, 2]);
        assert_eq!(matching.landings.len(), 4);
    }

    #[test]
    fn nothing_is_remembered_of_a_region_whose_peer_failed() {
        let (mut matching, from, operation) = (Matching::default(), PeerId(4), Operation(7));
        let (wanted, region) = (Wanted::Untagged, Region(1));
        matching.post(Receive { from: Some(from), wanted, region, len: 100, operation, multi: Some(1) });
        let envelope = Envelope { tag: None, data: None, len: 10 };
        for _ in 0..2 {
            let landing = matching.match_arriving(from, envelope).unwrap();
            matching.begin(landing, from, envelope, 10);
        }
        assert_eq!(matching.fail(from), [operation]);
        assert!(matching.multi.is_empty() && matching.landings.is_empty());
    }
}
