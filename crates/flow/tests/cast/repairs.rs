//! What is lost is repaired.

use farlink_flow::cast::repair_policy::transmissions;
use farlink_flow::cast::sender::{Hold, Sender};
use farlink_wire::cast::control::BlockPackets;
use farlink_wire::quantity::Nanos;

use crate::product::Path;
use crate::simulation::Simulation;
use crate::{MS, config, seconds};

fn group(simulation: &mut Simulation, hosts: usize, loss: f64) {
    for host in 0..hosts {
        simulation.join(Path::new(Nanos((5 + host as u64 % 3) * MS), loss));
    }
}

#[test]
fn every_receiver_gets_every_product_whatever_is_lost() {
    for loss in [0.0, 0.001, 0.05, 0.4] {
        let mut simulation = Simulation::new(config(200_000_000), true);
        group(&mut simulation, 5, loss);
        for product in 0..40 {
            simulation.product(&format!("p/{product}"), product * 1_777, Some(product));
        }
        simulation.product("large", 700_000, Some(77));
        simulation.finish();
        simulation.run(Nanos(60_000 * MS));
        assert!(simulation.is_complete(), "{loss}: {:?}", simulation.sender.totals());
        assert!((0..5).all(|host| simulation.has_all(host)), "{loss}");
        assert_eq!(simulation.sender.totals().gone, 0);
        assert_eq!(simulation.released.len(), 41);
        // Each said once that it has each.
        assert_eq!(simulation.acknowledged, 5 * 41);
        if loss == 0.0 {
            assert_eq!(simulation.nacks, 0);
            let totals = simulation.sender.totals();
            assert_eq!(totals.unicast_repair + totals.multicast_repair, 0);
        }
    }
}

#[test]
fn a_lost_first_or_last_packet_costs_one_timer_and_a_round_trip() {
    // Products of one packet and of several: the packet that is lost is the first, one in between, the last.
    for (content, lost) in [(100, 0), (5_000, 0), (5_000, 1), (5_000, 3)] {
        let mut simulation = Simulation::new(config(1_000_000_000), true);
        let host = simulation.join(Path::new(Nanos(10 * MS), 0.0));
        simulation.run_for(Nanos(500 * MS));
        simulation.hosts[host].until_loss = lost;
        let begun = simulation.now;
        simulation.product("x", content, Some(1));
        simulation.finish_later();
        simulation.run(Nanos(10_000 * MS));
        // One way, the status's 2 ms, a NACK, a repair.
        let took = simulation.completed().since(begun);
        assert!(simulation.has_all(host) && took < Nanos(34 * MS), "{content} {lost}: {took}");
    }
}

#[test]
fn a_receiver_that_comes_late_gets_what_it_missed() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    simulation.join(Path::new(Nanos(5 * MS), 0.01));
    for product in 0..30 {
        simulation.product(&format!("{product}"), 40_000, Some(product));
    }
    simulation.run_for(Nanos(60 * MS));
    let late = simulation.join(Path::new(Nanos(20 * MS), 0.01));
    assert!(simulation.sender.position().product > 5);
    simulation.finish();
    simulation.run(Nanos(30_000 * MS));
    assert!(simulation.is_complete() && simulation.has_all(0) && simulation.has_all(late));
}

#[test]
fn what_is_held_no_longer_is_caught_up_and_never_lost_in_silence() {
    let hold = Hold { floor: Nanos(50 * MS), of_multicast: 1.0, of_rtt: 0.0 };
    let mut simulation =
        Simulation::new(farlink_flow::cast::sender::Config { hold, ..config(50_000_000) }, true);
    simulation.join(Path::new(Nanos(5 * MS), 0.0));
    // What this one asks for comes too late.
    let far = simulation.join(Path::new(Nanos(60 * MS), 0.2));
    for product in 0..20 {
        simulation.product(&format!("{product}"), 40_000, Some(product));
    }
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && simulation.has_all(0) && simulation.has_all(far));
    let caught_up = simulation.hosts[far].machine.as_ref().unwrap().tally().caught_up;
    assert!(simulation.sender.totals().gone >= 15 && caught_up >= 15, "{caught_up}");
    assert_eq!(simulation.hosts[0].machine.as_ref().unwrap().tally().caught_up, 0);
}

