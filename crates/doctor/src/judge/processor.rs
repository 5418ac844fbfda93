//! Processors, interrupts and the clock.

use std::collections::BTreeSet;

use farlink_host::nic::{Interrupt, Nic};

use crate::facts::Facts;
use crate::finding::{Finding, Value};
use crate::judge::interface::candidates;
use crate::path::NetworkPath;

pub(super) fn findings(facts: &Facts, path: NetworkPath) -> Vec<Finding> {
    let mut found: Vec<_> = [governor(facts), clock(facts)].into_iter().flatten().collect();
    found.extend(candidates(facts, path).into_iter().filter_map(|nic| interrupts(nic, facts)));
    found
}

fn governor(facts: &Facts) -> Option<Finding> {
    let processor = &facts.processor;
    let others: Vec<_> = processor.governors.iter().map(String::as_str).filter(|&one| one != FAST).collect();
    if others.is_empty() || !processor.governors_available.contains(FAST) {
        return None;
    }
    let why = "the clock frequency follows the load, and packets that come after a pause find a slow processor (the \
               kernel's Documentation/admin-guide/pm/cpufreq.rst): the cost depends on the processor";
    let command = format!(
        "for governor in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo {FAST} > \"$governor\"; done"
    );
    let finding = Finding::new("frequency governor", others.join(", ").as_str().into(), FAST.into(), why);
    Some(finding.mended_by(command))
}

fn clock(facts: &Facts) -> Option<Finding> {
    let is = facts.processor.clock_source.as_deref()?;
    if !SLOW_CLOCKS.contains(&is) {
        return None;
    }
    let better =
        FAST_CLOCKS.into_iter().find(|&one| facts.processor.clock_sources.iter().any(|have| have == one));
    let why = "reading this clock takes about a microsecond, and TCP reads it for every packet: the cost depends on \
               the processor";
    let why = match better {
        Some(_) => why.to_owned(),
        None => format!("{why}; the kernel offers no better one, and its log (dmesg) says why"),
    };
    let finding = Finding::new("clock source", is.into(), better.unwrap_or(FAST_CLOCKS[0]).into(), why);
    Some(match better {
        Some(better) => finding.mended_by(format!("echo {better} > {CLOCK_SOURCE}")),
        None => finding,
    })
}

/// Interrupts that all come to one processor though there are several queues, or to processors at another NUMA node.
fn interrupts(nic: &Nic, facts: &Facts) -> Option<Finding> {
    let name = format!("interrupts of {}", nic.name);
    let served: BTreeSet<_> = nic.interrupts.iter().flat_map(|interrupt| &interrupt.cpus).collect();
    let is_far = |one: &&Interrupt| !one.cpus.iter().any(|cpu| nic.near_cpus.contains(cpu));
    let knows_near = facts.processor.nodes > 1 && nic.numa_node.is_some() && !nic.near_cpus.is_empty();
    let far = if knows_near { nic.interrupts.iter().filter(is_far).count() } else { 0 };
    let near: Vec<_> =
        if nic.near_cpus.is_empty() { (0..facts.processor.cores).collect() } else { nic.near_cpus.clone() };
    let (is, should_be, why) = if far > 0 {
        let is = format!("{far} of {} at other NUMA nodes", nic.interrupts.len());
        let why = format!(
            "packets pass from one NUMA node to another on their way from {}: the cost depends on the processor",
            nic.name
        );
        (is, format!("on processors {}", list(&near)), why)
    } else if served.len() == 1 && near.len() > 1 && nic.queues.is_some_and(|queues| queues.now > 1) {
        let why = "one processor serves all queues: the cost depends on the processor".to_owned();
        ("all on one processor".to_owned(), "one processor each".to_owned(), why)
    } else {
        return None;
    };
    let commands: Vec<_> = nic
        .interrupts
        .iter()
        .zip(near.iter().cycle())
        .map(|(Interrupt { number, .. }, cpu)| format!("echo {cpu} > /proc/irq/{number}/smp_affinity_list"))
        .collect();
    let finding = Finding::new(name, Value::Word(is), Value::Word(should_be), why);
    let caution = "irqbalance, where it runs, moves them again".to_owned();
    Some(Finding { caution: Some(caution), ..finding.mended_by(commands.join(" && ")) })
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

const FAST: &str = "performance";
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Clocks outside the processor, and ticks (the kernel's Documentation/virt/kvm/x86/timekeeping.rst).
const SLOW_CLOCKS: [&str; 5] = ["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"];

/// Clocks that are read without leaving the processor, or the virtual machine.
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
