//! One session of a server: from the request to both accounts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::{Accept, Message, Request, Stamp};
use farlink_wire::quantity::Nanos;

use super::lobby::{Claim, Lobby, Missing};
use super::{Event, Limits};
use crate::account::Account;
use crate::control::{Control, ControlError};
use crate::offset::Offset;
use crate::payload::{self, Payload};
use crate::receiver::{self, Receiving};
use crate::sender::{self, Sending};
use crate::transfer::{Meter, Near, Session, TransferError, receive, send};
use crate::tuning::{Role, tune};
use crate::{chain, facts, workers};

/// What sessions share with the server.
pub(super) struct House {
    pub(super) limits: Limits,
    pub(super) lobby: Arc<Lobby>,
    pub(super) stop: Wake,
    pub(super) transfers: AtomicUsize,
}

impl House {
    /// Talks with one client until it has what it came for, or cannot.
    pub(super) fn host(&self, mut control: Control, from: SocketAddr, observe: &(dyn Fn(Event) + Sync)) {
        let outcome = self.converse(&mut control, from, observe);
        match outcome {
            Ok(bytes) => observe(Event::Ended { from, bytes }),
            Err(error) => {
                // Whoever is still there is told; whoever ended knows.
                let told = match &error {
                    SessionError::Refused { reason } => Message::Refuse(reason.clone().into()),
                    other => Message::Failed(chain(other).into()),
                };
                let _ = control.send(&told);
                observe(Event::Failed { from, reason: chain(&error) });
            }
        }
    }

    fn converse(
        &self,
        control: &mut Control,
        from: SocketAddr,
        observe: &(dyn Fn(Event) + Sync),
    ) -> Result<u64, SessionError> {
        control.greet()?;
        let until = monotonic().after(self.limits.patience);
        let request = match control.next(until, &self.stop)? {
            Some(Message::Request(request)) => request,
            Some(other) => return Err(ControlError::out_of_place(&other).into()),
            None => return Err(TransferError::ServerStopped.into()),
        };
        let received = monotonic();
        let _place = Place::take(self)?;
        let claim = self.lobby.expect(request.token).ok_or_else(|| {
            SessionError::refused("the session's token is in use, or the server is about to end")
        })?;
        let streams = self.streams(&claim, &request)?;
        observe(Event::Started { from, streams: request.streams.get(), way: request.way });
        self.transfer(control, &request, streams, received)
    }

    /// The data connections, each as asked.
    fn streams(&self, claim: &Claim, request: &Request) -> Result<Vec<std::net::TcpStream>, SessionError> {
        let wanted = request.streams.get();
        let patience = request.patience.get().min(self.limits.patience);
        let streams = claim.all(wanted, monotonic().after(patience)).map_err(|missing| match missing {
            Missing::Late { came } => SessionError::refused(format!(
                "only {came} of {wanted} data connections arrived within {patience}"
            )),
            Missing::Closed => TransferError::ServerStopped.into(),
        })?;
        let role = if Near::Server.sends(request.way) { Role::Sender } else { Role::Receiver };
        let mut loaded = None;
        for stream in &streams {
            tune(stream, role, request, &mut loaded)
                .map_err(|error| SessionError::refused(error.on_this_host()))?;
        }
        Ok(streams)
    }

    fn transfer(
        &self,
        control: &mut Control,
        request: &Request,
        streams: Vec<std::net::TcpStream>,
        received: Nanos,
    ) -> Result<u64, SessionError> {
        let system = |attempt| move |source| TransferError::System { attempt, source };
        let (goal, interval) = (request.goal, request.interval.get());
        let streams: Arc<[_]> = streams.into();
        let sends = Near::Server.sends(request.way);
        let host = facts::host();
        let zero_copy = request.zero_copy.unwrap_or_else(|| payload::pays(host.shares_clock(&request.host)));
        let payload = sends.then(|| Payload::new(request.block.get(), zero_copy)).transpose();
        let payload = payload.map_err(system("make the payload"))?;
        let rtt = TcpInfo::of(control.stream()).map_or(Nanos::ZERO, |info| info.srtt);
        let mut account = Account::new(interval, request.streams.get());
        let meter = Meter::new(Near::Server);
        let start = monotonic();
        control.send(&Message::Accept(Accept { host, received, sent: start }))?;
        let session = Session {
            near: Near::Server,
            control,
            streams: &streams,
            stop: &self.stop,
            patience: request.patience,
            interval,
            start,
            answer: Nanos(rtt.0 * 2 + 1_000_000_000),
            meter,
            account: &mut account,
            observe: &mut |_, _| {},
        };
        let workers = workers::usual(streams.len());
        match payload {
            Some(payload) => {
                let orders = sender::Orders { request: request.clone(), start, stamp: Stamp(start), workers };
                let sending = Sending::start(Arc::clone(&streams), payload, orders);
                send(session, sending.map_err(system("start to send"))?, goal)?;
            }
            None => {
                let patience = request.patience.get();
                let orders = receiver::Orders { goal, interval, offset: Offset::NONE, patience, workers };
                let receiving = Receiving::start(Arc::clone(&streams), orders);
                receive(session, receiving.map_err(system("start to receive"))?, goal)?;
            }
        }
        Ok(account.received.map_or(0, |received| received.bytes))
    }
}

/// One of the transfers that a server has at a time.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(house: &'a House) -> Result<Self, SessionError> {
        let most = house.limits.transfers;
        let place = Self(&house.transfers);
        if house.transfers.fetch_add(1, Ordering::AcqRel) >= most {
            let reason = format!("the server is busy with {most} transfers: try again later");
            return Err(SessionError::refused(reason));
        }
        Ok(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why a session ended early.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    /// What was asked for cannot be had.
    #[error("refused: {reason}")]
    Refused { reason: String },
    /// The transfer did not go on.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

impl SessionError {
    fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into() }
    }
}

impl From<ControlError> for SessionError {
    fn from(error: ControlError) -> Self {
        Self::Transfer(error.into())
    }
}
