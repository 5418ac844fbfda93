//! Threads that receive the payload of one transfer, and count what arrived when.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use farlink_host::clock::monotonic;
use farlink_host::process::cpu_of_thread;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_wire::message::{Arrival, Goal, Stamp};
use farlink_wire::quantity::Nanos;

use super::offset::Offset;
use super::workers::{Finish, StreamError, shares};

/// What a receiver is to do.
#[derive(Debug)]
pub(crate) struct Orders {
    /// What ends it.
    pub(crate) goal: Goal,
    /// Length of a sample.
    pub(crate) interval: Nanos,
    /// From the server's clock, which stamps are on, to this host's.
    pub(crate) offset: Offset,
    /// How far from now a start may be.
    pub(crate) patience: Nanos,
    /// Threads.
    pub(crate) workers: usize,
}

/// Threads at work; dropped, they are stopped and waited for.
#[derive(Debug)]
pub(crate) struct Receiving {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Share>>,
}

/// What came of the threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct End {
    /// Payload bytes that count.
    pub(crate) bytes: u64,
    /// From the start until the last of them had arrived, or the time was over, or the threads were stopped.
    pub(crate) duration: Nanos,
    /// Whether the goal was reached.
    pub(crate) complete: bool,
    /// CPU time of the threads.
    pub(crate) cpu: Nanos,
}

#[derive(Debug)]
struct Shared {
    streams: Arc<[TcpStream]>,
    orders: Orders,
    /// When the first byte might leave, on this host's clock; zero until a stamp has come.
    start: AtomicU64,
    arrivals: Mutex<Vec<Arrival>>,
    finish: Finish,
}

/// What one thread counted.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    bytes: u64,
    last: Nanos,
    /// Every stream ended, or the time was over.
    complete: bool,
    cpu: Nanos,
}

impl Receiving {
    /// Starts to receive.
    pub(crate) fn start(streams: Arc<[TcpStream]>, orders: Orders) -> io::Result<Self> {
        let shares = shares(streams.len(), orders.workers);
        let finish = Finish::new(shares.len())?;
        let (start, arrivals) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        let shared = Arc::new(Shared { streams, orders, start, arrivals, finish });
        let mut receiving = Self { shared, workers: Vec::new() };
        for share in shares {
            let shared = Arc::clone(&receiving.shared);
            let work = move || {
                let before = cpu_of_thread();
                let mut worker = Worker::new(&shared);
                let outcome = worker.run(share);
                let complete = matches!(outcome, Ok(true));
                worker.flush();
                let share = worker.counted;
                shared.finish.ended(outcome.map(drop));
                Share { complete, cpu: cpu_of_thread().since(before), ..share }
            };
            receiving.workers.push(thread::Builder::new().name("farlink-receive".to_owned()).spawn(work)?);
        }
        Ok(receiving)
    }

    /// Raised when every thread has ended.
    pub(crate) fn done(&self) -> &Wake {
        self.shared.finish.done()
    }

    /// Tells every thread to stop counting; [`done`](Self::done) says when they have.
    pub(crate) fn stop(&self) {
        self.shared.finish.stop();
    }

    /// Why a stream broke, where one did.
    pub(crate) fn error(&self) -> Option<StreamError> {
        self.shared.finish.error()
    }

    /// When the first byte might leave, on this host's clock, once a stamp has come.
    pub(crate) fn started(&self) -> Option<Nanos> {
        Some(Nanos(self.shared.start.load(Ordering::Acquire))).filter(|start| *start > Nanos::ZERO)
    }

    /// What has arrived and was not returned before.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.shared.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends every thread; [`arrivals`](Self::arrivals) has the rest of what they counted.
    pub(crate) fn end(&mut self) -> End {
        let stopped = monotonic();
        self.stop();
        let mut end = End { complete: !self.workers.is_empty(), ..End::default() };
        let mut last = Nanos::ZERO;
        for worker in self.workers.drain(..) {
            let share = worker.join().unwrap_or_default();
            end.bytes += share.bytes;
            end.complete &= share.complete;
            end.cpu.0 += share.cpu.0;
            last = last.max(share.last);
        }
        let start = self.started().unwrap_or(stopped);
        end.duration = match self.shared.orders.goal {
            Goal::Duration(time) if end.complete => time,
            Goal::Duration(time) => stopped.since(start).min(time),
            Goal::Size(_) if end.complete => last.since(start),
            Goal::Size(_) => stopped.since(start),
        };
        if let Goal::Size(bytes) = self.shared.orders.goal {
            end.complete &= end.bytes == bytes.0;
        }
        end
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.end();
    }
}

/// One thread.
struct Worker<'a> {
    shared: &'a Shared,
    counted: Share,
    /// The interval that is being counted, and its bytes so far.
    current: Arrival,
}

