//! What goes wrong: packets that are not what they should be, ends that go away, names and numbers that must not be.

use farlink_flow::cast::receiver::{Event, Failure};
use farlink_flow::cast::seal::Sealer;
use farlink_wire::cast::control::Want;
use farlink_wire::cast::packet::{Data, Header, OVERHEAD};
use farlink_wire::cast::{Position, SessionId, Shape};
use farlink_wire::entry::Digest;
use farlink_wire::message::copy::{Protect, Secret};
use farlink_wire::quantity::Nanos;

use crate::overlaps::receiver;
use crate::product::Path;
use crate::simulation::{Simulation, all_of};
use crate::{MS, config};

fn stream(simulation: &mut Simulation, products: u64) {
    for product in 0..products {
        simulation.product(&format!("{product}"), 30_000 + product, Some(product));
    }
}

#[test]
fn packets_that_come_twice_late_or_damaged_do_no_harm() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let mut path = Path::new(Nanos(5 * MS), 0.02);
    (path.duplicate, path.late, path.corrupt) = (0.1, 0.1, 0.02);
    let host = simulation.join(path);
    stream(&mut simulation, 30);
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && simulation.has_all(host));
    let refused = simulation.refused(host);
    assert!(refused.replayed > 30 && refused.forged > 5, "{refused:?}");
}

#[test]
fn packets_that_are_only_late_are_hardly_asked_for() {
    let mut simulation = Simulation::new(config(20_000_000), true);
    let mut path = Path::new(Nanos(5 * MS), 0.0);
    // A quarter of a millisecond is less than a packet takes.
    path.late = 0.3;
    let host = simulation.join(path);
    stream(&mut simulation, 10);
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && simulation.has_all(host));
    assert_eq!(simulation.sender.totals().unicast_repair, 0);
}

#[test]
fn packets_that_come_long_after_they_were_repaired_are_dropped() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let mut path = Path::new(Nanos(5 * MS), 0.0);
    // Later than the round trip in which what seems to be lost comes again.
    (path.late, path.late_by) = (0.05, Nanos(80 * MS));
    let host = simulation.join(path);
    simulation.join(Path::new(Nanos(5 * MS), 0.0));
    stream(&mut simulation, 60);
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && simulation.has_all(host) && simulation.has_all(1));
    let tally = simulation.hosts[host].machine.as_ref().unwrap().tally();
    assert!(tally.repaired > 10_000 && tally.duplicates > 10, "{tally:?}");
    assert_eq!(simulation.hosts[1].machine.as_ref().unwrap().tally().duplicates, 0);
}

#[test]
fn forged_packets_and_those_of_an_earlier_session_change_nothing() {
    let mut simulation = Simulation::new(config(50_000_000), true);
    let host = simulation.join(Path::new(Nanos(5 * MS), 0.0));
    stream(&mut simulation, 10);
    let shape = Shape::new(16, 30_000).unwrap();
    let wrong = Secret(Digest([6; 32]));
    let right = Secret(Digest([5; 32]));
    let forger = |session, key| Sealer::new(SessionId(session), key, Protect::Encrypt).unwrap();
    let mut sealers = [forger(1, &wrong), forger(9, &right)];
    for offset in 0..200 {
        simulation.run_for(Nanos(MS / 4));
        for sealer in &mut sealers {
            let header = Header::Data(Data { product: offset % 10, shape, offset: 0, repair: false });
            let mut packet = vec![0; OVERHEAD + 1416];
            sealer.seal(&header, &[0xee; 1416], &mut packet).unwrap();
            simulation.inject(host, packet);
        }
        simulation.inject(host, vec![0xc1; offset as usize]);
    }
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && simulation.has_all(host));
    let refused = simulation.refused(host);
    // The forger's number may be one that came: then it is taken for a replay, which is as well.
    assert_eq!((refused.forged + refused.replayed, refused.of_others, refused.malformed), (200, 200, 200));
    assert!(simulation.hosts[host].failed.is_empty());
}

