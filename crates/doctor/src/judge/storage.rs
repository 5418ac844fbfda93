//! The disk, where its speed was measured.

use crate::facts::Facts;
use crate::finding::{Finding, Value};
use crate::path::NetworkPath;

pub(super) fn findings(facts: &Facts, path: NetworkPath) -> Vec<Finding> {
    let Some(disk) = &facts.disk else { return Vec::new() };
    let wanted = path.rate().get();
    let one = |doing: &str, is: u64| {
        let cache = if disk.direct { "" } else { ", with the kernel's cache in the way" };
        let why = format!(
            "measured with one file of {}, a request at a time, up to a second{cache}; memory-to-memory transfers need no disk",
            disk.bytes
        );
        let name = format!("disk {doing} in {}", disk.directory.display());
        let finding = Finding::new(name, Value::Rate(is), Value::Rate(wanted), why);
        (is < wanted).then(|| Finding { needs_root: false, ..finding.costing(wanted - is) })
    };
    [one("write", disk.write_bps), one("read", disk.read_bps)].into_iter().flatten().collect()
}