#[test]
fn a_receiver_that_hears_nothing_of_the_group_catches_up_at_once() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    simulation.join(Path::new(Nanos(5 * MS), 0.0));
    let deaf = simulation.join(Path::new(Nanos(5 * MS), 1.0));
    for product in 0..20 {
        simulation.product(&format!("{product}"), 40_000, Some(product));
    }
    let begun = simulation.now;
    simulation.run_for(Nanos(1_000 * MS));
    // Its way breaks later, in the midst of what is sent.
    let late = simulation.join(Path::new(Nanos(5 * MS), 0.0));
    simulation.run_for(Nanos(1_000 * MS));
    (simulation.hosts[late].path.loss, simulation.hosts[late].until_loss) = (1.0, 0);
    for product in 20..40 {
        simulation.product(&format!("{product}"), 40_000, Some(product));
    }
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && (0..3).all(|host| simulation.has_all(host)));
    let took = simulation.completed().since(begun);
    assert!(took < Nanos(8_000 * MS), "{took}");
    let caught_up = |host: usize| simulation.hosts[host].machine.as_ref().unwrap().tally().caught_up;
    assert_eq!((caught_up(0), caught_up(deaf), caught_up(late)), (0, 40, 20));
}

#[test]
fn a_repair_that_takes_long_puts_nobody_out_of_the_groups_reach() {
    let mut simulation = Simulation::new(config(8_000_000), true);
    simulation.join(Path::new(Nanos(5 * MS), 0.0));
    let lossy = simulation.join(Path::new(Nanos(5 * MS), 0.6));
    simulation.product("large", 8_000_000, Some(1));
    simulation.finish();
    simulation.run(Nanos(120_000 * MS));
    assert!(simulation.is_complete() && simulation.has_all(lossy));
    assert_eq!(simulation.sender.totals().gone, 0);
}

#[test]
fn a_loss_that_many_share_is_repaired_once_and_a_rare_one_by_unicast() {
    let mut simulation = Simulation::new(config(200_000_000), false);
    group(&mut simulation, 20, 0.0);
    simulation.run_for(Nanos(400 * MS));
    // Everybody loses the fifth packet; then one receiver alone loses one.
    simulation.hosts.iter_mut().for_each(|host| host.until_loss = 4);
    simulation.product("a", 40_000, None);
    simulation.run_for(Nanos(200 * MS));
    let totals = simulation.sender.totals();
    assert_eq!((totals.multicast_repair, totals.unicast_repair), (1416, 0));
    simulation.hosts[3].until_loss = 4;
    simulation.product("b", 40_000, None);
    simulation.finish();
    simulation.run(Nanos(10_000 * MS));
    let totals = simulation.sender.totals();
    assert_eq!((totals.multicast_repair, totals.unicast_repair), (1416, 1416));
    assert!(simulation.is_complete());
}

#[test]
fn those_who_lose_a_repair_too_get_it_together_in_the_next_round() {
    let mut simulation = Simulation::new(config(200_000_000), false);
    group(&mut simulation, 8, 0.0);
    simulation.run_for(Nanos(400 * MS));
    // All lose the fifth packet, and then all but one also its repair.
    simulation.hosts.iter_mut().for_each(|host| host.until_loss = 4);
    simulation.product("a", 40_000, None);
    let begun = simulation.now;
    simulation.run_for(Nanos(16 * MS));
    assert_eq!(simulation.sender.totals().first_pass, 40_048);
    for host in simulation.hosts.iter_mut().skip(1) {
        (host.path.loss, host.until_loss) = (1.0, 0);
    }
    simulation.run_for(Nanos(18 * MS));
    for host in &mut simulation.hosts {
        (host.path.loss, host.until_loss) = (0.0, u64::MAX);
    }
    simulation.finish();
    simulation.run(Nanos(10_000 * MS));
    assert!(simulation.is_complete());
    // One more round, and not one for each of them.
    let took = simulation.completed().since(begun);
    assert!(took < Nanos(110 * MS), "{took} {:?}", simulation.sender.totals());
    assert_eq!(simulation.sender.totals().multicast_repair, 2 * 1416);
}

