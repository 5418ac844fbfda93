//! Whether what a data connection carries still arrives, at the sender.

use std::net::{Shutdown, TcpStream};

use farlink_host::socket;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::copy::Unit;
use farlink_wire::quantity::Nanos;

use super::State;

/// A data connection that is at work.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Another handle of it, until its own is closed; absent within a host.
    tcp: Option<TcpStream>,
    /// Bytes that had arrived when it was felt last.
    acknowledged: u64,
    /// Whether something was handed out for it that is not all written.
    busy: bool,
}

impl Pulse {
    pub(super) const fn of(tcp: Option<TcpStream>) -> Self {
        Self { tcp, acknowledged: 0, busy: false }
    }

    /// Whether something has arrived since this was asked last.
    pub(super) fn feel(&mut self) -> bool {
        let info = self.tcp.as_ref().and_then(|tcp| TcpInfo::of(tcp).ok());
        let before = self.acknowledged;
        self.acknowledged = info.map_or(before, |info| info.acknowledged);
        self.acknowledged != before
    }

    /// Its thread begins to write what was handed out, or has written it.
    pub(super) const fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
    }

    /// Whether all that it was given has arrived, as far as is known.
    pub(super) fn has_landed(&self) -> bool {
        let is_empty = |tcp: &TcpStream| socket::unacknowledged(tcp).is_ok_and(|bytes| bytes == 0);
        !self.busy && self.tcp.as_ref().is_some_and(is_empty)
    }

    /// Bytes that were given to it and have not arrived.
    pub(super) fn under_way(&self) -> u64 {
        self.tcp.as_ref().and_then(|tcp| socket::unacknowledged(tcp).ok()).unwrap_or(0)
    }

    /// Nothing more goes over it, and who waits for it does so no longer.
    pub(super) fn shut(&self) {
        // One that is closed already is shut.
        let _ = self.tcp.as_ref().map(|tcp| tcp.shutdown(Shutdown::Both));
    }

    /// It is about to be closed.
    pub(super) fn end(&mut self) {
        self.tcp = None;
    }
}

impl State {
    /// Tells the schedule of which streams something has arrived, or everything.
    pub(super) fn feel(&mut self, now: Nanos) {
        self.felt = now;
        for (stream, pulse) in &mut self.streams {
            if pulse.feel() {
                self.schedule.on_moved(*stream, now);
            }
            self.schedule.on_landed(*stream, pulse.has_landed());
        }
    }

    /// Whether `stream` must wait before it is given more: not where it has nothing, for then it would be idle for others' sake.
    pub(super) fn must_wait(&mut self, stream: u32, now: Nanos) -> bool {
        let known = self.far_ahead.filter(|(at, _)| now.since(*at) < FAR_AHEAD_FOR);
        let (at, far) = known.unwrap_or_else(|| (now, self.is_far_ahead()));
        self.far_ahead = Some((at, far));
        far && self.schedule.has_any(stream)
    }

    /// Whether so much was given that the receiver has not stored that more would only fill its kernel's memory: short of that, it offers no
    /// window at all, and all that is on its way is lost (`ICSK_ACK_NOMEM` in the kernel's net/ipv4/tcp_input.c).
    pub(super) fn is_far_ahead(&mut self) -> bool {
        let bytes = |unit| match unit {
            Unit::Block(file, index) => self.files.get(&file).map_or(0, |file| file.block_length(index)),
            // Of what is offered only names go.
            Unit::Pack(pack) => {
                self.packs.get(&pack).filter(|planned| !planned.offer).map_or(0, |planned| planned.bytes())
            }
        };
        let given = self.schedule.under_way().map(bytes).sum::<u64>();
        if given <= MOST_UNSTORED {
            return false;
        }
        let under_way = self.streams.values().map(Pulse::under_way).sum::<u64>();
        self.most_under_way = self.most_under_way.max(under_way);
        // It says what it has stored six times a round trip.
        given > self.most_under_way + self.most_under_way / 4 + MOST_UNSTORED
    }
}

/// For how long a look at that is good, unless the receiver says something: there may be hundreds of streams that ask.
const FAR_AHEAD_FOR: Nanos = Nanos(1_000_000);

/// Bytes that may have arrived and not be stored, and a quarter more of what is on its way.
pub(super) const MOST_UNSTORED: u64 = 128 << 20;

/// How often it is looked at what streams have that is old.
pub(super) const FELT_EVERY: Nanos = Nanos(100_000_000);
