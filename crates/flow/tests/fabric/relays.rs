//! Hosts of several processes, of which one receives for others.

use std::collections::BTreeSet;

use farlink_flow::fabric::operation::Failure;
use farlink_flow::fabric::transport::Kind;
use farlink_link::Conditions;
use farlink_wire::quantity::Nanos;

use crate::simulation::Simulation;
use crate::{MS, SECOND, SILENCE, path, settings};

/// Two hosts of three processes: 0 to 2, and 3 to 5.
fn program(loss: f64) -> Simulation {
    Simulation::new(2, 3, path(11_800, loss), &settings(Kind::Xrc))
}

/// Each of a host with each of the other.
fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..3).flat_map(|here| (3..6).flat_map(move |there| [(here, there), (there, here)]))
}

/// Of the second host.
fn others(process: usize) -> impl Iterator<Item = usize> {
    (3..6).filter(move |other| *other != process)
}

#[test]
fn a_process_that_dies_takes_nothing_of_its_neighbours_along() {
    for loss in [0.0, 0.02] {
        for (dead, wait_ms) in (3..6).flat_map(|dead| [1, 9, 30].map(|wait_ms| (dead, wait_ms))) {
            let mut simulation = program(loss);
            pairs().for_each(|(from, to)| simulation.message(from, to, 1000));
            simulation.finish(Nanos(SECOND));
            // What they are sent is acknowledged, and waits in the memory of who dies.
            others(dead).for_each(|other| simulation.stall(other, true));
            for len in [8, 20_000, 300_000, 0] {
                pairs().for_each(|(from, to)| simulation.message(from, to, len));
            }
            simulation.run(Nanos(wait_ms * MS));
            simulation.kill_seen(dead);
            others(dead).for_each(|other| simulation.stall(other, false));
            for len in [100_000, 8] {
                let live = pairs().filter(|(from, to)| ![*from, *to].contains(&dead));
                live.for_each(|(from, to)| simulation.message(from, to, len));
                simulation.run(Nanos(20 * MS));
            }
            simulation.finish(SILENCE);
            let failures = &simulation.failures;
            assert!(failures.iter().all(|each| each.other == dead), "{dead} {wait_ms} ms: {failures:?}");
            simulation.run(SILENCE);
            for process in (0..6).filter(|process| *process != dead) {
                assert!(simulation.figure(process, "failed_peers") <= 1, "{dead} {process}");
                assert_eq!(simulation.figure(process, "nonsense"), 0);
                assert!(simulation.processes[process].endpoint.is_quiet());
            }
        }
    }
}

#[test]
fn what_waited_for_who_has_never_heard_of_its_sender_comes_by_another_way() {
    for (dead, live) in (3..6).flat_map(|dead| others(dead).map(move |live| (dead, live))) {
        let mut simulation = program(0.0);
        simulation.stall(live, true);
        (0..3).for_each(|from| simulation.send(from, live, 1000));
        simulation.run(Nanos(SECOND));
        simulation.kill_seen(dead);
        simulation.stall(live, false);
        // Nobody waits for anybody, so that nobody is asked.
        simulation.run(SILENCE);
        (0..3).for_each(|from| simulation.receive(live, from, 1000));
        simulation.finish(Nanos(SECOND));
        assert_eq!(simulation.failures, [], "{dead} {live}");
        assert_eq!(simulation.sum("nonsense"), 0);
    }
}

#[test]
fn who_cannot_be_reached_by_one_is_reached_by_another_in_time() {
    for (dead, live) in (3..6).flat_map(|dead| others(dead).map(move |live| (dead, live))) {
        // Nobody sees it die, and nobody has met.
        let mut simulation = program(0.0);
        simulation.kill(dead);
        (0..3).for_each(|process| simulation.message(process, live, 300_000));
        let took = simulation.finish(SILENCE);
        assert_eq!(simulation.failures, [], "{dead} {live}");
        assert!(took < Nanos(SILENCE.0 / 2), "{dead} {live}: {took}");
    }
}

#[test]
fn however_many_do_not_answer_the_last_has_the_time_to() {
    for live in 8..16 {
        let mut simulation = Simulation::new(2, 8, path(366_000, 0.05), &settings(Kind::Xrc));
        (8..16).for_each(|other| simulation.message(0, other, 1000));
        (8..16).for_each(|other| simulation.message(other, 0, 1000));
        simulation.finish(Nanos(10 * SECOND));
        (8..16).filter(|other| *other != live).for_each(|other| simulation.kill(other));
        simulation.message(0, live, 1000);
        simulation.finish(Nanos(2 * SILENCE.0));
        assert_eq!(simulation.failures, [], "{live}");
    }
}

