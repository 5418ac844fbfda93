//! One session of a server: from the request to both accounts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farlink_host::clock::monotonic;
use farlink_host::congestion::Loaded;
use farlink_host::readiness::Wake;
use farlink_wire::key::PublicKey;
use farlink_wire::message::copy::{self, Copy, Protect};
use farlink_wire::message::{Message, Request, Token, Way};
use farlink_wire::quantity::{Bytes, Nanos};
use farlink_wire::refusal::{Cause, Refusal};

use super::lobby::{Claim, Kind, Lobby, Missing};
use super::turns::{Copies, TurnError};
use super::{Event, Limits};
use crate::budget::{self, Budget, Portion};
use crate::chain;
use crate::channel::Channel;
use crate::connection::is_for_benchmarks;
use crate::control::{Control, ControlError};
use crate::copy::CopyError;
use crate::copy::allowed::Allowed;
use crate::copy::serve::{Arrivals, Gone, Served, serve};
use crate::memory::{self, TransferError};
use crate::role::{Near, Role};
use crate::secure::Admitted;
use crate::tuning::{Origin, Tuning, tune};

/// What sessions share with the server.
pub(super) struct House {
    pub(super) limits: Limits,
    pub(super) budget: Budget,
    pub(super) lobby: Arc<Lobby>,
    pub(super) stop: Wake,
    pub(super) transfers: AtomicUsize,
    pub(super) copies: Copies,
    /// Ports of the listeners for circuits.
    pub(super) circuits: Vec<u16>,
}

/// A client, as far as the server knows it.
pub(super) struct Guest {
    /// Where it is.
    pub(super) from: SocketAddr,
    /// Its key and what that may do; `None` where it talks in clear, and may move memory alone.
    pub(super) known: Option<(PublicKey, Arc<Admitted>)>,
}

impl Guest {
    /// What the list of keys calls it, or its key where that says nothing.
    fn name(&self) -> Option<String> {
        let (key, admitted) = self.known.as_ref()?;
        Some(if admitted.grant.comment.is_empty() { key.to_string() } else { admitted.grant.comment.clone() })
    }
}

/// What a copy reads, or writes to, readable.
fn places(request: &copy::Request) -> String {
    match (&request.destination, request.sources.as_slice()) {
        (Some(destination), _) => destination.to_string(),
        (None, [first]) => first.to_string(),
        (None, [first, others @ ..]) => format!("{first} and {} more", others.len()),
        (None, []) => String::new(),
    }
}

/// What came of a session.
struct Moved {
    way: Way,
    bytes: u64,
    failed: u64,
}

impl House {
    /// Talks with one client until it has what it came for, or cannot.
    pub(super) fn host(&self, mut control: Control, guest: &Guest, observe: &(dyn Fn(Event) + Sync)) {
        let from = guest.from;
        let told = match self.converse(&mut control, guest, observe) {
            Ok(Moved { way, bytes, failed }) => {
                observe(Event::Ended { from, way, bytes, failed });
                None
            }
            Err(error) => {
                observe(Event::Failed { from, reason: chain(&error) });
                // Whoever is still there is told; whoever ended knows.
                match error {
                    SessionError::Refused(refusal) => Some(Message::Refuse(refusal)),
                    SessionError::Left { .. } => return,
                    SessionError::Transfer(error) => Some(Message::Failed(error.refusal())),
                }
            }
        };
        if let Some(told) = told {
            let _ = control.send(&told);
        }
        // What was said last may not have left, and would not where something stays unread.
        control.part();
    }

