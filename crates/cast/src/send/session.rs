//! The thread of a session that has its machine, the group's socket and the files.

use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use farlink_flow::cast::pacer::Rates;
use farlink_flow::cast::seal::Sealer;
use farlink_flow::cast::sender::{Config, Send, Sender};
use farlink_host::beneath::Directory;
use farlink_host::clock::{monotonic, rfc3339_now};
use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_host::scheduling::{Scheduling, urgent_in_turn, wake_on_time};
use farlink_mover::chain;
use farlink_mover::connection::Emulated;
use farlink_mover::copy::filter::Filter;
use farlink_wire::cast::control::{Control, Words};
use farlink_wire::cast::{Payload, SessionId, Shape};
use farlink_wire::entry::Digest;
use farlink_wire::message::copy::Secret;
use farlink_wire::quantity::{Fraction, Nanos};
use farlink_wire::record::{Outcome, Record};

use super::grants::Grants;
use super::record::Course;
use super::room::Room;
use super::sockets::Sockets;
use super::{Finished, Notice, Plan, Progress};
use crate::door::{Door, Hearing, hearsay};
use crate::error::CastError;
use crate::outbox::Outbox;
use crate::products::{NotSent, Products};
use crate::record::Frame;

mod emission;
mod ending;
mod receivers;
mod redundancy;
mod refusals;
mod rivals;
mod starts;
mod tempo;
mod work;

use redundancy::Redundancy;
use refusals::Refusals;
use rivals::Rivals;
use starts::Starts;
use tempo::Tempo;

