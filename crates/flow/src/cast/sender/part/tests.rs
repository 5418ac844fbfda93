use farlink_wire::cast::Shape;
use farlink_wire::cast::control::{Report, Want};
use farlink_wire::quantity::BitsPerSec;
use proptest::prelude::*;

use super::*;
use crate::cast::sender::{Config, Hold, Send};

const MS: u64 = 1_000_000;

fn sender(most_held: usize) -> Sender {
    let group = BitsPerSec::new(1_000_000_000).unwrap();
    let hold = Hold { floor: Nanos(50 * MS), of_multicast: 1.0, of_rtt: 1.0 };
    let config = Config { hold, most_held, ..Config::of_a_gigabit(0.001, Some(group)) };
    Sender::new(config, Nanos(MS))
}

/// Does what is to be done for so long; says what was for single receivers.
fn drive(sender: &mut Sender, now: &mut Nanos, time: Nanos) -> Vec<Send> {
    let (end, mut sent) = (now.after(time), Vec::new());
    while *now < end {
        while let Some(send) = sender.poll(*now) {
            sent.push(send);
        }
        *now = sender.deadline().unwrap_or(end).max(Nanos(now.0 + 1)).min(end);
    }
    sent
}

fn lost_to(sent: &[Send], who: u32) -> Vec<u32> {
    let lost = sent.iter().filter_map(|send| match send {
        Send::Lost { receiver, product, .. } if *receiver == who => Some(*product),
        _ => None,
    });
    lost.collect()
}

fn all_of(product: u32) -> Want {
    Want { product, again: false, catch_up: false, ranges: vec![(0, 1)] }
}

#[test]
fn who_joins_late_begins_behind_what_was_forgotten_and_hears_of_what_could_not_be_read() {
    let (mut sender, mut now) = (sender(8), Nanos(MS));
    let shape = Shape::new(20, 500).unwrap();
    sender.on_join(now, 1, sender.first());
    for _ in 0..20 {
        sender.on_product(shape);
    }
    sender.on_unreadable(0, &"it was deleted".to_owned().into());
    sender.on_unreadable(7, &"it was deleted".to_owned().into());
    drive(&mut sender, &mut now, Nanos(500 * MS));
    assert_eq!((sender.first(), sender.oldest()), (0, 1), "nothing was forgotten yet");
    sender.on_join(now, 2, sender.first());
    sender.on_nack(now, 2, [0, 5, 7].map(all_of).into());
    let sent = drive(&mut sender, &mut now, Nanos(100 * MS));
    assert_eq!(lost_to(&sent, 2), [0, 7]);
    // More than are remembered of a feed.
    for _ in 0..100 {
        sender.on_product(shape);
    }
    drive(&mut sender, &mut now, Nanos(500 * MS));
    assert_eq!((sender.first(), sender.oldest()), (56, 56), "of 120 the last 64");
    sender.on_join(now, 3, sender.first());
    assert_eq!(sender.progress(3).unwrap().behind, 64);
    // Who was cut off asks for what it lacks, also of what was forgotten meanwhile.
    sender.on_nack(now, 2, (0..100).map(all_of).collect());
    let sent = drive(&mut sender, &mut now, Nanos(100 * MS));
    assert_eq!(lost_to(&sent, 2), (0..56).collect::<Vec<_>>());
}

