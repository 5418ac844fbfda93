//! The network interfaces, and the queues before and behind them.

use farlink_host::nic::Nic;
use farlink_host::shell::quoted;
use farlink_wire::quantity::Nanos;

use crate::facts::Facts;
use crate::finding::{Finding, Value};
use crate::judge::set;
use crate::path::NetworkPath;

pub(super) fn findings(facts: &Facts, path: NetworkPath) -> Vec<Finding> {
    let mut found: Vec<_> = backlog(facts, path).into_iter().collect();
    found.extend(path_mtu(facts, path));
    for nic in candidates(facts, path) {
        let of_one = [
            speed(nic, path),
            half_duplex(nic),
            mtu(nic, path),
            receive_ring(nic, path),
            transmit_ring(nic, path),
            features(nic),
            queues(nic, facts),
            shaping(nic),
            pacing(nic, facts),
        ];
        found.extend(of_one.into_iter().flatten());
    }
    found
}

/// Whether an interface should have a larger MTU.
pub(super) fn wants_larger_packets(facts: &Facts, path: NetworkPath) -> bool {
    candidates(facts, path).into_iter().any(|nic| mtu(nic, path).is_some())
}

/// The interfaces that the path may lead through. Where it is known which it leaves by, that one, and those which make it up; else those
/// as fast as the path or of unknown rate, and where none is fast enough, the fastest instead. The management interface of a host
/// with a faster one is not the path's.
pub(super) fn candidates(facts: &Facts, path: NetworkPath) -> Vec<&Nic> {
    // What a bridge or a VLAN is made of is not told: any may be.
    if let Some(leaving) = leaving(facts).filter(|nic| nic.hardware) {
        let makes_it_up = |nic: &&Nic| nic.name == leaving.name || nic.master.as_ref() == Some(&leaving.name);
        return facts.nics.iter().filter(makes_it_up).collect();
    }
    let fastest = facts.nics.iter().filter_map(|nic| nic.speed).max();
    let enough = fastest.map_or(path.rate(), |fastest| fastest.min(path.rate()));
    let is_bond = |name: &String| facts.nics.iter().any(|nic| nic.name == *name && nic.hardware);
    let carries = |nic: &&Nic| {
        nic.master.as_ref().is_some_and(is_bond) || nic.speed.is_none_or(|speed| speed >= enough)
    };
    facts.nics.iter().filter(carries).collect()
}

/// The interface that the path leaves by, where that is known.
fn leaving(facts: &Facts) -> Option<&Nic> {
    let name = facts.path_mtu.as_ref()?.interface.as_ref()?;
    facts.nics.iter().find(|nic| nic.name == *name)
}

fn speed(nic: &Nic, path: NetworkPath) -> Option<Finding> {
    let (is, wanted) = (nic.speed?.get(), path.rate().get());
    if nic.master.is_some() || is >= wanted {
        return None;
    }
    let why = "the interface itself is slower than the path";
    let finding = Finding::new(format!("rate of {}", nic.name), Value::Rate(is), Value::Rate(wanted), why);
    Some(Finding { needs_root: false, ..finding.costing(wanted - is) })
}

fn half_duplex(nic: &Nic) -> Option<Finding> {
    let why = "the interface sends and receives by turns, and acknowledgements take the turns of data";
    let name = format!("duplex of {}", nic.name);
    nic.half_duplex.then(|| {
        Finding::new(name, "half".into(), "full".into(), why)
            .mended_by(format!("ethtool -s {} autoneg on", quoted(&nic.name)))
    })
}

fn mtu(nic: &Nic, path: NetworkPath) -> Option<Finding> {
    let most = nic.most_mtu.map_or(LARGE_MTU, |most| most.min(LARGE_MTU));
    if !nic.hardware || !nic.ethernet || nic.master.is_some() || nic.mtu >= most {
        return None;
    }
    let lost = (payload(most) - payload(nic.mtu)) * path.rate().get() as f64;
    let why = format!(
        "of every {} bytes on an Ethernet wire {} are framing, {HEADERS} IP and TCP headers: {:.1}% is payload, and \
         {:.1}% with larger packets",
        nic.mtu + FRAMING,
        FRAMING,
        payload(nic.mtu) * 100.0,
        payload(most) * 100.0,
    );
    let name = format!("MTU of {}", nic.name);
    let finding = Finding::new(name, Value::Length(nic.mtu), Value::Length(most), why)
        .costing(lost.round() as u64)
        .mended_by(format!("ip link set dev {} mtu {most}", quoted(&nic.name)));
    let caution = format!("every device on the path and on {}'s own network must carry it", nic.name);
    Some(Finding { caution: Some(caution), ..finding })
}

