//! What a receiver asks for, and when.

use std::collections::BTreeMap;
use std::ops::Range;

use farlink_wire::cast::MOST_STREAM;
use farlink_wire::cast::control::{MOST_RANGES, Want};
use farlink_wire::quantity::Nanos;
use rand::RngExt;

use super::gaps::{Gap, MOST_GAPS};
use super::item::Item;
use super::{LIKELY_RTT, Receiver};
use crate::numbers::Numbers;

impl Receiver {
    /// The first pass is known to have come so far.
    pub(super) fn reach(&mut self, now: Nanos, to: (u32, u64)) {
        // In order and without loss there is nothing to look for.
        let in_order = to > self.frontier && self.scanned == self.frontier && to.0 == self.frontier.0;
        let complete = in_order
            && self.config.block.get() == 0
            && self
                .items
                .get(&to.0)
                .is_some_and(|item| item.packets.missing(self.frontier.1..to.1).is_none());
        self.frontier = self.frontier.max(to);
        if complete {
            self.scanned = self.frontier;
        } else {
            self.scan(now);
        }
    }

    /// Looks through what the first pass has passed for what did not come of it, as far as there is room to remember it.
    pub(super) fn scan(&mut self, now: Nanos) {
        // What is sent while it is there is to be repaired while that is held, however much there was before.
        self.scanned = self.look(now, self.scanned, self.frontier, MOST_GAPS);
        self.scanned_before = self.look(now, self.scanned_before, self.joined, MOST_GAPS / 2);
        // Those that have gaps already are found to be gone when these are due, however many there are.
        while self.gaps.len() < MOST_GAPS / 2
            && let Some(run) = self.gone.pop(1)
        {
            let product = run.start as u32;
            if !self.done.contains(product) && self.catch_up.insert(product) {
                self.gaps.replace(product, now);
            }
        }
    }

    /// Looks from `at` on for what is missing up to `to`, until so many gaps are remembered: where it came to.
    fn look(&mut self, now: Nanos, at: (u32, u64), to: (u32, u64), most: usize) -> (u32, u64) {
        let due = now.after(self.config.grace);
        let mut at = at;
        while at < to && self.gaps.len() < most {
            let (product, from) = at;
            let end = if product < to.0 { u64::MAX } else { to.1 };
            at = if product < to.0 { (product + 1, 0) } else { to };
            if self.done.contains(product) {
                continue;
            }
            let missing = match self.items.get(&product) {
                Some(item) if item.shape.is_some() => item.packets.missing(from..end),
                _ => Some(from..end),
            };
            if let Some(run) = missing {
                if run.end < end && run.end < u64::MAX {
                    at = (product, run.end);
                }
                self.gaps.insert(due, product, run);
            }
        }
        at
    }

    /// Looks on where there was no room before: what was stored since made some.
    pub(super) fn look_on(&mut self, now: Nanos) {
        let is_behind = self.scanned < self.frontier || self.scanned_before < self.joined;
        if !self.gaps.is_full() && (is_behind || !self.gone.is_empty()) {
            self.scan(now);
        }
    }

