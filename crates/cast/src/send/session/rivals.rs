//! Who else sends to the group: sessions that prove to have it, and others.
//!
//! Anybody can send packets that look like a session's, from any address. So whoever sends some is asked, at the address and port that they
//! come from, and only a session that answers counts. With keys the answer is its claim to be this session of this group, signed by a key
//! that this sender trusts: its own, or one that it lets in. Without keys it is that control connections are taken there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_host::socket;
use farlink_mover::channel::Channel;
use farlink_mover::secure::{Admission, Identity, Trust};
use farlink_wire::cast::SessionId;
use farlink_wire::cast::packet::Clear;
use farlink_wire::quantity::Nanos;

use super::Session;
use crate::contact::TAKEN_AT_ONCE;
use crate::error::CastError;
use crate::group::Group;
use crate::send::Notice;
use crate::send::sockets::claim;

/// Those who have sent to the group, and what came of asking them.
#[derive(Debug)]
pub(super) struct Rivals {
    group: Group,
    keys: Option<(Identity, Arc<Admission>)>,
    /// Raised when somebody has answered.
    wake: Wake,
    answers: (Sender<Answer>, Receiver<Answer>),
    asked: BTreeSet<(SocketAddr, SessionId)>,
    /// Those that have begun as this one did and are to give way, and until when.
    passed: BTreeMap<(SocketAddr, SessionId), Nanos>,
    asking: usize,
    noted: BTreeSet<IpAddr>,
}

/// How long a session has had its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// It has sent nothing yet: whoever sends is older.
    Silent,
    /// It may hear only now of one that is older, and of one that began as it did.
    Young,
    /// Who comes gives way to it.
    Established,
}

impl Age {
    /// Whether this session, `own`, gives way to the one that a packet of tells, if there is one.
    fn gives_way(self, own: SessionId, theirs: Clear) -> bool {
        match self {
            Self::Silent => true,
            // Both began at once, and only one of them goes.
            Self::Young => theirs.number >= FIRST_PACKETS || theirs.session < own,
            Self::Established => false,
        }
    }
}

/// What came of asking somebody.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// Whom.
    pub(super) by: IpAddr,
    /// Whether a session has the group there.
    pub(super) is_session: bool,
}

impl Rivals {
    /// Of a session that has `keys`, or takes part where nobody needs any. `wake` is raised when there is an answer.
    pub(super) fn new(group: Group, keys: Option<(Identity, Arc<Admission>)>, wake: Wake) -> Self {
        let (asked, passed, noted) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        Self { group, keys, wake, answers: channel(), asked, passed, asking: 0, noted }
    }

    /// A packet of `session` came from `from`: asks whoever is there, once, unless many are being asked.
    pub(super) fn ask(&mut self, from: SocketAddr, session: SessionId) {
        // A session's packets leave from the port of its control connections, which is the group's.
        let is_from_port = from.port() == self.group.address().port();
        let place = (from, session);
        if !is_from_port || self.asking >= MOST_AT_ONCE || self.asked.len() >= MOST_ASKED {
            return;
        }
        if !self.asked.insert(place) {
            return;
        }
        let claim = claim(self.group, session);
        let question = self
            .keys
            .as_ref()
            .map(|(identity, admission)| Trust::question(identity, Arc::clone(admission), &claim));
        let Ok(question) = question.transpose() else { return };
        let (wake, answers) = (self.wake.clone(), self.answers.0.clone());
        let asking = move || {
            let is_session = is_session(from, question.as_ref()).unwrap_or(false);
            // Nobody hears it where the session has ended.
            let _ = answers.send(Answer { by: from.ip(), is_session });
            wake.raise();
        };
        if thread::Builder::new().name("farlink-ask".to_owned()).spawn(asking).is_ok() {
            self.asking += 1;
        }
    }

    /// Who sends packets of `session` from `from` is to give way itself, whatever of it comes; unless it has not by `until`.
    fn pass(&mut self, from: SocketAddr, session: SessionId, until: Nanos) {
        if from.port() == self.group.address().port() && self.passed.len() < MOST_AT_ONCE {
            self.passed.entry((from, session)).or_insert(until);
        }
    }

    /// Whether it may give way still.
    fn is_passed(&self, from: SocketAddr, session: SessionId, now: Nanos) -> bool {
        self.passed.get(&(from, session)).is_some_and(|until| now < *until)
    }

    /// The next answer, where there is one.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let answer = self.answers.1.try_recv().ok()?;
        self.asking -= 1;
        Some(answer)
    }

    /// Whether somebody is still to answer.
    pub(super) const fn is_asking(&self) -> bool {
        self.asking > 0
    }

    /// Whether it is new that `address` sends to the group, and the first few of those.
    pub(super) fn is_news(&mut self, address: IpAddr) -> bool {
        self.noted.len() < MOST_NOTED && self.noted.insert(address)
    }
}

