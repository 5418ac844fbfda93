//! The door of a session: takes control connections, admits those that may come in, and passes what they say on to the sender's thread.
//! One thread, which waits for none of them.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_host::socket::keep_alive;
use farlink_mover::channel::Channel;
use farlink_wire::cast::SessionId;
use farlink_wire::cast::control::{Control, ControlError, Join, Leave, Report, Want, Words};
use farlink_wire::message::check_version;
use farlink_wire::quantity::Nanos;
use farlink_wire::refusal::{Cause, Refusal};
use rustls::ServerConfig;

use crate::group::Group;
use crate::line::{Filled, Line};
use crate::outbox::Outbox;
use crate::send::grants::Grants;
use crate::send::room::Room;

mod hearsay;

use hearsay::Hearsay;
pub(crate) use hearsay::{Hearing, hearsay};

/// What the door tells the sender's thread of a receiver.
#[derive(Debug)]
pub(crate) enum Heard {
    /// It wants to take part.
    Join(Box<Join>, SocketAddr),
    /// It lacks something.
    Nack(Vec<Want>),
    /// It has these products.
    Have(Vec<(u32, u32)>),
    /// How it fares.
    Report(Report),
    /// It cannot store a product.
    Failed(u32, String),
    /// Its connection takes more again.
    Writable,
    /// It has left, with an account where it did so of its own accord.
    Left(Option<Leave>),
    /// Somebody who had not joined was not let in, or went away.
    Refused(SocketAddr, String),
    /// Somebody was put off: as many receivers are there as may be.
    Full(usize),
}

/// What a door needs.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listeners: Vec<TcpListener>,
    /// Keys; everything is in clear where that is absent.
    pub(crate) config: Option<Arc<ServerConfig>>,
    /// What each key may read, and so whether it may take part.
    pub(crate) grants: Option<Grants>,
    /// Which session it is the door of, and to which group that sends.
    pub(crate) session: SessionId,
    pub(crate) group: Group,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) heard: Hearsay,
    /// Raised after something was told.
    pub(crate) wake: Wake,
    /// How many connections there may be.
    pub(crate) room: Room,
}

/// A connection.
struct Guest {
    line: Line,
    from: SocketAddr,
    has_joined: bool,
    /// When one that has not joined is shown out.
    until: Nanos,
    interest: Interest,
    /// Whether more of what it said may be there: perhaps beneath TLS, of which the kernel tells nothing.
    has_more: bool,
}

/// Why a connection is there no longer.
enum Farewell {
    /// Its receiver has left: of its own accord where it said so.
    Left(Option<Leave>),
    /// It failed, or may not be.
    Refused(String),
    /// There was no room for its receiver.
    PutOff,
    /// Its receiver had all of the session: it asks now and then whether there is another.
    HadAll,
}

