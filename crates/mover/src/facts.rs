//! What an end says of its host.

use farlink_host::process;
use farlink_wire::message::Host;
use farlink_wire::record::HostFacts;

/// This host, as it is told to the far end.
#[must_use]
pub fn host() -> Host {
    Host {
        name: process::host_name().into(),
        kernel: process::kernel_release().into(),
        cores: process::cores(),
        clock: process::clock_name().into(),
    }
}

/// A host, as a record keeps it.
#[must_use]
pub fn recorded(host: &Host) -> HostFacts {
    HostFacts { kernel: host.kernel.to_string(), cores: host.cores, ..HostFacts::default() }
}
