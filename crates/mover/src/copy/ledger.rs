//! What is known of a file transfer over all its attempts.

use std::collections::HashSet;

use farlink_host::clock::rfc3339_before;
use farlink_wire::quantity::Nanos;
use farlink_wire::record::Record;

use super::again::Again;
use super::file_event::{Became, FileEvent};
use super::plan::{Listener, Notice, Plan, Summary};
use super::record;
use super::target::WAS_COPIED;

/// What is known of a transfer over all its attempts.
pub(super) struct Ledger<'a> {
    pub(super) record: Record,
    pub(super) summary: Summary,
    pub(super) listener: &'a mut dyn Listener,
    report: bool,
    pub(super) began: Nanos,
    pub(super) start: Option<Nanos>,
    /// Whether anything was copied in any of the attempts, or content came.
    pub(super) begun: bool,
    /// Whether an attempt came farther than all before it, since this was lowered; and the bytes that were there in the one that came farthest.
    pub(super) went_on: bool,
    pub(super) farthest: u64,
    pub(super) again: Again,
    /// Directories that were said, or will be, to be copied and are not as they should be.
    unfinished: HashSet<String>,
    /// Whether the destination itself was copied as one: otherwise it is only where things were put.
    has_root: bool,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(plan: &Plan, listener: &'a mut dyn Listener) -> Self {
        let record = record::opened(plan, rfc3339_before(Nanos::ZERO));
        Self {
            record,
            summary: Summary::default(),
            listener,
            report: plan.report,
            began: plan.began,
            start: None,
            begun: false,
            went_on: false,
            farthest: 0,
            again: Again::default(),
            unfinished: HashSet::new(),
            has_root: false,
        }
    }

    /// Another attempt begins, which tells of every name anew.
    pub(super) fn begin_again(&mut self) {
        self.listener.hear(Notice::Again);
        self.summary = Summary::default();
        self.again = Again::default();
        self.unfinished.clear();
        self.has_root = false;
    }

    /// The names that failed for good.
    pub(super) fn tell_what_failed(&mut self) {
        for event in self.again.end() {
            self.on_event(event);
        }
        let mut unfinished = std::mem::take(&mut self.unfinished);
        if !self.has_root {
            unfinished.remove(ROOT);
        }
        self.summary.entries = self.summary.entries.saturating_sub(unfinished.len() as u64);
    }

    pub(super) fn warn(&mut self, text: String) {
        self.listener.hear(Notice::Warning(text));
    }

    pub(super) fn on_events(&mut self, events: Vec<FileEvent>) {
        for event in events {
            if let Some(event) = self.again.take(event) {
                self.on_event(event);
            }
        }
    }

    fn on_event(&mut self, event: FileEvent) {
        let well = match event.what {
            Became::Copied => true,
            Became::Same => {
                self.summary.same += event.bytes;
                true
            }
            Became::Skipped(_) => {
                self.summary.skipped += 1;
                false
            }
            Became::Failed(ref reason) | Became::Abandoned(ref reason) => {
                self.summary.failed += 1;
                self.summary.bare += u64::from(reason.contains(WAS_COPIED));
                false
            }
            // One that is on no disk, and has not its mode, has failed once.
            Became::Unfinished(_) if self.unfinished.contains(&event.path) => false,
            Became::Unfinished(_) => {
                self.summary.failed += 1;
                self.unfinished.insert(event.path.clone());
                false
            }
        };
        if well {
            self.has_root |= event.path == ROOT;
            self.summary.entries += 1;
            self.summary.bytes += event.bytes;
        }
        if self.report || !well {
            self.listener.hear(Notice::File(event));
        }
    }
}

/// The destination, as names beneath it are written.
const ROOT: &str = ".";
