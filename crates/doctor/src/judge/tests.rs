use std::collections::BTreeSet;
use std::path::PathBuf;

use farlink_host::disk::DiskSpeed;
use farlink_host::ethtool::{Feature, Share};
use farlink_host::nic::{Interrupt, Nic};
use farlink_host::path_mtu::PathMtu;
use farlink_host::processor::Processor;
use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos};

use super::*;
use crate::facts::{Missing, Program};
use crate::finding::Value;
use crate::window::MOST_WINDOW;

/// A host with nothing wrong for [`path`].
fn sound() -> Facts {
    let settings = Settings::default()
        .with("net.core.rmem_max", "1073741823")
        .with("net.core.wmem_max", "1073741823")
        .with("net.core.netdev_max_backlog", "1000")
        .with("net.ipv4.ip_no_pmtu_disc", "0")
        .with("net.ipv4.tcp_allowed_congestion_control", "reno cubic")
        .with("net.ipv4.tcp_available_congestion_control", "reno cubic htcp")
        .with("net.ipv4.tcp_congestion_control", "cubic")
        .with("net.ipv4.tcp_fastopen", "3")
        .with("net.ipv4.tcp_mem", "1000000 2000000 3000000")
        .with("net.ipv4.tcp_moderate_rcvbuf", "1")
        .with("net.ipv4.tcp_mtu_probing", "1")
        .with("net.ipv4.tcp_no_metrics_save", "1")
        .with("net.ipv4.tcp_rmem", "4096 131072 2147483647")
        .with("net.ipv4.tcp_sack", "1")
        .with("net.ipv4.tcp_slow_start_after_idle", "0")
        .with("net.ipv4.tcp_timestamps", "1")
        .with("net.ipv4.tcp_tso_rtt_log", "20")
        .with("net.ipv4.tcp_window_scaling", "1")
        .with("net.ipv4.tcp_wmem", "4096 16384 2147483647");
    Facts {
        kernel: "6.18.1".into(),
        settings,
        nics: vec![nic()],
        backlog_drops: Some(0),
        processor: Processor {
            cores: 8,
            governors: BTreeSet::from(["performance".into()]),
            governors_available: BTreeSet::from(["performance".into(), "powersave".into()]),
            clock_source: Some("tsc".into()),
            clock_sources: vec!["tsc".into(), "hpet".into()],
            nodes: 2,
        },
        disk: None,
        path_mtu: None,
        page_bytes: 4096,
        memory_bytes: Some(64 << 30),
        programs: programs(None),
        is_root: true,
        denied: Vec::new(),
    }
}

fn programs(missing: Option<Missing>) -> Vec<Program> {
    vec![Program { name: "circuit".into(), missing }, Program { name: "htcp".into(), missing: None }]
}

fn nic() -> Nic {
    let feature = |name: &str| Feature { name: name.into(), on: true, changeable: true };
    Nic {
        name: "eth0".into(),
        hardware: true,
        ethernet: true,
        speed: BitsPerSec::new(10_000_000_000),
        mtu: 9000,
        most_mtu: Some(9710),
        disciplines: vec!["fq_codel".into()],
        receive_ring: Some(Share { now: 2048, most: 4096 }),
        transmit_ring: Some(Share { now: 2048, most: 4096 }),
        queues: Some(Share { now: 8, most: 63 }),
        features: vec![feature("rx-gro"), feature("tx-tcp-segmentation")],
        interrupts: (0..8).map(|n| Interrupt { number: 40 + n, cpus: vec![n] }).collect(),
        numa_node: Some(0),
        near_cpus: (0..8).collect(),
        ..Nic::default()
    }
}

/// 10 Gb/s around 100 ms: 125 MB under way.
fn path() -> NetworkPath {
    NetworkPath::default()
}

fn with(name: &str, text: &str) -> Facts {
    let facts = sound();
    Facts { settings: facts.settings.with(name, text), ..facts }
}

fn with_nic(change: impl Fn(&mut Nic)) -> Facts {
    let mut facts = sound();
    facts.nics.iter_mut().for_each(change);
    facts
}

/// The one finding that there is.
fn only(facts: &Facts) -> Finding {
    only_on(facts, path())
}

