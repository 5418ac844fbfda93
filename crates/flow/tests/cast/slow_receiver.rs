//! A slow receiver costs the others nothing, within a product and across a stream of products.

use farlink_wire::quantity::Nanos;

use crate::product::Path;
use crate::simulation::Simulation;
use crate::{MS, config, seconds};

/// What four receivers take for a stream of products, the first of them stopped 30 of each 100 ms with a buffer of 64 KiB if `slow`:
/// seconds from the first packet to the last product of the fast ones, and of all of them.
fn stream(products: u64, content: u64, slow: bool, lossy: f64) -> (f64, f64) {
    let mut simulation = Simulation::new(config(380_000_000), false);
    let mut path = Path::new(Nanos(MS / 10), lossy);
    // The kernel doubles what it is asked for.
    path.stopped = slow.then_some((Nanos(30 * MS), 2 * 64 * 1024));
    simulation.join(path);
    (0..3).for_each(|_| {
        simulation.join(Path::new(Nanos(MS / 10), 0.0));
    });
    for product in 0..products {
        simulation.product(&format!("{product}"), content, None);
    }
    simulation.finish();
    let begun = simulation.now;
    simulation.run(Nanos(120_000 * MS));
    assert!(simulation.is_complete());
    let last = |host: usize| seconds(simulation.hosts[host].stored.values().max().unwrap().since(begun));
    let fast = (1..4).map(last).fold(0.0, f64::max);
    (fast, fast.max(last(0)))
}

#[test]
fn a_stream_of_large_products_takes_the_fast_as_long_as_if_nobody_were_slow() {
    let (alone, _) = stream(16, 1 << 20, false, 0.0);
    let (fast, all) = stream(16, 1 << 20, true, 0.0);
    assert!(fast < 1.02 * alone, "{fast} of {alone} s");
    assert!(all < 2.0 * alone, "{all} of {alone} s");
}

#[test]
fn a_stream_of_small_products_does_so_too() {
    let (alone, _) = stream(300, 40 << 10, false, 0.0);
    let (fast, _) = stream(300, 40 << 10, true, 0.0);
    assert!(fast < 1.05 * alone && fast < 0.4, "{fast} of {alone} s");
}

#[test]
fn one_receiver_that_loses_5_percent_is_not_noticed_by_the_others() {
    let (alone, _) = stream(1, 16 << 20, false, 0.0);
    let (fast, all) = stream(1, 16 << 20, false, 0.05);
    assert!(fast < 1.005 * alone, "{fast} of {alone} s");
    assert!(all < 1.05 * alone, "{all} of {alone} s");
}

#[test]
fn without_loss_the_rate_is_filled() {
    let (alone, _) = stream(1, 32 << 20, false, 0.0);
    let ceiling = 380e6 / 8.0 * 1416.0 / (1416.0 + 56.0 + 66.0);
    let share = f64::from(32 << 20) / alone / ceiling;
    assert!((0.985..1.01).contains(&share), "{share} of the payload's ceiling");
}

#[test]
fn many_slow_receivers_cost_the_others_less_than_the_repairs_share() {
    let run = |slow: usize| {
        let mut simulation = Simulation::new(config(100_000_000), false);
        for host in 0..30 {
            let loss = if host < slow { 0.01 + 0.39 * host as f64 / 12.0 } else { 0.0 };
            simulation.join(Path::new(Nanos(MS), loss));
        }
        // At a load of 0.8: products of 40 kB each 4 ms.
        for product in 0..100 {
            simulation.product(&format!("{product}"), 40_000, None);
            simulation.run_for(Nanos(4 * MS));
        }
        simulation.finish();
        simulation.run(Nanos(120_000 * MS));
        assert!(simulation.is_complete());
        let mut sum = 0.0;
        for host in &simulation.hosts[12..] {
            for (product, at) in &host.stored {
                sum += seconds(at.since(simulation.begun[product]));
            }
        }
        (sum, simulation.sender.totals().gone)
    };
    let ((without, _), (with, gone)) = (run(0), run(12));
    assert!(without / with > 0.95, "{with} s in all with slow receivers, {without} s without");
    assert_eq!(gone, 0);
}

#[test]
fn one_that_seldom_loses_anything_does_not_wait_behind_those_that_lose_much() {
    let mut config = config(100_000_000);
    config.rates.beside = None;
    let mut simulation = Simulation::new(config, false);
    for host in 0..20 {
        simulation.join(Path::new(Nanos(MS), if host < 8 { 0.2 } else { 0.0 }));
    }
    for product in 0..200 {
        simulation.product(&format!("{product}"), 40_000, None);
    }
    simulation.finish();
    // A packet now and then, while products wait for their first pass.
    for _ in 0..3 {
        simulation.run_for(Nanos(200 * MS));
        simulation.hosts[15].until_loss = 5;
    }
    simulation.run(Nanos(120_000 * MS));
    assert!(simulation.is_complete());
    let (own, others) = (&simulation.hosts[15].stored, &simulation.hosts[16].stored);
    let latest = own.iter().map(|(product, at)| at.since(others[product])).max().unwrap();
    assert!(simulation.hosts[15].machine.as_ref().unwrap().tally().repaired > 1416);
    assert!(latest < Nanos(20 * MS), "{latest}");
    // Those that lose much wait for seconds.
    assert!(simulation.completed().since(*others.values().max().unwrap()) > Nanos(500 * MS));
}