impl Door {
    /// Works until `stop` is raised; what waits for the network then is sent first, for as long as [`FAREWELL`].
    pub(crate) fn work(&self, stop: &Wake) -> io::Result<()> {
        let mut poller = Poller::new()?;
        poller.add(&self.outbox.wake, MAIL, Interest::Read)?;
        poller.add(stop, STOP, Interest::Read)?;
        for (index, listener) in self.listeners.iter().enumerate() {
            poller.add(listener, LISTENERS + index as u64, Interest::Read)?;
        }
        let (mut guests, mut next) = (BTreeMap::<u32, Guest>::new(), 0);
        let (mut ready, mut end) = (Vec::new(), None);
        // Those who said more than was taken of it: the others have their turns before it goes on.
        let mut talkative = Vec::new();
        // Until when nobody is taken in, as that was not possible.
        let mut shut_until = None;
        loop {
            let now = monotonic();
            // Closed before, a connection on which something still comes is reset, and what was said last is lost.
            let listens = |guest: &Guest| guest.has_joined && self.outbox.is_broken_off();
            let is_through = |guest: &Guest| !guest.line.has_unsent() && !listens(guest);
            if end.is_some_and(|end| now >= end || guests.values().all(is_through)) {
                return Ok(());
            }
            let strangers = guests.values().any(|guest| !guest.has_joined);
            let sweeps = strangers || end.is_some() || shut_until.is_some();
            let time = if !talkative.is_empty() {
                Nanos::ZERO
            } else if sweeps {
                SWEEP
            } else {
                Nanos::MAX
            };
            poller.wait(time, &mut ready)?;
            talkative.retain(|key| !ready.contains(key));
            ready.append(&mut talkative);
            if shut_until.take_if(|until| *until <= monotonic()).is_some() {
                for (index, listener) in self.listeners.iter().enumerate() {
                    poller.add(listener, LISTENERS + index as u64, Interest::Read)?;
                }
            }
            for key in &ready {
                match *key {
                    STOP if end.is_none() => {
                        poller.remove(stop)?;
                        self.deliver(&mut guests, &poller);
                        end = Some(monotonic().after(FAREWELL));
                    }
                    STOP => {}
                    MAIL => {
                        self.outbox.wake.lower();
                        self.deliver(&mut guests, &poller);
                        self.dismiss(&mut guests, &poller);
                    }
                    key if key >= LISTENERS => {
                        let listener = &self.listeners[(key - LISTENERS) as usize];
                        if shut_until.is_none() && !self.welcome(listener, &mut guests, &mut next, &poller) {
                            self.listeners.iter().try_for_each(|listener| poller.remove(listener))?;
                            shut_until = Some(monotonic().after(SWEEP));
                        }
                    }
                    key => {
                        self.attend(key as u32, &mut guests, &poller);
                        if guests.get(&(key as u32)).is_some_and(|guest| guest.has_more) {
                            talkative.push(key);
                        }
                    }
                }
            }
            let now = monotonic();
            let late: Vec<_> = guests
                .iter()
                .filter(|(_, guest)| !guest.has_joined && guest.until <= now)
                .map(|(number, _)| *number)
                .collect();
            for number in late {
                let farewell = Farewell::Refused("it said nothing".to_owned());
                self.show_out(number, &mut guests, &poller, farewell);
            }
        }
    }

    fn tell(&self, receiver: u32, heard: Heard) {
        self.heard.tell(receiver, heard);
        self.wake.raise();
    }

