//! The receiver of a session: what is there, what is lacking, when to ask for it, and when to ask again.
//!
//! Packets of the first pass come in order, so the first that comes behind a gap tells of all that is missing before it: that is
//! asked for at once, as ranges. What does not come is asked for again, each time after twice as long. Where a session has parity, a gap
//! waits for the end of its block.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use farlink_wire::cast::control::{BlockPackets, MOST_RUNS, Report, Want};
use farlink_wire::cast::packet::{Data, Parity};
use farlink_wire::cast::{Announcement, Payload, Position, Shape};
use farlink_wire::entry::Digest;
use farlink_wire::message::Text;
use farlink_wire::quantity::Nanos;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::spans::Spans;
use super::window::Counts;
use crate::numbers::Numbers;

mod asking;
mod failed;
mod gaps;
mod item;
mod tally;
mod writes;

use failed::Failed;
pub use failed::Failure;
use gaps::Gaps;
use item::Item;
pub use tally::Tally;
pub use writes::{Write, Writes};

/// What a receiver is to know of its session, from the sender's welcome, and of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Of a full packet.
    pub payload: Payload,
    /// Packets of a block of parity; 0 where there is none.
    pub block: BlockPackets,
    /// The first product that is wanted, and can be had.
    pub first: u32,
    /// So many before it were wanted, and the sender has forgotten them: they count as failed.
    pub forgotten: u32,
    /// Where the sender was when it joined.
    pub position: Position,
    /// Least time between two frames of NACKs, or of acknowledgements.
    pub pace: Nanos,
    /// How long a packet may be late, because another overtook it, until it counts as missing.
    pub grace: Nanos,
    /// Of what it chooses at random: by how much it delays what it asks for again.
    pub seed: u64,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Send it to the sender, [`farlink_wire::cast::control::Control::Nack`].
    Nack(Vec<Want>),
    /// Send it to the sender, [`farlink_wire::cast::control::Control::Have`].
    Have(Vec<(u32, u32)>),
    /// Send it to the sender, [`farlink_wire::cast::control::Control::Report`].
    Report(Report),
    /// The name of a product is known. Its content may have been written before; what is there from an earlier attempt can be told by
    /// [`Receiver::on_found`].
    Announced {
        /// What.
        product: u32,
        /// Its name and metadata.
        announcement: Announcement,
        /// Bytes of its content.
        content: u64,
    },
    /// Everything of a product is written: compare its digest, give it its name, and say so by [`Receiver::on_checked`].
    Complete {
        /// What.
        product: u32,
        /// Its name and metadata.
        announcement: Announcement,
        /// Bytes of its content.
        content: u64,
        /// What its content must have.
        digest: Digest,
    },
    /// Enough of a block is there to rebuild the rest: read its packets back, call [`super::parity::rebuild`], and hand each packet that it
    /// gives to [`Receiver::on_data`] as a repair, cut to the stream's end.
    Rebuild(Rebuild),
    /// A product will not be stored. Tell the sender, unless it was the one to say so.
    Failed {
        /// What.
        product: u32,
        /// Why.
        failure: Failure,
    },
    /// A product that [failed](Event::Failed) before. Tell the sender, which may not have heard of it.
    StillFailed {
        /// What.
        product: u32,
        /// Why; empty where that is long ago, and was said.
        reason: Text,
    },
}

/// A block that can be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// Of which product.
    pub product: u32,
    /// Its stream.
    pub shape: Shape,
    /// Where in the stream the block begins.
    pub offset: u64,
    /// Packets of the block.
    pub packets: u16,
    /// Those of them that are there, by their places in the block.
    pub there: Vec<u16>,
    /// Packets of parity that the sender made for it.
    pub of: u16,
    /// Those of them that came.
    pub parity: Vec<(u16, Vec<u8>)>,
}

