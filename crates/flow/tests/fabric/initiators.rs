//! Few initiators for many peers: what has gone wrong elsewhere.

use farlink_flow::fabric::endpoint::Settings;
use farlink_wire::quantity::Nanos;

use crate::simulation::Simulation;
use crate::{MS, SECOND, SILENCE, dynamic, path, settings};

const POLICIES: [&str; 5] = ["dcs", "dcs_quota", "rand", "lru", "static"];

/// So many processes on hosts of their own, with so many initiators.
fn program(processes: u64, initiators: u16, policy: &str, rtt_us: u64, loss: f64) -> Simulation {
    let settings = Settings { eager: 100_000, ..settings(dynamic(initiators, policy)) };
    Simulation::new(processes, 1, path(rtt_us, loss), &settings)
}

/// All has ended well, and no pool was larger than it may be.
fn check(simulation: &Simulation, initiators: u64) {
    assert_eq!(simulation.failures, []);
    check_pools(simulation, initiators);
}

/// No pool was larger than it may be: with one more for each that was silent.
fn check_pools(simulation: &Simulation, initiators: u64) {
    for process in 0..simulation.processes.len() {
        let [contexts, lent] =
            ["contexts_most", "initiators_lent"].map(|name| simulation.figure(process, name));
        assert!(contexts <= initiators + lent, "{contexts} with {initiators}, and {lent} lent");
    }
}

#[test]
fn all_to_all_of_many_ranks_completes_with_few_initiators() {
    for policy in POLICIES {
        let mut simulation = program(32, 3, policy, 1000, 0.01);
        for (from, step) in (0..32).flat_map(|from| (1..32).map(move |step| (from, step))) {
            simulation.message(from, (from + step) % 32, 10_000);
        }
        let took = simulation.finish(Nanos(10 * SECOND));
        check(&simulation, 3);
        // Each has ten peers to serve with each initiator, one after another: at least so many round trips.
        assert!((Nanos(10 * MS)..Nanos(60 * MS)).contains(&took), "{policy} {took}");
    }
}

#[test]
fn all_to_all_of_messages_beyond_what_goes_unasked_completes() {
    for policy in POLICIES {
        let mut simulation = program(8, 3, policy, 1000, 0.01);
        for (from, step) in (0..8).flat_map(|from| (1..8).map(move |step| (from, step))) {
            simulation.message(from, (from + step) % 8, (128 << 10) + 1);
        }
        simulation.finish(Nanos(10 * SECOND));
        check(&simulation, 3);
    }
}

#[test]
fn many_to_one_and_back_completes_with_one_initiator() {
    for policy in POLICIES {
        let mut simulation = program(33, 1, policy, 1000, 0.02);
        for rank in 1..33 {
            // 128 KiB are more than goes unasked.
            simulation.message(rank, 0, if rank % 2 == 0 { 128 << 10 } else { 200 });
            simulation.message(0, rank, if rank % 3 == 0 { 128 << 10 } else { 8 });
        }
        simulation.finish(Nanos(10 * SECOND));
        check(&simulation, 1);
    }
}

#[test]
fn a_peer_has_traffic_on_one_initiator_at_a_time_whatever_is_lost() {
    // The simulation sees to it: of what goes to a process nothing follows by a context that another came after.
    for policy in POLICIES {
        for initiators in [1, 2, 5] {
            let mut simulation = program(8, initiators, policy, 5000, 0.05);
            for turn in 0..12 {
                for (from, step) in (0..8).flat_map(|from| (1..8).map(move |step| (from, step))) {
                    let len = [8, 30_000, 130_000, 700][(from + step + turn) % 4];
                    simulation.message(from, (from + step) % 8, len);
                }
                simulation.run(Nanos(turn as u64 % 4 * 5 * MS));
            }
            simulation.finish(Nanos(20 * SECOND));
            check(&simulation, initiators.into());
            let (lost, moves) = (simulation.sum("datagrams_lost"), simulation.moves);
            assert!(lost > 100 && moves > 20, "{policy} {initiators}: {lost} lost, {moves} moves");
        }
    }
}