/// The share of an Ethernet wire that payload has.
fn payload(mtu: u32) -> f64 {
    f64::from(mtu.saturating_sub(HEADERS)) / f64::from(mtu + FRAMING)
}

/// A path that carries shorter packets than this host's interfaces.
fn path_mtu(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    let found = facts.path_mtu.as_ref()?;
    let most = || candidates(facts, path).into_iter().map(|nic| nic.mtu).max();
    let here = leaving(facts).map(|nic| nic.mtu).or_else(most)?.min(LARGE_MTU);
    if found.bytes >= here {
        return None;
    }
    let lost = (payload(here) - payload(found.bytes)) * path.rate().get() as f64;
    let why = "something on the path, or a route of this host, carries shorter packets than the interface does: ask those \
               who run the devices in between (RFC 8899)";
    let name = format!("path MTU to {}", found.host);
    let finding = Finding::new(name, Value::Length(found.bytes), Value::Length(here), why);
    Some(Finding { needs_root: false, ..finding.costing(lost.round() as u64) })
}

fn receive_ring(nic: &Nic, path: NetworkPath) -> Option<Finding> {
    let ring = nic.receive_ring?;
    let wanted = if nic.lost > 0 { ring.most } else { burst(nic, path).min(ring.most) };
    if ring.now >= wanted {
        return None;
    }
    let why = format!(
        "the ring must hold what comes while the kernel is busy elsewhere, up to {RING_TIME} (netdev_budget_usecs in \
         the kernel's net/core/dev.c); {} packets were lost there so far: the cost depends on the loss",
        nic.lost
    );
    let name = format!("receive ring of {}", nic.name);
    let finding = Finding::new(name, Value::Packets(ring.now.into()), Value::Packets(wanted.into()), why);
    Some(finding.mended_by(format!("ethtool -G {} rx {wanted}", quoted(&nic.name))))
}

fn transmit_ring(nic: &Nic, path: NetworkPath) -> Option<Finding> {
    let ring = nic.transmit_ring?;
    let wanted = burst(nic, path).min(ring.most);
    if ring.now >= wanted {
        return None;
    }
    let why = format!(
        "the ring must hold what leaves while the kernel is busy elsewhere, up to {RING_TIME} (netdev_budget_usecs in \
         the kernel's net/core/dev.c), or the interface stands still: the cost depends on the processor"
    );
    let name = format!("transmit ring of {}", nic.name);
    let finding = Finding::new(name, Value::Packets(ring.now.into()), Value::Packets(wanted.into()), why);
    Some(finding.mended_by(format!("ethtool -G {} tx {wanted}", quoted(&nic.name))))
}

/// Packets that come or leave while the kernel is busy elsewhere, as rings have them.
fn burst(nic: &Nic, path: NetworkPath) -> u32 {
    u32::try_from(packets(path, nic.mtu, RING_TIME).next_power_of_two()).unwrap_or(u32::MAX)
}

/// Of hardware alone: a container's `veth` and a TUN device have nothing to hand the work to, and some refuse what they call changeable.
fn features(nic: &Nic) -> Option<Finding> {
    if !nic.hardware {
        return None;
    }
    let off: Vec<_> = nic
        .features
        .iter()
        .filter(|feature| FEATURES.contains(&feature.name.as_str()) && feature.changeable && !feature.on)
        .map(|feature| feature.name.as_str())
        .collect();
    if off.is_empty() {
        return None;
    }
    let why = "without these the processor handles every packet by itself, and not up to 64 KiB at once: the cost \
               depends on the processor";
    let name = format!("offloads of {}", nic.name);
    let switches: Vec<_> = off.iter().map(|name| format!("{name} on")).collect();
    let finding = Finding::new(name, format!("{} off", off.join(", ")).as_str().into(), "on".into(), why);
    Some(finding.mended_by(format!("ethtool -K {} {}", quoted(&nic.name), switches.join(" "))))
}

fn queues(nic: &Nic, facts: &Facts) -> Option<Finding> {
    let queues = nic.queues?;
    let wanted = queues.most.min(facts.processor.cores);
    if queues.now >= wanted {
        return None;
    }
    let why = "each queue is served by one processor, and parallel streams share the queues: the cost depends on the \
               processor";
    let name = format!("queues of {}", nic.name);
    let finding = Finding::new(name, Value::Number(queues.now.into()), Value::Number(wanted.into()), why);
    Some(finding.mended_by(format!("ethtool -L {} combined {wanted}", quoted(&nic.name))))
}

