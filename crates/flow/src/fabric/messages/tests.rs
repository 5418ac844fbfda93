use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::fabric::operation::Region;

/// Regions are vectors.
#[derive(Default)]
struct Heap(HashMap<Region, Vec<u8>>);

impl Memory for Heap {
    fn read(&self, region: Region, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0[&region][offset..][..into.len()]);
    }

    fn write(&mut self, region: Region, offset: usize, bytes: &[u8]) {
        self.0.get_mut(&region).unwrap()[offset..][..bytes.len()].copy_from_slice(bytes);
    }
}

impl Heap {
    fn put(&mut self, number: u64, bytes: Vec<u8>) -> Region {
        self.0.insert(Region(number), bytes);
        Region(number)
    }
}

/// Two processes, each peer 0 to the other, and what they have in memory.
struct Pair {
    ends: [Messages; 2],
    heaps: [Heap; 2],
    room: usize,
}

impl Pair {
    fn new(eager: usize, room: usize) -> Self {
        let mut ends =
            [Messages::new(eager, 1 << 30, Pool::default()), Messages::new(eager, 1 << 30, Pool::default())];
        ends.iter_mut().for_each(|end| end.on_peer(false));
        Self { ends, heaps: [Heap::default(), Heap::default()], room }
    }

    fn send(&mut self, tag: u64, bytes: Vec<u8>) {
        let len = bytes.len();
        let region = self.heaps[0].put(1000 + tag, bytes);
        let send = Send {
            to: PEER,
            kind: Kind::Tagged(tag),
            data: Some(7),
            region,
            len,
            ends: Ends::Said(Operation(tag)),
        };
        self.ends[0].send(send, &self.heaps[0]).unwrap();
    }

    fn receive(&mut self, wanted: Wanted, number: u64, len: usize, multi: Option<usize>) {
        let region = self.heaps[1].put(number, vec![0; len]);
        let receive = Receive { from: Some(PEER), wanted, region, len, operation: Operation(number), multi };
        self.ends[1].receive(receive, &mut self.heaps[1]);
    }

    /// One round of frames from `end` to the other.
    fn step(&mut self, end: usize) -> bool {
        let mut page = vec![0; self.room];
        let written = self.ends[end].fill(PEER, &mut page, &self.heaps[end]);
        self.ends[1 - end].on_frames(PEER, &page[..written], &mut self.heaps[1 - end]).unwrap();
        written > 0
    }

    fn settle(&mut self) {
        while self.step(0) | self.step(1) {}
    }

    fn completions(&mut self, end: usize) -> Vec<Completion> {
        std::iter::from_fn(|| self.ends[end].poll_completion()).collect()
    }

