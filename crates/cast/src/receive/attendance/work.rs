//! The loop of a receiver's thread in one session: hears the group and the sender, does what the machine says, and waits.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use farlink_host::clock::monotonic;
use farlink_host::multicast::Inbox;
use farlink_host::precise::wait_readable;
use farlink_host::readiness::Wake;
use farlink_wire::cast::control::{Control, Words};
use farlink_wire::cast::packet::Header;
use farlink_wire::quantity::Nanos;

use super::{Attendance, Departure};
use crate::contact::told;
use crate::error::CastError;
use crate::line::{Filled, Line};
use crate::receive::hearing::Hearing;
use crate::receive::{Notice, Plan, UNHEARD};
use crate::storage::Storage;

/// What came from the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Brought {
    Nothing,
    /// All that was there.
    All,
    /// And more is.
    More,
}

/// What the loop keeps from one round to the next.
struct Round {
    /// The sender.
    at: SocketAddr,
    /// When the user is to hear next how it goes.
    shown_at: Nanos,
    /// When the sender was heard last, and the group.
    heard_at: Nanos,
    group_at: Nanos,
    /// When to say that the group is not heard, and whether that was said; and when to ask for it again.
    unheard_at: Nanos,
    is_told: bool,
    again_at: Nanos,
    /// Whether something may have come over the control connection.
    line_is_ready: bool,
    /// Why nothing more comes, once the sender has said so.
    broken_off: Option<String>,
    is_unwritable: bool,
}

impl Round {
    fn new(now: Nanos, at: SocketAddr) -> Self {
        Self {
            at,
            shown_at: now,
            heard_at: now,
            group_at: now,
            unheard_at: now.after(UNHEARD),
            is_told: false,
            again_at: now.after(UNHEARD),
            line_is_ready: true,
            broken_off: None,
            is_unwritable: false,
        }
    }

    /// The connection to the sender failed.
    fn failed(&self, source: io::Error) -> CastError {
        told(self.at, None, source)
    }

    /// Something came from the group.
    fn on_group(&mut self, now: Nanos) {
        (self.group_at, self.unheard_at, self.again_at) = (now, Nanos::MAX, now.after(UNHEARD));
        self.is_told = false;
    }
}