fn only_on(facts: &Facts, path: NetworkPath) -> Finding {
    let mut found = examine(facts, path);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

#[test]
fn a_sound_host_has_no_findings() {
    assert_eq!(examine(&sound(), path()), []);
}

#[test]
fn a_host_of_which_nothing_is_known_has_no_findings() {
    assert_eq!(examine(&Facts::default(), path()), []);
}

#[test]
fn half_of_the_receive_buffer_is_window() {
    let found = only(&with("net.ipv4.tcp_rmem", "4096 131072 6291456"));
    assert_eq!((found.is, found.should_be), (Value::Bytes(6_291_456), Value::Bytes(250_000_000)));
    assert_eq!(found.costs_bps, Some(10_000_000_000 - 3_145_728 * 80));
    assert_eq!(found.command.unwrap(), "sysctl -w 'net.ipv4.tcp_rmem=4096 131072 250000000'");
    assert_eq!(found.without_root.unwrap(), "farlink memory HOST --streams 40");
}

#[test]
fn an_older_kernels_share_is_what_its_setting_says() {
    let facts = with("net.ipv4.tcp_rmem", "4096 131072 6291456");
    let settings = facts.settings.with("net.ipv4.tcp_adv_win_scale", "2");
    let found = only(&Facts { settings, kernel: "5.14.0".into(), ..facts });
    assert_eq!(found.should_be, Value::Bytes(166_666_667));
    assert_eq!(found.costs_bps, Some(10_000_000_000 - 4_718_592 * 80));
}

#[test]
fn the_send_buffer_holds_a_window() {
    assert_eq!(examine(&with("net.ipv4.tcp_wmem", "4096 16384 125000000"), path()), []);
    let found = only(&with("net.ipv4.tcp_wmem", "4096 16384 4194304"));
    assert_eq!(found.costs_bps, Some(10_000_000_000 - 4_194_304 * 80));
    assert_eq!(found.command.unwrap(), "sysctl -w 'net.ipv4.tcp_wmem=4096 16384 250000000'");
}

#[test]
fn a_buffer_that_does_not_grow_costs_what_it_is_at_first() {
    let found = only(&with("net.ipv4.tcp_moderate_rcvbuf", "0"));
    assert_eq!(found.costs_bps, Some(10_000_000_000 - 65_536 * 80));
    assert_eq!(found.command.unwrap(), "sysctl -w net.ipv4.tcp_moderate_rcvbuf=1");
}

#[test]
fn what_may_be_asked_for_costs_only_those_who_ask() {
    for name in ["net.core.rmem_max", "net.core.wmem_max"] {
        let found = only(&with(name, "4194304"));
        // A circuit's: 2 RTT and 20 ms of the rate, though its window is no more than 1 RTT and 20 ms of it.
        assert_eq!((found.should_be, found.costs_bps), (Value::Bytes(275_000_000), None));
        assert!(examine(&with(name, "150000000"), path()).is_empty());
        assert!(found.why.contains("335.544mbit"), "{}", found.why);
    }
}

#[test]
fn all_sockets_together_hold_twice_what_is_under_way() {
    let found = only(&with("net.ipv4.tcp_mem", "3000 4000 6000"));
    assert_eq!((found.is, found.should_be), (Value::Bytes(16_384_000), Value::Bytes(250_000_000)));
    assert_eq!(found.costs_bps, Some(10_000_000_000 - 8_192_000 * 80));
    let command = found.command.unwrap();
    assert_eq!((command.as_str(), found.caution), ("sysctl -w 'net.ipv4.tcp_mem=45777 61036 91554'", None));
    let small = Facts { memory_bytes: Some(700_000_000), ..with("net.ipv4.tcp_mem", "3000 4000 6000") };
    let caution = only(&small).caution.unwrap();
    assert!(caution.starts_with("sockets could then hold 357.6") && caution.contains("667.5"), "{caution}");
}

#[test]
fn no_window_is_larger_than_a_gigabyte() {
    let far = NetworkPath::new(Nanos(366_000_000), BitsPerSec::new(100_000_000_000).unwrap()).unwrap();
    let found = examine(&Facts::default(), far);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].is, Value::Bytes(MOST_WINDOW));
    assert!(!found[0].needs_root && found[0].command.is_none());
    assert_eq!(found[0].without_root.as_deref(), Some("farlink memory HOST --streams 5"));
    assert!((found[0].costs_bps.unwrap() as f64 - 76.53e9).abs() < 0.01e9);
}

