//! Which block or pack leaves next, and on which stream.
//!
//! A stream that has room takes the next of what is left: so a fast one carries more, and none waits for another. What was on a stream
//! that is lost, and was not acknowledged, is taken by others. When nothing is left, a stream with nothing to do takes again what
//! another has had for too long: where nothing of that one has moved lately, or it has taken twice as long as this one took itself. What has
//! landed and is not acknowledged waits for the receiver, which has it: nobody brings that again.

use std::collections::{HashMap, VecDeque};

use farlink_wire::entry::Digest;
use farlink_wire::message::copy::Unit;
use farlink_wire::quantity::Nanos;

/// What a stream is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Say what file this is, and send nothing of it: the receiver says what it has.
    Announce(u32),
    /// Say what file this is and where its holes are: there is nothing else in it, or that was said on a stream that is lost.
    Empty(u32),
    /// Send a block. The receiver has one of this digest: if it is the same, tell [`Schedule::on_acknowledged`] instead.
    Block {
        /// The file.
        file: u32,
        /// Which block.
        index: u32,
        /// What the receiver has there.
        proven: Option<Digest>,
    },
    /// Send a pack.
    Pack(u32),
}

/// The work of a transfer, and who does it.
///
/// Drive it in any order; after each input [`Self::poll`] may have something where it had nothing before.
#[derive(Debug, Default)]
pub struct Schedule {
    /// Files and packs that have something left, in the order in which they came.
    queue: VecDeque<Work>,
    /// What was lost or damaged: before anything else.
    again: VecDeque<Unit>,
    files: HashMap<u32, File>,
    flying: HashMap<Unit, Flight>,
    paces: HashMap<u32, Pace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    File(u32),
    Pack(u32),
}

#[derive(Debug)]
struct File {
    blocks: u32,
    /// Blocks from here on were never handed out.
    next: u32,
    /// Runs of blocks that need not be sent: first, and the one behind the last; ascending.
    holes: VecDeque<(u32, u32)>,
    proven: HashMap<u32, Digest>,
    announced: Announced,
    /// Whether there are holes in it.
    has_holes: bool,
    /// Whether these are still to be said by themselves: with its blocks they are, where there are any.
    is_unsaid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announced {
    /// It is sent without asking, or the answer has come.
    Settled,
    /// To be asked.
    No,
    /// Asked, not answered.
    Asked,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Whether another stream had it, too.
    is_shared: bool,
    stream: u32,
    since: Nanos,
}

/// How a stream gets on.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// When something of it was last seen to arrive.
    moved: Nanos,
    /// From the hand-out of the unit of each [kind] that it brought last until that was acknowledged: where nobody else had it,
    /// too.
    took: [Option<Nanos>; 2],
    /// Whether all that it was given has landed.
    landed: bool,
}

/// Blocks and packs take their own times.
const fn kind(unit: Unit) -> usize {
    match unit {
        Unit::Block(..) => 0,
        Unit::Pack(_) => 1,
    }
}

impl Schedule {
    /// A file to send: `blocks` of them, but for those in `holes` (first and number, ascending). Where `ask` is set, the receiver is
    /// asked first what it has.
    pub fn on_file(&mut self, file: u32, blocks: u32, holes: &[(u32, u32)], ask: bool) {
        let announced = if ask { Announced::No } else { Announced::Settled };
        let is_empty = holes.iter().map(|(_, count)| u64::from(*count)).sum::<u64>() >= blocks.into();
        let has_holes = !holes.is_empty();
        let holes = holes.iter().map(|(first, count)| (*first, first + count)).collect();
        let proven = HashMap::new();
        self.files
            .insert(file, File { blocks, next: 0, holes, proven, announced, has_holes, is_unsaid: is_empty });
        self.queue.push_back(Work::File(file));
    }

    /// A pack to send.
    pub fn on_pack(&mut self, pack: u32) {
        self.queue.push_back(Work::Pack(pack));
    }

    /// What `stream` is to do `now`; `None` where there is nothing for it. Where nothing else is left, it takes what has been on another
    /// stream for longer than `stale`, if nothing of that one has arrived for so long, or this one took less than half the time itself.
    pub fn poll(&mut self, now: Nanos, stream: u32, stale: Nanos) -> Option<Task> {
        let task = self.next().or_else(|| self.steal(now, stream, stale))?;
        let unit = match task {
            Task::Announce(_) | Task::Empty(_) => return Some(task),
            Task::Block { file, index, .. } => Unit::Block(file, index),
            Task::Pack(pack) => Unit::Pack(pack),
        };
        let is_shared = self.flying.contains_key(&unit);
        self.flying.insert(unit, Flight { stream, since: now, is_shared });
        if let Some(pace) = self.paces.get_mut(&stream) {
            pace.landed = false;
        }
        Some(task)
    }

