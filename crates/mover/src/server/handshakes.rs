//! Strangers that show a key: their handshakes, on few threads, without waiting for any of them.
//!
//! Until its handshake is over, a connection costs some ten kilobytes and its place in a bounded crowd; it has no thread.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farlink_host::clock::monotonic;
use farlink_host::process;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_wire::message::Preamble;
use farlink_wire::quantity::{Bytes, Nanos};
use rustls::ServerConfig;

use super::burden;
use crate::channel::{Channel, ChannelError};

/// What a connection is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// To talk.
    Control,
    /// To move the data of a session.
    Data(Preamble),
}

/// A connection under TLS.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) channel: Channel,
    pub(super) from: SocketAddr,
    pub(super) purpose: Purpose,
}

impl Newcomer {
    /// Whether it is a data connection that its client wants no more: one of those that it opened before it knew how many it needs.
    fn has_only_left(&self, error: &io::Error) -> bool {
        let left = matches!(ChannelError::within(error), Some(ChannelError::Unshaken));
        left && matches!(self.purpose, Purpose::Data(_))
    }
}

/// Where handshakes are done.
#[derive(Debug)]
pub(super) struct Handshakes {
    config: Arc<ServerConfig>,
    benches: Vec<Bench>,
    next: AtomicUsize,
    /// Connections of one thread.
    most: usize,
    patience: Nanos,
    /// Why a thread could not go on.
    failure: Mutex<Option<io::Error>>,
}

/// Where newcomers wait for one thread to take them.
#[derive(Debug)]
struct Bench {
    newcomers: Mutex<Vec<Newcomer>>,
    wake: Wake,
}

impl Handshakes {
    /// For at most `most` connections at a time, of which each has `patience`.
    pub(super) fn new(config: Arc<ServerConfig>, most: usize, patience: Nanos) -> io::Result<Self> {
        let threads = (process::cores() as usize).clamp(1, MOST_THREADS);
        let bench = |_| Ok(Bench { newcomers: Mutex::default(), wake: Wake::new()? });
        let benches = (0..threads).map(bench).collect::<io::Result<Vec<_>>>()?;
        let (next, failure) = (AtomicUsize::new(0), Mutex::default());
        Ok(Self { config, benches, next, most: (most / threads).max(1), patience, failure })
    }

    /// How many threads are to [work](Self::work).
    pub(super) fn threads(&self) -> usize {
        self.benches.len()
    }

    /// A thread cannot go on, and so no other is to.
    pub(super) fn fail(&self, error: io::Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Why a thread could not go on.
    pub(super) fn failure(&self) -> Option<io::Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes a connection that has said `said` of TLS.
    pub(super) fn take(
        &self,
        mut channel: Channel,
        said: &[u8],
        from: SocketAddr,
        purpose: Purpose,
    ) -> io::Result<()> {
        channel.seal_as_server(Arc::clone(&self.config), said)?;
        let bench = &self.benches[self.next.fetch_add(1, Ordering::Relaxed) % self.benches.len()];
        let mut newcomers = bench.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        newcomers.push(Newcomer { channel, from, purpose });
        drop(newcomers);
        bench.wake.raise();
        Ok(())
    }

    /// One thread's work until `stop` is raised: whoever has shown a key is `welcome`, and whoever has not is told and shown out;
    /// `refused` hears why.
    pub(super) fn work(
        &self,
        thread: usize,
        stop: &Wake,
        welcome: &dyn Fn(Newcomer),
        refused: &dyn Fn(SocketAddr, &io::Error),
    ) -> io::Result<()> {
        let bench = &self.benches[thread];
        let mut poller = Poller::new()?;
        poller.add(stop, STOP, Interest::Read)?;
        poller.add(&bench.wake, NEW, Interest::Read)?;
        let (mut guests, mut next_key) = (BTreeMap::<u64, Guest>::new(), 0);
        let mut ready = Vec::new();
        let most = Bytes(burden::most_unknown().0 / self.benches.len() as u64);
        let mut relieve_at = Nanos::ZERO;
        loop {
            let pause = if guests.is_empty() { Nanos::MAX } else { burden::OFTEN };
            poller.wait(pause, &mut ready)?;
            if ready.contains(&STOP) {
                return Ok(());
            }
            if ready.contains(&NEW) {
                bench.wake.lower();
                let newcomers =
                    std::mem::take(&mut *bench.newcomers.lock().unwrap_or_else(PoisonError::into_inner));
                for newcomer in newcomers {
                    // Whoever means well is through within two round trips.
                    while guests.len() >= self.most {
                        let crowd = guests.iter().map(|(key, guest)| (*key, guest.newcomer.from.ip()));
                        let Some(leaving) = burden::who_goes(crowd) else { break };
                        guests.remove(&leaving);
                    }
                    if poller.add(&newcomer.channel, next_key, Interest::Read).is_ok() {
                        let until = monotonic().after(self.patience);
                        guests.insert(next_key, Guest { newcomer, until, is_leaving: false });
                        ready.push(next_key);
                        next_key += 1;
                    }
                }
            }
            for key in &ready {
                let Some(guest) = guests.get_mut(key) else { continue };
                match guest.step() {
                    Step::Wait => {}
                    Step::Gone => drop(guests.remove(key)),
                    Step::Refused(error) if guest.newcomer.has_only_left(&error) => {}
                    Step::Refused(error) => refused(guest.newcomer.from, &error),
                    Step::Through => {
                        if let Some(guest) = guests.remove(key)
                            && poller.remove(&guest.newcomer.channel).is_ok()
                        {
                            welcome(guest.newcomer);
                        }
                    }
                }
            }
            let now = monotonic();
            guests.retain(|_, guest| guest.until > now);
            if now >= relieve_at {
                let cost = |(key, guest): (&u64, &Guest)| {
                    (*key, guest.newcomer.from.ip(), burden::of(&guest.newcomer.channel))
                };
                for key in burden::excess(most, guests.iter().map(cost)) {
                    guests.remove(&key);
                }
                relieve_at = now.after(burden::OFTEN);
            }
        }
    }
}

/// A connection whose handshake goes on, or that is to leave.
struct Guest {
    newcomer: Newcomer,
    until: Nanos,
    is_leaving: bool,
}

enum Step {
    Wait,
    Through,
    Refused(io::Error),
    Gone,
}

impl Guest {
    fn step(&mut self) -> Step {
        let channel = &mut self.newcomer.channel;
        if self.is_leaving {
            return if drained(channel) { Step::Gone } else { Step::Wait };
        }
        match channel.shake_hands() {
            Ok(true) => Step::Through,
            Ok(false) => Step::Wait,
            Err(error) => {
                // Closing now would throw away what it was told: what it said meanwhile must be read first.
                if channel.end_writing().is_err() {
                    return Step::Gone;
                }
                self.is_leaving = true;
                self.until = monotonic().after(FAREWELL).min(self.until);
                Step::Refused(error)
            }
        }
    }
}

/// Reads what has come, and says whether it was the last.
fn drained(channel: &Channel) -> bool {
    let mut bytes = [0; 4096];
    for _ in 0..64 {
        match channel.beneath().read(&mut bytes) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            _ => return true,
        }
    }
    false
}