#[test]
fn without_window_scaling_a_window_has_sixteen_bits() {
    let found = only(&with("net.ipv4.tcp_window_scaling", "0"));
    assert_eq!(found.costs_bps, Some(10_000_000_000 - 65_535 * 80));
}

#[test]
fn what_depends_on_loss_or_pauses_has_no_figure() {
    for (name, wrong, right) in [
        ("net.ipv4.tcp_sack", "0", "1"),
        ("net.ipv4.tcp_timestamps", "0", "1"),
        ("net.ipv4.tcp_slow_start_after_idle", "1", "0"),
        ("net.ipv4.tcp_fastopen", "1", "3"),
        ("net.ipv4.tcp_fastopen", "1025", "1027"),
        ("net.ipv4.tcp_tso_rtt_log", "9", "17"),
        ("net.ipv4.tcp_no_metrics_save", "0", "1"),
        ("net.ipv4.tcp_mtu_probing", "0", "1"),
        ("net.ipv4.ip_no_pmtu_disc", "1", "0"),
    ] {
        let found = only(&with(name, wrong));
        assert_eq!((found.name.as_str(), found.costs_bps), (name, None));
        assert_eq!(found.command.unwrap(), format!("sysctl -w {name}={right}"));
    }
    for (name, right) in [("net.ipv4.tcp_timestamps", "2"), ("net.ipv4.tcp_fastopen", "1027")] {
        assert_eq!(examine(&with(name, right), path()), []);
    }
}

#[test]
fn pieces_are_whole_where_two_to_the_setting_is_more_than_the_round_trip() {
    let name = "net.ipv4.tcp_tso_rtt_log";
    let path =
        |rtt_us: u64, rate| NetworkPath::new(Nanos(rtt_us * 1000), BitsPerSec::new(rate).unwrap()).unwrap();
    let ten = 10_000_000_000;
    for (log, rtt_us) in [("16", 65_535), ("17", 131_071)] {
        assert_eq!(examine(&with(name, log), path(rtt_us, ten)), []);
        let found = only_on(&with(name, log), path(rtt_us + 1, ten));
        assert_eq!(found.should_be, Value::Number(log.parse::<i64>().unwrap() + 1));
        assert!(found.why.contains("38146 bytes") && found.why.contains("(32 of them)"), "{}", found.why);
    }
    // Few packets, and pieces that are whole by themselves.
    assert_eq!(examine(&with(name, "9"), path(65_536, 1_000_000_000)), []);
    assert_eq!(examine(&with(name, "9"), path(49_999, ten)), []);
    let faster = examine(&with(name, "9"), path(100_000, 20_000_000_000));
    assert!(faster.iter().all(|finding| finding.name != name), "{faster:?}");
}

#[test]
fn newer_kernels_keep_the_threshold_out_of_what_they_save() {
    let facts = with("net.ipv4.tcp_no_metrics_save", "0");
    let settings = facts.settings.with("net.ipv4.tcp_no_ssthresh_metrics_save", "1");
    assert_eq!(examine(&Facts { settings, ..facts }, path()), []);
}

#[test]
fn reno_is_too_slow_for_a_long_path_and_not_for_a_short_one() {
    let facts = with("net.ipv4.tcp_congestion_control", "reno");
    let found = only(&facts);
    assert_eq!(found.should_be, Value::Word("cubic".into()));
    assert_eq!(found.command.unwrap(), "sysctl -w net.ipv4.tcp_congestion_control=cubic");
    assert_eq!(found.without_root.unwrap(), "farlink memory --congestion cubic");
    // 125 MB are 86,325 segments: half of them, one every 100 ms.
    assert!(found.why.contains("4316.2s"), "{}", found.why);
    assert_eq!(examine(&facts, "0.4ms,1gbit".parse().unwrap()), []);
}

