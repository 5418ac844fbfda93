//! Every message arrives once, whole and in order, whatever lies between.

use std::collections::BTreeMap;

use farlink_flow::fabric::endpoint::Settings;
use farlink_flow::fabric::transport::Kind;
use farlink_link::Conditions;
use farlink_link::conditions::Reorder;
use farlink_wire::quantity::{Fraction, Nanos};
use proptest::prelude::*;

use crate::simulation::Simulation;
use crate::{MS, SECOND, dynamic, path, settings, transports};

const SIZES: [usize; 9] = [0, 8, 300, 8900, 9000, 70_000, 1, MOST, 12];
const MOST: usize = 300_000;

/// Each sends messages of all sizes to each other, some before they are wanted and some after.
fn talk(simulation: &mut Simulation) {
    let count = simulation.processes.len();
    for (turn, len) in SIZES.into_iter().enumerate() {
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from || turn % 2 == 0) {
                if (turn + from) % 2 == 0 {
                    simulation.receive(to, from, MOST);
                }
                simulation.send(from, to, len);
            }
        }
        simulation.run(Nanos(turn as u64 % 3 * MS));
    }
    for turn in 0..SIZES.len() {
        for from in (0..count).filter(|from| (turn + from) % 2 != 0) {
            for to in (0..count).filter(|to| *to != from || turn % 2 == 0) {
                simulation.receive(to, from, MOST);
            }
        }
    }
}

fn talks(hosts: u64, each: u64, conditions: Conditions, transport: Kind, eager: usize, rate: bool) {
    let mut settings = settings(transport);
    settings.eager = eager;
    settings.rate = settings.rate.filter(|_| rate);
    let mut simulation = Simulation::new(hosts, each, conditions, &settings);
    talk(&mut simulation);
    simulation.finish(Nanos(60 * SECOND));
    assert_eq!(simulation.failures, []);
    // What is still under way is no more than acknowledgements: all may go.
    simulation.run(Nanos(5 * SECOND));
    assert!(simulation.processes.iter().all(|process| process.endpoint.is_quiet()));
}

#[test]
fn on_every_transport_whatever_the_round_trip_and_the_loss() {
    for transport in transports() {
        for rtt_us in [400, 11_800, 91_600, 366_000] {
            for loss in [0.0, 0.001, 0.01, 0.1] {
                talks(4, 1, path(rtt_us, loss), transport, 100_000, rtt_us != 11_800);
            }
        }
    }
}

#[test]
fn over_links_that_reorder_duplicate_and_damage() {
    let share = |share| Fraction::new(share).unwrap();
    for transport in transports() {
        let reorder = Reorder { share: share(0.05), extra: Nanos(2 * MS) };
        let bad = Conditions {
            reorder,
            duplicate: share(0.05),
            corrupt: share(0.02),
            jitter: Nanos(MS),
            ..path(20_000, 0.03)
        };
        talks(3, 1, bad, transport, 1 << 20, true);
        talks(3, 1, bad, transport, 0, false);
    }
}

#[test]
fn among_hosts_of_several_processes() {
    for transport in transports() {
        talks(2, 3, path(11_800, 0.01), transport, 100_000, true);
        talks(3, 2, path(11_800, 0.0), transport, 1000, false);
    }
}

#[test]
fn among_processes_that_hear_of_each_other_only_by_what_is_said() {
    for transport in transports() {
        // From each to the next one around, and back only when that is done: who receives for another host's next, and for whom, is
        // nobody that it has spoken to.
        for (hosts, each) in [(2, 2), (2, 3), (3, 2)] {
            let mut simulation =
                Simulation::of_strangers(hosts, each, path(10_000, 0.01), &settings(transport));
            let count = simulation.processes.len();
            for step in 1..count {
                for len in SIZES {
                    for from in 0..count {
                        simulation.send(from, (from + step) % count, len);
                    }
                }
                simulation.run(Nanos(30 * MS));
                for _ in SIZES {
                    for from in 0..count {
                        simulation.receive((from + step) % count, from, MOST);
                    }
                }
                simulation.finish(Nanos(60 * SECOND));
            }
            assert_eq!(simulation.failures, []);
            assert_eq!(simulation.sum("nonsense"), 0);
        }
    }
}

