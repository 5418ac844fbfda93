//! Peers that die or go, and datagrams of strangers.

use farlink_flow::fabric::endpoint::Settings;
use farlink_flow::fabric::operation::{Failure, Wanted};
use farlink_link::Conditions;
use farlink_wire::quantity::Nanos;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::simulation::Simulation;
use crate::{MS, SECOND, SILENCE, dynamic, path, settings, transports};

/// Five processes that all know each other.
fn five(settings: &Settings) -> Simulation {
    let mut simulation = Simulation::new(5, 1, path(11_800, 0.01), settings);
    for from in 0..5 {
        (0..5).filter(|to| *to != from).for_each(|to| simulation.message(from, to, 1000));
    }
    simulation.finish(Nanos(SECOND));
    // Until nothing is owed.
    simulation.run(Nanos(SECOND));
    simulation
}

/// All but process 2 go on to talk, for so long.
fn talk(simulation: &mut Simulation, time: Nanos) {
    let end = simulation.now.after(time);
    for turn in 0.. {
        for (from, to) in [(0, 1), (1, 3), (3, 0), (0, 4), (4, 3)] {
            simulation.message(from, to, 20_000 * (turn % 3));
        }
        simulation.run(Nanos(500 * MS));
        if simulation.now >= end {
            break;
        }
    }
    simulation.finish(SILENCE);
}

#[test]
fn a_peer_that_dies_is_an_error_in_time_and_others_go_on() {
    // The last two reach all peers by one initiator.
    for transport in transports().into_iter().chain(["dcs_quota", "static"].map(|policy| dynamic(1, policy)))
    {
        let mut simulation = five(&settings(transport));
        simulation.kill(2);
        let died = simulation.now;
        // One that sends to it, one that waits for it, and others that do not care.
        simulation.send(0, 2, 300_000);
        simulation.receive(1, 2, 8);
        talk(&mut simulation, SILENCE);
        let failures = &simulation.failures;
        // The message of process 0 had left before.
        assert!(failures.iter().any(|each| each.process == 1), "{transport:?} {failures:?}");
        for each in failures {
            let took = each.at.since(died);
            assert!(took > Nanos(SILENCE.0 / 2) && took <= SILENCE, "{transport:?} {each:?} {took}");
            assert_eq!((each.other, each.why), (2, Failure::Silent), "{transport:?}");
        }
        assert_eq!([0, 1, 3, 4].map(|process| simulation.figure(process, "failed_peers")), [1, 1, 0, 0]);
        // Who asks later is told at once.
        simulation.send(0, 2, 8);
        simulation.receive(1, 2, 8);
        assert_eq!(simulation.pending, 0);
    }
}

#[test]
fn a_peer_behind_another_that_dies_is_an_error_in_time_and_others_go_on() {
    for transport in transports() {
        let mut simulation = Simulation::new(2, 3, path(11_800, 0.01), &settings(transport));
        for (from, to) in (0..3).flat_map(|from| (3..6).map(move |to| (from, to))) {
            simulation.message(from, to, 1000);
            simulation.message(to, from, 1000);
        }
        simulation.finish(Nanos(SECOND));
        simulation.run(Nanos(SECOND));
        // Over XRC another process receives for it what 1 and 2 send; 0 sends to it all that goes to its host.
        simulation.kill_seen(4);
        let died = simulation.now;
        (0..3).for_each(|process| simulation.receive(process, 4, 8));
        // It may have left before anybody knows.
        simulation.send(2, 4, 8);
        for _ in 0..4 {
            for (from, to) in [(1, 5), (2, 3), (5, 2), (3, 1)] {
                simulation.message(from, to, 20_000);
            }
            simulation.run(Nanos(500 * MS));
        }
        simulation.finish(SILENCE);
        let failures = &simulation.failures;
        assert_eq!(failures.iter().filter(|each| !each.sending).count(), 3, "{transport:?} {failures:?}");
        for each in failures {
            assert!(each.other == 4 && each.at.since(died) <= SILENCE, "{transport:?} {each:?}");
        }
        assert_eq!([1, 2].map(|process| simulation.figure(process, "failed_peers")), [1, 1]);
        // Who asks later is told at once.
        (0..3).for_each(|process| simulation.send(process, 4, 8));
        assert_eq!((simulation.pending, simulation.sum("nonsense")), (0, 0));
    }
}

