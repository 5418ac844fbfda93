//! The host's processors: their clock frequency's governor, and the clock that they tell the time by.

use std::collections::BTreeSet;

use crate::kernel_files::{KernelFiles, numbers};
use crate::process;

/// What bears on how fast packets are handled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// Logical processors that this process may use.
    pub cores: u32,
    /// The governors of the processors' clock frequency (cpufreq), each once; none where there are none, as on most
    /// virtual machines.
    pub governors: BTreeSet<String>,
    /// The governors that every processor has to choose from.
    pub governors_available: BTreeSet<String>,
    /// What the kernel tells the time by.
    pub clock_source: Option<String>,
    /// What else it could.
    pub clock_sources: Vec<String>,
    /// How many NUMA nodes have processors.
    pub nodes: usize,
}

impl Processor {
    /// Reads it.
    pub fn read(files: &mut KernelFiles) -> Self {
        let mut governors = BTreeSet::new();
        let mut available: Option<BTreeSet<String>> = None;
        for name in files.names(CPUS) {
            let number = name.strip_prefix("cpu").and_then(|number| number.parse::<u32>().ok());
            if number.is_none() {
                continue;
            }
            let frequency = format!("{CPUS}/{name}/cpufreq");
            governors.extend(files.text(format!("{frequency}/scaling_governor")));
            if let Some(list) = files.text(format!("{frequency}/scaling_available_governors")) {
                let list: BTreeSet<_> = list.split_whitespace().map(str::to_owned).collect();
                available = Some(available.map_or(list.clone(), |all| &all & &list));
            }
        }
        let sources = files.text(format!("{CLOCK}/available_clocksource")).unwrap_or_default();
        Self {
            cores: process::cores(),
            governors,
            governors_available: available.unwrap_or_default(),
            clock_source: files.text(format!("{CLOCK}/current_clocksource")),
            clock_sources: sources.split_whitespace().map(str::to_owned).collect(),
            nodes: numbers(&files.text(NODES).unwrap_or_default()).len(),
        }
    }
}

const CPUS: &str = "/sys/devices/system/cpu";
const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0";
const NODES: &str = "/sys/devices/system/node/has_cpu";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_source_in_use_is_one_of_the_available() {
        let processor = Processor::read(&mut KernelFiles::default());
        assert!(processor.cores >= 1);
        if let Some(source) = &processor.clock_source {
            assert!(processor.clock_sources.contains(source), "{processor:?}");
        }
    }
}
