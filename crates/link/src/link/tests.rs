use farlink_wire::quantity::BitsPerSec;

use super::*;
use crate::conditions::{QueueLimit, Reorder};
use crate::loss::Loss;

const SECOND: u64 = 1_000_000_000;

fn conditions(rate: &str, delay: &str) -> Conditions {
    Conditions { rate: Some(rate.parse().unwrap()), delay: delay.parse().unwrap(), ..Conditions::default() }
}

fn share(value: f64) -> Fraction {
    Fraction::new(value).unwrap()
}

/// Seven full segments of MTU 9000 and a rest: what Linux makes of 64 KiB.
const SUPER: Segments = Segments { count: 8, full: 9000, last: 2636 };

fn drain(link: &mut Link<u32>) -> Vec<Delivery<u32>> {
    std::iter::from_fn(|| link.poll(Nanos::MAX)).collect()
}

#[test]
fn holds_a_packet_for_its_time_on_the_wire_and_the_delay() {
    let mut link = Link::new(conditions("10gbit", "45.8ms"), 1, Nanos(0));
    assert_eq!(link.on_packet(Nanos(100), Segments::one(1462), &7), 1);
    let due = Nanos(100 + 1200 + 45_800_000);
    assert_eq!(link.deadline(), Some(due));
    assert_eq!(link.poll(Nanos(due.0 - 1)), None);
    assert_eq!(link.poll(due), Some(Delivery { due, packet: 7, run: 0..1, flipped: None }));
    assert_eq!(link.deadline(), None);
}

#[test]
fn a_super_packet_that_is_short_on_the_wire_stays_whole() {
    let mut link = Link::new(conditions("10gbit", "1ms"), 1, Nanos(0));
    assert_eq!(link.on_packet(Nanos(0), SUPER, &0), 1);
    assert_eq!(link.poll(Nanos::MAX).unwrap().run, 0..8);
}

#[test]
fn a_super_packet_that_is_long_on_the_wire_comes_in_runs() {
    let mut link = Link::new(conditions("1gbit", "1ms"), 1, Nanos(0));
    link.on_packet(Nanos(0), SUPER, &0);
    let runs = drain(&mut link);
    assert!(runs.len() >= 6, "{runs:?}");
    // 9,038 bytes at 1 Gb/s: the first segment arrives after its own time, not the super-packet's.
    assert_eq!(runs[0].due, Nanos(72_304 + 1_000_000));
    assert_eq!(runs.last().unwrap().due, Nanos((7 * 9038 + 2674) * 8 + 1_000_000));
}

#[test]
fn carries_its_rate_over_any_whole_second() {
    for (rate, mtu) in [("10gbit", 9000), ("10gbit", 1500), ("1gbit", 9000)] {
        let asked: BitsPerSec = rate.parse().unwrap();
        let mut link = Link::new(conditions(rate, "10ms"), 1, Nanos(0));
        let segments = Segments { count: 7, full: mtu, last: mtu };
        let wire_bits = u64::from(mtu + 38) * 8;
        // Offered 10% more than fits, so that the queue is never empty.
        let spacing = 7 * wire_bits * SECOND / (asked.get() * 11 / 10);
        let mut now = Nanos(0);
        let mut arrivals = Vec::new();
        while now.0 < 4 * SECOND {
            link.on_packet(now, segments, &0);
            while let Some(delivery) = link.poll(now) {
                arrivals.push((delivery.due.0, delivery.run.len() as u64 * wire_bits));
            }
            now = now.after(Nanos(spacing));
        }
        for start in [SECOND, SECOND + 333_333_333, 2 * SECOND] {
            let within = arrivals.iter().filter(|(due, _)| (start..start + SECOND).contains(due));
            let carried: u64 = within.map(|(_, bits)| bits).sum();
            let off = carried as f64 / asked.get() as f64 - 1.0;
            assert!(off.abs() < 0.003, "{rate}, MTU {mtu}: off by {off}");
        }
    }
}