#[test]
fn who_looks_for_messages_of_a_dead_peer_comes_to_know() {
    for transport in transports() {
        let mut simulation = five(&settings(transport));
        simulation.kill(2);
        let died = simulation.now;
        while simulation.probe(0, 2).is_none() {
            simulation.run(Nanos(10 * MS));
            assert!(simulation.now.since(died) <= SILENCE, "{transport:?}");
        }
        assert_eq!(simulation.probe(0, 2), Some(Failure::Silent));
        assert_eq!([0, 1, 3, 4].map(|process| simulation.figure(process, "failed_peers")), [1, 0, 0, 0]);
    }
}

#[test]
fn who_looks_for_messages_of_anybody_comes_to_know_that_nobody_is_left() {
    for transport in transports() {
        let mut simulation = five(&settings(transport));
        (1..5).for_each(|process| simulation.kill(process));
        let died = simulation.now;
        while simulation.processes[0].endpoint.nobody_left().is_none() {
            let found = simulation.processes[0].endpoint.peek(None, Wanted::Untagged, false);
            assert!(found.is_none(), "{found:?}");
            simulation.run(Nanos(10 * MS));
            // With two initiators the last are asked when the first were given up.
            assert!(simulation.now.since(died) <= Nanos(2 * SILENCE.0), "{transport:?}");
        }
        assert_eq!(["failed_peers", "ended_peers"].map(|of| simulation.figure(0, of)), [4, 0]);
    }
}

#[test]
fn who_waits_for_anybody_is_told_when_nobody_is_left() {
    let mut simulation = five(&settings(dynamic(2, "dcs_quota")));
    simulation.receive_of_anybody(0);
    (1..4).for_each(|process| simulation.kill(process));
    simulation.run(Nanos(3 * SILENCE.0));
    assert_eq!((simulation.failures.len(), simulation.figure(0, "failed_peers")), (0, 3));
    simulation.kill(4);
    let died = simulation.now;
    simulation.run(Nanos(3 * SILENCE.0));
    let [failed] = simulation.failures[..] else { panic!("{:?}", simulation.failures) };
    assert!(failed.process == 0 && failed.at.since(died) <= SILENCE, "{failed:?}");
    // Whoever asks then is told at once.
    simulation.receive_of_anybody(0);
    assert_eq!(simulation.failures.len(), 2);
}

#[test]
fn who_waits_for_anybody_waits_for_those_that_it_has_not_met() {
    for transport in transports() {
        let mut simulation = Simulation::of_strangers(3, 1, path(11_800, 0.0), &settings(transport));
        simulation.message(0, 1, 1000);
        simulation.message(1, 0, 1000);
        simulation.finish(Nanos(SECOND));
        simulation.receive_of_anybody(0);
        simulation.close(1);
        simulation.run(Nanos(SECOND));
        assert_eq!(
            (simulation.figure(0, "failed_peers"), simulation.failures.len()),
            (1, 0),
            "{transport:?}"
        );
        // Until the last one is gone, too.
        simulation.message(0, 2, 8);
        simulation.run(Nanos(SECOND));
        simulation.close(2);
        simulation.run(Nanos(SECOND));
        assert_eq!(
            (simulation.figure(0, "failed_peers"), simulation.failures.len()),
            (2, 1),
            "{transport:?}"
        );
    }
}

#[test]
fn who_waits_for_anybody_comes_to_know_that_those_have_died_too_that_it_has_not_met() {
    for transport in transports() {
        let mut simulation = Simulation::of_strangers(3, 1, path(11_800, 0.0), &settings(transport));
        simulation.message(1, 0, 1000);
        simulation.finish(Nanos(SECOND));
        // It knows of it, as of one whose message it would receive, and has not spoken to it.
        simulation.know(0, 2);
        simulation.receive_of_anybody(0);
        let asked = |simulation: &mut Simulation| simulation.figure(2, "peers");
        simulation.run(Nanos(3 * SILENCE.0));
        assert_eq!(asked(&mut simulation), 0, "{transport:?}: one lives that it has met");
        simulation.kill(1);
        simulation.run(Nanos(3 * SILENCE.0));
        assert_eq!(
            (simulation.figure(0, "failed_peers"), simulation.failures.len()),
            (1, 0),
            "{transport:?}"
        );
        simulation.kill(2);
        simulation.run(Nanos(3 * SILENCE.0));
        assert_eq!(
            (simulation.figure(0, "failed_peers"), simulation.failures.len()),
            (2, 1),
            "{transport:?}"
        );
    }
}

#[test]
fn who_talks_to_itself_is_somebody() {
    let mut simulation = Simulation::new(2, 1, path(11_800, 0.0), &settings(dynamic(2, "dcs_quota")));
    simulation.message(0, 0, 8);
    simulation.message(1, 0, 8);
    simulation.finish(Nanos(SECOND));
    simulation.receive_of_anybody(0);
    simulation.close(1);
    simulation.run(Nanos(SECOND));
    assert_eq!((simulation.figure(0, "failed_peers"), simulation.failures.len()), (1, 0));
    assert_eq!(simulation.figure(0, "ended_peers"), 1);
}