    fn next(&mut self) -> Option<Task> {
        while let Some(unit) = self.again.pop_front() {
            match unit {
                Unit::Block(file, index) if self.files.contains_key(&file) => {
                    return Some(Task::Block { file, index, proven: None });
                }
                Unit::Pack(pack) => return Some(Task::Pack(pack)),
                Unit::Block(..) => {}
            }
        }
        // Files that wait for an answer are passed over: there are few, as few are supplied ahead.
        let mut at = 0;
        while let Some(work) = self.queue.get(at) {
            let file = match *work {
                Work::Pack(pack) => {
                    self.queue.remove(at);
                    return Some(Task::Pack(pack));
                }
                Work::File(file) => file,
            };
            let Some(state) = self.files.get_mut(&file) else {
                self.queue.remove(at);
                continue;
            };
            match state.announced {
                Announced::No => {
                    state.announced = Announced::Asked;
                    return Some(Task::Announce(file));
                }
                Announced::Asked => at += 1,
                Announced::Settled => match state.next_block() {
                    Some(index) => {
                        let proven = state.proven.remove(&index);
                        return Some(Task::Block { file, index, proven });
                    }
                    None => {
                        let is_unsaid = std::mem::take(&mut state.is_unsaid);
                        self.queue.remove(at);
                        if is_unsaid {
                            return Some(Task::Empty(file));
                        }
                    }
                },
            }
        }
        None
    }

    /// The oldest that another stream has had for too long.
    fn steal(&self, now: Nanos, stream: u32, stale: Nanos) -> Option<Task> {
        let old = |unit, flight: &Flight| {
            flight.stream != stream
                && self.is_under_way(flight)
                && now > self.due(unit, flight, stream, stale)
        };
        let stale = self.flying.iter().filter(|(unit, flight)| old(**unit, flight));
        let (unit, _) = stale.min_by_key(|(unit, flight)| (flight.since, **unit))?;
        Some(match *unit {
            Unit::Block(file, index) => Task::Block { file, index, proven: None },
            Unit::Pack(pack) => Task::Pack(pack),
        })
    }

    /// Until when `stream` leaves to another what that one has.
    fn due(&self, unit: Unit, flight: &Flight, stream: u32, stale: Nanos) -> Nanos {
        let still = self.still(flight, stale);
        let took = self.paces.get(&stream).and_then(|pace| pace.took[kind(unit)]);
        took.map_or(still, |took| still.min(flight.since.after(stale.max(took.after(took)))))
    }

    /// When [`Self::poll`] of `stream`, which is idle, may have something although nothing comes in: what is stale then.
    #[must_use]
    pub fn deadline(&self, stream: u32, stale: Nanos) -> Option<Nanos> {
        let is_others = |flight: &Flight| flight.stream != stream && self.is_under_way(flight);
        let others = self.flying.iter().filter(|(_, flight)| is_others(flight));
        others.map(|(unit, flight)| self.due(*unit, flight, stream, stale)).min()
    }

    /// Whether a stream has had something for longer than `stale`: before [`Self::poll`] all are to be looked at.
    #[must_use]
    pub fn is_any_old(&self, now: Nanos, stale: Nanos) -> bool {
        self.flying.values().any(|flight| now > flight.since.after(stale))
    }

    fn is_under_way(&self, flight: &Flight) -> bool {
        self.paces.get(&flight.stream).is_none_or(|pace| !pace.landed)
    }

    /// Until when something of what `flight`'s stream has is to arrive.
    fn still(&self, flight: &Flight, stale: Nanos) -> Nanos {
        let moved = self.paces.get(&flight.stream).map_or(Nanos::ZERO, |pace| pace.moved);
        flight.since.max(moved).after(stale)
    }

    /// Something of what `stream` has was seen to arrive, `now`.
    pub fn on_moved(&mut self, stream: u32, now: Nanos) {
        self.paces.entry(stream).or_default().moved = now;
    }

    /// Whether all that `stream` was given so far was seen to have landed.
    pub fn on_landed(&mut self, stream: u32, landed: bool) {
        self.paces.entry(stream).or_default().landed = landed;
    }