    /// What is missing of the gaps that are due, as much as one frame has room for.
    pub(super) fn ask(&mut self, now: Nanos) -> Vec<Want> {
        let mut asked: BTreeMap<(u32, bool), Vec<Range<u64>>> = BTreeMap::new();
        let mut room = MOST_RANGES;
        let mut later = Vec::new();
        while room > 0
            && let Some(gap) = self.gaps.take_due(now)
        {
            let product = gap.product;
            let is_gone = self.gone.remove(product.into()..u64::from(product) + 1) > 0;
            let gap = if is_gone && self.catch_up.insert(product) { Gap { tries: 0, ..gap } } else { gap };
            if !self.may_ask(product) {
                later.push(Gap { at: self.again_at(now, gap.tries.max(FULL_TRIES)), ..gap });
                continue;
            }
            let mut gap = gap;
            let head = self.packets_of_name(product);
            if let Some(head) = head.filter(|head| gap.packets.end > *head) {
                let rest = gap.packets.start.max(head)..gap.packets.end;
                // The name hurries it.
                later.push(Gap { at: Nanos::MAX, packets: rest, tries: 0, ..gap });
                if gap.packets.start >= head {
                    continue;
                }
                gap.packets.end = head;
            }
            let mut missing = match head {
                // Parity cannot stand for it: what else is missing waits for it.
                Some(_) => self.missing_of_name(product, gap.packets.clone()),
                None => self.missing(product, gap.packets.clone(), room),
            };
            let Some(last) = missing.last().map(|run| run.end) else {
                // Its parity makes up for all of it, once it is rebuilt; that may turn out not to be possible.
                if self.lacks(product, gap.packets.clone()) {
                    later.push(Gap { at: self.again_at(now, gap.tries), ..gap });
                }
                continue;
            };
            let (start, end) = (gap.packets.start, gap.packets.end);
            if missing.len() == room && last < end {
                self.gaps.put(Gap { packets: last..end, ..gap });
            }
            room -= missing.len();
            // The whole of a product of which nothing is known stays so.
            let end = if room == 0 { last } else { end };
            let (at, tries) = (self.again_at(now, gap.tries), gap.tries + 1);
            later.push(Gap { at, product, packets: start..end, tries, asked: now });
            asked.entry((product, gap.tries > 0)).or_default().append(&mut missing);
        }
        later.into_iter().for_each(|gap| self.gaps.put(gap));
        self.look_on(now);
        let payload = u64::from(self.config.payload.get());
        let wants = asked.into_iter().map(|((product, again), mut runs)| {
            runs.sort_unstable_by_key(|run| run.start);
            let mut ranges: Vec<(u64, u64)> = Vec::with_capacity(runs.len());
            for run in runs {
                let start = run.start * payload;
                let end = run.end.saturating_mul(payload).min(MOST_STREAM);
                match ranges.last_mut() {
                    Some((offset, length)) if *offset + *length >= start => {
                        *length = (*length).max(end - *offset);
                    }
                    _ => ranges.push((start, end - start)),
                }
            }
            Want { product, again, catch_up: self.catch_up.contains(&product), ranges }
        });
        wants.collect()
    }

    /// How many packets a product begins with that are asked for first, as its name is in them, and what is there from before is found by that:
    /// of one that was sent before this end joined, until it is named.
    fn packets_of_name(&self, product: u32) -> Option<u64> {
        let joined = self.config.position;
        let is_after = product > joined.product || product == joined.product && joined.offset == 0;
        if is_after || is_begun(&self.items, &self.done, product) {
            return None;
        }
        let shape = self.items.get(&product).and_then(|item| item.shape);
        let payload = u64::from(self.config.payload.get());
        Some(shape.map_or(1, |shape| u64::from(shape.head()).div_ceil(payload)))
    }

    /// Whether what comes of a product can be kept: it was begun, or is one of as many as may be.
    fn may_ask(&mut self, product: u32) -> bool {
        is_begun(&self.items, &self.done, product)
            || self.asked_for.contains(&product)
            || self.asked_for.len() < self.room && self.asked_for.insert(product)
    }

    /// What is missing of some packets of a product, at most `most` runs: of a block, so much that its parity makes up for the rest.
    fn missing(&self, product: u32, packets: Range<u64>, most: usize) -> Vec<Range<u64>> {
        if self.done.contains(product) {
            return Vec::new();
        }
        let Some(item) = self.items.get(&product).filter(|item| item.shape.is_some()) else {
            return vec![packets];
        };
        let (mut runs, mut at) = (Vec::new(), packets.start);
        let block = u64::from(self.config.block.get());
        while runs.len() < most
            && let Some(mut run) = item.packets.missing(at..packets.end)
        {
            if let Some(number) = run.start.checked_div(block) {
                let first = number * block;
                run.end = run.end.min(first + block);
                // The first that are missing of a block are those that its parity makes up for.
                let spared = item.parity_of(first).saturating_sub(missing_before(item, first, run.start));
                at = run.end;
                run.start = run.end.min(run.start + spared);
            } else {
                at = run.end;
            }
            if !run.is_empty() {
                runs.push(run);
            }
        }
        runs
    }

