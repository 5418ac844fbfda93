//! What is known of a file transfer over all its attempts.

use std::collections::HashSet;

use farlink_host::clock::rfc3339_before;
use farlink_wire::message::copy::Lack;
use farlink_wire::quantity::Nanos;
use farlink_wire::record::Record;

use super::again::Again;
use super::file_event::{Became, FileEvent};
use super::plan::{Listener, Notice, Plan, Summary};
use super::record;

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
    halves: Halves,
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
            halves: Halves::default(),
        }
    }

    /// Another attempt begins, which tells of every name anew.
    pub(super) fn begin_again(&mut self) {
        self.listener.hear(Notice::Again);
        self.summary = Summary::default();
        self.again = Again::default();
        self.halves = Halves::default();
    }

    /// The names that failed for good.
    pub(super) fn tell_what_failed(&mut self) {
        for event in self.again.end() {
            self.on_event(event);
        }
        self.summary.entries = self.summary.entries.saturating_sub(std::mem::take(&mut self.halves).count());
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
            Became::Same | Became::Newer => {
                self.summary.same += event.bytes;
                self.summary.newer += u64::from(event.what == Became::Newer);
                true
            }
            Became::Lacking(lack, _) => {
                match lack {
                    Lack::Skipped | Lack::Later => self.summary.skipped += 1,
                    // It is not even there: one failure, and none that was said to be copied.
                    Lack::Failed if self.halves.forget(&event.path) => {}
                    Lack::Failed | Lack::Abandoned | Lack::Current | Lack::Newer => self.summary.failed += 1,
                    Lack::Bare => {
                        self.summary.failed += 1;
                        self.summary.bare += 1;
                    }
                    Lack::Unfinished => self.summary.failed += u64::from(self.halves.add(&event.path)),
                }
                false
            }
        };
        if well {
            self.summary.entries += 1;
            self.summary.bytes += event.bytes;
        }
        if self.report || !well {
            self.listener.hear(Notice::File(event));
        }
    }
}

/// Directories that were said to be copied, or will be, and are not as they should be: both ends may find that of one, and it fails once.
#[derive(Debug, Default)]
pub(super) struct Halves {
    paths: HashSet<String>,
    /// Those beyond [`MOST_KEPT`].
    more: u64,
}

impl Halves {
    /// Whether it was not among them.
    pub(super) fn add(&mut self, path: &str) -> bool {
        if self.paths.contains(path) {
            return false;
        }
        if self.paths.len() < MOST_KEPT {
            self.paths.insert(path.to_owned());
        } else {
            self.more += 1;
        }
        true
    }

    /// Whether it was among them, as far as is known.
    fn forget(&mut self, path: &str) -> bool {
        self.paths.remove(path)
    }

    fn count(&self) -> u64 {
        self.paths.len() as u64 + self.more
    }
}

/// So many a far end can have kept here: 40 MB, where their paths are the longest.
const MOST_KEPT: usize = 10_000;