    fn received(&mut self) -> Vec<Received> {
        self.completions(1)
            .into_iter()
            .map(|each| match each {
                Completion::Received(received) => received,
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

const PEER: PeerId = PeerId(0);
const ANY: Wanted = Wanted::Tagged { tag: 0, ignore: u64::MAX };

const fn tag(tag: u64) -> Wanted {
    Wanted::Tagged { tag, ignore: 0 }
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(seed + 3) >> 3) as u8).collect()
}

proptest! {
    /// Whatever their lengths, the limit of eager ones, when they are wanted and by which tags: each arrives once, whole, and messages of
    /// one tag in order.
    #[test]
    fn every_message_goes_to_the_receive_that_it_is_for(
        lengths in proptest::collection::vec((0_usize..5000, 0_u64..3), 1..20),
        eager in 0_usize..3000,
        room in 300_usize..2000,
        early in 0_usize..20,
    ) {
        let mut pair = Pair::new(eager, room);
        for (number, (_, each)) in lengths.iter().enumerate().take(early) {
            pair.receive(tag(*each), number as u64, 5000, None);
        }
        for (number, (len, tag)) in lengths.iter().enumerate() {
            let region = pair.heaps[0].put(number as u64, bytes(*len, number as u64));
            let operation = Operation(number as u64);
            let ends = match number % 4 {
                0 => Ends::Said(operation),
                2 => Ends::Taken { operation, copied: *tag == 0 },
                _ => Ends::Untold,
            };
            let send = Send { to: PEER, kind: Kind::Tagged(*tag), data: Some(number as u64), region, len: *len, ends };
            pair.ends[0].send(send, &pair.heaps[0]).unwrap();
            pair.step(0);
        }
        for (number, (_, each)) in lengths.iter().enumerate().skip(early) {
            pair.receive(tag(*each), number as u64, 5000, None);
            pair.step(1);
        }
        pair.settle();
        let received = pair.received();
        prop_assert_eq!(received.len(), lengths.len());
        for each in received {
            let number = each.data.unwrap();
            // The how-manieth of its tag was received by the how-manieth receive of that tag: the same one here.
            prop_assert_eq!(each.operation.0, number);
            prop_assert_eq!(&pair.heaps[1].0[&Region(number)][..each.len], &bytes(each.len, number)[..]);
        }
        prop_assert_eq!(pair.completions(0).len(), lengths.len().div_ceil(2));
        prop_assert_eq!(pair.ends[0].kept, 0);
    }
}

#[test]
fn a_message_longer_than_its_receive_is_cut_and_says_so() {
    for eager in [0, 4096] {
        let mut pair = Pair::new(eager, 700);
        for early in [true, false] {
            if early {
                pair.receive(ANY, 1, 1000, None);
            }
            pair.send(5, bytes(1500, 5));
            pair.settle();
            if !early {
                pair.receive(ANY, 1, 1000, None);
                pair.settle();
            }
            let [received] = pair.received()[..] else { panic!() };
            assert_eq!((received.len, received.cut, received.data), (1500, 500, Some(7)));
            assert_eq!(pair.heaps[1].0[&Region(1)], bytes(1500, 5)[..1000]);
            assert_eq!(pair.completions(0).len(), 1);
        }
    }
}

#[test]
fn one_region_takes_message_after_message() {
    for eager in [0, 4096] {
        let mut pair = Pair::new(eager, 700);
        pair.receive(ANY, 1, 1000, Some(300));
        for number in 0..4 {
            pair.send(number, bytes(250, number));
        }
        pair.settle();
        let received = pair.received();
        assert_eq!(
            received.iter().map(|each| (each.offset, each.last)).collect::<Vec<_>>(),
            [(0, false), (250, false), (500, true)]
        );
        for each in &received {
            let seed = each.tag.unwrap();
            assert_eq!(pair.heaps[1].0[&Region(1)][each.offset..][..250], bytes(250, seed));
        }
        // The fourth waits for another region.
        assert!(
            pair.ends[1].peek(None, ANY, false).is_some_and(|waiting| waiting.tag == 3 && waiting.len == 250)
        );
    }
}

#[test]
fn a_claimed_message_is_nobody_elses() {
    for eager in [0, 4096] {
        let mut pair = Pair::new(eager, 700);
        pair.send(1, bytes(900, 1));
        pair.send(2, bytes(900, 2));
        pair.settle();
        let claimed = pair.ends[1].peek(None, ANY, true).unwrap();
        assert_eq!(claimed.tag, 1);
        assert_eq!(pair.ends[1].peek(None, tag(1), false), None);
        pair.receive(ANY, 10, 900, None);
        let region = pair.heaps[1].put(11, vec![0; 900]);
        let receive =
            Receive { from: None, wanted: ANY, region, len: 900, operation: Operation(11), multi: None };
        pair.ends[1].receive_claimed(claimed.claim, receive, &mut pair.heaps[1]);
        pair.settle();
        let mut received = pair.received();
        received.sort_by_key(|each| each.operation.0);
        assert_eq!(received.iter().map(|each| each.tag).collect::<Vec<_>>(), [Some(2), Some(1)]);
        pair.send(3, bytes(900, 3));
        pair.settle();
        let dropped = pair.ends[1].peek(None, ANY, true).unwrap();
        pair.ends[1].discard(dropped.claim);
        pair.settle();
        assert_eq!(pair.ends[1].peek(None, ANY, false), None);
        assert_eq!(pair.completions(0).len(), 3);
    }
}

#[test]
fn without_credit_messages_are_offered_and_all_arrive() {
    let mut pair = Pair::new(1 << 20, 9000);
    // Nobody wants them: what waits stays within the credit, and the last is there though the first was not taken.
    for number in 0..100 {
        pair.send(number, bytes(100_000, number));
    }
    while pair.step(0) {}
    let counts = pair.ends[0].counts();
    assert!(counts.without_credit > 0 && counts.eager > 0, "{counts:?}");
    assert!(pair.ends[1].counts().unexpected_most_bytes <= Pool::default().first());
    for number in (0..100).rev() {
        pair.receive(tag(number), number, 100_000, None);
    }
    pair.settle();
    let received = pair.received();
    assert_eq!(received.len(), 100);
    assert!(
        received
            .iter()
            .all(|each| pair.heaps[1].0[&Region(each.tag.unwrap())] == bytes(100_000, each.tag.unwrap()))
    );
    // What was taken is credit again.
    let before = pair.ends[0].counts().without_credit;
    for number in 0..100 {
        pair.receive(tag(number), number, 100_000, None);
        pair.send(number, bytes(100_000, number));
        pair.settle();
    }
    assert_eq!(pair.ends[0].counts().without_credit, before);
}

#[test]
fn a_failed_peer_ends_what_was_under_way_with_it_and_nothing_else() {
    let mut pair = Pair::new(1000, 700);
    pair.ends[1].on_peer(false);
    pair.send(1, bytes(500, 1));
    pair.send(2, bytes(5000, 2));
    while pair.step(0) {}
    pair.receive(tag(2), 2, 5000, None);
    pair.receive(tag(9), 3, 10, None);
    let region = pair.heaps[1].put(4, vec![0; 10]);
    let other = Receive { from: None, wanted: tag(9), region, len: 10, operation: Operation(4), multi: None };
    pair.ends[1].receive(other, &mut pair.heaps[1]);
    pair.ends[1].on_failed(PEER, Failure::Silent);
    let failed: Vec<_> = pair
        .completions(1)
        .into_iter()
        .map(|each| match each {
            Completion::Failed { operation, peer: Some(PEER), why: Failure::Silent, sending: false } => {
                operation.0
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(failed, [3, 2]);
    // What came whole is still there to be taken.
    pair.receive(tag(1), 1, 500, None);
    assert_eq!(pair.received().len(), 1);
    pair.receive(tag(1), 5, 500, None);
    assert!(matches!(pair.completions(1)[..], [Completion::Failed { operation: Operation(5), .. }]));
    assert!(pair.ends[1].cancel(Operation(4)) && !pair.ends[1].cancel(Operation(4)));
}

#[test]
fn nothing_is_said_to_a_failed_peer() {
    let mut pair = Pair::new(1 << 20, 2 << 20);
    // One of many, so that the other end gives credit again for what it takes.
    (1..128).for_each(|_| pair.ends[1].on_peer(false));
    let count = Pool::default().first() / (1 << 20) * 16;
    for tag in 0..count {
        pair.send(tag, bytes((1 << 16) - 128, tag));
    }
    while pair.step(0) {}
    assert!(pair.ends[1].counts().unexpected >= count / 2);
    pair.ends[1].on_failed(PEER, Failure::Ended);
    while pair.ends[1].poll_talked().is_some() {}
    for tag in 0..count / 2 {
        pair.receive(Wanted::Tagged { tag, ignore: 0 }, tag, 1 << 16, None);
    }
    pair.ends[1].nudge(PEER);
    pair.ends[1].tell_gone(PEER, 7);
    assert_eq!(pair.received().len() as u64, count / 2);
    assert!(pair.ends[1].is_quiet() && pair.ends[1].poll_talked().is_none());
}

#[test]
fn a_send_that_ends_when_it_is_taken_ends_no_sooner() {
    for (len, copied) in [(0, false), (100, true), (3000, false), (20_000, false), (20_000, true)] {
        // In one piece or many, at once or when it is wanted.
        let mut pair = Pair::new(10_000, 1000);
        let send = |pair: &mut Pair, tag: u64| {
            let region = pair.heaps[0].put(1000 + tag, bytes(len, tag));
            let ends = Ends::Taken { operation: Operation(tag), copied };
            let send = Send { to: PEER, kind: Kind::Tagged(tag), data: None, region, len, ends };
            pair.ends[0].send(send, &pair.heaps[0]).unwrap();
            if copied {
                pair.heaps[0].0.remove(&region);
            }
        };
        send(&mut pair, 1);
        while pair.step(0) {}
        assert_eq!(pair.completions(0), [], "nobody has said that it came");
        pair.settle();
        // What goes at once is taken to be kept.
        let ends = |pair: &mut Pair| pair.completions(0).len();
        assert_eq!(ends(&mut pair), usize::from(len <= 10_000));
        pair.receive(tag(1), 0, 30_000, None);
        pair.settle();
        assert_eq!((ends(&mut pair), pair.received().len()), (usize::from(len > 10_000), 1));
        // What is not known to be taken fails with the peer.
        send(&mut pair, 2);
        while pair.step(0) {}
        assert!(pair.ends[0].awaits(PEER));
        pair.ends[0].on_failed(PEER, Failure::Ended);
        let [Completion::Failed { operation: Operation(2), sending: true, .. }] = pair.completions(0)[..]
        else {
            panic!("{len}")
        };
    }
}

#[test]
fn a_claimed_message_that_its_sender_took_along_fails_as_that_did() {
    let mut pair = Pair::new(10, 1000);
    pair.send(1, bytes(5000, 1));
    pair.settle();
    let claimed = pair.ends[1].peek(None, ANY, true).unwrap();
    pair.ends[1].on_failed(PEER, Failure::Silent);
    let region = pair.heaps[1].put(1, vec![0; 5000]);
    let operation = Operation(1);
    let receive = Receive { from: None, wanted: ANY, region, len: 5000, operation, multi: None };
    pair.ends[1].receive_claimed(claimed.claim, receive, &mut pair.heaps[1]);
    let [Completion::Failed { operation: Operation(1), peer: Some(PEER), why: Failure::Silent, .. }] =
        pair.completions(1)[..]
    else {
        panic!()
    };
}

#[test]
fn the_last_of_a_message_comes_with_the_question_whether_it_was_taken() {
    for (eager, len) in [(3000, 900..=1000), (3000, 1900..=2000), (10, 1900..=2000)]
        .into_iter()
        .flat_map(|(eager, lengths)| lengths.map(move |len| (eager, len)))
    {
        let mut pair = Pair::new(eager, 1000);
        pair.receive(ANY, 1, len, None);
        let region = pair.heaps[0].put(1001, bytes(len, 1));
        let ends = Ends::Taken { operation: Operation(1), copied: false };
        let send = Send { to: PEER, kind: Kind::Tagged(1), data: None, region, len, ends };
        pair.ends[0].send(send, &pair.heaps[0]).unwrap();
        let mut received = false;
        while !received {
            pair.step(0);
            received = !pair.received().is_empty();
            pair.step(1);
        }
        let [Completion::Sent { operation: Operation(1), .. }] = pair.completions(0)[..] else {
            panic!("{eager} {len}")
        };
    }
}

#[test]
fn a_send_that_ends_when_it_is_taken_ends_where_it_is_discarded() {
    let mut pair = Pair::new(10, 1000);
    let region = pair.heaps[0].put(1001, bytes(5000, 1));
    let ends = Ends::Taken { operation: Operation(1), copied: false };
    let send = Send { to: PEER, kind: Kind::Tagged(1), data: None, region, len: 5000, ends };
    pair.ends[0].send(send, &pair.heaps[0]).unwrap();
    pair.settle();
    while pair.ends[0].poll_talked().is_some() {}
    let dropped = pair.ends[1].peek(None, ANY, true).unwrap();
    pair.ends[1].discard(dropped.claim);
    pair.step(1);
    // Whoever drives it fills for those alone.
    assert_eq!(pair.ends[0].poll_talked(), Some(PEER));
    pair.settle();
    let [Completion::Sent { operation: Operation(1), to: PEER }] = pair.completions(0)[..] else { panic!() };
}

#[test]
fn who_takes_nothing_keeps_no_copies_from_others() {
    let mut pair = Pair::new(0, 1000);
    pair.ends[0].on_peer(false);
    let copied = |pair: &mut Pair, to: PeerId| {
        let region = pair.heaps[0].put(1000, vec![1; MOST_KEPT / 8]);
        let len = MOST_KEPT / 8;
        let send = Send { to, kind: Kind::Untagged, data: None, region, len, ends: Ends::Untold };
        pair.ends[0].send(send, &pair.heaps[0])
    };
    let taken = (0..9).take_while(|_| copied(&mut pair, PEER).is_ok()).count();
    assert_eq!((taken, copied(&mut pair, PEER)), (7, Err(Refused::Full)));
    let other = PeerId(1);
    assert_eq!((copied(&mut pair, other), copied(&mut pair, other)), (Ok(()), Err(Refused::Full)));
    pair.ends[0].on_failed(PEER, Failure::Ended);
    assert_eq!(copied(&mut pair, other), Ok(()));
    pair.ends[0].on_failed(other, Failure::Ended);
    assert_eq!(pair.ends[0].kept, 0);
}

#[test]
fn who_must_not_wait_for_receives_is_refused_only_until_what_it_sent_was_said() {
    // Nothing goes unasked, and nobody receives.
    let mut pair = Pair::new(0, 9000);
    pair.ends[0].keep_all();
    let mut refused = 0;
    for number in 0..3 * MOST_KEPT / 1_000_000 {
        let region = pair.heaps[0].put(1000 + number as u64, vec![1; 1_000_000]);
        let send =
            Send { to: PEER, kind: Kind::Untagged, data: None, region, len: 1_000_000, ends: Ends::Untold };
        while pair.ends[0].send(send, &pair.heaps[0]) == Err(Refused::Full) {
            refused += 1;
            assert!(refused < 1000, "{number}: it waits for a receive");
            while pair.step(0) {}
        }
    }
    assert!(refused > 0);
    // All that is offered is there when it is wanted at last.
    pair.ends[0].on_failed(PEER, Failure::Ended);
    assert_eq!(pair.ends[0].kept, 0);
}

/// Offers `end`'s peer a message of which its application was told that it is sent.
fn offer(pair: &mut Pair, end: usize) {
    let region = pair.heaps[end].put(1000, bytes(500, 1));
    let send = Send { to: PEER, kind: Kind::Tagged(1), data: None, region, len: 500, ends: Ends::Untold };
    pair.ends[end].send(send, &pair.heaps[end]).unwrap();
    while pair.step(end) {}
}

#[test]
fn who_ends_waits_until_what_it_was_told_is_sent_is_taken() {
    let mut pair = Pair::new(0, 9000);
    pair.send(7, bytes(500, 7));
    while pair.step(0) {}
    assert!(pair.ends[0].is_quiet(), "the application has it still, and knows that it was not sent");
    offer(&mut pair, 0);
    pair.ends[0].on_ending();
    assert!(!pair.ends[0].is_quiet());
    pair.receive(tag(1), 1, 500, None);
    pair.settle();
    assert!(pair.ends[0].is_quiet());
    assert_eq!((pair.received().len(), &pair.heaps[1].0[&Region(1)]), (1, &bytes(500, 1)));
}

#[test]
fn two_that_end_and_take_nothing_do_not_wait_for_each_other() {
    let mut pair = Pair::new(0, 9000);
    offer(&mut pair, 0);
    for end in [0, 1] {
        // One offer had come by then, the other comes after.
        offer(&mut pair, 1);
        pair.ends[end].on_ending();
    }
    assert!(!pair.ends[0].is_quiet() && !pair.ends[1].is_quiet());
    pair.settle();
    assert!(pair.ends[0].is_quiet() && pair.ends[1].is_quiet());
}

#[test]
fn what_waits_unwanted_is_bounded_for_all_peers_together() {
    const BYTES: u64 = 1 << 20;
    let count = 40;
    let pool = || Pool::new(BYTES, Some(u64::from(count) + 1));
    let mut here = Messages::new(1 << 20, 1 << 30, pool());
    let mut heap = Heap::default();
    let mut page = vec![0; 9000];
    let most = 20_000;
    let region = heap.put(0, bytes(most, 0));
    let landing = heap.put(1, vec![0; most]);
    for peer in (0..count).map(PeerId) {
        here.on_peer(false);
        let mut there = Messages::new(1 << 20, 1 << 30, pool());
        there.on_peer(false);
        for nth in 0..150_u64 {
            // The first are wanted, so that it may soon send more.
            if nth < 20 {
                let operation = Operation(nth);
                let receive = Receive {
                    from: Some(peer),
                    wanted: tag(3),
                    region: landing,
                    len: most,
                    operation,
                    multi: None,
                };
                here.receive(receive, &mut heap);
            }
            let len = if nth == 0 { 100 } else { most };
            let send = Send {
                to: PEER,
                kind: Kind::Tagged(3),
                data: None,
                region,
                len,
                ends: Ends::Said(Operation(nth)),
            };
            there.send(send, &heap).unwrap();
            loop {
                let said = there.fill(PEER, &mut page, &heap);
                here.on_frames(peer, &page[..said], &mut heap).unwrap();
                let answered = here.fill(peer, &mut page, &heap);
                there.on_frames(PEER, &page[..answered], &mut heap).unwrap();
                if said + answered == 0 {
                    break;
                }
            }
        }
        let counts = there.counts();
        assert!(counts.eager > 0 && counts.without_credit > 0, "{counts:?}");
    }
    let kept = here.counts().unexpected_most_bytes;
    assert!((BYTES / 4..=BYTES).contains(&kept), "{kept}");
}

#[test]
fn what_cannot_be_is_refused() {
    let mut messages = Messages::new(10, 100, Pool::default());
    messages.on_peer(false);
    let mut heap = Heap::default();
    let region = heap.put(0, vec![0; 101]);
    let send = Send { to: PEER, kind: Kind::Untagged, data: None, region, len: 101, ends: Ends::Untold };
    assert_eq!(messages.send(send, &heap), Err(Refused::TooLong { len: 101, most: 100 }));
    messages.on_failed(PEER, Failure::Ended);
    let send = Send { len: 1, ..send };
    assert_eq!(messages.send(send, &heap), Err(Refused::Failed(Failure::Ended)));
    // Nonsense of somebody who has the key.
    let mut messages = Messages::new(10, 100, Pool::default());
    messages.on_peer(false);
    for frames in [&[1_u8; 5][..], &[77; 64], &[2, 0, 0, 0, 0, 0, 0, 9, 1]] {
        assert!(messages.on_frames(PEER, frames, &mut heap).is_err());
    }
    let mut eager = [0; 32];
    let envelope = Envelope { tag: None, data: None, len: u64::MAX };
    Frame::Eager(envelope, &[]).encode_head(0, &mut eager);
    let mut of_any_length = Messages::new(10, usize::MAX, Pool::default());
    of_any_length.on_peer(false);
    assert_eq!(of_any_length.on_frames(PEER, &eager, &mut heap), Err(FrameError::Uncredited));
    // What its credit reaches for, but within another.
    Frame::Eager(Envelope { len: 9, ..envelope }, &[]).encode_head(0, &mut eager);
    let mut nested = Messages::new(10, 100, Pool::default());
    nested.on_peer(false);
    nested.on_frames(PEER, &eager, &mut heap).unwrap();
    assert_eq!(nested.on_frames(PEER, &eager, &mut heap), Err(FrameError::Nested));
    let mut part = [0; 24 + 4];
    Frame::Part { receive: 3, offset: u64::MAX, bytes: &[] }.encode_head(4, &mut part);
    messages.on_frames(PEER, &part, &mut heap).unwrap();
}