#[test]
fn when_the_sender_is_killed_and_started_again_receivers_keep_what_is_proven() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let hosts = [0.0, 0.03].map(|loss| simulation.join(Path::new(Nanos(5 * MS), loss)));
    stream(&mut simulation, 40);
    simulation.run_for(Nanos(50 * MS));
    let before = hosts.map(|host| simulation.hosts[host].written);
    let stored = hosts.map(|host| simulation.hosts[host].stored.len());
    assert!(stored.iter().all(|stored| (10..30).contains(stored)), "{stored:?}");
    simulation.restart_sender();
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && hosts.iter().all(|host| simulation.has_all(*host)));
    for (host, before) in hosts.into_iter().zip(before) {
        let total: u64 = simulation.products.iter().map(|(product, _)| product.shape.content()).sum();
        // Only the packets that have a head or a digest in them are needed once more.
        let again = simulation.hosts[host].written - total;
        assert!(again < 40 * 3 * 1416, "{again} bytes once more, {before} were there");
    }
}

#[test]
fn a_receiver_that_is_killed_in_the_middle_goes_on_from_what_it_has() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let host = simulation.join(Path::new(Nanos(5 * MS), 0.0));
    let other = simulation.join(Path::new(Nanos(5 * MS), 0.01));
    simulation.product("large", 2_000_000, Some(1));
    simulation.run_for(Nanos(100 * MS));
    let before = simulation.hosts[host].written;
    assert!((500_000..1_500_000).contains(&before), "{before}");
    simulation.kill(host);
    simulation.run_for(Nanos(30 * MS));
    simulation.start(host, 0);
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && simulation.has_all(host) && simulation.has_all(other));
    let all = simulation.hosts[host].written;
    assert!(all < 2_000_000 + 400_000, "{all} bytes for 2,000,000, {before} of them before");
}

#[test]
fn both_ends_may_be_killed_and_one_end_again_while_it_catches_up() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let hosts = [0.0, 0.05].map(|loss| simulation.join(Path::new(Nanos(5 * MS), loss)));
    simulation.product("large", 2_000_000, Some(1));
    stream(&mut simulation, 10);
    simulation.run_for(Nanos(60 * MS));
    // The sender takes its receivers with it; one of them is killed twice more, of which the other notices nothing.
    simulation.restart_sender();
    for _ in 0..2 {
        simulation.run_for(Nanos(20 * MS));
        simulation.kill(hosts[1]);
        simulation.run_for(Nanos(20 * MS));
        simulation.start(hosts[1], 0);
    }
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && hosts.iter().all(|host| simulation.has_all(*host)));
    let all = simulation.hosts[hosts[0]].written;
    let total: u64 = simulation.products.iter().map(|(product, _)| product.shape.content()).sum();
    assert!(all < total + 11 * 3 * 1416 + 100_000, "{all} bytes of {total}");
}

#[test]
fn a_full_disk_is_the_matter_of_its_host_alone() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let hosts = [0, 1, 2].map(|_| simulation.join(Path::new(Nanos(5 * MS), 0.02)));
    simulation.hosts[1].full_for.extend([3, 4]);
    stream(&mut simulation, 10);
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete());
    assert!(simulation.has_all(hosts[0]) && simulation.has_all(hosts[2]));
    assert_eq!(simulation.hosts[1].failed.len(), 2);
    assert_eq!(simulation.sender.progress(1).unwrap().failed, 2);
    assert_eq!(simulation.sender.progress(1).unwrap().products, 8);
}

#[test]
fn a_disk_that_is_full_when_a_product_is_whole_is_the_matter_of_its_host_alone() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let hosts = [0, 1].map(|_| simulation.join(Path::new(Nanos(5 * MS), 0.02)));
    simulation.hosts[1].full_at_last.extend([0, 7]);
    stream(&mut simulation, 10);
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && simulation.has_all(hosts[0]));
    let failed = &simulation.hosts[1].failed;
    assert!(failed.keys().eq(&[0, 7]) && failed.values().all(|why| matches!(why, Failure::Here(_))));
    let progress = simulation.sender.progress(1).unwrap();
    assert_eq!((progress.products, progress.failed, progress.behind), (8, 2, 0));
    let tally = simulation.hosts[1].machine.as_ref().unwrap().tally();
    assert_eq!((tally.stored, tally.failed), (8, 2));
}

