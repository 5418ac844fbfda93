//! Several whose rate is sought share a link, or have it beside others who do not look at anybody.

use farlink_flow::fabric::endpoint::Settings;
use farlink_flow::fabric::transport::Kind;
use farlink_link::Conditions;
use farlink_wire::quantity::{BitsPerSec, Nanos};

use crate::simulation::Simulation;
use crate::{SECOND, path, settings};

const LEN: usize = 1 << 20;

/// A link of which each may have a part.
fn shared(rate: u64, rtt_us: u64, loss: f64) -> Conditions {
    Conditions { rate: BitsPerSec::new(rate), ..path(rtt_us, loss) }
}

/// Two processes on each of two hosts, of which the first two have much to say to the others, the second of them from half a second on: the
/// rate of each from the second `from` to the second `until`, bits a second.
fn rates(conditions: Conditions, settings: [Settings; 2], from: u64, until: u64) -> [f64; 2] {
    let [first, second] = settings;
    let rate = conditions.rate.map_or(0, BitsPerSec::get);
    let mut simulation =
        Simulation::with(2, 2, conditions, |at| if at == 1 { second.clone() } else { first.clone() });
    let count = (until * rate / 8) as usize / LEN + 2;
    let begin = |simulation: &mut Simulation, from: usize| {
        for _ in 0..count {
            simulation.message(from, from + 2, LEN);
        }
    };
    begin(&mut simulation, 0);
    simulation.run(Nanos(SECOND / 2));
    begin(&mut simulation, 1);
    simulation.run(Nanos(from * SECOND - SECOND / 2));
    let sent = |simulation: &Simulation| [0, 1].map(|process| simulation.figure(process, "pieces"));
    let before = sent(&simulation);
    simulation.run(Nanos((until - from) * SECOND));
    let after = sent(&simulation);
    [0, 1].map(|process| (after[process] - before[process]) as f64 * 8972.0 * 8.0 / (until - from) as f64)
}

/// Two that seek have about a half each of a link, and use it, from the second `from` on. Over a long path the first keeps more than its half
/// for some twenty seconds, by chance much more.
fn share(rate: u64, rtt_us: u64, loss: f64, from: u64) {
    let sought = Settings { rate: None, ..settings(Kind::Rc) };
    let [first, second] = rates(shared(rate, rtt_us, loss), [sought.clone(), sought], from, from + 8);
    let (least, sum) = (first.min(second), first + second);
    assert!(least > 0.35 * sum, "{rtt_us} us, {loss}: {first} and {second}");
    assert!(sum > 0.8 * rate as f64, "{rtt_us} us, {loss}: {first} and {second}");
}

#[test]
fn two_that_seek_share_a_short_link_and_use_it() {
    share(400_000_000, 2_000, 0.0, 14);
}

#[test]
fn two_that_seek_share_a_link_and_use_it() {
    share(200_000_000, 20_000, 0.0, 14);
}

#[test]
fn two_that_seek_share_a_long_link_and_use_it() {
    share(200_000_000, 91_600, 0.0, 22);
}

#[test]
fn two_that_seek_share_a_short_link_that_loses_and_use_it() {
    share(400_000_000, 2_000, 0.01, 14);
}

#[test]
fn two_that_seek_share_a_link_that_loses_much_and_use_it() {
    share(200_000_000, 20_000, 0.05, 14);
}

#[test]
fn who_seeks_takes_what_another_leaves() {
    const SHARED: u64 = 200_000_000;
    let sought = Settings { rate: None, ..settings(Kind::Rc) };
    let known = Settings { rate: BitsPerSec::new(SHARED / 2), ..sought.clone() };
    for order in [[known.clone(), sought.clone()], [sought, known]] {
        let first_is_known = order[0].rate.is_some();
        let [first, second] = rates(shared(SHARED, 20_000, 0.0), order, 14, 22);
        let (known, sought) = if first_is_known { (first, second) } else { (second, first) };
        assert!(known > 0.47 * SHARED as f64, "{known} and {sought}");
        assert!(sought > 0.35 * SHARED as f64, "{known} and {sought}");
    }
}
