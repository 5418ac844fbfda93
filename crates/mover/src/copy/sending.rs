//! The sending end of a file transfer: what is left to do, who does it, and what the receiver said of it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::TcpStream;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farlink_flow::schedule::{Schedule, Task};
use farlink_flow::token_bucket::TokenBucket;
use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::entry::Digest;
use farlink_wire::message::MAX_ENTRIES;
use farlink_wire::message::copy::{Copy, Lack, Unit};
use farlink_wire::quantity::Nanos;

use super::CopyError;
use super::file_event::{Became, FileEvent};
use super::lost::Lost;
use super::manner::Manner;
use super::outgoing::{Outgoing, Planned};
use super::socket_facts::SocketFacts;
use super::steering::Steering;
use super::timing::Timing;
use super::worker::Shared;

mod pacing;
mod pulse;
mod receiver;

use pulse::{FELT_EVERY, Pulse};

/// The sending end. Its threads and the conversation share it.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) manner: Manner,
    pub(crate) timing: Timing,
    pub(crate) steering: Steering,
    state: Mutex<State>,
    changed: Condvar,
    wake: Wake,
    bucket: Mutex<Option<TokenBucket>>,
    /// How often another limit came to hold.
    held: AtomicU64,
    /// Raised when all threads are to end.
    pub(crate) halt: Wake,
}

#[derive(Debug, Default)]
struct State {
    schedule: Schedule,
    files: HashMap<u32, Arc<Outgoing>>,
    packs: HashMap<u32, Arc<Planned>>,
    /// Entries of packs that are not acknowledged.
    ahead: usize,
    outbox: Vec<Copy>,
    events: Vec<FileEvent>,
    lost: Vec<Lost>,
    /// How often what was sent came damaged.
    damaged: HashMap<Unit, u32>,
    streams: HashMap<u32, Pulse>,
    /// The most bytes that all of them had under way together.
    most_under_way: u64,
    /// When it was last looked at what streams have that is old.
    felt: Nanos,
    /// When it was looked at last whether too much was given, and what came of that.
    far_ahead: Option<(Nanos, bool)>,
    /// What TCP said last of every stream that was.
    tcp: HashMap<u32, TcpInfo>,
    facts: SocketFacts,
    /// Items that the receiver refused, of packs that it has not acknowledged.
    refused: HashSet<(u32, u32)>,
    /// Directories of which the receiver has said that they lack something.
    bare: u64,
    supply: Supply,
    tally: Tally,
    ending: Ending,
    failure: Option<CopyError>,
}

/// What there is to send, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Supply {
    walked: bool,
    offers: usize,
    files: u32,
    /// Numbers given to packs, and of these with content.
    pack_numbers: u32,
    packs: u32,
    entries: u64,
    bytes: u64,
    said: bool,
}

impl Supply {
    /// How much there is in all.
    const fn total(&self) -> Copy {
        let &Self { files, packs, entries, bytes, .. } = self;
        Copy::Total { files, packs, entries, bytes }
    }
}

/// What is done, for progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Bytes of content that the receiver has acknowledged.
    pub(crate) acknowledged: u64,
    /// Bytes of content that it had already.
    pub(crate) same: u64,
    /// Bytes of content that left, also those that left twice.
    pub(crate) sent: u64,
    /// Names that are done.
    pub(crate) entries: u64,
    /// Names that failed.
    pub(crate) failed: u64,
    /// Names in all, as far as they are known; and whether that is all.
    pub(crate) of_entries: u64,
    /// Bytes in all, as far as they are known.
    pub(crate) of_bytes: u64,
    /// Whether all names are known.
    pub(crate) known: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ending {
    #[default]
    No,
    /// The receiver has everything.
    Finished,
    /// It cannot go on.
    Aborted,
}

