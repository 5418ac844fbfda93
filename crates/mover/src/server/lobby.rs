//! Where data connections wait for their session, and sessions for their data connections.

use std::collections::{HashMap, VecDeque};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farlink_host::clock::monotonic;
use farlink_wire::message::{Preamble, Token};
use farlink_wire::quantity::Nanos;

/// Where data connections wait for their session. Those that nobody claims are dropped when their time is over,
/// and the oldest of them where there are too many.
#[derive(Debug)]
pub(super) struct Lobby {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    closed: bool,
    expected: HashMap<Token, Sender<(u16, TcpStream)>>,
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Held {
    preamble: Preamble,
    stream: TcpStream,
    until: Nanos,
}

impl Lobby {
    /// One that holds at most `most` connections that nobody claims.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, inner: Mutex::default() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A data connection has come; it may wait until `until`.
    pub(super) fn arrive(&self, preamble: Preamble, stream: TcpStream, until: Nanos) {
        let mut inner = self.inner();
        if let Some(session) = inner.expected.get(&preamble.token) {
            // A session that has just ended drops it.
            let _ = session.send((preamble.stream, stream));
            return;
        }
        if inner.held.len() >= self.most {
            inner.held.pop_front();
        }
        inner.held.push_back(Held { preamble, stream, until });
    }

    /// Drops those whose time is over, and says whether any are left.
    pub(super) fn sweep(&self, now: Nanos) -> bool {
        let mut inner = self.inner();
        inner.held.retain(|held| held.until > now);
        !inner.held.is_empty()
    }

    /// A session claims the connections of `token`, those to come included; `None` where another has.
    pub(super) fn expect(self: &Arc<Self>, token: Token) -> Option<Claim> {
        let (sender, streams) = channel();
        let mut inner = self.inner();
        if inner.closed || inner.expected.contains_key(&token) {
            return None;
        }
        for held in std::mem::take(&mut inner.held) {
            if held.preamble.token == token {
                let _ = sender.send((held.preamble.stream, held.stream));
            } else {
                inner.held.push_back(held);
            }
        }
        inner.expected.insert(token, sender);
        Some(Claim { token, streams, lobby: Arc::clone(self) })
    }

    /// The server ends: whoever waits here waits no longer.
    pub(super) fn close(&self) {
        let mut inner = self.inner();
        inner.closed = true;
        inner.expected.clear();
        inner.held.clear();
    }
}

/// A session's claim on its data connections, until it is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    token: Token,
    streams: Receiver<(u16, TcpStream)>,
    lobby: Arc<Lobby>,
}

impl Claim {
    /// All of `count` streams, in order.
    ///
    /// # Errors
    /// How many had come when the time was over or the lobby closed.
    pub(super) fn all(&self, count: u16, until: Nanos) -> Result<Vec<TcpStream>, Missing> {
        let mut streams: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
        let mut came = 0;
        while came < count {
            let left = Duration::from_nanos(until.since(monotonic()).0);
            match self.streams.recv_timeout(left) {
                Ok((index, stream)) => {
                    // One that came twice, or that was not asked for, is no stream of this transfer.
                    if let Some(place @ None) = streams.get_mut(usize::from(index)) {
                        *place = Some(stream);
                        came += 1;
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(Missing::Late { came }),
                Err(RecvTimeoutError::Disconnected) => return Err(Missing::Closed),
            }
        }
        Ok(streams.into_iter().flatten().collect())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.lobby.inner().expected.remove(&self.token);
    }
}

/// Why a session has not all of its data connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Not all came in time.
    Late {
        /// Those that did.
        came: u16,
    },
    /// The server ends.
    Closed,
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const TOKEN: Token = Token([1; 16]);
    const OTHER: Token = Token([2; 16]);

    fn stream() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    }

    fn arrive(lobby: &Lobby, token: Token, index: u16) {
        lobby.arrive(Preamble { token, stream: index }, stream(), Nanos(100));
    }

    #[test]
    fn streams_find_their_session_whoever_comes_first() {
        let lobby = Lobby::new(4);
        arrive(&lobby, TOKEN, 1);
        arrive(&lobby, OTHER, 0);
        let claim = lobby.expect(TOKEN).unwrap();
        assert!(lobby.expect(TOKEN).is_none());
        arrive(&lobby, TOKEN, 1);
        arrive(&lobby, TOKEN, 9);
        assert_eq!(claim.all(2, Nanos::ZERO).unwrap_err(), Missing::Late { came: 1 });
        arrive(&lobby, TOKEN, 0);
        arrive(&lobby, TOKEN, 1);
        assert_eq!(claim.all(2, Nanos::MAX).unwrap().len(), 2);
        drop(claim);
        assert!(lobby.expect(TOKEN).is_some());
    }

    #[test]
    fn strangers_are_bounded_in_number_and_time() {
        let lobby = Lobby::new(2);
        for index in 0..5 {
            arrive(&lobby, OTHER, index);
        }
        let held: Vec<_> = lobby.inner().held.iter().map(|held| held.preamble.stream).collect();
        assert_eq!(held, [3, 4]);
        assert!(lobby.sweep(Nanos(99)));
        assert!(!lobby.sweep(Nanos(100)));
    }

    #[test]
    fn nobody_waits_in_a_closed_lobby() {
        let lobby = Lobby::new(2);
        let claim = lobby.expect(TOKEN).unwrap();
        lobby.close();
        assert_eq!(claim.all(1, Nanos::MAX).unwrap_err(), Missing::Closed);
        assert!(lobby.expect(OTHER).is_none());
    }
}
