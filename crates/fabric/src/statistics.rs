//! What an endpoint did, as `FARLINK_STATS` wants it: a line of JSON.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use farlink_flow::fabric::settings::Settings;
use serde_json::{Map, Value};

use crate::complaint::complain;

/// What the driver did.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Times that it looked for what had come.
    pub(crate) rounds: u64,
    /// Of those, by the progress thread.
    pub(crate) rounds_of_thread: u64,
    /// Calls that received, and what they did.
    pub(crate) runs_in: u64,
    pub(crate) datagrams_in: u64,
    /// Calls that sent, and what they did.
    pub(crate) runs_out: u64,
    pub(crate) datagrams_out: u64,
    /// Calls that found the socket full.
    pub(crate) full: u64,
    /// Calls that failed.
    faults: u64,
}

impl Counts {
    /// A call failed: said once.
    pub(crate) fn fault(&mut self, verb: &str, error: &io::Error) {
        if self.faults == 0 {
            complain(format_args!("{verb} datagrams: {error}"));
        }
        self.faults += 1;
    }

    const fn figures(&self) -> [(&'static str, u64); 8] {
        [
            ("driver_rounds", self.rounds),
            ("driver_rounds_of_thread", self.rounds_of_thread),
            ("socket_reads", self.runs_in),
            ("datagrams_in", self.datagrams_in),
            ("socket_writes", self.runs_out),
            ("datagrams_out", self.datagrams_out),
            ("socket_full", self.full),
            ("socket_faults", self.faults),
        ]
    }
}

/// All of it in one line.
pub(crate) fn line(
    settings: &Settings,
    bytes_of_rings: usize,
    of_endpoint: impl IntoIterator<Item = (&'static str, u64)>,
    counts: &Counts,
) -> String {
    let mut line = Map::new();
    line.insert("pid".to_owned(), std::process::id().into());
    line.insert("rank".to_owned(), settings.rank.map_or(Value::Null, Value::from));
    line.insert("transport".to_owned(), settings.transport_name.clone().into());
    line.insert("bytes_of_rings".to_owned(), bytes_of_rings.into());
    for (name, value) in of_endpoint.into_iter().chain(counts.figures()) {
        line.insert(name.to_owned(), value.into());
    }
    format!("{}\n", Value::Object(line))
}

/// Appends it by one write, so that processes may share the file.
pub(crate) fn append(file: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}