    /// Takes who is there; false where this process can take nobody for now: it has no descriptor left, say.
    fn welcome(
        &self,
        listener: &TcpListener,
        guests: &mut BTreeMap<u32, Guest>,
        next: &mut u32,
        poller: &Poller,
    ) -> bool {
        loop {
            let (stream, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return true,
                    // Who came has gone again.
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    _ => return false,
                },
            };
            if guests.values().filter(|guest| !guest.has_joined).count() >= self.room.strangers {
                let Some(other) = superfluous(guests, from.ip()) else { continue };
                self.show_out(
                    other,
                    guests,
                    poller,
                    Farewell::Refused("too many came from there".to_owned()),
                );
            }
            let open = || {
                keep_alive(&stream, UNASKED, ASKED_EVERY, MOST_ASKED)?;
                let mut channel = Channel::over_tcp(stream)?;
                if let Some(config) = &self.config {
                    channel.seal_as_server(Arc::clone(config), &[])?;
                }
                poller.add(&channel, u64::from(*next), Interest::Read)?;
                io::Result::Ok(Line::new(channel))
            };
            let until = monotonic().after(PATIENCE);
            match open() {
                Ok(line) => {
                    let interest = Interest::Read;
                    guests.insert(
                        *next,
                        Guest { line, from, has_joined: false, until, interest, has_more: false },
                    );
                    *next += 1;
                }
                Err(error) => self.tell(*next, Heard::Refused(from, error.to_string())),
            }
        }
    }

    /// There is news of a connection.
    fn attend(&self, number: u32, guests: &mut BTreeMap<u32, Guest>, poller: &Poller) {
        let Some(guest) = guests.get(&number) else { return };
        let is_full = !guest.has_joined
            && guests.values().filter(|guest| guest.has_joined).count() >= self.room.receivers;
        let Some(guest) = guests.get_mut(&number) else { return };
        match self.hear(number, guest, is_full) {
            Ok(None) => self.settle(number, guests, poller),
            Ok(Some(farewell)) => self.show_out(number, guests, poller, farewell),
            Err(error) => self.show_out(number, guests, poller, Farewell::Refused(error)),
        }
    }

    /// Takes a part of what a receiver says; `Some` where it is there no longer.
    fn hear(&self, number: u32, guest: &mut Guest, is_full: bool) -> Result<Option<Farewell>, String> {
        if !guest.line.shake_hands().map_err(|error| error.to_string())? {
            return Ok(None);
        }
        let filled = guest.line.fill().map_err(|error| error.to_string())?;
        if filled == Filled::Ended && !guest.has_joined {
            // One that asked waited for long, and comes again.
            let reason = if guest.line.has_received() { LEFT_ASKING } else { LEFT_BEFORE_JOINING };
            return Err(reason.to_owned());
        }
        if guest.has_joined && !self.outbox.is_open(number) {
            // It was given up, and comes back over another connection.
            return Err(GIVEN_UP.to_owned());
        }
        let mut answers = Vec::new();
        loop {
            let control = match guest.line.next() {
                Ok(Some(control)) => control,
                Ok(None) => break,
                Err(ControlError::Version(error)) if !guest.has_joined => {
                    return Err(refused(&mut guest.line, error.to_string()));
                }
                Err(error) => return Err(error.to_string()),
            };
            if !guest.has_joined && !matches!(control, Control::Words(Words::Join(_))) {
                return Err("it said something else before it had joined".to_owned());
            }
            let heard = match control {
                Control::Words(Words::Join(join)) if !guest.has_joined => {
                    if let Err(error) = check_version(join.version) {
                        return Err(refused(&mut guest.line, error.to_string()));
                    }
                    if join.ended == Some(self.session) {
                        let refusal = Refusal::new(Cause::Complete, "it had all of this session before");
                        guest.line.push(&Control::Words(Words::Refuse(refusal)));
                        return Ok(Some(Farewell::HadAll));
                    }
                    let named = |at: SocketAddr| (at.ip(), at.port());
                    let is_other = |group: &SocketAddr| named(*group) != named(self.group.address());
                    if let Some(other) = join.group.filter(is_other) {
                        let reason = format!(
                            "it sends to {0}, and not to the group {other}: say --group {0}",
                            self.group
                        );
                        return Err(refused(&mut guest.line, reason));
                    }
                    let grants = self.grants.as_ref();
                    let key = guest.line.channel().peer_key();
                    if let Some(reason) = grants.and_then(|grants| grants.refusal(key)) {
                        return Err(refused(&mut guest.line, reason));
                    }
                    if is_full {
                        guest.line.push(&Control::Words(Words::Refuse(self.room.put_off())));
                        return Ok(Some(Farewell::PutOff));
                    }
                    guest.has_joined = true;
                    self.outbox.open(number);
                    Heard::Join(join, guest.from)
                }
                Control::Words(Words::Leave(leave)) => return Ok(Some(Farewell::Left(Some(leave)))),
                Control::Echo { answer: false, stamp } => {
                    answers.push(stamp);
                    continue;
                }
                Control::Echo { .. } => continue,
                Control::Nack(wants) => Heard::Nack(wants),
                Control::Have(runs) => Heard::Have(runs),
                Control::Report(report) => Heard::Report(report),
                Control::Failed { product, reason } => Heard::Failed(product, reason.to_string()),
                _ => return Err("it said what only a sender says".to_owned()),
            };
            self.tell(number, heard);
        }
        for stamp in answers {
            guest.line.push(&Control::Echo { answer: true, stamp });
        }
        guest.has_more = filled == Filled::More;
        Ok((filled == Filled::Ended).then_some(Farewell::Left(None)))
    }

    /// Takes what a receiver said before its connection took nothing more: it may have left by then, with an account.
    fn hear_out(&self, number: u32, guest: &mut Guest) -> Option<Farewell> {
        for _ in 0..MOST_HEARD_OUT {
            match self.hear(number, guest, false) {
                Ok(Some(left @ Farewell::Left(_))) => return Some(left),
                Ok(None) if guest.has_joined && guest.has_more => {}
                _ => return None,
            }
        }
        None
    }

    /// Passes what the sender's thread says on.
    fn deliver(&self, guests: &mut BTreeMap<u32, Guest>, poller: &Poller) {
        for number in self.outbox.addressees() {
            let frames = self.outbox.take(number);
            if let Some(guest) = guests.get_mut(&number) {
                guest.line.push_frames(&frames);
                self.settle(number, guests, poller);
            }
        }
    }

    /// Ends the connections of receivers that the sender's thread has given up: of one whose host has failed nothing comes any more.
    fn dismiss(&self, guests: &mut BTreeMap<u32, Guest>, poller: &Poller) {
        for number in self.outbox.closed() {
            self.show_out(number, guests, poller, Farewell::Refused(GIVEN_UP.to_owned()));
        }
    }

    /// Sends what a connection takes, and waits for what it waits for.
    fn settle(&self, number: u32, guests: &mut BTreeMap<u32, Guest>, poller: &Poller) {
        let Some(guest) = guests.get_mut(&number) else { return };
        if let Err(error) = guest.line.flush() {
            let farewell = self.hear_out(number, guest).unwrap_or(Farewell::Refused(error.to_string()));
            return self.show_out(number, guests, poller, farewell);
        }
        if guest.line.unsent() > MOST_UNSENT {
            let reason = "it asks and does not take the answers".to_owned();
            return self.show_out(number, guests, poller, Farewell::Refused(reason));
        }
        if self.outbox.waits(number, guest.line.unsent()) {
            self.tell(number, Heard::Writable);
        }
        let interest = if guest.line.has_unsent() { Interest::Both } else { Interest::Read };
        if interest != guest.interest {
            guest.interest = interest;
            let channel = guest.line.channel();
            let changed =
                poller.remove(channel).and_then(|()| poller.add(channel, u64::from(number), interest));
            if let Err(error) = changed {
                self.show_out(number, guests, poller, Farewell::Refused(error.to_string()));
            }
        }
    }

    fn show_out(&self, number: u32, guests: &mut BTreeMap<u32, Guest>, poller: &Poller, farewell: Farewell) {
        let Some(mut guest) = guests.remove(&number) else { return };
        let _ = poller.remove(guest.line.channel());
        // Why it was refused stands in what TLS still has to say.
        let _ = guest.line.flush();
        guest.line.finish();
        self.outbox.close(number);
        self.tell(
            number,
            match farewell {
                Farewell::Left(leave) => Heard::Left(leave),
                Farewell::Refused(_) if guest.has_joined => Heard::Left(None),
                Farewell::Refused(reason) => Heard::Refused(guest.from, reason),
                Farewell::PutOff => Heard::Full(self.room.receivers),
                // There is nothing to tell, each time that it asks.
                Farewell::HadAll => return,
            },
        );
    }
}

