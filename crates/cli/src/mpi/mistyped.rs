//! Names of variables that are nearly Farlink's: whoever sets one believes to have said something.

use std::ffi::OsString;
use std::net::IpAddr;

use farlink_flow::fabric::settings::VARIABLES;

use super::environment::JOB_KEY;

/// A line for each variable of `environment` whose name is nearly one of Farlink's.
pub(crate) fn complaints(environment: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let mut all: Vec<_> = environment.filter_map(|(name, value)| complaint(name.to_str()?, &value)).collect();
    all.sort();
    all
}

fn complaint(name: &str, value: &OsString) -> Option<String> {
    let written = name.to_ascii_uppercase();
    let said = written.strip_prefix(PREFIX)?;
    // Emulated hosts are called as their user likes, and have their addresses in such variables.
    let is_address = || value.to_str().is_some_and(|value| value.parse::<IpAddr>().is_ok());
    if VARIABLES.contains(&name) || name == JOB_KEY || is_address() {
        return None;
    }
    let likeness = |its: &str| strsim::normalized_damerau_levenshtein(said, &its[PREFIX.len()..]);
    let all = VARIABLES.into_iter().chain([JOB_KEY]);
    let nearest = all.max_by(|one, two| likeness(one).total_cmp(&likeness(two)))?;
    let is_near = likeness(nearest) >= NEAR;
    is_near.then(|| {
        format!("farlink: {name} is no variable of Farlink's and changes nothing: is {nearest} meant?")
    })
}

const PREFIX: &str = "FARLINK_";

/// Of one that is nearly another, from 0 to 1: `TIMEOUT` is as near to `PEER_TIMEOUT`, and hardly a name of something else is.
const NEAR: f64 = 0.55;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str) -> Vec<String> {
        complaints([(name.into(), value.into())].into_iter())
    }

    #[test]
    fn what_is_nearly_a_variable_is_told() {
        for (name, meant) in [
            ("FARLINK_TRANSPROT", "FARLINK_TRANSPORT"),
            ("FARLINK_TIMEOUT", "FARLINK_PEER_TIMEOUT"),
            ("FARLINK_POLICY", "FARLINK_DCI_POLICY"),
            ("FARLINK_DCI", "FARLINK_DCIS"),
            ("FARLINK_STAT", "FARLINK_STATS"),
            ("FARLINK_JOBKEY", "FARLINK_JOB_KEY"),
            ("farlink_rate", "FARLINK_RATE"),
        ] {
            let [line] = of(name, "1").try_into().unwrap();
            assert!(line.contains(&format!("{name} is no variable")), "{line}");
            assert!(line.ends_with(&format!("is {meant} meant?")), "{line}");
        }
    }

    #[test]
    fn names_of_others_are_let_be() {
        for name in VARIABLES {
            assert_eq!(of(name, "1"), [""; 0]);
        }
        for (name, value) in [
            ("FARLINK_NAME", "pair-17"),
            ("FARLINK_PROOF", "/tmp/x"),
            ("FARLINK_JOB_KEY", "00"),
            ("FARLINK_RAT", "10.0.0.1"),
            ("FARLINK_RAT6", "fd00::1"),
            ("FARLINK_HOME", "/opt/farlink"),
            ("OMPI_MCA_FARLINK_RAT", "1"),
        ] {
            assert_eq!(of(name, value), [""; 0], "{name}");
        }
    }
}
