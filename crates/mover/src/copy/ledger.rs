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
    /// Directories that were said, or will be, to be copied and are not as they should be: for both ends one may be so.
    unfinished: HashSet<String>,
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
        }
    }

    /// Another attempt begins, which tells of every name anew.
    pub(super) fn begin_again(&mut self) {
        self.listener.hear(Notice::Again);
        self.summary = Summary::default();
        self.again = Again::default();
        self.unfinished.clear();
    }

    /// The names that failed for good.
    pub(super) fn tell_what_failed(&mut self) {
        for event in self.again.end() {
            self.on_event(event);
        }
        let unfinished = std::mem::take(&mut self.unfinished);
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
            Became::Lacking(lack, _) => {
                match lack {
                    Lack::Skipped => self.summary.skipped += 1,
                    Lack::Failed | Lack::Abandoned => self.summary.failed += 1,
                    Lack::Bare => {
                        self.summary.failed += 1;
                        self.summary.bare += 1;
                    }
                    Lack::Unfinished => {
                        let is_news = self.unfinished.insert(event.path.clone());
                        self.summary.failed += u64::from(is_news);
                    }
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