impl Sending {
    pub(crate) fn new(manner: Manner, wake: Wake, halt: Wake) -> io::Result<Arc<Self>> {
        let bucket = Mutex::new(manner.limit.map(|rate| TokenBucket::new(rate, monotonic())));
        let (state, changed) = (Mutex::default(), Condvar::new());
        let (timing, steering) = (Timing::new(), Steering::new(manner.saved)?);
        Ok(Arc::new(Self {
            manner,
            timing,
            steering,
            state,
            changed,
            wake,
            bucket,
            held: AtomicU64::new(0),
            halt,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // What the walk finds.

    /// Waits until there is room for more ahead; false where it is over.
    pub(crate) fn wait_for_room(&self) -> bool {
        let mut state = self.state();
        let full = |state: &State| {
            state.ahead > MOST_AHEAD
                || state.files.len() > MOST_OPEN
                || state.schedule.open_blocks() > MOST_BLOCKS
                || state.outbox.len() + state.events.len() > MOST_UNHEARD
        };
        while state.ending == Ending::No && full(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.ending == Ending::No
    }

    /// Waits until `done`, which what arrives brings about; `false` where the transfer is over.
    pub(super) fn wait_until(&self, mut done: impl FnMut() -> bool) -> bool {
        let mut state = self.state();
        while state.ending == Ending::No && !done() {
            // What has arrived is let go behind the notice of it.
            let waited = self.changed.wait_timeout(state, LET_GO);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.ending == Ending::No
    }

    /// Whether nothing more is sent.
    pub(crate) fn is_over(&self) -> bool {
        self.state().ending != Ending::No
    }

    /// A file that goes in blocks; it does not where there is no memory for it.
    pub(crate) fn supply_file(&self, make: impl FnOnce(u32) -> Outgoing) {
        let mut state = self.state();
        let number = state.supply.files;
        let mut file = make(number);
        if !file.charge(&self.manner.budget) {
            drop(state);
            let reason = "there is no memory left for it: copy it later, or give `farlink serve` there more (--memory)";
            self.supply_lacks(file.event(None, Became::Lacking(Lack::Failed, reason.to_owned())));
            return;
        }
        state.supply.files += 1;
        state.supply.entries += 1;
        let file = Arc::new(file);
        // Nothing is sent of holes.
        state.supply.bytes += file.frame.size() - file.hole_bytes();
        state.schedule.on_file(number, file.blocks(), &file.holes, self.manner.resume);
        state.files.insert(number, file);
        self.changed.notify_all();
    }

    /// A pack of what is small; offered first where what is there is asked for.
    pub(crate) fn supply_pack(&self, planned: Planned, offer: bool) {
        let mut state = self.state();
        let number = state.supply.pack_numbers;
        state.supply.pack_numbers += 1;
        if offer {
            state.supply.offers += 1;
        } else {
            state.supply.packs += 1;
        }
        if offer || !self.manner.resume {
            state.supply.entries += planned.entries.len() as u64;
            state.supply.bytes += planned.bytes();
        }
        state.ahead += planned.entries.len();
        state.packs.insert(number, Arc::new(planned.offered(offer)));
        state.schedule.on_pack(number);
        self.changed.notify_all();
    }

    /// There is nothing more.
    pub(crate) fn supply_ends(&self) {
        let mut state = self.state();
        state.supply.walked = true;
        state.settle_total();
        drop(state);
        self.changed.notify_all();
        self.wake.raise();
    }

    /// A name that is not copied.
    pub(crate) fn supply_lacks(&self, event: FileEvent) {
        let mut state = self.state();
        state.tally.failed += u64::from(event.what.failure().is_some());
        if self.manner.report {
            state.events.push(event);
        } else {
            state.outbox.extend(event.message());
        }
        drop(state);
        self.wake.raise();
    }

    // What streams do.

    /// A stream joins; `facts` are what the kernel granted it, and `tcp` is another handle of it.
    pub(crate) fn on_stream(&self, stream: u32, facts: SocketFacts, tcp: Option<TcpStream>) {
        let mut state = self.state();
        state.streams.insert(stream, Pulse::of(tcp));
        state.facts = facts;
    }

    /// A stream is about to be closed.
    pub(crate) fn on_close(&self, stream: u32) {
        self.steering.leave(stream);
        if let Some(pulse) = self.state().streams.get_mut(&stream) {
            pulse.end();
        }
    }

    /// What `stream` does next; `None` where it is to end.
    pub(crate) fn next_task(&self, stream: u32) -> Option<Job> {
        let set_busy = |state: &mut State, busy| {
            state.streams.get_mut(&stream).into_iter().for_each(|pulse| pulse.set_busy(busy));
        };
        set_busy(&mut self.state(), false);
        let job = self.next_job(stream);
        set_busy(&mut self.state(), job.is_some());
        job
    }

    fn next_job(&self, stream: u32) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.ending != Ending::No || !state.streams.contains_key(&stream) {
                return None;
            }
            let now = monotonic();
            let stale = self.stale_after(state.streams.len());
            if now.since(state.felt) >= FELT_EVERY && state.schedule.is_any_old(now, stale) {
                state.feel(now);
            }
            if state.must_wait(stream, now) {
                state = self.wait_for_change(state, LONGEST);
                continue;
            }
            match state.schedule.poll(now, stream, stale) {
                Some(Task::Announce(file)) => {
                    if let Some(file) = state.files.get(&file) {
                        return Some(Job::Announce(Arc::clone(file)));
                    }
                }
                Some(Task::Empty(file)) => {
                    if let Some(file) = state.files.get(&file) {
                        return Some(Job::Empty(Arc::clone(file)));
                    }
                }
                Some(Task::Block { file, index, proven }) => {
                    if let Some(file) = state.files.get(&file) {
                        return Some(Job::Block { file: Arc::clone(file), index, proven });
                    }
                    state.schedule.on_acknowledged(Unit::Block(file, index), now);
                }
                Some(Task::Pack(pack)) => match state.packs.get(&pack) {
                    Some(planned) => return Some(Job::Pack { number: pack, planned: Arc::clone(planned) }),
                    None => {
                        state.schedule.on_acknowledged(Unit::Pack(pack), now);
                    }
                },
                None => {
                    if state.supply.said {
                        // The conversation may have something to say of it.
                        self.wake.raise();
                    }
                    let due = state.schedule.deadline(stream, stale);
                    let pause = due.map_or(LONGEST, |due| due.since(now).min(LONGEST));
                    // A little later than due: what is stale then is so by more than nothing.
                    state = self.wait_for_change(state, pause.after(Nanos(1_000_000)));
                }
            }
        }
    }

    fn wait_for_change<'a>(&self, state: MutexGuard<'a, State>, most: Nanos) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, Duration::from_nanos(most.0));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// `bytes` of content left.
    pub(crate) fn on_sent(&self, bytes: u64) {
        self.state().tally.sent += bytes;
    }

    /// The receiver's block is the same as ours.
    pub(crate) fn on_same(&self, file: &Outgoing, index: u32) {
        let mut state = self.state();
        let unit = Unit::Block(file.frame.file, index);
        state.far_ahead = None;
        if state.schedule.on_acknowledged(unit, monotonic()) {
            let bytes = file.on_there(index);
            state.tally.same += bytes;
            state.tally.acknowledged += bytes;
        }
        match state.outbox.last_mut() {
            Some(Copy::Same(units)) if units.len() < MAX_ENTRIES => units.push(unit),
            _ => state.outbox.push(Copy::Same(vec![unit])),
        }
        drop(state);
        self.wake.raise();
    }

    /// A file cannot be read to its end.
    pub(crate) fn abandon(&self, file: &Outgoing, what: Became) {
        let keep = !file.is_changed();
        let mut state = self.state();
        let number = file.frame.file;
        if state.files.remove(&number).is_none() {
            return;
        }
        state.schedule.on_closed(number);
        state.far_ahead = None;
        let reason = what.failure().unwrap_or_default().to_owned();
        let event = file.event(None, what);
        if !self.manner.report {
            // Of what it is the receiver may not know yet: its name comes with the data, and news of it by another way.
            state.outbox.extend(event.message());
        }
        state.outbox.push(Copy::Abandon { file: number, reason: reason.into(), keep });
        state.close_name(self.manner.report, event);
        drop(state);
        self.changed.notify_all();
        self.wake.raise();
    }

    /// What the kernel granted the streams, as one of them has it.
    pub(crate) fn socket_facts(&self) -> SocketFacts {
        self.steering.facts().unwrap_or_else(|| self.state().facts.clone())
    }

    /// What TCP says of a stream.
    pub(crate) fn on_tcp(&self, stream: u32, info: TcpInfo) {
        self.state().tcp.insert(stream, info);
    }

    /// What TCP said last of every stream that was.
    pub(crate) fn tcp(&self) -> Vec<(u32, TcpInfo)> {
        self.state().tcp.iter().map(|(stream, info)| (*stream, *info)).collect()
    }

    /// A stream is lost: others do what it had.
    pub(super) fn on_lost(&self, lost: Lost) {
        let mut state = self.state();
        let Some(pulse) = state.streams.remove(&lost.stream) else { return };
        // Its thread may be waiting for an end that has given it up.
        pulse.shut();
        if state.ending != Ending::No {
            return;
        }
        state.schedule.on_lost(lost.stream);
        state.far_ahead = None;
        state.lost.push(lost);
        drop(state);
        self.changed.notify_all();
        self.wake.raise();
    }

    /// Streams that were lost since this was asked last.
    pub(super) fn take_lost(&self) -> Vec<Lost> {
        std::mem::take(&mut self.state().lost)
    }

    /// Streams that are at work.
    pub(crate) fn streams(&self) -> usize {
        self.state().streams.len()
    }

    // What the conversation asks.

    /// What is to be said to the receiver.
    pub(crate) fn take_messages(&self) -> Vec<Copy> {
        let said = std::mem::take(&mut self.state().outbox);
        self.on_taken(said.len());
        said
    }

    /// What is to be said when the receiver has everything: all that is known to lack, and then again that this is all.
    pub(super) fn last_words(&self) -> Vec<Copy> {
        let mut words = self.take_messages();
        words.push(self.state().supply.total());
        words
    }

    /// What became of names since this was asked last.
    pub(crate) fn take_events(&self) -> Vec<FileEvent> {
        let events = std::mem::take(&mut self.state().events);
        self.on_taken(events.len());
        events
    }

    /// Of what the walk may wait for, so much is taken.
    fn on_taken(&self, count: usize) {
        if count > MOST_UNHEARD / 2 {
            self.changed.notify_all();
        }
    }

    /// Names and bytes as far as they are known, for a receiver who shows progress; `None` where it knows, or does not show any.
    pub(crate) fn extent(&self) -> Option<(u64, u64)> {
        let supply = self.state().supply;
        (!self.manner.report && !supply.said).then_some((supply.entries, supply.bytes))
    }

    /// Whether everything has been handed to a stream, and all is said: how much that is, and what of it is not sent.
    pub(crate) fn has_sent_all(&self) -> bool {
        let state = self.state();
        let has_handed_out = state.supply.said && state.schedule.is_idle();
        has_handed_out && state.packs.values().all(|planned| planned.is_read()) && state.outbox.is_empty()
    }

    /// How much is done.
    pub(crate) fn tally(&self) -> Tally {
        let state = self.state();
        let Supply { entries, bytes, walked, .. } = state.supply;
        Tally { of_entries: entries, of_bytes: bytes, known: walked, ..state.tally }
    }

    /// Why it cannot go on, where a thread found out; once.
    pub(crate) fn take_failure(&self) -> Option<CopyError> {
        self.state().failure.take()
    }
}

/// What a stream is to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Say what file this is.
    Announce(Arc<Outgoing>),
    /// Say what file this is and where its holes are.
    Empty(Arc<Outgoing>),
    /// Send a block, unless the receiver's is the same.
    Block { file: Arc<Outgoing>, index: u32, proven: Option<Digest> },
    /// Send a pack, or an offer.
    Pack { number: u32, planned: Arc<Planned> },
}

impl Job {
    /// The file that it is of.
    pub(crate) fn file(&self) -> Option<&Outgoing> {
        match self {
            Self::Announce(file) | Self::Empty(file) | Self::Block { file, .. } => Some(file),
            Self::Pack { .. } => None,
        }
    }
}

impl Shared for Sending {
    fn timing(&self) -> &Timing {
        &self.timing
    }