#[test]
fn cubic_takes_long_after_a_loss_and_is_judged_where_round_trips_are_long() {
    // 457.5 MB are 315,953 segments: the cube root of 0.75 of them is 62 s, and 0.3 / 4 of that is lost.
    let far: NetworkPath = "366ms,10gbit".parse().unwrap();
    let found = only_on(&sound(), far);
    assert_eq!((found.is, found.should_be), (Value::Word("cubic".into()), Value::Word("htcp".into())));
    assert_eq!(found.command.unwrap(), "sysctl -w net.ipv4.tcp_congestion_control=htcp");
    for words in ["takes 62 s", "4.6 s", "--circuit 10gbit"] {
        assert!(found.why.contains(words), "{}", found.why);
    }
    let facts = with("net.ipv4.tcp_allowed_congestion_control", "reno cubic bbr");
    assert_eq!(only_on(&facts, far).without_root.unwrap(), "farlink memory --congestion bbr");
    assert_eq!(examine(&with("net.ipv4.tcp_congestion_control", "htcp"), far), []);
    // It needs long over a round trip of 100 ms too, but less than BBR loses by its caution.
    assert_eq!(examine(&sound(), path()), []);
    assert_eq!(examine(&sound(), "300ms,10kbit".parse().unwrap()), []);
}

#[test]
fn a_circuit_that_cannot_be_loaded_is_found_with_the_reason() {
    let because = |reason: &str, for_want_of_rights| Facts {
        programs: programs(Some(Missing { reason: reason.into(), for_want_of_rights })),
        ..sound()
    };
    let old = because("it needs Linux 6.10 or later", false);
    let found = only(&old);
    assert_eq!((found.name.as_str(), found.command), ("congestion control circuit", None));
    assert!(found.why.contains("--circuit 10gbit") && found.why.contains("6.10"), "{}", found.why);
    assert_eq!(found.without_root.unwrap(), "farlink memory --congestion htcp");
    assert_eq!(examine(&old, "0.1ms,1mbit".parse().unwrap()), []);
    // Who is not root is told what root would add.
    let ordinary = Facts { is_root: false, ..because("run it as root", true) };
    assert_eq!(examine(&ordinary, path()), []);
    assert_eq!(root_would_add(&ordinary, &[]), ["the congestion controls circuit, htcp"]);
}

#[test]
fn where_no_better_control_is_loaded_the_command_loads_it() {
    let facts = with("net.ipv4.tcp_congestion_control", "reno");
    let settings = facts
        .settings
        .with("net.ipv4.tcp_available_congestion_control", "reno")
        .with("net.ipv4.tcp_allowed_congestion_control", "reno");
    let found = only(&Facts { settings, ..facts });
    let command = found.command.unwrap();
    assert!(command.starts_with("modprobe tcp_cubic && sysctl -w "), "{command}");
    assert_eq!(found.without_root, None);
}

#[test]
fn a_control_that_all_may_use_goes_before_one_that_root_may() {
    let facts = with("net.ipv4.tcp_congestion_control", "reno");
    let settings = facts.settings.with("net.ipv4.tcp_allowed_congestion_control", "reno htcp");
    let found = only(&Facts { settings, ..facts });
    assert_eq!(found.command.unwrap(), "sysctl -w net.ipv4.tcp_congestion_control=htcp");
}

#[test]
fn a_namespace_chooses_among_what_all_may_use() {
    let settings = Settings::default()
        .with("net.ipv4.tcp_congestion_control", "reno")
        .with("net.ipv4.tcp_available_congestion_control", "reno cubic")
        .with("net.ipv4.tcp_allowed_congestion_control", "reno");
    let found = only(&Facts { settings, ..Facts::default() });
    assert_eq!((found.should_be, found.command), (Value::Word("cubic".into()), None));
    assert!(found.why.contains("outside this network namespace"));
}

#[test]
fn a_setting_that_cannot_be_changed_here_has_no_command() {
    let facts = sound();
    let settings = facts.settings.with_fixed("net.core.rmem_max", "4194304");
    let found = only(&Facts { settings, ..facts });
    assert_eq!(found.command, None);
    assert!(found.why.contains("outside this network namespace") && found.needs_root);
}

