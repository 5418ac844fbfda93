//! What goes to one peer: messages in order, parts of those that it accepted, and what it must be told.

use std::collections::{BTreeMap, VecDeque};

use farlink_wire::fabric::frame::{BEGIN, Envelope, Frame, MORE, PART, cost};

use super::Counts;
use crate::fabric::operation::{Ends, Memory, Operation, Region};

/// What goes to one peer.
#[derive(Debug)]
pub(super) struct Outbox {
    control: VecDeque<Control>,
    /// Messages that have not all been said, in order: the first may have begun.
    messages: VecDeque<Message>,
    /// Those that were offered, by number.
    offered: BTreeMap<u32, Message>,
    /// Those that were accepted, in turn.
    parts: VecDeque<Accepted>,
    /// What completes when the peer says that it has taken what was said.
    asked: BTreeMap<u32, Operation>,
    /// What may be sent unasked since the beginning, and what was.
    credit: u64,
    spent: u64,
    next: u32,
    sent: VecDeque<(Option<Operation>, usize)>,
    /// What messages cost that were copied, and of these those that were offered and not accepted.
    kept: usize,
    kept_offered: usize,
}

/// What a peer must be told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    Accept { message: u32, receive: u32, len: u64 },
    Decline { message: u32 },
    Credit { until: u64 },
    Nothing,
    Gone { endpoint: u64 },
    Ask { message: u32 },
    Receipt { message: u32 },
}

/// Where a message's bytes are.
#[derive(Debug)]
pub(super) enum Source {
    Region(Region),
    Kept(Vec<u8>),
}

#[derive(Debug)]
struct Message {
    envelope: Envelope,
    source: Source,
    ends: Ends,
    said: u64,
    begun: bool,
}

#[derive(Debug)]
struct Accepted {
    message: Message,
    receive: u32,
    len: u64,
}

impl Source {
    fn read(&self, offset: u64, into: &mut [u8], memory: &dyn Memory) {
        match self {
            Self::Region(region) => memory.read(*region, offset as usize, into),
            Self::Kept(bytes) => into.copy_from_slice(&bytes[offset as usize..][..into.len()]),
        }
    }

    /// What is kept for it costs.
    pub(super) fn kept(&self) -> usize {
        match self {
            Self::Region(_) => 0,
            Self::Kept(bytes) => cost(bytes.len() as u64) as usize,
        }
    }
}

impl Message {
    /// What completes at its end, if it fails, and what was kept for it.
    fn failed(&self) -> (Option<Operation>, usize) {
        let operation = match self.ends {
            Ends::Untold => None,
            Ends::Said(operation) | Ends::Taken { operation, .. } => Some(operation),
        };
        (operation, self.source.kept())
    }
}

impl Outbox {
    /// To a peer that may be sent so much before it says anything.
    pub(super) const fn new(first: u64) -> Self {
        Self {
            control: VecDeque::new(),
            messages: VecDeque::new(),
            offered: BTreeMap::new(),
            parts: VecDeque::new(),
            asked: BTreeMap::new(),
            credit: first,
            spent: 0,
            next: 0,
            sent: VecDeque::new(),
            kept: 0,
            kept_offered: 0,
        }
    }

    pub(super) fn push(&mut self, envelope: Envelope, source: Source, ends: Ends) {
        self.kept += source.kept();
        self.messages.push_back(Message { envelope, source, ends, said: 0, begun: false });
    }

    /// What messages cost that were copied and have not ended.
    pub(super) const fn kept(&self) -> usize {
        self.kept
    }

    /// What those of them cost that are to be said, or offered, as soon as there is room.
    pub(super) const fn unsaid(&self) -> usize {
        self.kept - self.kept_offered
    }

    pub(super) fn say(&mut self, control: Control) {
        self.control.push_back(control);
    }

    pub(super) fn has_frames(&self) -> bool {
        !self.control.is_empty() || !self.messages.is_empty() || !self.parts.is_empty()
    }

    /// Whether a message waits, or is offered, that is told to be sent, as it was copied: whoever sent it may end before it is taken.
    pub(super) fn owes_copies(&self) -> bool {
        let accepted = self.parts.iter().map(|accepted| &accepted.message);
        let mut all = self.offered.values().chain(&self.messages).chain(accepted);
        all.any(|message| matches!(message.source, Source::Kept(_)))
    }

