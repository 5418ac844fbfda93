//! Where the far end is, as people write it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::{fmt, io};

use crate::ports::PORT;

/// A far end: `HOST`, `HOST:PORT`, `ADDRESS`, `[IPV6]:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarHost {
    /// A name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl FarHost {
    /// Its addresses, in the order in which the host's resolver prefers them.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>, ResolveError> {
        let host = self.host.clone();
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let mut addresses: Vec<_> =
            found.map_err(|source| ResolveError::Unknown { host: host.clone(), source })?.collect();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(ResolveError::NoAddress { host });
        }
        Ok(addresses)
    }
}

impl fmt::Display for FarHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse::<IpAddr>() {
            Ok(address) => SocketAddr::new(address, self.port).fmt(f),
            // With a zone.
            Err(_) if self.host.contains(':') => write!(f, "[{}]:{}", self.host, self.port),
            Err(_) => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for FarHost {
    type Err = FarHostError;

    fn from_str(text: &str) -> Result<Self, FarHostError> {
        let bad = |reason| FarHostError { text: text.to_owned(), reason };
        let port = |digits: &str| match digits.parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(bad("the port is a number from 1 to 65535")),
        };
        if text.parse::<Ipv6Addr>().is_ok() {
            return Ok(Self { host: text.to_owned(), port: PORT });
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or_else(|| bad("the ']' is missing"))?;
            // A zone may follow the address: only the resolver knows which there are.
            if host.split('%').next().is_none_or(|address| address.parse::<Ipv6Addr>().is_err()) {
                return Err(bad("between '[' and ']' is an IPv6 address"));
            }
            let port = match rest.strip_prefix(':') {
                Some(digits) => port(digits)?,
                None if rest.is_empty() => PORT,
                None => return Err(bad("after ']' comes ':' and the port")),
            };
            return Ok(Self { host: host.to_owned(), port });
        }
        if text.contains('/') {
            return Err(bad("it stands alone, without a scheme in front and a path behind"));
        }
        let (host, port) = match text.split_once(':') {
            Some((host, digits)) => (host, port(digits)?),
            None => (text, PORT),
        };
        if host.contains('@') {
            return Err(bad("the key says who connects: leave out the user and its @"));
        }
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(bad("write HOST, HOST:PORT or [IPV6]:PORT"));
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// Why a far end has no address.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The name is unknown.
    #[error("find host {host}")]
    Unknown {
        /// The name.
        host: String,
        /// The resolver's own words.
        source: io::Error,
    },
    /// The name is known and leads nowhere.
    #[error("host {host} has no address")]
    NoAddress {
        /// The name.
        host: String,
    },
}

/// Why what somebody wrote is no far end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a host: {reason}")]
pub struct FarHostError {
    /// As given.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, host, port) in [
            ("b", "b", PORT),
            ("dtn.example.org:99", "dtn.example.org", 99),
            ("198.18.0.2", "198.18.0.2", PORT),
            ("::1", "::1", PORT),
            ("[::1]", "::1", PORT),
            ("[2001:2::1]:7", "2001:2::1", 7),
        ] {
            assert_eq!(text.parse(), Ok(FarHost { host: host.into(), port }), "{text}");
        }
        assert_eq!("::1".parse::<FarHost>().unwrap().to_string(), "[::1]:5210");
        assert_eq!("[fe80::1%eth0]".parse::<FarHost>().unwrap().to_string(), "[fe80::1%eth0]:5210");
    }

    #[test]
    fn says_what_is_wrong() {
        for text in
            ["", "b:", "b:0", "b:70000", "[::1", "[::1]7", "[b]:7", "a b", "http://b", ":7", "me@b", "me@b:7"]
        {
            let error = text.parse::<FarHost>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not a host: ")), "{error}");
        }
    }
}
