//! The study of a feed in virtual time: files come at their times, two fifths of the receivers lose 1 to 40%.

use farlink_flow::cast::sender::{Config, Hold};
use farlink_wire::quantity::{BitsPerSec, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::product::Path;
use crate::simulation::Simulation;
use crate::{MS, config, seconds};

/// What is studied.
#[derive(Clone, Copy, Debug)]
struct Study {
    files: usize,
    receivers: usize,
    load: f64,
    /// Whether two fifths of the receivers lose 1 to 40%.
    losing: bool,
    hold_factor: f64,
}

/// What came of it.
#[derive(Debug)]
struct Outcome {
    /// Of those that lose nothing, from when the first packet of each file could leave: bits per second.
    fast: f64,
    /// Of all files at receivers, those that were there before the sender held them no longer.
    in_time: f64,
}

/// A file: its size, and when it comes.
fn arrivals(study: &Study) -> Vec<(u64, f64)> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut drawn = |points: &[(f64, f64)]| {
        let shares = (0..study.files).map(|number| (number as f64 + 0.5) / study.files as f64);
        let mut values: Vec<f64> = shares.map(|share| quantile(points, share)).collect();
        (1..values.len()).rev().for_each(|place| values.swap(place, random.random_range(0..=place)));
        values
    };
    let (sizes, gaps) = (drawn(&SIZES), drawn(&GAPS));
    let whole = 8.0 * sizes.iter().sum::<f64>() / (study.load * RATE as f64);
    let scale = whole / gaps.iter().sum::<f64>();
    let mut at = 0.0;
    let comes = sizes.into_iter().zip(gaps).map(|(size, gap)| {
        let arrival = (size as u64, at);
        at += gap * scale;
        arrival
    });
    comes.collect()
}

/// The value that `share` of a distribution do not pass: a logarithmic line between `points`.
fn quantile(points: &[(f64, f64)], share: f64) -> f64 {
    let end = points.iter().position(|(high, _)| share <= *high).unwrap().max(1);
    let ((low, least), (high, most)) = (points[end - 1], points[end]);
    least * (most / least).powf((share - low) / (high - low))
}

fn run(study: &Study) -> Outcome {
    let mut config: Config = config(RATE);
    config.rates.beside = None;
    config.hold = Hold { floor: Nanos(100 * MS), of_multicast: study.hold_factor, ..Hold::default() };
    let mut simulation = Simulation::new(config, false);
    simulation.grain = Nanos(10_000);
    simulation.unicast = BitsPerSec::new(1_000_000_000);
    let slow = study.receivers * 2 / 5;
    for host in 0..study.receivers {
        let loss = 0.01 + 0.39 * host as f64 / (slow - 1) as f64;
        simulation.join(Path::new(Nanos(5 * MS), if study.losing && host < slow { loss } else { 0.0 }));
    }
    simulation.run_for(Nanos(300 * MS));
    let begun = simulation.now;
    let arrivals = arrivals(study);
    let payload = RATE as f64 * 1416.0 / (1416.0 + 56.0 + 66.0);
    let (mut free, mut first) = (0.0, Vec::new());
    for (number, (size, at)) in arrivals.iter().enumerate() {
        let passed = simulation.now.since(begun);
        simulation.run_for(Nanos(Nanos::from_secs_f64(*at).0.saturating_sub(passed.0)));
        simulation.product(&format!("{number}"), *size, None);
        free = f64::max(free, *at);
        first.push(free);
        free += 8.0 * *size as f64 / payload;
    }
    simulation.finish();
    simulation.run(Nanos(300_000 * MS));
    assert!(simulation.is_complete());
    let mut sum = 0.0;
    for host in &simulation.hosts[slow..] {
        assert_eq!(host.stored.len(), study.files);
        sum += host
            .stored
            .iter()
            .map(|(product, at)| seconds(at.since(begun)) - first[*product as usize])
            .sum::<f64>();
    }
    let bits = 8.0 * arrivals.iter().map(|(size, _)| *size as f64).sum::<f64>();
    let totals = simulation.sender.totals();
    Outcome {
        fast: bits * (study.receivers - slow) as f64 / sum,
        in_time: 1.0 - totals.gone as f64 / (study.files * study.receivers) as f64,
    }
}

#[test]
fn receivers_that_lose_much_cost_those_of_a_feed_that_do_not_a_fiftieth_at_most() {
    for load in [0.4, 0.8] {
        let study = Study { files: 300, receivers: 5, load, losing: false, hold_factor: 10.0 };
        let calm = run(&study);
        let slow = run(&Study { losing: true, ..study });
        assert!(calm.in_time == 1.0 && slow.in_time > 0.75, "{slow:?}");
        assert!(slow.fast > 0.98 * calm.fast, "{} of {} at a load of {load}", slow.fast, calm.fast);
    }
}

const RATE: u64 = 100_000_000;

/// Bytes of files, and seconds between them, as `bench/support/feed.py` has them of a real feed.
const SIZES: [(f64, f64); 7] = [
    (0.0, 210.0),
    (0.25, 21_600.0),
    (0.5, 41_100.0),
    (0.75, 73_000.0),
    (0.99, 500_000.0),
    (0.999, 8e6),
    (1.0, 53.8e6),
];
const GAPS: [(f64, f64); 6] =
    [(0.0, 0.0005), (0.25, 0.003), (0.5, 0.005), (0.75, 0.012), (0.99, 0.68), (1.0, 5.0)];