    /// Whether an answer is awaited.
    pub(super) fn awaits(&self) -> bool {
        !self.offered.is_empty() || !self.asked.is_empty()
    }

    pub(super) fn on_credit(&mut self, until: u64) {
        self.credit = self.credit.max(until);
    }

    /// An offered message is wanted, or `len` bytes of it.
    pub(super) fn on_accept(&mut self, message: u32, receive: u32, len: u64) {
        let Some(message) = self.offered.remove(&message) else { return };
        self.kept_offered -= message.source.kept();
        let len = len.min(message.envelope.len);
        if len == 0 {
            self.end(&message);
        } else {
            self.parts.push_back(Accepted { message, receive, len });
        }
    }

    /// All of a message was said.
    fn end(&mut self, message: &Message) {
        let kept = message.source.kept();
        match message.ends {
            Ends::Untold => self.sent.push_back((None, kept)),
            Ends::Said(operation) => self.sent.push_back((Some(operation), kept)),
            // What is taken in order is taken when what is said behind it comes.
            Ends::Taken { operation, .. } => {
                self.sent.push_back((None, kept));
                let message = self.take_number();
                self.asked.insert(message, operation);
                self.control.push_back(Control::Ask { message });
            }
        }
    }

    /// A number of which no answer is awaited: after four thousand million others one still may be.
    fn take_number(&mut self) -> u32 {
        while self.offered.contains_key(&self.next) || self.asked.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        number
    }

    /// The peer has taken a message.
    pub(super) fn on_receipt(&mut self, message: u32) {
        self.sent.extend(self.asked.remove(&message).map(|operation| (Some(operation), 0)));
    }

    /// A message that has ended, and bytes that were kept for it.
    pub(super) fn poll_sent(&mut self) -> Option<(Option<Operation>, usize)> {
        let ended = self.sent.pop_front()?;
        self.kept -= ended.1;
        Some(ended)
    }

    /// Forgets everything: what was under way.
    pub(super) fn clear(&mut self) -> Vec<(Option<Operation>, usize)> {
        self.control.clear();
        (self.kept, self.kept_offered) = (self.sent.iter().map(|(_, kept)| kept).sum(), 0);
        let messages = self.messages.drain(..);
        let offered = std::mem::take(&mut self.offered).into_values();
        let parts = self.parts.drain(..).map(|accepted| accepted.message);
        let said = std::mem::take(&mut self.asked).into_values().map(|operation| (Some(operation), 0));
        said.chain(messages.chain(offered).chain(parts).map(|message| message.failed())).collect()
    }

    /// Writes frames: how many bytes.
    pub(super) fn fill(
        &mut self,
        room: &mut [u8],
        memory: &dyn Memory,
        eager: usize,
        counts: &mut Counts,
    ) -> usize {
        let mut page = Page { room, written: 0 };
        // In turn: neither long messages nor short ones wait for the others' end.
        loop {
            self.fill_controls(&mut page);
            let said = self.fill_message(&mut page, memory, eager, counts);
            if !self.fill_part(&mut page, memory) && !said {
                return page.written;
            }
        }
    }

    fn fill_controls(&mut self, page: &mut Page<'_>) {
        while page.left() >= PART
            && let Some(control) = self.control.pop_front()
        {
            let frame = match control {
                Control::Accept { message, receive, len } => Frame::Accept { message, receive, len },
                Control::Decline { message } => Frame::Decline { message },
                Control::Credit { until } => Frame::Credit { until },
                Control::Nothing => Frame::Nothing,
                Control::Gone { endpoint } => Frame::Gone { endpoint },
                Control::Ask { message } => Frame::Ask { message },
                Control::Receipt { message } => Frame::Receipt { message },
            };
            page.head(&frame, 0);
        }
    }