#[test]
fn names_that_leave_the_directory_are_refused_and_the_others_go_on() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let hosts = [0.0, 0.05].map(|loss| simulation.join(Path::new(Nanos(5 * MS), loss)));
    let bad = ["../x", "/etc", "a//b", "a\0/b", "../.", "./.."];
    for name in bad {
        let product = simulation.product("ab/x", 30_000, Some(1));
        simulation.products[product as usize].0.rename(name);
    }
    for product in 0..6 {
        simulation.product(&format!("{product}"), 30_000 + product, Some(product));
    }
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete());
    for host in hosts {
        let each = &simulation.hosts[host];
        assert!(each.failed.keys().copied().eq(0..6), "{:?}", each.failed);
        assert!(each.failed.values().all(|why| matches!(why, Failure::Refused(_))), "{:?}", each.failed);
        assert!(each.names.keys().all(|product| *product >= 6) && each.disk.len() == 6);
        let tally = each.machine.as_ref().unwrap().tally();
        assert_eq!((tally.stored, tally.failed), (6, 6));
        // The sender was told: neither end says that everything is there.
        let progress = simulation.sender.progress(host as u32).unwrap();
        assert_eq!((progress.products, progress.failed, progress.behind), (6, 6, 0));
    }
}

#[test]
fn what_could_not_be_stored_is_not_said_to_be_there_after_the_connection_was_cut() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let hosts = [0, 1].map(|_| simulation.join(Path::new(Nanos(5 * MS), 0.0)));
    simulation.hosts[0].full_for.extend([3, 4]);
    stream(&mut simulation, 10);
    simulation.sender.on_unreadable(5, &"it was deleted".to_owned().into());
    simulation.run_for(Nanos(100 * MS));
    assert_eq!(simulation.hosts[0].failed.len(), 3);
    simulation.reconnect(hosts[0]);
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete());
    let progress = simulation.sender.progress(0).unwrap();
    // What the sender itself could not send needs no word.
    assert_eq!((progress.products, progress.failed, progress.behind), (7, 2, 0));
    assert_eq!(simulation.sender.progress(1).unwrap().products, 9);
}

#[test]
fn a_product_that_cannot_be_read_any_more_is_said_to_be_lost() {
    let mut simulation = Simulation::new(config(20_000_000), true);
    let host = simulation.join(Path::new(Nanos(5 * MS), 0.0));
    stream(&mut simulation, 5);
    simulation.run_for(Nanos(20 * MS));
    simulation.sender.on_unreadable(3, &"it was deleted".to_owned().into());
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete());
    let reason = "it was deleted".to_owned().into();
    assert_eq!(simulation.hosts[host].failed.get(&3), Some(&Failure::Lost(reason)));
    assert_eq!(simulation.hosts[host].stored.len(), 4);
}

#[test]
fn a_clock_that_jumps_loses_nothing() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let hosts = [0.0, 0.05].map(|loss| simulation.join(Path::new(Nanos(5 * MS), loss)));
    stream(&mut simulation, 60);
    for jump in [1, 100, 300_000, 86_400_000] {
        simulation.run_for(Nanos(20 * MS));
        // The host was suspended: everything that was due is late.
        simulation.now = simulation.now.after(Nanos(jump * MS));
    }
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && hosts.iter().all(|host| simulation.has_all(*host)));
}

#[test]
fn a_clock_that_jumps_again_and_again_loses_nothing() {
    let mut simulation = Simulation::new(config(20_000_000), true);
    let hosts = [0.0, 0.02].map(|loss| simulation.join(Path::new(Nanos(5 * MS), loss)));
    simulation.product("large", 3_000_000, Some(1));
    stream(&mut simulation, 5);
    simulation.finish();
    // Each time for minutes: as long as a product is held, and longer.
    for minutes in 1..20 {
        simulation.run_for(Nanos(37 * MS));
        simulation.now = simulation.now.after(Nanos(minutes * 60_000 * MS));
    }
    assert!(!simulation.is_complete());
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && hosts.iter().all(|host| simulation.has_all(*host)));
}