    /// The receiver has it, or need not get it, as is heard `now`. False where that was known.
    pub fn on_acknowledged(&mut self, unit: Unit, now: Nanos) -> bool {
        if let Some(Flight { stream, since, is_shared }) = self.flying.remove(&unit) {
            // Of a unit that two had nobody knows whose has arrived.
            if !is_shared {
                let pace = self.paces.entry(stream).or_default();
                pace.moved = now;
                pace.took[kind(unit)] = Some(now.since(since));
            }
            return true;
        }
        // It was given back when its stream was lost, and had arrived.
        let again = self.again.iter().position(|given| *given == unit);
        again.is_some_and(|at| self.again.remove(at).is_some())
    }

    /// The receiver got it damaged, or had it and has it no longer: then it was acknowledged, and true is returned.
    pub fn on_damaged(&mut self, unit: Unit) -> bool {
        if self.flying.remove(&unit).is_some() {
            self.again.push_back(unit);
            return false;
        }
        let Unit::Block(file, index) = unit else { return false };
        // Of a file that is open, what was handed out once and is not to be again.
        let had = self.files.get(&file).is_some_and(|file| index < file.next) && !self.again.contains(&unit);
        if had {
            self.again.push_back(unit);
        }
        had
    }

    /// The receiver has these blocks of `file` from before; where `last`, it has no others.
    pub fn on_proven(&mut self, file: u32, blocks: impl IntoIterator<Item = (u32, Digest)>, last: bool) {
        let Some(state) = self.files.get_mut(&file) else { return };
        let bound = state.blocks;
        state.proven.extend(blocks.into_iter().filter(|(index, _)| *index < bound));
        if last {
            state.announced = Announced::Settled;
        }
    }

    /// A stream is lost; the number of units that others take over.
    pub fn on_lost(&mut self, stream: u32) -> usize {
        self.paces.remove(&stream);
        let mut units: Vec<_> =
            self.flying.iter().filter(|(_, flight)| flight.stream == stream).map(|(unit, _)| *unit).collect();
        units.sort_unstable();
        for unit in &units {
            self.flying.remove(unit);
            self.again.push_back(*unit);
        }
        // Who asked on that stream may not have been heard.
        for (file, state) in &mut self.files {
            if state.announced == Announced::Asked {
                state.announced = Announced::No;
            }
            // Nor who said its holes: blocks behind which they were said need not have been sent.
            if state.has_holes && !std::mem::replace(&mut state.is_unsaid, true) {
                let work = Work::File(*file);
                if !self.queue.contains(&work) {
                    self.queue.push_back(work);
                }
            }
        }
        units.len()
    }

    /// A file is stored or given up: nothing more of it is sent.
    pub fn on_closed(&mut self, file: u32) {
        self.files.remove(&file);
        self.flying.retain(|unit, _| !matches!(unit, Unit::Block(of, _) if *of == file));
    }

    /// Files that are neither stored nor given up.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.files.len()
    }

    /// Blocks of these files, those that were acknowledged included.
    #[must_use]
    pub fn open_blocks(&self) -> u64 {
        self.files.values().map(|file| u64::from(file.blocks)).sum()
    }

    /// Whether `stream` has something that is not acknowledged.
    #[must_use]
    pub fn has_any(&self, stream: u32) -> bool {
        self.flying.values().any(|flight| flight.stream == stream)
    }

    /// What was handed out and is not acknowledged.
    pub fn under_way(&self) -> impl Iterator<Item = Unit> + '_ {
        self.flying.keys().copied()
    }

    /// Whether anything is left to hand out.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.again.is_empty()
    }
}

