//! A quantity together with the words in which it was asked for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What someone wrote, and what it means. It travels as the words, so that nothing is rounded on its way to the
/// emulation, and is understood again where it arrives: what does not mean anything is refused there too.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked<T> {
    words: String,
    value: T,
}

impl<T: Copy> Asked<T> {
    /// What the words mean.
    pub const fn value(&self) -> T {
        self.value
    }
}

impl<T: FromStr> FromStr for Asked<T> {
    type Err = T::Err;

    fn from_str(words: &str) -> Result<Self, T::Err> {
        Ok(Self { value: words.parse()?, words: words.to_owned() })
    }
}

impl<T> fmt::Display for Asked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl<T> Serialize for Asked<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.words)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Asked<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use farlink_wire::quantity::Nanos;

    use super::*;

    #[test]
    fn it_travels_unrounded() {
        let asked: Asked<Nanos> = "91.6004567ms".parse().unwrap();
        let back: Asked<Nanos> = serde_json::from_str(&serde_json::to_string(&asked).unwrap()).unwrap();
        assert_eq!((back.value(), back.to_string()), (Nanos(91_600_457), "91.6004567ms".to_owned()));
    }

    #[test]
    fn words_without_a_meaning_are_refused_wherever_they_arrive() {
        let refused = serde_json::from_str::<Asked<Nanos>>("\"183\"").unwrap_err().to_string();
        assert!(refused.starts_with("\"183\" has no unit"), "{refused}");
    }
}
