//! A receiver's part in one session: its machine, what it hears, and what it stores.

use std::collections::{BTreeMap, BTreeSet};

use farlink_flow::cast::receiver::{Config, Event, Failure, Receiver, Tally};
use farlink_flow::cast::seal::Opener;
use farlink_host::clock::{monotonic, rfc3339_now};
use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_wire::cast::Announcement;
use farlink_wire::cast::control::{Control, Repair, Report, Welcome, Whole, Words};
use farlink_wire::cast::packet::Data;
use farlink_wire::entry::Digest;
use farlink_wire::message::Text;
use farlink_wire::quantity::Nanos;

use super::newest::Newest;
use super::recent::Recent;
use super::samples::Samples;
use super::unfinished::Unfinished;
use super::{Notice, Progress};
use crate::error::CastError;
use crate::line::Line;
use crate::record::{MOST_RTT, least_rtt};
use crate::storage::{Storage, reason};

mod early;
mod leaving;
mod lost;
mod versions;
mod work;

use early::MOST_EARLY_REPAIRED;
use versions::GIVEN_UP;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// Everything is stored, or will not be, and the sender knows.
    Complete,
    /// The user ended it.
    Stopped,
}

/// When what happened.
#[derive(Clone, Debug)]
pub(super) struct Times {
    /// By the calendar: of the first packet, or where none came of joining.
    pub(super) started: String,
    pub(super) joined: Nanos,
    /// When the first packet of a product came, and the last one that was needed.
    pub(super) first: Option<Nanos>,
    pub(super) last: Option<Nanos>,
}

impl Times {
    fn from(joined: Nanos) -> Self {
        Self { started: rfc3339_now(), joined, first: None, last: None }
    }
}

/// What had come by some time.
#[derive(Clone, Debug, Default)]
struct Before {
    tally: Tally,
    report: Report,
    stored_bytes: u64,
    came_bytes: u64,
}

/// A receiver's part in one session. It outlives connections.
pub(super) struct Attendance {
    pub(super) welcome: Welcome,
    /// Of what its machine chooses at random.
    pub(super) seed: u64,
    opener: Opener,
    machine: Receiver,
    items: Unfinished,
    newest: Newest,
    /// Products that are whole, and whose names newer ones are to have that are not: their digests.
    whole: BTreeMap<u32, Digest>,
    /// Products for which older ones of their names were given up.
    given_up: BTreeSet<u32>,
    /// Names of products that cannot be had any more, of which nothing had come.
    nameless: BTreeMap<u32, String>,
    /// Products that cannot be had any more, and may stand here: what they were, and why.
    lost: BTreeMap<u32, (Whole, Text)>,
    /// Content that came before its product's name, and its bytes in all.
    early: BTreeMap<u32, Vec<(u64, Vec<u8>)>>,
    early_bytes: usize,
    recent: Recent,
    products: Option<u32>,
    stored_bytes: u64,
    came_bytes: u64,
    times: Times,
    /// What had come when this end gave the sender up that it is in the session of again: that is in a record already.
    before: Before,
    pub(super) samples: Samples,
    /// The least round trip.
    rtt: Nanos,
    /// CPU time of the process before it had joined.
    cpu: Nanos,
}

impl Attendance {
    /// From now on, in a process that may have so many descriptors.
    pub(super) fn new(welcome: &Welcome, descriptors: u64) -> Result<Self, CastError> {
        let opener = Opener::new(welcome.session, &welcome.key, welcome.protect, welcome.number)
            .map_err(|error| CastError::Seal { reason: error.to_string() })?;
        let seed = u64::from_ne_bytes(process::random().map_err(CastError::Wait)?);
        let config = Config {
            payload: welcome.payload,
            block: welcome.block,
            first: welcome.first,
            forgotten: welcome.first.saturating_sub(welcome.wanted),
            position: welcome.position,
            pace: welcome.pace,
            grace: GRACE,
            seed,
        };
        let joined = monotonic();
        Ok(Self {
            welcome: welcome.clone(),
            seed,
            opener,
            machine: Receiver::new(config, joined),
            items: Unfinished::new(descriptors),
            newest: Newest::from(welcome.first),
            whole: BTreeMap::new(),
            given_up: BTreeSet::new(),
            nameless: BTreeMap::new(),
            lost: BTreeMap::new(),
            early: BTreeMap::new(),
            early_bytes: 0,
            recent: Recent::default(),
            products: None,
            stored_bytes: 0,
            came_bytes: 0,
            times: Times::from(joined),
            before: Before::default(),
            samples: Samples::new(),
            rtt: Nanos::ZERO,
            cpu: process::cpu_of_process(),
        })
    }

    /// There is another connection of the same session.
    pub(super) fn come_back(&mut self, welcome: &Welcome) {
        self.opener.skip_to(welcome.number);
        self.machine.on_reconnected(monotonic(), welcome.pace, welcome.position, welcome.first);
    }