#[test]
fn drops_segments_that_find_the_queue_full_and_passes_the_others() {
    let queue = QueueLimit::Bytes(farlink_wire::quantity::Bytes(5 * 9038));
    let mut link = Link::new(Conditions { queue, ..conditions("10gbit", "0ms") }, 1, Nanos(0));
    link.on_packet(Nanos(0), SUPER, &0);
    let arrived: usize = drain(&mut link).iter().map(|delivery| delivery.run.len()).sum();
    assert_eq!((arrived, link.counters().dropped_queue), (5, 3));
    // The queue is kept as a time in whole nanoseconds, each worth 1.25 bytes here.
    assert!((5 * 9038 - 2..=5 * 9038).contains(&link.queue_most_bytes()));
}

#[test]
fn a_single_packet_larger_than_the_queue_still_passes_an_idle_link() {
    let queue = QueueLimit::Bytes(farlink_wire::quantity::Bytes(100));
    let mut link = Link::new(Conditions { queue, ..conditions("10gbit", "0ms") }, 1, Nanos(0));
    assert_eq!(link.on_packet(Nanos(0), Segments::one(9000), &0), 1);
}

#[test]
fn survivors_of_a_loss_go_on_as_the_runs_they_form() {
    let mut link =
        Link::new(Conditions { loss: Loss::Periodic(3), ..conditions("10gbit", "0ms") }, 1, Nanos(0));
    assert_eq!(link.on_packet(Nanos(0), SUPER, &0), 3);
    let runs: Vec<_> = drain(&mut link).into_iter().map(|delivery| delivery.run).collect();
    assert_eq!(runs, [0..2, 3..5, 6..8]);
    assert_eq!(link.counters().dropped_loss, 2);
}

#[test]
fn loses_the_share_that_was_asked_within_its_binomial_interval() {
    let asked = 0.01;
    let mut link = Link::new(
        Conditions { loss: Loss::Random(share(asked)), ..conditions("10gbit", "0ms") },
        42,
        Nanos(0),
    );
    let mut now = Nanos(0);
    while link.counters().segments < 1_000_000 {
        link.on_packet(now, SUPER, &0);
        drain(&mut link);
        now = now.after(Nanos(60_000));
    }
    let n = link.counters().segments as f64;
    let deviation = (n * asked * (1.0 - asked)).sqrt();
    let off = (link.counters().dropped_loss as f64 - n * asked).abs();
    assert!(off < 2.576 * deviation, "{off} against {deviation}");
}

#[test]
fn a_duplicate_comes_right_behind_its_original() {
    let mut link =
        Link::new(Conditions { duplicate: share(1.0), ..conditions("10gbit", "0ms") }, 1, Nanos(0));
    assert_eq!(link.on_packet(Nanos(0), Segments { count: 2, full: 1500, last: 1500 }, &0), 4);
    let runs: Vec<_> = drain(&mut link).into_iter().map(|delivery| delivery.run).collect();
    assert_eq!(runs, [0..1, 0..1, 1..2, 1..2]);
}

#[test]
fn a_damaged_segment_travels_alone() {
    let mut link = Link::new(Conditions { corrupt: share(1.0), ..conditions("10gbit", "0ms") }, 1, Nanos(0));
    link.on_packet(Nanos(0), SUPER, &0);
    for (index, delivery) in drain(&mut link).into_iter().enumerate() {
        let len = if index == 7 { 2636 } else { 9000 };
        assert_eq!(delivery.run, index as u16..index as u16 + 1);
        assert!(delivery.flipped.unwrap() < len * 8);
    }
}

