//! What is said through ssh before two ends can talk: one line of JSON each way, over the far end's standard streams.
//!
//! ```text
//! client                                              far end, which ssh started
//!   {"version":7,"key":"farlink-ed25519 …"}   ──►
//!                                             ◄──   farlink-far-end {"version":7,"key":"…","port":50000,"host":"dtn2"}
//! ```
//!
//! ssh has made sure of both ends; the keys that it carries are for this one occasion, and bind what follows over TCP to it.
//! Whatever a login shell prints before the answer is passed over. A client that cannot reach the far end's port asks by further lines
//! ([`Call`]) to be connected to.

use core::net::IpAddr;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::key::PublicKey;
use crate::message::{Text, Token, VERSION};

/// Bytes of the longest line, and of all that a login shell may print before it.
pub const MAX_LINES: usize = 64 * 1024;

/// What a client asks of a far end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// What the client speaks.
    pub version: u16,
    /// The one key that may come.
    pub key: PublicKey,
    /// Ports to listen on; any that is free where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Ports>,
    /// The address to listen on; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<IpAddr>,
}

impl Invitation {
    /// As a line.
    #[must_use]
    pub fn line(&self) -> String {
        // Infallible: every key is a string.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// The invitation that `line` is.
    ///
    /// # Errors
    /// [`BootstrapError`].
    pub fn parse(line: &str) -> Result<Self, BootstrapError> {
        check_version(line)?;
        serde_json::from_str(line).map_err(|error| malformed(&error))
    }
}

/// What a far end answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What the far end speaks.
    pub version: u16,
    /// The key that it will show, or why there is none.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Whether the far end listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It does.
    Ready {
        /// The key that it will show.
        key: PublicKey,
        /// Where it listens.
        port: u16,
        /// Its host's name.
        host: Text,
    },
    /// It cannot.
    Failed(Text),
}

impl Answer {
    /// What stands before the answer, in its line.
    pub const MARK: &str = "farlink-far-end ";

    /// As a line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}{}\n", Self::MARK, serde_json::to_string(self).unwrap_or_default())
    }

    /// The answer that `line` is; `None` where it is something else that was printed.
    ///
    /// # Errors
    /// [`BootstrapError`].
    pub fn parse(line: &str) -> Result<Option<Self>, BootstrapError> {
        // A login shell may have ended what it printed with no line.
        let Some((_, body)) = line.split_once(Self::MARK) else { return Ok(None) };
        check_version(body)?;
        serde_json::from_str(body).map(Some).map_err(|error| malformed(&error))
    }
}

/// What a client asks of a far end whose port it does not reach: to be connected to. Which end began a connection changes nothing else: it
/// is the client that begins TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Where the client listens.
    pub port: u16,
    /// Connections, 1 to [`Call::MOST`].
    pub count: u16,
    /// The client's address; where ssh came from, where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// What each connection says first: whoever did not hear it by ssh is somebody else.
    pub secret: Token,
}

impl Call {
    /// Connections that one line asks for.
    pub const MOST: u16 = 1024;

    /// As a line.
    #[must_use]
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// The call that `line` is.
    ///
    /// # Errors
    /// [`BootstrapError`].
    pub fn parse(line: &str) -> Result<Self, BootstrapError> {
        let call: Self = serde_json::from_str(line).map_err(|error| malformed(&error))?;
        if call.port == 0 || !(1..=Self::MOST).contains(&call.count) {
            return Err(BootstrapError::Call { port: call.port, count: call.count });
        }
        Ok(call)
    }
}

/// Another version may say other things: what it speaks is read first.
fn check_version(body: &str) -> Result<(), BootstrapError> {
    #[derive(Deserialize)]
    struct Spoken {
        version: u16,
    }
    let spoken: Spoken = serde_json::from_str(body).map_err(|error| malformed(&error))?;
    match spoken.version {
        VERSION => Ok(()),
        theirs => Err(BootstrapError::Version { theirs, ours: VERSION }),
    }
}

/// TCP ports from one to another: `50000-50100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Those at which a server may listen: the one after each is in the range too, for the data of circuits.
    pub fn candidates(self) -> impl Iterator<Item = u16> {
        self.first..self.last
    }
}

impl FromStr for Ports {
    type Err = PortsError;

