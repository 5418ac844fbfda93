//! A line of `known_hosts`: a far end, and the key that it must show.

use core::net::Ipv6Addr;
use std::fmt;
use std::str::FromStr;

use super::{KeyError, PublicKey, shown};

/// A far end and its key: `HOST[:PORT] KEY comment`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHost {
    /// A name, as people write it, or an address.
    pub host: String,
    /// Its port; that of `farlink serve` where absent.
    pub port: Option<u16>,
    /// What it must show.
    pub key: PublicKey,
}

impl KnownHost {
    /// Whether this is about `host` at `port`, where `usual` is the port that need not be written.
    #[must_use]
    pub fn is_about(&self, host: &str, port: u16, usual: u16) -> bool {
        self.host.eq_ignore_ascii_case(host) && self.port.unwrap_or(usual) == port
    }
}

impl FromStr for KnownHost {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut words = text.split_whitespace();
        let place = words.next().ok_or(KeyError::Missing)?;
        if place == PublicKey::KIND {
            return Err(KeyError::NoHost);
        }
        let (host, port) = place_of(place).ok_or_else(|| KeyError::Host { found: shown(place) })?;
        Ok(Self { host: host.to_owned(), port, key: PublicKey::from_words(&mut words)? })
    }
}

impl fmt::Display for KnownHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.port, self.host.contains(':')) {
            (Some(port), true) => write!(f, "[{}]:{port} {}", self.host, self.key),
            (Some(port), false) => write!(f, "{}:{port} {}", self.host, self.key),
            (None, _) => write!(f, "{} {}", self.host, self.key),
        }
    }
}

/// Host and port of `HOST`, `HOST:PORT`, `IPV6` or `[IPV6]:PORT`; a zone may follow an address (RFC 4007, 11).
fn place_of(text: &str) -> Option<(&str, Option<u16>)> {
    let is_ipv6 = |text: &str| match text.split_once('%') {
        Some((address, zone)) => !zone.is_empty() && address.parse::<Ipv6Addr>().is_ok(),
        None => text.parse::<Ipv6Addr>().is_ok(),
    };
    let port = |digits: &str| digits.parse().ok().filter(|port| *port > 0).map(Some);
    if !text.starts_with('[') && is_ipv6(text) {
        return Some((text, None));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').filter(|(host, _)| is_ipv6(host))?;
        return match rest.strip_prefix(':') {
            Some(digits) => Some((host, port(digits)?)),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    let (host, port) = match text.split_once(':') {
        Some((host, digits)) => (host, port(digits)?),
        None => (text, None),
    };
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    (!host.is_empty() && host.chars().all(plain)).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::super::tests::KEY;
    use super::*;

    #[test]
    fn a_line_is_about_a_host_and_a_port() {
        for (place, host, port) in [
            ("dtn2.example.org", "dtn2.example.org", None),
            ("b:99", "b", Some(99)),
            ("2001:2::1", "2001:2::1", None),
            ("[2001:2::1]:7", "2001:2::1", Some(7)),
            ("[::1]", "::1", None),
            ("fe80::1%eth0", "fe80::1%eth0", None),
            ("[fe80::1%eth0.7]:7", "fe80::1%eth0.7", Some(7)),
        ] {
            let line: KnownHost = format!("{place} {KEY} far away").parse().unwrap();
            assert_eq!((line.host.as_str(), line.port), (host, port), "{place}");
            assert_eq!(line.to_string().parse(), Ok(line.clone()), "{line}");
            assert!(line.is_about(&host.to_uppercase(), port.unwrap_or(5210), 5210));
            assert!(!line.is_about(host, 1, 5210) && !line.is_about("c", port.unwrap_or(5210), 5210));
        }
    }

    #[test]
    fn what_is_no_host_is_told_with_the_mend() {
        for place in ["b:", "b:0", "b:x", ":7", "[b]:7", "[::1]x", "::1%", "b%eth0", "a/b", "read=/x"] {
            let error = format!("{place} {KEY}").parse::<KnownHost>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{place:?} is no host: write HOST")), "{error}");
        }
        let error = KEY.parse::<KnownHost>().unwrap_err().to_string();
        assert!(error.starts_with("a key without a host: write HOST"), "{error}");
    }
}