#[test]
fn a_held_segment_arrives_after_later_ones() {
    let reorder = Reorder { share: share(0.2), extra: Nanos(500_000) };
    let mut link = Link::new(Conditions { reorder, ..conditions("10gbit", "1ms") }, 3, Nanos(0));
    let mut expected = 0;
    for packet in 0..20 {
        expected += link.on_packet(Nanos(u64::from(packet) * 60_000), SUPER, &packet);
    }
    let deliveries = drain(&mut link);
    assert_eq!(deliveries.len() as u32, expected);
    assert!(deliveries.is_sorted_by_key(|delivery| delivery.due));
    let order: Vec<_> = deliveries.iter().map(|delivery| (delivery.packet, delivery.run.start)).collect();
    assert!(!order.is_sorted() && link.counters().reordered > 10);
}

#[test]
fn jitter_keeps_the_order_and_the_mean() {
    let mut link =
        Link::new(Conditions { jitter: Nanos(2_000_000), ..conditions("10gbit", "10ms") }, 9, Nanos(0));
    let mut delays = Vec::new();
    for packet in 0..2000u32 {
        let now = Nanos(u64::from(packet) * 10_000_000);
        link.on_packet(now, Segments::one(100), &packet);
        let delivery = link.poll(Nanos::MAX).unwrap();
        assert_eq!(delivery.packet, packet);
        delays.push(delivery.due.since(now).as_secs_f64());
    }
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    assert!((mean - 0.010).abs() < 0.0002, "{mean}");
    assert!(delays.iter().all(|delay| (0.008..0.0121).contains(delay)));
}

#[test]
fn a_cut_link_delivers_what_was_on_its_way_and_no_more() {
    let mut link = Link::new(conditions("10gbit", "1ms"), 1, Nanos(0));
    link.on_packet(Nanos(0), SUPER, &0);
    let whole = *link.conditions();
    link.set(Nanos(1), Conditions { is_cut: true, ..whole });
    assert_eq!(link.on_packet(Nanos(2), SUPER, &1), 0);
    link.set(Nanos(3), whole);
    link.on_packet(Nanos(4), SUPER, &2);
    let packets: Vec<_> = drain(&mut link).into_iter().map(|delivery| delivery.packet).collect();
    assert_eq!((packets, link.counters().dropped_cut), (vec![0, 2], 8));
}

#[test]
fn what_goes_no_further_than_the_sending_end_was_offered_too() {
    let mut link: Link<i32> = Link::new(conditions("10gbit", "1ms"), 1, Nanos(0));
    link.refuse(Segments { count: 3, full: 9000, last: 100 });
    let Counters { packets, segments, bytes, dropped_cut, .. } = *link.counters();
    assert_eq!((packets, segments, bytes, dropped_cut), (1, 3, 18_100, 3));
    assert_eq!(link.deadline(), None);
}

#[test]
fn what_waits_at_another_rate_takes_the_room_that_it_takes() {
    let of = |rate: &str| Conditions { queue: "6MB".parse().unwrap(), ..conditions(rate, "1ms") };
    let mut link = Link::new(of("1gbit"), 1, Nanos(0));
    while link.on_packet(Nanos(0), Segments::one(9000), &0) > 0 {}
    let full = link.queue_bytes(Nanos(0));
    assert!((5_980_000..=6_000_000).contains(&full), "{full}");
    // Half of it leaves in 24 ms, and then at the old rate still, whatever the new one is.
    for (rate, at_ms) in [("10gbit", 0), ("2gbit", 12), ("500mbit", 18)] {
        link.set(Nanos(at_ms * 1_000_000), of(rate));
    }
    let at = Nanos(24_000_000);
    assert!((2_980_000..=3_020_000).contains(&link.queue_bytes(at)), "{}", link.queue_bytes(at));
    assert_eq!(link.on_packet(at, Segments::one(9000), &0), 1);
    assert_eq!(link.queue_most_bytes(), full);
}

#[test]
fn a_shorter_delay_keeps_the_order() {
    let mut link = Link::new(conditions("10gbit", "100ms"), 1, Nanos(0));
    link.on_packet(Nanos(0), Segments::one(1000), &0);
    let shorter = Conditions { delay: Nanos(1_000_000), ..*link.conditions() };
    link.set(Nanos(10), shorter);
    link.on_packet(Nanos(20), Segments::one(1000), &1);
    let packets: Vec<_> = drain(&mut link).into_iter().map(|delivery| delivery.packet).collect();
    assert_eq!(packets, [0, 1]);
}