#[test]
fn by_every_policy_that_there_is() {
    for policy in farlink_flow::fabric::transport::dc::policy::PolicyKind::all() {
        for initiators in [1, 3] {
            talks(6, 1, path(5000, 0.02), dynamic(initiators, policy.name()), 100_000, true);
        }
    }
}

#[test]
fn after_a_link_was_cut_for_five_seconds() {
    for transport in transports() {
        let conditions = path(91_600, 0.01);
        let mut simulation = Simulation::new(3, 1, conditions, &settings(transport));
        talk(&mut simulation);
        simulation.run(Nanos(20 * MS));
        simulation.set(Conditions { is_cut: true, ..conditions });
        simulation.message(0, 1, 100_000);
        simulation.run(Nanos(5 * SECOND));
        simulation.message(2, 0, 10);
        simulation.set(conditions);
        let took = simulation.finish(Nanos(10 * SECOND));
        assert_eq!(simulation.failures, []);
        assert!(took < Nanos(3 * SECOND), "{transport:?} {took}");
    }
}

/// What happens to a program, in any order.
#[derive(Clone, Debug)]
enum Event {
    Send {
        from: usize,
        to: usize,
        len: usize,
    },
    Receive {
        from: usize,
        to: usize,
    },
    Run(u64),
    /// The links break, or are mended.
    Cut(bool),
}

fn event() -> impl Strategy<Value = Event> {
    let len = prop_oneof![0..40_usize, 8000..10_000_usize, 0..MOST];
    prop_oneof![
        6 => (0..9_usize, 0..9_usize, len).prop_map(|(from, to, len)| Event::Send { from, to, len }),
        6 => (0..9_usize, 0..9_usize).prop_map(|(from, to)| Event::Receive { from, to }),
        3 => (0..200_u64).prop_map(Event::Run),
        1 => any::<bool>().prop_map(Event::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn in_whatever_order_things_happen(
        transport in 0..5_usize,
        (hosts, each) in (1..5_u64, 1..3_u64),
        (rtt_us, loss, reorder) in (100..200_000_u64, 0.0..0.2_f64, 0.0..0.2_f64),
        (eager, rate) in (0..MOST, any::<bool>()),
        events in prop::collection::vec(event(), 1..80),
    ) {
        let reorder = Reorder { share: Fraction::new(reorder).unwrap(), extra: Nanos(rtt_us * 300) };
        let duplicate = Fraction::new(loss / 4.0).unwrap();
        let conditions = Conditions { reorder, duplicate, ..path(rtt_us, loss) };
        let mut settings = Settings { eager, ..settings(transports()[transport]) };
        settings.rate = settings.rate.filter(|_| rate);
        let mut simulation = Simulation::new(hosts, each, conditions, &settings);
        let count = (hosts * each) as usize;
        let (mut sent, mut asked) = (BTreeMap::new(), BTreeMap::new());
        for event in events {
            match event {
                Event::Send { from, to, len } => {
                    simulation.send(from % count, to % count, len);
                    *sent.entry((from % count, to % count)).or_insert(0) += 1;
                }
                Event::Receive { from, to } => {
                    simulation.receive(to % count, from % count, MOST);
                    *asked.entry((from % count, to % count)).or_insert(0) += 1;
                }
                Event::Run(ms) => simulation.run(Nanos(ms * MS)),
                Event::Cut(is_cut) => {
                    simulation.set(Conditions { is_cut, ..conditions });
                    simulation.run(Nanos(SECOND / 4));
                }
            }
        }
        simulation.set(conditions);
        for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
            let of = |counts: &BTreeMap<_, i32>| counts.get(&(from, to)).copied().unwrap_or(0);
            (of(&sent)..of(&asked)).for_each(|_| simulation.send(from, to, 100));
            (of(&asked)..of(&sent)).for_each(|_| simulation.receive(to, from, MOST));
        }
        simulation.finish(Nanos(60 * SECOND));
        prop_assert_eq!(&simulation.failures, &[]);
    }
}