    fn abort(&self, failure: Option<CopyError>) {
        self.halt.raise();
        self.steering.end();
        let mut state = self.state();
        if state.ending == Ending::No {
            state.ending = Ending::Aborted;
        }
        if state.failure.is_none() {
            state.failure = failure;
        }
        drop(state);
        self.changed.notify_all();
        self.wake.raise();
    }
}

impl State {
    fn close_name(&mut self, report: bool, event: FileEvent) {
        self.tally.entries += 1;
        self.tally.failed += u64::from(event.what.failure().is_some());
        if report {
            self.events.push(event);
        }
    }

    /// Says how much there is in all, once that is known.
    fn settle_total(&mut self) {
        let Supply { walked, offers, said, .. } = self.supply;
        if walked && offers == 0 && !said {
            self.supply.said = true;
            self.outbox.push(self.supply.total());
        }
    }
}

/// Entries of packs that may be ahead of the receiver: 200 bytes each.
const MOST_AHEAD: usize = 100_000;

/// News of names that wait for who listens before the walk does.
const MOST_UNHEARD: usize = 10_000;

/// Files that may be open: their digests, 32 bytes a block, are kept while they are.
const MOST_OPEN: usize = 256;

/// Blocks of files that are open before another is opened: half of what a receiver takes, and one file is no more than that.
const MOST_BLOCKS: u64 = 1 << 20;

/// How long a stream waits at most without looking again.
const LONGEST: Nanos = Nanos(1_000_000_000);

/// How long what was acknowledged may be held by who has said so.
const LET_GO: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;
