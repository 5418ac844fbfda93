//! Nobody answers, for a while: a path that is cut, or a process that does not run.

use farlink_flow::fabric::endpoint::Settings;
use farlink_flow::fabric::transport::Kind;
use farlink_link::Conditions;
use farlink_wire::quantity::Nanos;

use crate::simulation::Simulation;
use crate::{MS, SECOND, path, settings, transports};

const LEN: usize = 1 << 20;

/// Endpoints that know their rate, and such that seek it.
fn known_and_sought(transport: Kind) -> [Settings; 2] {
    [settings(transport), Settings { rate: None, ..settings(transport) }]
}

#[test]
fn who_seeks_its_rate_only_asks_while_nobody_answers() {
    for transport in transports() {
        let conditions = path(91_600, 0.0);
        let [_, sought] = known_and_sought(transport);
        let mut simulation = Simulation::new(2, 1, conditions, &sought);
        simulation.message(0, 1, 8);
        simulation.finish(Nanos(SECOND));
        let begun = simulation.datagrams;
        (0..20).for_each(|_| simulation.message(0, 1, LEN));
        simulation.run(Nanos(80 * MS));
        let window = simulation.datagrams - begun;
        simulation.set(Conditions { is_cut: true, ..conditions });
        simulation.run(Nanos(5 * SECOND));
        let sent = simulation.datagrams - begun - window;
        assert!(window > 200 && sent < 2 * window + 50, "{transport:?}: {window}, and {sent} into the void");
        simulation.set(conditions);
        let took = simulation.finish(Nanos(10 * SECOND));
        assert!(took < Nanos(2500 * MS), "{transport:?}: {took}");
    }
}

#[test]
fn one_peers_silence_leaves_the_path_to_others() {
    let mut simulation = Simulation::new(2, 2, path(20_000, 0.0), &known_and_sought(Kind::Rc)[1]);
    let exchange = |simulation: &mut Simulation| {
        let begun = simulation.now;
        simulation.message(0, 3, LEN);
        while simulation.pending_among(|each| each != 2) > 0 {
            simulation.run(Nanos(MS));
        }
        simulation.now.since(begun)
    };
    simulation.message(0, 2, 8);
    for _ in 0..5 {
        exchange(&mut simulation);
    }
    simulation.kill(2);
    simulation.send(0, 2, 8);
    let before = simulation.figure(0, "timeouts");
    for _ in 0..100 {
        let took = exchange(&mut simulation);
        assert!(took < Nanos(15 * MS), "{took}");
    }
    assert!(simulation.figure(0, "timeouts") > before + 3);
}

#[test]
fn a_process_that_does_not_run_for_a_moment_is_no_loss() {
    for settings in known_and_sought(Kind::Rc) {
        let mut simulation = Simulation::new(2, 1, path(400, 0.0), &settings);
        let exchange = |simulation: &mut Simulation, count| {
            for _ in 0..count {
                simulation.message(0, 1, 1000);
                simulation.finish(Nanos(SECOND));
            }
        };
        exchange(&mut simulation, 2000);
        let before = simulation.figure(0, "parities");
        simulation.message(0, 1, 1000);
        simulation.freeze(1, Nanos(10 * MS));
        exchange(&mut simulation, 500);
        assert!(simulation.figure(0, "timeouts") > 1);
        assert_eq!(simulation.figure(0, "parities"), before);
    }
}

#[test]
fn a_cut_is_no_loss_when_it_is_over() {
    for settings in known_and_sought(Kind::Rc) {
        let conditions = path(91_600, 0.0);
        let mut simulation = Simulation::new(2, 1, conditions, &settings);
        let say = |simulation: &mut Simulation| (0..20).for_each(|_| simulation.message(0, 1, LEN));
        say(&mut simulation);
        simulation.finish(Nanos(SECOND));
        say(&mut simulation);
        simulation.run(Nanos(5 * MS));
        simulation.set(Conditions { is_cut: true, ..conditions });
        simulation.run(Nanos(5 * SECOND));
        simulation.set(conditions);
        let figures =
            |simulation: &Simulation| ["pieces", "parities"].map(|name| simulation.figure(0, name) as f64);
        let before = figures(&simulation);
        say(&mut simulation);
        simulation.finish(Nanos(10 * SECOND));
        let [pieces, parities] = [0, 1].map(|at| figures(&simulation)[at] - before[at]);
        assert!(pieces > 2000.0 && parities < 0.05 * pieces, "{parities} of {pieces}");
    }
}
