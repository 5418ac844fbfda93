//! The receiver's half of a transfer.

use farlink_host::clock::monotonic;
use farlink_host::socket::{self, Buffer};
use farlink_wire::message::{Goal, Message, Received};
use farlink_wire::quantity::{Bytes, Nanos};

use super::{CONTROL, DONE, Ending, STOP, Session, TransferError};
use crate::control::{ControlError, MESSAGES_A_TURN};
use crate::memory::receiver::Receiving;
use crate::role::Near;

/// Sees a transfer through at the end that receives. The accounts of both ends are in the session's when it is over.
pub(crate) fn receive(
    mut session: Session<'_>,
    mut receiving: Receiving,
    goal: Goal,
) -> Result<Ending, TransferError> {
    let outcome = watch(&mut session, &mut receiving, goal);
    if outcome.is_err() {
        // What was counted stands, however it ended.
        receiving.end();
        let _ = report(&mut session, &receiving);
        session.account.break_off(0, monotonic().since(session.start));
    }
    outcome
}

fn watch(session: &mut Session<'_>, receiving: &mut Receiving, goal: Goal) -> Result<Ending, TransferError> {
    let mut poller = session.poller(receiving.done())?;
    let beat = session.beat();
    let pace = Nanos(session.interval.0.max(SHORTEST_REPORT.0)).min(beat);
    let (mut report_at, mut answer_by) = (session.start.after(pace), None);
    let (mut ending, mut ready, mut unheard) = (Ending::Complete, Vec::new(), false);
    loop {
        let now = monotonic();
        if now >= report_at {
            report(session, receiving)?;
            if session.near == Near::Client {
                (session.observe)(session.account, now.since(session.start));
            }
            report_at = now.after(pace);
        }
        session.check_silence(now)?;
        if answer_by.is_some_and(|by| now > by) {
            return silent(session, ending);
        }
        session.control.flush()?;
        let pause = report_at.min(answer_by.unwrap_or(Nanos::MAX)).since(monotonic());
        session.wait(&mut poller, pause, unheard, &mut ready)?;
        unheard = false;
        for &key in &ready {
            match key {
                CONTROL => match hear(session, answer_by.is_some()) {
                    Ok(Heard::Nothing) => {}
                    Ok(Heard::Enough) => unheard = true,
                    Ok(Heard::Stop) => {
                        ending = Ending::Interrupted;
                        receiving.stop();
                    }
                    Ok(Heard::Sent) => return Ok(ending),
                    // A client that has our account owes us nothing more.
                    Err(_) if session.near == Near::Server && answer_by.is_some() => return Ok(ending),
                    Err(error) => return Err(error),
                },
                STOP if session.near == Near::Server => return Err(TransferError::ServerStopped),
                STOP => {
                    poller.remove(session.stop).map_err(ControlError::Wait)?;
                    ending = Ending::Interrupted;
                    receiving.stop();
                }
                DONE => {
                    poller.remove(receiving.done()).map_err(ControlError::Wait)?;
                    conclude(session, receiving, goal, ending)?;
                    let longest = match ending {
                        Ending::Complete => session.patience.get(),
                        Ending::Interrupted => session.answer,
                    };
                    answer_by = Some(monotonic().after(longest));
                }
                _ => {}
            }
        }
    }
}

enum Heard {
    Nothing,
    /// There may be more.
    Enough,
    Stop,
    Sent,
}

/// Takes what the sender says.
fn hear(session: &mut Session<'_>, counted: bool) -> Result<Heard, TransferError> {
    for _ in 0..MESSAGES_A_TURN {
        let Some(message) = session.control.poll()? else { return Ok(Heard::Nothing) };
        match message {
            Message::Alive => {}
            Message::Traced(rows) => session.account.add_trace(&rows),
            Message::Stop => return Ok(Heard::Stop),
            Message::Sent(sent) if counted => {
                session.account.sent = Some(sent);
                return Ok(Heard::Sent);
            }
            Message::Failed(refusal) => return Err(TransferError::FarSide(refusal)),
            other => return Err(ControlError::out_of_place(&other).into()),
        }
    }
    Ok(Heard::Enough)
}

/// Passes on what has arrived, also when nothing did: it is the sign of life.
fn report(session: &mut Session<'_>, receiving: &Receiving) -> Result<(), TransferError> {
    let arrivals = receiving.arrivals();
    if session.near == Near::Client {
        // Counted here, by this host's clock.
        let _ = session.account.add_arrivals(&arrivals, monotonic().since(session.start));
        session.control.send(&Message::Alive)?;
    } else if arrivals.is_empty() {
        session.control.send(&Message::Alive)?;
    } else {
        session.tell(&arrivals, Message::Arrived)?;
    }
    Ok(())
}

/// The workers have ended: gives the account.
fn conclude(
    session: &mut Session<'_>,
    receiving: &mut Receiving,
    goal: Goal,
    ending: Ending,
) -> Result<(), TransferError> {
    if let Some(error) = receiving.error() {
        return Err(session.explain(error));
    }
    let end = receiving.end();
    report(session, receiving)?;
    if let (Goal::Size(asked), Ending::Complete, false) = (goal, ending, end.complete) {
        return Err(TransferError::Short { arrived: Bytes(end.bytes), asked });
    }
    let sizes = session.streams.iter().filter_map(|stream| socket::buffer_size(stream, Buffer::Receive).ok());
    let received = Received {
        bytes: end.bytes,
        duration: end.duration,
        complete: end.complete,
        cpu: session.meter.read(end.cpu),
        buffer: sizes.max().unwrap_or(0),
    };
    session.account.received = Some(received);
    session.control.send(&Message::Received(received))?;
    Ok(())
}

/// The sender never gave its account.
fn silent(session: &Session<'_>, ending: Ending) -> Result<Ending, TransferError> {
    match (session.near, ending) {
        (Near::Client, Ending::Complete) => {
            Err(ControlError::Silent { quiet: session.patience.get() }.into())
        }
        // Whoever interrupts does not wait for long; and a client that has our account owes us nothing more.
        _ => Ok(ending),
    }
}

/// Reports are not sent more often than this, however short a sample is.
const SHORTEST_REPORT: Nanos = Nanos(100_000_000);
