//! An interface, as far as a group's packets need it.

use std::io;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

/// An interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Whether it is up: a group can be joined on one that is not, and nothing ever comes.
    pub is_up: bool,
    /// Whether it has an IPv4 address: packets to a group have none to come from otherwise.
    pub has_ipv4: bool,
    /// Whether it has an IPv6 address.
    pub has_ipv6: bool,
}

impl Interface {
    /// The interface `name`.
    ///
    /// # Errors
    /// The kernel's, where there is none of that name.
    pub fn of_name(name: &str) -> io::Result<Self> {
        let mut found = Self { index: if_nametoindex(name)?, is_up: false, has_ipv4: false, has_ipv6: false };
        for each in getifaddrs()?.filter(|each| each.interface_name == name) {
            found.is_up |= each.flags.contains(InterfaceFlags::IFF_UP);
            let Some(address) = each.address else { continue };
            found.has_ipv4 |= address.as_sockaddr_in().is_some();
            found.has_ipv6 |= address.as_sockaddr_in6().is_some();
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_up_and_has_an_address() {
        let found = Interface::of_name("lo").unwrap();
        assert!(found.index > 0 && found.is_up && found.has_ipv4);
        assert!(Interface::of_name("nosuch0").is_err());
    }
}
