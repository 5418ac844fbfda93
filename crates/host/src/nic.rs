//! The host's network interfaces: what sysfs, the drivers and rtnetlink tell of them.

use std::path::PathBuf;

use farlink_wire::quantity::BitsPerSec;

use crate::ethtool::{Ethtool, Feature, Share};
use crate::kernel_files::{KernelFiles, numbers};
use crate::netlink::{Discipline, Netlink, leaves};

/// A network interface that is up and leads out of the host. What is not told is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: Option<String>,
    /// Whether a device is behind it, real or a hypervisor's, or a bond of several: not a bridge or a TUN device.
    pub hardware: bool,
    /// Whether its frames are Ethernet's (`ARPHRD_ETHER`).
    pub ethernet: bool,
    /// The bond or the bridge that it belongs to, which has the say.
    pub master: Option<String>,
    /// The rate of its link. Others than hardware claim what they like: a TUN device 10 Mb/s.
    pub speed: Option<BitsPerSec>,
    /// Whether it sends and receives by turns.
    pub half_duplex: bool,
    /// Largest IP packet.
    pub mtu: u32,
    /// The largest that the driver would take.
    pub most_mtu: Option<u32>,
    /// The queueing disciplines in which packets wait to be sent: one, or one a queue of the device.
    pub disciplines: Vec<String>,
    /// Descriptors in the ring in which it receives.
    pub receive_ring: Option<Share>,
    /// Descriptors in the ring from which it sends.
    pub transmit_ring: Option<Share>,
    /// Queues that both send and receive.
    pub queues: Option<Share>,
    /// The driver's features.
    pub features: Vec<Feature>,
    /// Packets that it had no room for since it came up.
    pub lost: u64,
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
    /// The NUMA node that it is at.
    pub numa_node: Option<u32>,
    /// The processors of that node.
    pub near_cpus: Vec<u32>,
}

/// An interrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number, as in `/proc/interrupts`.
    pub number: u32,
    /// The processors that serve it.
    pub cpus: Vec<u32>,
}

/// Every interface that is up, the loopback interface left out.
pub fn read(files: &mut KernelFiles) -> Vec<Nic> {
    // Where one of the two cannot be had, what it would tell is absent.
    let ethtool = Ethtool::open().ok();
    let mut netlink = Netlink::open().ok();
    let disciplines = netlink.as_mut().and_then(|netlink| netlink.disciplines().ok()).unwrap_or_default();
    let mut nics = Vec::new();
    for name in files.names(NICS) {
        let Some(mut nic) = one(&name, &disciplines, netlink.as_mut(), files) else { continue };
        if let Some(ethtool) = &ethtool {
            let rings = ethtool.rings(&name).ok();
            nic.receive_ring = rings.map(|rings| rings.receive).filter(|ring| ring.most > 0);
            nic.transmit_ring = rings.map(|rings| rings.transmit).filter(|ring| ring.most > 0);
            nic.queues = ethtool.queues(&name).ok().filter(|queues| queues.most > 0);
            nic.features = ethtool.features(&name).unwrap_or_default();
        }
        nics.push(nic);
    }
    nics
}

/// Packets that no processor had room for on their way from a driver to the protocols: `dropped`, the second column
/// of `/proc/net/softnet_stat` (softnet_seq_show in the kernel's net/core/net-procfs.c), all processors together.
pub fn backlog_drops(files: &mut KernelFiles) -> Option<u64> {
    let text = files.text("/proc/net/softnet_stat")?;
    let drops = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().map(drops).sum()
}

fn one(
    name: &str,
    disciplines: &[Discipline],
    netlink: Option<&mut Netlink>,
    files: &mut KernelFiles,
) -> Option<Nic> {
    let at = |part: &str| PathBuf::from(format!("{NICS}/{name}/{part}"));
    let flags = files.text(at("flags"))?;
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?;
    let kind: u32 = files.value(at("type"))?;
    // RFC 2863, 3.1.13: raised, and yet without a cable. Some drivers do not tell: `unknown`.
    let idle = files.text(at("operstate")).is_some_and(|state| IDLE.contains(&state.as_str()));
    if flags & UP == 0 || flags & LOOPBACK != 0 || idle {
        return None;
    }
    let index: u32 = files.value(at("ifindex"))?;
    let hardware = at("device").exists() || at("bonding").exists();
    let mega: Option<i64> = files.value(at("speed")).filter(|_| hardware);
    let counter = |files: &mut KernelFiles, counter: &str| {
        files.value::<u64>(at(&format!("statistics/{counter}"))).unwrap_or(0)
    };
    let lost = counter(files, "rx_missed_errors") + counter(files, "rx_fifo_errors");
    Some(Nic {
        name: name.to_owned(),
        driver: files.link(at("device/driver")),
        hardware,
        ethernet: kind == ETHERNET,
        master: files.link(at("master")),
        // -1 where the driver does not know.
        speed: mega.and_then(|mega| BitsPerSec::new(u64::try_from(mega).ok()?.checked_mul(1_000_000)?)),
        half_duplex: files.text(at("duplex")).is_some_and(|duplex| duplex == "half"),
        mtu: files.value(at("mtu"))?,
        most_mtu: netlink.and_then(|netlink| netlink.most_mtu(index).ok().flatten()),
        disciplines: leaves(disciplines, index),
        lost,
        interrupts: interrupts(name, files),
        numa_node: files.value(at("device/numa_node")),
        near_cpus: files.text(at("device/local_cpulist")).map(|list| numbers(&list)).unwrap_or_default(),
        ..Nic::default()
    })
}

/// The interrupts of the device behind `name`, by messages (MSI): the older kind is shared, and tells nothing.
fn interrupts(name: &str, files: &mut KernelFiles) -> Vec<Interrupt> {
    let listed = files.names(format!("{NICS}/{name}/device/msi_irqs"));
    let numbered = listed.iter().filter_map(|number| number.parse().ok());
    let one = |number: u32| {
        let list = files.text(format!("/proc/irq/{number}/effective_affinity_list"))?;
        let cpus = numbers(&list);
        (!cpus.is_empty()).then_some(Interrupt { number, cpus })
    };
    numbered.filter_map(one).collect()
}

const NICS: &str = "/sys/class/net";

/// `IFF_UP` and `IFF_LOOPBACK`, netdevice(7).
const UP: u32 = 0x1;
const LOOPBACK: u32 = 0x8;

/// States in which nothing passes (`operstates` in the kernel's net/core/net-sysfs.c).
const IDLE: [&str; 4] = ["notpresent", "down", "lowerlayerdown", "dormant"];

/// `ARPHRD_ETHER` of the kernel's include/uapi/linux/if_arp.h.
const ETHERNET: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_none_of_them() {
        let nics = read(&mut KernelFiles::default());
        assert!(nics.iter().all(|nic| nic.name != "lo" && nic.mtu > 0), "{nics:?}");
    }

    #[test]
    fn drops_are_counted_where_the_kernel_shows_them() {
        assert!(backlog_drops(&mut KernelFiles::default()).is_some());
    }
}