    fn from_str(text: &str) -> Result<Self, PortsError> {
        let bad = |reason| PortsError { text: text.chars().take(40).collect(), reason };
        let (first, last) = text.split_once('-').ok_or_else(|| bad("write FIRST-LAST, as in 50000-50100"))?;
        let number = |digits: &str| match digits.trim().parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(bad("a port is a number from 1 to 65535")),
        };
        let (first, last) = (number(first)?, number(last)?);
        if first >= last {
            return Err(bad("it takes two ports at least, the lower first"));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl TryFrom<String> for Ports {
    type Error = PortsError;

    fn try_from(text: String) -> Result<Self, PortsError> {
        text.parse()
    }
}

impl From<Ports> for String {
    fn from(ports: Ports) -> Self {
        ports.to_string()
    }
}

/// Why ports were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no range of ports: {reason}")]
pub struct PortsError {
    /// As given.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Why a line is no invitation and no answer.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// Ours, of another version.
    #[error(
        "the far side speaks version {theirs}, this is version {ours}: install the same release at both ends"
    )]
    Version {
        /// What the far side speaks.
        theirs: u16,
        /// What we speak.
        ours: u16,
    },
    /// Nobody calls so.
    #[error("a call for {count} connections to port {port}: 1 to {} to a port that is not 0", Call::MOST)]
    Call {
        /// Which port.
        port: u16,
        /// How many.
        count: u16,
    },
    /// Not one of ours, or out of bounds.
    #[error("a malformed line: {0}")]
    Malformed(Text),
}

/// What a peer wrote is in the parser's words, and they go to a log or a terminal.
fn malformed(error: &serde_json::Error) -> BootstrapError {
    BootstrapError::Malformed(error.to_string().into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn invitation() -> Invitation {
        let ports = "50000-50100".parse().ok();
        Invitation { version: VERSION, key: PublicKey([1; 32]), ports, bind: "::1".parse().ok() }
    }

    #[test]
    fn both_lines_read_back() {
        assert_eq!(Invitation::parse(&invitation().line()).unwrap(), invitation());
        let ready = Outcome::Ready { key: PublicKey([2; 32]), port: 50_000, host: "dtn2".to_owned().into() };
        for outcome in [ready, Outcome::Failed("no port\nis free".to_owned().into())] {
            let answer = Answer { version: VERSION, outcome };
            assert_eq!(answer.line().matches('\n').count(), 1);
            assert_eq!(Answer::parse(&answer.line()).unwrap().as_ref(), Some(&answer));
            let behind = format!("\u{1b}]0;dtn2\u{7}{}", answer.line());
            assert_eq!(Answer::parse(&behind).unwrap(), Some(answer));
        }
    }

    #[test]
    fn a_call_reads_back_and_has_bounds() {
        for address in [None, "192.0.2.7".parse().ok()] {
            let call = Call { port: 50_001, count: 9, address, secret: Token([7; 16]) };
            assert_eq!(Call::parse(&call.line()).unwrap(), call);
        }
        let line = |port, count| Call { port, count, address: None, secret: Token([7; 16]) }.line();
        assert!(Call::parse(&line(1, 1)).is_ok());
        for line in [&line(0, 1), &line(1, 0), &line(1, 1025), "{}", "{\"port\":1,\"count\":1}"] {
            assert!(Call::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_a_shell_prints_is_no_answer() {
        assert_eq!(Answer::parse("Welcome to dtn2!\n").unwrap(), None);
        assert!(Answer::parse("farlink-far-end welcome\n").is_err());
    }

    #[test]
    fn another_version_is_named_whatever_else_it_says() {
        let error = Answer::parse("farlink-far-end {\"version\":9,\"news\":[]}").unwrap_err().to_string();
        assert!(error.starts_with("the far side speaks version 9, this is version "), "{error}");
        assert!(Invitation::parse("{\"version\":9}").unwrap_err().to_string().contains("version 9"));
        assert!(Invitation::parse("{}").unwrap_err().to_string().contains("malformed"));
    }

    #[test]
    fn a_range_has_two_ports_at_least() {
        let ports: Ports = "50000-50003".parse().unwrap();
        assert_eq!(ports.candidates().collect::<Vec<_>>(), [50_000, 50_001, 50_002]);
        for (text, said) in [
            ("50000", "write FIRST-LAST, as in 50000-50100"),
            ("0-9", "a port is a number from 1 to 65535"),
            ("9-70000", "a port is a number from 1 to 65535"),
            ("9-9", "it takes two ports at least, the lower first"),
            ("9-8", "it takes two ports at least, the lower first"),
        ] {
            let error = text.parse::<Ports>().unwrap_err().to_string();
            assert_eq!(error, format!("{text:?} is no range of ports: {said}"));
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_the_decoders_panic(line in "\\PC{0,200}") {
            let _ = (Invitation::parse(&line), Answer::parse(&line), Answer::parse(&format!("{}{line}", Answer::MARK)));
            let _ = Call::parse(&line);
        }
    }
}