    fn fill_message(
        &mut self,
        page: &mut Page<'_>,
        memory: &dyn Memory,
        eager: usize,
        counts: &mut Counts,
    ) -> bool {
        let Some(message) = self.messages.front_mut() else { return false };
        let envelope = message.envelope;
        if !message.begun {
            if page.left() < BEGIN {
                return false;
            }
            let short = envelope.len <= eager as u64;
            if !short || self.spent + cost(envelope.len) > self.credit {
                counts.offered += 1;
                counts.without_credit += u64::from(short);
                self.kept_offered += message.source.kept();
                let number = self.take_number();
                page.head(&Frame::Offer { envelope, message: number }, 0);
                self.offered.extend(self.messages.pop_front().map(|message| (number, message)));
                return true;
            }
        }
        let left = envelope.len - message.said;
        let head = if message.begun { MORE } else { BEGIN };
        // Not a few bytes of many behind everything else.
        if page.left() < head + (left as usize).min(LEAST_CHUNK) {
            return false;
        }
        let Some(chunk) = chunk(left as usize, page.left() - head, message.ends) else { return false };
        if message.begun {
            page.head(&Frame::More(&[]), chunk);
        } else {
            counts.eager += 1;
            self.spent += cost(envelope.len);
            message.begun = true;
            page.head(&Frame::Eager(envelope, &[]), chunk);
        }
        message.source.read(message.said, page.chunk(chunk), memory);
        message.said += chunk as u64;
        if message.said == envelope.len
            && let Some(message) = self.messages.pop_front()
        {
            self.end(&message);
        }
        true
    }

    fn fill_part(&mut self, page: &mut Page<'_>, memory: &dyn Memory) -> bool {
        let Some(accepted) = self.parts.front_mut() else { return false };
        let message = &mut accepted.message;
        let left = (accepted.len - message.said) as usize;
        if page.left() < PART + left.min(LEAST_CHUNK) {
            return false;
        }
        let Some(chunk) = chunk(left, page.left() - PART, message.ends) else { return false };
        page.head(&Frame::Part { receive: accepted.receive, offset: message.said, bytes: &[] }, chunk);
        message.source.read(message.said, page.chunk(chunk), memory);
        message.said += chunk as u64;
        if message.said < accepted.len {
            self.parts.rotate_left(1);
        } else if let Some(accepted) = self.parts.pop_front() {
            self.end(&accepted.message);
        }
        true
    }
}

/// How many of the `left` bytes of a message are said in `room`. What asks whether it was taken is said with the last of them: whoever has that
/// alone may go, as it owes nothing that it knows of.
fn chunk(left: usize, room: usize, ends: Ends) -> Option<usize> {
    let asks = matches!(ends, Ends::Taken { .. });
    if !asks || left > room || left + PART <= room {
        return Some(left.min(room));
    }
    room.checked_sub(PART).filter(|chunk| *chunk > 0)
}

/// Room that is being written.
struct Page<'a> {
    room: &'a mut [u8],
    written: usize,
}

impl Page<'_> {
    const fn left(&self) -> usize {
        self.room.len() - self.written
    }

    fn head(&mut self, frame: &Frame<'_>, chunk: usize) {
        self.written += frame.encode_head(chunk, &mut self.room[self.written..]);
    }

    fn chunk(&mut self, len: usize) -> &mut [u8] {
        let begin = self.written;
        self.written += len;
        &mut self.room[begin..self.written]
    }
}

/// The least of a longer message that a frame of its own is worth, bytes.
const LEAST_CHUNK: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_messages_under_way_have_one_number() {
        struct Nowhere;
        impl Memory for Nowhere {
            fn read(&self, _: Region, _: usize, _: &mut [u8]) {}
            fn write(&mut self, _: Region, _: usize, _: &[u8]) {}
        }
        // Messages of one byte go at once, as far as there is credit; longer ones are offered.
        let mut outbox = Outbox::new(2 * cost(1));
        for (number, (len, next)) in (0..).zip([(2, 0), (1, u32::MAX), (2, u32::MAX), (1, u32::MAX)]) {
            let ends = Ends::Taken { operation: Operation(number), copied: false };
            outbox.push(Envelope { tag: None, data: None, len }, Source::Region(Region(number)), ends);
            outbox.next = next;
            outbox.fill(&mut [0; 4096], &Nowhere, 1, &mut Counts::default());
        }
        let (offered, asked) = (outbox.offered.keys().copied(), outbox.asked.keys().copied());
        assert_eq!((offered.collect::<Vec<_>>(), asked.collect::<Vec<_>>()), (vec![0, 1], vec![2, u32::MAX]));
    }
}
