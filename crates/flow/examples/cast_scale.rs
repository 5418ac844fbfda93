//! How a multicast session scales, in virtual time: `cargo run --release -p farlink-flow --example cast_scale [BYTES
//! [RECEIVERS]]`.
//!
//! One product at 10 Gb/s over 100 ms of round trip, to more and more receivers that lose packets independently. A row says when the
//! last of them had it, what the model says (half a round trip, `E[M]` times the first pass, and the round trip of the last repair),
//! how many frames with NACKs reached the sender in all and a second, and the most memory that it took.
#![expect(dead_code, reason = "the simulation is the tests'")]

use std::io::{self, Write as _};

use farlink_flow::cast::pacer::Rates;
use farlink_flow::cast::repair_policy::transmissions;
use farlink_flow::cast::sender::{Config, Hold};
use farlink_wire::cast::Payload;
use farlink_wire::cast::control::BlockPackets;
use farlink_wire::cast::packet::OVERHEAD;
use farlink_wire::quantity::{BitsPerSec, Fraction, Nanos};

#[path = "../tests/cast/host.rs"]
mod host;
#[path = "../tests/cast/product.rs"]
mod product;
#[path = "../tests/cast/simulation.rs"]
mod simulation;

use product::Path;
use simulation::Simulation;

const RATE: u64 = 10_000_000_000;
const DELAY: Nanos = Nanos(50_000_000);
const PAYLOAD: u16 = 8900;
const AROUND: u32 = 66;

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let given = |place| std::env::args().nth(place).and_then(|text| text.parse::<u64>().ok());
    let content = given(1).unwrap_or(1_000_000_000);
    let counts = given(2).map_or(vec![1, 10, 100, 1000], |receivers| vec![receivers as u32]);
    writeln!(out, "n,loss,bytes,completed_s,model_s,ratio,sent_ratio,nacks,nacks_per_s,memory_bytes")?;
    for loss in [0.001, 0.01] {
        for receivers in &counts {
            writeln!(out, "{}", row(*receivers, loss, content))?;
        }
    }
    Ok(())
}

fn row(receivers: u32, loss: f64, content: u64) -> String {
    let payload = Payload::try_from(PAYLOAD).expect("within bounds");
    let rates = Rates {
        group: BitsPerSec::new(RATE).expect("more than zero"),
        repair: Fraction::new(0.02).expect("a share"),
        beside: None,
        around: AROUND,
    };
    let (block, hold) = (BlockPackets::default(), Hold::default());
    let config = Config { payload, block, parity: 0, rates, hold, most_held: 4096 };
    let mut simulation = Simulation::new(config, false);
    for _ in 0..receivers {
        simulation.join(Path::new(DELAY, loss));
    }
    simulation.product("x", content, None);
    simulation.finish();
    simulation.run(Nanos(1_000_000_000_000));
    let begun = *simulation.begun.values().next().expect("it was sent");
    let completed = simulation.completed().since(begun).as_secs_f64();
    let wire = f64::from(PAYLOAD) / (f64::from(PAYLOAD) + OVERHEAD as f64 + f64::from(AROUND));
    let first_pass = content as f64 * 8.0 / RATE as f64 / wire;
    let sent = transmissions(receivers, loss);
    let model = 3.0 * DELAY.as_secs_f64() + first_pass * sent;
    let totals = simulation.sender.totals();
    let all = totals.first_pass + totals.multicast_repair + totals.unicast_repair;
    format!(
        "{receivers},{loss},{content},{completed:.3},{model:.3},{:.3},{:.3},{},{:.0},{}",
        completed / model,
        all as f64 / totals.first_pass as f64,
        simulation.nacks,
        simulation.nacks as f64 / completed,
        simulation.most_memory
    )
}
