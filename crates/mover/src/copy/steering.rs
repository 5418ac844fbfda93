//! How the connections of a copy over a long path, whose congestion control nobody chose, begin together and share what the path carries.
//!
//! They begin in bursts, as TCP does that is not paced, for bursts show a path's rate; when it is known, or something is lost, they are given
//! the congestion control that is to keep the path, each with its share of the path's ceiling ([`Ceiling`]) as the most that it sends.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;

use farlink_flow::careful_resume::{Met, Step};
use farlink_flow::ceiling::{Ceiling, Change, Sample};
use farlink_host::clock::monotonic;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_host::socket;
use farlink_host::tcp_info::TcpInfo;
use farlink_wire::message::copy::{CarefulResumeAccount, SavedPath};
use farlink_wire::quantity::{BitsPerSec, Nanos};

use super::socket_facts::SocketFacts;
use crate::automatic::{self, Bbr};

mod choice;
mod haste;
mod resuming;

use choice::Choice;
use haste::{Haste, Hasten};
use resuming::Resuming;
pub(super) use resuming::can_jump;
use resuming::has_room;

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
    /// What all may send together; absent where that is not bounded.
    bound: Option<BitsPerSec>,
    /// Bytes that have arrived, also of streams that are gone.
    delivered: u64,
    /// Whether connections have what is to keep the path, and what the last of them was given.
    is_settled: bool,
    facts: Option<SocketFacts>,
    /// Which they are given where that is BBR.
    choice: Choice,
    /// Whether they are to have it as soon as that is known.
    is_due: bool,
    is_running: bool,
    /// How they get up to a rate that the path carried before.
    resuming: Option<Resuming>,
    /// The most that arrived in a round trip, bits per second.
    carried: u64,
    /// The least round trip of all.
    least_rtt: Nanos,
    /// How wide the windows were that far ends offered first, together, and of how many.
    first_windows: (u64, u64),
    /// What lets first windows grow faster than TCP's.
    haste: Haste,
}

/// One of them.
#[derive(Debug)]
struct Stream {
    /// Another handle of it, which ends with the stream's own: [`Steering::leave`].
    tcp: TcpStream,
    /// Segments that had arrived when it was asked last, and when that had become more.
    delivered: u32,
    moved: Nanos,
    /// Segments that had been sent again when it joined, the first of all among them.
    retransmits: u32,
    /// The most that it may send, bytes a second.
    share: u64,
    /// Whether anything of it arrived, and whether it was made to jump then.
    is_heard: bool,
    has_tried: bool,
    has_jumped: bool,
    /// Whether its window was to grow faster, and does.
    was_hastened: bool,
    is_hasty: bool,
}

impl Stream {
    fn new(tcp: TcpStream, delivered: u32, retransmits: u32) -> Self {
        let moved = monotonic();
        Self {
            tcp,
            delivered,
            moved,
            retransmits,
            share: u64::MAX,
            is_heard: false,
            has_tried: false,
            has_jumped: false,
            was_hastened: false,
            is_hasty: false,
        }
    }
}

impl Stream {
    /// Its window grows as TCP's from here on.
    fn slow_down(&mut self) {
        if self.is_hasty {
            self.is_hasty = automatic::begin_again(&self.tcp).is_err();
        }
    }
}

