//! Whole sessions in virtual time.

mod bad_input;
mod feed;
mod found_rate;
mod host;
mod late;
mod overlaps;
mod product;
mod repairs;
mod scale;
mod simulation;
mod slow_receiver;

use farlink_flow::cast::pacer::Rates;
use farlink_flow::cast::sender::{Config, Hold};
use farlink_wire::cast::Payload;
use farlink_wire::cast::control::BlockPackets;
use farlink_wire::quantity::{BitsPerSec, Fraction, Nanos};

const MS: u64 = 1_000_000;

/// A session without parity at `rate`, whose unicast has a tenth of it beside.
fn config(rate: u64) -> Config {
    Config {
        payload: Payload::try_from(1416).unwrap(),
        block: BlockPackets::default(),
        parity: 0,
        rates: Rates {
            group: BitsPerSec::new(rate).unwrap(),
            repair: Fraction::new(0.001).unwrap(),
            beside: BitsPerSec::new(rate / 10),
            around: 66,
        },
        hold: Hold::default(),
        most_held: 4096,
    }
}

fn seconds(time: Nanos) -> f64 {
    time.as_secs_f64()
}