    /// What comes from now on is of another record.
    pub(super) fn begin_part(&mut self) {
        let now = monotonic();
        self.before = Before {
            tally: self.machine.tally(),
            report: self.machine.report(now),
            stored_bytes: self.stored_bytes,
            came_bytes: self.came_bytes,
        };
        self.times = Times::from(now);
        self.samples = Samples::new();
    }

    /// Nothing more comes of products that are not whole.
    pub(super) fn give_up(&self) {
        self.items.leave();
    }

    /// Names of products that are not whole.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = String> {
        self.items.names()
    }

    /// Products of the session, as far as it has heard of them, that were to be had and are not stored.
    pub(super) fn missing(&self) -> u32 {
        self.machine.known().saturating_sub(self.welcome.first).saturating_sub(self.machine.tally().stored)
    }

    pub(super) fn times(&self) -> Option<Times> {
        Some(self.times.clone())
    }

    pub(super) fn progress(&self) -> Progress {
        let now = monotonic();
        Progress {
            tally: self.machine.tally().since(self.before.tally),
            report: self.machine.report(now).since(&self.before.report),
            rtt: self.rtt,
            behind: self.machine.behind(),
            products: self.products.map(|all| {
                let Tally { stored, failed, .. } = self.before.tally;
                all.saturating_sub(self.welcome.wanted).saturating_sub(stored.saturating_add(failed))
            }),
            stored_bytes: self.stored_bytes - self.before.stored_bytes,
            came_bytes: self.came_bytes - self.before.came_bytes,
            seconds: now.since(self.times.joined).as_secs_f64(),
        }
    }

    fn hear_sender(&mut self, now: Nanos, control: &Control<'_>, storage: &Storage) {
        match control {
            Control::Repair(Repair { product, shape, offset, payload }) => {
                let data = Data { product: *product, shape: *shape, offset: *offset, repair: true };
                if self.is_kept(&data, payload.len(), MOST_EARLY_REPAIRED) {
                    return self.take(now, &data, payload, storage);
                }
                self.forget_early(*product);
                self.machine
                    .on_unwanted(*product, Text::from("too much of it came before its name".to_owned()));
            }
            Control::Gone(runs) => self.machine.on_gone(now, runs),
            // What is whole waits for a newer one alone.
            Control::Lost { product, .. } | Control::Superseded { product }
                if self.whole.contains_key(product) => {}
            Control::Superseded { product } => {
                self.forget_early(*product);
                self.supersede(*product);
            }
            // It is asked for again.
            Control::Lost { whole: Some(_), .. } if self.lost.len() >= MOST_LOST => {}
            Control::Lost { product, whole: Some(whole), reason, .. } => {
                self.lost.entry(*product).or_insert_with(|| ((**whole).clone(), reason.clone()));
            }
            Control::Lost { product, path, reason, .. } => {
                if !self.items.has_begun(*product) && !self.machine.is_done(*product) {
                    self.nameless.insert(*product, path.to_string());
                }
                self.machine.on_lost(*product, reason.clone());
            }
            Control::Words(Words::End { products }) => {
                self.products = Some(*products);
                self.machine.on_end(*products);
            }
            Control::Words(Words::Pace(pace)) => self.machine.on_pace(*pace),
            Control::Echo { answer: true, stamp } => {
                let rtt = now.since(Nanos(*stamp));
                self.rtt = least_rtt(self.rtt, rtt);
                // One that was stopped meanwhile is no measure of how long answers take.
                self.machine.on_rtt(rtt.min(MOST_RTT));
            }
            // What a sender has no reason to say is no harm.
            _ => {}
        }
    }

    /// Bytes of a stream came.
    fn take(&mut self, now: Nanos, data: &Data, payload: &[u8], storage: &Storage) {
        if self.welcome.block.get() > 0 && data.product >= self.welcome.first {
            self.recent.keep(data.product, data.offset, payload, self.welcome.payload);
        }
        let before = self.machine.tally().bytes;
        let writes = self.machine.on_data(now, data, payload);
        let came = self.machine.tally().bytes - before;
        if came > 0 {
            if self.times.first.is_none() {
                (self.times.started, self.times.first) = (rfc3339_now(), Some(now));
            }
            self.samples.add(now, came);
        }
        for write in writes {
            let bytes = &payload[write.payload];
            match self.items.get_mut(data.product) {
                Some(item) => {
                    if let Err(error) = storage.write(item, write.at, bytes) {
                        return self.machine.on_unwanted(data.product, Text::from(reason(&error)));
                    }
                }
                None => {
                    self.early_bytes += bytes.len();
                    self.early.entry(data.product).or_default().push((write.at, bytes.to_vec()));
                }
            }
        }
    }

    /// Does what the machine says, and looks for one of the products that may stand here: to read that may take long.
    fn do_all(&mut self, storage: &Storage, line: &mut Line, stop: &Wake, tell: &mut dyn FnMut(Notice<'_>)) {
        let mut has_looked = false;
        loop {
            let now = monotonic();
            self.machine.on_room(self.items.room());
            let Some(event) = self.machine.poll(now) else {
                if !std::mem::replace(&mut has_looked, true) && self.may_look() {
                    self.look_for_next(storage, (line, stop), tell);
                } else if !self.finish_next(now, storage, tell) {
                    return;
                }
                continue;
            };
            match event {
                Event::Nack(wants) => line.push(&Control::Nack(wants)),
                Event::Have(runs) => line.push(&Control::Have(runs)),
                Event::Report(_) => {
                    self.machine.on_counts(self.opener.counts(), self.opener.refused().total());
                    line.push(&Control::Report(self.machine.report(now)));
                    line.push(&Control::Echo { answer: false, stamp: now.0 });
                }
                Event::Announced { product, announcement, content } => {
                    self.begin(product, announcement, content, storage, (line, stop));
                }
                Event::Complete { product, digest, .. } => {
                    // The last write may have failed.
                    if self.machine.is_done(product) {
                        continue;
                    }
                    if self.newest.has_newer(product) {
                        // That one decides.
                        self.whole.insert(product, digest);
                    } else {
                        self.finish(now, product, digest, storage, tell);
                    }
                }
                Event::Rebuild(block) => {
                    for (data, payload) in self.recent.rebuild(&block, self.welcome.payload) {
                        self.take(now, &data, &payload, storage);
                    }
                }
                Event::StillFailed { product, reason } => {
                    line.push(&Control::Failed { product, reason });
                }
                Event::Failed { product, failure } => {
                    self.forget_early(product);
                    self.newest.on_failed(product);
                    let item = self.items.remove(product);
                    if let Some(item) = &item {
                        Storage::abandon(item);
                    }
                    let told = self.nameless.remove(&product).filter(|path| !path.is_empty());
                    let known = item.map(|item| item.path()).or(told);
                    let path = known.unwrap_or_else(|| format!("product {product}"));
                    self.whole.remove(&product);
                    if self.given_up.remove(&product) {
                        tell(Notice::NotStored { path: path.clone(), reason: GIVEN_UP.to_owned() });
                    }
                    tell(Notice::NotStored { path, reason: failure.to_string() });
                    if !matches!(failure, Failure::Lost(_)) {
                        let reason = Text::from(failure.to_string());
                        line.push(&Control::Failed { product, reason });
                    }
                }
            }
        }
    }

    /// The name of a product is known.
    fn begin(
        &mut self,
        product: u32,
        announcement: Announcement,
        content: u64,
        storage: &Storage,
        (line, stop): (&mut Line, &Wake),
    ) {
        let early = self.forget_early(product);
        if !self.newest.announce(product, &announcement.path) || !self.gives_way(product, content) {
            return self.supersede(product);
        }
        let path = announcement.path.to_string();
        let mut go_on = signs_of_life(line, stop);
        let begun = storage.begin(announcement, content, self.items.in_memory(), &mut go_on).and_then(
            |(mut item, found)| {
                for (at, bytes) in &early {
                    storage.write(&mut item, *at, bytes).inspect_err(|_| Storage::abandon(&item))?;
                }
                Ok((item, found))
            },
        );
        match begun {
            Ok((item, found)) => {
                self.items.insert(product, item);
                let new = self.machine.on_found(product, &found);
                if let Some(item) = self.items.get_mut(product) {
                    item.note_found(new);
                }
            }
            // The user does not wait for it: that is no failure of the product's.
            Err(_) if stop.is_raised() => {}
            Err(error) => {
                self.nameless.insert(product, path);
                self.machine.on_unwanted(product, Text::from(reason(&error)));
            }
        }
    }
}

/// Whether to go on reading what is there, which takes minutes where it is much: a sender that hears nothing for long gives this end up.
fn signs_of_life<'l>(line: &'l mut Line, stop: &'l Wake) -> impl FnMut() -> bool + 'l {
    let mut said_at = monotonic();
    move || {
        let now = monotonic();
        if now.since(said_at) >= SIGN_OF_LIFE {
            said_at = now;
            // Not how it fares: it hears nobody now, and would be taken for one that cannot.
            line.push(&Control::Have(Vec::new()));
            // Where it is broken that is found later.
            let _ = line.flush();
        }
        !stop.is_raised()
    }
}

/// How long a packet may be late because another overtook it: paths of a circuit do not reorder, but queues of a host do.
const GRACE: Nanos = Nanos(1_000_000);

/// Products that may stand here though the sender cannot send them, and that wait to be looked for.
const MOST_LOST: usize = 4096;

/// How often the sender hears that this end is there while it reads what is there already.
const SIGN_OF_LIFE: Nanos = Nanos(1_000_000_000);

#[cfg(test)]
mod tests;
