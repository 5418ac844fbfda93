//! Memory-to-memory transfers, at the end that was asked.

use std::net::TcpStream;
use std::sync::Arc;

use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::{Accept, Message, Request, Stamp};
use farlink_wire::quantity::Nanos;

use super::offset::Offset;
use super::payload::{self, Payload};
use super::receiver::{self, Receiving};
use super::sender::{self, Sending};
use super::transfer::{Meter, Session, TransferError, receive, send};
use super::workers;
use crate::account::Account;
use crate::control::Control;
use crate::facts;
use crate::role::Near;
use crate::tuning::{CircuitWatch, Tuning};

/// Consents to `request`, which was `received` at a time, and moves what it asks for over `streams`, each as asked, until `stop` is raised. Returns
/// how many bytes arrived.
///
/// # Errors
/// [`TransferError`].
pub(crate) fn serve(
    control: &mut Control,
    request: &Request,
    streams: Vec<TcpStream>,
    received: Nanos,
    stop: &Wake,
) -> Result<u64, TransferError> {
    let system = |attempt| move |source| TransferError::System { attempt, source };
    let (goal, interval) = (request.goal, request.interval.get());
    let streams: Arc<[_]> = streams.into();
    let sends = Near::Server.sends(request.way);
    let host = facts::host();
    let zero_copy = request.zero_copy.unwrap_or_else(|| payload::pays(host.shares_clock(&request.host)));
    let payload = sends.then(|| Payload::new(request.block.get(), zero_copy)).transpose();
    let payload = payload.map_err(system("make the payload"))?;
    let info = control.channel().tcp().map(TcpInfo::of).transpose();
    let rtt = info.ok().flatten().map_or(Nanos::ZERO, |info| info.srtt);
    let mut account = Account::new(interval, request.streams.get());
    let meter = Meter::new(Near::Server);
    let start = monotonic();
    control.send(&Message::Accept(Accept { host, received, sent: start }))?;
    let session = Session {
        near: Near::Server,
        control,
        streams: &streams,
        stop,
        patience: request.patience,
        interval,
        start,
        answer: Nanos(rtt.0 * 2 + 1_000_000_000),
        meter,
        circuit: CircuitWatch::of(&Tuning::from(request), start),
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