#[test]
fn a_peer_that_dies_with_an_initiator_of_others_takes_none_of_them_along() {
    for policy in POLICIES {
        for initiators in [1, 2] {
            let mut simulation = program(6, initiators, policy, 5000, 0.03);
            let pairs =
                || (0..5).flat_map(|from| (0..5).map(move |to| (from, to))).filter(|(from, to)| from != to);
            let talk = |simulation: &mut Simulation, len| {
                pairs().for_each(|(from, to)| simulation.message(from, to, len));
            };
            talk(&mut simulation, 1000);
            (0..5).for_each(|from| simulation.message(from, 5, 1000));
            simulation.finish(Nanos(SECOND));
            // Much is under way to it, and behind that to others.
            (0..5).for_each(|from| simulation.send(from, 5, 90_000));
            talk(&mut simulation, 60_000);
            (0..5).for_each(|from| simulation.send(from, 5, 90_000));
            simulation.run(Nanos(3 * MS));
            simulation.kill(5);
            (0..5).for_each(|process| simulation.receive(process, 5, 8));
            for len in [8, 150_000, 3000] {
                talk(&mut simulation, len);
                simulation.run(Nanos(SECOND));
                let waiting = simulation.pending_among(|each| each != 5);
                assert_eq!(waiting, 0, "{policy} {initiators}: of others, {len} bytes");
            }
            simulation.finish(SILENCE);
            let failures = &simulation.failures;
            assert!(failures.iter().all(|each| each.other == 5), "{policy} {initiators}: {failures:?}");
            for process in 0..5 {
                assert!(failures.iter().any(|each| each.process == process));
                assert_eq!(simulation.figure(process, "failed_peers"), 1);
                assert!(simulation.figure(process, "initiators_lent") <= 1);
            }
            check_pools(&simulation, initiators.into());
            // The initiator is others' again.
            talk(&mut simulation, 20_000);
            simulation.finish(Nanos(SECOND));
        }
    }
}

#[test]
fn there_may_be_more_initiators_than_a_byte_has_numbers() {
    let mut simulation = program(301, 280, "dcs_quota", 1000, 0.0);
    for _ in 0..2 {
        (1..301).for_each(|rank| simulation.message(0, rank, 100));
        simulation.finish(Nanos(SECOND));
    }
    check(&simulation, 280);
    assert_eq!(simulation.figure(0, "contexts_most"), 280);
    assert!(simulation.figure(0, "waits") >= 20);
}

#[test]
fn a_peer_that_waits_for_credit_keeps_no_initiator() {
    for policy in POLICIES {
        let mut simulation = program(6, 1, policy, 10_000, 0.0);
        // Four peers want nothing of what they are sent, and give no credit for more: it is offered.
        for (peer, _) in (1..5).flat_map(|peer| (0..60).map(move |nth| (peer, nth))) {
            simulation.send(0, peer, 90_000);
        }
        simulation.run(Nanos(2 * SECOND));
        assert!(simulation.figure(0, "messages_without_credit") > 0, "{policy}");
        let others = simulation.pending;
        simulation.message(0, 5, 1000);
        simulation.run(Nanos(6 * MS));
        assert_eq!(simulation.pending, others, "{policy}: it takes half of a round trip");
        (1..5).for_each(|peer| (0..60).for_each(|_| simulation.receive(peer, 0, 90_000)));
        simulation.finish(Nanos(10 * SECOND));
        check(&simulation, 1);
    }
}

#[test]
fn credit_that_is_lost_is_given_again() {
    // Each window is used up many times, one of three datagrams is lost, and both ends have one initiator for all that they say.
    let mut simulation = program(3, 1, "dcs_quota", 2000, 0.3);
    for _ in 0..60 {
        for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 0)] {
            simulation.message(from, to, 90_000);
        }
    }
    simulation.finish(Nanos(60 * SECOND));
    check(&simulation, 1);
}

#[test]
fn an_endless_stream_starves_others_by_dcs_alone() {
    for policy in POLICIES {
        let settings = Settings { eager: 4 << 20, ..settings(dynamic(1, policy)) };
        let mut simulation = Simulation::new(3, 1, path(1000, 0.0), &settings);
        simulation.message(0, 1, 100_000);
        simulation.finish(Nanos(SECOND));
        for _ in 0..10 {
            simulation.message(0, 1, 4 << 20);
        }
        simulation.run(Nanos(MS));
        simulation.message(0, 2, 8);
        let before = simulation.figure(2, "datagrams_received");
        simulation.run(Nanos(5 * MS));
        let came = simulation.figure(2, "datagrams_received") > before;
        // The stream takes 34 ms.
        assert_eq!(came, policy != "dcs", "{policy}");
        simulation.finish(Nanos(10 * SECOND));
        check(&simulation, 1);
    }
}
