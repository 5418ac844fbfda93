//! A thousand receivers.

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