impl Steering {
    /// Of no connection yet, over a path of which that is `saved`; all is over when `end` is called.
    pub(crate) fn new(saved: Option<SavedPath>) -> io::Result<Self> {
        let state = State { resuming: saved.and_then(Resuming::new), ..State::default() };
        Ok(Self { shared: Arc::new(Mutex::new(state)), over: Wake::new()? })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared)
    }

    /// A connection joins, and leaves before it is closed.
    ///
    /// # Errors
    /// The kernel's, of the socket or of a thread.
    pub(crate) fn join(&self, number: u32, tcp: &TcpStream) -> io::Result<()> {
        let mut state = self.state();
        let TcpInfo { delivered, retransmits, .. } = TcpInfo::of(tcp)?;
        let stream = Stream::new(tcp.try_clone()?, delivered, retransmits);
        if state.is_settled
            && let Some(bbr) = state.choice.made()
        {
            let reason = automatic::follow(&stream.tcp, bbr)?;
            state.facts = Some(SocketFacts { reason, ..SocketFacts::of(Some(&stream.tcp)) });
        }
        if !state.is_running {
            let (its, over) = (Arc::downgrade(&self.shared), self.over.clone());
            Builder::new().name("farlink-steer".to_owned()).spawn(move || run(&its, &over))?;
            state.is_running = true;
            if state.resuming.is_some() {
                let its = Arc::downgrade(&self.shared);
                // Where there is no thread for it, it comes to nothing.
                drop(Builder::new().name("farlink-load".to_owned()).spawn(move || find_means(&its)));
            }
        }
        state.streams.insert(number, stream);
        Ok(())
    }

    /// A connection is about to be closed.
    pub(crate) fn leave(&self, number: u32) {
        self.state().streams.remove(&number);
    }

    /// What connections were given last; `None` where they have what they began with.
    pub(crate) fn facts(&self) -> Option<SocketFacts> {
        self.state().facts.clone()
    }

    /// What is known of the path; `None` where nobody here could begin with that.
    pub(crate) fn path(&self) -> Option<SavedPath> {
        let state = self.state();
        let rate = BitsPerSec::new(state.carried).filter(|_| can_jump())?;
        let (windows, count) = state.first_windows;
        if !has_room(windows / count.max(1) * FEWEST, rate, state.least_rtt) {
            // Fewer connections would begin more slowly than these did.
            return None;
        }
        let is_full = state.ceiling.level().is_some_and(|level| level <= state.carried / 4 * 5);
        Some(SavedPath { rate, rtt: state.least_rtt, is_full })
    }

    /// What became of a careful resume.
    pub(crate) fn careful_resume(&self) -> Option<CarefulResumeAccount> {
        self.state().resuming.as_ref().and_then(Resuming::account)
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
        let looked = lock(&shared).look();
        pause = looked.pause;
        if looked.hastens {
            let its = Weak::clone(its);
            drop(Builder::new().name("farlink-load".to_owned()).spawn(move || find_haste(&its)));
        }
        if looked.loads {
            let (its, over) = (Weak::clone(its), over.clone());
            // Beside the looks, which it would keep from a queue's beginning. Where there is no thread for it, it is as if it took too long.
            drop(Builder::new().name("farlink-load".to_owned()).spawn(move || load(&its, &over)));
        }
    }
}

fn load(its: &Weak<Mutex<State>>, over: &Wake) {
    let loaded = Bbr::load();
    if !over.is_raised()
        && let Some(shared) = its.upgrade()
    {
        let late = lock(&shared).on_loaded(loaded);
        // Its end takes a while, too.
        drop(late);
    }
}

fn find_means(its: &Weak<Mutex<State>>) {
    let found = Resuming::load();
    if let Some(shared) = its.upgrade()
        && let Some(resuming) = &mut lock(&shared).resuming
    {
        resuming.on_means(found);
    }
}