impl Session<'_> {
    /// Packets of others: as long as it may have to give way, this session asks whether another has the group.
    pub(super) fn overhear(
        &mut self,
        buffer: &mut [u8],
        age: Age,
        tell: &mut dyn FnMut(Notice<'_>),
    ) -> Result<(), CastError> {
        // However much comes, this session's own packets leave in between.
        for _ in 0..TAKEN_AT_ONCE {
            let Some(received) = self.sockets.others.receive(buffer).map_err(CastError::Wait)? else { break };
            let first = received.bytes.min(received.packet);
            let Ok(clear) = Clear::decode(&buffer[..first]) else { continue };
            if clear.session == self.id {
                continue;
            }
            let by = received.from.ip();
            let (from, now, gives_way) = (received.from, monotonic(), age.gives_way(self.id, clear));
            if gives_way && !self.rivals.is_passed(from, clear.session, now) {
                self.rivals.ask(from, clear.session);
            } else if age == Age::Young {
                self.rivals.pass(from, clear.session, now.after(PATIENCE));
            }
            // One that is asked is told of when it has answered.
            if !self.rivals.is_asking() && self.rivals.is_news(by) {
                tell(Notice::Others { by });
            }
        }
        Ok(())
    }

    /// What those have answered who sent to the group: the younger of two sessions gives way.
    pub(super) fn hear_rivals(&mut self, tell: &mut dyn FnMut(Notice<'_>)) -> Result<(), CastError> {
        while let Some(answer) = self.rivals.answer() {
            if answer.is_session {
                return Err(CastError::InUse { group: self.plan.group, by: answer.by });
            }
            if self.rivals.is_news(answer.by) {
                tell(Notice::Others { by: answer.by });
            }
        }
        Ok(())
    }
}

/// Whether there is a session at `at`.
fn is_session(at: SocketAddr, question: Option<&Trust>) -> io::Result<bool> {
    let (never, until) = (Wake::new()?, monotonic().after(PATIENCE));
    let wait = |descriptor: BorrowedFd<'_>, interest| {
        wait_for(descriptor, interest, &never, until.since(monotonic())).map(|waited| waited == Waited::Ready)
    };
    let stream = socket::unconnected(at)?;
    socket::start_connecting(&stream, at)?;
    if !wait(stream.as_fd(), Interest::Write)? {
        return Ok(false);
    }
    socket::connected(&stream)?;
    let Some(question) = question else { return Ok(true) };
    let mut channel = Channel::over_tcp(stream)?;
    channel.seal_as_client(question.config(), &[])?;
    // How it ends is of no matter: one that does not let this end in has answered before it says so.
    while matches!(channel.shake_hands(), Ok(false)) {
        if !wait(channel.as_fd(), Interest::Read)? {
            break;
        }
    }
    Ok(question.is_proved())
}

/// How long somebody may take to answer: a few round trips of the longest paths.
const PATIENCE: Nanos = Nanos(2_000_000_000);

/// Who is asked at a time, and in all: a stranger may name any number of addresses.
const MOST_AT_ONCE: usize = 8;
const MOST_ASKED: usize = 1024;

/// Who sends a packet before this one has only just begun to send.
const FIRST_PACKETS: u64 = 4;

/// Addresses that the user is told of.
const MOST_NOTED: usize = 16;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn rivals() -> (Rivals, Wake) {
        let wake = Wake::new().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let group = format!("239.1.1.1:{port}").parse().unwrap();
        (Rivals::new(group, None, wake.clone()), wake)
    }

    fn answer(rivals: &mut Rivals, wake: &Wake) -> Answer {
        wait_for(wake, Interest::Read, &Wake::new().unwrap(), Nanos(10_000_000_000)).unwrap();
        wake.lower();
        rivals.answer().unwrap()
    }

    #[test]
    fn a_packet_from_where_nobody_listens_is_no_session() {
        let (mut rivals, wake) = rivals();
        let from = SocketAddr::new([127, 0, 0, 1].into(), rivals.group.address().port());
        rivals.ask(from, SessionId(1));
        rivals.ask(from, SessionId(1));
        assert!(rivals.is_asking());
        assert!(!answer(&mut rivals, &wake).is_session);
        // It was asked once.
        assert!(!rivals.is_asking() && rivals.answer().is_none());
        let listener = TcpListener::bind(from).unwrap();
        rivals.ask(from, SessionId(2));
        assert!(answer(&mut rivals, &wake).is_session);
        drop(listener);
    }

    #[test]
    fn a_packet_from_another_port_is_nobodys_session_and_news_once() {
        let (mut rivals, _) = rivals();
        let from = SocketAddr::new([127, 0, 0, 1].into(), 1);
        rivals.ask(from, SessionId(1));
        assert!(!rivals.is_asking());
        assert!(rivals.is_news(from.ip()) && !rivals.is_news(from.ip()));
    }

    #[test]
    fn of_two_that_begin_at_once_one_gives_way_and_else_the_younger_does() {
        let packet = |session, number| Clear { session: SessionId(session), number };
        for number in 0..FIRST_PACKETS {
            assert_ne!(
                Age::Young.gives_way(SessionId(1), packet(2, number)),
                Age::Young.gives_way(SessionId(2), packet(1, number))
            );
        }
        let old = packet(2, 30);
        let gives_way = |age: Age| age.gives_way(SessionId(1), old);
        let asked = [Age::Silent, Age::Young, Age::Established].map(gives_way);
        assert_eq!(asked, [true, true, false]);
        assert!(Age::Silent.gives_way(SessionId(1), packet(2, 0)), "it sends already");
    }

    #[test]
    fn a_claim_names_group_and_session() {
        let group = "[ff15::1]:7000".parse().unwrap();
        assert_eq!(claim(group, SessionId(7)), "farlink-cast/1 [ff15::1]:7000 0000000000000007");
    }
}
