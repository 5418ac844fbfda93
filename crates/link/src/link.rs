//! The machine: super-packets in, runs of their segments out, each when its last bit arrives.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use farlink_wire::quantity::{Fraction, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::conditions::Conditions;
use crate::jitter::Jitter;
use crate::loss::LossModel;
use crate::queue::Queue;

/// One direction of a connection. `T` stands for a packet; clones of it share the packet.
///
/// Everything is decided per segment of the wire when its super-packet arrives. Drive it in this order after
/// every input:
/// 1. [`poll`](Self::poll) until it yields `None`
/// 2. [`deadline`](Self::deadline), and wake no later than that
#[derive(Debug)]
pub struct Link<T> {
    conditions: Conditions,
    loss: Box<dyn LossModel>,
    queue: Queue,
    jitter: Jitter,
    random: Pcg64Mcg,
    /// In order of arrival.
    way: VecDeque<Delivery<T>>,
    /// Segments that were held back: by due time, then by when they were held back.
    held: BinaryHeap<Reverse<Held<T>>>,
    /// The latest arrival of those that keep their order.
    arrived: Nanos,
    counters: Counters,
}

/// How a super-packet's segments share its bytes: IP packets of `full` bytes, the last one of `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// How many, at least 1.
    pub count: u16,
    /// Bytes of each IP packet but the last.
    pub full: u32,
    /// Bytes of the last.
    pub last: u32,
}

impl Segments {
    /// A packet that is one segment of `len` bytes.
    #[must_use]
    pub const fn one(len: u32) -> Self {
        Self { count: 1, full: len, last: len }
    }
}

/// Segments that arrive together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<T> {
    /// When the last of them arrives.
    pub due: Nanos,
    /// The super-packet that they are of.
    pub packet: T,
    /// Which of its segments.
    pub run: Range<u16>,
    /// The bit of the IP packet that is flipped; the run is then one segment.
    pub flipped: Option<u32>,
}

/// What became of the segments so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Super-packets that were offered.
    pub packets: u64,
    /// Segments that were offered.
    pub segments: u64,
    /// Bytes of IP packets that were offered.
    pub bytes: u64,
    /// Segments that found the queue full.
    pub dropped_queue: u64,
    /// Segments lost on the wire.
    pub dropped_loss: u64,
    /// Segments sent into a cut link.
    pub dropped_cut: u64,
    /// Segments damaged.
    pub corrupted: u64,
    /// Segments that arrive twice.
    pub duplicated: u64,
    /// Segments held back.
    pub reordered: u64,
    /// Packets of the background traffic that were offered.
    pub background_packets: u64,
    /// Packets of the background traffic that found the queue full.
    pub background_dropped_queue: u64,
    /// Packets of the background traffic that were sent into a cut link.
    pub background_dropped_cut: u64,
}

#[derive(Debug)]
struct Held<T> {
    order: u64,
    delivery: Delivery<T>,
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Held<T> {}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.delivery.due, self.order).cmp(&(other.delivery.due, other.order))
    }
}

/// A run that may yet grow: the segments since `first` that go on together.
struct OpenRun {
    first: u16,
    /// When its first segment began to leave.
    began: Nanos,
    due: Nanos,
}