/// The receiver's half of a session.
///
/// Events come in by `on_*`: packets that an [`super::seal::Opener`] has opened, frames of the control connection, and what became of the
/// files. After each, and when [`Self::deadline`] has come:
/// 1. [`Self::poll`] until it yields `None`, doing what it says;
/// 2. [`Self::deadline`], and wake no later than that.
#[derive(Debug)]
pub struct Receiver {
    config: Config,
    items: BTreeMap<u32, Item>,
    /// Products that are stored or never will be.
    done: Numbers,
    /// Those of them that will not be.
    failed: Failed,
    /// How far the first pass is known to be: product and packet.
    frontier: (u32, u64),
    /// How far it was looked through for gaps.
    scanned: (u32, u64),
    /// The same of what was sent before it joined, and where that was.
    scanned_before: (u32, u64),
    joined: (u32, u64),
    /// What the sender cannot read any more and is there to be compared: it is lost where it turns out to be damaged.
    lost_meanwhile: BTreeMap<u32, Text>,
    gaps: Gaps,
    /// Products that the sender holds no longer.
    catch_up: BTreeSet<u32>,
    /// How many products more may be begun, and those that were asked for and have not been.
    room: usize,
    asked_for: BTreeSet<u32>,
    /// Those that are still to be added to them.
    gone: Spans,
    products: Option<u32>,
    events: VecDeque<Event>,
    /// Products that are stored, of which the sender is still to hear.
    unsaid: Spans,
    have_at: Nanos,
    nack_at: Nanos,
    report_at: Nanos,
    reported_at: Nanos,
    rtt: Option<Nanos>,
    counts: (Counts, u64),
    /// Bytes of parity that are kept.
    kept_parity: usize,
    tally: Tally,
    random: Pcg64Mcg,
}

impl Receiver {
    /// One that has nothing.
    #[must_use]
    pub fn new(config: Config, now: Nanos) -> Self {
        let position = (config.position.product, config.position.offset / u64::from(config.payload.get()));
        let first = (config.first, 0);
        let mut receiver = Self {
            config,
            items: BTreeMap::new(),
            done: Numbers::default(),
            failed: Failed::default(),
            frontier: first,
            scanned: position,
            scanned_before: first,
            joined: position,
            lost_meanwhile: BTreeMap::new(),
            gaps: Gaps::default(),
            catch_up: BTreeSet::new(),
            room: usize::MAX,
            asked_for: BTreeSet::new(),
            gone: Spans::default(),
            products: None,
            events: VecDeque::new(),
            unsaid: Spans::default(),
            have_at: now,
            nack_at: now,
            report_at: now,
            reported_at: now,
            rtt: None,
            counts: (Counts::default(), 0),
            kept_parity: 0,
            // What was forgotten before it joined it will never have.
            tally: Tally { failed: config.forgotten, ..Tally::default() },
            random: Pcg64Mcg::seed_from_u64(config.seed),
        };
        receiver.reach(now, position);
        receiver
    }

    /// Bytes of a stream came, from the group or from the control connection: says which of them to write at once, before anything else
    /// is asked of this. They may be those of several packets, some of which were there before: of these nothing is written again.
    pub fn on_data(&mut self, now: Nanos, data: &Data, payload: &[u8]) -> Writes {
        let full = u64::from(self.config.payload.get());
        let (first, end) = (data.offset / full, data.offset + payload.len() as u64);
        let packets = first..end.div_ceil(full);
        let whole = end.is_multiple_of(full) || end == data.shape.stream();
        if data.product < self.config.first {
            // Others want it.
            return Writes::default();
        }
        if !data.offset.is_multiple_of(full) || !whole {
            self.tally.misfits += 1;
            return Writes::default();
        }
        let writes = self.take(data, packets.clone(), payload);
        if !data.repair {
            // A block is over with its parity, or with what comes behind that.
            let block = u64::from(self.config.block.get());
            let over = (packets.end - 1).checked_div(block).map_or(packets.end, |number| number * block);
            self.reach(now, (data.product, over));
        }
        writes
    }

