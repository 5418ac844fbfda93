//! Memory-to-memory transfers, at the end that asks for them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use farlink_host::clock::{monotonic, rfc3339_before};
use farlink_host::process;
use farlink_host::readiness::Wake;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::{
    Block, Buffer, Goal, Interval, Name, Patience, Request, Stamp, Streams, Token, Way,
};
use farlink_wire::quantity::{BitsPerSec, Nanos};
use farlink_wire::record::Record;

use crate::account::{Account, Progress};
use crate::connection::Emulated;
use crate::dial::{DialError, Route};
use crate::facts;
use crate::far_host::{FarHost, ResolveError};
use crate::record::name_hosts;
use crate::role::Near;
use crate::secure::{Credentials, CredentialsError};
use crate::tuning::{CircuitWatch, Tuning};

mod connect;
mod ledger;
mod offset;
mod payload;
mod receiver;
mod round_trip;
mod sender;
mod serve;
mod transfer;
mod workers;

pub use round_trip::round_trip;
pub(crate) use serve::serve;
pub use transfer::TransferError;
pub use workers::StreamError;

pub use crate::ports::PORT;

use connect::{Consent, connect};
use offset::{Exchange, Offset};
use payload::Payload;
use receiver::Receiving;
use sender::Sending;
use transfer::{Ending, Meter, Session, receive, send};

/// A transfer that someone wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// When the command began, by the monotonic clock: what is measured before it is carried out is part of it.
    pub began: Nanos,
    /// The far end.
    pub target: FarHost,
    /// Keys; where absent they are used, from their usual places, where others than this machine reach the far end.
    pub credentials: Option<Credentials>,
    /// Which way the payload goes.
    pub way: Way,
    /// What ends it.
    pub goal: Goal,
    /// Data connections.
    pub streams: Streams,
    /// Congestion control; the sender's default where absent.
    pub congestion: Option<Name>,
    /// Why that, and all else, was chosen, where a profile model chose: for the record.
    pub reason: Option<String>,
    /// The wire's rate that is guaranteed, which the congestion control `circuit` holds.
    pub declared: Option<BitsPerSec>,
    /// Most payload a second, all streams together, each its share.
    pub limit: Option<BitsPerSec>,
    /// This host's address to connect from; the kernel's choice where absent.
    pub bind: Option<IpAddr>,
    /// Socket buffers; the kernel tunes them where absent.
    pub buffer: Option<Buffer>,
    /// Bytes per write.
    pub block: Block,
    /// Whether the sender is to send without a copy; as it pays where absent.
    pub zero_copy: Option<bool>,
    /// Length of a sample.
    pub interval: Interval,
    /// How long the far end may be silent.
    pub patience: Patience,
    /// Threads at this end; half of the processors, and no more than streams, where absent.
    pub threads: Option<usize>,
}

/// What came of a transfer. There is a record of whatever was measured, also where it failed.
#[derive(Debug)]
pub struct Finished {
    /// Its record.
    pub record: Record,
    /// Why it failed, where it did.
    pub error: Option<MemoryError>,
}

/// Carries `plan` out. Raise `stop` to end it early; `progress` is told once a second how it goes.
pub fn run(plan: &Plan, stop: &Wake, progress: &mut dyn FnMut(Progress)) -> Finished {
    let mut record = ledger::opened(plan, rfc3339_before(Nanos::ZERO));
    let outcome = attempt(plan, stop, progress, &mut record);
    let interrupted = matches!(outcome, Ok(Ending::Interrupted));
    let error = outcome.err();
    ledger::judge(&mut record, error.as_ref(), interrupted);
    Finished { record, error }
}

fn attempt(
    plan: &Plan,
    stop: &Wake,
    progress: &mut dyn FnMut(Progress),
    record: &mut Record,
) -> Result<Ending, MemoryError> {
    record.id = format!("{:032x}", u128::from_be_bytes(random()?));
    let request = Request {
        token: Token(random()?),
        way: plan.way,
        goal: plan.goal,
        streams: plan.streams,
        congestion: plan.congestion.clone(),
        declared: plan.declared,
        limit: plan.limit,
        buffer: plan.buffer,
        block: plan.block,
        zero_copy: plan.zero_copy,
        interval: plan.interval,
        patience: plan.patience,
        host: facts::host(),
    };
    let before = Emulated::of_this_host();
    let Some(consent) = reach(plan, &request, before.as_ref(), stop)? else { return Ok(Ending::Interrupted) };
    name_hosts(record, plan.way, &request.host, &consent.accept.host);
    let (here, peer) = consent.ends().map_err(system("name both ends"))?;

    let mut account = Account::new(plan.interval.get(), plan.streams.get());
    let outcome =
        transfer(&Transfer { plan, request: &request, stop }, consent, progress, record, &mut account);
    ledger::close(record, account);
    if let Some(before) = before.filter(|before| peer != here && before.addresses().contains(&peer)) {
        before.note_in(record, peer);
    }
    outcome
}

