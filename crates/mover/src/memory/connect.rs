//! From nothing to consent in two round trips: every connection is opened at the same moment, and the request
//! leaves with the first that can carry it.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};

use farlink_host::clock::monotonic;
use farlink_host::process;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_host::socket;
use farlink_wire::message::{Accept, Message, Preamble, Request};
use farlink_wire::quantity::Nanos;

use super::MemoryError;
use crate::control::{Control, ControlError};
use crate::server::for_circuits;
use crate::transfer::Near;
use crate::tuning::{Role, tune};

/// A far end that consented.
pub(super) struct Consent {
    pub(super) control: Control,
    pub(super) streams: Vec<TcpStream>,
    pub(super) accept: Accept,
    /// When the request left.
    pub(super) sent: Nanos,
    /// When consent had come.
    pub(super) returned: Nanos,
}

/// Asks the server at `address`; `None` where `stop` was raised first.
pub(super) fn connect(
    address: SocketAddr,
    request: &Request,
    until: Nanos,
    stop: &Wake,
) -> Result<Option<Consent>, MemoryError> {
    let failed = |source| MemoryError::Connect { address, source };
    let role = if Near::Client.sends(request.way) { Role::Sender } else { Role::Receiver };
    let opened = socket::unconnected(address).map_err(failed)?;
    let (mut streams, mut loaded) = (Vec::new(), None);
    for _ in 0..request.streams.get() {
        let stream = socket::unconnected(address).map_err(failed)?;
        // Before connecting: the window that is offered, and its scale, depend on the buffer.
        tune(&stream, role, request, &mut loaded)
            .map_err(|source| MemoryError::Tune { host: process::host_name(), source })?;
        streams.push(stream);
    }
    socket::start_connecting(&opened, address).map_err(failed)?;
    let data = if request.declared.is_some() { for_circuits(address) } else { address };
    for stream in &streams {
        socket::start_connecting(stream, data).map_err(failed)?;
    }
    let mut poller = Poller::new().map_err(failed)?;
    poller.add(stop, STOP, Interest::Read).map_err(failed)?;
    poller.add(&opened, CONTROL, Interest::Write).map_err(failed)?;
    for (key, stream) in streams.iter().enumerate() {
        poller.add(stream, key as u64, Interest::Write).map_err(failed)?;
    }
    let (mut opened, mut talk) = (Some(opened), None::<(Control, Nanos)>);
    let (mut waiting, mut ready) = (streams.len() + 1, Vec::new());
    let mut consent = None;
    while waiting > 0 {
        let now = monotonic();
        if now >= until {
            return Err(MemoryError::Unanswered { address });
        }
        poller.wait(until.since(now), &mut ready).map_err(failed)?;
        for &key in &ready {
            match (key, &mut talk) {
                (STOP, _) => return Ok(None),
                (CONTROL, Some((control, _))) => match hear(control, address)? {
                    Some(accept) => consent = Some((accept, monotonic())),
                    None => continue,
                },
                (CONTROL, None) => {
                    let Some(stream) = opened.take() else { continue };
                    socket::connected(&stream).map_err(failed)?;
                    poller.remove(&stream).map_err(failed)?;
                    poller.add(&stream, CONTROL, Interest::Read).map_err(failed)?;
                    talk = Some(ask(stream, request, address)?);
                    waiting -= 1;
                }
                (key, _) => {
                    let Some(stream) = streams.get(key as usize) else { continue };
                    socket::connected(stream).map_err(failed)?;
                    poller.remove(stream).map_err(failed)?;
                    introduce(stream, Preamble { token: request.token, stream: key as u16 })
                        .map_err(failed)?;
                    waiting -= 1;
                }
            }
        }
    }
    let Some((mut control, sent)) = talk else { return Err(MemoryError::Unanswered { address }) };
    while consent.is_none() {
        let message = control.next(until, stop);
        let returned = monotonic();
        match message.map_err(|source| MemoryError::Talk { address, source })? {
            Some(message) => consent = judge(message, address)?.map(|accept| (accept, returned)),
            None => return Ok(None),
        }
    }
    Ok(consent.map(|(accept, returned)| Consent { control, streams, accept, sent, returned }))
}

/// Says hello and asks; when that left.
fn ask(stream: TcpStream, request: &Request, address: SocketAddr) -> Result<(Control, Nanos), MemoryError> {
    let mut control =
        Control::new(stream, Vec::new()).map_err(|source| MemoryError::Connect { address, source })?;
    let sent = monotonic();
    let asked = control.greet().and_then(|()| control.send(&Message::Request(request.clone())));
    asked.map_err(|source| MemoryError::Talk { address, source })?;
    Ok((control, sent))
}

/// Tells the server which stream this is. A fresh socket's buffer takes so little whole.
fn introduce(mut stream: &TcpStream, preamble: Preamble) -> io::Result<()> {
    stream.write_all(&preamble.encode())
}

/// What the server has said while data connections are still on their way.
fn hear(control: &mut Control, address: SocketAddr) -> Result<Option<Accept>, MemoryError> {
    match control.poll().map_err(|source| MemoryError::Talk { address, source })? {
        Some(message) => judge(message, address),
        None => Ok(None),
    }
}

fn judge(message: Message, address: SocketAddr) -> Result<Option<Accept>, MemoryError> {
    let source = match message {
        Message::Accept(accept) => return Ok(Some(accept)),
        Message::Alive => return Ok(None),
        Message::Refuse(reason) | Message::Failed(reason) => {
            return Err(MemoryError::Refused { address, reason });
        }
        other => ControlError::out_of_place(&other),
    };
    Err(MemoryError::Talk { address, source })
}

/// Keys of what is waited for; data connections count from 0.
const STOP: u64 = u64::MAX;
const CONTROL: u64 = u64::MAX - 1;
