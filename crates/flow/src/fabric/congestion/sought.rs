//! A rate that nobody knows, on a path that others may share: what fills no queue and costs nobody a packet.

use farlink_wire::quantity::{BitsPerSec, Nanos};

use super::{Congestion, MOST_WINDOW, Round};

/// Doubles its window each round until the round-trip time grows or packets are lost; then backs off by a sixth for the former, by a third
/// for the latter, and goes on by a sixteenth, faster and faster. Loss that stays whatever the rate is the path's own, and not answered: it is the least share
/// that was lost in any of the last `REMEMBERED` rounds.
#[derive(Clone, Debug)]
pub struct Sought {
    window: u64,
    begins: bool,
    /// Rounds of growth since it last backed off.
    calm: u32,
    shares: [f64; REMEMBERED],
    next: usize,
    /// The share that the last answer was to.
    answered: Option<f64>,
    /// Of rounds too short to tell a share by.
    known: u32,
    lost: u32,
}

impl Default for Sought {
    fn default() -> Self {
        Self {
            window: FIRST_WINDOW,
            begins: true,
            calm: 0,
            shares: [0.0; REMEMBERED],
            next: 0,
            answered: None,
            known: 0,
            lost: 0,
        }
    }
}

impl Sought {
    fn own_loss(&self) -> f64 {
        self.shares.iter().copied().fold(1.0, f64::min)
    }
}