    /// What is missing of a few packets, as one run: whether parity makes up for any of them or not.
    fn missing_of_name(&self, product: u32, packets: Range<u64>) -> Vec<Range<u64>> {
        let missing = match self.items.get(&product).filter(|item| item.shape.is_some()) {
            Some(item) => item.packets.missing(packets.clone()).map(|run| run.start..packets.end),
            None => Some(packets),
        };
        missing.filter(|_| !self.done.contains(product)).into_iter().collect()
    }

    /// Whether any of some packets of a product did not come, also where its parity makes up for them.
    fn lacks(&self, product: u32, packets: Range<u64>) -> bool {
        !self.done.contains(product)
            && self.items.get(&product).is_some_and(|item| item.packets.missing(packets).is_some())
    }

    /// The sender has nothing to send, and seldom says so before it has dealt with what it heard: what was asked for a round trip ago is
    /// answered, and asked for again where it did not come.
    pub(super) fn listen_again(&mut self, now: Nanos) {
        self.gaps.answered(now, Nanos(now.0.saturating_sub(self.rtt.unwrap_or(LIKELY_RTT).0)));
    }

    /// How long an answer may take where the sender has other things to send: the way there and back, and as long as it collects what others
    /// lack.
    fn answer_time(&self) -> Nanos {
        let rtt = self.rtt.unwrap_or(LIKELY_RTT);
        Nanos((rtt.0 / 4 * 5).saturating_add(2 * self.config.pace.0).saturating_add(LEAST_AGAIN.0))
    }

    /// When to ask again for what is asked for now: twice as late each time, and not all at the same time.
    fn again_at(&mut self, now: Nanos, tries: u32) -> Nanos {
        let first = self.answer_time().0;
        let wait = first.saturating_mul(1 << tries.min(16)).min(MOST_AGAIN.0.max(first));
        now.after(Nanos(wait)).after(Nanos(self.random.random_range(0..=wait / 4)))
    }
}

/// Whether a product has a file, or needs none any more.
fn is_begun(items: &BTreeMap<u32, Item>, done: &Numbers, product: u32) -> bool {
    done.contains(product) || items.get(&product).is_some_and(Item::is_announced)
}

/// Packets missing of a block before one of them.
fn missing_before(item: &Item, first: u64, packet: u64) -> u64 {
    let (mut missing, mut at) = (0, first);
    while let Some(run) = item.packets.missing(at..packet) {
        missing += run.end - run.start;
        at = run.end;
    }
    missing
}

/// What there is no room for is looked at again as late as what was asked for in vain so often.
const FULL_TRIES: u32 = 4;

/// How soon something is asked for again at least: what a sender's scheduler may take beside a round trip.
const LEAST_AGAIN: Nanos = Nanos(10_000_000);

