//! Receivers that come late, or again: each has everything in the end, or knows what it will not have.

use farlink_flow::cast::receiver::Failure;
use farlink_wire::quantity::{BitsPerSec, Nanos};

use crate::product::Path;
use crate::simulation::Simulation;
use crate::{MS, config};

fn stream(simulation: &mut Simulation, products: u64) {
    for product in 0..products {
        simulation.product(&format!("{product}"), 30_000 + product, Some(product));
    }
}

#[test]
fn what_could_not_be_read_is_named_to_who_joins_after_that_too() {
    for unreadable in [vec![0], vec![0, 1, 2], vec![0, 4], vec![9]] {
        let mut simulation = Simulation::new(config(100_000_000), true);
        let first = simulation.join(Path::new(Nanos(5 * MS), 0.0));
        stream(&mut simulation, 10);
        for product in &unreadable {
            simulation.sender.on_unreadable(*product, &"it was deleted".to_owned().into());
        }
        simulation.run_for(Nanos(100 * MS));
        let late = simulation.join(Path::new(Nanos(5 * MS), 0.02));
        simulation.finish();
        simulation.run(Nanos(60_000 * MS));
        assert!(simulation.is_complete(), "{unreadable:?}");
        for host in [first, late] {
            let host = &simulation.hosts[host];
            assert!(host.failed.keys().eq(&unreadable), "{unreadable:?}: {:?}", host.failed);
            assert!(host.failed.values().all(|failure| matches!(failure, Failure::Lost(_))));
            let tally = host.machine.as_ref().unwrap().tally();
            // What its account says, and so what both ends end with.
            assert_eq!((tally.failed, tally.stored), (unreadable.len() as u32, 10 - unreadable.len() as u32));
        }
    }
}

#[test]
fn what_a_later_product_has_the_name_of_is_no_failure_for_anybody_late_or_not() {
    for superseded in [vec![0], vec![0, 1, 2], vec![0, 4]] {
        let mut simulation = Simulation::new(config(100_000_000), true);
        let first = simulation.join(Path::new(Nanos(5 * MS), 0.0));
        stream(&mut simulation, 10);
        superseded.iter().for_each(|product| simulation.sender.on_superseded(*product));
        simulation.run_for(Nanos(100 * MS));
        let late = simulation.join(Path::new(Nanos(5 * MS), 0.02));
        simulation.finish();
        simulation.run(Nanos(60_000 * MS));
        assert!(simulation.is_complete(), "{superseded:?}");
        for host in [first, late] {
            let told = simulation.sender.progress(host as u32).unwrap().failed;
            let host = &simulation.hosts[host];
            let tally = host.machine.as_ref().unwrap().tally();
            assert_eq!((tally.failed, tally.stored, told), (0, 10, 0), "{:?}", host.failed);
            assert_eq!(host.stored.len(), 10 - superseded.len());
        }
    }
}

#[test]
fn what_was_forgotten_before_a_receiver_joined_counts_as_failed() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let host = simulation.join(Path::new(Nanos(5 * MS), 0.0));
    stream(&mut simulation, 10);
    simulation.kill(host);
    // The sender says that it begins with the fourth.
    simulation.start(host, 3);
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete());
    let tally = simulation.hosts[host].machine.as_ref().unwrap().tally();
    assert_eq!((tally.failed, tally.stored), (3, 7));
}

#[test]
fn what_a_receiver_does_not_want_is_neither_sent_to_it_nor_lacking() {
    // Others lose much of what it does not want, so that this is sent again to all.
    for (wanted, first) in [(3, 3), (3, 5), (9, 9), (10, 10)] {
        let mut simulation = Simulation::new(config(20_000_000), true);
        let other = simulation.join(Path::new(Nanos(5 * MS), 0.3));
        let late = simulation.join(Path::new(Nanos(5 * MS), 0.1));
        simulation.kill(late);
        stream(&mut simulation, 10);
        simulation.run_for(Nanos(100 * MS));
        simulation.start_wanting(late, wanted, first);
        stream(&mut simulation, 5);
        simulation.finish();
        simulation.run(Nanos(60_000 * MS));
        assert!(simulation.is_complete(), "{wanted} {first}");
        let forgotten = first - wanted;
        let tally = simulation.hosts[late].machine.as_ref().unwrap().tally();
        assert_eq!((tally.failed, tally.stored, tally.misfits), (forgotten, 15 - first, 0), "{tally:?}");
        assert!(simulation.has_all(other) && simulation.hosts[other].failed.is_empty());
    }
}

