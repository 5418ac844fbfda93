//! The receiving end of a file transfer: what has come, what is stored, and what is to be said of it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use farlink_flow::arrivals::Arrivals;
use farlink_flow::numbers::Numbers;
use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_wire::entry::{Digest, Entry};
use farlink_wire::frame::{File, block_bytes};
use farlink_wire::message::Text;
use farlink_wire::message::copy::{Copy, Finished, Lack, Place, Rejected, Rejection, Verdict};
use farlink_wire::quantity::Nanos;

use super::CopyError;
use super::file_event::{Became, FileEvent};
use super::lost::Lost;
use super::samples::Samples;
use super::store::Store;
use super::target::{Target, TargetError};
use super::timing::{Stage, Timing};
use super::worker::Shared;
use crate::budget::{self, Budget, Portion};
use crate::chain;

mod blocks;
mod chores;
mod holes;
mod opening;
mod outbox;
mod packs;
mod progress;
mod proof;
mod read_back;
mod sender;
mod writers;

use chores::Chore;
pub(super) use holes::MOST_ZEROS;
use outbox::Outbox;
use writers::Writers;

/// How the receiving end goes about it.
#[derive(Debug)]
pub(crate) struct Manner {
    /// Where it writes.
    pub(crate) target: Target,
    /// Where everything goes, where that is a device that keeps nothing.
    pub(crate) sink: Option<fs::File>,
    /// Look at what has the final name before it is sent.
    pub(crate) resume: bool,
    /// Hash what comes, and check it.
    pub(crate) verify: bool,
    /// The secret of frames' tags, where they have some.
    pub(crate) seal: Option<[u8; 32]>,
    /// Whether what becomes of each name is of interest here.
    pub(crate) report: bool,
    /// Length of a sample.
    pub(crate) interval: Nanos,
    /// How long either end may be silent, of an earlier attempt, too.
    pub(crate) patience: Nanos,
    /// Whether what received in an attempt that broke may live on for a while, and keep its files: it is not of a process that has ended.
    pub(crate) lingers: bool,
    /// What files take while they are open, and names of directories, is of this.
    pub(crate) budget: Budget,
}

/// The receiving end. Its threads and the conversation share it.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) manner: Manner,
    pub(crate) timing: Timing,
    began: Nanos,
    state: Mutex<State>,
    opening: Mutex<()>,
    /// Who waits for something of the state is to look again.
    changed: Condvar,
    /// What the names of directories take.
    directories: Portion,
    /// What the numbers of files and packs take that are done with.
    numbers: Portion,
    wake: Wake,
    /// Raised when all threads are to end.
    pub(crate) halt: Wake,
}

#[derive(Debug, Default)]
struct State {
    arrivals: Arrivals,
    /// Packs that a connection has brought and is storing.
    storing: HashSet<u32>,
    /// Offers that were answered, or are being looked at, and packs that are stored: nearly one run, where each alone may be many.
    numbers: Numbers,
    files: HashMap<u32, Arc<Incoming>>,
    /// Files that the sender gave up and that are not closed yet, as something of them is open or being opened.
    given_up: HashSet<u32>,
    /// Files of which it is not known yet what is there from before, and whether a thread looks at them.
    unproven: VecDeque<Arc<Incoming>>,
    proving: bool,
    /// What is to be done, and whether a thread does it.
    chores: VecDeque<Chore>,
    at_chores: bool,
    /// Whether finishing is among them.
    settles: bool,
    outbox: Outbox,
    events: Vec<FileEvent>,
    samples: Samples,
    bytes: u64,
    done: u64,
    entries: u64,
    failed: u64,
    of: Option<(u64, u64)>,
    last: Nanos,
    lost: Vec<Lost>,
    /// Connections that are at work.
    streams: usize,
    finished: bool,
    /// Whether the sender gave up something that it had said, why comes by itself; and whether nothing more of that kind does.
    lacks: bool,
    knows_what_lacks: bool,
    over: bool,
    failure: Option<CopyError>,
    buffer: u64,
}

/// A file of which blocks come.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) frame: File,
    store: Store,
    digests: Mutex<Digests>,
    /// Whether it is known what is there from before.
    is_proven: AtomicBool,
    /// Whether it has its final name: nothing is written then. Held for reading while something is.
    closed: RwLock<bool>,
    /// Whose turn it is to write, of those who do: the kernel lets one thread write a file at a time, and has the others wait at a cost.
    turn: Mutex<Writers>,
    /// How often the disk had something else than was written.
    spoiled: AtomicU32,
    /// Bytes of holes that were hashed; whoever hashes some has it.
    zeros: Mutex<u64>,
    /// Whether anything of it came that was not there.
    is_new: AtomicBool,
    /// What its digests take.
    _portion: Portion,
}

