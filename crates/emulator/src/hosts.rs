//! Emulated hosts: namespaces with one interface, sysctls of their own, and a socket that tells of the connection.

use std::fmt::Write;
use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;

use farlink_host::namespace::{NamespaceError, Namespaces, set_sysctl};
use farlink_host::netlink::{Interface, Netlink, NetlinkError};
use farlink_host::tun::{Offloads, Tun, TunError};

use crate::plan::{PREFIXES, Plan, ipv4, ipv6};

/// A host that stands.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) namespaces: Namespaces,
    pub(crate) tun: Arc<Tun>,
    pub(crate) netlink: Netlink,
    /// Where its processes ask about the connection.
    pub(crate) listener: UnixListener,
    /// What it could not be given.
    pub(crate) notes: Vec<String>,
}

/// Why a host could not be made.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Its namespaces.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// Its device.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// Its interface.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Its socket.
    #[error("socket @{SOCKET} on the host")]
    Socket(#[source] io::Error),
    /// Its thread.
    #[error("the thread that makes host {name:?} failed")]
    Thread {
        /// The host.
        name: String,
    },
}

/// Makes every host of `plan`.
///
/// # Errors
/// The first host's that failed.
pub(crate) fn make(plan: &Plan) -> Result<Vec<Host>, HostError> {
    let names: Vec<String> = plan.host_names().collect();
    let text = hosts_file(&names);
    // A thread a host: it moves to the host's namespaces, and ends there.
    std::thread::scope(|scope| {
        let start = |(index, name): (usize, &String)| {
            let text = &text;
            (
                name.clone(),
                scope.spawn({
                    let name = name.clone();
                    move || make_one(plan, index, name, text)
                }),
            )
        };
        let threads: Vec<_> = names.iter().enumerate().map(start).collect();
        let join = |(name, thread): (String, std::thread::ScopedJoinHandle<'_, _>)| {
            thread.join().unwrap_or(Err(HostError::Thread { name }))
        };
        threads.into_iter().map(join).collect()
    })
}

fn make_one(plan: &Plan, index: usize, name: String, hosts: &str) -> Result<Host, HostError> {
    let namespaces = Namespaces::new_host(&name, hosts)?;
    let mut notes = Vec::new();
    for (sysctl, value) in SYSCTLS {
        if let Err(error) = set_sysctl(sysctl, value) {
            notes.push(format!("{sysctl} stays as it is on the hosts ({error}): asked for {value}"));
        }
    }
    let tun = Tun::open("farlink0")?;
    // Without UDP segmentation datagrams come one by one, which is slower and as right.
    tun.require(Offloads { checksum: true, tcp_segment: true, udp_segment: false })?;
    let mut netlink = Netlink::open()?;
    netlink.raise_loopback()?;
    let addresses: [(IpAddr, u8); 2] = [(ipv4(index).into(), PREFIXES.0), (ipv6(index).into(), PREFIXES.1)];
    netlink.configure(&Interface {
        index: tun.index(),
        mtu: plan.path.mtu,
        queue_packets: QUEUE_PACKETS,
        addresses: &addresses,
        congestion: plan.congestion.as_deref(),
    })?;
    let listener = SocketAddr::from_abstract_name(SOCKET)
        .and_then(|address| UnixListener::bind_addr(&address))
        .map_err(HostError::Socket)?;
    Ok(Host { name, namespaces, tun: Arc::new(tun), netlink, listener, notes })
}

fn hosts_file(names: &[String]) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
    for (index, name) in names.iter().enumerate() {
        let _ = write!(text, "{} {name}\n{} {name}\n", ipv4(index), ipv6(index));
    }
    text
}

/// The abstract UNIX socket in each host's network namespace.
pub(crate) const SOCKET: &str = "farlink";

/// What a host's own network namespace is set to; nothing global is written.
///
/// The maxima let automatic buffers fill 10 Gb/s at 366 ms: 457 MB in flight, and twice that in buffers,
/// which hold the kernel's own structures too.
const SYSCTLS: [(&str, &str); 6] = [
    ("net.ipv4.tcp_rmem", "4096 131072 1073741824"),
    ("net.ipv4.tcp_wmem", "4096 16384 1073741824"),
    // One transfer must not teach the next its window: each is measured from the same start.
    ("net.ipv4.tcp_no_metrics_save", "1"),
    // Both ways, as hosts for data are told to: who has been there before sends its first bytes with the first segment.
    ("net.ipv4.tcp_fastopen", "3"),
    // A host has one interface and no router: nothing is to be solicited or configured over it.
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.addr_gen_mode", "1"),
];

/// Super-packets that a host may have sent and the emulator not yet read: 16,000 of 64 KiB are 0.8 s at 10 Gb/s.
///
/// An emulator that is briefly late must not lose what the connection would have carried.
const QUEUE_PACKETS: u32 = 16_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_know_each_other_by_name() {
        let text = hosts_file(&["a".into(), "b".into()]);
        assert!(text.ends_with("198.18.0.1 a\n2001:2::1 a\n198.18.0.2 b\n2001:2::2 b\n"), "{text}");
    }
}