#[test]
fn a_receiver_that_was_cut_off_hears_of_what_was_lost_meanwhile() {
    let mut simulation = Simulation::new(config(20_000_000), true);
    let host = simulation.join(Path::new(Nanos(5 * MS), 0.3));
    let other = simulation.join(Path::new(Nanos(5 * MS), 0.0));
    stream(&mut simulation, 10);
    simulation.run_for(Nanos(40 * MS));
    simulation.sender.on_leave(simulation.now, host as u32);
    simulation.run_for(Nanos(40 * MS));
    (2..6).for_each(|product| simulation.sender.on_unreadable(product, &"it was deleted".to_owned().into()));
    simulation.reconnect(host);
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete());
    for host in [host, other] {
        let host = &simulation.hosts[host];
        assert_eq!(host.failed.len() + host.stored.len(), 10, "{:?} {:?}", host.failed, host.stored);
        assert!(host.failed.keys().all(|product| (2..6).contains(product)));
    }
}

#[test]
fn who_comes_late_over_a_slow_connection_is_sent_each_byte_about_once() {
    for is_held in [false, true] {
        let mut simulation = Simulation::new(config(100_000_000), true);
        simulation.unicast = BitsPerSec::new(10_000_000);
        simulation.join(Path::new(Nanos(5 * MS), 0.0));
        stream(&mut simulation, 100);
        if is_held {
            // Somebody lacks everything still, so that nothing is gone.
            simulation.join(Path::new(Nanos(5 * MS), 1.0));
        }
        simulation.run_for(Nanos(1_000 * MS));
        let late = simulation.join(Path::new(Nanos(5 * MS), 0.0));
        // Two are sent once more, though all of them was on its way before.
        simulation.hosts[late].damages.extend([3, 50]);
        simulation.finish();
        simulation.run(Nanos(60_000 * MS));
        assert!(simulation.is_complete() && simulation.hosts[late].failed.is_empty());
        assert!(simulation.has_all(late));
        let all: u64 = simulation.products.iter().map(|(product, _)| product.shape.stream()).sum();
        let repaired = simulation.sender.progress(late as u32).unwrap().repaired;
        assert!(repaired < all * 11 / 10, "{repaired} of {all} bytes");
    }
}

#[test]
fn who_is_started_again_is_not_sent_what_it_has() {
    // In the midst of a large product, while it is sent, and when nobody else lacks anything of it any more.
    for (until, is_over) in [(600, false), (2_000, true)] {
        let mut simulation = Simulation::new(config(100_000_000), true);
        simulation.join(Path::new(Nanos(5 * MS), 0.0));
        let host = simulation.join(Path::new(Nanos(5 * MS), 0.0));
        simulation.product("large", 10_000_000, Some(1));
        simulation.run_for(Nanos(600 * MS));
        let had = simulation.hosts[host].machine.as_ref().unwrap().tally().bytes;
        simulation.kill(host);
        simulation.run_for(Nanos((until - 600 + 20) * MS));
        let first = simulation.sender.first();
        simulation.start(host, first);
        simulation.finish();
        simulation.run(Nanos(60_000 * MS));
        assert!(simulation.is_complete() && simulation.has_all(host), "{is_over}");
        let lacked = if is_over { 10_000_000 - had } else { 0 };
        let repaired = simulation.sender.progress(host as u32).unwrap().repaired;
        assert!(had > 5_000_000 && repaired < lacked + 500_000, "{is_over}: {had} {repaired}");
        let found = simulation.hosts[host].machine.as_ref().unwrap().tally().found;
        assert!(found > had - 100_000, "{is_over}: {found} of {had}");
    }
}

#[test]
fn who_comes_late_has_everything_also_with_parity_and_names_of_several_packets() {
    use farlink_flow::cast::sender::Config;
    use farlink_wire::cast::control::BlockPackets;

    // Of 4,000 bytes, which take three packets.
    let long = ["a".repeat(200).as_str(); 20].join("/");
    for (parity, loss) in [(0, 0.0), (0, 0.1), (3, 0.1), (3, 0.3)] {
        for seed in 0..3 {
            let block = BlockPackets::try_from(if parity > 0 { 60 } else { 0 }).unwrap();
            let config = Config { block, parity, ..config(100_000_000) };
            let mut simulation = Simulation::new(config, true);
            simulation.join(Path::new(Nanos(5 * MS), 0.0));
            // Names alone, and more.
            for (number, content) in [0, 30_000, 400_000, 2_000_000].into_iter().enumerate() {
                simulation.product(&format!("{long}/{number}"), content, Some(seed));
            }
            simulation.product("large", 5_000_000, Some(seed));
            // In the midst of the fourth product, of the last, and behind all of them.
            let late: Vec<_> = [120, 300, 1_500]
                .into_iter()
                .map(|at| {
                    let now = simulation.now.0 / MS;
                    simulation.run_for(Nanos((at - now.min(at)) * MS));
                    simulation.join(Path::new(Nanos(5 * MS), loss))
                })
                .collect();
            simulation.product("another", 300_000, Some(seed));
            simulation.finish();
            simulation.run(Nanos(120_000 * MS));
            assert!(simulation.is_complete(), "{parity} {loss} {seed}: {:?}", simulation.sender.totals());
            assert!(late.into_iter().all(|host| simulation.has_all(host)), "{parity} {loss} {seed}");
        }
    }
}