#[test]
fn who_asks_for_what_cannot_be_read_again_is_told_each_time_until_it_says_what_it_has() {
    let (mut sender, mut now) = (sender(8), Nanos(MS));
    let reason = "it was removed".to_owned().into();
    sender.on_join(now, 1, 0);
    sender.on_product(Shape::new(20, 500).unwrap());
    drive(&mut sender, &mut now, Nanos(50 * MS));
    sender.on_have(now, 1, &[(0, 1)]);
    drive(&mut sender, &mut now, Nanos(500 * MS));
    // Two come later, one of which has it from before.
    for receiver in [2, 3] {
        sender.on_join(now, receiver, sender.first());
        for again in [false, true] {
            let wants = vec![Want { again, catch_up: true, ..all_of(0) }];
            sender.on_nack(now, receiver, wants);
            let sent = drive(&mut sender, &mut now, Nanos(100 * MS));
            assert!(
                sent.iter().any(|send| matches!(send, Send::Repair { receiver: to, .. } if *to == receiver))
            );
            sender.on_unreadable_again(0, Some(receiver), &reason);
            let sent = drive(&mut sender, &mut now, Nanos(100 * MS));
            assert_eq!(lost_to(&sent, receiver), [0]);
            assert_eq!(sender.progress(receiver).unwrap().behind, 1, "it has not said what it has");
        }
    }
    sender.on_failed(now, 2, 0);
    sender.on_have(now, 3, &[(0, 1)]);
    let has = |receiver| sender.progress(receiver).map(|of| (of.products, of.failed, of.behind, of.waiting));
    assert_eq!([has(1), has(2), has(3)], [Some((1, 0, 0, 0)), Some((0, 1, 0, 0)), Some((1, 0, 0, 0))]);
    // Where it was to be sent to all, those are told that asked: another may be about to have it.
    sender.on_product(Shape::new(20, 500).unwrap());
    drive(&mut sender, &mut now, Nanos(10 * MS));
    [2, 3].into_iter().for_each(|receiver| sender.on_nack(now, receiver, vec![all_of(1)]));
    let asked = |send: &Send| matches!(send, Send::Data { header, .. } if header.repair);
    let sent = drive(&mut sender, &mut now, Nanos(10 * MS));
    assert!(sent.iter().any(asked), "{sent:?}");
    [2, 3]
        .into_iter()
        .for_each(|receiver| sender.on_nack(now, receiver, vec![Want { again: true, ..all_of(1) }]));
    while sender.peers.values().filter(|peer| peer.wanted.contains_key(&1)).count() < 2 {
        now = now.max(sender.deadline().unwrap()).after(Nanos(1));
        sender.listen(now);
    }
    sender.on_unreadable_again(1, None, &reason);
    let sent = drive(&mut sender, &mut now, Nanos(10 * MS));
    assert_eq!([1, 2, 3].map(|receiver| lost_to(&sent, receiver)), [vec![], vec![1], vec![1]]);
}

#[test]
fn a_few_that_stay_do_not_keep_what_comes_between() {
    let (mut sender, mut now) = (sender(8), Nanos(MS));
    sender.on_join(now, 1, sender.first());
    for product in 0..200 {
        sender.on_product(Shape::new(20, 500).unwrap());
        if product % 100 == 0 {
            continue;
        }
        sender.on_unreadable(product, &"it was deleted".to_owned().into());
    }
    sender.on_product(Shape::new(20, 500).unwrap());
    drive(&mut sender, &mut now, Nanos(500 * MS));
    assert_eq!((sender.first(), sender.oldest()), (200, 200), "of 201 the last 64");
}

#[test]
fn what_is_on_its_way_is_not_sent_again_unless_it_was_damaged() {
    let (mut sender, mut now) = (sender(8), Nanos(MS));
    sender.on_join(now, 1, 0);
    let shape = Shape::new(20, 5_000).unwrap();
    sender.on_product(shape);
    drive(&mut sender, &mut now, Nanos(500 * MS));
    let frame = |again| vec![Want { again, catch_up: true, ranges: vec![(0, u64::MAX / 2)], ..all_of(0) }];
    let sent = |sender: &mut Sender, now: &mut Nanos| {
        let bytes = drive(sender, now, Nanos(500 * MS)).into_iter().map(|send| match send {
            Send::Repair { bytes, .. } => bytes,
            _ => 0,
        });
        bytes.sum::<u64>()
    };
    for is_heeded in [true, true, false] {
        let mut all = 0;
        if !is_heeded {
            (0..4).for_each(|_| sender.on_nack(now, 1, frame(true)));
        }
        sender.on_nack(now, 1, frame(false));
        for _ in 0..3 {
            all += sent(&mut sender, &mut now);
            sender.on_nack(now, 1, frame(true));
        }
        assert_eq!(all + sent(&mut sender, &mut now), shape.stream(), "{is_heeded}");
    }
}

#[test]
fn what_is_asked_for_again_and_again_though_it_is_lost_does_not_pile_up() {
    let (mut sender, mut now) = (sender(8), Nanos(MS));
    sender.on_join(now, 1, 0);
    for _ in 0..50 {
        sender.on_product(Shape::new(20, 500).unwrap());
    }
    (0..50).for_each(|product| sender.on_unreadable(product, &"it was deleted".to_owned().into()));
    drive(&mut sender, &mut now, Nanos(100 * MS));
    for _ in 0..1000 {
        sender.on_nack(now, 1, (0..50).cycle().take(1000).map(all_of).collect());
        for _ in 0..32 {
            sender.poll(now);
        }
        assert!(sender.pending.len() < 200, "{}", sender.pending.len());
        now = Nanos(now.0 + MS);
    }
}