#[test]
fn small_packets_cost_their_headers() {
    let found = only(&with_nic(|nic| nic.mtu = 1500));
    assert_eq!(found.name, "MTU of eth0");
    // 8948/9038 - 1448/1538 of 10 Gb/s.
    assert_eq!(found.costs_bps, Some(485_596_000));
    assert_eq!(found.command.unwrap(), "ip link set dev eth0 mtu 9000");
    assert!(found.caution.is_some());
    let small = with_nic(|nic| (nic.mtu, nic.most_mtu) = (1500, Some(1500)));
    assert_eq!(examine(&small, path()), []);
    assert_eq!(examine(&with_nic(|nic| (nic.mtu, nic.hardware) = (1500, false)), path()), []);
}

#[test]
fn a_slow_interface_costs_the_difference_unless_another_is_fast_enough() {
    let slow = |nic: &mut Nic| nic.speed = BitsPerSec::new(1_000_000_000);
    let mut facts = with_nic(slow);
    let found = only(&facts);
    assert_eq!((found.costs_bps, found.needs_root), (Some(9_000_000_000), false));
    facts.nics.push(Nic { name: "eth1".into(), ..nic() });
    assert_eq!(examine(&facts, path()), []);
}

#[test]
fn the_interface_that_the_path_leaves_by_is_judged_and_no_other() {
    let mut facts = with_nic(|nic| nic.speed = BitsPerSec::new(1_000_000_000));
    let small =
        |name: &str| Nic { name: name.into(), receive_ring: Some(Share { now: 64, most: 4096 }), ..nic() };
    facts.nics.push(small("eth1"));
    let by = |interface: &str| {
        let found =
            PathMtu { host: "dtn2".into(), bytes: 9000, answered: true, interface: Some(interface.into()) };
        Facts { path_mtu: Some(found), ..facts.clone() }
    };
    assert_eq!(only(&by("eth0")).name, "rate of eth0");
    assert_eq!(only(&by("eth1")).name, "receive ring of eth1");
    // Another that is not read, such as a VLAN's, says nothing of those beneath it.
    assert_eq!(only(&by("eth0.7")).name, "receive ring of eth1");
    // One that belongs to a bond is judged with that bond, and not with others.
    facts.nics[1].master = Some("bond0".into());
    facts.nics.push(Nic { name: "bond0".into(), ..nic() });
    facts.nics[1].interrupts =
        vec![Interrupt { number: 1, cpus: vec![0] }, Interrupt { number: 2, cpus: vec![0] }];
    let by = |interface: &str| {
        let found =
            PathMtu { host: "dtn2".into(), bytes: 9000, answered: true, interface: Some(interface.into()) };
        examine(&Facts { path_mtu: Some(found), ..facts.clone() }, path())
    };
    let names = |found: Vec<Finding>| found.into_iter().map(|each| each.name).collect::<Vec<_>>();
    assert_eq!(names(by("eth0")), ["rate of eth0"]);
    assert_eq!(names(by("bond0")), ["receive ring of eth1", "interrupts of eth1"]);
    // Any member of a bond may carry the path. A slow one that belongs to a bridge is not the path's, where another is as fast.
    facts.nics[1].speed = BitsPerSec::new(1_000_000_000);
    assert_eq!(names(examine(&facts, path())), ["receive ring of eth1", "interrupts of eth1"]);
    facts.nics[2].hardware = false;
    assert_eq!(names(examine(&facts, path())), [] as [String; 0]);
}

#[test]
fn a_ring_holds_two_milliseconds_or_all_it_can_where_packets_were_lost() {
    // 2.5 MB in packets of 9,000 bytes are 278: the next power of two.
    let found = only(&with_nic(|nic| nic.receive_ring = Some(Share { now: 256, most: 4096 })));
    assert_eq!(found.should_be, Value::Packets(512));
    assert_eq!(found.command.unwrap(), "ethtool -G eth0 rx 512");
    assert_eq!(only(&with_nic(|nic| nic.lost = 7)).should_be, Value::Packets(4096));
    let at_most = |nic: &mut Nic| nic.receive_ring = Some(Share { now: 256, most: 256 });
    assert_eq!(examine(&with_nic(at_most), path()), []);
    let found = only(&with_nic(|nic| nic.transmit_ring = Some(Share { now: 256, most: 4096 })));
    assert_eq!(found.command.unwrap(), "ethtool -G eth0 tx 512");
}

