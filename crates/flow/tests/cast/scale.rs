//! A thousand receivers.

use farlink_flow::cast::repair_policy::transmissions;
use farlink_flow::cast::sender::Config;
use farlink_wire::cast::Payload;
use farlink_wire::quantity::{BitsPerSec, Nanos};

use crate::product::Path;
use crate::simulation::Simulation;
use crate::{MS, config, seconds};

fn run(hosts: usize, loss: f64, content: u64) -> Simulation {
    let mut config = Config { payload: Payload::try_from(8900).unwrap(), ..config(10_000_000_000) };
    config.rates.beside = BitsPerSec::new(1_000_000_000);
    let mut simulation = Simulation::new(config, false);
    for _ in 0..hosts {
        simulation.join(Path::new(Nanos(50 * MS), loss));
    }
    simulation.product("x", content, None);
    simulation.finish();
    simulation.run(Nanos(100_000 * MS));
    assert!(simulation.is_complete());
    simulation
}

#[test]
fn memory_and_nacks_are_bounded_whatever_the_number_of_receivers() {
    for hosts in [100, 1000] {
        let simulation = run(hosts, 0.01, 10_000_000);
        let begun = *simulation.begun.values().next().unwrap();
        let took = seconds(simulation.completed().since(begun));
        // The machine's promise: 20,000 frames a second, and one each at once.
        let most = 20_000.0 * took + hosts as f64;
        assert!((simulation.nacks as f64) < most, "{} of {most} in {took} s", simulation.nacks);
        let bound = 2_000 + 1_124 + 33_000 * hosts as u64;
        assert!(simulation.most_memory < bound, "{} of {bound}", simulation.most_memory);
    }
}

#[test]
fn a_hundred_receivers_are_done_when_the_model_says() {
    for loss in [0.001, 0.01] {
        let content = 300_000_000;
        let simulation = run(100, loss, content);
        let begun = *simulation.begun.values().next().unwrap();
        let took = seconds(simulation.completed().since(begun));
        let first_pass = content as f64 * 8.0 / 10e9 * (8900.0 + 56.0 + 66.0) / 8900.0;
        // One way, the products as often as they must be sent, and the round trip of the last repair.
        let model = 0.15 + first_pass * transmissions(100, loss);
        assert!(took < 1.05 * model, "{took} s of {model} s with {loss}");
    }
}