fn find_haste(its: &Weak<Mutex<State>>) {
    let found = Haste::load();
    if let Some(shared) = its.upgrade() {
        lock(&shared).haste.on_found(found);
    }
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Asks all connections how they are, and does what follows.
    fn look(&mut self) -> Looked {
        let now = monotonic();
        let (mut queue, mut hearing, mut lost) = (0, 0, false);
        let (mut heard, mut idle, mut windows) = (0, 0, 0);
        let mut unsent = false;
        let mut least_rtt = Nanos::MAX;
        for stream in self.streams.values_mut() {
            let Ok(info) = TcpInfo::of(&stream.tcp) else { continue };
            let segments = info.delivered.wrapping_sub(stream.delivered);
            stream.delivered = info.delivered;
            self.delivered += u64::from(segments) * u64::from(info.send_mss);
            if segments > 0 && !std::mem::replace(&mut stream.is_heard, true) {
                self.first_windows.0 += u64::from(info.window);
                self.first_windows.1 += 1;
            }
            if stream.is_heard {
                heard += 1;
                idle += u64::from(info.unsent == 0);
                windows += u64::from(info.window);
            }
            unsent |= info.unsent > 0;
            lost |= info.retransmits > stream.retransmits;
            if info.min_rtt == Nanos::ZERO {
                continue;
            }
            least_rtt = least_rtt.min(info.min_rtt);
            if segments > 0 {
                stream.moved = now;
            }
            // Who has heard nothing lately knows of no queue.
            if now.since(stream.moved) <= info.srtt {
                hearing += 1;
                queue += info.srtt.since(info.min_rtt).0;
            }
        }
        if least_rtt == Nanos::MAX {
            return Looked { pause: IDLE, loads: false, hastens: false };
        }
        self.least_rtt = least_rtt;
        let rtt = least_rtt.after(Nanos(queue.checked_div(hearing).unwrap_or(0)));
        let sample = Sample { at: now, delivered: self.delivered, rtt, least_rtt };
        if let Some(change) = self.ceiling.on_sample(sample) {
            self.bound = match change {
                Change::Held(bps) => Some(bps),
                Change::Lifted => None,
            };
            self.resuming.iter_mut().for_each(Resuming::on_queue);
        }
        // Those that nothing was heard of have said nothing of their windows yet.
        let windows = windows / heard.max(1) * self.streams.len() as u64;
        self.resume(sample, Met { lost, can: !self.is_settled, is_idle: 2 * idle > heard }, windows);
        self.carried = self.carried.max(self.ceiling.lately(least_rtt));
        self.is_due |= lost || !self.ceiling.wants_bursts();
        let is_jumping = self.resuming.as_ref().is_some_and(Resuming::is_jumping);
        let wanted = self.is_due || is_jumping || self.delivered >= CHOSEN_FROM;
        let loads = self.choice.advance(now, least_rtt, wanted);
        let is_near = self.is_due || self.ceiling.is_near(least_rtt);
        let hastens = self.hasten(least_rtt, unsent, is_near);
        self.settle();
        self.share_out(now, least_rtt);
        Looked { pause: self.ceiling.pause(least_rtt), loads, hastens }
    }

    /// Has windows grow faster where there is more to send than they hold, as long as that is far from what the path carries; whether what that
    /// takes is to be looked for now.
    fn hasten(&mut self, least_rtt: Nanos, unsent: bool, is_near: bool) -> bool {
        let jumps = self.resuming.as_ref().is_some_and(Resuming::is_open);
        if jumps || self.is_settled {
            return false;
        }
        match self.haste.advance(least_rtt, unsent, is_near) {
            Hasten::Look => return true,
            Hasten::Choose => {
                // Once: the kernel looks for a module each time that it is asked for one that is not there.
                for stream in self.streams.values_mut().filter(|stream| !stream.was_hastened) {
                    stream.was_hastened = true;
                    stream.is_hasty = Haste::choose(&stream.tcp);
                    if stream.is_hasty && self.facts.is_none() {
                        let reason = Some(automatic::UNSHOWN.to_owned());
                        self.facts = Some(SocketFacts { reason, ..SocketFacts::of(Some(&stream.tcp)) });
                    }
                }
            }
            Hasten::End => {
                self.streams.values_mut().for_each(Stream::slow_down);
                self.facts = None;
            }
            Hasten::Not => {}
        }
        false
    }

    /// Goes on with a careful resume, where there is one.
    fn resume(&mut self, sample: Sample, met: Met, windows: u64) {
        let Some(resuming) = &mut self.resuming else { return };
        match resuming.on_sample(sample, met, windows) {
            Some(Step::Jump(bps)) => self.bound = Some(bps),
            Some(Step::Confirm(rate)) => {
                self.bound = rate.map(|rate| self.ceiling.hold(rate, sample.at, sample.least_rtt));
                self.is_due = true;
            }
            Some(Step::Retreat(bps)) => {
                self.bound = Some(bps);
                self.is_due = true;
            }
            Some(Step::Release) => {
                self.bound = None;
                self.is_due = true;
            }
            Some(Step::Decline) | None => {}
        }
        if self.is_settled || !resuming.is_jumping() {
            return;
        }
        let count = self.streams.len();
        for stream in self.streams.values_mut().filter(|stream| stream.is_heard && !stream.has_tried) {
            stream.has_tried = true;
            // One that cannot goes on as it is, and one whose route has something of its own.
            if automatic::is_as_begun(&stream.tcp)
                && let Ok(share) = resuming.jump(&stream.tcp, count)
            {
                (stream.has_jumped, stream.share) = (true, share);
            }
        }
    }

    /// Gives all connections what is to keep the path, when that is due and known.
    fn settle(&mut self) {
        if self.is_settled || !self.is_due {
            return;
        }
        let Some(bbr) = self.choice.made() else { return };
        self.is_settled = true;
        let mut last = None;
        for stream in self.streams.values_mut() {
            stream.slow_down();
            if stream.has_jumped {
                stream.has_jumped = automatic::begin_again(&stream.tcp).is_err();
            }
            // A connection that is gone has no more to send.
            if let Ok(reason) = automatic::follow(&stream.tcp, bbr) {
                last = Some((stream, reason));
            }
        }
        if let Some((stream, reason)) = last {
            self.facts = Some(SocketFacts { reason, ..SocketFacts::of(Some(&stream.tcp)) });
        }
    }

    /// `bbr` could be had; given back where that took too long.
    fn on_loaded(&mut self, bbr: Bbr) -> Option<Bbr> {
        let late = self.choice.on_loaded(bbr);
        self.settle();
        late
    }

    /// Tells connections what they may send: each as much as the others, of those that have something to send.
    fn share_out(&mut self, now: Nanos, least_rtt: Nanos) {
        let lately = Nanos(least_rtt.0 * 2).max(LATELY);
        let is_busy = |stream: &&Stream| now.since(stream.moved) < lately;
        // In a jump all have their part, also those that nothing has come of yet.
        let is_jumping = self.resuming.as_ref().is_some_and(Resuming::is_jumping);
        let all = self.streams.len();
        let busy = if is_jumping { all } else { self.streams.values().filter(is_busy).count() };
        let share = self.bound.map_or(u64::MAX, |bps| (bps.get() / 8 / busy.max(1) as u64).max(1));
        for stream in self.streams.values_mut().filter(|stream| stream.share != share) {
            if stream.has_jumped && share > stream.share {
                // What it jumped by does not give way, and would take no limit for nothing declared, and all but stop.
                continue;
            }
            // It is a bound on what would be sent too much; the kernel takes any but of a connection that is gone.
            if socket::set_greatest_rate(&stream.tcp, share).is_ok() {
                stream.share = share;
            }
        }
    }
}