    /// Parity came.
    pub fn on_parity(&mut self, now: Nanos, parity: &Parity, payload: &[u8]) {
        let (full, block) = (u64::from(self.config.payload.get()), u64::from(self.config.block.get()));
        let aligned = block > 0 && parity.offset.is_multiple_of(full * block);
        if parity.product < self.config.first {
            return;
        }
        if !aligned || payload.len() as u64 != full {
            self.tally.misfits += 1;
            return;
        }
        let first = parity.offset / full;
        if !self.done.contains(parity.product) {
            let item = self.items.entry(parity.product).or_default();
            let is_first = item.shape.is_none();
            if item.fits(parity.shape, self.config.payload) {
                if is_first {
                    self.gaps.hurry(parity.product);
                }
                let packets = first..item.packets.count().min(first + block);
                let room = MOST_PARITY - self.kept_parity;
                self.kept_parity += item.keep_parity(packets.clone(), parity, payload, room);
                self.rebuild(parity.product, &packets);
            } else {
                self.tally.misfits += 1;
            }
        }
        // Its block was sent, but more of its parity may come.
        let end = (first + block).min(parity.shape.packets(self.config.payload));
        let is_last = parity.index + 1 == parity.of;
        self.reach(now, (parity.product, if is_last { end } else { first }));
    }

    /// The sender says where it is, because it has nothing to send.
    pub fn on_status(&mut self, now: Nanos, position: Position) {
        self.listen_again(now);
        self.reach(now, (position.product, position.offset / u64::from(self.config.payload.get())));
    }

    /// The sender holds these products no longer: they are asked for one last time.
    pub fn on_gone(&mut self, now: Nanos, runs: &[(u32, u32)]) {
        for (first, count) in runs {
            let end = u64::from(first.saturating_add(*count));
            self.gone.insert((*first).max(self.config.first).into()..end);
        }
        self.scan(now);
    }

    /// The sender cannot send a product any more.
    pub fn on_lost(&mut self, product: u32, reason: Text) {
        if self.items.get(&product).is_some_and(Item::is_checked) {
            self.lost_meanwhile.insert(product, reason);
            return;
        }
        self.fail(product, Failure::Lost(reason));
    }

    /// This end cannot store a product, or does not want it.
    pub fn on_unwanted(&mut self, product: u32, reason: Text) {
        self.fail(product, Failure::Here(reason));
    }

    /// These bytes of a product's content are there from an earlier attempt, and are what they should be. Nothing is asked for but the rest. Gives
    /// how many had not come meanwhile.
    pub fn on_found(&mut self, product: u32, content: &[Range<u64>]) -> u64 {
        let payload = u64::from(self.config.payload.get());
        let Some(item) = self.items.get_mut(&product) else { return 0 };
        let Some(shape) = item.shape else { return 0 };
        let mut found = 0;
        for range in content {
            let end = range.end.min(shape.content()) + u64::from(shape.head());
            let first = (range.start + u64::from(shape.head())).div_ceil(payload);
            for packet in first..end / payload {
                found += payload * u64::from(item.packets.insert(packet));
            }
        }
        self.tally.bytes += found;
        self.tally.found += found;
        self.complete(product);
        found
    }

    /// A product that was [complete](Event::Complete) has its digest and its name, or has not its digest.
    pub fn on_checked(&mut self, now: Nanos, product: u32, is_right: bool) {
        let Some(item) = self.items.get_mut(&product) else { return };
        if is_right {
            self.store(product);
        } else if let Some(reason) = self.lost_meanwhile.remove(&product) {
            self.fail(product, Failure::Lost(reason));
        } else if item.reset() {
            self.catch_up.insert(product);
            self.gaps.replace(product, now);
        } else {
            self.fail(product, Failure::Damaged);
        }
    }

    /// A newer product has the name that this one was to have: nobody needs it any more, and it counts as stored.
    pub fn on_superseded(&mut self, product: u32) {
        self.tally.superseded += u32::from(!self.is_done(product));
        self.want_no_more(product);
    }

    /// All of a product, of so many bytes of content, stands where it belongs, whatever came of it here: it counts as stored.
    pub fn on_standing(&mut self, product: u32, content: u64) {
        if !self.is_done(product) && !self.items.contains_key(&product) {
            self.tally.bytes += content;
            self.tally.found += content;
        }
        self.catch_up.remove(&product);
        self.want_no_more(product);
    }

    fn want_no_more(&mut self, product: u32) {
        if self.is_done(product) {
            return;
        }
        let is_of = |of: u32| of == product;
        self.events.retain(|event| !matches!(event, Event::Announced { product, .. } if is_of(*product)));
        self.store(product);
    }

    /// There are so many products, though not all may have been sent yet.
    pub fn on_end(&mut self, products: u32) {
        self.products = Some(products);
    }

