//! What became of a datagram on its way.

use nix::libc;

/// Whether an error tells what happened to a datagram on its way: an ICMP message (the kernel's `icmp_err_convert`), no route for now, a
/// firewall.
pub(crate) const fn is_the_networks(code: i32) -> bool {
    matches!(
        code,
        libc::ECONNREFUSED
            | libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EPROTO
            | libc::EACCES
            | libc::EPERM
    )
}