impl Congestion for Sought {
    fn on_round(&mut self, round: Round) {
        self.known += round.known;
        self.lost += round.lost;
        let queued = round.rtt.since(round.least_rtt);
        // A few datagrams make no queue: what they tell of is a process that was late.
        let too_long = round.known >= LEAST_TOLD
            && queued.0 > (round.least_rtt.0 / 8).clamp(LEAST_QUEUE.0, MOST_QUEUE.0);
        let mut too_lossy = false;
        if self.known >= LEAST_KNOWN {
            let share = f64::from(self.lost) / f64::from(self.known);
            if self.answered.take().is_some_and(|before| share > before * ITS_OWN) {
                self.shares.fill(share);
                self.begins = true;
            }
            let expected = (1.5 * self.own_loss() + 0.01) * f64::from(self.known);
            // Of few datagrams a few more may be lost by chance: by three deviations not.
            too_lossy = f64::from(self.lost) > expected + 3.0 * f64::from(self.lost).sqrt();
            self.answered = too_lossy.then_some(share);
            self.shares[self.next] = share;
            self.next = (self.next + 1) % REMEMBERED;
            (self.known, self.lost) = (0, 0);
        }
        if too_lossy {
            self.window = self.window / 3 * 2;
            (self.begins, self.calm) = (false, 0);
        } else if too_long {
            self.window = (self.window / 6 * 5).max(FIRST_WINDOW.min(self.window));
            (self.begins, self.calm) = (false, 0);
        } else if round.limited || (round.paced && self.window < MOST_SPARE * round.arrived) {
            self.calm += 1;
            let step = if self.begins {
                self.window
            } else {
                self.window / (LEAST_STEP >> (self.calm / CALM).min(MOST_DOUBLED))
            };
            self.window += step.max(9000);
        }
        self.window = self.window.clamp(LEAST_WINDOW, MOST_WINDOW);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn rate(&self, rtt: Option<Nanos>) -> Option<BitsPerSec> {
        // A quarter more than the window in a round-trip time, so that pacing does not keep it from being used.
        let rtt = rtt?.0.max(1000);
        BitsPerSec::new(u64::try_from(u128::from(self.window) * 10_000_000_000 / u128::from(rtt)).ok()?)
    }
}

/// RFC 6928 begins with ten packets: these are as many of 9,000 bytes.
const FIRST_WINDOW: u64 = 90_000;
const LEAST_WINDOW: u64 = 18_000;
/// It grows by a sixteenth a round, after `CALM` rounds by an eighth, and after twice as many by a quarter: there is room.
const LEAST_STEP: u64 = 16;
const CALM: u32 = 8;
const MOST_DOUBLED: u32 = 2;
/// Messages that are short for the path leave in a small part of a round-trip time, once the path took that well: a fortieth.
const MOST_SPARE: u64 = 32;
const REMEMBERED: usize = 8;
/// A third less under way takes more than a third of the loss that it made.
const ITS_OWN: f64 = 0.7;
/// Datagrams by which a share of lost ones is told.
const LEAST_KNOWN: u32 = 40;
/// Datagrams of a round by which a queue is told.
const LEAST_TOLD: u32 = 8;
/// A queue that is none: processes are not always there in time, and a scheduler's slices are some milliseconds long.
const LEAST_QUEUE: Nanos = Nanos(5_000_000);
const MOST_QUEUE: Nanos = Nanos(10_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Nanos = Nanos(50_000_000);

    fn round(arrived: u64, known: u32, lost: u32, queued: u64) -> Round {
        let rtt = RTT.after(Nanos(queued));
        Round { arrived, known, lost, rtt, least_rtt: RTT, limited: true, paced: false }
    }

    #[test]
    fn it_fills_a_path_and_no_queue() {
        // 1 Gb/s and 50 ms: 6.25 MB are under way without a queue.
        let (mut controller, capacity) = (Sought::default(), 6_250_000);
        let mut windows = Vec::new();
        for _ in 0..200 {
            let queued = controller.window().saturating_sub(capacity) * 8;
            controller.on_round(round(controller.window().min(capacity), 500, 0, queued));
            windows.push(controller.window());
        }
        let late = &windows[20..];
        assert!(late.iter().all(|window| *window > capacity * 3 / 4), "{late:?}");
        // A queue of 10 ms at most, but for the round that finds it.
        assert!(late.iter().all(|window| *window < capacity + 1_250_000 + capacity / 16), "{late:?}");
    }

    #[test]
    fn a_process_that_is_late_is_no_queue() {
        let mut controller = Sought::default();
        let least = Nanos(400_000);
        for late in [0, 3_000_000, 1_000_000, 4_000_000].into_iter().cycle().take(40) {
            controller.on_round(Round {
                rtt: least.after(Nanos(late)),
                least_rtt: least,
                ..round(0, 10, 0, 0)
            });
        }
        assert_eq!(controller.window(), MOST_WINDOW);
        // A queue that is one never takes what everybody may begin with.
        for _ in 0..80 {
            controller.on_round(round(0, 10, 0, 200_000_000));
        }
        assert_eq!(controller.window(), FIRST_WINDOW);
    }

    #[test]
    fn short_messages_come_to_leave_at_once() {
        let mut controller = Sought::default();
        for _ in 0..100 {
            let limited = controller.window() < 1 << 20;
            controller.on_round(Round { limited, paced: true, ..round(1 << 20, 120, 0, 0) });
        }
        assert!((32 << 20..64 << 20).contains(&controller.window()), "{}", controller.window());
        // 1 MiB in a fortieth of 50 ms.
        let rate = controller.rate(Some(RTT)).unwrap();
        assert!(rate.time_for(1 << 20) <= Nanos(RTT.0 / 40), "{rate}");
    }

    #[test]
    fn loss_that_comes_with_the_rate_is_answered_and_the_paths_own_is_not() {
        let mut controller = Sought::default();
        for _ in 0..60 {
            controller.on_round(round(0, 100, 10, 0));
        }
        assert_eq!(controller.window(), MOST_WINDOW);
        // One in a hundred is not always one of a hundred.
        let mut controller = Sought::default();
        for lost in [0, 0, 1, 0, 3, 0, 0, 1, 0, 2].into_iter().cycle().take(60) {
            controller.on_round(round(0, 50, lost, 0));
        }
        assert_eq!(controller.window(), MOST_WINDOW);
        let mut controller = Sought::default();
        let mut most = 0;
        for at in 0..200 {
            let over = controller.window().saturating_sub(1_000_000);
            let lost = (100 * over / controller.window()) as u32;
            controller.on_round(round(0, 100, lost, 0));
            most = most.max(if at > 20 { controller.window() } else { 0 });
        }
        assert!(most < 1_200_000, "{most}");
    }
}
