//! How long an exchange takes.

use farlink_flow::fabric::endpoint::Settings;
use farlink_flow::fabric::transport::Kind;
use farlink_wire::quantity::Nanos;

use crate::simulation::Simulation;
use crate::{RATE, SECOND, path, settings, transports};

/// The mean time in which two processes each have the other's message, after exchanges until the path is known: seconds.
fn exchange(settings: &Settings, rtt_us: u64, loss: f64, len: usize, warm: usize, count: u32) -> f64 {
    let mut simulation = Simulation::new(2, 1, path(rtt_us, loss), settings);
    let mut once = || {
        simulation.message(0, 1, len);
        simulation.message(1, 0, len);
        simulation.finish(Nanos(60 * SECOND)).as_secs_f64()
    };
    for _ in 0..warm {
        once();
    }
    (0..count).map(|_| once()).sum::<f64>() / f64::from(count)
}

/// The least that it could take: seconds.
fn limit(rtt_us: u64, len: usize) -> f64 {
    // What frames have of 9,000 bytes and Ethernet's 38.
    let goodput = RATE as f64 * (8972.0 - 60.0) / 9038.0;
    rtt_us as f64 / 2e6 + len as f64 * 8.0 / goodput
}

#[test]
fn without_loss_it_is_half_a_round_trip_and_the_bytes_time() {
    for transport in transports() {
        for rtt_us in [400, 11_800, 91_600, 366_000] {
            for len in [8, 8192, 256 << 10, 1 << 20] {
                let took = exchange(&settings(transport), rtt_us, 0.0, len, 1, 3);
                let limit = limit(rtt_us, len);
                let most = (limit * 1.1).max(limit + 0.0003);
                assert!(took < most, "{transport:?}, {rtt_us} us, {len} bytes: {took} s, at best {limit}");
            }
        }
    }
}

#[test]
fn with_one_in_ten_lost_parity_is_there_before_it_is_asked_for() {
    for transport in transports() {
        for (len, most) in [(8, 0.075), (256 << 10, 0.150)] {
            let took = exchange(&settings(transport), 91_600, 0.1, len, 30, 100);
            assert!(took < most, "{transport:?}, {len} bytes: {took} s");
        }
    }
}

#[test]
fn a_rate_that_is_sought_costs_nothing_from_the_second_message_on() {
    for transport in transports() {
        let sought = Settings { rate: None, ..settings(transport) };
        for rtt_us in [400, 11_800, 91_600, 366_000] {
            for len in [8, 8192, 256 << 10, 1 << 20] {
                let took = exchange(&sought, rtt_us, 0.0, len, 1, 10);
                let limit = limit(rtt_us, len);
                let most = (limit * 1.1).max(limit + 0.0003);
                assert!(took < most, "{transport:?}, {rtt_us} us, {len} bytes: {took} s, at best {limit}");
            }
        }
    }
}

#[test]
fn a_rate_that_is_sought_is_found() {
    let sought = Settings { rate: None, ..settings(Kind::Rc) };
    for rtt_us in [400, 11_800, 91_600] {
        for (loss, len) in [(0.0, 256 << 10), (0.0, 1 << 20), (0.01, 256 << 10), (0.1, 256 << 10)] {
            let took = exchange(&sought, rtt_us, loss, len, 20, 10);
            let limit = limit(rtt_us, len);
            let most = if loss > 0.0 { 1.5 } else { 1.1 } * limit;
            assert!(
                took < most.max(limit + 0.0003),
                "{rtt_us} us, {loss}, {len} bytes: {took} s, at best {limit}"
            );
        }
    }
}
