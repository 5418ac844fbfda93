//! The sender of a session: which packet leaves next, to the group or to one receiver.
//!
//! Products are sent one after the other, and each only once to the group unless something of it is lost: the next is under way while
//! older ones are repaired. What receivers lack is counted, and a [`RepairPolicy`] says whether it goes to the group or to those who
//! lack it. New products come first: while any waits, repairs have a small share of the rate, and that only where they did not have it
//! before, and unicast a rate of its own beside it. So a receiver that loses much costs the others little, whatever it asks for. What a
//! receiver lacks that seldom loses anything goes before what others lack.
//!
//! Memory is bounded by how much is held, not by what is lost: a byte for each packet near which something is lacking, and
//! a million runs for all receivers. What is left out is asked for again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farlink_wire::cast::control::{BlockPackets, Report};
use farlink_wire::cast::packet::{Data, Parity};
use farlink_wire::cast::{Payload, Position, Shape};
use farlink_wire::message::Text;
use farlink_wire::quantity::Nanos;

use super::pacer::{Lane, Pacer, Rates};
use super::repair_policy::{Adaptive, RepairPolicy, View};
use super::spans::Spans;

mod archive;
mod asked;
mod choice;
mod held;
mod lacking;
mod part;
mod peer;
mod release;
mod tail;
mod turns;

use archive::{Archive, one};
use asked::{Asked, Collected};
use held::Held;
pub use held::Hold;
use peer::Peer;
pub use peer::Progress;
use tail::Tail;
use turns::{Round, Turns};

/// What a session is to be like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Of a full packet.
    pub payload: Payload,
    /// Packets of a block of parity.
    pub block: BlockPackets,
    /// Packets of parity for each block; 0 where there is none.
    pub parity: u16,
    /// How fast.
    pub rates: Rates,
    /// How long products are held.
    pub hold: Hold,
    /// Products that are held at most; the oldest is gone before there are more.
    pub most_held: usize,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Send {
    /// To the group: `bytes` of the stream in packets of full payload, the last of a stream shorter, the first with this header and each
    /// further one with an offset that is a payload more. One system call's worth.
    Data {
        /// Of the first packet.
        header: Data,
        /// Of all of them.
        bytes: u64,
    },
    /// To the group: one packet of parity over the block whose packets were sent last.
    Parity(Parity),
    /// To the group: where the first pass is.
    Status(Position),
    /// To one receiver, over its control connection.
    Repair {
        /// Who.
        receiver: u32,
        /// What.
        product: u32,
        /// Its stream.
        shape: Shape,
        /// From which byte of the stream on.
        offset: u64,
        /// How many: at most [`farlink_wire::cast::control::MOST_REPAIR`].
        bytes: u64,
    },
    /// To one receiver: these products are held no longer.
    Gone {
        /// Who.
        receiver: u32,
        /// Runs of first and count.
        runs: Vec<(u32, u32)>,
    },
    /// To one receiver: this product cannot be had any more.
    Lost {
        /// Who.
        receiver: u32,
        /// What.
        product: u32,
        /// Why.
        reason: Text,
    },
    /// To one receiver: this product cannot be had any more, and a later one has its name.
    Superseded {
        /// Who.
        receiver: u32,
        /// What.
        product: u32,
    },
    /// Nothing is sent: this product is with everybody, or gone, and what was kept in memory for it can be dropped. A receiver that catches
    /// up may still ask for it, if it can be read again.
    Released {
        /// What.
        product: u32,
    },
}