#[test]
fn a_host_that_is_gone_is_an_error_in_time_for_all_of_its_processes() {
    for sends in [true, false] {
        let mut simulation = program(0.01);
        pairs().for_each(|(from, to)| simulation.message(from, to, 1000));
        simulation.finish(Nanos(SECOND));
        simulation.run(Nanos(SECOND));
        (3..6).for_each(|process| simulation.kill(process));
        for (process, dead) in (0..3).flat_map(|process| (3..6).map(move |dead| (process, dead))) {
            if sends {
                simulation.send(process, dead, 20_000);
            }
            simulation.receive(process, dead, 8);
        }
        simulation.finish(SILENCE);
        let failed: BTreeSet<_> = simulation.failures.iter().map(|each| (each.process, each.other)).collect();
        assert_eq!(failed.len(), 9);
        assert!(simulation.failures.iter().all(|each| each.why == Failure::Silent));
    }
}

#[test]
fn a_process_that_is_stopped_is_an_error_in_time_and_its_neighbours_go_on() {
    for (stopped, sends) in (3..6).flat_map(|stopped| [true, false].map(|sends| (stopped, sends))) {
        let mut simulation = program(0.01);
        pairs().for_each(|(from, to)| simulation.message(from, to, 1000));
        simulation.finish(Nanos(SECOND));
        simulation.run(Nanos(SECOND));
        simulation.kill(stopped);
        for process in 0..3 {
            if sends {
                simulation.send(process, stopped, 20_000);
            }
            simulation.receive(process, stopped, 8);
        }
        // Others have something to say all the time, and nothing that anybody waits for is late.
        for _ in 0..2 * SILENCE.0 / SECOND {
            let live = pairs().filter(|(from, to)| ![*from, *to].contains(&stopped));
            live.for_each(|(from, to)| simulation.message(from, to, 1000));
            simulation.run(Nanos(SECOND));
        }
        simulation.finish(Nanos(SECOND));
        let failed: BTreeSet<_> = simulation.failures.iter().map(|each| (each.process, each.other)).collect();
        assert_eq!(failed, (0..3).map(|process| (process, stopped)).collect(), "{stopped} {sends}");
        assert!(simulation.failures.iter().all(|each| each.why == Failure::Silent));
    }
}

#[test]
fn what_goes_by_another_way_is_taken_once() {
    // Long enough that others are tried, and not so long that anybody fails.
    for cut_s in [6, 9] {
        let mut simulation = program(0.01);
        pairs().for_each(|(from, to)| simulation.message(from, to, 1000));
        simulation.finish(Nanos(SECOND));
        for len in [8, 200_000, 0, 9000] {
            pairs().for_each(|(from, to)| simulation.message(from, to, len));
        }
        simulation.run(Nanos(5 * MS));
        simulation.set(Conditions { is_cut: true, ..path(11_800, 0.01) });
        simulation.run(Nanos(cut_s * SECOND));
        simulation.set(path(11_800, 0.01));
        simulation.finish(SILENCE);
        simulation.run(SILENCE);
        assert_eq!((simulation.failures.len(), simulation.sum("nonsense")), (0, 0));
        assert!(simulation.sum("pieces_by_another_way") > 0);
    }
}

#[test]
fn the_last_words_of_a_process_come_before_its_end() {
    for (from, to) in pairs() {
        let mut simulation = program(0.0);
        simulation.message(from, to, 8);
        simulation.finish(Nanos(SECOND));
        // What it says waits at a neighbour, and its farewell comes at once.
        simulation.stall(to, true);
        simulation.message(from, to, 50_000);
        simulation.message(from, to, 0);
        simulation.run(Nanos(100 * MS));
        simulation.close(from);
        simulation.run(Nanos(100 * MS));
        simulation.stall(to, false);
        simulation.finish(Nanos(SECOND));
        assert_eq!(simulation.failures, [], "{from} to {to}");
        // Then it is known.
        simulation.receive(to, from, 8);
        let [failed] = simulation.failures[..] else { panic!("{:?}", simulation.failures) };
        assert_eq!(failed.why, Failure::Ended);
    }
}