/// What is to be done after a look.
struct Looked {
    /// How long it is good for.
    pause: Nanos,
    /// Whether a congestion control is to be loaded, which takes a while.
    loads: bool,
    /// Whether that by which windows grow faster is.
    hastens: bool,
}

/// Bytes that have arrived of a copy that is large enough to load something for it: less than connections over a long path have under way at
/// first, together.
const CHOSEN_FROM: u64 = 1 << 20;

/// A connection that has brought nothing for so long, or for two round trips, has nothing to send.
const LATELY: Nanos = Nanos(100_000_000);

/// Connections of a copy that begins with what is known.
const FEWEST: u64 = 8;

/// Between looks while no connection knows its round trip.
const IDLE: Nanos = Nanos(10_000_000);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn who_leaves_is_closed_for_the_far_end_too() {
        let steering = Steering::new(None).unwrap();
        let (near, mut far) = pair();
        steering.join(0, &near).unwrap();
        steering.leave(0);
        drop(near);
        far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        steering.end();
    }

    #[test]
    fn a_bound_is_shared_among_those_that_have_something_to_send() {
        let ((busy, mut far), (idle, _far)) = (pair(), pair());
        let mut state = State { is_running: true, ..State::default() };
        for (number, tcp) in [(0, &busy), (1, &idle)] {
            state.streams.insert(number, Stream::new(tcp.try_clone().unwrap(), 0, 0));
        }
        let now = monotonic();
        state.bound = BitsPerSec::new(8_000_000);
        let rtt = Nanos(1_000_000);
        state.share_out(now, rtt);
        assert_eq!([state.streams[&0].share, state.streams[&1].share], [500_000; 2]);
        (&busy).write_all(&[1; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        if let Some(stream) = state.streams.get_mut(&0) {
            stream.moved = now.after(LATELY);
        }
        state.share_out(now.after(LATELY), rtt);
        assert_eq!(state.streams[&0].share, 1_000_000);
        let pacing = TcpInfo::of(&busy).unwrap().pacing_bps;
        assert!(pacing.is_none_or(|bps| bps <= 8_000_000), "{pacing:?}");
        state.bound = None;
        state.share_out(now.after(LATELY), rtt);
        assert_eq!(state.streams[&1].share, u64::MAX);
    }

    #[test]
    fn what_jumped_keeps_its_rate_until_it_has_what_takes_none_for_no_limit() {
        let (near, _far) = pair();
        let mut state = State { is_running: true, bound: BitsPerSec::new(8_000_000), ..State::default() };
        let share = 2_000_000;
        let stream = Stream { has_jumped: true, share, ..Stream::new(near.try_clone().unwrap(), 0, 0) };
        state.streams.insert(0, stream);
        let (now, rtt) = (monotonic(), Nanos(1_000_000));
        state.share_out(now, rtt);
        state.bound = None;
        state.share_out(now, rtt);
        assert_eq!(state.streams[&0].share, 1_000_000);
        state.bound = BitsPerSec::new(16_000_000);
        state.share_out(now, rtt);
        assert_eq!(state.streams[&0].share, 1_000_000);
        (state.bound, state.is_due, state.choice) = (None, true, Choice::Made(Bbr::default()));
        state.settle();
        state.share_out(now, rtt);
        assert_eq!(state.streams[&0].share, u64::MAX);
    }

    #[test]
    fn who_joins_later_has_what_the_others_were_given() {
        let steering = Steering::new(None).unwrap();
        let (near, _far) = pair();
        socket::set_congestion(&near, "cubic").unwrap();
        steering.state().is_settled = true;
        steering.state().choice = Choice::Made(Bbr::default());
        steering.join(0, &near).unwrap();
        let facts = steering.facts().unwrap();
        assert_eq!(facts.congestion, socket::congestion(&near).unwrap());
        let default = socket::default_congestion().unwrap();
        assert!(default == "cubic" || facts.congestion == default, "{facts:?}");
        steering.end();
    }
}
