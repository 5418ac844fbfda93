//! Parallel programs in virtual time, over all transports.

mod bad_input;
mod delivery;
mod initiators;
mod latency;
mod relays;
mod sharing;
mod silence;
mod simulation;

use farlink_flow::fabric::endpoint::Settings;
use farlink_flow::fabric::transport::{Kind, dc};
use farlink_link::{Conditions, Loss};
use farlink_wire::quantity::{BitsPerSec, Fraction, Nanos};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// What endpoints do, but for what a test is about.
fn settings(transport: Kind) -> Settings {
    Settings {
        transport,
        key: [9; 32],
        payload: 8972,
        rate: BitsPerSec::new(RATE),
        sharers: 1,
        eager: 4 << 20,
        most: 1 << 30,
        processes: None,
        silence: SILENCE,
        nearby: true,
        seed: 3,
    }
}

/// Dynamic connections with so many initiators.
fn dynamic(initiators: u16, policy: &str) -> Kind {
    let initiators = dc::Initiators::new(initiators).unwrap();
    Kind::Dc(dc::Settings { initiators, policy: policy.parse().unwrap(), ..dc::Settings::default() })
}

/// Every transport, the dynamic one with fewer initiators than there are peers.
fn transports() -> [Kind; 5] {
    let few = dynamic(2, "dcs_quota");
    let Kind::Dc(half) = few else { unreachable!() };
    let full = Kind::Dc(dc::Settings { full_handshake: true, ..half });
    [Kind::Rc, Kind::Xrc, Kind::Ud, few, full]
}

/// A dedicated link, half of a round trip of `rtt_us` long, that loses such a share.
fn path(rtt_us: u64, loss: f64) -> Conditions {
    let loss = if loss > 0.0 { Loss::Random(Fraction::new(loss).unwrap()) } else { Loss::None };
    Conditions { rate: BitsPerSec::new(RATE), delay: Nanos(rtt_us * 500), loss, ..Conditions::default() }
}

const RATE: u64 = 10_000_000_000;

/// After which a peer that owes an answer has failed.
const SILENCE: Nanos = Nanos(15 * SECOND);
