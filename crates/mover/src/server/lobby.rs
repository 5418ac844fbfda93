//! Where data connections wait for their session, and sessions for their data connections.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farlink_host::clock::monotonic;
use farlink_wire::key::PublicKey;
use farlink_wire::message::{Preamble, Token};
use farlink_wire::quantity::{Bytes, Nanos};

use super::burden;
use crate::channel::Channel;

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
    expected: HashMap<Token, Expected>,
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Held {
    preamble: Preamble,
    channel: Channel,
    until: Nanos,
}

impl Held {
    /// Where it comes from, as long as that is known.
    fn from(&self) -> IpAddr {
        let peer = self.channel.tcp().and_then(|tcp| tcp.peer_addr().ok());
        peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip())
    }
}

/// A session that waits.
#[derive(Debug)]
struct Expected {
    kind: Kind,
    /// Until it takes no more.
    session: Option<Sender<(u16, Channel)>>,
}

impl Expected {
    /// Hands a connection over; one of another kind is dropped, and one that comes after the session's end.
    fn hand_over(&self, stream: u16, channel: Channel) {
        if let Some(session) = self.session.as_ref().filter(|_| self.kind.is_of(&channel)) {
            let _ = session.send((stream, channel));
        }
    }
}

/// What a session's data connections must be. A token alone is no proof: it goes over the network in clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In clear: whoever knows the token.
    Clear,
    /// Under TLS, with this key.
    Sealed(PublicKey),
}

impl Kind {
    fn is_of(self, channel: &Channel) -> bool {
        match self {
            Self::Clear => !channel.is_sealed(),
            Self::Sealed(key) => channel.peer_key() == Some(key),
        }
    }
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
    pub(super) fn arrive(&self, preamble: Preamble, channel: Channel, until: Nanos) {
        let mut inner = self.inner();
        if let Some(expected) = inner.expected.get(&preamble.token) {
            expected.hand_over(preamble.stream, channel);
            return;
        }
        if inner.held.len() >= self.most {
            // Who has shown a key goes last: a crowd without keys does not crowd those out.
            let place = |(at, held): (usize, &Held)| (at, held.from());
            let (sealed, clear): (Vec<_>, Vec<_>) =
                inner.held.iter().enumerate().partition(|(_, held)| held.channel.is_sealed());
            let of_clear = burden::who_goes(clear.into_iter().map(place));
            let leaving = of_clear.or_else(|| burden::who_goes(sealed.into_iter().map(place)));
            inner.held.remove(leaving.unwrap_or(0));
        }
        inner.held.push_back(Held { preamble, channel, until });
    }

    /// Drops those whose time is over, and says whether any are left.
    pub(super) fn sweep(&self, now: Nanos) -> bool {
        let mut inner = self.inner();
        inner.held.retain(|held| held.until > now);
        !inner.held.is_empty()
    }

    /// Drops of those who cost the kernel too much, so that the rest costs no more than `most`; of those under TLS where they alone do.
    pub(super) fn relieve(&self, most: Bytes) {
        let mut inner = self.inner();
        let cost = |(at, held): (usize, &Held)| (at, held.from(), burden::of(&held.channel));
        let (sealed, clear): (Vec<_>, Vec<_>) =
            inner.held.iter().enumerate().partition(|(_, held)| held.channel.is_sealed());
        let sealed: Vec<_> = sealed.into_iter().map(cost).collect();
        let theirs: u64 = sealed.iter().map(|(_, _, cost)| cost).sum();
        let mut leaving = burden::excess(most, sealed);
        leaving.extend(burden::excess(Bytes(most.0.saturating_sub(theirs)), clear.into_iter().map(cost)));
        leaving.sort_unstable();
        for at in leaving.into_iter().rev() {
            inner.held.remove(at);
        }
    }

    /// A session claims the connections of `token` that are of its `kind`, those to come included; `None` where another has.
    pub(super) fn expect(self: &Arc<Self>, token: Token, kind: Kind) -> Option<Claim> {
        let (session, streams) = channel();
        let expected = Expected { kind, session: Some(session) };
        let mut inner = self.inner();
        if inner.closed || inner.expected.contains_key(&token) {
            return None;
        }
        for held in std::mem::take(&mut inner.held) {
            if held.preamble.token == token {
                expected.hand_over(held.preamble.stream, held.channel);
            } else {
                inner.held.push_back(held);
            }
        }
        inner.expected.insert(token, expected);
        Some(Claim { token, streams, lobby: Arc::clone(self) })
    }

    /// No more of `token`'s are handed over: whoever waits for one waits no longer.
    pub(super) fn dismiss(&self, token: Token) {
        if let Some(expected) = self.inner().expected.get_mut(&token) {
            expected.session = None;
        }
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
pub(crate) struct Claim {
    token: Token,
    streams: Receiver<(u16, Channel)>,
    lobby: Arc<Lobby>,
}

impl Claim {
    /// The next connection that comes, and which stream it says it is: any number, perhaps one that came before.
    ///
    /// # Errors
    /// [`Missing`], where none came in time.
    pub(crate) fn next(&self, until: Nanos) -> Result<(u16, Channel), Missing> {
        let left = Duration::from_nanos(until.since(monotonic()).0);
        self.streams.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => Missing::Late { came: 0 },
            RecvTimeoutError::Disconnected => Missing::Closed,
        })
    }