impl File {
    fn next_block(&mut self) -> Option<u32> {
        while let Some((first, end)) = self.holes.front().copied() {
            if self.next < first {
                break;
            }
            self.next = self.next.max(end);
            self.holes.pop_front();
        }
        (self.next < self.blocks).then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Nanos = Nanos::MAX;
    const NOW: Nanos = Nanos(1000);

    fn block(file: u32, index: u32) -> Task {
        Task::Block { file, index, proven: None }
    }

    fn all(schedule: &mut Schedule, stream: u32) -> Vec<Task> {
        std::iter::from_fn(|| schedule.poll(NOW, stream, NEVER)).collect()
    }

    #[test]
    fn streams_take_what_is_left_in_order() {
        let mut schedule = Schedule::default();
        schedule.on_file(0, 3, &[], false);
        schedule.on_pack(0);
        assert_eq!(schedule.poll(NOW, 0, NEVER), Some(block(0, 0)));
        assert_eq!(schedule.poll(NOW, 1, NEVER), Some(block(0, 1)));
        assert_eq!(all(&mut schedule, 0), [block(0, 2), Task::Pack(0)]);
        assert!(schedule.is_idle());
        assert_eq!(schedule.flying.len(), 4);
        assert!(
            schedule.on_acknowledged(Unit::Pack(0), NOW) && !schedule.on_acknowledged(Unit::Pack(0), NOW)
        );
    }

    #[test]
    fn a_lost_stream_costs_what_it_had_and_no_more() {
        let mut schedule = Schedule::default();
        schedule.on_file(0, 6, &[], false);
        for stream in [0, 1, 0, 1] {
            schedule.poll(NOW, stream, NEVER);
        }
        schedule.on_acknowledged(Unit::Block(0, 0), NOW);
        assert_eq!(schedule.on_lost(0), 1);
        assert_eq!(all(&mut schedule, 1), [block(0, 2), block(0, 4), block(0, 5)]);
    }

    #[test]
    fn holes_are_said_again_where_they_may_not_have_been_heard() {
        let mut schedule = Schedule::default();
        schedule.on_file(0, 4, &[(1, 1)], false);
        assert_eq!(all(&mut schedule, 0), [block(0, 0), block(0, 2), block(0, 3)]);
        // The receiver has the same: nothing else is on its way.
        for index in [0, 2, 3] {
            schedule.on_acknowledged(Unit::Block(0, index), NOW);
        }
        assert_eq!((schedule.on_lost(0), schedule.is_idle()), (0, false));
        assert_eq!(all(&mut schedule, 1), [Task::Empty(0)]);
        schedule.on_closed(0);
        // Before all of it was handed out: behind the rest.
        schedule.on_file(1, 3, &[(1, 1)], false);
        assert_eq!(schedule.poll(NOW, 0, NEVER), Some(block(1, 0)));
        schedule.on_lost(0);
        assert_eq!(
            all(&mut schedule, 1),
            [Task::Block { file: 1, index: 0, proven: None }, block(1, 2), Task::Empty(1)]
        );
    }

    #[test]
    fn a_damaged_block_is_sent_again_first() {
        let mut schedule = Schedule::default();
        schedule.on_file(0, 3, &[], false);
        schedule.poll(NOW, 0, NEVER);
        schedule.on_damaged(Unit::Block(0, 0));
        schedule.on_damaged(Unit::Block(0, 7));
        assert_eq!(all(&mut schedule, 0), [block(0, 0), block(0, 1), block(0, 2)]);
    }

    #[test]
    fn a_block_that_the_disk_spoiled_is_sent_again_though_it_was_acknowledged() {
        let mut schedule = Schedule::default();
        schedule.on_file(0, 2, &[], false);
        all(&mut schedule, 1);
        schedule.on_acknowledged(Unit::Block(0, 1), NOW);
        assert!(schedule.on_damaged(Unit::Block(0, 1)) && !schedule.on_damaged(Unit::Block(0, 1)));
        // Of no such block and no such file.
        assert!(!schedule.on_damaged(Unit::Block(0, 2)) && !schedule.on_damaged(Unit::Block(9, 0)));
        assert_eq!(all(&mut schedule, 2), [block(0, 1)]);
    }

    #[test]
    fn holes_are_not_sent() {
        let mut schedule = Schedule::default();
        schedule.on_file(0, 10, &[(0, 2), (3, 4), (9, 1)], false);
        assert_eq!(all(&mut schedule, 0), [block(0, 2), block(0, 7), block(0, 8)]);
    }

    #[test]
    fn a_file_of_nothing_but_holes_is_said_again_where_that_may_be_lost() {
        for ask in [false, true] {
            let mut schedule = Schedule::default();
            schedule.on_file(0, 3, &[(0, 3)], ask);
            if ask {
                assert_eq!(all(&mut schedule, 0), [Task::Announce(0)]);
                schedule.on_proven(0, [], true);
            }
            assert_eq!(all(&mut schedule, 0), [Task::Empty(0)]);
            schedule.on_lost(1);
            assert_eq!(all(&mut schedule, 0), [Task::Empty(0)]);
            schedule.on_closed(0);
            schedule.on_lost(1);
            assert_eq!(all(&mut schedule, 0), []);
        }
    }

    #[test]
    fn a_file_that_is_asked_for_waits_and_the_others_do_not() {
        let mut schedule = Schedule::default();
        schedule.on_file(0, 2, &[], true);
        schedule.on_file(1, 1, &[], false);
        assert_eq!(all(&mut schedule, 0), [Task::Announce(0), block(1, 0)]);
        assert!(!schedule.is_idle());
        // The stream is lost before the answer: it is asked again.
        schedule.on_lost(0);
        assert_eq!(all(&mut schedule, 1), [block(1, 0), Task::Announce(0)]);
        let digest = Digest([1; 32]);
        schedule.on_proven(0, [(1, digest), (9, digest)], true);
        let proven = Task::Block { file: 0, index: 1, proven: Some(digest) };
        assert_eq!(all(&mut schedule, 1), [block(0, 0), proven]);
    }

    #[test]
    fn an_idle_stream_takes_what_another_has_had_for_too_long() {
        let mut schedule = Schedule::default();
        schedule.on_file(0, 2, &[], false);
        let stale = Nanos(100);
        schedule.poll(Nanos(10), 0, stale);
        schedule.poll(Nanos(20), 0, stale);
        assert_eq!(schedule.deadline(1, stale), Some(Nanos(110)));
        assert_eq!(schedule.deadline(0, stale), None, "not its own");
        assert_eq!(schedule.poll(Nanos(110), 1, stale), None);
        assert_eq!(schedule.poll(Nanos(200), 0, stale), None, "not its own");
        assert_eq!(schedule.poll(Nanos(111), 1, stale), Some(block(0, 0)));
        assert_eq!(schedule.poll(Nanos(112), 1, stale), None);
    }

    #[test]
    fn what_moves_is_left_to_the_stream_that_has_it_unless_another_is_much_faster() {
        let mut schedule = Schedule::default();
        schedule.on_file(0, 3, &[], false);
        let stale = Nanos(100);
        for stream in 0..3 {
            schedule.poll(Nanos(10), stream, stale);
        }
        // Stream 3 never had anything: it cannot tell how long such a thing takes here.
        schedule.on_moved(0, Nanos(500));
        schedule.on_moved(2, Nanos(500));
        assert_eq!(schedule.deadline(3, stale), Some(Nanos(110)));
        assert_eq!(schedule.poll(Nanos(501), 3, stale), Some(block(0, 1)), "nothing of stream 1 moves");
        assert_eq!(schedule.deadline(3, stale), Some(Nanos(600)));
        assert_eq!(schedule.poll(Nanos(600), 3, stale), None);
        schedule.on_moved(0, Nanos(590));
        // Stream 2 took 590 for its own: what the others have may take twice as long.
        assert!(schedule.on_acknowledged(Unit::Block(0, 2), Nanos(600)));
        assert_eq!(schedule.deadline(2, stale), Some(Nanos(601)), "of stream 3, of which nothing moves");
        schedule.on_moved(3, Nanos(1100));
        schedule.on_moved(0, Nanos(1150));
        assert_eq!(schedule.poll(Nanos(1190), 2, stale), None);
        assert_eq!(schedule.deadline(2, stale), Some(Nanos(1190)));
        assert_eq!(schedule.poll(Nanos(1191), 2, stale), Some(block(0, 0)));
    }

    #[test]
    fn what_has_landed_is_brought_by_nobody_again() {
        let mut schedule = Schedule::default();
        schedule.on_file(0, 2, &[], false);
        let stale = Nanos(100);
        schedule.poll(Nanos(10), 0, stale);
        assert!(schedule.is_any_old(Nanos(111), stale));
        schedule.on_landed(0, true);
        assert_eq!(schedule.deadline(1, stale), None);
        // It is looked at again: it may have been given back what it had not written.
        assert!(schedule.is_any_old(Nanos(1000), stale));
        assert_eq!(schedule.poll(Nanos(1000), 1, stale), Some(block(0, 1)));
        assert_eq!(schedule.poll(Nanos(1001), 1, stale), None);
        // What it is given afterwards is on its way.
        schedule.on_file(1, 1, &[], false);
        assert_eq!(schedule.poll(Nanos(1002), 0, stale), Some(block(1, 0)));
        assert_eq!(schedule.poll(Nanos(1003), 1, stale), Some(block(0, 0)), "whatever of stream 0 it is");
        // Of a stream that is lost all goes again.
        schedule.on_landed(1, true);
        schedule.on_lost(1);
        assert_eq!(schedule.poll(Nanos(1004), 0, stale), Some(block(0, 0)));
    }

    #[test]
    fn nothing_of_a_closed_file_is_sent() {
        let mut schedule = Schedule::default();
        schedule.on_file(0, 3, &[], false);
        schedule.poll(NOW, 0, NEVER);
        schedule.on_closed(0);
        schedule.on_damaged(Unit::Block(0, 0));
        assert_eq!(all(&mut schedule, 0), []);
        assert_eq!((schedule.flying.len(), schedule.open_files()), (0, 0));
    }
}