impl Attendance {
    /// Takes part until everything is there, the user ends it, or the connection breaks.
    pub(in crate::receive) fn work(
        &mut self,
        plan: &Plan,
        hearing: &mut Hearing,
        storage: &Storage,
        line: &mut Line,
        stop: &Wake,
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> Result<Departure, CastError> {
        let at = line.channel().tcp().and_then(|tcp| tcp.peer_addr().ok()).unwrap_or(plan.group.address());
        let (mut inbox, mut ready) = (Inbox::new(), Vec::new());
        let mut round = Round::new(monotonic(), at);
        loop {
            let received = self.opener.counts().received;
            let brought = self.hear_group(hearing, storage, line, &mut inbox, stop, tell)?;
            // Where something took long the line was not looked at: nothing may have come, or much.
            round.line_is_ready |= monotonic().since(round.heard_at) > plan.patience;
            let filled = if round.line_is_ready {
                line.fill().map_err(|source| round.failed(source))?
            } else {
                Filled::Dry
            };
            let now = monotonic();
            self.hear_line(now, &mut round, storage, line)?;
            self.do_all(storage, line, stop, tell);
            if self.machine.is_complete() {
                self.times.last.get_or_insert(now);
                self.leave(line);
                // It may have been moved since it was looked last.
                return storage.check_is_there().map(|()| Departure::Complete);
            }
            if let Some(reason) = round.broken_off.take() {
                return Err(CastError::BrokenOff { at, reason });
            }
            if filled == Filled::Ended {
                let closed = "it closed the connection";
                return Err(round.failed(io::Error::new(io::ErrorKind::UnexpectedEof, closed)));
            }
            if let Err(error) = line.flush() {
                // What the sender said before it closed is still to be read.
                if std::mem::replace(&mut round.is_unwritable, true) {
                    return Err(round.failed(error));
                }
                round.line_is_ready = true;
                continue;
            }
            if now.since(round.heard_at) > plan.patience {
                return Err(CastError::Silent { at, quiet: plan.patience });
            }
            if now >= round.shown_at {
                round.shown_at = now.after(OFTEN);
                self.show(storage, line, tell)?;
            }
            // Where packets come one close behind the other, several are waited for: each time that this thread is woken costs as much as
            // a packet or two.
            let is_dense = brought == Brought::All && now.since(round.group_at) < DENSE;
            // What others send there tells nothing of the session.
            if self.opener.counts().received > received {
                round.on_group(now);
            }
            if now >= round.again_at {
                hearing.join_again(plan);
                round.again_at = now.after(UNHEARD);
            }
            if now >= round.unheard_at {
                (round.unheard_at, round.is_told) = (Nanos::MAX, true);
                tell(plan.unheard(now.since(round.group_at), Some(at)));
            }
            let mut until = self.machine.deadline().min(round.shown_at);
            if line.has_unsent() {
                until = until.min(now.after(SEND_AGAIN));
            }
            let is_busy = brought == Brought::More || filled == Filled::More || self.may_look();
            let mut pause = if is_busy { Nanos::ZERO } else { until.since(monotonic()) };
            let mut waited = vec![stop.as_fd(), line.channel().as_fd()];
            if is_dense && !is_busy {
                pause = pause.min(NAP);
            } else {
                waited.push(hearing.socket().as_fd());
            }
            wait_readable(&waited, Some(pause), &mut ready).map_err(CastError::Wait)?;
            if ready.first() == Some(&true) {
                self.leave(line);
                return Ok(Departure::Stopped);
            }
            round.line_is_ready = filled == Filled::More || ready.get(1) == Some(&true);
        }
    }

    /// Takes what the sender has said.
    fn hear_line(
        &mut self,
        now: Nanos,
        round: &mut Round,
        storage: &Storage,
        line: &mut Line,
    ) -> Result<(), CastError> {
        let at = round.at;
        while let Some(control) = line.next().map_err(|source| CastError::Protocol { at, source })? {
            round.heard_at = now;
            let answer = match control {
                Control::Words(Words::Refuse(refusal)) => {
                    return Err(CastError::Refused { at, refusal });
                }
                Control::Words(Words::BreakOff(reason)) => {
                    round.broken_off = Some(reason.to_string());
                    None
                }
                Control::Echo { answer: false, stamp } => Some(stamp),
                other => {
                    // The sender has noticed, too, that this end hears nothing.
                    if matches!(other, Control::Gone(_))
                        && !round.is_told
                        && now.since(round.group_at) >= DEAF
                    {
                        round.unheard_at = now;
                    }
                    self.hear_sender(now, &other, storage);
                    None
                }
            };
            if let Some(stamp) = answer {
                line.push(&Control::Echo { answer: true, stamp });
            }
        }
        Ok(())
    }

    /// Says how it goes, and leaves where what is stored would be stored where nobody looks for it.
    fn show(
        &mut self,
        storage: &Storage,
        line: &mut Line,
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> Result<(), CastError> {
        if let Err(error) = storage.check_is_there() {
            self.leave(line);
            return Err(error);
        }
        self.machine.on_counts(self.opener.counts(), self.opener.refused().total());
        tell(Notice::Progress(&self.progress()));
        Ok(())
    }

    /// Takes what came from the group.
    fn hear_group(
        &mut self,
        hearing: &mut Hearing,
        storage: &Storage,
        line: &mut Line,
        inbox: &mut Inbox,
        stop: &Wake,
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> Result<Brought, CastError> {
        let mut brought = Brought::Nothing;
        for _ in 0..AT_ONCE {
            if !hearing.receive_all(inbox, tell).map_err(CastError::Wait)? {
                return Ok(brought);
            }
            brought = Brought::All;
            let now = monotonic();
            for packet in inbox.each().flat_map(|(received, run)| run.chunks_mut(received.packet)) {
                match self.opener.open(packet) {
                    Ok((Header::Data(data), payload)) => {
                        if self.has_room(&data, payload.len()) {
                            self.take(now, &data, &packet[payload], storage);
                        }
                    }
                    Ok((Header::Parity(parity), payload)) => {
                        self.machine.on_parity(now, &parity, &packet[payload]);
                    }
                    Ok((Header::Status(position), _)) => self.machine.on_status(now, position),
                    // It is counted.
                    Err(_) => {}
                }
            }
            self.do_all(storage, line, stop, tell);
            if !inbox.is_full() {
                return Ok(brought);
            }
        }
        Ok(Brought::More)
    }
}

/// Calls for packets of the group between two looks at the control connection: each brings up to sixteen runs of them.
const AT_ONCE: u32 = 8;

/// How close behind each other packets come that are waited for together, and for how long that is: a receive buffer of 64 KiB holds
/// 1.3 ms at 400 Mb/s.
const DENSE: Nanos = Nanos(400_000);
const NAP: Nanos = Nanos(200_000);

/// For how long nothing comes to an end that hears nothing: something is sent to the group each second.
const DEAF: Nanos = Nanos(2_500_000_000);

/// How often progress is told.
const OFTEN: Nanos = Nanos(200_000_000);

/// When to look again whether the connection takes more.
const SEND_AGAIN: Nanos = Nanos(1_000_000);