    /// All of `count` streams, in order.
    ///
    /// # Errors
    /// How many had come when the time was over or the lobby closed.
    pub(crate) fn all(&self, count: u16, until: Nanos) -> Result<Vec<Channel>, Missing> {
        let mut streams: Vec<Option<Channel>> = (0..count).map(|_| None).collect();
        let mut came = 0;
        while came < count {
            match self.next(until) {
                Ok((index, channel)) => {
                    // One that came twice, or that was not asked for, is no stream of this transfer.
                    if let Some(place @ None) = streams.get_mut(usize::from(index)) {
                        *place = Some(channel);
                        came += 1;
                    }
                }
                Err(Missing::Late { .. }) => return Err(Missing::Late { came }),
                Err(Missing::Closed) => return Err(Missing::Closed),
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
pub(crate) enum Missing {
    /// Not all came in time.
    Late {
        /// Those that did.
        came: u16,
    },
    /// The server ends, or the session was dismissed.
    Closed,
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const TOKEN: Token = Token([1; 16]);
    const OTHER: Token = Token([2; 16]);

    fn stream() -> Channel {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Channel::over_tcp(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap()
    }

    fn arrive(lobby: &Lobby, token: Token, index: u16) {
        lobby.arrive(
            Preamble { token, stream: index, sealed: false, wants_answer: false },
            stream(),
            Nanos(100),
        );
    }

    #[test]
    fn streams_find_their_session_whoever_comes_first() {
        let lobby = Lobby::new(4);
        arrive(&lobby, TOKEN, 1);
        arrive(&lobby, OTHER, 0);
        let claim = lobby.expect(TOKEN, Kind::Clear).unwrap();
        assert!(lobby.expect(TOKEN, Kind::Clear).is_none());
        arrive(&lobby, TOKEN, 1);
        arrive(&lobby, TOKEN, 9);
        assert_eq!(claim.all(2, Nanos::ZERO).unwrap_err(), Missing::Late { came: 1 });
        arrive(&lobby, TOKEN, 0);
        arrive(&lobby, TOKEN, 1);
        assert_eq!(claim.all(2, Nanos::MAX).unwrap().len(), 2);
        drop(claim);
        assert!(lobby.expect(TOKEN, Kind::Clear).is_some());
    }

    #[test]
    fn a_connection_of_another_kind_is_not_taken_for_the_sessions() {
        let lobby = Lobby::new(4);
        arrive(&lobby, TOKEN, 0);
        let claim = lobby.expect(TOKEN, Kind::Sealed(PublicKey([1; 32]))).unwrap();
        arrive(&lobby, TOKEN, 0);
        assert_eq!(claim.all(1, Nanos::ZERO).unwrap_err(), Missing::Late { came: 0 });
        assert!(lobby.inner().held.is_empty());
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
    fn who_sends_much_before_a_session_has_come_goes_where_that_is_too_much_in_all() {
        let lobby = Lobby::new(4);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peers = Vec::new();
        for stream in 0..2 {
            peers.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let channel = Channel::over_tcp(listener.accept().unwrap().0).unwrap();
            lobby.arrive(
                Preamble { token: TOKEN, stream, sealed: false, wants_answer: false },
                channel,
                Nanos::MAX,
            );
        }
        peers[1].write_all(&[0; 50_000]).unwrap();
        // It has arrived when the kernel has acknowledged it.
        while farlink_host::socket::unacknowledged(&peers[1]).unwrap() > 0 {
            std::thread::yield_now();
        }
        lobby.relieve(Bytes(10_000_000));
        assert_eq!(lobby.inner().held.len(), 2);
        lobby.relieve(Bytes(10_000));
        let held: Vec<_> = lobby.inner().held.iter().map(|held| held.preamble.stream).collect();
        assert_eq!(held, [0]);
    }

    #[test]
    fn who_is_dismissed_waits_no_longer_and_keeps_the_token_until_it_leaves() {
        let lobby = Lobby::new(2);
        let claim = lobby.expect(TOKEN, Kind::Clear).unwrap();
        let waiting = std::thread::spawn(move || (claim.next(Nanos::MAX).unwrap_err(), claim));
        lobby.dismiss(TOKEN);
        let (missing, claim) = waiting.join().unwrap();
        assert_eq!(missing, Missing::Closed);
        arrive(&lobby, TOKEN, 0);
        assert!(lobby.expect(TOKEN, Kind::Clear).is_none());
        assert!(lobby.inner().held.is_empty());
        drop(claim);
        assert!(lobby.expect(TOKEN, Kind::Clear).is_some());
    }

    #[test]
    fn nobody_waits_in_a_closed_lobby() {
        let lobby = Lobby::new(2);
        let claim = lobby.expect(TOKEN, Kind::Clear).unwrap();
        lobby.close();
        assert_eq!(claim.all(1, Nanos::MAX).unwrap_err(), Missing::Closed);
        assert!(lobby.expect(OTHER, Kind::Clear).is_none());
    }
}