#[derive(Debug, Default)]
struct Digests {
    blocks: Vec<Digest>,
    /// What was there before, until the sender says that it is the same.
    proven: HashMap<u32, Digest>,
    /// Whether every block was hashed.
    complete: bool,
}

impl Incoming {
    fn writers(&self) -> MutexGuard<'_, Writers> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Block `index` is no longer, or need no longer be known as, what was there from before; its digest, where it was.
    fn forget(&self, index: u32) -> Option<Digest> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner).proven.remove(&index)
    }
}

/// What became of a block's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// It is written, and its digest is this.
    Written(Digest),
    /// It could not be written, and its file was given up; or all is over.
    Dropped,
}

impl Receiving {
    pub(crate) fn new(manner: Manner, wake: Wake, halt: Wake) -> Arc<Self> {
        let began = monotonic();
        let (state, opening, changed) = (Mutex::default(), Mutex::default(), Condvar::new());
        let (directories, numbers) = (manner.budget.nothing(), manner.budget.nothing());
        let timing = Timing::new();
        Arc::new(Self { manner, timing, began, state, opening, changed, directories, numbers, wake, halt })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes came.
    pub(crate) fn on_bytes(&self, bytes: usize) {
        let now = monotonic();
        let at = now.since(self.began).0 / self.manner.interval.0;
        let mut state = self.state();
        state.samples.add(at, bytes as u64);
        state.bytes += bytes as u64;
        state.last = now;
    }

    /// A connection came.
    pub(crate) fn on_stream(&self) {
        self.state().streams += 1;
    }

    /// A connection has a receive buffer of `buffer` bytes.
    pub(crate) fn on_buffer(&self, buffer: u64) {
        let mut state = self.state();
        state.buffer = state.buffer.max(buffer);
    }

    /// A connection broke.
    pub(super) fn on_lost(&self, lost: Lost) {
        let mut state = self.state();
        state.streams = state.streams.saturating_sub(1);
        if state.finished || state.over {
            return;
        }
        state.outbox.say(Copy::Lost(lost.stream));
        state.lost.push(lost);
        drop(state);
        self.wake.raise();
    }

    /// Streams that were lost since this was asked last.
    pub(super) fn take_lost(&self) -> Vec<Lost> {
        std::mem::take(&mut self.state().lost)
    }

    /// All threads have ended: partial files that are left are for whoever comes next, now and not when the last thread is gone.
    pub(crate) fn let_go(&self) {
        let mut state = self.state();
        state.files.clear();
        state.unproven.clear();
        self.manner.target.leave_directories();
        self.manner.target.withdraw();
    }

    /// Why it cannot go on, where a thread found out; once.
    pub(crate) fn take_failure(&self) -> Option<CopyError> {
        self.state().failure.take()
    }

    /// Nothing more is taken of a sender whose numbers leave out more than an honest one's, or than there is memory for: each run of them
    /// takes some.
    fn check_numbers(&self, state: &State) -> Result<(), CopyError> {
        let runs = state.arrivals.runs() + state.numbers.runs();
        if runs > MOST_RUNS {
            return Err(CopyError::OutOfPlace { what: "numbers with more gaps than any tree has" });
        }
        // There is memory for the first, as for all that a copy takes.
        let more = budget::of_runs(runs.saturating_sub(RUNS_AT_ONCE));
        if self.numbers.is_at_least(more) || self.numbers.grow(budget::of_runs(RUNS_AT_ONCE)) {
            Ok(())
        } else {
            Err(CopyError::Memory)
        }
    }

    /// What becomes of `entry` by what stands there. On a device nothing does.
    fn verdict(&self, entry: &Entry) -> Result<Verdict, TargetError> {
        if self.manner.sink.is_some() { Ok(Verdict::Wanted) } else { self.manner.target.judge(entry) }
    }

    /// Finishes where everything is there.
    fn settle(&self) {
        self.changed.notify_all();
        let mut state = self.state();
        if state.finished || !state.arrivals.is_complete() {
            return;
        }
        state.finished = true;
        drop(state);
        let failed = self.timing.during(Stage::Disk, || {
            self.manner.target.remove_leftovers();
            self.manner.target.finish_directories()
        });
        let mut state = self.state();
        for (path, lack, error) in failed {
            let reason = chain(&error);
            if let Ok(place) = Place::new(if path.is_root() { b"." } else { path.as_bytes() }) {
                let of = Rejected::Directory(place);
                state.outbox.rejected.push(Rejection { of, lack, reason: reason.clone().into() });
            }
            state.failed += 1;
            if self.manner.report {
                let path = path.to_string();
                let what = Became::Lacking(lack, reason);
                state.events.push(FileEvent::of(path, what));
            }
        }
        let (bytes, last, buffer) = (state.bytes, state.last, state.buffer);
        let since_last = if last == Nanos::ZERO { Nanos::ZERO } else { monotonic().since(last) };
        let stages = self.timing.stages();
        state.outbox.say(Copy::Finished(Finished { bytes, since_last, stages, buffer }));
        drop(state);
        self.wake.raise();
    }

    /// Whether there is something to be said to the sender that is not to wait for more.
    pub(crate) fn is_urgent(&self) -> bool {
        self.state().outbox.is_urgent()
    }

    /// What is to be said to the sender.
    pub(crate) fn take_messages(&self) -> Vec<Copy> {
        let said = std::mem::take(&mut self.state().outbox);
        if said.is_full() {
            self.changed.notify_all();
        }
        said.into_messages()
    }

    /// Whether more is known of names than whoever listens here has taken.
    pub(super) fn is_untold(&self) -> bool {
        self.state().events.len() > MOST_UNTOLD
    }

    /// Whether the sender has said of all that does not come why that is.
    pub(super) fn knows_what_lacks(&self) -> bool {
        let state = self.state();
        !state.lacks || state.knows_what_lacks
    }

    /// Waits while there is too much that the sender, or who listens here, has not taken yet: what comes meanwhile waits in the network.
    pub(crate) fn wait_to_be_heard(&self) {
        let mut state = self.state();
        while (state.outbox.is_full() || state.events.len() > MOST_UNTOLD) && !state.over {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared for Receiving {
    fn timing(&self) -> &Timing {
        &self.timing
    }

    fn abort(&self, failure: Option<CopyError>) {
        self.halt.raise();
        let mut state = self.state();
        state.over = true;
        if state.failure.is_none() {
            state.failure = failure;
        }
        state.files.values().for_each(|incoming| incoming.store.stop());
        drop(state);
        self.changed.notify_all();
        self.wake.raise();
    }
}

impl State {
    fn give_up(&mut self, report: bool, number: u32, entry: &Entry, error: &TargetError) {
        // What is given up because all ends has not failed.
        if self.over || !self.close(number) {
            return;
        }
        let (of, lack, reason) = (Rejected::File(number), error.lack(), chain(error));
        self.outbox.rejected.push(Rejection { of, lack, reason: reason.clone().into() });
        self.close_name(report, entry, super::outgoing::size(entry), None, Became::Lacking(lack, reason));
    }

    /// What stands there under the name of a file stays: it is newer, or current. All of the file may have come by then.
    fn leave_standing(&mut self, report: bool, frame: &File, is_newer: bool, has_come: bool) {
        if self.over || !self.close(frame.file) {
            return;
        }
        let (of, reason) = (Rejected::File(frame.file), Text::default());
        let (lack, what) =
            if is_newer { (Lack::Newer, Became::Newer) } else { (Lack::Current, Became::Same) };
        self.outbox.rejected.push(Rejection { of, lack, reason });
        // Of holes nothing counts, and how much they are only the sender knows.
        self.done += if frame.sparse || has_come { 0 } else { frame.size() };
        self.close_name(report, &frame.entry, frame.size(), None, what);
    }

    /// Closes a file; false where that is done, or the sender gave the file up and counts it itself.
    fn close(&mut self, number: u32) -> bool {
        !self.given_up.contains(&number) && self.arrivals.on_closed(number)
    }

    /// Closes a file that the sender gave up, and of which nothing is open any more; false where it is none of these.
    fn close_given_up(&mut self, number: u32) -> bool {
        let is_given_up = self.given_up.remove(&number);
        if is_given_up {
            self.entries += u64::from(self.arrivals.on_closed(number));
        }
        is_given_up
    }

    fn close_name(&mut self, report: bool, entry: &Entry, bytes: u64, digest: Option<Digest>, what: Became) {
        self.entries += 1;
        self.failed += u64::from(what.failure().is_some());
        if report {
            self.events.push(FileEvent { bytes, digest, ..FileEvent::of(entry.path.to_string(), what) });
        }
    }
}

/// Bytes of block `index` of a file; none behind its end.
pub(crate) fn block_length(frame: &File, index: u32) -> u64 {
    let bytes = block_bytes(frame.size());
    frame.size().saturating_sub(u64::from(index) * bytes).min(bytes)
}

/// News of names that wait for who listens before more is taken of the sender.
const MOST_UNTOLD: usize = 10_000;

/// Runs of numbers of files and packs: of a hundred million small files that are offered first.
const MOST_RUNS: usize = 1 << 20;

/// Runs that memory is taken for at once.
const RUNS_AT_ONCE: usize = 1 << 14;

#[cfg(test)]
mod tests;