/// Threads for handshakes: each does thousands a second.
const MOST_THREADS: usize = 4;

/// How long one that was refused may take to hear it.
const FAREWELL: Nanos = Nanos(2_000_000_000);

/// Keys of what is waited for; connections count from 0.
const STOP: u64 = u64::MAX;
const NEW: u64 = u64::MAX - 1;

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use farlink_wire::key::{Grant, PublicKey};
    use farlink_wire::message::{Name, Token};

    use super::*;
    use crate::channel::{ChannelError, Wait};
    use crate::dial::{Dial, DialError, Place, Route};
    use crate::role::Role;
    use crate::secure::{self, Admission, Identity, Trust};
    use crate::server::lobby::{Kind, Lobby};
    use crate::tuning::Tuning;

    const TOKEN: Token = Token([5; 16]);
    const PATIENCE: Nanos = Nanos(20_000_000_000);

    /// A server that has got as far as the handshakes, and a client of it.
    struct Ends {
        listener: TcpListener,
        handshakes: Handshakes,
        lobby: Arc<Lobby>,
        identity: Identity,
        client: Identity,
        stop: Wake,
    }

    impl Ends {
        fn new(most: usize) -> Self {
            let (identity, client) = (Identity::generate().unwrap(), Identity::generate().unwrap());
            let admission = Arc::new(Admission::of_one(client.public(), Grant::default()));
            let config = secure::server(&identity, admission).unwrap();
            let handshakes = Handshakes::new(config, most, PATIENCE).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            Self { listener, handshakes, lobby: Lobby::new(8), identity, client, stop: Wake::new().unwrap() }
        }

        fn dial(&self, identity: &Identity, server: PublicKey) -> (Dial, Place) {
            let address = self.listener.local_addr().unwrap();
            let tuning = Tuning {
                streams: 1.try_into().unwrap(),
                congestion: None::<Name>,
                declared: None,
                limit: None,
                buffer: None,
                chosen_later: false,
            };
            let dial = Dial {
                route: Route::Tcp(vec![address]),
                trust: Some(Trust::new(identity, Some(server)).unwrap()),
                protect_data: true,
                token: TOKEN,
                role: Role::Sender,
                tuning,
                path: None,
                bind: None,
            };
            (dial, Place::Address(address))
        }

        /// Takes `count` connections, and does their handshakes while `client` runs.
        fn serve<T: Send>(&self, count: usize, client: impl FnOnce() -> T + Send) -> (T, Vec<String>) {
            let reasons = Mutex::new(Vec::new());
            let outcome = thread::scope(|scope| {
                for index in 0..self.handshakes.threads() {
                    let reasons = &reasons;
                    scope.spawn(move || {
                        let welcome = |newcomer: Newcomer| {
                            let Purpose::Data(preamble) = newcomer.purpose else { panic!("it is for data") };
                            self.lobby.arrive(preamble, newcomer.channel, Nanos::MAX);
                        };
                        let refused = |_, error: &io::Error| reasons.lock().unwrap().push(error.to_string());
                        self.handshakes.work(index, &self.stop, &welcome, &refused).unwrap();
                    });
                }
                let client = scope.spawn(client);
                for _ in 0..count {
                    let (stream, from) = self.listener.accept().unwrap();
                    let mut preamble = [0; Preamble::LEN];
                    (&stream).read_exact(&mut preamble).unwrap();
                    let purpose = Purpose::Data(Preamble::decode(&preamble).unwrap());
                    self.handshakes.take(Channel::over_tcp(stream).unwrap(), &[], from, purpose).unwrap();
                }
                let outcome = client.join().unwrap();
                self.stop.raise();
                outcome
            });
            (outcome, reasons.into_inner().unwrap())
        }
    }

    #[test]
    fn data_come_right_behind_the_handshake_to_the_session_of_their_key() {
        let ends = Ends::new(8);
        let claim = ends.lobby.expect(TOKEN, Kind::Sealed(ends.client.public())).unwrap();
        let (dial, at) = ends.dial(&ends.client, ends.identity.public());
        let stop = Wake::new().unwrap();
        let client = move || {
            let wait = || Some(Wait { patience: PATIENCE, stop: stop.clone(), while_full: false });
            let mut channel = dial.another(&at, 3, monotonic().after(PATIENCE), &stop).unwrap().unwrap();
            channel.set_wait(wait());
            channel.write_all(b"hello").unwrap();
            let (stream, mut far) = claim.next(monotonic().after(PATIENCE)).unwrap();
            far.set_wait(wait());
            let mut got = [0; 5];
            far.read_exact(&mut got).unwrap();
            assert_eq!((stream, &got), (3, b"hello"));
        };
        let ((), refused) = ends.serve(1, client);
        assert!(refused.is_empty(), "{refused:?}");
    }

    #[test]
    fn data_of_another_key_than_the_sessions_are_dropped() {
        let ends = Ends::new(8);
        let claim = ends.lobby.expect(TOKEN, Kind::Sealed(PublicKey([9; 32]))).unwrap();
        let (dial, at) = ends.dial(&ends.client, ends.identity.public());
        let stop = Wake::new().unwrap();
        let client = || {
            let mut channel = dial.another(&at, 0, monotonic().after(PATIENCE), &stop).unwrap().unwrap();
            channel.set_wait(Some(Wait { patience: PATIENCE, stop: stop.clone(), while_full: false }));
            let error = channel.read(&mut [0]).unwrap_err();
            assert_eq!(ChannelError::within(&error), Some(&ChannelError::Cut), "{error}");
        };
        ends.serve(1, client);
        assert!(claim.next(Nanos::ZERO).is_err());
    }

    #[test]
    fn both_ends_are_told_whom_they_do_not_trust() {
        let ends = Ends::new(8);
        let stranger = Identity::generate().unwrap();
        let (dial, at) = ends.dial(&stranger, ends.identity.public());
        let stop = Wake::new().unwrap();
        let client = || {
            // It learns so only when it reads: in TLS 1.3 a client is judged after its handshake is over.
            let mut channel = dial.another(&at, 0, monotonic().after(PATIENCE), &stop).unwrap().unwrap();
            channel.set_wait(Some(Wait { patience: PATIENCE, stop: stop.clone(), while_full: false }));
            let error = channel.read(&mut [0]).unwrap_err();
            assert_eq!(ChannelError::within(&error), Some(&ChannelError::NotAdmitted), "{error}");
            let (dial, at) = ends.dial(&ends.client, stranger.public());
            match dial.another(&at, 0, monotonic().after(PATIENCE), &stop) {
                Err(DialError::Untrusted { key, .. }) => assert_eq!(key, ends.identity.public()),
                other => panic!("{other:?}"),
            }
        };
        let ((), refused) = ends.serve(2, client);
        // Each in a thread of its own: either may be the first to say so.
        let told =
            format!("the far side shows the key {}, which authorized_keys does not list", stranger.public());
        assert!(refused.contains(&told), "{refused:?}");
    }

    #[test]
    fn those_who_never_show_a_key_make_room() {
        let ends = Ends::new(1);
        let (dial, at) = ends.dial(&ends.client, ends.identity.public());
        let stop = Wake::new().unwrap();
        let address = ends.listener.local_addr().unwrap();
        let count = 4 * ends.handshakes.threads();
        let client = || {
            let silent: Vec<_> = (0..count)
                .map(|stream| {
                    let silent = TcpStream::connect(address).unwrap();
                    let preamble =
                        Preamble { token: TOKEN, stream: stream as u16, sealed: true, wants_answer: false };
                    io::Write::write_all(&mut &silent, &preamble.encode()).unwrap();
                    silent
                })
                .collect();
            dial.another(&at, 0, monotonic().after(PATIENCE), &stop).unwrap().unwrap();
            drop(silent);
        };
        ends.serve(count + 1, client);
    }
}