#[test]
fn who_was_given_up_and_lives_is_told_so() {
    for transport in transports() {
        let conditions = path(11_800, 0.01);
        // Whether it speaks first when the link is back, or waits only.
        for speaks in [true, false] {
            let mut simulation = five(&settings(transport));
            simulation.set(Conditions { is_cut: true, ..conditions });
            simulation.receive(0, 2, 8);
            // Process 2 computes.
            simulation.finish(SILENCE);
            let [failed] = simulation.failures[..] else { panic!("{:?}", simulation.failures) };
            assert_eq!((failed.process, failed.other), (0, 2));
            simulation.set(conditions);
            simulation.receive(2, 0, 8);
            if speaks {
                simulation.send(2, 0, 300_000);
            }
            let limit = if speaks { Nanos(SECOND) } else { SILENCE };
            simulation.finish(limit);
            let of_it = simulation.failures.iter().filter(|each| (each.process, each.other) == (2, 0));
            assert!(of_it.count() >= 1, "{transport:?} {:?}", simulation.failures);
            assert_eq!([0, 1, 2, 3].map(|process| simulation.figure(process, "failed_peers")), [1, 0, 1, 0]);
            // They leave each other in peace.
            simulation.run(Nanos(SECOND));
            let before = simulation.datagrams;
            simulation.run(Nanos(10 * SECOND));
            assert_eq!(simulation.datagrams, before, "{transport:?}");
            (0..5).filter(|other| other % 2 != 0).for_each(|other| simulation.message(other, 2, 8));
            simulation.finish(Nanos(SECOND));
        }
    }
}

#[test]
fn a_peer_that_goes_says_so() {
    for transport in transports() {
        let mut simulation = five(&settings(transport));
        simulation.receive(0, 2, 8);
        simulation.receive(1, 2, 8);
        simulation.message(3, 4, 1_000_000);
        // What it sent before it goes arrives.
        simulation.send(2, 0, 8);
        simulation.run(Nanos(200 * MS));
        simulation.set(path(11_800, 0.0));
        simulation.close(2);
        let went = simulation.now;
        simulation.finish(SILENCE);
        let [failed] = simulation.failures[..] else { panic!("{:?}", simulation.failures) };
        assert_eq!((failed.process, failed.other, failed.sending), (1, 2, false));
        assert!(failed.why == Failure::Ended && failed.at.since(went) <= Nanos(10 * MS), "{failed:?}");
    }
}

#[test]
fn who_goes_is_heard_by_those_to_whom_an_older_context_leads_too() {
    for (initiators, policy) in [(2, "dcs"), (4, "dcs_quota"), (4, "rand"), (4, "lru")] {
        for seed in 0..40_u64 {
            let settings = settings(dynamic(initiators, policy));
            let mut simulation = Simulation::new(6, 1, path(400, 0.0), &settings);
            let mut random = Pcg64::seed_from_u64(seed);
            for _ in 0..30 {
                for _ in 0..6 {
                    let (from, to) = (random.random_range(0..6), random.random_range(0..6));
                    if from != to {
                        simulation.message(from, to, random.random_range(0..20_000));
                    }
                }
                simulation.run(Nanos(random.random_range(0..700_000)));
            }
            simulation.finish(Nanos(SECOND));
            simulation.run(Nanos(100 * MS));
            (0..5).for_each(|to| simulation.receive(to, 5, 8));
            simulation.run(Nanos(100 * MS));
            simulation.close(5);
            let went = simulation.now;
            simulation.finish(SILENCE);
            let failures = &simulation.failures;
            let is_told = |failed: &crate::simulation::Failed| {
                failed.why == Failure::Ended && failed.at.since(went) <= Nanos(10 * MS)
            };
            assert!(failures.len() == 5 && failures.iter().all(is_told), "{policy}, {seed}: {failures:?}");
        }
    }
}

