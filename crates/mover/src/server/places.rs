//! Where a server may listen before there are keys: on this machine, and on emulated hosts.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use farlink_host::process;

use crate::connection::Emulated;

/// The addresses to listen on.
///
/// Without `open`, the loopback addresses and those of the emulated connection that this host stands on; with
/// it, all, or the one that was asked for.
///
/// # Errors
/// [`PlaceError`] where the one that was asked for is open to others.
pub fn places(asked: Option<IpAddr>, open: bool) -> Result<Vec<IpAddr>, PlaceError> {
    if open {
        let all = vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        return Ok(asked.map_or(all, |address| vec![address]));
    }
    let emulated = emulated().map_err(PlaceError::Addresses)?;
    choose(asked, &emulated)
}

/// Addresses of this host that belong to the emulated connection that it stands on.
fn emulated() -> io::Result<Vec<IpAddr>> {
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
    /// Anyone who reaches the address could use the server.
    #[error("anyone who reaches {address} could use this server: add --no-auth to allow that")]
    Open {
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
        assert_eq!(
            choose(Some(emulated), &[]).unwrap_err().to_string(),
            "anyone who reaches 198.18.0.2 could use this server: add --no-auth to allow that"
        );
        assert!(choose(Some(Ipv4Addr::UNSPECIFIED.into()), &[]).is_err());
    }

    #[test]
    fn the_open_server_listens_where_it_is_told() {
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(places(Some(address), true).unwrap(), [address]);
        assert_eq!(places(None, true).unwrap().len(), 2);
    }
}
