//! A group as it is named: an address of multicast and a port.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// A multicast group and its port. The control connections of a session are at the same port of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(SocketAddr);

impl Group {
    /// Its address and port.
    #[must_use]
    pub const fn address(self) -> SocketAddr {
        self.0
    }

    /// Bytes of the headers of IP and UDP in front of each packet.
    #[must_use]
    pub const fn headers(self) -> u32 {
        if self.0.is_ipv4() { 28 } else { 48 }
    }

    /// Whether its packets leave no link, and nothing says which link it is on (RFC 4291, 2.7).
    #[must_use]
    pub(crate) const fn is_of_one_link(self) -> bool {
        match self.0 {
            SocketAddr::V4(_) => false,
            SocketAddr::V6(address) => {
                address.scope_id() == 0 && matches!(address.ip().segments()[0] & 0xf, 1 | 2)
            }
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Group {
    type Err = GroupError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |reason| GroupError { text: text.to_owned(), reason };
        let address: SocketAddr = text
            .parse()
            .map_err(|_| refused("write an address and a port, as in 239.1.1.1:7000 or [ff15::1]:7000"))?;
        if !address.ip().is_multicast() {
            return Err(refused("it is no address of multicast: take one of 239.0.0.0/8, or of ff15::/16"));
        }
        if address.port() == 0 {
            return Err(refused("the port is a number from 1 to 65535"));
        }
        Ok(Self(address))
    }
}

/// Why something is no group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a group: {reason}")]
pub struct GroupError {
    /// As given.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_reads_back() {
        for text in ["239.1.1.1:7000", "[ff15::1]:7000"] {
            assert_eq!(text.parse::<Group>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_group_of_one_link_wants_an_interface() {
        let of_one = |text: &str| text.parse::<Group>().unwrap().is_of_one_link();
        assert!(of_one("[ff02::1]:7000") && of_one("[ff11::1]:7000"));
        assert!(!of_one("[ff15::1]:7000") && !of_one("[ff02::1%2]:7000") && !of_one("224.0.0.1:7000"));
    }

    #[test]
    fn what_is_no_group_is_refused() {
        for text in ["239.1.1.1", "10.0.0.1:7000", "239.1.1.1:0", "[::1]:7000", "radar:7000", ""] {
            assert!(text.parse::<Group>().is_err(), "{text}");
        }
    }
}
