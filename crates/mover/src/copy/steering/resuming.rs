//! A careful resume ([`CarefulResume`]) of the connections that are steered together: what makes their sockets jump.

use std::io;
use std::net::TcpStream;

use farlink_flow::careful_resume::{CarefulResume, Met, Step};
use farlink_flow::ceiling::Sample;
use farlink_host::circuit::Share;
use farlink_host::congestion::{self, Loaded};
use farlink_host::socket::{self, Buffer};
use farlink_wire::message::copy::{CarefulResumeAccount, CarefulResumeOutcome, SavedPath};
use farlink_wire::quantity::{BitsPerSec, Nanos};

use crate::tuning::widen;

/// One, and what it needs.
#[derive(Debug)]
pub(super) struct Resuming {
    saved: SavedPath,
    machine: CarefulResume,
    means: Means,
    /// What all connections are to send together, and what came of it where one did.
    jump: Option<BitsPerSec>,
    account: Option<CarefulResumeAccount>,
}

/// The congestion control that sends at a rate from the first segment on, with a window for as much.
#[derive(Debug)]
enum Means {
    /// It is being looked for.
    Awaited,
    /// It can be chosen; for as long as this, if it was this process that loaded it.
    There(#[expect(dead_code, reason = "it is there for as long as this is")] Option<Loaded>),
    /// It cannot be had.
    Missing,
}

impl Resuming {
    /// Of a path that is as `saved`; `None` where that is of no use here.
    pub(super) fn new(saved: SavedPath) -> Option<Self> {
        let machine = CarefulResume::new(saved.rate, saved.rtt, saved.is_full)?;
        can_jump().then_some(Self { saved, machine, means: Means::Awaited, jump: None, account: None })
    }

    /// What [`Self::on_means`] is to be told; tens of milliseconds of a processor.
    pub(super) fn load() -> Option<Option<Loaded>> {
        congestion::ensure(JUMP).ok()
    }

    /// What it needs was looked for, and `found`.
    pub(super) fn on_means(&mut self, found: Option<Option<Loaded>>) {
        self.means = found.map_or(Means::Missing, Means::There);
    }

    /// Takes what the connections say, of what they `met`, and how wide their far ends' windows are together.
    pub(super) fn on_sample(&mut self, sample: Sample, met: Met, windows: u64) -> Option<Step> {
        let has_room = has_room(windows, self.saved.rate, sample.least_rtt);
        let can = met.can && has_room && matches!(self.means, Means::There(_));
        let step = self.machine.on_sample(sample, Met { can, ..met })?;
        match step {
            Step::Jump(jump) => self.jump = Some(jump),
            Step::Confirm(_) => self.end_with(CarefulResumeOutcome::Confirmed),
            Step::Retreat(_) => self.end_with(CarefulResumeOutcome::Retreated),
            Step::Decline | Step::Release => {}
        }
        Some(step)
    }

    /// The path's queue told what it carries before answers to the jump did.
    pub(super) fn on_queue(&mut self) {
        if self.is_jumping() {
            self.end_with(CarefulResumeOutcome::Retreated);
        }
        self.machine.give_up();
    }

    /// Whether connections are in the jump: one that something has come of is to join it.
    pub(super) fn is_jumping(&self) -> bool {
        self.jump.is_some() && self.machine.is_open()
    }

    /// Whether it may still come to a jump, or is in one.
    pub(super) const fn is_open(&self) -> bool {
        self.machine.is_open()
    }

    /// What became of it, where it came to something.
    pub(super) const fn account(&self) -> Option<CarefulResumeAccount> {
        self.account
    }

    /// Has one of `streams` connections send its part of the jump, and returns that, bytes a second.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn jump(&mut self, tcp: &TcpStream, streams: usize) -> io::Result<u64> {
        let Some(jump) = self.jump else { return Err(io::ErrorKind::NotFound.into()) };
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        // All that will be on its way, not half of it; and the kernel may make it larger still.
        let whole = Share::of(self.saved.rate, streams).map_err(io::Error::other)?.buffer(self.saved.rtt);
        socket::set_buffer(tcp, Buffer::Send, u32::try_from(whole.0).unwrap_or(u32::MAX))?;
        socket::tune_buffers(tcp)?;
        // What it may hold unsent before anything of it has arrived is too little at such a rate.
        widen(tcp)?;
        let share = (jump.get() / 8 / u64::from(streams.max(1))).max(1);
        // Before the congestion control is chosen, which looks at it.
        socket::set_greatest_rate(tcp, share)?;
        socket::set_congestion(tcp, JUMP)?;
        let outcome = CarefulResumeOutcome::Unvalidated;
        self.account.get_or_insert(CarefulResumeAccount { jump, outcome });
        Ok(share)
    }

    fn end_with(&mut self, outcome: CarefulResumeOutcome) {
        if let Some(account) = &mut self.account {
            account.outcome = outcome;
        }
    }
}

/// Whether this process may make sockets jump: without, what a path carried is of no use.
pub(crate) fn can_jump() -> bool {
    congestion::is_available(JUMP) && congestion::is_allowed(JUMP) || congestion::could_load(JUMP).is_ok()
}

/// Whether far ends whose windows are so wide together have room for a jump to half of `rate`: what comes at once must find it.
pub(super) fn has_room(windows: u64, rate: BitsPerSec, rtt: Nanos) -> bool {
    windows >= rate.bytes_in(rtt) / LEAST_ROOM
}

/// The part of what the path holds for which far ends have room when a jump is made: a quarter of the jump.
const LEAST_ROOM: u64 = 8;

/// What it jumps by: `bpf/circuit.bpf.c`.
const JUMP: &str = "circuit";