    fn converse(
        &self,
        control: &mut Control,
        guest: &Guest,
        observe: &(dyn Fn(Event) + Sync),
    ) -> Result<Moved, SessionError> {
        control.greet()?;
        let until = monotonic().after(self.limits.patience);
        let asked = match control.next(until, &self.stop)? {
            Some(message) => message,
            None => return Err(TransferError::ServerStopped.into()),
        };
        let received = monotonic();
        // Another kind of session is another arm. It has the guest's key and grant, and a claim on data connections of its kind.
        match asked {
            Message::Request(request) => {
                let _place = Place::take(self)?;
                let _portion = self.portion(budget::of_memory(&request))?;
                self.move_memory(control, guest, &request, received, observe)
            }
            Message::Copy(Copy::Request(request)) => self.copy_files(control, guest, &request, observe),
            other => Err(ControlError::out_of_place(&other).into()),
        }
    }

    /// Memory for a transfer that takes `bytes`.
    fn portion(&self, bytes: Bytes) -> Result<Portion, SessionError> {
        self.budget.take(bytes).ok_or_else(|| {
            let most = self.budget.most();
            SessionError::Refused(if bytes > most {
                Refusal::lasting(format!(
                    "the transfer takes {bytes} of memory, and all together may take {most}: ask for fewer streams, or give `farlink serve` \
                     there more (--memory)"
                ))
            } else {
                let words = format!(
                    "the transfer takes {bytes} of memory, and others have too much of the {most} that all may take: ask for fewer \
                     streams, or try again later"
                );
                Refusal::new(Cause::Passing, words)
            })
        })
    }

    /// Copies files: whoever has a key may do what is granted to it.
    fn copy_files(
        &self,
        control: &mut Control,
        guest: &Guest,
        request: &copy::Request,
        observe: &(dyn Fn(Event) + Sync),
    ) -> Result<Moved, SessionError> {
        let allowed = match &guest.known {
            Some((_, admitted)) => Allowed::of(admitted),
            None if self.limits.trusting && is_for_benchmarks(guest.from.ip()) => Allowed::everything(),
            None => {
                return Err(SessionError::refused(
                    "files are copied for those with a key alone: farlink keygen makes one (between emulated hosts --no-auth at both ends \
                     does without)",
                ));
            }
        };
        let kind = match (request.protect, &guest.known) {
            (Protect::Encrypt, Some((key, _))) => Kind::Sealed(*key),
            (Protect::Encrypt | Protect::Integrity, None) => {
                return Err(SessionError::refused(
                    "without keys nothing can be protected: write --protect clear",
                ));
            }
            _ => Kind::Clear,
        };
        let name = (guest.known.as_ref().map(|(key, _)| *key), request.command.unwrap_or(request.key));
        let until = monotonic().after(self.limits.patience.min(request.patience.get()));
        let turn = self.copies.enter(name, until).map_err(|error| SessionError::Refused(error.refusal()))?;
        // After the turn: the session that had it before gave its own back.
        let _place = Place::take(self)?;
        let _portion = self.portion(budget::of_copy(request))?;
        let claim = self.claim(request.token, kind)?;
        let what = Some(places(request));
        let (streams, way) = (request.streams.get(), request.way);
        observe(Event::Started { from: guest.from, streams, way, who: guest.name(), what });
        let role = Near::Server.role(request.way);
        let ports = self.circuits.clone();
        let streams = Claimed { claim, role, tuning: Tuning::from(request), ports, loaded: None };
        let dismiss = || self.lobby.dismiss(request.token);
        let stops = [&self.stop, &turn.stop];
        let served = serve(control, request, streams, dismiss, &allowed, &self.budget, &stops);
        // What came to its end before it was to stop has done so.
        if let Ok(Served { bytes, failed, interrupted: false }) = served {
            return Ok(Moved { way, bytes, failed });
        }
        if turn.stop.is_raised() {
            return Err(SessionError::Refused(TurnError::Overtaken.refusal()));
        }
        let Err(error) = served else { return Err(TransferError::ServerStopped.into()) };
        if self.stop.is_raised() {
            return Err(TransferError::ServerStopped.into());
        }
        Err(match error {
            // The connection: a client that was away for so long would take a refusal for the last word, and finds it broken.
            error if error.is_passing() => SessionError::Left { reason: chain(&error) },
            // It has said so itself.
            error @ CopyError::FarEnd(_) => SessionError::Left { reason: chain(&error) },
            error => SessionError::Refused(error.refusal()),
        })
    }