/// The sender's half of a session.
///
/// Events come in by `on_*`. After each, and when [`Self::deadline`] has come:
/// 1. [`Self::poll`] until it yields `None`, doing what it says;
/// 2. [`Self::deadline`], and wake no later than that.
#[derive(Debug)]
pub struct Sender {
    config: Config,
    policy: Box<dyn RepairPolicy>,
    pacer: Pacer,
    held: BTreeMap<u32, Held>,
    /// Products whose first pass is not over, in order.
    queue: VecDeque<u32>,
    next_product: u32,
    no_more: bool,
    /// Products that are held no longer.
    archive: Archive,
    /// Products that could not be read any more when others had their names.
    superseded: Spans,
    /// Products before this one were forgotten, as there have been too many since.
    first: u32,
    /// When products are gone.
    expiries: BTreeSet<(Nanos, u32)>,
    /// Products of which something is lacking.
    needy: BTreeSet<u32>,
    /// The threshold for which nothing was found to send to the group again, since something was last asked for.
    nothing_from: Option<u32>,
    tail: Tail,
    peers: BTreeMap<u32, Peer>,
    free_places: Vec<u32>,
    /// Who waits for unicast.
    turns: Turns,
    /// What was asked for and is not dealt with yet, and when it will be.
    unheard: Vec<Asked>,
    collected: Collected,
    /// What is being dealt with: a part at a time, between products.
    heeding: VecDeque<Asked>,
    /// Turns since it began with that.
    heeded: u32,
    heeding_from: Nanos,
    /// Packets that wait for unicast, for all receivers.
    waiting: u64,
    /// Since when nobody is there, where somebody was.
    deserted_at: Option<Nanos>,
    /// Packets that receivers could have received, and that they lost, all together.
    reported: (u64, u64),
    pending: VecDeque<Send>,
    /// When there was time to spare last, and whether nothing has been to be sent for the first time since.
    idle_at: Nanos,
    is_idle: bool,
    /// Whether what was sent last went to a single receiver beside the group.
    was_beside: bool,
    /// Until when those who seldom lose anything are to have what was sent before others catch up.
    few_until: Nanos,
    status_at: Nanos,
    status_after: Nanos,
    /// When anything was sent to the group last.
    spoken_at: Nanos,
    totals: Totals,
}

/// What a session has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Payload of first passes, bytes.
    pub first_pass: u64,
    /// Payload that was sent to the group again.
    pub multicast_repair: u64,
    /// Payload of parity.
    pub parity: u64,
    /// Payload that was sent to single receivers.
    pub unicast_repair: u64,
    /// Times that a product was gone for a receiver.
    pub gone: u64,
    /// Frames with NACKs.
    pub nacks: u64,
    /// Bytes to the group on the wire, with every header: what [`super::rate::RateFinder::on_sent`] is to know.
    pub group_wire: u64,
}

#[cfg(test)]
impl Config {
    /// Small packets at 1 Gb/s, of which repairs have a share, and so much beside it.
    fn of_a_gigabit(repair: f64, beside: Option<farlink_wire::quantity::BitsPerSec>) -> Self {
        use farlink_wire::quantity::{BitsPerSec, Fraction};
        let (group, repair) = (BitsPerSec::new(1_000_000_000).unwrap(), Fraction::new(repair).unwrap());
        Self {
            payload: Payload::try_from(1000).unwrap(),
            block: BlockPackets::default(),
            parity: 0,
            rates: Rates { group, repair, beside, around: 66 },
            hold: Hold::default(),
            most_held: 64,
        }
    }
}

impl Sender {
    /// A session without receivers or products.
    #[must_use]
    pub fn new(config: Config, now: Nanos) -> Self {
        Self::with_policy(config, Box::new(Adaptive), now)
    }

    /// One that decides otherwise how losses are repaired.
    #[must_use]
    pub fn with_policy(config: Config, policy: Box<dyn RepairPolicy>, now: Nanos) -> Self {
        let has_parity = config.parity > 0 && config.block.get() > 0;
        let config = Config {
            parity: if has_parity { config.parity } else { 0 },
            block: if has_parity { config.block } else { BlockPackets::default() },
            most_held: config.most_held.max(1),
            ..config
        };
        Self {
            config,
            policy,
            pacer: Pacer::new(config.rates, config.payload, now),
            held: BTreeMap::new(),
            queue: VecDeque::new(),
            next_product: 0,
            no_more: false,
            archive: Archive::default(),
            superseded: Spans::default(),
            first: 0,
            expiries: BTreeSet::new(),
            needy: BTreeSet::new(),
            nothing_from: None,
            tail: Tail::default(),
            peers: BTreeMap::new(),
            free_places: Vec::new(),
            turns: Turns::default(),
            unheard: Vec::new(),
            collected: Collected::default(),
            heeding: VecDeque::new(),
            heeded: 0,
            heeding_from: now,
            waiting: 0,
            deserted_at: None,
            reported: (0, 0),
            pending: VecDeque::new(),
            idle_at: now,
            is_idle: true,
            was_beside: false,
            few_until: Nanos::ZERO,
            status_at: now,
            status_after: FIRST_STATUS,
            spoken_at: now,
            totals: Totals::default(),
        }
    }

