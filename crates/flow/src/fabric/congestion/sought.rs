//! A rate that nobody knows, on a path that others may share: what fills no queue and costs nobody a packet.

use farlink_wire::quantity::{BitsPerSec, Nanos};

use super::base::Base;
use super::own_loss::OwnLoss;
use super::{Congestion, MOST_WINDOW, Round};

/// A rate that is sought.
///
/// The window doubles each round until there is a queue or packets are lost; then it backs off by a sixth for the former, by a third for
/// the latter, and goes on by the root of its packets, faster and faster. The root is between what is the same for all, by which they come
/// to share evenly (AIMD), and what is in proportion, by which a long path is filled at all (Bansal and Balakrishnan, Binomial Congestion
/// Control Algorithms, INFOCOM 2001). After silence it begins with next to nothing, and doubles up to what it had. A message that fits the
/// window leaves at once, up to `MOST_AT_ONCE`; only what is longer is paced.
#[derive(Clone, Debug)]
pub struct Sought {
    /// Who seeks, too, and whom it does not see.
    sharers: u64,
    window: u64,
    /// Whether it doubles each round, and until which window at most.
    begins: bool,
    aim: u64,
    /// Rounds of growth since it last backed off.
    calm: u32,
    /// It backed off in the last round, of which this one tells nothing yet.
    waits: bool,
    base: Base,
    loss: OwnLoss,
}

impl Sought {
    /// One of so many processes of a host, which begin together: each has its share of what may be sent blindly.
    #[must_use]
    pub fn among(sharers: u64) -> Self {
        let sharers = sharers.max(1);
        let (base, loss) = (Base::default(), OwnLoss::default());
        let window = share(FIRST_WINDOW, sharers);
        Self { sharers, window, begins: true, aim: MOST_WINDOW, calm: 0, waits: false, base, loss }
    }

    /// The queue from which on it backs off. Who has less under way bears more, by which all come to have the same (Kumar et al., Swift,
    /// SIGCOMM 2020, 3.5).
    fn most_queue(&self) -> Nanos {
        let all = (self.base.rtt().0 / 8).clamp(LEAST_QUEUE.0, MOST_QUEUE.0);
        Nanos(all + 4 * all / (self.window / PACKET).isqrt().max(4))
    }

    fn back_off(&mut self, window: u64) {
        self.window = window;
        (self.begins, self.calm, self.waits) = (false, 0, true);
    }

    fn grow(&mut self, round: &Round) {
        self.calm += 1;
        self.begins &= self.window < self.aim;
        let step = match self.begins {
            // What leaves now is not known to have room: no faster than what is known to.
            true if round.limited => self.window.min(round.arrived).min(self.aim - self.window),
            true => self.window.min(self.aim - self.window),
            false => {
                let root = (self.window * PACKET).isqrt();
                (root << (self.calm / CALM).min(MOST_DOUBLED)).min(self.window / 4)
            }
        };
        self.window += step.max(PACKET);
    }
}

impl Congestion for Sought {
    fn on_round(&mut self, round: Round) {
        self.base.on_round(&round, self.window > LEAST_WINDOW);
        let queue = self.base.queue(&round);
        // What left before it backed off, or while it looked, tells nothing of now.
        if self.base.looks() || std::mem::take(&mut self.waits) {
            return;
        }
        let too_lossy = self.loss.on_round(&round, queue >= FELT_QUEUE);
        if self.loss.was_its_own() {
            (self.begins, self.aim) = (true, MOST_WINDOW);
        }
        if too_lossy {
            self.back_off(self.window / 3 * 2);
        } else if queue > self.most_queue() {
            self.back_off((self.window / 6 * 5).max(share(QUEUED_WINDOW, self.sharers).min(self.window)));
        } else if round.limited || (round.paced && self.window < MOST_SPARE * round.arrived) {
            self.grow(&round);
        }
        self.window = self.window.clamp(LEAST_WINDOW, MOST_WINDOW);
    }