impl<T: Clone> Link<T> {
    /// An idle link at `now`; every random choice derives from `seed`.
    #[must_use]
    pub fn new(conditions: Conditions, seed: u64, now: Nanos) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let queue = Queue::new(&conditions, now, &mut random);
        let jitter = Jitter::new(conditions.jitter, now, &mut random);
        Self {
            jitter,
            conditions,
            loss: conditions.loss.model(),
            queue,
            random,
            way: VecDeque::new(),
            held: BinaryHeap::new(),
            arrived: now,
            counters: Counters::default(),
        }
    }

    /// What the link is now asked to be.
    #[must_use]
    pub const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Changes what it is asked to be: for packets to come. Those on their way keep their times, and the order is kept.
    pub fn set(&mut self, now: Nanos, conditions: Conditions) {
        self.advance(now);
        let was = std::mem::replace(&mut self.conditions, conditions);
        if conditions.loss != was.loss {
            self.loss = conditions.loss.model();
        }
        if conditions.jitter != was.jitter {
            self.jitter = Jitter::new(conditions.jitter, now, &mut self.random);
        }
        if let (Some(rate), true) = (was.rate, conditions.rate != was.rate) {
            self.queue.on_rate(now, rate);
        }
        let size = |c: &Conditions| (c.background, c.framing, c.mtu);
        if size(&conditions) != size(&was) {
            self.queue.set_background(&conditions, now, &mut self.random);
        }
    }

    /// Lets the background traffic up to `now` take its places in the queue, so that what is shown is as of now.
    pub fn advance(&mut self, now: Nanos) {
        let (Some(rate), Some(limit)) = (self.conditions.rate, self.conditions.queue_bytes()) else { return };
        let room = (!self.conditions.is_cut).then_some((rate, limit));
        let passed = self.queue.advance(now, room, &mut self.random);
        self.counters.background_packets += passed.packets;
        if self.conditions.is_cut {
            self.counters.background_dropped_cut += passed.dropped;
        } else {
            self.counters.background_dropped_queue += passed.dropped;
        }
    }

    /// A super-packet arrives at the sending end. Gives how many deliveries will come of it.
    pub fn on_packet(&mut self, now: Nanos, segments: Segments, packet: &T) -> u32 {
        self.counters.packets += 1;
        self.advance(now);
        let mut open: Option<OpenRun> = None;
        let mut deliveries = 0;
        for index in 0..segments.count {
            let len = if index + 1 == segments.count { segments.last } else { segments.full };
            self.counters.segments += 1;
            self.counters.bytes += u64::from(len);
            let fate = self.fate(now, len);
            let joins = matches!(fate, Fate::Arrives { .. } | Fate::Twice { .. });
            let too_long = |run: &OpenRun| fate.left().since(run.began) > RUN_SPAN;
            if open.as_ref().is_some_and(|run| !joins || too_long(run)) {
                deliveries += self.close(open.take(), index, packet);
            }
            match fate {
                Fate::Dropped => {}
                Fate::Arrives { began, due, .. } | Fate::Twice { began, due, .. } => {
                    let run = open.get_or_insert(OpenRun { first: index, began, due });
                    run.due = due;
                    if matches!(fate, Fate::Twice { .. }) {
                        deliveries += self.close(open.take(), index + 1, packet);
                        deliveries += self.deliver(due, packet, index, None);
                    }
                }
                Fate::Flipped { due, bit } => deliveries += self.deliver(due, packet, index, Some(bit)),
                Fate::Late { due } => {
                    let delivery =
                        Delivery { due, packet: packet.clone(), run: index..index + 1, flipped: None };
                    let order = self.counters.reordered;
                    self.held.push(Reverse(Held { order, delivery }));
                    deliveries += 1;
                }
            }
        }
        deliveries + self.close(open, segments.count, packet)
    }

    /// A super-packet arrives that goes no further than the sending end, as if the link were cut.
    pub fn refuse(&mut self, segments: Segments) {
        let Segments { count, full, last } = segments;
        self.counters.packets += 1;
        self.counters.segments += u64::from(count);
        self.counters.bytes += u64::from(full) * u64::from(count.saturating_sub(1)) + u64::from(last);
        self.counters.dropped_cut += u64::from(count);
    }

    /// The next run that has arrived by `now`.
    pub fn poll(&mut self, now: Nanos) -> Option<Delivery<T>> {
        let due = self.deadline()?;
        if due > now {
            return None;
        }
        match self.way.front() {
            Some(front) if front.due == due => self.way.pop_front(),
            _ => self.held.pop().map(|Reverse(held)| held.delivery),
        }
    }

    /// When the next run arrives.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        let in_order = self.way.front().map(|delivery| delivery.due);
        let late = self.held.peek().map(|Reverse(held)| held.delivery.due);
        [in_order, late].into_iter().flatten().min()
    }

    /// What became of the segments so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of the wire that wait in the queue at `now`.
    #[must_use]
    pub fn queue_bytes(&self, now: Nanos) -> u64 {
        self.conditions.rate.map_or(0, |rate| self.queue.bytes(now, rate))
    }

    /// The most bytes that ever waited.
    #[must_use]
    pub const fn queue_most_bytes(&self) -> u64 {
        self.queue.most_bytes()
    }

    /// What becomes of a segment of `len` bytes that arrives at `now`.
    fn fate(&mut self, now: Nanos, len: u32) -> Fate {
        if self.conditions.is_cut {
            self.counters.dropped_cut += 1;
            return Fate::Dropped;
        }
        let wire_len = self.conditions.framing.wire_len(len);
        let (began, left) = match (self.conditions.rate, self.conditions.queue_bytes()) {
            (Some(rate), Some(limit)) => match self.queue.offer(now, wire_len, rate, limit) {
                Some(left) => {
                    (Nanos(left.0.saturating_sub(rate.serialise(wire_len, Default::default()).0.0)), left)
                }
                None => {
                    self.counters.dropped_queue += 1;
                    return Fate::Dropped;
                }
            },
            _ => (now, now),
        };
        // The wire loses what the queue has let through: its time on the wire is spent.
        if self.loss.is_lost(&mut self.random) {
            self.counters.dropped_loss += 1;
            return Fate::Dropped;
        }
        let due = left.after(self.jitter.vary(self.conditions.delay, left, &mut self.random));
        if self.happens(self.conditions.reorder.share) {
            self.counters.reordered += 1;
            return Fate::Late { due: due.after(self.conditions.reorder.extra) };
        }
        let due = due.max(self.arrived);
        self.arrived = due;
        if self.happens(self.conditions.corrupt) {
            self.counters.corrupted += 1;
            return Fate::Flipped { due, bit: self.random.random_range(0..len.max(1) * 8) };
        }
        if self.happens(self.conditions.duplicate) {
            self.counters.duplicated += 1;
            return Fate::Twice { began, left, due };
        }
        Fate::Arrives { began, left, due }
    }

    fn happens(&mut self, share: Fraction) -> bool {
        share.get() > 0.0 && self.random.random::<f64>() < share.get()
    }

    fn close(&mut self, run: Option<OpenRun>, end: u16, packet: &T) -> u32 {
        let Some(run) = run else { return 0 };
        self.way.push_back(Delivery {
            due: run.due,
            packet: packet.clone(),
            run: run.first..end,
            flipped: None,
        });
        1
    }

    fn deliver(&mut self, due: Nanos, packet: &T, index: u16, flipped: Option<u32>) -> u32 {
        self.way.push_back(Delivery { due, packet: packet.clone(), run: index..index + 1, flipped });
        1
    }
}

/// What becomes of one segment.
#[derive(Clone, Copy)]
enum Fate {
    Dropped,
    Arrives { began: Nanos, left: Nanos, due: Nanos },
    Twice { began: Nanos, left: Nanos, due: Nanos },
    Flipped { due: Nanos, bit: u32 },
    Late { due: Nanos },
}

impl Fate {
    /// When it has left, where it may join a run.
    const fn left(&self) -> Nanos {
        match self {
            Self::Arrives { left, .. } | Self::Twice { left, .. } => *left,
            _ => Nanos::ZERO,
        }
    }
}

/// Time on the wire that segments of one delivery may span.
///
/// A super-packet of 64 KiB takes 53 µs at 10 Gb/s and is handed over whole, as a receiver's own offload
/// would; at 1 Gb/s it takes 0.53 ms, and its first segment must not wait that long for its last.
const RUN_SPAN: Nanos = Nanos(100_000);

#[cfg(test)]
mod tests;
