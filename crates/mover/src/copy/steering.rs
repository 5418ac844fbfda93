//! How the connections of a copy over a long path, whose congestion control nobody chose, begin together and share what the path carries.
//!
//! They begin in bursts, as TCP does that is not paced, for bursts show a path's rate; when it is known, or something is lost, they are given
//! the congestion control that is to keep the path, each with its share of the path's ceiling ([`Ceiling`]) as the most that it sends.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;

use farlink_flow::ceiling::{Ceiling, Sample};
use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_host::socket;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::quantity::{BitsPerSec, Nanos};

use super::client::SocketFacts;
use crate::automatic;

/// The connections that are steered together.
#[derive(Clone, Debug)]
pub(crate) struct Steering {
    shared: Arc<Mutex<State>>,
    over: Wake,
}

#[derive(Debug, Default)]
struct State {
    streams: HashMap<u32, Stream>,
    ceiling: Ceiling,
    /// What each may send; absent where that is not bounded.
    share: Option<BitsPerSec>,
    /// Bytes that have arrived, also of streams that are gone.
    delivered: u64,
    /// Whether connections have what is to keep the path, and what the last of them was given.
    is_settled: bool,
    facts: Option<SocketFacts>,
    is_running: bool,
}

/// One of them.
#[derive(Debug)]
struct Stream {
    /// Another handle of it, which ends with the stream's own: [`Steering::leave`].
    tcp: TcpStream,
    /// Segments that had arrived when it was asked last.
    delivered: u32,
}

impl Steering {
    /// Of no connection yet; all is over when `end` is called.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { shared: Arc::default(), over: Wake::new()? })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection joins, and leaves before it is closed.
    ///
    /// # Errors
    /// The kernel's, of the socket or of a thread.
    pub(crate) fn join(&self, number: u32, tcp: &TcpStream) -> io::Result<()> {
        let mut state = self.state();
        let delivered = TcpInfo::of(tcp)?.delivered;
        let stream = Stream { tcp: tcp.try_clone()?, delivered };
        if state.is_settled {
            let reason = automatic::follow(&stream.tcp)?;
            state.facts = Some(SocketFacts { reason, ..SocketFacts::of(Some(&stream.tcp)) });
        }
        state.streams.insert(number, stream);
        state.share_out();
        if !state.is_running {
            state.is_running = true;
            let (its, over) = (Arc::downgrade(&self.shared), self.over.clone());
            Builder::new().name("farlink-steer".to_owned()).spawn(move || run(&its, &over))?;
        }
        Ok(())
    }

    /// A connection is about to be closed.
    pub(crate) fn leave(&self, number: u32) {
        let mut state = self.state();
        if state.streams.remove(&number).is_some() {
            state.share_out();
        }
    }

    /// What connections were given last; `None` where they have what they began with.
    pub(crate) fn facts(&self) -> Option<SocketFacts> {
        self.state().facts.clone()
    }

    /// Nothing more is to be steered.
    pub(crate) fn end(&self) {
        self.over.raise();
    }
}

/// Looks until all is over.
fn run(its: &Weak<Mutex<State>>, over: &Wake) {
    let mut pause = Nanos::ZERO;
    while let Ok(Waited::Over) = wait_for(over, Interest::Read, over, pause) {
        let Some(shared) = its.upgrade() else { return };
        pause = shared.lock().unwrap_or_else(PoisonError::into_inner).look();
    }
}

impl State {
    /// Asks all connections how they are, does what follows, and returns how long that is good for.
    fn look(&mut self) -> Nanos {
        let (mut rtt, mut least_rtt, mut lost) = (0, Nanos::MAX, false);
        let mut known = 0;
        for stream in self.streams.values_mut() {
            let Ok(info) = TcpInfo::of(&stream.tcp) else { continue };
            let segments = info.delivered.wrapping_sub(stream.delivered);
            stream.delivered = info.delivered;
            self.delivered += u64::from(segments) * u64::from(info.send_mss);
            if info.min_rtt > Nanos::ZERO {
                known += 1;
                rtt += info.srtt.0;
                least_rtt = least_rtt.min(info.min_rtt);
                lost |= info.retransmits > 0;
            }
        }
        if known == 0 {
            return IDLE;
        }
        let rtt = Nanos(rtt / known);
        let sample = Sample { at: monotonic(), delivered: self.delivered, rtt, least_rtt };
        if let Some(ceiling) = self.ceiling.on_sample(sample) {
            self.share = ceiling;
            self.share_out();
        }
        if !self.is_settled && (lost || !self.ceiling.is_seeking()) {
            self.settle();
        }
        self.ceiling.pause(least_rtt)
    }

    /// Gives all connections what is to keep the path.
    fn settle(&mut self) {
        self.is_settled = true;
        for stream in self.streams.values() {
            // A connection that is gone has no more to send.
            if let Ok(reason) = automatic::follow(&stream.tcp) {
                self.facts = Some(SocketFacts { reason, ..SocketFacts::of(Some(&stream.tcp)) });
            }
        }
    }

    /// Tells connections what they may send, each as much as the others.
    fn share_out(&self) {
        let bytes = match self.share {
            Some(bps) => bps.get() / 8 / self.streams.len().max(1) as u64,
            None if self.ceiling.is_seeking() => return,
            None => u64::MAX,
        };
        for stream in self.streams.values() {
            // It is a bound on what would be sent too much; the kernel takes any but of a connection that is gone.
            let _ = socket::set_greatest_rate(&stream.tcp, bytes);
        }
    }
}

/// Between looks while no connection knows its round trip.
const IDLE: Nanos = Nanos(10_000_000);
