//! Every direct system call: TUN, namespaces, sockets, clocks, CPU accounting.

pub mod abstract_socket;
pub mod alarm;
pub mod beneath;
pub mod circuit;
pub mod clock;
pub mod congestion;
pub mod contain;
pub mod datagram;
pub mod delegate;
pub mod disk;
pub mod ethtool;
pub mod kernel_files;
pub mod kernel_memory;
pub mod kernel_version;
pub mod multicast;
pub mod namespace;
pub mod neighbour;
pub mod netlink;
pub mod network;
pub mod nic;
pub mod pages;
pub mod path_mtu;
pub mod precise;
pub mod process;
pub mod processor;
pub mod readiness;
pub mod rights;
pub mod scheduling;
pub mod signal;
pub mod socket;
pub mod sparse;
pub mod sysctl;
pub mod tcp_info;
pub mod tun;
pub mod watch;

mod icmp;