    /// Takes a product, and says its number; `None` where the session has had all that it may.
    pub fn on_product(&mut self, shape: Shape) -> Option<u32> {
        debug_assert!(!self.no_more, "a product after the last");
        let product = self.next_product;
        self.next_product = product.checked_add(1)?;
        self.held.insert(product, Held::new(shape, self.config.payload, self.peers.len() as u32));
        self.queue.push_back(product);
        Some(product)
    }

    /// Whether another product should be given: enough wait, otherwise, to keep the group busy.
    #[must_use]
    pub fn wants_products(&self) -> bool {
        self.queue.len() < QUEUE
    }

    /// Products that were given and whose first pass is not over.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.queue.len()
    }

    /// Whether a product is one of them.
    #[must_use]
    pub fn is_unsent(&self, product: u32) -> bool {
        self.queue.contains(&product)
    }

    /// Bytes of their content.
    #[must_use]
    pub fn unsent_bytes(&self) -> u64 {
        self.queue.iter().filter_map(|product| self.held.get(product)).map(|held| held.shape.content()).sum()
    }

    /// No further product comes.
    pub fn on_no_more(&mut self) {
        self.no_more = true;
    }

    /// How a receiver fares.
    pub fn on_report(&mut self, now: Nanos, receiver: u32, report: Report) {
        if let Some(peer) = self.peers.get_mut(&receiver) {
            peer.look_back(self.totals.first_pass);
            if peer.progress.report.packets != report.packets {
                peer.heard_at = now;
            }
        }
        self.account(receiver, report);
        self.release_to_deaf(now, receiver);
    }

    fn account(&mut self, receiver: u32, report: Report) {
        let Some(peer) = self.peers.get_mut(&receiver) else { return };
        let before = std::mem::replace(&mut peer.progress.report, report);
        let (packets, lost) = self.reported;
        let change = |sum: u64, old: u64, new: u64| sum.saturating_sub(old).saturating_add(new);
        self.reported =
            (change(packets, before.packets, report.packets), change(lost, before.lost, report.lost));
    }

    /// A receiver's connection takes no more, or takes more again.
    pub fn on_writable(&mut self, receiver: u32, is_writable: bool) {
        if let Some(peer) = self.peers.get_mut(&receiver) {
            peer.is_writable = is_writable;
        }
    }

    /// A product cannot be read (any more): nobody who lacks something of it will get it.
    pub fn on_unreadable(&mut self, product: u32, reason: &Text) {
        self.lose(product, |receiver, peer| {
            peer.progress.failed += 1;
            peer.lost.insert(one(product));
            while peer.lost.runs() > MOST_LOST {
                peer.lost.pop(u64::MAX);
            }
            Send::Lost { receiver, product, reason: reason.clone() }
        });
    }

    /// A product that was sent cannot be read again: one receiver, or where none is named each that waits for something of it alone, is told so. It
    /// may have all of it from before, and says whether it has. Others are told when they ask.
    pub fn on_unreadable_again(&mut self, product: u32, receiver: Option<u32>, reason: &Text) {
        if let Some(held) = self.held.get_mut(&product) {
            held.lacking = lacking::Lacking::default();
            self.needy.remove(&product);
        }
        for (number, peer) in &mut self.peers {
            if receiver.map_or_else(|| peer.wanted.contains_key(&product), |receiver| receiver == *number) {
                self.waiting -= peer.forget(product);
                self.pending.push_back(Send::Lost { receiver: *number, product, reason: reason.clone() });
            }
        }
    }

    /// As [`Self::on_unreadable`], where a later product has the name of this one: nobody needs it, and whoever lacks it is told so.
    pub fn on_superseded(&mut self, product: u32) {
        if self.held.contains_key(&product) || self.archive.get(product).is_some() {
            self.superseded.insert(one(product));
        }
        self.lose(product, |receiver, peer| {
            peer.progress.products += 1;
            Send::Superseded { receiver, product }
        });
    }

    fn lose(&mut self, product: u32, tell: impl Fn(u32, &mut Peer) -> Send) {
        let held = self.held.remove(&product);
        if held.is_none() && !self.archive.remove(product) {
            return;
        }
        self.forget_first_pass(product, held.as_ref());
        let mut waiting = 0;
        for (receiver, peer) in &mut self.peers {
            let waits = held.as_ref().is_some_and(|held| !held.is_settled(peer.place));
            peer.behind -= u64::from(waits && held.as_ref().is_some_and(Held::is_passed));
            let lacks = peer.owed.remove(one(product)) > 0 || waits;
            peer.gone.remove(one(product));
            waiting += peer.forget(product);
            if lacks {
                self.pending.push_back(tell(*receiver, peer));
            }
        }
        self.waiting -= waiting;
    }

    /// Sends to the group at another rate.
    pub fn set_rate(&mut self, rate: farlink_wire::quantity::BitsPerSec) {
        self.pacer.set_group(rate);
    }

    /// What is to be done now.
    pub fn poll(&mut self, now: Nanos) -> Option<Send> {
        self.expire(now);
        // What was found when it was last listened is said first: whoever asks for much cannot have more and more wait.
        if self.pending.is_empty() {
            self.listen(now);
        }
        if let Some(send) = self.pending.pop_front() {
            return Some(send);
        }
        if self.peers.is_empty() {
            self.is_idle = true;
            return None;
        }
        let send = self.choose(now);
        self.check();
        send
    }

    /// When to come again at the latest; `None` where only an event changes anything.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        let expiry = self.expiries.first().map(|(at, _)| *at);
        let heard = (!self.unheard.is_empty()).then_some(self.collected.until);
        let heard = if self.heeding.is_empty() { heard } else { Some(Nanos::ZERO) };
        let expiry = [expiry, heard].into_iter().flatten().min();
        if self.peers.is_empty() {
            return expiry;
        }
        let waits = |round| self.turns.each(round).any(|receiver| self.is_writable(receiver));
        let (few, many) = (waits(Round::Few), waits(Round::Many));
        let group = if !self.queue.is_empty() {
            self.pacer.free_at(Lane::Group)
        } else if few || self.has_multicast_repair() {
            self.pacer.free_at(Lane::Spare)
        } else {
            let next = |at: Nanos| if many { self.status_at.min(self.many_at(at)) } else { self.status_at };
            self.pacer.free_at(Lane::Spare).map(|at| at.max(next(at)))
        };
        let beside = if few || many { self.pacer.free_at(Lane::Beside) } else { None };
        [expiry, group, beside].into_iter().flatten().min()
    }

    /// Whether every product is with every receiver that takes part, or is known not to come.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.no_more
            && self.held.is_empty()
            && self.pending.is_empty()
            && self.peers.values().all(|peer| peer.owed.is_empty())
    }

    /// When nothing waited for its first pass last.
    #[must_use]
    pub const fn idle_at(&self) -> Nanos {
        self.idle_at
    }

    /// Where the first pass is: what a receiver that joins is told.
    #[must_use]
    pub fn position(&self) -> Position {
        let Some(product) = self.queue.front() else {
            return Position { product: self.next_product, offset: 0 };
        };
        let payload = u64::from(self.config.payload.get());
        let offset = self.held.get(product).map_or(0, |held| (held.sent * payload).min(held.shape.stream()));
        Position { product: *product, offset }
    }

    /// The oldest product that can still be had.
    #[must_use]
    pub fn oldest(&self) -> u32 {
        let firsts = [self.held.keys().next().copied(), self.archive.oldest()];
        firsts.into_iter().flatten().min().unwrap_or(self.next_product)
    }

    /// The product that a receiver is told to begin with: of those before it, which were forgotten long ago, it need not ask for each. Of
    /// others that cannot be had it is told when it asks.
    #[must_use]
    pub const fn first(&self) -> u32 {
        self.first
    }

    /// Bytes of a product's stream, where it can still be had.
    #[must_use]
    pub fn stream(&self, product: u32) -> Option<u64> {
        held::shape(&self.archive, &self.held, product).map(Shape::stream)
    }

    /// Least time between two frames of NACKs, or of acknowledgements, of one receiver: so that all of them together send no more than
    /// the sender reads easily.
    #[must_use]
    pub fn pace(&self) -> Nanos {
        LEAST_PACE.max(frames(self.peers.len()))
    }

    /// How a receiver stands.
    #[must_use]
    pub fn progress(&self, receiver: u32) -> Option<Progress> {
        let peer = self.peers.get(&receiver)?;
        let behind = peer.behind + peer.owed.total();
        let waiting = peer.waiting() * u64::from(self.config.payload.get());
        Some(Progress { behind, waiting, ..peer.progress })
    }

    /// What it has come to so far.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Bytes that the machine takes, about.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let held = self.held.values().map(|held| size_of::<Held>() as u64 + held.memory()).sum::<u64>();
        held + self.peers.values().map(Peer::memory).sum::<u64>() + 32 * self.archive.len() as u64
    }

    fn is_writable(&self, receiver: u32) -> bool {
        self.peers.get(&receiver).is_some_and(|peer| peer.is_writable && !peer.wanted.is_empty())
    }

    /// Says soon again where the first pass is.
    fn wake_status(&mut self, now: Nanos) {
        self.status_after = FIRST_STATUS;
        self.status_at = self.status_at.min(now.after(FIRST_STATUS));
    }

    /// Where nothing has been found to send to the group again, there is nothing.
    fn has_multicast_repair(&self) -> bool {
        !self.needy.is_empty() && self.nothing_from.is_none()
    }

    fn view(&self, busy: bool) -> View {
        let (packets, lost) = self.reported;
        let rate = self.config.rates.beside.unwrap_or(self.pacer.rates().group);
        View {
            receivers: self.peers.len() as u32,
            loss: if packets == 0 { LIKELY_LOSS } else { lost as f64 / packets as f64 },
            busy,
            unicast_wait: rate.time_for(self.waiting * self.pacer.packet()),
        }
    }

    fn check(&self) {
        debug_assert!(self.queue.iter().all(|product| self.held.contains_key(product)));
        debug_assert!(self.needy.iter().all(|product| self.held.contains_key(product)));
        let behind = |peer: &Peer| {
            let lacks = |held: &&Held| held.is_passed() && !held.is_settled(peer.place);
            self.held.values().filter(lacks).count() as u64
        };
        debug_assert!(
            self.peers.len() * self.held.len() > 200
                || self.peers.values().all(|peer| peer.behind == behind(peer)),
            "what was counted is what a walk finds"
        );
        debug_assert!(
            self.peers.len() > 50 || self.waiting == self.peers.values().map(Peer::waiting).sum::<u64>()
        );
    }
}

/// Products that wait for their first pass: of 40 kB they keep 10 Gb/s busy for 8 ms, in which a caller finds more.
const QUEUE: usize = 256;

/// How long after the last packet a status says so, and how long after that at most: a lost last packet costs so much and a round trip.
const FIRST_STATUS: Nanos = Nanos(2_000_000);
const LAST_STATUS: Nanos = Nanos(1_000_000_000);

/// In what time a sender reads a frame of each of so many receivers easily: 20,000 a second, of all together.
const fn frames(receivers: usize) -> Nanos {
    Nanos(receivers as u64 * 50_000)
}

const LEAST_PACE: Nanos = Nanos(1_000_000);

/// The loss that is reckoned with before any is known.
const LIKELY_LOSS: f64 = 0.01;

/// Runs of products that a receiver was told are lost, and may have had.
const MOST_LOST: usize = 1000;
