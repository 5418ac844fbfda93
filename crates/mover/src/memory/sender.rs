//! Threads that send payload over the streams of one transfer.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use farlink_host::clock::monotonic;
use farlink_host::process::cpu_of_thread;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_host::socket;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::{Goal, Request, Stamp};
use farlink_wire::quantity::Nanos;

use super::payload::Payload;
use super::workers::{Finish, StreamError, shares};
use crate::automatic;
use crate::tuning::{Tuning, steady};

/// What a sender is to do.
#[derive(Debug)]
pub(crate) struct Orders {
    /// What was asked for.
    pub(crate) request: Request,
    /// When the first byte may leave, on this host's clock.
    pub(crate) start: Nanos,
    /// The same for the far end.
    pub(crate) stamp: Stamp,
    /// Threads.
    pub(crate) workers: usize,
}

/// Threads at work; dropped, they are stopped and waited for.
#[derive(Debug)]
pub(crate) struct Sending {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Nanos>>,
    /// Why its congestion control was chosen, where it was.
    reason: Option<String>,
    /// Bytes that each stream had sent before the first of this transfer.
    before: Vec<u64>,
}

#[derive(Debug)]
struct Shared {
    streams: Arc<[TcpStream]>,
    payload: Payload,
    orders: Orders,
    /// Bytes of a sized transfer that no stream has taken yet.
    untaken: AtomicU64,
    finish: Finish,
}

impl Sending {
    /// Starts to send.
    pub(crate) fn start(streams: Arc<[TcpStream]>, payload: Payload, orders: Orders) -> io::Result<Self> {
        let untaken = match orders.request.goal {
            Goal::Size(bytes) => bytes.0,
            Goal::Duration(_) => 0,
        };
        let choice = automatic::is_asked(orders.request.congestion.as_ref())
            .then(|| automatic::choose(&streams, orders.request.buffer.is_some()));
        let reason = choice.transpose()?;
        let may_pace = Tuning::from(&orders.request).may_pace();
        for stream in streams.iter() {
            steady(stream, may_pace)?;
        }
        let sent_so_far = |stream: &TcpStream| {
            Ok::<_, io::Error>(TcpInfo::of(stream)?.acknowledged + socket::unacknowledged(stream)?)
        };
        let before = streams.iter().map(sent_so_far).collect::<Result<_, _>>()?;
        let shares = shares(streams.len(), orders.workers);
        let finish = Finish::new(shares.len())?;
        let untaken = AtomicU64::new(untaken);
        let shared = Arc::new(Shared { streams, payload, orders, untaken, finish });
        let mut sending = Self { shared, workers: Vec::new(), reason, before };
        for share in shares {
            let shared = Arc::clone(&sending.shared);
            let work = move || {
                let before = cpu_of_thread();
                let outcome = shared.run(share);
                shared.finish.ended(outcome);
                cpu_of_thread().since(before)
            };
            sending.workers.push(thread::Builder::new().name("farlink-send".to_owned()).spawn(work)?);
        }
        Ok(sending)
    }

    /// Raised when every thread has ended.
    pub(crate) fn done(&self) -> &Wake {
        self.shared.finish.done()
    }

    /// Whether they send without a copy.
    pub(crate) fn zero_copy(&self) -> bool {
        self.shared.payload.zero_copy()
    }

    /// Why its congestion control was chosen, where it was.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Tells every thread to send no more.
    pub(crate) fn stop(&self) {
        self.shared.finish.stop();
    }

    /// Why a stream broke, where one did.
    pub(crate) fn error(&self) -> Option<StreamError> {
        self.shared.finish.error()
    }

    /// Payload bytes that the far kernel has acknowledged, also when the connections have broken since.
    pub(crate) fn acknowledged(&self) -> u64 {
        let of = |(stream, before): (&TcpStream, &u64)| {
            let acknowledged = TcpInfo::of(stream).map_or(0, |info| info.acknowledged);
            acknowledged.saturating_sub(before + Stamp::LEN as u64)
        };
        let bytes = self.shared.streams.iter().zip(&self.before).map(of).sum();
        match self.shared.orders.request.goal {
            // The end of a stream is acknowledged as one more.
            Goal::Size(asked) => asked.0.min(bytes),
            Goal::Duration(_) => bytes,
        }
    }

    /// Ends every thread and returns the CPU time that they took.
    pub(crate) fn end(&mut self) -> Nanos {
        self.shared.finish.stop();
        Nanos(self.workers.drain(..).map(|worker| worker.join().unwrap_or_default().0).sum())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.end();
    }
}

/// One stream.
struct Outgoing<'a> {
    stream: &'a TcpStream,
    /// Bytes of the stamp that it has sent.
    stamped: usize,
    /// Where in the payload its next byte is.
    offset: u64,
    /// Bytes that it took and has not sent.
    taken: u64,
    /// Nothing is left for it to send.
    is_over: bool,
}

