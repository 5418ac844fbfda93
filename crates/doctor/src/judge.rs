//! Facts and a path in, findings out. One file per part of the host; each finding comes from one function.

mod buffers;
mod congestion;
mod interface;
mod processor;
mod protocol;
mod storage;

use std::cmp::Reverse;

use farlink_host::shell::quoted;
use farlink_host::sysctl::Settings;

use crate::facts::Facts;
use crate::finding::Finding;
use crate::path::NetworkPath;

/// Everything that would keep a transfer from filling `path`, the costliest first; what has no known cost comes last.
///
/// Each cost is what that alone takes from one TCP stream: costs do not add up, the narrowest place decides.
#[must_use]
pub fn examine(facts: &Facts, path: NetworkPath) -> Vec<Finding> {
    let mut found = buffers::findings(facts, path);
    found.extend(protocol::findings(facts, path));
    found.extend(congestion::findings(facts, path));
    found.extend(interface::findings(facts, path));
    found.extend(processor::findings(facts, path));
    found.extend(storage::findings(facts, path));
    found.sort_by_key(|finding| Reverse(finding.costs_bps));
    found
}

/// What could not be examined, and how it could.
#[must_use]
pub fn unexamined(facts: &Facts) -> Vec<String> {
    let mut parts = Vec::new();
    if facts.disk.is_none() {
        parts.push("the disk (--disk DIR measures it)".to_owned());
    }
    match &facts.path_mtu {
        None => parts.push("the path's MTU (--to HOST measures it)".to_owned()),
        Some(found) if !found.answered => parts.push(format!(
            "whether packets of {} bytes arrive at {} (it did not answer, nor did a router refuse them)",
            found.bytes, found.host
        )),
        Some(_) => {}
    }
    for name in NOT_EVERYWHERE {
        if facts.settings.setting(name).is_none() {
            parts.push(format!("{name} (not shown in this network namespace)"));
        }
    }
    for nic in facts.nics.iter().filter(|nic| nic.hardware && nic.speed.is_none()) {
        parts.push(format!("the rate of {} (its driver does not tell)", nic.name));
    }
    parts
}

/// What root would add to what this user got; empty for root.
#[must_use]
pub fn root_would_add(facts: &Facts, findings: &[Finding]) -> Vec<String> {
    let mut parts = Vec::new();
    if facts.is_root {
        return parts;
    }
    if findings.iter().any(|finding| finding.needs_root && finding.command.is_some()) {
        parts.push("the commands".to_owned());
    }
    if findings
        .iter()
        .any(|finding| matches!(finding.name.as_str(), "net.core.rmem_max" | "net.core.wmem_max"))
    {
        parts.push("buffers beyond net.core.rmem_max and wmem_max".to_owned());
    }
    if facts
        .programs
        .iter()
        .any(|program| program.missing.as_ref().is_some_and(|missing| missing.for_want_of_rights))
    {
        let names: Vec<_> = facts.programs.iter().map(|program| program.name.as_str()).collect();
        parts.push(format!("the congestion controls {}", names.join(", ")));
    }
    parts.extend(facts.denied.iter().map(|path| format!("what {} says", path.display())));
    parts
}

/// `finding` with the command that makes the setting `text`, where it can be changed from here.
fn set(finding: Finding, settings: &Settings, name: &str, text: &str) -> Finding {
    if settings.setting(name).is_some_and(|setting| setting.writable) {
        return finding.mended_by(format!("sysctl -w {}", quoted(&format!("{name}={text}"))));
    }
    outside(finding)
}

/// `finding` that no command from here mends.
fn outside(finding: Finding) -> Finding {
    let why = finding.why + "; it can be changed only outside this network namespace";
    Finding { why, ..finding }
}

/// Settings that only the first network namespace shows, in some or all kernels.
const NOT_EVERYWHERE: [&str; 4] =
    ["net.core.rmem_max", "net.core.wmem_max", "net.core.netdev_max_backlog", "net.ipv4.tcp_mem"];

#[cfg(test)]
mod tests;