#[test]
fn features_that_are_off_are_named_where_they_can_be_switched() {
    let found = only(&with_nic(|nic| nic.features.iter_mut().for_each(|feature| feature.on = false)));
    assert_eq!(found.is, Value::Word("rx-gro, tx-tcp-segmentation off".into()));
    assert_eq!(found.command.unwrap(), "ethtool -K eth0 rx-gro on tx-tcp-segmentation on");
    let fixed = |nic: &mut Nic| {
        nic.features.iter_mut().for_each(|feature| (feature.on, feature.changeable) = (false, false));
    };
    assert_eq!(examine(&with_nic(fixed), path()), []);
    let containers = |nic: &mut Nic| {
        nic.hardware = false;
        nic.features.iter_mut().for_each(|feature| feature.on = false);
    };
    assert_eq!(examine(&with_nic(containers), path()), []);
}

#[test]
fn a_discipline_that_shapes_is_found_and_left_to_a_person() {
    let found = only(&with_nic(|nic| nic.disciplines = vec!["netem".into()]));
    assert!(found.caution.is_some() && found.costs_bps.is_none());
}

#[test]
fn only_bbr_is_better_off_with_fq() {
    let facts = with("net.ipv4.tcp_congestion_control", "bbr");
    let found = only(&facts);
    assert_eq!((found.name.as_str(), found.costs_bps), ("queueing discipline of eth0", None));
    let nics = vec![Nic { disciplines: vec!["fq".into()], ..nic() }];
    assert_eq!(examine(&Facts { nics, ..facts }, path()), []);
}

#[test]
fn a_backlog_is_judged_by_what_it_dropped() {
    let found = only(&Facts { backlog_drops: Some(3), ..sound() });
    // 12.5 MB in packets of 9,000 bytes.
    assert_eq!(found.should_be, Value::Packets(1389));
}

#[test]
fn interrupts_belong_on_the_processors_at_the_interfaces_node() {
    let far = |nic: &mut Nic| nic.interrupts.iter_mut().for_each(|interrupt| interrupt.cpus = vec![9]);
    let found = only(&with_nic(far));
    assert_eq!(found.is, Value::Word("8 of 8 at other NUMA nodes".into()));
    assert!(found.command.unwrap().contains("echo 1 > /proc/irq/41/smp_affinity_list"));
    let one = |nic: &mut Nic| nic.interrupts.iter_mut().for_each(|interrupt| interrupt.cpus = vec![0]);
    assert_eq!(only(&with_nic(one)).is, Value::Word("all on one processor".into()));
}

#[test]
fn processors_run_at_full_speed_and_tell_the_time_themselves() {
    let mut facts = sound();
    facts.processor.governors = BTreeSet::from(["powersave".into()]);
    assert_eq!(only(&facts).name, "frequency governor");
    facts = sound();
    facts.processor.clock_source = Some("hpet".into());
    assert!(only(&facts).command.unwrap().starts_with("echo tsc > /sys/"));
    facts.processor.clock_sources = vec!["hpet".into()];
    assert_eq!(only(&facts).command, None);
}

#[test]
fn a_disk_costs_what_it_lacks() {
    let disk = DiskSpeed {
        directory: PathBuf::from("/data"),
        write_bps: 4_000_000_000,
        read_bps: 20_000_000_000,
        bytes: Bytes(256 << 20),
        direct: true,
    };
    let found = only(&Facts { disk: Some(disk), ..sound() });
    assert_eq!((found.name.as_str(), found.costs_bps), ("disk write in /data", Some(6_000_000_000)));
    assert!(!found.needs_root && found.command.is_none());
}