    /// A round trip over the control connection took so long.
    pub fn on_rtt(&mut self, rtt: Nanos) {
        self.rtt = Some(rtt);
    }

    /// The group has grown, or shrunk: least time between two frames of NACKs, or of acknowledgements.
    pub fn on_pace(&mut self, pace: Nanos) {
        self.config.pace = pace;
    }

    /// What the opener has counted, and how much it refused.
    pub fn on_counts(&mut self, counts: Counts, refused: u64) {
        self.counts = (counts, refused);
    }

    /// The control connection was lost, and there is a new one of the same session, whose sender is at `position` and knows of the products
    /// from `first` on: of those everything is said once more.
    pub fn on_reconnected(&mut self, now: Nanos, pace: Nanos, position: Position, first: u32) {
        self.config.pace = pace;
        self.done.ranges().for_each(|run| self.unsaid.insert(run));
        for run in self.failed.ranges() {
            self.unsaid.remove(run);
        }
        self.unsaid.remove(0..first.into());
        let failed = self.failed.here(first);
        self.events.extend(failed.map(|(product, reason)| Event::StillFailed { product, reason }));
        self.gaps.all_due(now);
        self.on_status(now, position);
    }

    /// So many products more may be begun: of others nothing is asked for until then, as what is asked for comes once.
    pub const fn on_room(&mut self, products: usize) {
        self.room = products;
    }

