//! Where a server listens, and who needs no key there: who is on this machine, or on a host of the same emulated connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use farlink_host::process;

use crate::connection::{Emulated, is_for_benchmarks};

/// The addresses to listen on.
///
/// With keys, all, or the one that was asked for; without, the loopback addresses and those of the emulated connection that
/// this host stands on.
///
/// # Errors
/// [`PlaceError`] where the one that was asked for is open to others, and there are no keys.
pub fn places(asked: Option<IpAddr>, has_keys: bool) -> Result<Vec<IpAddr>, PlaceError> {
    if has_keys {
        let all = vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        return Ok(asked.map_or(all, |address| vec![address]));
    }
    let emulated = emulated().map_err(PlaceError::Addresses)?;
    if let Some(address) = asked.filter(|address| !address.is_unspecified() && !address.is_loopback())
        && !process::addresses().map_err(PlaceError::Addresses)?.contains(&address)
    {
        return Err(PlaceError::Foreign { address });
    }
    choose(asked, &emulated)
}

/// Whether a connection from `far` to `here` is on this machine, or on the emulated connection of which this host has the
/// addresses `emulated`: no key is needed to move memory there.
pub(super) fn is_private(here: IpAddr, far: IpAddr, emulated: &[IpAddr]) -> bool {
    let (here, far) = (here.to_canonical(), far.to_canonical());
    (here.is_loopback() && far.is_loopback()) || (emulated.contains(&here) && is_for_benchmarks(far))
}

/// Addresses of this host that belong to the emulated connection that it stands on.
pub(super) fn emulated() -> io::Result<Vec<IpAddr>> {
    let Some(connection) = Emulated::of_this_host() else { return Ok(Vec::new()) };
    let ours = process::addresses()?;
    Ok(connection.addresses().into_iter().filter(|address| ours.contains(address)).collect())
}

fn choose(asked: Option<IpAddr>, emulated: &[IpAddr]) -> Result<Vec<IpAddr>, PlaceError> {
    let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    match asked {
        None => Ok(loopback.iter().chain(emulated).copied().collect()),
        Some(address) if address.is_loopback() || emulated.contains(&address) => Ok(vec![address]),
        Some(address) => Err(PlaceError::Open { address }),
    }
}

/// Why a server may not listen there.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// Others reach the address, and nobody has a key.
    #[error(
        "others than this machine reach {address}, and there are no keys: make one with `farlink keygen`, list those of \
         clients in authorized_keys, or name such files with --identity and --keys \
         (--no-auth is for emulated hosts alone)"
    )]
    Open {
        /// What was asked for.
        address: IpAddr,
    },
    /// It is none of this host's.
    #[error("{address} is no address of this host: choose one that `ip address` lists")]
    Foreign {
        /// What was asked for.
        address: IpAddr,
    },
    /// The kernel's own words.
    #[error("list this host's addresses")]
    Addresses(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_else_reaches_is_listened_on() {
        let emulated: IpAddr = "198.18.0.2".parse().unwrap();
        let loopback: IpAddr = "127.0.0.9".parse().unwrap();
        assert_eq!(choose(None, &[emulated]).unwrap().len(), 3);
        assert_eq!(choose(Some(emulated), &[emulated]).unwrap(), [emulated]);
        assert_eq!(choose(Some(loopback), &[]).unwrap(), [loopback]);
        let refused = choose(Some(emulated), &[]).unwrap_err().to_string();
        assert!(
            refused.starts_with("others than this machine reach 198.18.0.2, and there are no keys: "),
            "{refused}"
        );
        assert!(choose(Some(Ipv4Addr::UNSPECIFIED.into()), &[]).is_err());
    }

    #[test]
    fn a_server_with_keys_listens_where_it_is_told() {
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(places(Some(address), true).unwrap(), [address]);
        assert_eq!(places(None, true).unwrap().len(), 2);
    }

    #[test]
    fn only_who_is_on_this_machine_needs_no_key() {
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let emulated = [at("198.18.0.2"), at("2001:2::2")];
        for (here, far, private) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("::1", "::1", true),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1", true),
            ("198.18.0.2", "198.18.0.1", true),
            ("2001:2::2", "2001:2::1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "127.0.0.1", false),
            ("127.0.0.1", "192.0.2.1", false),
            ("198.18.0.3", "198.18.0.1", false),
            ("198.18.0.2", "192.0.2.1", false),
        ] {
            assert_eq!(is_private(at(here), at(far), &emulated), private, "{here} {far}");
        }
    }
}
