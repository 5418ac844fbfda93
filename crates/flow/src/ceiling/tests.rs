use super::*;

/// A sender of many connections that double once a round trip, over one link with a queue: a fluid, in steps of 0.25 ms.
struct Path {
    rtt: Nanos,
    /// Bits a second of the link, and of the sender's own host.
    rate: f64,
    host: f64,
    /// Of the queue, how long it takes to pass when it is full, and how much of it is others'.
    queue: Nanos,
    others: Nanos,
    ceiling: Ceiling,
    bound: Option<BitsPerSec>,
    now: u64,
    /// Bytes that may leave, that wait in the link, and that have left its far end and are acknowledged at some time.
    allowed: f64,
    waiting: f64,
    answers: VecDeque<(u64, f64, f64)>,
    delivered: f64,
    lost: f64,
    window: f64,
    srtt: f64,
}

const STEP: u64 = 250_000;

impl Path {
    fn of(rtt_us: u64) -> Self {
        Self {
            rtt: Nanos(rtt_us * 1_000),
            rate: 1e10,
            host: 2e10,
            queue: Nanos(50_000_000),
            others: Nanos::ZERO,
            ceiling: Ceiling::default(),
            bound: None,
            now: 0,
            allowed: 2e6,
            waiting: 0.0,
            answers: VecDeque::new(),
            delivered: 0.0,
            lost: 0.0,
            window: 2e6,
            srtt: rtt_us as f64 * 1e3,
        }
    }

    fn step(&mut self, steered: bool) {
        self.now += STEP;
        let seconds = STEP as f64 / 1e9;
        let pace =
            self.bound.filter(|_| steered).map_or(self.host, |bound| self.host.min(bound.get() as f64));
        let out = self.allowed.min(pace / 8.0 * seconds);
        self.allowed -= out;
        let room = self.rate / 8.0 * self.queue.as_secs_f64() - self.waiting;
        let taken = out.min(room.max(0.0));
        self.lost += out - taken;
        self.waiting += taken;
        let gone = self.waiting.min(self.rate / 8.0 * seconds);
        self.waiting -= gone;
        let delay = self.waiting * 8e9 / self.rate + self.others.0 as f64;
        self.answers.push_back((self.now + self.rtt.0, gone, self.rtt.0 as f64 + delay));
        while let Some(&(_, bytes, rtt)) = self.answers.front().filter(|(due, ..)| *due <= self.now) {
            self.answers.pop_front();
            if bytes == 0.0 {
                continue;
            }
            self.delivered += bytes;
            self.srtt += (rtt - self.srtt) / 8.0;
            // Slow start, up to a window that no path here holds.
            let more = if self.window < 4.0 * self.rate / 8.0 * self.rtt.as_secs_f64() { bytes } else { 0.0 };
            self.window += more;
            self.allowed += bytes + more;
        }
        if self.now.is_multiple_of(4 * STEP) {
            let sample = Sample {
                at: Nanos(self.now),
                delivered: self.delivered as u64,
                rtt: Nanos(self.srtt as u64),
                least_rtt: self.rtt,
            };
            match self.ceiling.on_sample(sample) {
                Some(Change::Held(bps)) => self.bound = Some(bps),
                Some(Change::Lifted) => self.bound = None,
                None => {}
            }
        }
    }

    /// Goes on for so many round trips; what arrived meanwhile, as a part of what the link carries.
    fn rounds(&mut self, rounds: u64, steered: bool) -> f64 {
        let (began, before) = (self.now, self.delivered);
        while self.now < began + rounds * self.rtt.0 {
            self.step(steered);
        }
        (self.delivered - before) * 8e9 / (self.now - began) as f64 / self.rate
    }
}

#[test]
fn a_path_fills_without_a_loss() {
    for rtt_us in [20_000, 91_600, 183_000, 366_000] {
        let mut path = Path::of(rtt_us);
        path.rounds(14, true);
        let part = path.rounds(20, true);
        assert!(part > 0.93, "{rtt_us} us: {part}");
        assert_eq!(path.lost, 0.0, "{rtt_us} us");
    }
}

#[test]
fn without_it_slow_start_overflows_the_same_queue() {
    let mut path = Path::of(366_000);
    path.rounds(14, false);
    assert!(path.lost > 1e7, "{}", path.lost);
}

#[test]
fn a_burst_tells_the_rate_long_before_the_path_is_full() {
    let mut path = Path::of(366_000);
    while path.ceiling.wants_bursts() {
        path.step(true);
    }
    let bound = path.bound.unwrap().get() as f64;
    assert!((0.9..1.1).contains(&(bound / 1e10)), "{bound}");
    assert!(path.window < 1e10 / 8.0 * 0.366 / 3.0, "{}", path.window);
}

#[test]
fn a_rate_that_is_known_is_held_at_once_and_given_way_to_others() {
    let mut path = Path::of(366_000);
    let full = 1e10 / 8.0 * 0.366;
    (path.allowed, path.window) = (full / 2.0, full / 2.0);
    let known = BitsPerSec::new(10_000_000_000).unwrap();
    path.bound = Some(path.ceiling.hold(known, Nanos(path.now), path.rtt));
    assert!(!path.ceiling.wants_bursts());
    assert_eq!(path.ceiling.level(), None, "no queue has told it");
    path.rounds(3, true);
    assert!(path.rounds(10, true) > 0.93 && path.lost == 0.0, "{}", path.lost);
    path.rate = 8e9;
    path.rounds(10, true);
    assert!(path.ceiling.level().is_some_and(|level| level < 9_000_000_000), "{:?}", path.ceiling.level());
    assert!(path.rounds(10, true) > 0.9 && path.lost < 0.02 * path.delivered, "{}", path.lost);
}