    /// Moves memory: whoever may talk may have it moved.
    fn move_memory(
        &self,
        control: &mut Control,
        guest: &Guest,
        request: &Request,
        received: Nanos,
        observe: &(dyn Fn(Event) + Sync),
    ) -> Result<Moved, SessionError> {
        // In clear: it has nothing to hide.
        let claim = self.claim(request.token, Kind::Clear)?;
        let streams = self.streams(claim, request)?;
        let (streams_asked, way) = (request.streams.get(), request.way);
        observe(Event::Started {
            from: guest.from,
            streams: streams_asked,
            way,
            who: guest.name(),
            what: None,
        });
        let bytes = memory::serve(control, request, streams, received, &self.stop)?;
        Ok(Moved { way, bytes, failed: 0 })
    }

    /// The data connections of `token` that are of `kind`, as they come.
    fn claim(&self, token: Token, kind: Kind) -> Result<Claim, SessionError> {
        let busy = "the session's token is in use, or the server is about to end";
        self.lobby.expect(token, kind).ok_or_else(|| SessionError::refused(busy))
    }

    /// The data connections, each as asked. Any that come after them are nobody's.
    fn streams(&self, claim: Claim, request: &Request) -> Result<Vec<std::net::TcpStream>, SessionError> {
        let wanted = request.streams.get();
        let patience = request.patience.get().min(self.limits.patience);
        let streams = claim.all(wanted, monotonic().after(patience)).map_err(|missing| match missing {
            Missing::Late { came } => SessionError::refused(format!(
                "only {came} of {wanted} data connections arrived within {patience}"
            )),
            Missing::Closed => TransferError::ServerStopped.into(),
        })?;
        drop(claim);
        let streams =
            streams.into_iter().filter_map(|channel| channel.into_clear_tcp().ok()).collect::<Vec<_>>();
        let role = Near::Server.role(request.way);
        let (tuning, mut loaded) = (Tuning::from(request), None);
        for stream in &streams {
            tune(stream, role, &tuning, Origin::of(stream, &self.circuits), &mut loaded)
                .map_err(|error| SessionError::refused(error.on_this_host()))?;
        }
        Ok(streams)
    }
}

/// The data connections of a file transfer as they come, each as asked.
struct Claimed {
    claim: Claim,
    role: Role,
    tuning: Tuning,
    ports: Vec<u16>,
    loaded: Option<Loaded>,
}

impl Arrivals for Claimed {
    fn next(&mut self) -> Result<(u32, Channel), Gone> {
        let (number, channel) = self.claim.next(Nanos::MAX).map_err(|_| Gone::Over)?;
        if let Some(tcp) = channel.tcp() {
            let origin = Origin::of(tcp, &self.ports);
            tune(tcp, self.role, &self.tuning, origin, &mut self.loaded).map_err(Gone::Untuned)?;
        }
        Ok((number.into(), channel))
    }
}

/// One of the transfers that a server has at a time.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(house: &'a House) -> Result<Self, SessionError> {
        let most = house.limits.transfers;
        let place = Self(&house.transfers);
        if house.transfers.fetch_add(1, Ordering::AcqRel) >= most {
            let transfers = if most == 1 { "transfer" } else { "transfers" };
            let words = format!("the server is busy with {most} {transfers}: try again later");
            return Err(SessionError::Refused(Refusal::new(Cause::Passing, words)));
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
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The client is not there any more, or was not for too long.
    #[error("{reason}")]
    Left { reason: String },
    /// The transfer did not go on.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

impl SessionError {
    fn refused(words: impl Into<String>) -> Self {
        Self::Refused(Refusal::lasting(words))
    }
}

impl From<ControlError> for SessionError {
    fn from(error: ControlError) -> Self {
        Self::Transfer(error.into())
    }
}

#[cfg(test)]
mod tests;