/// Carries out one session: waits for its receivers, sends what there is to send, and ends when everybody has it, or `stop` is raised.
pub fn run(plan: &Plan, stop: &Wake, tell: &mut dyn FnMut(Notice<'_>)) -> Finished {
    let begun = monotonic();
    let mut finished = Finished {
        record: Record::default(),
        progress: Progress::default(),
        lacks: false,
        interrupted: false,
        error: None,
    };
    let emulated = Emulated::of_this_host();
    let cpu = process::cpu_of_process();
    let mut course =
        Times { started: rfc3339_now(), first: None, last: None, payload: 0, realtime: None, read: None };
    finished.error = carry_out(plan, stop, tell, &mut finished, &mut course).err();
    let outcome = match &finished.error {
        Some(_) => Outcome::Failed,
        None if finished.interrupted => Outcome::Interrupted,
        None if !finished.is_whole() => Outcome::Failed,
        None => Outcome::Ok,
    };
    let error = match &finished.error {
        Some(error) => Some(chain(error)),
        None if outcome == Outcome::Failed => Some("not every receiver has everything".to_owned()),
        None => None,
    };
    finished.record = Course {
        plan,
        frame: Frame {
            started: course.started,
            setup: course.first.map(|first| first.since(begun)),
            duration: course.first.zip(course.last).map(|(first, last)| last.since(first)),
            outcome,
            error,
        },
        progress: &finished.progress,
        payload: course.payload,
        realtime: course.realtime,
        read: course.read,
        cpu: process::cpu_of_process().since(cpu),
        before: emulated.as_ref(),
    }
    .record();
    finished
}

/// When what happened.
struct Times {
    started: String,
    first: Option<Nanos>,
    last: Option<Nanos>,
    payload: u16,
    /// Whether real-time scheduling was granted, where it was asked for.
    realtime: Option<bool>,
    /// How long reading took.
    read: Option<Nanos>,
}

fn carry_out(
    plan: &Plan,
    stop: &Wake,
    tell: &mut dyn FnMut(Notice<'_>),
    finished: &mut Finished,
    times: &mut Times,
) -> Result<(), CastError> {
    let id = SessionId(u64::from_be_bytes(process::random().map_err(CastError::Wait)?));
    // Each receiver has a connection.
    let room = Room::of(plan, process::raise_descriptor_limit(u64::MAX).unwrap_or(USUAL_DESCRIPTORS));
    let sockets = Sockets::open(plan, id)?;
    let mtu = sockets.group.mtu();
    let payload = Payload::within(mtu, plan.group.headers()).ok_or(CastError::Mtu { mtu })?;
    times.payload = payload.get();
    let root = Arc::new(Directory::open(Path::new("/")).map_err(CastError::Root)?);
    let filter = Filter::new(&[]).map_err(|error| CastError::Nothing { reason: error.to_string() })?;
    let of_sources = || Products::new(&root, plan.piped.as_ref(), &plan.sources, &filter, room.files);
    let mut products = of_sources();
    if let Some(source) = &plan.watch {
        let watched = |reason| CastError::Watch { directory: source.to_string(), reason };
        products.watch(source).map_err(watched)?;
        // Directories that cannot be watched.
        products.notice(&mut |not_sent| {
            finished.lacks |= not_sent.failed;
            tell(Notice::NotSent(not_sent));
        });
    } else if let Some(lacking) = of_sources().nothing() {
        // Better said before anybody is let in. What there is is looked at when it is sent.
        lacking.into_iter().for_each(|not_sent| tell(Notice::NotSent(not_sent)));
        return Err(CastError::Nothing { reason: NOTHING.to_owned() });
    }
    let wake = || Wake::new().map_err(CastError::Wait);
    let (wake, ended) = (wake()?, wake()?);
    let outbox = Arc::new(Outbox::new(Wake::new().map_err(CastError::Wait)?));
    let (heard, hearing) = hearsay();
    let door = Door {
        listeners: sockets
            .listeners
            .iter()
            .map(TcpListener::try_clone)
            .collect::<Result<_, _>>()
            .map_err(CastError::Wait)?,
        config: sockets.config.clone(),
        grants: Grants::of(plan),
        session: id,
        group: plan.group,
        outbox: Arc::clone(&outbox),
        heard,
        wake: wake.clone(),
        room,
    };
    thread::scope(|scope| {
        let named = thread::Builder::new().name("farlink-door".to_owned());
        let ended = &ended;
        let working = named.spawn_scoped(scope, move || door.work(ended)).map_err(CastError::Wait)?;
        // After the door's thread has begun: it is an ordinary one.
        let scheduling = plan.realtime.then(urgent_in_turn);
        times.realtime = scheduling.as_ref().map(Scheduling::is_realtime);
        wake_on_time();
        tell(Notice::Ready { at: sockets.address(plan), scheduling });
        let session = Session::new(plan, &sockets, id, products, payload, outbox, (hearing, wake));
        let done = session.and_then(|mut session| {
            let done = session.work(stop, tell, times);
            if let Err(error) = &done {
                session.break_off(chain(error));
            }
            session.conclude(finished);
            times.read = Some(session.products.read_for());
            done
        });
        ended.raise();
        let worked = working.join().unwrap_or_else(|panic| resume_unwind(panic));
        done.and(worked.map_err(CastError::Wait))
    })
}

struct Session<'a> {
    plan: &'a Plan,
    sockets: &'a Sockets,
    rivals: Rivals,
    id: SessionId,
    key: Secret,
    sealer: Sealer,
    machine: Sender,
    tempo: Tempo,
    redundancy: Redundancy,
    products: Products<'a>,
    payload: Payload,
    outbox: Arc<Outbox>,
    hearing: Hearing,
    wake: Wake,
    progress: Progress,
    /// When a receiver was heard last.
    heard_at: BTreeMap<u32, Nanos>,
    /// Those that are there, and have said nothing that could not be from before, since another joined for the same directory: when it did.
    succeeded: BTreeMap<u32, Nanos>,
    /// When products were sent first.
    starts: Starts,
    /// Receivers that were lost, and until when they are waited for.
    lost: Vec<(u32, Nanos)>,
    /// Whether so many receivers were there as it was to wait for.
    has_begun: bool,
    /// Until when receivers are waited for that are not there.
    wait_until: Option<Nanos>,
    /// How many it waits for, as it was told last.
    awaited_told: u32,
    /// The pace that receivers were told.
    pace: Nanos,
    /// Since when the network has taken no packet.
    refused_since: Option<Nanos>,
    /// Whether the network has taken any.
    has_sent: bool,
    /// Repairs that wait until a digest is known.
    later: VecDeque<Send>,
    /// Until when no file is opened, as there was no descriptor for it.
    idle_until: Nanos,
    /// What could not be read, and was not told yet.
    not_sent: Vec<NotSent>,
    refusals: Refusals,
    /// Whether it was told that there is room for no more receivers.
    is_full_told: bool,
    lacks: bool,
    /// Bytes of the content of products that could not be sent, or were replaced before.
    lost_bytes: u64,
    interrupted: bool,
    /// Whether the user has ended what is watched for.
    ceased: bool,
    /// The product whose first packet has just left, and when.
    begun: Option<(u32, Nanos)>,
    /// A run of packets.
    run: Vec<u8>,
    bytes: Vec<u8>,
}

impl<'a> Session<'a> {
    fn new(
        plan: &'a Plan,
        sockets: &'a Sockets,
        id: SessionId,
        products: Products<'a>,
        payload: Payload,
        outbox: Arc<Outbox>,
        (hearing, wake): (Hearing, Wake),
    ) -> Result<Self, CastError> {
        let key = Secret(Digest(process::random().map_err(CastError::Wait)?));
        let sealer = Sealer::new(id, &key, plan.protect)
            .map_err(|error| CastError::Seal { reason: error.to_string() })?;
        let tempo = Tempo::new(plan.rate, monotonic());
        let around = plan.group.headers() + ETHERNET;
        let repair = Fraction::new(REPAIR_SHARE).unwrap_or_default();
        let rates = Rates { group: tempo.rate(), repair, beside: plan.repair_rate, around };
        let redundancy = Redundancy::new(plan.parity, payload)?;
        let config = Config {
            payload,
            block: redundancy.block(),
            parity: redundancy.parity(),
            rates,
            hold: plan.hold,
            most_held: MOST_HELD,
        };
        let machine = Sender::new(config, monotonic());
        Ok(Self {
            plan,
            sockets,
            rivals: Rivals::new(plan.group, plan.keys.clone(), wake.clone()),
            id,
            key,
            sealer,
            machine,
            tempo,
            redundancy,
            products,
            payload,
            outbox,
            hearing,
            wake,
            progress: Progress::default(),
            heard_at: BTreeMap::new(),
            succeeded: BTreeMap::new(),
            starts: Starts::default(),
            lost: Vec::new(),
            has_begun: false,
            wait_until: plan.wait.map(|wait| monotonic().after(wait)),
            // One is waited for as a matter of course.
            awaited_told: u32::from(plan.receivers == 1),
            pace: Nanos::ZERO,
            refused_since: None,
            has_sent: false,
            later: VecDeque::new(),
            idle_until: Nanos::ZERO,
            not_sent: Vec::new(),
            refusals: Refusals::default(),
            is_full_told: false,
            lacks: false,
            lost_bytes: 0,
            interrupted: false,
            ceased: false,
            begun: None,
            run: Vec::new(),
            bytes: Vec::new(),
        })
    }

    /// Has products wait for their turn.
    fn supply(&mut self, tell: &mut dyn FnMut(Notice<'_>)) -> Result<(), CastError> {
        while !self.progress.is_all && self.machine.wants_products() {
            let lacks = &mut self.lacks;
            let next = self.products.next(&mut |not_sent| {
                *lacks |= not_sent.failed;
                tell(Notice::NotSent(not_sent));
            });
            match numbered(next, self.products.count(), |shape| self.machine.on_product(shape))? {
                Some(_) => {
                    self.count();
                }
                None if !self.products.has_ceased() => return Ok(()),
                None if self.products.count() == 0 && self.plan.watch.is_none() => {
                    return Err(CastError::Nothing { reason: NOTHING.to_owned() });
                }
                None => {
                    self.progress.is_all = true;
                    self.machine.on_no_more();
                    let end = Control::Words(Words::End { products: self.products.count() });
                    for receiver in self.progress.peers.keys() {
                        self.outbox.say(*receiver, &end);
                    }
                }
            }
        }
        Ok(())
    }

    /// What is sent, or will be.
    pub(super) fn count(&mut self) {
        self.progress.products = self.products.count() - self.progress.lost - self.progress.replaced;
        self.progress.bytes = self.products.bytes() - self.lost_bytes;
    }

    fn show(&mut self, times: &Times, tell: &mut dyn FnMut(Notice<'_>)) {
        let there: Vec<_> = self.progress.peers.keys().copied().collect();
        there.into_iter().for_each(|receiver| self.look_at(receiver));
        self.progress.totals = self.machine.totals();
        self.progress.rate = Some(self.tempo.rate());
        self.progress.rate_found = self.tempo.was_found();
        self.products.forget_before(self.machine.oldest());
        let until = times.last.unwrap_or_else(monotonic);
        self.progress.seconds = times.first.map_or(0.0, |first| until.since(first).as_secs_f64());
        tell(Notice::Progress(&self.progress));
    }
}

/// The number of the product that was found, where one was, behind so many others.
fn numbered(
    found: Option<Shape>,
    others: u32,
    number: impl FnOnce(Shape) -> Option<u32>,
) -> Result<Option<u32>, CastError> {
    let Some(shape) = found else { return Ok(None) };
    number(shape).map(Some).ok_or(CastError::Exhausted { products: others })
}

/// Why there is nothing to send.
const NOTHING: &str = "no file was found in what was named";

/// What a process may have open where nobody said otherwise.
const USUAL_DESCRIPTORS: u64 = 1024;

/// Of the group's rate, what repairs have while products wait ([`farlink_flow::cast`]'s decision).
const REPAIR_SHARE: f64 = 0.001;

/// Bytes that Ethernet puts around a packet: preamble, header, check sequence and gap (IEEE 802.3).
const ETHERNET: u32 = 38;

/// Products that are held at most: of 40 kB 2.6 GB, which are read again from files.
const MOST_HELD: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_for_which_there_is_no_number_ends_the_session_and_is_not_left_out() {
        let shape = Shape::new(20, 1000).unwrap();
        assert_eq!(numbered(Some(shape), 7, |_| Some(7)).unwrap(), Some(7));
        assert_eq!(numbered(None, 7, |_| None).unwrap(), None);
        let error = numbered(Some(shape), u32::MAX, |_| None).unwrap_err();
        assert_eq!(error.to_string(), "the session has sent 4294967295 products: begin another");
    }
}