#[test]
fn what_arrived_lately_is_known_after_a_round_trip_and_is_the_paths() {
    let mut path = Path::of(91_600);
    path.rounds(1, true);
    assert_eq!(path.ceiling.lately(path.rtt), 0);
    assert_eq!(path.ceiling.level(), None);
    path.rounds(30, true);
    let lately = path.ceiling.lately(path.rtt) as f64 / 1e10;
    assert!((0.9..1.01).contains(&lately), "{lately}");
}

#[test]
fn a_rate_that_a_busy_host_hid_is_found_afterwards() {
    let mut path = Path::of(91_600);
    // What stands is others' and short, when this host sends at a fifth of the path's rate.
    (path.host, path.others) = (2e9, Nanos(6_000_000));
    while path.ceiling.wants_bursts() {
        path.step(true);
    }
    assert!(path.bound.unwrap().get() < 3_000_000_000);
    (path.host, path.others) = (2e10, Nanos::ZERO);
    path.rounds(80, true);
    let part = path.rounds(20, true);
    assert!(part > 0.9, "{part}");
}

#[test]
fn a_path_that_carries_less_than_it_did_loses_little() {
    let mut path = Path::of(91_600);
    path.rounds(20, true);
    path.rate = 9e9;
    path.rounds(40, true);
    assert!(path.lost < 0.02 * path.delivered, "{} of {}", path.lost, path.delivered);
    let part = path.rounds(20, true);
    assert!(part > 0.9, "{part}");
}

#[test]
fn a_queue_that_it_cannot_drain_is_others_and_lifts_it() {
    let mut path = Path::of(91_600);
    path.rounds(20, true);
    path.others = Nanos(20_000_000);
    path.rounds(30, true);
    assert_eq!(path.bound, None);
    assert!(!path.ceiling.wants_bursts());
}

#[test]
fn where_no_queue_stands_there_is_none_and_bursts_end() {
    let mut path = Path::of(91_600);
    path.host = 5e9;
    assert!(path.rounds(15, true) > 0.2);
    assert!(path.ceiling.wants_bursts());
    assert!(path.rounds(25, true) > 0.4);
    assert!(!path.ceiling.wants_bursts());
    assert_eq!(path.bound, None);
}

#[test]
fn a_packet_that_comes_late_is_no_burst() {
    let mut ceiling = Ceiling::default();
    let least_rtt = Nanos(100_000_000);
    for at in 1..500_u64 {
        // One segment every 30 ms, each acknowledged late.
        let sample = Sample {
            at: Nanos(at * 1_000_000),
            delivered: at / 30 * 1448,
            rtt: Nanos(140_000_000),
            least_rtt,
        };
        assert_eq!(ceiling.on_sample(sample), None, "{at} ms");
    }
    assert!(ceiling.wants_bursts());
}

#[test]
fn a_path_is_far_from_full_until_four_times_as_much_would_take_half_of_its_bursts_rate() {
    let least_rtt = Nanos(100_000_000);
    for (burst_ms, is_near) in [(5, false), (11, false), (15, true), (50, true)] {
        let mut ceiling = Ceiling::default();
        let mut delivered = 0;
        assert!(!ceiling.is_near(least_rtt), "nothing was seen");
        for ms in 0..350 {
            delivered += if ms % 100 < burst_ms { 100_000 } else { 0 };
            let sample = Sample { at: Nanos((ms + 1) * 1_000_000), delivered, rtt: least_rtt, least_rtt };
            assert_eq!(ceiling.on_sample(sample), None);
        }
        assert_eq!(ceiling.is_near(least_rtt), is_near, "{burst_ms} ms");
    }
    let mut known = Ceiling::default();
    known.hold(BitsPerSec::new(1_000_000_000).unwrap(), Nanos(1), least_rtt);
    assert!(known.is_near(least_rtt));
}

#[test]
fn a_sender_that_pauses_keeps_its_ceiling() {
    let mut path = Path::of(91_600);
    path.rounds(20, true);
    let before = path.ceiling.level;
    let allowed = std::mem::take(&mut path.allowed);
    path.others = Nanos(20_000_000);
    for _ in 0..6 {
        // A little goes on, behind others' queue.
        path.allowed = 1e6;
        path.rounds(1, true);
    }
    (path.others, path.allowed) = (Nanos::ZERO, allowed);
    assert!(path.bound.is_some());
    assert!(path.ceiling.level > 0.5 * before, "{} of {before}", path.ceiling.level);
}

#[test]
fn what_was_never_measured_says_nothing() {
    let mut ceiling = Ceiling::default();
    let sample = Sample { at: Nanos(1), delivered: 0, rtt: Nanos::MAX, least_rtt: Nanos::ZERO };
    assert_eq!(ceiling.on_sample(sample), None);
    assert!(ceiling.pause(Nanos::ZERO) > Nanos::ZERO);
}