#[test]
fn replayed_and_forged_datagrams_change_nothing() {
    for transport in transports() {
        let mut simulation = five(&settings(transport));
        let mut kept = Vec::new();
        for turn in 0..40 {
            for from in 0..5 {
                simulation.message(from, (from + 1 + turn % 4) % 5, turn * 700);
            }
            simulation.run(Nanos(7 * MS));
            kept.extend(simulation.overheard.iter().take(5).cloned());
            for (from, to, datagram) in kept.iter().rev().step_by(3).take(8).cloned().collect::<Vec<_>>() {
                simulation.inject(from, to, datagram.clone());
                // To another than it was for, and with a bit changed.
                simulation.inject(from, (to + 1) % 5, datagram.clone());
                let mut damaged = datagram;
                let bit = (turn * 131) % (damaged.len() * 8);
                damaged[bit / 8] ^= 1 << (bit % 8);
                simulation.inject(from, to, damaged);
            }
            let noise = (0..turn as u8 * 3).map(|at| at.wrapping_mul(37)).collect();
            simulation.inject(([10, 9, 9, 9], 9).into(), 0, noise);
        }
        simulation.finish(Nanos(10 * SECOND));
        simulation.run(Nanos(SECOND));
        assert_eq!(simulation.failures, []);
        assert!(simulation.sum("datagrams_refused") > 40 * 8 * 2);
        // Nothing is kept of who has not the key.
        assert_eq!((simulation.sum("peers"), simulation.sum("nonsense")), (25, 0));
        assert!((0..5).all(|process| simulation.figure(process, "responders_most") <= 4));
        let opened = simulation.sum("responders_opened");
        let contexts = simulation.sum("connects").max(simulation.sum("contexts"));
        assert!(opened <= contexts, "{opened} {contexts}");
    }
}

#[test]
fn replayed_answers_are_no_sign_of_life() {
    for transport in transports() {
        let mut simulation = five(&settings(transport));
        let answers: Vec<_> = simulation.overheard.iter().filter(|(_, to, _)| *to == 0).cloned().collect();
        simulation.kill(2);
        simulation.receive(0, 2, 8);
        for _ in 0..SILENCE.0 / SECOND {
            simulation.run(Nanos(SECOND));
            for (from, to, datagram) in &answers {
                simulation.inject(*from, *to, datagram.clone());
            }
        }
        assert_eq!(simulation.pending, 0, "{transport:?}");
        assert_eq!(simulation.failures[0].why, Failure::Silent);
    }
}

#[test]
fn jobs_do_not_hear_each_other() {
    for transport in transports() {
        let of_job = |at: usize| Settings { key: [at as u8 / 2; 32], ..settings(transport) };
        let mut simulation = Simulation::with(4, 1, path(11_800, 0.0), of_job);
        simulation.message(0, 1, 9000);
        simulation.message(3, 2, 9000);
        simulation.finish(Nanos(SECOND));
        // Some of the other job's are taken for peers.
        simulation.send(0, 2, 9000);
        simulation.receive(3, 1, 8);
        simulation.finish(SILENCE);
        simulation.message(1, 0, 10);
        simulation.finish(Nanos(SECOND));
        let failures = &simulation.failures;
        assert!(failures.iter().all(|each| each.why == Failure::Unreachable), "{transport:?} {failures:?}");
        assert!(failures.iter().any(|each| (each.process, each.other) == (3, 1)));
        assert_eq!((simulation.figure(0, "failed_peers"), simulation.sum("nonsense")), (1, 0));
        assert!(simulation.figure(2, "datagrams_refused") > 0);
    }
}

#[test]
fn a_peer_whose_datagrams_are_of_another_job_is_known_for_that() {
    for transport in transports() {
        let of_job = |at: usize| Settings { key: [at as u8 / 2; 32], ..settings(transport) };
        let mut simulation = Simulation::with(2, 2, path(11_800, 0.0), of_job);
        for (from, to) in [(0, 2), (2, 0)] {
            simulation.send(from, to, 9000);
            simulation.receive(from, to, 8);
        }
        simulation.finish(SILENCE);
        let failures = &simulation.failures;
        assert!(failures.len() >= 2, "{transport:?} {failures:?}");
        assert!(failures.iter().all(|each| each.why == Failure::Stranger), "{transport:?} {failures:?}");
    }
}

#[test]
fn who_speaks_another_version_is_named_once() {
    let mut simulation = five(&settings(dynamic(2, "lru")));
    let (from, to, mut datagram) = simulation.overheard.pop_back().unwrap();
    datagram[0] += 1;
    // A stranger's may be anything.
    simulation.inject(([192, 0, 2, 1], 7000).into(), to, datagram.clone());
    assert_eq!(simulation.processes[to].endpoint.poll_foreign(), None);
    simulation.inject(from, to, datagram.clone());
    let foreign = simulation.processes[to].endpoint.poll_foreign().unwrap();
    assert_eq!((foreign.from, foreign.version), (from, datagram[0]));
    simulation.inject(from, to, datagram);
    assert_eq!(simulation.processes[to].endpoint.poll_foreign(), None);
    assert_eq!(simulation.figure(to, "datagrams_of_other_versions"), 3);
    simulation.message(0, to, 8);
    simulation.finish(SILENCE);
}