#[test]
fn the_same_seed_gives_the_same_fates() {
    let asked = Conditions {
        loss: "burst:2%,5".parse().unwrap(),
        jitter: Nanos(1000),
        duplicate: share(0.01),
        corrupt: share(0.01),
        reorder: Reorder { share: share(0.01), extra: Nanos(5000) },
        ..conditions("10gbit", "1ms")
    };
    let run = |seed| {
        let mut link = Link::new(asked, seed, Nanos(0));
        for packet in 0..500 {
            link.on_packet(Nanos(u64::from(packet) * 60_000), SUPER, &packet);
        }
        drain(&mut link)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn background_traffic_is_counted_by_what_became_of_it() {
    // Twice the rate: the queue of 50 ms fills, and then every second packet finds no place.
    let asked =
        Conditions { background: Some("2gbit".parse().unwrap()), mtu: 1500, ..conditions("1gbit", "1ms") };
    let mut link: Link<u32> = Link::new(asked, 1, Nanos(0));
    (1..=10).for_each(|tenth| link.advance(Nanos(SECOND / 10 * tenth)));
    let open = *link.counters();
    let carried = (open.background_packets - open.background_dropped_queue) * 1538 * 8;
    assert_eq!(open.background_packets, 2 * SECOND / (1538 * 8) + 1);
    assert!((carried as f64 / 1.05e9 - 1.0).abs() < 1e-3, "{carried}");
    assert_eq!((open.packets, open.background_dropped_cut), (0, 0));
    link.set(Nanos(SECOND), Conditions { is_cut: true, ..asked });
    link.advance(Nanos(SECOND / 10 * 12));
    let cut = *link.counters();
    assert_eq!(cut.background_dropped_queue, open.background_dropped_queue);
    assert_eq!(cut.background_dropped_cut, cut.background_packets - open.background_packets);
    assert!(cut.background_dropped_cut > 30_000);
}

proptest::proptest! {
    /// Whatever is asked, each segment is delivered, dropped once, or delivered once more.
    #[test]
    fn no_segment_is_lost_from_the_count(
        seed: u64, loss in 0.0..0.5f64, corrupt in 0.0..0.2f64, duplicate in 0.0..0.2f64, late in 0.0..0.2f64,
        rate in 1_000_000u64..20_000_000_000, queue in 1u64..100_000_000, jitter in 0u64..5_000_000,
        packets in proptest::collection::vec((0u64..200_000, 1u16..46), 1..60),
    ) {
        let asked = Conditions {
            rate: BitsPerSec::new(rate),
            delay: Nanos(1_000_000),
            queue: QueueLimit::Time(Nanos(queue)),
            loss: Loss::Random(share(loss)),
            corrupt: share(corrupt),
            duplicate: share(duplicate),
            reorder: Reorder { share: share(late), extra: Nanos(300_000) },
            jitter: Nanos(jitter),
            ..Conditions::default()
        };
        let mut link = Link::new(asked, seed, Nanos(0));
        let (mut now, mut promised) = (Nanos(0), 0);
        for (id, (gap, count)) in packets.iter().enumerate() {
            now = now.after(Nanos(*gap));
            promised += link.on_packet(now, Segments { count: *count, full: 1500, last: 700 }, &(id as u32));
        }
        let deliveries = drain(&mut link);
        proptest::prop_assert_eq!(deliveries.len() as u32, promised);
        proptest::prop_assert!(deliveries.is_sorted_by_key(|delivery| delivery.due));
        let arrived: u64 = deliveries.iter().map(|delivery| delivery.run.len() as u64).sum();
        let counted = link.counters();
        proptest::prop_assert_eq!(
            arrived + counted.dropped_queue + counted.dropped_loss,
            counted.segments + counted.duplicated
        );
    }
}