#[test]
fn the_costliest_comes_first_and_what_has_no_figure_last() {
    let facts = with("net.ipv4.tcp_rmem", "4096 131072 6291456");
    let settings = facts.settings.with("net.ipv4.tcp_sack", "0").with("net.ipv4.tcp_window_scaling", "0");
    let names: Vec<_> =
        examine(&Facts { settings, ..facts }, path()).into_iter().map(|found| found.name).collect();
    assert_eq!(names, ["net.ipv4.tcp_window_scaling", "net.ipv4.tcp_rmem", "net.ipv4.tcp_sack"]);
}

#[test]
fn a_path_of_shorter_packets_costs_their_headers() {
    let to = |bytes, answered| Facts {
        path_mtu: Some(PathMtu { host: "dtn2".into(), bytes, answered, interface: None }),
        ..sound()
    };
    let found = only(&to(1500, true));
    assert_eq!((found.name.as_str(), found.command.as_deref()), ("path MTU to dtn2", None));
    // 8948 of 9038 bytes are payload, and 1448 of 1538.
    assert_eq!(found.costs_bps, Some(485_596_000));
    assert_eq!(examine(&to(9000, true), path()), []);
    assert!(!unexamined(&to(9000, true)).join("; ").contains("dtn2"));
    // The interface that it leaves by counts, whatever it is: here a tunnel's, beside a network card's 9000.
    let tunnel = Nic { name: "wg0".into(), mtu: 1420, hardware: false, speed: None, ..nic() };
    let by_tunnel = |bytes| {
        let found = PathMtu { host: "dtn2".into(), bytes, answered: true, interface: Some("wg0".into()) };
        Facts { path_mtu: Some(found), nics: vec![nic(), tunnel.clone()], ..sound() }
    };
    assert_eq!(examine(&by_tunnel(1420), path()), []);
    assert_eq!(only(&by_tunnel(1280)).should_be, Value::Length(1420));
    assert!(unexamined(&to(9000, false)).join("; ").contains("dtn2"));
}

#[test]
fn what_is_not_known_is_named() {
    let mut facts = with_nic(|nic| nic.speed = None);
    facts.settings = Settings::default();
    let parts = unexamined(&facts).join("; ");
    for words in ["--disk", "path's MTU", "net.ipv4.tcp_mem", "rate of eth0"] {
        assert!(parts.contains(words), "{parts}");
    }
}

#[test]
fn an_ordinary_user_is_told_what_root_would_add() {
    let facts = with("net.core.rmem_max", "4194304");
    let denied = vec![PathBuf::from("/sys/secret")];
    let facts = Facts { is_root: false, denied, ..facts };
    let added = root_would_add(&facts, &examine(&facts, path())).join("; ");
    for words in ["the commands", "net.core.rmem_max", "/sys/secret"] {
        assert!(added.contains(words), "{added}");
    }
    let root = Facts { is_root: true, ..facts };
    assert_eq!(root_would_add(&root, &examine(&root, path())), [] as [String; 0]);
}

proptest::proptest! {
    /// What a finding says it should be is no finding any more.
    #[test]
    fn what_should_be_is_enough(
        rtt in 1u64..=1_000_000_000, rate in 1u64..=400_000_000_000, most in 4096u64..1 << 31, scale in -4i64..=8, old: bool,
    ) {
        let path = NetworkPath::new(Nanos(rtt), BitsPerSec::new(rate).unwrap()).unwrap();
        let kernel = if old { "5.4.0" } else { "6.12.0" };
        for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_mem", "net.core.rmem_max", "net.core.wmem_max"] {
            let text = if name.starts_with("net.core") { most.to_string() } else { format!("4096 8192 {most}") };
            let settings =
                Settings::default().with("net.ipv4.tcp_adv_win_scale", &scale.to_string()).with(name, &text);
            let facts = Facts { kernel: kernel.into(), settings, page_bytes: 4096, ..Facts::default() };
            let named = |facts: &Facts| examine(facts, path).into_iter().find(|found| found.name == name);
            let Some(found) = named(&facts) else { continue };
            proptest::prop_assert!(found.costs_bps.is_none_or(|cost| cost <= rate));
            let command = found.command.unwrap();
            let text = command.split_once('=').unwrap().1.trim_end_matches('\'').to_owned();
            let mended = Facts { settings: facts.settings.clone().with(name, &text), ..facts };
            proptest::prop_assert_eq!(named(&mended), None);
        }
    }
}
