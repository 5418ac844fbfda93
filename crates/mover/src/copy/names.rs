//! What a copy is called, by which it is found again.

use farlink_host::{namespace, process};
use farlink_wire::message::Way;
use farlink_wire::message::copy::Place;

use super::plan::Plan;
use super::source::{absolute, plain};

/// The names of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Names partial files: the same for the same copy by the same user of the same host.
    pub(super) key: [u8; 16],
    /// Names the command, by what it selects of the copy, too: two that copy other parts of a tree at once are two.
    pub(super) command: [u8; 16],
}

impl Names {
    /// Those of `plan`.
    pub(super) fn of(plan: &Plan) -> Self {
        let forward = plan.way == Way::Forward;
        // What is on this host is the same only from the same directory, and everywhere however it is spelled.
        let whole = |place: &Place, near: bool| {
            let is_here = near || plan.far.is_local();
            let path = Some(place.as_bytes()).filter(|_| is_here).and_then(|path| absolute(path).ok());
            let mut path = plain(&path.unwrap_or_else(|| place.as_bytes().to_vec()));
            if path.ends_with(b"/.") {
                path.pop();
            }
            if path.starts_with(b"./") && path.len() > 2 {
                path.drain(..2);
            }
            path
        };
        let mut name = Name::new("farlink 2026-11-27 name of a copy");
        name.add(process::host_name().as_bytes());
        // Of two users neither may write to the other's partial file.
        name.add(&namespace::user().to_be_bytes());
        name.add(plan.far.to_string().as_bytes());
        name.add(if forward { b"to" } else { b"from" });
        for source in &plan.sources {
            name.add(&whole(source, forward));
        }
        // A slash behind it says that it is a directory: then so it is found, or made.
        let destination = whole(&plan.destination, !forward);
        name.add(destination.strip_suffix(b"/").unwrap_or(&destination));
        let key = name.finish();

        let mut name = Name::new("farlink 2026-11-23 name of a command that copies");
        name.add(&key);
        for rule in &plan.rules {
            name.add(if rule.include { b"+" } else { b"-" });
            name.add(rule.pattern.as_bytes());
        }
        for only in plan.names.iter().flatten() {
            name.add(b"=");
            name.add(only.as_bytes());
        }
        Self { key, command: name.finish() }
    }
}

/// A name that is made of words.
struct Name(blake3::Hasher);

impl Name {
    fn new(what: &str) -> Self {
        Self(blake3::Hasher::new_derive_key(what))
    }

    fn add(&mut self, word: &[u8]) {
        self.0.update(&(word.len() as u64).to_be_bytes());
        self.0.update(word);
    }

    fn finish(&self) -> [u8; 16] {
        let mut name = [0; 16];
        name.copy_from_slice(&self.0.finalize().as_bytes()[..16]);
        name
    }
}

#[cfg(test)]
pub(super) mod tests {
    use farlink_wire::message::copy::{Protect, Rule};
    use farlink_wire::quantity::Nanos;

    use super::*;
    use crate::far::Far;

    pub(in crate::copy) fn plan(source: &str, destination: &str) -> Plan {
        Plan {
            began: Nanos::ZERO,
            far: Far::Local,
            way: Way::Forward,
            bind: None,
            sources: vec![Place::new(source).unwrap()],
            destination: Place::new(destination).unwrap(),
            rules: Vec::new(),
            names: None,
            length: None,
            resume: None,
            update: false,
            protect: Protect::Clear,
            verify: true,
            fsync: false,
            read_back: false,
            limit: None,
            streams: None,
            congestion: None,
            declared: None,
            buffer: None,
            careful_resume: true,
            interval: Nanos(100_000_000).try_into().unwrap(),
            patience: Nanos(30_000_000_000).try_into().unwrap(),
            retries: 0,
            reason: None,
            report: false,
        }
    }

    #[test]
    fn what_is_selected_names_the_command_and_where_it_is_the_copy() {
        let first = Names::of(&plan("tree/", "/there"));
        assert_eq!(first, Names::of(&plan("tree/", "/there")));
        let rule = Rule { include: false, pattern: "*.tmp".to_owned() };
        let ruled = Names::of(&Plan { rules: vec![rule], ..plan("tree/", "/there") });
        let listed = |name: &str| {
            let names = Some(vec![Place::new(name).unwrap()]);
            Names::of(&Plan { names, ..plan("tree/", "/there") })
        };
        let commands = [first, ruled, listed("a"), listed("b")].map(|names| names.command);
        for (at, command) in commands.iter().enumerate() {
            assert!(!commands[..at].contains(command), "{at}");
        }
        assert!([ruled, listed("a")].iter().all(|names| names.key == first.key));
        // However it is spelled.
        for (source, destination) in [("./tree//", "/there/"), ("tree/./", "//there"), ("tree/.", "/there/.")]
        {
            assert_eq!(first, Names::of(&plan(source, destination)), "{source} {destination}");
        }
        assert_ne!(first.key, Names::of(&plan("tree", "/there")).key);
        // The same words from here, and another tree by them.
        let here = std::env::current_dir().unwrap();
        assert_eq!(first, Names::of(&plan(&format!("{}/tree/", here.display()), "/there")));
        assert_ne!(first.key, Names::of(&plan("/tree/", "/there")).key);
    }
}
