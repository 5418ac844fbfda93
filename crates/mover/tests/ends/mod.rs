//! A far end in this process, and a near end that asks it.
#![allow(dead_code)]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use farlink_host::clock::monotonic;
use farlink_host::readiness::Wake;
use farlink_mover::far_host::FarHost;
use farlink_mover::memory::{self, Plan};
use farlink_mover::secure::{Admission, Identity};
use farlink_mover::server::{Event, Limits, Server};
use farlink_wire::message::{Goal, Way};
use farlink_wire::quantity::{Bytes, Nanos};
use farlink_wire::record::Record;

/// A server, until it is dropped.
pub(crate) struct Far {
    address: SocketAddr,
    stop: Wake,
    serving: Option<JoinHandle<Vec<Event>>>,
}

impl Far {
    /// One that listens on `address`.
    pub(crate) fn start(address: &str) -> Self {
        Self::with(address, Limits::default())
    }

    /// One with other limits.
    pub(crate) fn with(address: &str, limits: Limits) -> Self {
        Self::with_keys(address, limits, None)
    }

    /// One that shows a key, and lets in whom a list has.
    pub(crate) fn with_keys(address: &str, limits: Limits, keys: Option<(Identity, Arc<Admission>)>) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let mut server = Server::bind(&[SocketAddr::new(address, 0)], limits).unwrap();
        if let Some((identity, admission)) = keys {
            server = server.with_keys(identity, admission);
        }
        let address = server.addresses()[0];
        let stop = Wake::new().unwrap();
        let stopper = stop.clone();
        let serving = std::thread::spawn(move || {
            let events = std::sync::Mutex::new(Vec::new());
            server.run(&stopper, &|event| events.lock().unwrap().push(event)).unwrap();
            events.into_inner().unwrap()
        });
        Self { address, stop, serving: Some(serving) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells it to end.
    pub(crate) fn stop(&self) {
        self.stop.raise();
    }

    /// Ends it, and returns what happened there.
    pub(crate) fn end(mut self) -> Vec<Event> {
        self.stop();
        self.serving.take().unwrap().join().unwrap()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.stop.raise();
        if let Some(serving) = self.serving.take() {
            let ended = serving.join();
            assert!(std::thread::panicking() || ended.is_ok(), "the server panicked");
        }
    }
}

/// 5 MB over two streams, forward.
pub(crate) fn plan(address: SocketAddr) -> Plan {
    Plan {
        began: monotonic(),
        reason: None,
        credentials: None,
        target: FarHost { host: address.ip().to_string(), port: address.port() },
        way: Way::Forward,
        goal: Goal::size(Bytes(5_000_000)).unwrap(),
        streams: 2.try_into().unwrap(),
        congestion: None,
        declared: None,
        limit: None,
        bind: None,
        buffer: None,
        block: Bytes(1 << 20).try_into().unwrap(),
        zero_copy: None,
        interval: Nanos(100_000_000).try_into().unwrap(),
        patience: Nanos(10_000_000_000).try_into().unwrap(),
        threads: None,
    }
}

pub(crate) fn seconds(seconds: u64) -> Goal {
    Goal::duration(Nanos(seconds * 1_000_000_000)).unwrap()
}

/// Carries `plan` out, uninterrupted.
pub(crate) fn run(plan: &Plan) -> Record {
    memory::run(plan, &Wake::new().unwrap(), &mut |_| {}).record
}
