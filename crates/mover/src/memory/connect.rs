//! From nothing to consent: in two round trips in clear, in three where keys are shown, or in two by TCP Fast Open.

use std::io;
use std::net::{IpAddr, TcpStream};

use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_wire::message::{Accept, Message, Request};
use farlink_wire::quantity::Nanos;

use super::MemoryError;
use crate::control::{Control, ControlError};
use crate::dial::{Dial, DialError, Dialled, Route};
use crate::role::Near;
use crate::secure::Trusted;
use crate::tuning::Tuning;

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

impl Consent {
    /// The addresses of this end and of the far one.
    pub(super) fn ends(&self) -> io::Result<(IpAddr, IpAddr)> {
        let stream = self.control.channel().tcp().ok_or(io::ErrorKind::NotConnected)?;
        Ok((stream.local_addr()?.ip(), stream.peer_addr()?.ip()))
    }
}

/// Asks the server that `route` leads to, from the address that is to be connected from, as a stranger where nobody is `trusted`; `None` where `stop` was raised first.
pub(super) fn connect(
    (route, bind): (Route, Option<IpAddr>),
    trusted: Option<&Trusted>,
    request: &Request,
    until: Nanos,
    stop: &Wake,
) -> Result<Option<Consent>, MemoryError> {
    let dial = Dial {
        route,
        trust: trusted.map(|trusted| trusted.trust.clone()),
        protect_data: false,
        token: request.token,
        role: Near::Client.role(request.way),
        tuning: Tuning::from(request),
        path: None,
        bind,
    };
    let first = |_| vec![Message::Request(request.clone())];
    let dialled = match (dial.open(&first, until, stop), trusted) {
        (Ok(Some(dialled)), _) => dialled,
        (Ok(None), _) => return Ok(None),
        (Err(DialError::Untrusted { key, .. }), Some(trusted)) => return Err(trusted.complaint(key).into()),
        (Err(error), _) => return Err(error.into()),
    };
    let Dialled { mut control, data, sent, early, at, .. } = dialled;
    let at = at.to_string();
    let streams = data.into_iter().filter_map(|(_, channel)| channel.into_clear_tcp().ok()).collect();
    for (message, returned) in early {
        if let Some(accept) = judge(message, &at)? {
            return Ok(Some(Consent { control, streams, accept, sent, returned }));
        }
    }
    loop {
        let message = control.next(until, stop);
        let returned = monotonic();
        let talk = |source| dial.explained(at.clone(), source);
        let Some(message) = message.map_err(talk)? else { return Ok(None) };
        if let Some(accept) = judge(message, &at)? {
            return Ok(Some(Consent { control, streams, accept, sent, returned }));
        }
    }
}

fn judge(message: Message, at: &str) -> Result<Option<Accept>, DialError> {
    let at = at.to_owned();
    match message {
        Message::Accept(accept) => Ok(Some(accept)),
        Message::Alive => Ok(None),
        Message::Refuse(refusal) | Message::Failed(refusal) => Err(DialError::Refused { at, refusal }),
        other => Err(DialError::Talk { at, source: ControlError::out_of_place(&other) }),
    }
}