/// Asks the far end; `None` where `stop` was raised first.
fn reach(
    plan: &Plan,
    request: &Request,
    emulated: Option<&Emulated>,
    stop: &Wake,
) -> Result<Option<Consent>, MemoryError> {
    let addresses = plan.target.resolve()?;
    let until = monotonic().after(plan.patience.get());
    let ours = emulated.map(Emulated::addresses).unwrap_or_default();
    let is_private = |address: &SocketAddr| address.ip().is_loopback() || ours.contains(&address.ip());
    let credentials = match &plan.credentials {
        None if addresses.iter().all(is_private) => None,
        None => Some(Credentials::of_user()),
        Some(named) => Some(named.clone()),
    };
    let FarHost { host, port } = &plan.target;
    let trusted = credentials.map(|credentials| credentials.trust(host, *port)).transpose()?;
    connect((Route::Tcp(addresses), plan.bind), trusted.as_ref(), request, until, stop)
}

/// What a transfer needs beside consent.
struct Transfer<'a> {
    plan: &'a Plan,
    request: &'a Request,
    stop: &'a Wake,
}

fn transfer(
    transfer: &Transfer<'_>,
    consent: Consent,
    progress: &mut dyn FnMut(Progress),
    record: &mut Record,
    account: &mut Account,
) -> Result<Ending, MemoryError> {
    let &Transfer { plan, request, stop } = transfer;
    let Consent { mut control, streams, accept, sent, returned } = consent;
    let info = control.channel().tcp().and_then(|stream| TcpInfo::of(stream).ok()).unwrap_or_default();
    record.rtt_s = Some(info.min_rtt).filter(|rtt| *rtt > Nanos::ZERO).map(Nanos::as_secs_f64);
    let same = accept.host.shares_clock(&request.host);
    let zero_copy = plan.zero_copy.unwrap_or_else(|| payload::pays(same));
    let payload = Near::Client.sends(plan.way).then(|| Payload::new(plan.block.get(), zero_copy)).transpose();
    let payload = payload.map_err(system("make the payload"))?;
    let offset = if same {
        Offset::NONE
    } else {
        let exchange = Exchange { sent, received: accept.received, answered: accept.sent, returned };
        let offset = Offset::estimate(exchange, info.min_rtt);
        ledger::note_clock_error(record, offset.error);
        offset
    };
    let streams: Arc<[_]> = streams.into();
    let workers = plan.threads.unwrap_or_else(|| workers::usual(streams.len()));
    let meter = Meter::new(Near::Client);
    let now = monotonic();
    let start = match plan.way {
        Way::Forward => now,
        Way::Reverse => offset.to_here(accept.sent).min(now).max(plan.began),
    };
    record.setup_s = Some(start.since(plan.began).as_secs_f64());
    record.started = rfc3339_before(now.since(start));
    let mut next = SECOND;
    let mut observe = |account: &mut Account, at: Nanos| {
        if at >= next {
            progress(account.progress(at));
            next = Nanos((at.0 / SECOND.0 + 1) * SECOND.0);
        }
    };
    let session = Session {
        near: Near::Client,
        control: &mut control,
        streams: &streams,
        stop,
        patience: plan.patience,
        interval: plan.interval.get(),
        start,
        answer: Nanos(info.srtt.0 * 2 + SECOND.0),
        meter,
        circuit: CircuitWatch::of(&Tuning::from(request), start),
        account,
        observe: &mut observe,
    };
    let goal = plan.goal;
    let ending = match payload {
        Some(payload) => {
            let stamp = Stamp(offset.to_there(start));
            let orders = sender::Orders { request: request.clone(), start, stamp, workers };
            let sending = Sending::start(Arc::clone(&streams), payload, orders);
            send(session, sending.map_err(system("start to send"))?, goal)
        }
        None => {
            let (interval, patience) = (plan.interval.get(), plan.patience.get());
            let orders = receiver::Orders { goal, interval, offset, patience, workers };
            let receiving = Receiving::start(Arc::clone(&streams), orders);
            receive(session, receiving.map_err(system("start to receive"))?, goal)
        }
    };
    ending.map_err(|source| MemoryError::Transfer { target: plan.target.clone(), source })
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], MemoryError> {
    process::random().map_err(system("draw a random number"))
}

fn system(attempt: &'static str) -> impl Fn(io::Error) -> MemoryError {
    move |source| MemoryError::System { attempt, source }
}

/// Why a transfer failed. One line that names the far end, the reason, and where there is one the mend.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The far end's name leads nowhere.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// No consent.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// Nobody to trust.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// It started, and could not go on.
    #[error("{target}")]
    Transfer {
        /// The far end.
        target: FarHost,
        /// What went wrong.
        source: TransferError,
    },
    /// The kernel's own words.
    #[error("{attempt}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// The kernel's own words.
        source: io::Error,
    },
}

const SECOND: Nanos = Nanos(1_000_000_000);