    /// What is to be done now.
    pub fn poll(&mut self, now: Nanos) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        self.look_on(now);
        if now >= self.nack_at && self.gaps.due().is_some_and(|due| due <= now) {
            let wants = self.ask(now);
            if !wants.is_empty() {
                self.nack_at = now.after(self.config.pace);
                self.report_at = self
                    .report_at
                    .min(self.reported_at.after(LOSSY_REPORT.max(Nanos(4 * self.config.pace.0))));
                self.tally.nacks += 1;
                return Some(Event::Nack(wants));
            }
        }
        if now >= self.have_at && !self.unsaid.is_empty() {
            self.have_at = now.after(self.config.pace);
            return Some(Event::Have(self.say()));
        }
        if now >= self.report_at {
            self.reported_at = now;
            self.report_at = now.after(REPORT.max(Nanos(4 * self.config.pace.0)));
            return Some(Event::Report(self.report(now)));
        }
        None
    }

    /// When to come again at the latest.
    #[must_use]
    pub fn deadline(&self) -> Nanos {
        let nack = self.gaps.due().map_or(Nanos::MAX, |due| due.max(self.nack_at));
        let have = if self.unsaid.is_empty() { Nanos::MAX } else { self.have_at };
        nack.min(have).min(self.report_at)
    }

    /// Whether everything of the session is stored or will not be, and the sender knows of it as far as it was polled.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let wanted = |products: u32| u64::from(products.saturating_sub(self.config.first));
        self.events.is_empty()
            && self.unsaid.is_empty()
            && self.products.is_some_and(|products| self.done.count() >= wanted(products))
    }

    /// Whether a product is stored or never will be.
    #[must_use]
    pub fn is_done(&self, product: u32) -> bool {
        product < self.config.first || self.done.contains(product)
    }

    /// Products of the session, as far as it has heard of them.
    #[must_use]
    pub fn known(&self) -> u32 {
        let (product, packets) = self.frontier;
        let begun = self.items.last_key_value().map_or(0, |(product, _)| product.saturating_add(1));
        product.saturating_add(u32::from(packets > 0)).max(begun).max(self.products.unwrap_or(0))
    }

    /// What came.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Bytes by which this receiver is behind the sender, of the products that it has heard of.
    #[must_use]
    pub fn behind(&self) -> u64 {
        let lacking = self.items.iter().map(|(product, item)| match item.shape {
            Some(shape) if *product < self.frontier.0 => {
                shape.stream().saturating_sub(item.packets.there() * u64::from(self.config.payload.get()))
            }
            _ => 0,
        });
        lacking.sum()
    }

    /// What it says in a report.
    #[must_use]
    pub fn report(&self, now: Nanos) -> Report {
        let (counts, refused) = self.counts;
        let (packets, lost) = (counts.sent, counts.lost());
        let Tally { bytes, repaired, .. } = self.tally;
        Report { packets, lost, refused, bytes, repaired, rtt: self.rtt.unwrap_or_default(), at: now }
    }

    /// Takes packets of a product in.
    fn take(&mut self, data: &Data, packets: Range<u64>, payload: &[u8]) -> Writes {
        let count = packets.end - packets.start;
        if self.done.contains(data.product) {
            self.tally.duplicates += count;
            return Writes::default();
        }
        let item = self.items.entry(data.product).or_default();
        let is_first = item.shape.is_none();
        if !item.fits(data.shape, self.config.payload) {
            self.tally.misfits += 1;
            return Writes::default();
        }
        if is_first {
            // How many packets its name takes is known.
            self.gaps.hurry(data.product);
        }
        let taken = item.take(data, packets.clone(), payload, self.config.payload);
        self.tally.duplicates += count - taken.packets;
        if taken.packets == 0 {
            return Writes::default();
        }
        self.tally.bytes += taken.bytes;
        self.tally.repaired += if data.repair { taken.bytes } else { 0 };
        match item.announced(self.config.payload) {
            None => {}
            Some(Ok(announcement)) => {
                self.asked_for.remove(&data.product);
                self.gaps.hurry(data.product);
                let content = data.shape.content();
                self.events.push_back(Event::Announced { product: data.product, announcement, content });
            }
            Some(Err(error)) => {
                self.fail(data.product, error.into());
                return Writes::default();
            }
        }
        if self.config.block.get() > 0 {
            let block = u64::from(self.config.block.get());
            let count = data.shape.packets(self.config.payload);
            for first in (packets.start / block..=(packets.end - 1) / block).map(|number| number * block) {
                self.rebuild(data.product, &(first..count.min(first + block)));
            }
        }
        self.complete(data.product);
        taken.writes
    }

    /// Says that a block can be rebuilt, where it can.
    fn rebuild(&mut self, product: u32, packets: &Range<u64>) {
        let Some(item) = self.items.get_mut(&product) else { return };
        let (freed, rebuild) = item.rebuild(product, packets, self.config.payload);
        self.kept_parity -= freed;
        self.events.extend(rebuild.map(Event::Rebuild));
    }

    fn complete(&mut self, product: u32) {
        let Some(item) = self.items.get_mut(&product) else { return };
        if let Some((announcement, content, digest)) = item.complete() {
            self.events.push_back(Event::Complete { product, announcement, content, digest });
        }
    }

    fn fail(&mut self, product: u32, failure: Failure) {
        if self.is_done(product) {
            return;
        }
        self.tally.failed += 1;
        self.settle(product);
        match &failure {
            Failure::Lost(_) => self.failed.lose(product),
            other => self.failed.insert(product, Text::from(other.to_string())),
        }
        self.events.push_back(Event::Failed { product, failure });
    }

    fn store(&mut self, product: u32) {
        self.tally.stored += 1;
        self.tally.caught_up += u32::from(self.catch_up.contains(&product));
        self.unsaid.insert(product.into()..u64::from(product) + 1);
        self.settle(product);
    }

    fn settle(&mut self, product: u32) {
        self.kept_parity -= self.items.remove(&product).map_or(0, |item| item.kept_parity());
        self.catch_up.remove(&product);
        self.lost_meanwhile.remove(&product);
        self.asked_for.remove(&product);
        self.gaps.forget(product);
        self.done.insert(product);
    }

    /// The products that are stored and were not said yet: the first of each run, and how many it has.
    fn say(&mut self) -> Vec<(u32, u32)> {
        let runs = std::iter::from_fn(|| self.unsaid.pop(u32::MAX.into()));
        runs.take(MOST_RUNS).map(|run| (run.start as u32, (run.end - run.start) as u32)).collect()
    }
}

/// Bytes of parity that are kept for blocks that lack more than came of it.
const MOST_PARITY: usize = 32 << 20;

/// The round trip to reckon with before any is known.
pub const LIKELY_RTT: Nanos = Nanos(100_000_000);

/// How often a receiver says how it fares: a rate is judged by two or three of these.
const REPORT: Nanos = Nanos(50_000_000);

/// And how often while it loses something: so that a rate that is too high is known to be so soon.
const LOSSY_REPORT: Nanos = Nanos(25_000_000);