/// One stream.
struct Incoming<'a> {
    stream: &'a TcpStream,
    stamp: [u8; Stamp::LEN],
    /// Bytes of the stamp that have come.
    stamped: usize,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared) -> Self {
        Self { shared, counted: Share::default(), current: Arrival { index: 0, bytes: 0 } }
    }

    /// Receives on the streams of `share`. Whether they ended, or the time was over, rather than being stopped.
    fn run(&mut self, share: Range<usize>) -> Result<bool, StreamError> {
        let of = |stream: usize| move |source| StreamError { stream, source };
        let first = share.start;
        let mut poller = Poller::new().map_err(of(first))?;
        poller.add(self.shared.finish.stopper(), STOP, Interest::Read).map_err(of(first))?;
        let mut streams = Vec::new();
        for index in share {
            let stream = &self.shared.streams[index];
            poller.add(stream, streams.len() as u64, Interest::Read).map_err(of(index))?;
            let stamp = [0; Stamp::LEN];
            streams.push(Incoming { stream, stamp, stamped: 0 });
        }
        let interval = self.shared.orders.interval;
        let mut buffer = vec![0; READ].into_boxed_slice();
        let (mut open, mut ready) = (streams.len(), Vec::new());
        let mut flushed = monotonic();
        while open > 0 {
            let now = monotonic();
            let end = self.end();
            if now >= end {
                return Ok(true);
            }
            let flush_at = flushed.after(interval);
            poller.wait(end.min(flush_at).since(now), &mut ready).map_err(of(first))?;
            for &key in &ready {
                if key == STOP {
                    return Ok(false);
                }
                let at = key as usize;
                if self.read(&mut streams[at], &mut buffer).map_err(of(first + at))? {
                    poller.remove(streams[at].stream).map_err(of(first + at))?;
                    open -= 1;
                }
            }
            if monotonic() >= flush_at {
                // A stream that rests holds back the count of its last interval no longer than another one.
                self.flush();
                flushed = monotonic();
            }
        }
        Ok(true)
    }

    /// When the time is over, as far as is known.
    fn end(&self) -> Nanos {
        match (self.shared.orders.goal, self.shared.start.load(Ordering::Relaxed)) {
            (Goal::Size(_), _) | (_, 0) => Nanos::MAX,
            (Goal::Duration(time), start) => Nanos(start).after(time),
        }
    }

    /// Reads once; whether the stream has ended.
    fn read(&mut self, incoming: &mut Incoming<'_>, buffer: &mut [u8]) -> io::Result<bool> {
        let mut stream = incoming.stream;
        let read = if incoming.stamped < Stamp::LEN {
            stream.read(&mut incoming.stamp[incoming.stamped..])
        } else {
            stream.read(buffer)
        };
        let read = match read {
            Ok(0) => {
                // A stream of a transfer with a time ends with the session, not before.
                let early =
                    incoming.stamped < Stamp::LEN || matches!(self.shared.orders.goal, Goal::Duration(_));
                return if early { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(true) };
            }
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if incoming.stamped < Stamp::LEN {
            incoming.stamped += read;
            if incoming.stamped == Stamp::LEN {
                self.shared.stamped(Stamp::decode(incoming.stamp))?;
            }
            return Ok(false);
        }
        self.count(read as u64);
        Ok(false)
    }

    fn count(&mut self, bytes: u64) {
        let now = monotonic();
        if now > self.end() {
            return;
        }
        let since = now.since(Nanos(self.shared.start.load(Ordering::Relaxed)));
        let index = u32::try_from(since.0 / self.shared.orders.interval.0).unwrap_or(u32::MAX);
        if index != self.current.index {
            self.flush();
            self.current.index = index;
        }
        self.current.bytes += bytes;
        self.counted.bytes += bytes;
        self.counted.last = now;
    }

    /// Lets the others see what was counted.
    fn flush(&mut self) {
        if self.current.bytes > 0 {
            self.shared.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(self.current);
            self.current.bytes = 0;
        }
    }
}

impl Shared {
    /// A stream told when the first byte might leave; the first to tell counts for all.
    fn stamped(&self, stamp: Stamp) -> io::Result<()> {
        let (start, now) = (self.orders.offset.to_here(stamp.0), monotonic());
        if start.since(now) > SLACK || now.since(start) > self.orders.patience.after(SLACK) {
            return Err(io::Error::new(ErrorKind::InvalidData, "it says that it started at another time"));
        }
        let _ = self.start.compare_exchange(0, start.0, Ordering::AcqRel, Ordering::Acquire);
        Ok(())
    }
}

/// The key of the stopper; streams count from 0.
const STOP: u64 = u64::MAX;

/// Bytes of the buffer that everything is received into: it stays in the processor's cache.
const READ: usize = 256 << 10;

/// How far the clocks of two hosts may seem apart after their offset was estimated.
const SLACK: Nanos = Nanos(1_000_000_000);
