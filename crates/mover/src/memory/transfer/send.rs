//! The sender's half of a transfer.

use farlink_host::clock::monotonic;
use farlink_host::congestion;
use farlink_host::readiness::Wake;
use farlink_host::socket::{self, Buffer};
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::{Goal, Message, Sent, Text, TraceRow};
use farlink_wire::quantity::Nanos;

use super::{CONTROL, DONE, Ending, STOP, Session, TransferError};
use crate::control::{ControlError, MESSAGES_A_TURN};
use crate::memory::sender::Sending;
use crate::role::Near;
use crate::tuning::OFTEN;

/// Sees a transfer through at the end that sends. The accounts of both ends are in the session's when it is over.
pub(crate) fn send(
    mut session: Session<'_>,
    mut sending: Sending,
    goal: Goal,
) -> Result<Ending, TransferError> {
    let outcome = watch(&mut session, &mut sending, goal);
    if outcome.is_err() {
        // What has arrived since the receiver's last report stands, however it ended.
        sending.end();
        session.account.break_off(sending.acknowledged(), monotonic().since(session.start));
    }
    outcome
}

fn watch(session: &mut Session<'_>, sending: &mut Sending, goal: Goal) -> Result<Ending, TransferError> {
    let mut poller = session.poller(sending.done())?;
    let beat = session.beat();
    let end = match goal {
        Goal::Duration(time) => session.start.after(time),
        Goal::Size(_) => Nanos::MAX,
    };
    let (mut sample_at, mut beat_at) = (session.start.after(session.interval), session.start);
    let mut look_at = if session.circuit.is_some() { session.start } else { Nanos::MAX };
    let mut answer_by = None;
    let (mut ready, mut unheard) = (Vec::new(), false);
    loop {
        let now = monotonic();
        if now >= beat_at {
            session.control.send(&Message::Alive)?;
            beat_at = now.after(beat);
        }
        if now >= look_at {
            look(session);
            look_at = now.after(OFTEN);
        }
        if now >= sample_at {
            if now <= end.after(session.interval) {
                sample(session, now)?;
            }
            let at = now.since(session.start);
            (session.observe)(session.account, at);
            let ticks = at.0 / session.interval.0 + 1;
            sample_at = session.start.after(Nanos(session.interval.0 * ticks));
        }
        session.check_silence(now)?;
        if answer_by.is_some_and(|by| now > by) {
            // What the receiver reported until now is all that will be known.
            return Ok(Ending::Interrupted);
        }
        session.control.flush()?;
        let pause =
            sample_at.min(beat_at).min(look_at).min(answer_by.unwrap_or(Nanos::MAX)).since(monotonic());
        session.wait(&mut poller, pause, unheard, &mut ready)?;
        unheard = false;
        for &key in &ready {
            match key {
                CONTROL => match hear(session)? {
                    Heard::Nothing => {}
                    Heard::Enough => unheard = true,
                    Heard::Account { complete } => {
                        return finish(session, sending, complete && answer_by.is_none());
                    }
                },
                STOP if session.near == Near::Server => return Err(TransferError::ServerStopped),
                STOP => {
                    poller.remove(session.stop).map_err(ControlError::Wait)?;
                    sending.stop();
                    session.control.send(&Message::Stop)?;
                    answer_by = Some(monotonic().after(session.answer));
                }
                DONE => {
                    poller.remove(sending.done()).map_err(ControlError::Wait)?;
                    if let Some(error) = sending.error() {
                        return Err(session.explain(error));
                    }
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
    /// The receiver's, and whether the goal was reached.
    Account {
        complete: bool,
    },
}

/// Takes what the receiver says.
fn hear(session: &mut Session<'_>) -> Result<Heard, TransferError> {
    for _ in 0..MESSAGES_A_TURN {
        let Some(message) = session.control.poll()? else { return Ok(Heard::Nothing) };
        match message {
            Message::Alive => {}
            Message::Arrived(arrivals) => {
                if !session.account.add_arrivals(&arrivals, monotonic().since(session.start)) {
                    return Err(ControlError::OutOfPlace { what: "arrivals from the future" }.into());
                }
            }
            Message::Received(received) => {
                session.account.received = Some(received);
                return Ok(Heard::Account { complete: received.complete });
            }
            Message::Failed(refusal) => return Err(TransferError::FarSide(refusal)),
            other => return Err(ControlError::out_of_place(&other).into()),
        }
    }
    Ok(Heard::Enough)
}

/// Whether the circuit still holds.
fn look(session: &Session<'_>) {
    let Some(circuit) = &session.circuit else { return };
    session.streams.iter().filter_map(|stream| TcpInfo::of(stream).ok()).for_each(|info| circuit.look(&info));
}

/// Asks the kernel of every stream.
fn sample(session: &mut Session<'_>, now: Nanos) -> Result<(), TransferError> {
    let at = now.since(session.start);
    let row = |(index, stream)| {
        let info = TcpInfo::of(stream).ok()?;
        Some(TraceRow {
            stream: index as u16,
            at,
            cwnd: info.cwnd_bytes(),
            srtt: info.srtt,
            retransmits: info.retransmits.into(),
            pacing: info.pacing_bps,
        })
    };
    let rows: Vec<_> = session.streams.iter().enumerate().filter_map(row).collect();
    session.account.add_trace(&rows);
    // A path that is silent for a while is no reason to end: what waits there are signs of life, and rows that nobody misses.
    if session.near == Near::Server && session.control.unsent() < MOST_WAITING {
        session.tell(&rows, Message::Traced)?;
    }
    Ok(())
}

/// The receiver counts no more: whatever is still on its way is of no use to anyone.
fn finish(session: &mut Session<'_>, sending: &mut Sending, complete: bool) -> Result<Ending, TransferError> {
    let system = |attempt| move |source| TransferError::System { attempt, source };
    look(session);
    let circuit = session.circuit.as_ref().and_then(|circuit| circuit.account());
    let (mut buffer, mut retransmits, mut mtu) = (0, 0, 0);
    for stream in session.streams {
        let info = TcpInfo::of(stream).unwrap_or_default();
        retransmits += u64::from(info.retransmits);
        mtu = mtu.max(info.path_mtu);
        buffer = buffer.max(socket::buffer_size(stream, Buffer::Send).unwrap_or(0));
    }
    let congestion = session.streams.first().map(socket::congestion).transpose();
    let congestion = congestion.map_err(system("read the congestion control"))?.unwrap_or_default();
    let origin = congestion::origin(&congestion);
    let zero_copy = sending.zero_copy();
    let reason = sending.reason().map(|reason| Text::from(reason.to_owned()));
    let workers = sending.end();
    for stream in session.streams {
        socket::discard_on_close(stream).map_err(system("set a socket to discard"))?;
    }
    let cpu = session.meter.read(workers);
    let sent = Sent {
        cpu,
        buffer,
        retransmits,
        congestion: congestion.into(),
        origin,
        reason,
        mtu,
        zero_copy,
        circuit,
    };
    // A client that has its account may be gone already.
    let stops: &[&Wake] = if session.near == Near::Server { &[session.stop] } else { &[] };
    let told = session.control.send_patiently(&Message::Sent(sent.clone()), session.patience.get(), stops);
    session.account.sent = Some(sent);
    if session.near == Near::Server && !told? {
        return Err(TransferError::ServerStopped);
    }
    Ok(if complete { Ending::Complete } else { Ending::Interrupted })
}

/// Bytes that may wait for the client when rows of a trace are told to it.
const MOST_WAITING: usize = 256 << 10;