enum Step {
    /// It may go on.
    More,
    /// It may go on when the socket takes more.
    Full,
    /// Nothing is left for it to send.
    Over,
}

impl Shared {
    /// One thread's work: the streams of `share`.
    fn run(&self, share: Range<usize>) -> Result<(), StreamError> {
        let of = |stream: usize| move |source| StreamError { stream, source };
        let first = share.start;
        let mut poller = Poller::new().map_err(of(first))?;
        poller.add(self.finish.stopper(), STOP, Interest::Read).map_err(of(first))?;
        let mut streams = Vec::new();
        for index in share {
            let stream = &self.streams[index];
            poller.add(stream, streams.len() as u64, Interest::Write).map_err(of(index))?;
            streams.push(Outgoing { stream, stamped: 0, offset: 0, taken: 0, is_over: false });
        }
        let end = match self.orders.request.goal {
            Goal::Duration(time) => self.orders.start.after(time),
            Goal::Size(_) => Nanos::MAX,
        };
        let refill = self.refill(streams.first().map(|one| one.stream)).map_err(of(first))?;
        let (mut open, mut ready) = (streams.len(), Vec::new());
        while open > 0 {
            let now = monotonic();
            if now >= end {
                break;
            }
            poller.wait(end.since(now).min(refill), &mut ready).map_err(of(first))?;
            if ready.is_empty() && now.after(refill) < end {
                ready.extend((0..streams.len() as u64).filter(|&key| !streams[key as usize].is_over));
            }
            for &key in &ready {
                if key == STOP {
                    return Ok(());
                }
                let at = key as usize;
                // Until it is full: the kernel says that there is room only when a third of the buffer is free.
                for _ in 0..BLOCKS_A_TURN {
                    match self.step(&mut streams[at]).map_err(of(first + at))? {
                        Step::More => {}
                        Step::Full => break,
                        Step::Over => {
                            poller.remove(streams[at].stream).map_err(of(first + at))?;
                            streams[at].is_over = true;
                            open -= 1;
                            break;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// How long to wait for the kernel's word that there is room, before looking: it gives it only when a third of the buffer
    /// is free. Where the buffer bounds the window, that third would be missing from what is on its way.
    fn refill(&self, stream: Option<&TcpStream>) -> io::Result<Nanos> {
        let Some(stream) = stream.filter(|_| self.orders.request.buffer.is_some()) else {
            return Ok(Nanos::MAX);
        };
        let rtt = TcpInfo::of(stream)?.min_rtt;
        Ok(if rtt >= REFILLED_FROM { Nanos(rtt.0 / REFILLS) } else { Nanos::MAX })
    }

    /// Sends one block of `outgoing`, or as much as its socket takes.
    fn step(&self, outgoing: &mut Outgoing<'_>) -> io::Result<Step> {
        let stamp = self.orders.stamp.encode();
        if outgoing.stamped < stamp.len() {
            match socket::send_with_more(outgoing.stream, &stamp[outgoing.stamped..]) {
                Ok(sent) => outgoing.stamped += sent,
                Err(error) if again(&error) => return Ok(Step::Full),
                Err(error) => return Err(error),
            }
            if outgoing.stamped < stamp.len() {
                return Ok(Step::Full);
            }
        }
        let block = u64::from(self.orders.request.block.get());
        if outgoing.taken == 0 {
            outgoing.taken = self.take(block);
        }
        if outgoing.taken == 0 {
            outgoing.stream.shutdown(Shutdown::Write)?;
            return Ok(Step::Over);
        }
        // The payload is a multiple of the block, but a resumed block may reach over its end.
        let count = outgoing.taken.min(self.payload.length - outgoing.offset);
        match self.payload.send(outgoing.stream, outgoing.offset, count as usize) {
            Ok(sent) => {
                let sent = sent as u64;
                outgoing.offset = (outgoing.offset + sent) % self.payload.length;
                outgoing.taken -= sent;
                Ok(if sent < count { Step::Full } else { Step::More })
            }
            Err(error) if again(&error) => Ok(Step::Full),
            Err(error) => Err(error),
        }
    }

    /// Up to a block of what is left to send.
    fn take(&self, block: u64) -> u64 {
        match self.orders.request.goal {
            Goal::Duration(_) => block,
            Goal::Size(_) => {
                let taken = self
                    .untaken
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left - left.min(block)));
                taken.map_or(0, |left| left.min(block))
            }
        }
    }
}

fn again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The key of the stopper; streams count from 0.
const STOP: u64 = u64::MAX;

/// Blocks that one stream may take before the others have their turn.
const BLOCKS_A_TURN: u32 = 16;

/// Times in a round trip that a fixed buffer is filled up again: what is missing from it is a 32nd, and a write is 64 KiB
/// or more where the buffer is 2 MiB or more.
const REFILLS: u64 = 32;

/// The RTT from which that is done: below it a look in a millisecond is no gain.
const REFILLED_FROM: Nanos = Nanos(20_000_000);