    fn on_silence(&mut self) {
        if !self.begins {
            self.aim = self.window;
        }
        (self.window, self.begins, self.calm, self.waits) = (LEAST_WINDOW, true, 0, false);
    }

    fn window(&self, _rtt: Option<Nanos>) -> u64 {
        if self.base.looks() { LEAST_WINDOW } else { self.window }
    }

    fn rate(&self, rtt: Option<Nanos>) -> Option<BitsPerSec> {
        // A quarter more than the window in a round-trip time, so that pacing does not keep it from being used.
        let rtt = rtt?.0.max(1000);
        BitsPerSec::new(u64::try_from(u128::from(self.window) * 10_000_000_000 / u128::from(rtt)).ok()?)
    }

    fn burst(&self, usual: u64) -> u64 {
        usual.max(self.window.min(share(MOST_AT_ONCE, self.sharers)))
    }
}

fn share(window: u64, sharers: u64) -> u64 {
    (window / sharers).max(LEAST_WINDOW)
}

/// Two messages of 1 MiB, since the answer to the first of an exchange comes when the second has begun: two milliseconds of 10 Gb/s. RFC
/// 6928's ten packets are for paths a thousand times slower, and JumpStart (Liu et al., PFLDnet 2007) begins with whatever there is.
const FIRST_WINDOW: u64 = 2_600_000;
/// What a queue leaves to everybody: ten packets of 9,000 bytes.
const QUEUED_WINDOW: u64 = 90_000;
/// 1 MiB and its headers and parity: less than a millisecond of 10 Gb/s, which any buffer there takes.
const MOST_AT_ONCE: u64 = 1_200_000;
const LEAST_WINDOW: u64 = 18_000;
const PACKET: u64 = 9000;
/// It grows by the root of its packets a round, after each `CALM` rounds by twice as much: there is room.
const CALM: u32 = 8;
const MOST_DOUBLED: u32 = 6;
/// Messages that are short for the path leave in a small part of a round-trip time, once the path took that well: a fortieth.
const MOST_SPARE: u64 = 32;
/// A queue that is none: processes are not always there in time, and a scheduler's slices are some milliseconds long.
const LEAST_QUEUE: Nanos = Nanos(5_000_000);
const MOST_QUEUE: Nanos = Nanos(10_000_000);
/// With such a queue, loss may be its.
const FELT_QUEUE: Nanos = Nanos(1_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Nanos = Nanos(50_000_000);

    fn round(arrived: u64, known: u32, lost: u32, queued: u64) -> Round {
        let rtt = RTT.after(Nanos(queued));
        Round { now: Nanos::ZERO, arrived, known, lost, rtt, limited: true, paced: false }
    }

    #[test]
    fn it_fills_a_path_and_no_queue() {
        // 1 Gb/s and 50 ms: 6.25 MB are under way without a queue.
        let (mut controller, capacity) = (Sought::among(1), 6_250_000);
        let mut windows = Vec::new();
        for _ in 0..200 {
            let queued = controller.window(None).saturating_sub(capacity) * 8;
            controller.on_round(round(controller.window(None).min(capacity), 500, 0, queued));
            windows.push(controller.window(None));
        }
        let late = &windows[20..];
        assert!(late.iter().all(|window| *window > capacity * 3 / 4), "{late:?}");
        // A queue of 10 ms at most, but for the round that finds it.
        assert!(late.iter().all(|window| *window < capacity + 1_250_000 + capacity / 16), "{late:?}");
    }

    #[test]
    fn a_process_that_is_late_is_no_queue() {
        let mut controller = Sought::among(1);
        let least = Nanos(400_000);
        for late in [0, 3_000_000, 1_000_000, 4_000_000].into_iter().cycle().take(40) {
            let rtt = least.after(Nanos(late));
            controller.on_round(Round { rtt, ..round(controller.window(None), 10, 0, 0) });
        }
        assert_eq!(controller.window(None), MOST_WINDOW);
        // A queue that is one leaves something.
        for _ in 0..80 {
            controller.on_round(round(controller.window(None), 10, 0, 200_000_000));
        }
        assert_eq!(controller.window(None), QUEUED_WINDOW);
    }

    #[test]
    fn those_of_a_host_begin_with_what_one_alone_would() {
        let rate = BitsPerSec::new(10_000_000_000).unwrap();
        for sharers in [1, 2, 64, u64::MAX] {
            let controller = Sought::among(sharers);
            let all = |each: u64| each.saturating_mul(sharers);
            let least = LEAST_WINDOW.saturating_mul(sharers);
            assert!(all(controller.window(None)) <= FIRST_WINDOW.max(least));
            assert!(all(controller.burst(0)) <= MOST_AT_ONCE.max(least));
            assert!(controller.window(None) >= LEAST_WINDOW && controller.burst(0) >= LEAST_WINDOW);
        }
        // What they keep queued together, of 10 Gb/s.
        let mut controller = Sought::among(64);
        controller.on_round(round(controller.window(None), 10, 0, 0));
        for _ in 0..80 {
            controller.on_round(round(controller.window(None), 10, 0, 200_000_000));
        }
        assert!(rate.time_for(64 * controller.window(None)) < Nanos(1_000_000));
        assert_eq!(Sought::among(0).window(None), FIRST_WINDOW);
    }

    #[test]
    fn short_messages_come_to_leave_at_once() {
        let mut controller = Sought::among(1);
        for _ in 0..100 {
            let limited = controller.window(None) < 1 << 20;
            controller.on_round(Round { limited, paced: true, ..round(1 << 20, 120, 0, 0) });
        }
        assert!((32 << 20..64 << 20).contains(&controller.window(None)), "{}", controller.window(None));
        // 1 MiB in a fortieth of 50 ms.
        let rate = controller.rate(Some(RTT)).unwrap();
        assert!(rate.time_for(1 << 20) <= Nanos(RTT.0 / 40), "{rate}");
    }

    #[test]
    fn loss_that_comes_with_the_rate_is_answered_and_the_paths_own_is_not() {
        let mut controller = Sought::among(1);
        for _ in 0..60 {
            controller.on_round(round(controller.window(None), 100, 10, 0));
        }
        assert_eq!(controller.window(None), MOST_WINDOW);
        // One in a hundred is not always one of a hundred.
        let mut controller = Sought::among(1);
        for lost in [0, 0, 1, 0, 3, 0, 0, 1, 0, 2].into_iter().cycle().take(60) {
            controller.on_round(round(controller.window(None), 50, lost, 0));
        }
        assert_eq!(controller.window(None), MOST_WINDOW);
        let mut controller = Sought::among(1);
        let mut most = 0;
        for at in 0..200 {
            let over = controller.window(None).saturating_sub(1_000_000);
            let lost = (100 * over / controller.window(None)) as u32;
            controller.on_round(round(controller.window(None), 100, lost, 0));
            most = most.max(if at > 20 { controller.window(None) } else { 0 });
        }
        assert!(most < 1_400_000, "{most}");
    }

    #[test]
    fn after_silence_it_begins_with_next_to_nothing_and_is_soon_where_it_was() {
        let mut controller = Sought::among(1);
        (0..4).for_each(|_| controller.on_round(round(controller.window(None), 500, 0, 0)));
        controller.on_round(round(controller.window(None), 500, 0, 20_000_000));
        let before = controller.window(None);
        for _ in 0..3 {
            controller.on_silence();
            assert_eq!(controller.window(None), LEAST_WINDOW);
        }
        let rounds = (0..100).take_while(|_| {
            controller.on_round(round(controller.window(None), 50, 0, 0));
            controller.window(None) < before
        });
        assert!((10..14).contains(&rounds.count()));
        assert_eq!(controller.window(None), before);
    }
}
