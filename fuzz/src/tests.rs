use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::sample::Index;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 20] = [
    ("quantity", crate::quantity),
    ("record", crate::record),
    ("profile_model", crate::profile_model),
    ("superpacket", crate::superpacket),
    ("membership", crate::membership),
    ("greeting", crate::greeting),
    ("message", crate::message),
    ("key", crate::key),
    ("bootstrap", crate::bootstrap),
    ("link", crate::link),
    ("path", crate::path),
    ("frame", crate::frame),
    ("journal", crate::journal),
    ("packet", crate::packet),
    ("control", crate::control),
    ("schedule", crate::schedule),
    ("fabric_address", crate::fabric_address),
    ("fabric_datagram", crate::fabric_datagram),
    ("fabric_frame", crate::fabric_frame),
    ("fabric_parity", crate::fabric_parity),
];

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    entries.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
}

#[test]
fn every_target_survives_its_seeds() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in seeds {
            target(&seed);
        }
    }
}

#[test]
fn seeds_of_the_fabric_are_of_its_version() {
    let version = farlink_wire::fabric::VERSION;
    for (name, at) in [("fabric_datagram", 0), ("fabric_address", 8)] {
        let others = seeds(name).iter().filter(|seed| seed[at] != version).count();
        assert_eq!(others, 1, "{name}: all but one seed are to be read beyond their version, {version}");
    }
}

#[test]
fn every_target_is_in_the_manifest_and_has_a_file() {
    let manifest = include_str!("../Cargo.toml");
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
}

proptest::proptest! {
    #[test]
    fn every_target_survives_noise(data in vec(0u8.., 0..400)) {
        for (_, target) in TARGETS {
            target(&data);
        }
    }

    /// Noise alone seldom gets past a magic number: damaged seeds do.
    #[test]
    fn every_target_survives_damaged_seeds(
        seed: Index, damage in vec((0u8.., proptest::arbitrary::any::<Index>()), 0..6), end: Index,
    ) {
        for (name, target) in TARGETS {
            let seeds = seeds(name);
            let mut data = seed.get(&seeds).clone();
            for (byte, at) in &damage {
                if !data.is_empty() {
                    let at = at.index(data.len());
                    data[at] = *byte;
                }
            }
            data.truncate(end.index(data.len() + 1));
            target(&data);
        }
    }
}