/// A discipline that is there to delay, drop or limit.
fn shaping(nic: &Nic) -> Option<Finding> {
    let kind = nic.disciplines.iter().find(|kind| SHAPING.contains(&kind.as_str()))?;
    let why = format!("{kind} delays, drops or limits what leaves: the cost depends on how it was set");
    let name = format!("queueing discipline of {}", nic.name);
    let finding = Finding::new(name, kind.as_str().into(), "fq".into(), why)
        .mended_by(format!("tc qdisc replace dev {} root fq", quoted(&nic.name)));
    Some(Finding { caution: Some("somebody put it there".into()), ..finding })
}

/// Pacing by `fq` in place of a timer per socket. The kernel paces without it too: it costs processor time alone.
fn pacing(nic: &Nic, facts: &Facts) -> Option<Finding> {
    let control = &facts.settings.setting("net.ipv4.tcp_congestion_control")?.text;
    let other = nic.disciplines.iter().find(|kind| *kind != "fq" && !SHAPING.contains(&kind.as_str()))?;
    if control != "bbr" || !nic.hardware || nic.master.is_some() || other == "noqueue" {
        return None;
    }
    let why = "bbr paces by a timer of each socket where the interface has no fq, which takes more of the processor \
               (net/ipv4/tcp_bbr.c): no rate is lost while there is processor time to spare";
    let name = format!("queueing discipline of {}", nic.name);
    // A multi-queue device gets one discipline for each queue from the default.
    let command = match nic.queues.is_some_and(|queues| queues.now > 1) {
        true => format!(
            "sysctl -w net.core.default_qdisc=fq && tc qdisc replace dev {0} root pfifo && tc qdisc replace dev {0} \
             root mq",
            quoted(&nic.name)
        ),
        false => format!("tc qdisc replace dev {} root fq", quoted(&nic.name)),
    };
    Some(Finding::new(name, other.as_str().into(), "fq".into(), why).mended_by(command))
}

/// The queue between drivers and protocols, which only some drivers use: judged by what it dropped.
fn backlog(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    let name = "net.core.netdev_max_backlog";
    let is = u64::try_from(facts.settings.number(name)?).ok()?;
    let drops = facts.backlog_drops.filter(|&drops| drops > 0)?;
    let mtu = facts.nics.iter().map(|nic| nic.mtu).min().unwrap_or(COMMON_MTU);
    let wanted = packets(path, mtu, BACKLOG_TIME).min(i32::MAX as u64);
    if is >= wanted {
        return None;
    }
    let why = format!(
        "{drops} packets were dropped there so far (/proc/net/softnet_stat); it should hold what comes in \
         {BACKLOG_TIME}: the cost depends on the loss"
    );
    let finding = Finding::new(name, Value::Packets(is), Value::Packets(wanted), why);
    Some(set(finding, &facts.settings, name, &wanted.to_string()))
}

/// Packets of `mtu` bytes that the path brings in `time`, rounded up.
fn packets(path: NetworkPath, mtu: u32, time: Nanos) -> u64 {
    path.rate().bytes_in(time).div_ceil(u64::from(mtu.max(1)))
}

/// The MTU of ordinary Ethernet (IEEE 802.3, 3.2.7), and that of the jumbo frames which research networks carry.
pub(super) const COMMON_MTU: u32 = 1500;
const LARGE_MTU: u32 = 9000;

/// Headers of IPv4 (20 bytes) and TCP (20) with timestamps (12; RFC 7323, appendix A).
const HEADERS: u32 = 52;

/// Preamble (8 bytes), addresses and type (14), check sequence (4) and the gap between frames (12): IEEE 802.3, 3 and 4.4.2.
const FRAMING: u32 = 38;

/// How long one round of receiving may take before the others' turn: two milliseconds, the default of
/// `net.core.netdev_budget_usecs` at 1,000 ticks a second.
const RING_TIME: Nanos = Nanos(2_000_000);

/// The longest tick of a Linux kernel (`CONFIG_HZ=100`): so long a processor may keep packets waiting.
const BACKLOG_TIME: Nanos = Nanos(10_000_000);

/// What makes super-packets of many, and spares the processor checksums.
const FEATURES: [&str; 6] = [
    "tx-scatter-gather",
    "tx-generic-segmentation",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "rx-gro",
    "rx-checksum",
];

/// Disciplines that only make sense where somebody wants less than the interface can (tc-netem(8), tc-tbf(8)).
const SHAPING: [&str; 2] = ["netem", "tbf"];