#[test]
fn repair_costs_no_more_than_the_cheaper_of_both_ways() {
    for (hosts, loss) in [(10, 0.01), (50, 0.01), (100, 0.01), (50, 0.05), (100, 0.001)] {
        let mut simulation = Simulation::new(config(1_000_000_000), false);
        group(&mut simulation, hosts, loss);
        simulation.product("x", 3_000_000, None);
        simulation.finish();
        simulation.run(Nanos(60_000 * MS));
        assert!(simulation.is_complete());
        let totals = simulation.sender.totals();
        let sent = totals.first_pass + totals.multicast_repair + totals.unicast_repair;
        let cost = sent as f64 / totals.first_pass as f64;
        let unicast = 1.0 + hosts as f64 * loss;
        let cheapest = unicast.min(transmissions(hosts as u32, loss));
        // While the product is being sent, unicast has a tenth of the rate beside it, whatever is cheaper.
        assert!(cost < 1.08 * cheapest + 0.1, "{hosts} {loss}: {cost} of {cheapest}");
    }
}

#[test]
fn repairs_stay_within_their_share_while_products_wait() {
    // Half of the group is cut off: more is lacking than any share could carry.
    let mut simulation = Simulation::new(config(100_000_000), false);
    group(&mut simulation, 6, 0.0);
    for host in 3..6 {
        simulation.hosts[host].path.loss = 0.5;
        simulation.hosts[host].until_loss = 0;
    }
    for product in 0..50 {
        simulation.product(&format!("{product}"), 200_000, None);
    }
    simulation.run_for(Nanos(700 * MS));
    let totals = simulation.sender.totals();
    assert!(simulation.sender.position().product < 50);
    let repaired = totals.multicast_repair as f64 / totals.first_pass as f64;
    assert!(repaired < 0.05, "{repaired}");
    let beside = totals.unicast_repair as f64 / totals.first_pass as f64;
    assert!(beside < 0.12, "{beside}");
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete());
}

#[test]
fn parity_repairs_before_anybody_asks() {
    let run = |parity| {
        let block = BlockPackets::try_from(100).unwrap();
        let with = farlink_flow::cast::sender::Config { block, parity, ..config(300_000_000) };
        let mut simulation = Simulation::new(with, true);
        group(&mut simulation, 6, 0.01);
        simulation.product("large", 1_500_000, Some(3));
        for product in 0..20 {
            simulation.product(&format!("{product}"), 20_000, Some(product));
        }
        simulation.finish();
        simulation.run(Nanos(60_000 * MS));
        assert!(simulation.is_complete() && (0..6).all(|host| simulation.has_all(host)));
        let totals = simulation.sender.totals();
        (totals.multicast_repair + totals.unicast_repair, totals.parity, seconds(simulation.completed()))
    };
    let (without, none, _) = run(0);
    let (with, parity, _) = run(6);
    assert!(none == 0 && parity > 0);
    assert!(without > 50_000 && with < without / 20, "{with} of {without}");
}

#[test]
fn nothing_is_sent_to_nobody() {
    let mut simulation = Simulation::new(config(100_000_000), false);
    simulation.product("x", 40_000, None);
    simulation.run_for(Nanos(1_000 * MS));
    assert_eq!(simulation.sender.totals().first_pass, 0);
    simulation.join(Path::new(Nanos(5 * MS), 0.0));
    simulation.finish();
    simulation.run(Nanos(1_000 * MS));
    assert!(simulation.is_complete());
}

#[test]
fn a_product_that_is_with_everybody_is_not_sent_on() {
    let mut sender = Sender::new(config(100_000_000), Nanos::ZERO);
    sender.on_join(Nanos::ZERO, 1, 0);
    sender.on_join(Nanos::ZERO, 2, 0);
    let shape = farlink_wire::cast::Shape::new(20, 10_000_000).unwrap();
    let product = sender.on_product(shape).unwrap();
    assert!(sender.poll(Nanos::ZERO).is_some());
    sender.on_no_more();
    sender.on_have(Nanos::ZERO, 1, &[(product, 1)]);
    assert!(!sender.is_complete());
    sender.on_leave(Nanos::ZERO, 2);
    let released = std::iter::from_fn(|| sender.poll(Nanos::ZERO)).last();
    assert_eq!(released, Some(farlink_flow::cast::sender::Send::Released { product }));
    assert!(sender.is_complete());
}
