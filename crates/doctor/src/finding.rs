//! Something on the host that would keep a transfer from filling the path.

use std::fmt;

use farlink_wire::quantity::{BitsPerSec, Bytes};
use serde_json::json;

/// One such thing: what it is, what it should be for the path, what it costs and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is judged: a setting as sysctl(8) names it, or `MTU of eth0`.
    pub name: String,
    /// What it is.
    pub is: Value,
    /// What it should be for the path.
    pub should_be: Value,
    /// What it alone costs one TCP stream, bits per second; `None` where no formula tells.
    pub costs_bps: Option<u64>,
    /// The command that mends it; `None` where none does, or none that works from here.
    pub command: Option<String>,
    /// Why it matters, with the source.
    pub why: String,
    /// Whether mending it takes root.
    pub needs_root: bool,
    /// What an ordinary user may do meanwhile.
    pub without_root: Option<String>,
    /// Why a person should look before running the command; the script leaves such a one as a comment.
    pub caution: Option<String>,
}

/// What something is, or should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A size.
    Bytes(u64),
    /// The length of a packet, bytes.
    Length(u32),
    /// A rate, bits per second.
    Rate(u64),
    /// A number of packets.
    Packets(u64),
    /// A number of something else, or one that stands for a choice.
    Number(i64),
    /// A word.
    Word(String),
}

impl Finding {
    /// A finding that costs what no formula tells and that root mends.
    pub(crate) fn new(name: impl Into<String>, is: Value, should_be: Value, why: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            is,
            should_be,
            costs_bps: None,
            command: None,
            why: why.into(),
            needs_root: true,
            without_root: None,
            caution: None,
        }
    }

    pub(crate) fn costing(self, bps: u64) -> Self {
        Self { costs_bps: Some(bps), ..self }
    }

    pub(crate) fn mended_by(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }

    /// The object that programs read: every key is always there.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        json!({
            "name": self.name,
            "is": self.is.json(),
            "should_be": self.should_be.json(),
            "unit": self.is.unit(),
            "costs_bps": self.costs_bps,
            "command": self.command,
            "why": self.why,
            "needs_root": self.needs_root,
            "without_root": self.without_root,
            "caution": self.caution,
        })
    }
}

impl Value {
    fn json(&self) -> serde_json::Value {
        match self {
            Self::Bytes(number) | Self::Rate(number) | Self::Packets(number) => json!(number),
            Self::Length(number) => json!(number),
            Self::Number(number) => json!(number),
            Self::Word(word) => json!(word),
        }
    }

    const fn unit(&self) -> Option<&'static str> {
        match self {
            Self::Bytes(_) | Self::Length(_) => Some("B"),
            Self::Rate(_) => Some("bit/s"),
            Self::Packets(_) => Some("packets"),
            Self::Number(_) | Self::Word(_) => None,
        }
    }
}

impl From<&str> for Value {
    fn from(word: &str) -> Self {
        Self::Word(word.to_owned())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => Bytes(*bytes).fmt(f),
            Self::Length(bytes) => write!(f, "{bytes} B"),
            Self::Rate(bits) => match BitsPerSec::new(*bits) {
                Some(rate) => rate.fmt(f),
                None => f.write_str("0bit"),
            },
            Self::Packets(packets) => packets.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => f.write_str(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_there_and_numbers_are_numbers() {
        let finding = Finding::new("x", Value::Bytes(4096), Value::Bytes(8192), "because").costing(7);
        let json = finding.json();
        assert_eq!(json["is"], 4096);
        assert_eq!(json["unit"], "B");
        assert_eq!(json["costs_bps"], 7);
        assert!(json["command"].is_null() && json.as_object().unwrap().len() == 10);
    }
}