#[test]
fn a_join_late_in_a_long_feed_is_a_matter_of_runs() {
    let (mut sender, mut now) = (sender(8), Nanos(MS));
    sender.on_join(now, 1, 0);
    for _ in 0..60 {
        sender.on_product(Shape::new(20, 500).unwrap());
    }
    sender.on_unreadable(30, &"it was deleted".to_owned().into());
    drive(&mut sender, &mut now, Nanos(500 * MS));
    sender.on_join(now, 2, 0);
    let peer = &sender.peers[&2];
    assert_eq!((peer.owed.total(), peer.owed.runs(), peer.gone.total()), (59, 2, 0));
    let sent = drive(&mut sender, &mut now, Nanos(MS));
    let gone = Send::Gone { receiver: 2, runs: vec![(0, 30), (31, 29)] };
    assert!(sent.contains(&gone), "{sent:?}");
    sender.on_have(now, 2, &[(0, 10), (20, 1000)]);
    assert_eq!(sender.progress(2).unwrap().behind, 10);
    assert_eq!(sender.progress(2).unwrap().products, 49);
}

#[derive(Clone, Debug)]
enum Step {
    Product(u64),
    Join(u32, u32),
    Leave(u32),
    Have(u32, u32, u32),
    Failed(u32, u32),
    Unreadable(u32),
    Nack(u32, u32, bool),
    Report(u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (who, what) = (0u32..4, 0u32..30);
    prop_oneof![
        4 => (1u64..20_000).prop_map(Step::Product),
        1 => (who.clone(), 0u32..3).prop_map(|(who, first)| Step::Join(who, first)),
        1 => who.clone().prop_map(Step::Leave),
        4 => (who.clone(), what.clone(), 1u32..6).prop_map(|(who, first, count)| Step::Have(who, first, count)),
        1 => (who.clone(), what.clone()).prop_map(|(who, what)| Step::Failed(who, what)),
        1 => what.clone().prop_map(Step::Unreadable),
        3 => (who.clone(), what, any::<bool>()).prop_map(|(who, what, catch_up)| Step::Nack(who, what, catch_up)),
        2 => who.prop_map(Step::Report),
        6 => prop_oneof![Just(1u64), Just(10), Just(100), Just(4000)].prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn how_far_each_receiver_is_behind_is_counted_as_a_walk_finds_it(steps in proptest::collection::vec(step(), 0..120)) {
        let (mut sender, mut now) = (sender(6), Nanos(MS));
        for step in steps {
            match step {
                Step::Product(content) => drop(sender.on_product(Shape::new(20, content).unwrap())),
                Step::Join(who, first) => sender.on_join(now, who, first),
                Step::Leave(who) => sender.on_leave(now, who),
                Step::Have(who, first, count) => sender.on_have(now, who, &[(first, count)]),
                Step::Failed(who, product) => drop(sender.on_failed(now, who, product)),
                Step::Unreadable(product) => sender.on_unreadable(product, &"gone".to_owned().into()),
                Step::Nack(who, product, catch_up) => {
                    let want = Want { product, again: false, catch_up, ranges: vec![(0, 9000)] };
                    sender.on_nack(now, who, vec![want]);
                }
                Step::Report(who) => sender.on_report(now, who, Report::default()),
                Step::Wait(ms) => drop(drive(&mut sender, &mut now, Nanos(ms * MS))),
            }
            for peer in sender.peers.values() {
                let lacks = sender.held.values().filter(|held| held.is_passed() && !held.is_settled(peer.place));
                prop_assert_eq!(peer.behind, lacks.count() as u64);
                prop_assert_eq!(peer.waiting(), peer.wanted.values().map(|spans| spans.total()).sum::<u64>());
            }
        }
    }
}

#[test]
fn a_sender_that_was_silent_itself_takes_nobody_for_deaf() {
    let hold = Hold { floor: Nanos(100_000 * MS), of_multicast: 1.0, of_rtt: 1.0 };
    let mut sender = Sender::new(Config { hold, ..Config::of_a_gigabit(0.001, None) }, Nanos(MS));
    let mut now = Nanos(MS);
    sender.on_join(now, 1, 0);
    sender.on_product(Shape::new(20, 500).unwrap());
    drive(&mut sender, &mut now, Nanos(100 * MS));
    let lost = Report { packets: 1, lost: 1, rtt: Nanos(MS), ..Report::default() };
    sender.on_report(now, 1, lost);
    // It had no descriptor, say, and was not asked for anything.
    now = now.after(Nanos(5_000 * MS));
    sender.on_report(now, 1, lost);
    assert_eq!(sender.totals.gone, 0);
    // It says each second where it is, and that is not heard.
    drive(&mut sender, &mut now, Nanos(5_000 * MS));
    sender.on_report(now, 1, lost);
    assert_eq!(sender.totals.gone, 1);
}

#[test]
fn where_most_hear_nothing_what_is_held_is_kept_for_the_group() {
    let hold = Hold { floor: Nanos(100_000 * MS), of_multicast: 1.0, of_rtt: 1.0 };
    let mut sender = Sender::new(Config { hold, ..Config::of_a_gigabit(0.001, None) }, Nanos(MS));
    let mut now = Nanos(MS);
    (0..5).for_each(|receiver| sender.on_join(now, receiver, 0));
    sender.on_product(Shape::new(20, 500).unwrap());
    let report = |packets| Report { packets, rtt: Nanos(MS), ..Report::default() };
    let gone = |sender: &mut Sender, now: &mut Nanos, hear: u32, time: u64| {
        drive(sender, now, Nanos(time * MS));
        (0..5).for_each(|receiver| {
            sender.on_report(*now, receiver, report(u64::from(receiver < hear) * now.0));
        });
        sender.totals.gone
    };
    assert_eq!(gone(&mut sender, &mut now, 5, 100), 0);
    // A tree is being made. It is not, after all, and one of them is found to hear nothing alone.
    assert_eq!(gone(&mut sender, &mut now, 0, 100), 0);
    assert_eq!(gone(&mut sender, &mut now, 0, 6_000), 0);
    assert_eq!(gone(&mut sender, &mut now, 0, 8_000), 5);
    sender.on_product(Shape::new(20, 500).unwrap());
    assert_eq!(gone(&mut sender, &mut now, 4, 100), 5);
    assert_eq!(gone(&mut sender, &mut now, 4, 3_200), 6);
}

#[test]
fn a_product_that_is_lost_is_not_to_who_had_it_and_had_not_said_so() {
    let (mut sender, mut now) = (sender(8), Nanos(MS));
    (1..=2).for_each(|receiver| sender.on_join(now, receiver, 0));
    sender.on_product(Shape::new(20, 500).unwrap());
    drive(&mut sender, &mut now, Nanos(MS));
    sender.on_unreadable(0, &"it was deleted".to_owned().into());
    sender.on_have(now, 1, &[(0, 1)]);
    let counts = |receiver| sender.progress(receiver).map(|progress| (progress.products, progress.failed));
    assert_eq!((counts(1), counts(2)), (Some((1, 0)), Some((0, 1))));
}

#[test]
fn of_a_feed_whose_old_products_are_deleted_whoever_joins_is_not_told_of_each() {
    let (mut sender, mut now) = (sender(8), Nanos(MS));
    sender.on_join(now, 1, sender.first());
    for product in 0..1000 {
        sender.on_product(Shape::new(20, 500).unwrap());
        drive(&mut sender, &mut now, Nanos(60 * MS));
        // It is deleted before it is too old to be had: nothing is forgotten for its age.
        if product >= 10 {
            sender.on_superseded(product - 10);
        }
    }
    assert!(sender.first() >= 1000 - 64 - 10, "{}", sender.first());
    assert!(sender.superseded.total() <= 64 + 10, "{}", sender.superseded.total());
}

#[test]
fn a_pause_in_which_nobody_was_there_is_no_time_that_sending_took() {
    let (mut sender, mut now) = (sender(8), Nanos(MS));
    sender.on_join(now, 1, 0);
    sender.on_product(Shape::new(20, 5_000_000).unwrap());
    drive(&mut sender, &mut now, Nanos(10 * MS));
    sender.on_leave(now, 1);
    drive(&mut sender, &mut now, Nanos(3_600_000 * MS));
    sender.on_join(now, 2, 0);
    // It takes 40 ms, and is held for as long, or 50 ms; an hour ago it had begun.
    let sent = drive(&mut sender, &mut now, Nanos(500 * MS));
    assert!(sent.iter().any(|send| matches!(send, Send::Released { product: 0 })), "{sent:?}");
}