/// How late at most.
const MOST_AGAIN: Nanos = Nanos(4_000_000_000);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use farlink_wire::cast::control::BlockPackets;
    use farlink_wire::cast::packet::{Data, Parity};
    use farlink_wire::cast::{Announcement, Payload, Position, Shape};
    use farlink_wire::entry::Metadata;
    use farlink_wire::message::Text;
    use farlink_wire::path::RelativePath;

    use super::*;
    use crate::cast::receiver::{Config, Event};

    /// Of who joins when so many products were sent.
    fn behind(products: u32) -> Config {
        Config {
            payload: Payload::try_from(256).unwrap(),
            block: BlockPackets::default(),
            first: 0,
            forgotten: 0,
            position: Position { product: products, offset: 0 },
            pace: Nanos(1_000_000),
            grace: Nanos(1_000_000),
            seed: 1,
        }
    }

    #[test]
    fn no_more_products_are_asked_for_than_may_be_begun() {
        let config = behind(10);
        let mut receiver = Receiver::new(config, Nanos::ZERO);
        receiver.on_room(3);
        let asked = |receiver: &mut Receiver, second: u64| {
            let wants = receiver.ask(Nanos(second * 1_000_000_000));
            wants.into_iter().map(|want| want.product).collect::<Vec<_>>()
        };
        receiver.scan(Nanos::ZERO);
        assert_eq!(asked(&mut receiver, 10), [0, 1, 2]);
        assert_eq!(asked(&mut receiver, 20), [0, 1, 2], "the same again, until they begin");
        let path = RelativePath::new("x").unwrap();
        let metadata = Metadata { mode: 0o644, mtime_s: 0, mtime_ns: 0 };
        let head = Announcement { path, metadata }.encode();
        let shape = Shape::new(head.len(), 1000).unwrap();
        let mut packet = head.clone();
        packet.resize(256, 0);
        receiver.on_data(Nanos(21), &Data { product: 1, shape, offset: 0, repair: true }, &packet);
        let wanted = asked(&mut receiver, 30);
        assert!(wanted.len() == 4 && wanted.starts_with(&[0, 1, 2]), "one has begun: {wanted:?}");
        receiver.on_room(2);
        assert_eq!(asked(&mut receiver, 40), wanted);
    }

    #[test]
    fn what_is_sent_while_it_is_there_is_asked_for_however_much_was_sent_before() {
        let joined = MOST_GAPS as u32 + 5_000;
        let mut receiver = Receiver::new(behind(joined), Nanos::ZERO);
        let mut now = Nanos(1_000_000);
        receiver.on_gone(now, &[(0, joined)]);
        receiver.on_status(now, Position { product: joined + 3, offset: 0 });
        let mut missing: BTreeSet<u32> = (joined..joined + 3).collect();
        while !missing.is_empty() {
            now = receiver.deadline().max(now);
            assert!(now < Nanos(10_000_000_000), "{missing:?}");
            while let Some(event) = receiver.poll(now) {
                let Event::Nack(wants) = event else { continue };
                missing.retain(|product| wants.iter().all(|want| want.product != *product));
            }
        }
        // And what was sent before is not forgotten.
        assert!(receiver.scanned_before.0 >= MOST_GAPS as u32 / 2 && receiver.scanned_before.0 < joined);
    }

    #[test]
    fn who_lacks_more_products_than_gaps_are_remembered_catches_up_on_all_that_are_gone() {
        let products = MOST_GAPS as u32 + 5_000;
        let config = behind(products);
        let mut receiver = Receiver::new(config, Nanos::ZERO);
        receiver.on_end(products);
        let mut now = Nanos::ZERO;
        let mut gone = 0;
        while !receiver.is_complete() {
            now = receiver.deadline().max(now);
            assert!(now < Nanos(60_000_000_000), "{} of {products} are done", receiver.tally().failed);
            while let Some(event) = receiver.poll(now) {
                let Event::Nack(wants) = event else { continue };
                for want in wants {
                    // As a sender that holds none of them says.
                    if want.catch_up {
                        receiver.on_lost(want.product, Text::from("forgotten".to_owned()));
                    } else {
                        receiver.on_gone(now, &[(want.product, 1)]);
                        gone += 1;
                    }
                }
            }
        }
        assert_eq!(receiver.tally().failed, products);
        assert!(gone >= MOST_GAPS, "{gone}");
        assert_eq!(receiver.gaps.due(), None);
    }

    #[test]
    fn who_has_all_that_it_remembers_looks_for_what_it_had_no_room_for() {
        let products = MOST_GAPS as u32 + 10;
        let config = behind(products);
        let mut receiver = Receiver::new(config, Nanos::ZERO);
        // All that it knows to be missing is settled before it was asked for.
        (0..MOST_GAPS as u32)
            .for_each(|product| receiver.on_lost(product, Text::from("forgotten".to_owned())));
        while receiver.poll(Nanos::ZERO).is_some() {}
        let wants = receiver.ask(Nanos(10_000_000));
        let asked: Vec<_> = wants.into_iter().map(|want| want.product).collect();
        assert_eq!(asked, (MOST_GAPS as u32..products).collect::<Vec<_>>());
    }

    #[test]
    fn who_says_where_it_is_before_it_can_have_answered_is_not_asked_again() {
        let config = behind(1);
        let rtt = Nanos(80_000_000);
        let mut receiver = Receiver::new(config, Nanos::ZERO);
        receiver.on_rtt(rtt);
        receiver.on_room(1);
        receiver.scan(Nanos::ZERO);
        let mut now = receiver.gaps.due().unwrap();
        for tries in 0..5 {
            assert_eq!(receiver.ask(now).len(), 1, "{tries}");
            for part in [0, 1, 40, 99] {
                let at = now.after(Nanos(rtt.0 * part / 100));
                receiver.on_status(at, config.position);
                assert_eq!(receiver.ask(at), [], "{tries}: after {at}");
            }
            now = now.after(rtt).after(Nanos(1));
            receiver.on_status(now, config.position);
        }
        // It is asked for later each time where nothing is said.
        receiver.ask(now);
        assert!(receiver.gaps.due() > Some(now.after(Nanos(16 * receiver.answer_time().0))));
    }

    #[test]
    fn what_parity_makes_up_for_is_asked_for_where_it_was_not_rebuilt() {
        let config = Config { block: BlockPackets::try_from(10).unwrap(), ..behind(0) };
        let mut receiver = Receiver::new(config, Nanos::ZERO);
        let head = Announcement {
            path: RelativePath::new("x").unwrap(),
            metadata: Metadata { mode: 0o644, mtime_s: 0, mtime_ns: 0 },
        }
        .encode();
        let shape = Shape::new(head.len(), 2560 - 32 - head.len() as u64).unwrap();
        let mut first = head;
        first.resize(256, 0);
        let bring = |receiver: &mut Receiver, now: u64, packet: u64, repair: bool| {
            let data = Data { product: 0, shape, offset: packet * 256, repair };
            receiver.on_data(Nanos(now), &data, if packet == 0 { &first } else { &[7; 256] });
        };
        (0..10).filter(|packet| ![1, 5].contains(packet)).for_each(|packet| {
            bring(&mut receiver, packet, packet, false);
        });
        receiver.on_parity(Nanos(10), &Parity { product: 0, shape, offset: 0, index: 0, of: 1 }, &[9; 256]);
        // Drives it as far as its own deadlines lead until some second, and says what it asked for.
        let mut now = 20;
        let mut asked = |receiver: &mut Receiver, until: u64| {
            let (mut ranges, mut rebuilds) = (Vec::new(), 0);
            while now <= until * 1_000_000_000 {
                while let Some(event) = receiver.poll(Nanos(now)) {
                    match event {
                        Event::Nack(wants) => ranges.extend(wants.into_iter().flat_map(|want| want.ranges)),
                        Event::Rebuild(_) => rebuilds += 1,
                        _ => {}
                    }
                }
                now = receiver.deadline().0;
            }
            ranges.dedup();
            (ranges, rebuilds)
        };
        assert_eq!(asked(&mut receiver, 1), (vec![(5 * 256, 256)], 0), "parity makes up for one of the two");
        bring(&mut receiver, 1_000_000_001, 5, true);
        // Too little of the block is kept to rebuild it.
        assert_eq!(asked(&mut receiver, 20), (vec![(256, 256)], 1));
        bring(&mut receiver, 20_000_000_001, 1, true);
        assert_eq!(asked(&mut receiver, 60), (vec![], 0));
        assert_eq!(receiver.gaps.due(), None, "nothing is looked at again that came");
    }
    #[test]
    fn a_name_is_asked_for_though_parity_makes_up_for_as_many_packets() {
        let position = Position { product: 0, offset: 2560 };
        let config = Config { block: BlockPackets::try_from(10).unwrap(), position, ..behind(0) };
        let mut receiver = Receiver::new(config, Nanos::ZERO);
        let shape = Shape::new(40, 2560 - 32 - 40).unwrap();
        // Three are lost, the name among them, and two of parity came.
        for packet in (1..10).filter(|packet| ![4, 7].contains(packet)) {
            let data = Data { product: 0, shape, offset: packet * 256, repair: false };
            receiver.on_data(Nanos(packet), &data, &[7; 256]);
        }
        for index in 0..2 {
            let parity = Parity { product: 0, shape, offset: 0, index, of: 2 };
            receiver.on_parity(Nanos(20), &parity, &[9; 256]);
        }
        let wants = receiver.ask(Nanos(10_000_000));
        let ranges: Vec<_> = wants.into_iter().flat_map(|want| want.ranges).collect();
        assert_eq!(ranges, [(0, 256)]);
    }
}