/// Of the connections that have not joined, the oldest from the address that has most of them: where that has many more than `newcomer`, it
/// would keep others out.
fn superfluous(guests: &BTreeMap<u32, Guest>, newcomer: IpAddr) -> Option<u32> {
    let mut from: BTreeMap<IpAddr, (usize, u32)> = BTreeMap::new();
    for (number, guest) in guests.iter().filter(|(_, guest)| !guest.has_joined) {
        from.entry(guest.from.ip()).or_insert((0, *number)).0 += 1;
    }
    let own = from.get(&newcomer).map_or(0, |(count, _)| *count);
    let (count, oldest) = from.into_values().max_by_key(|(count, _)| *count)?;
    (count > own + 1).then_some(oldest)
}

/// Tells who asked over `line` why it is refused for good, and gives that back.
fn refused(line: &mut Line, reason: String) -> String {
    line.push(&Control::Words(Words::Refuse(Refusal::lasting(reason.clone()))));
    reason
}

/// Why who had begun to ask was not let in.
const LEFT_ASKING: &str = "it went away before it was let in";

/// Why who went away as a stranger was not let in.
const LEFT_BEFORE_JOINING: &str = "it ended the connection before it had asked to take part, as another sender does that asks whether the group is in use";

/// Why who was given up is shown out.
const GIVEN_UP: &str = "it was silent for too long";

/// How long a connection may bring nothing before its far kernel is asked whether it is there, how often, and how many answers may be
/// lost: the host of one that said nothing to the end has failed a minute ago.
const UNASKED: Duration = Duration::from_secs(20);
const ASKED_EVERY: Duration = Duration::from_secs(10);
const MOST_ASKED: u32 = 3;

/// How long a connection may take to join.
const PATIENCE: Nanos = Nanos(10_000_000_000);

/// How long the end waits for what is still to be sent.
const FAREWELL: Nanos = Nanos(2_000_000_000);

/// Bytes that wait for one receiver at most: what it has to be told however slow it is, of a million products that are gone, is half of that.
const MOST_UNSENT: usize = if cfg!(test) { 64 << 10 } else { 8 << 20 };

/// How often it is read what a connection had said, each time as much as a frame has at most and more: it is gone, and says no more.
const MOST_HEARD_OUT: u32 = 64;

/// How often those who do not join are looked for.
const SWEEP: Nanos = Nanos(50_000_000);

/// Keys of what is waited for; connections count from 0.
const LISTENERS: u64 = 1 << 32;
const MAIL: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

#[cfg(test)]
mod tests;