#[test]
fn a_clock_that_stands_still_for_milliseconds_at_a_time_loses_nothing() {
    let run = |grain| {
        let mut simulation = Simulation::new(config(50_000_000), true);
        simulation.grain = grain;
        let hosts = [0.0, 0.03].map(|loss| simulation.join(Path::new(Nanos(5 * MS), loss)));
        stream(&mut simulation, 40);
        simulation.finish();
        simulation.run(Nanos(60_000 * MS));
        assert!(simulation.is_complete() && hosts.iter().all(|host| simulation.has_all(*host)));
        let totals = simulation.sender.totals();
        (simulation.nacks, totals.unicast_repair + totals.multicast_repair)
    };
    let (nacks, repaired) = run(Nanos(1));
    let (coarse_nacks, coarse_repaired) = run(Nanos(4 * MS));
    // What is asked for at one and the same time is asked for once.
    assert!(coarse_nacks <= nacks, "{coarse_nacks} NACKs, {nacks} with a fine clock");
    assert!(coarse_repaired <= 2 * repaired, "{coarse_repaired} bytes, {repaired} with a fine clock");
}

#[test]
fn a_clock_that_goes_back_delays_at_most() {
    let mut simulation = Simulation::new(config(100_000_000), true);
    let host = simulation.join(Path::new(Nanos(5 * MS), 0.02));
    stream(&mut simulation, 30);
    simulation.run_for(Nanos(40 * MS));
    simulation.now = Nanos(simulation.now.0 - 500 * MS);
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && simulation.has_all(host));
}

#[test]
fn a_receiver_that_asks_for_anything_gets_no_more_than_its_turn() {
    let mut simulation = Simulation::new(config(50_000_000), true);
    let host = simulation.join(Path::new(Nanos(5 * MS), 0.0));
    stream(&mut simulation, 20);
    simulation.run_for(Nanos(30 * MS));
    // Of products that are not sent yet, or will never be; of all, again and again; of one that was never announced to be gone.
    for _ in 0..1000 {
        let wants: Vec<Want> = [0, 1, 19, 20, u32::MAX].map(all_of).into();
        simulation.sender.on_nack(simulation.now, host as u32, wants.clone());
        simulation.sender.on_nack(simulation.now, 99, wants);
        simulation.sender.on_have(simulation.now, host as u32, &[(500, u32::MAX - 500)]);
    }
    assert!(simulation.sender.memory() < 100_000, "{}", simulation.sender.memory());
    let waiting = simulation.sender.progress(host as u32).unwrap().waiting;
    assert!(waiting < 200_000, "{waiting}");
    simulation.finish();
    simulation.run(Nanos(60_000 * MS));
    assert!(simulation.is_complete() && simulation.has_all(host));
}

#[test]
fn one_that_hears_nothing_of_the_group_asks_for_what_had_its_turn_while_it_was_away() {
    let mut receiver = receiver();
    receiver.on_end(3);
    let asked = |receiver: &mut farlink_flow::cast::receiver::Receiver, from: u64| {
        let mut products = Vec::new();
        for at in from..from + 100 {
            while let Some(event) = receiver.poll(Nanos(at * MS)) {
                if let Event::Nack(wants) = event {
                    products.extend(wants.into_iter().map(|want| want.product));
                }
            }
        }
        products.sort_unstable();
        products.dedup();
        products
    };
    // It knows that there are three, and of none that it was sent: that one was lost for good meanwhile nobody tells it unasked.
    assert!(asked(&mut receiver, 0).is_empty());
    receiver.on_reconnected(Nanos(100 * MS), Nanos(MS), Position { product: 3, offset: 0 }, 0);
    assert_eq!(asked(&mut receiver, 100), [0, 1, 2]);
}
