//! What is known of the host.

use std::path::PathBuf;

use farlink_host::disk::DiskSpeed;
use farlink_host::kernel_files::KernelFiles;
use farlink_host::nic::{self, Nic};
use farlink_host::path_mtu::PathMtu;
use farlink_host::processor::Processor;
use farlink_host::sysctl::Settings;
use farlink_host::{congestion, namespace, process, socket};

/// What bears on a transfer. What could not be read is absent, and nothing is made of it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's settings.
    pub settings: Settings,
    /// The interfaces that are up.
    pub nics: Vec<Nic>,
    /// Packets dropped between drivers and protocols.
    pub backlog_drops: Option<u64>,
    /// Processors and clock.
    pub processor: Processor,
    /// How fast a disk is, where that was measured.
    pub disk: Option<DiskSpeed>,
    /// The longest packet that the path carries, where a far end was named.
    pub path_mtu: Option<PathMtu>,
    /// Bytes of a page of memory.
    pub page_bytes: u64,
    /// Bytes of memory, where that is known.
    pub memory_bytes: Option<u64>,
    /// The congestion controls that farlink brings along.
    pub programs: Vec<Program>,
    /// Whether this is root.
    pub is_root: bool,
    /// What this user may not read.
    pub denied: Vec<PathBuf>,
}

/// A congestion control that farlink brings along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Why it cannot be had; absent where it is there or can be loaded.
    pub missing: Option<Missing>,
}

/// Why a congestion control cannot be had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// In words.
    pub reason: String,
    /// Whether another user could.
    pub for_want_of_rights: bool,
}

impl Program {
    /// Those of this host, as far as this user may have them.
    fn all() -> Vec<Self> {
        let available = socket::available_congestion();
        let missing = |name: &str| {
            let error = congestion::could_load(name).err()?;
            let (reason, for_want_of_rights) = (error.reason().to_owned(), error.is_for_want_of_rights());
            Some(Missing { reason, for_want_of_rights })
        };
        let one = |name: &str| {
            let is_there = available.iter().any(|available| available == name);
            Self { name: name.to_owned(), missing: if is_there { None } else { missing(name) } }
        };
        congestion::ours().map(one).collect()
    }
}

impl Facts {
    /// Reads this host's, as far as this user may. No disk is touched and no packet is sent: see
    /// [`farlink_host::disk::measure`] and [`farlink_host::path_mtu::measure`].
    #[must_use]
    pub fn read() -> Self {
        let mut files = KernelFiles::default();
        let settings = Settings::read(&SETTINGS, &mut files);
        let nics = nic::read(&mut files);
        let backlog_drops = nic::backlog_drops(&mut files);
        let processor = Processor::read(&mut files);
        Self {
            kernel: process::kernel_release(),
            settings,
            nics,
            backlog_drops,
            processor,
            disk: None,
            path_mtu: None,
            page_bytes: process::page_bytes(),
            memory_bytes: process::memory_total(),
            programs: Program::all(),
            is_root: namespace::user() == 0,
            denied: files.denied().to_vec(),
        }
    }
}

/// The settings that are judged (Documentation/networking/ip-sysctl.rst and admin-guide/sysctl/net.rst of the kernel).
const SETTINGS: [&str; 21] = [
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.ip_no_pmtu_disc",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_no_ssthresh_metrics_save",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tso_rtt_log",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
];
