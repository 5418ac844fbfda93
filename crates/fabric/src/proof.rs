//! What shows `farlink mpi run` that this process's messages go this way: a line in the directory that `FARLINK_PROOF` names.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use farlink_flow::fabric::settings::Settings;
use farlink_host::process;
use serde_json::json;

/// Leaves the line of an endpoint. A host that does not share the launcher's files has no such directory, and nothing is left there.
pub(crate) fn leave(directory: &Path, endpoint: u64, settings: &Settings) -> io::Result<()> {
    let path = directory.join(format!("{endpoint:016x}"));
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(line(settings).as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn line(settings: &Settings) -> String {
    let line = json!({
        "host": process::host_name(),
        "rank": settings.rank,
        "local": settings.ranks_here,
        "transport": settings.transport_name,
    });
    format!("{line}\n")
}
