//! The address of an endpoint, as the processes of a parallel program exchange theirs before they talk.
//!
//! ```text
//!  0        8       9      10     12          16            24        32        48     52     56
//!  ┌────────┬───────┬──────┬──────┬───────────┬─────────────┬─────────┬─────────┬──────┬──────┐
//!  │"FARLINK│version│family│ port │     0     │endpoint (64)│host (64)│   IP    │ pid  │rank+1│
//!  │      0"│       │ 4, 6 │      │           │             │         │  (128)  │      │ or 0 │
//!  └────────┴───────┴──────┴──────┴───────────┴─────────────┴─────────┴─────────┴──────┴──────┘
//! ```
//!
//! Integers are big endian; an IPv4 address has the first four of its bytes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::VERSION;
use crate::rest::{Rest, Short};

/// Where an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its number, which no other has.
    pub endpoint: u64,
    /// Its host: the same for processes that share a network namespace of one kernel.
    pub host: u64,
    /// Where its datagrams go.
    pub at: SocketAddr,
    /// Its process, for people to find.
    pub process: u32,
    /// Its place in the job, where its launcher says one: for people, too.
    pub rank: Option<u32>,
}

impl Address {
    /// Bytes of every address: MPI libraries keep no more than 64.
    pub const LEN: usize = 56;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        bytes[10..12].copy_from_slice(&self.at.port().to_be_bytes());
        bytes[16..24].copy_from_slice(&self.endpoint.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.host.to_be_bytes());
        match self.at.ip() {
            IpAddr::V4(v4) => {
                bytes[9] = 4;
                bytes[32..36].copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                bytes[9] = 6;
                bytes[32..48].copy_from_slice(&v6.octets());
            }
        }
        bytes[48..52].copy_from_slice(&self.process.to_be_bytes());
        let rank = self.rank.map_or(0, |rank| rank.saturating_add(1));
        bytes[52..].copy_from_slice(&rank.to_be_bytes());
        bytes
    }

    /// What the bytes say.
    ///
    /// # Errors
    /// [`AddressError`], which says of what else they are.
    pub fn decode(bytes: &[u8]) -> Result<Self, AddressError> {
        let mut rest = Rest(bytes);
        if rest.array()? != MAGIC {
            return Err(AddressError::Foreign);
        }
        let theirs = rest.u8()?;
        if theirs != VERSION {
            return Err(AddressError::Version { theirs });
        }
        let family = rest.u8()?;
        let port = rest.u16()?;
        rest.u32()?;
        let (endpoint, host) = (rest.u64()?, rest.u64()?);
        let ip = rest.array::<16>()?;
        let ip = match family {
            4 => Ipv4Addr::from([ip[0], ip[1], ip[2], ip[3]]).into(),
            6 => Ipv6Addr::from(ip).into(),
            family => return Err(AddressError::Family { family }),
        };
        let process = rest.u32()?;
        let rank = rest.u32()?.checked_sub(1);
        Ok(Self { endpoint, host, at: SocketAddr::new(ip, port), process, rank })
    }
}

/// Why bytes are no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Too few of them.
    #[error("an address of {} bytes ends early", Address::LEN)]
    Short,
    /// Of something else.
    #[error("not an address of Farlink's: every process of a job must use the same provider")]
    Foreign,
    /// Of a program that speaks otherwise.
    #[error(
        "the peer's Farlink speaks version {theirs} of the protocol and this one version {VERSION}: \
         install the same on every host"
    )]
    Version {
        /// The peer's version.
        theirs: u8,
    },
    /// Neither IPv4 nor IPv6.
    #[error("an address of IP version {family}: there are 4 and 6")]
    Family {
        /// As it says.
        family: u8,
    },
}

impl From<Short> for AddressError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

/// What every address begins with.
const MAGIC: [u8; 8] = *b"FARLINK\0";

#[cfg(test)]
mod tests {
    use super::*;

    fn address(ip: IpAddr) -> Address {
        Address { endpoint: 1 << 63, host: 7, at: SocketAddr::new(ip, 4711), process: 99, rank: Some(0) }
    }

    #[test]
    fn an_address_is_what_it_was() {
        for ip in [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let address = address(ip);
            let bytes = address.encode();
            assert_eq!(Address::decode(&bytes), Ok(address));
            assert_eq!(Address::decode(&bytes[..Address::LEN - 1]), Err(AddressError::Short));
            let unranked = Address { rank: None, ..address };
            assert_eq!(Address::decode(&unranked.encode()), Ok(unranked));
        }
    }

    #[test]
    fn another_version_is_named_with_ours() {
        let mut bytes = address(Ipv4Addr::LOCALHOST.into()).encode();
        bytes[8] = VERSION + 1;
        let error = Address::decode(&bytes).unwrap_err().to_string();
        assert!(error.contains(&format!("version {}", VERSION + 1)), "{error}");
        assert!(error.contains(&format!("this one version {VERSION}")), "{error}");
        bytes[0] = 0;
        assert_eq!(Address::decode(&bytes), Err(AddressError::Foreign));
    }
}
