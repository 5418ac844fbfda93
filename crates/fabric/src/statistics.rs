//! What an endpoint did, as `FARLINK_STATS` wants it: a line of JSON at its end, and one when it first loses a peer, as MPI may end the process
//! then.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

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

/// Where an endpoint's figures go, and whose they are.
#[derive(Debug)]
pub(crate) struct Statistics {
    file: PathBuf,
    rank: Option<u64>,
    transport: String,
    seed: u64,
    /// Who this is, to people.
    speaker: String,
    /// Whether it was said that they cannot be written.
    is_told: Cell<bool>,
}

impl Statistics {
    /// Of an endpoint whose random choices come from `seed`, where `settings` want any.
    pub(crate) fn of(settings: &Settings, seed: u64, speaker: &str) -> Option<Self> {
        settings.statistics.as_ref().map(|file| Self {
            file: file.clone(),
            rank: settings.rank,
            transport: settings.transport_name.clone(),
            seed,
            speaker: speaker.to_owned(),
            is_told: Cell::new(false),
        })
    }

    /// Sees at the start that they can be written: at the end it would be too late to mend.
    pub(crate) fn try_file(&self) {
        self.append("");
    }

    /// Writes a line: `closed` where it is the endpoint's last.
    pub(crate) fn write(
        &self,
        closed: bool,
        bytes_of_rings: usize,
        of_endpoint: impl IntoIterator<Item = (&'static str, u64)>,
        counts: &Counts,
    ) {
        let mut line = Map::new();
        line.insert("pid".to_owned(), std::process::id().into());
        line.insert("rank".to_owned(), self.rank.map_or(Value::Null, Value::from));
        line.insert("transport".to_owned(), self.transport.clone().into());
        line.insert("seed".to_owned(), self.seed.into());
        line.insert("closed".to_owned(), closed.into());
        line.insert("bytes_of_rings".to_owned(), bytes_of_rings.into());
        for (name, value) in of_endpoint.into_iter().chain(counts.figures()) {
            line.insert(name.to_owned(), value.into());
        }
        self.append(&format!("{}\n", Value::Object(line)));
    }

    /// By one write, so that processes may share the file.
    fn append(&self, line: &str) {
        let file = OpenOptions::new().create(true).append(true).open(&self.file);
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes()))
            && !self.is_told.replace(true)
        {
            complain(format_args!(
                "{} cannot write its line to FARLINK_STATS {}: {error}",
                self.speaker,
                self.file.display()
            ));
        }
    }
}
