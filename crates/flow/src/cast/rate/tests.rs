use super::*;

const LAG: Nanos = Nanos(300_000_000);

fn rate(bits: u64) -> BitsPerSec {
    BitsPerSec::new(bits).unwrap()
}

/// Of a receiver whose clock is an hour behind.
fn report(now: Nanos, packets: u64, lost: u64, rtt: Nanos) -> Report {
    Report { packets, lost, rtt, at: Nanos(now.0.wrapping_sub(HOUR)), ..Report::default() }
}

const HOUR: u64 = 3_600_000_000_000;

/// Receivers that lose what is beyond their capacity, and a share of all; reports each 0.25 s.
struct Path {
    capacities: Vec<f64>,
    always: Vec<f64>,
    counts: Vec<(f64, f64)>,
    /// Packets that were sent.
    packets: f64,
    now: Nanos,
    /// How much of the rate there is to send.
    load: f64,
    /// How fast the host can send.
    host: f64,
    /// Of all reports each so many tell of a burst of somebody else's, in which a tenth was lost.
    burst_each: u32,
    reports: u32,
    /// Receivers that nothing reaches, and such as say nothing either.
    deaf: Vec<usize>,
    stopped: Vec<usize>,
    /// How far away the last one is, as it says.
    far: Nanos,
    /// Bytes of a packet on the wire.
    packet: f64,
}

impl Path {
    fn new(capacities: &[f64], always: &[f64]) -> Self {
        let counts = vec![(0.0, 0.0); capacities.len()];
        Self {
            capacities: capacities.into(),
            always: always.into(),
            counts,
            packets: 0.0,
            now: Nanos::ZERO,
            load: 1.0,
            host: f64::INFINITY,
            burst_each: u32::MAX,
            reports: 0,
            deaf: Vec::new(),
            stopped: Vec::new(),
            far: Nanos::ZERO,
            packet: 1538.0,
        }
    }

    fn run(&mut self, finder: &mut RateFinder, seconds: f64) -> u64 {
        let end = self.now.after(Nanos::from_secs_f64(seconds));
        let (mut changes, step) = (0, 0.25);
        while self.now < end {
            let sending = (finder.rate().get() as f64 * self.load).min(self.host);
            self.packets += sending * step / 8.0 / self.packet;
            finder.on_sent(self.now, (sending * step / 8.0) as u64, self.packets as u64);
            self.now = self.now.after(Nanos::from_secs_f64(step));
            self.reports += 1;
            let burst = if self.reports.is_multiple_of(self.burst_each) { 0.1 } else { 0.0 };
            if self.load < 1.0 {
                finder.on_idle(self.now);
            }
            let last = self.counts.len() - 1;
            for (receiver, counts) in self.counts.iter_mut().enumerate() {
                if self.stopped.contains(&receiver) {
                    continue;
                }
                let heard = if self.deaf.contains(&receiver) { 0.0 } else { 1.0 };
                let packets = heard * sending * step / 8.0 / self.packet;
                let over = (1.0 - self.capacities[receiver] / sending).max(0.0);
                counts.0 += packets;
                counts.1 += packets * (over + (1.0 - over) * (self.always[receiver] + burst));
                let rtt = if receiver == last { self.far } else { Nanos::ZERO };
                finder.on_report(
                    self.now,
                    receiver as u32,
                    &report(self.now, counts.0 as u64, counts.1 as u64, rtt),
                );
            }
            changes += u64::from(finder.poll(self.now).is_some());
        }
        changes
    }
}

/// The middle one of the rates of so many seconds: now and then another is looked at.
fn usual(finder: &mut RateFinder, path: &mut Path, seconds: u32) -> f64 {
    let mut rates: Vec<u64> = (0..4 * seconds)
        .map(|_| {
            path.run(finder, 0.25);
            finder.rate().get()
        })
        .collect();
    rates.sort_unstable();
    rates[rates.len() / 2] as f64
}

fn finder() -> RateFinder {
    RateFinder::new(rate(1_000_000), rate(50_000_000), rate(10_000_000_000), LAG, Nanos::ZERO)
}

/// One that tries more than the 90 Mb/s of its path, and does not know it yet.
fn too_fast() -> (RateFinder, Path) {
    let (mut finder, mut path) = (finder(), Path::new(&[90e6], &[0.0]));
    while finder.rate().get() <= 90_000_000 {
        path.run(&mut finder, 0.25);
    }
    (finder, path)
}

#[test]
fn it_finds_the_highest_rate_that_is_hardly_lossy() {
    for capacity in [90e6, 633e6, 940e6, 3.7e9] {
        let mut finder = finder();
        let mut path = Path::new(&[capacity], &[0.0005]);
        path.run(&mut finder, 20.0);
        let share = usual(&mut finder, &mut path, 20) / (capacity / 0.995);
        assert!((0.95..=1.0).contains(&share), "{capacity}: {share}");
    }
}

#[test]
fn a_rate_that_was_found_stays_found_while_another_is_looked_at() {
    let (mut finder, mut path) = (finder(), Path::new(&[633e6], &[0.0]));
    path.run(&mut finder, 20.0);
    let mut others = 0;
    for _ in 0..200 {
        path.run(&mut finder, 0.1);
        assert!(finder.has_found());
        others += u32::from(!matches!(finder.phase, Phase::Hold { .. }));
    }
    assert!(others > 0, "no other was looked at");
}

#[test]
fn it_stops_where_it_may_not_go_further() {
    let mut finder = finder();
    assert!(!finder.has_found());
    Path::new(&[40e9], &[0.0]).run(&mut finder, 20.0);
    assert_eq!(finder.rate(), rate(10_000_000_000));
    assert!(finder.has_found());
    let mut finder =
        RateFinder::new(rate(10_000_000), rate(50_000_000), rate(1_000_000_000), LAG, Nanos::ZERO);
    Path::new(&[1e6], &[0.0]).run(&mut finder, 60.0);
    assert_eq!(finder.rate(), rate(10_000_000));
}

#[test]
fn it_climbs_from_the_lowest_rate_too() {
    let mut finder = RateFinder::new(rate(1_000_000), rate(1_000_000), rate(4_000_000), LAG, Nanos::ZERO);
    Path::new(&[40e6], &[0.0]).run(&mut finder, 120.0);
    assert_eq!(finder.rate(), rate(4_000_000));
}

#[test]
fn one_that_always_loses_keeps_nobody_from_their_rate() {
    let mut finder = finder();
    let mut path = Path::new(&[900e6, 900e6, 900e6, 900e6], &[0.0, 0.0, 0.3, 0.0]);
    path.run(&mut finder, 25.0);
    assert!(finder.rate().get() > 855_000_000, "{}", finder.rate());
}

#[test]
fn one_that_hears_nothing_keeps_nobody_from_their_rate_however_few_they_are() {
    for receivers in [2, 3] {
        for is_stopped in [false, true] {
            let mut finder = finder();
            let mut path = Path::new(&vec![900e6; receivers], &vec![0.0; receivers]);
            path.run(&mut finder, 1.0);
            let silent = if is_stopped { &mut path.stopped } else { &mut path.deaf };
            silent.push(1);
            path.run(&mut finder, 25.0);
            let share = usual(&mut finder, &mut path, 20) / (900e6 / 0.995);
            assert!((0.95..=1.0).contains(&share), "{receivers} {is_stopped}: {share}");
            // It hears again, by which it knows what it did not hear, and its path is the narrowest.
            (path.stopped, path.deaf) = (Vec::new(), Vec::new());
            path.counts[1] = (path.packets, path.packets - path.counts[1].0);
            path.capacities[1] = 300e6;
            path.run(&mut finder, 25.0);
            let share = usual(&mut finder, &mut path, 20) / (300e6 / 0.995);
            assert!((0.9..=1.0).contains(&share), "{receivers} {is_stopped}: {share}");
        }
    }
}

#[test]
fn a_rate_at_which_nobody_hears_anything_is_gone_back_from() {
    let mut finder = finder();
    let mut path = Path::new(&[90e6, 90e6], &[0.0, 0.0]);
    while finder.rate().get() <= 90_000_000 {
        path.run(&mut finder, 0.25);
    }
    path.deaf = vec![0, 1];
    path.run(&mut finder, 1.0);
    assert!(finder.rate() <= rate(50_000_000), "{}", finder.rate());
}

#[test]
fn one_of_a_group_that_is_far_away_does_not_slow_the_search() {
    let mut finder = finder();
    let mut path = Path::new(&[900e6; 5], &[0.0; 5]);
    path.far = Nanos(4_000_000_000);
    path.run(&mut finder, 12.0);
    assert!(finder.rate().get() > 500_000_000, "{}", finder.rate());
}

#[test]
fn one_that_is_far_away_is_waited_for_where_another_loses_at_any_rate() {
    let mut finder = finder();
    let mut path = Path::new(&[900e6; 4], &[0.3, 0.0, 0.0, 0.0]);
    path.far = Nanos(1_000_000_000);
    path.run(&mut finder, 60.0);
    let share = usual(&mut finder, &mut path, 20) / (900e6 / 0.995);
    assert!((0.95..=1.0).contains(&share), "{share}");
}

#[test]
fn a_path_that_gets_worse_is_noticed_and_one_that_gets_better_too() {
    let mut finder = finder();
    let mut path = Path::new(&[900e6], &[0.0]);
    path.run(&mut finder, 25.0);
    path.capacities[0] = 300e6;
    path.run(&mut finder, 10.0);
    let slower = usual(&mut finder, &mut path, 10);
    assert!((0.95..=1.005).contains(&(slower / 300e6)), "{slower}");
    path.capacities[0] = 400e6;
    path.run(&mut finder, 40.0);
    let faster = usual(&mut finder, &mut path, 20);
    assert!((0.95..=1.005).contains(&(faster / 400e6)), "{faster}");
}

#[test]
fn a_rate_that_was_not_used_is_not_taken_for_good() {
    let mut finder = finder();
    let mut path = Path::new(&[900e6], &[0.0]);
    path.load = 0.3;
    assert_eq!(path.run(&mut finder, 60.0), 0);
    assert_eq!(finder.rate(), rate(50_000_000));
}

#[test]
fn that_a_rate_is_too_high_is_heard_at_once() {
    let (mut finder, path) = too_fast();
    // A tenth of that is lost, and asked for: the rate before was good.
    finder.on_sent(path.now, 1_250_000, path.packets as u64 + 800);
    finder.on_nack(0, 125_000);
    assert_eq!(finder.poll(path.now), Some(rate(50_000_000)));
    // What comes in from before says nothing of the lower rate.
    finder.on_nack(0, 1_000_000);
    assert_eq!(finder.poll(path.now), None);
}

#[test]
fn what_one_that_joins_lacks_was_sent_before_and_says_nothing_of_a_step() {
    let mut finder = finder();
    let mut path = Path::new(&[90e6], &[0.0]);
    while finder.trial.raised.is_none() {
        path.run(&mut finder, 0.05);
    }
    finder.on_join(7, path.packets as u64);
    finder.on_nack(7, 50_000_000);
    assert_eq!(finder.poll(path.now), None);
    // Who was there before is believed, and so is the new one of the next.
    finder.on_nack(0, 50_000_000);
    assert!(finder.poll(path.now).is_some());
    finder.trial.raised = Some(1_000_000);
    finder.on_nack(7, 50_000_000);
    assert_eq!(finder.poll(path.now), Some(rate(1_000_000)));
}

#[test]
fn a_trial_in_which_this_host_did_not_keep_up_leaves_a_step_that_can_be_taken_back() {
    let (mut finder, path) = too_fast();
    let (from, packets) = (path.now, path.packets as u64);
    let mut trials = 0;
    for time in (50..=2000).step_by(50) {
        let (now, sent) = (from.after(Nanos(time * 1_000_000)), packets + 8 * time);
        finder.on_sent(now, 50 * 8000, sent);
        finder.on_report(now, 0, &report(now, sent, 0, Nanos::ZERO));
        let began = finder.trial.began;
        assert_eq!(finder.poll(now), None);
        if finder.trial.began != began {
            trials += 1;
            // It is not believed yet that it cannot send faster, and at this rate it loses after all.
            finder.on_sent(now, 1_250_000, sent + 800);
            finder.on_nack(0, 125_000);
            assert_eq!(finder.poll(now), Some(rate(50_000_000)));
            break;
        }
    }
    assert_eq!(trials, 1);
}

#[test]
fn that_a_queue_grows_is_seen_before_anything_is_lost() {
    let (mut finder, path) = too_fast();
    let (from, packets) = (path.now, path.packets as u64);
    let ms = |time: u64| from.after(Nanos(time * 1_000_000));
    for time in 1..=200 {
        finder.on_sent(ms(time), 8000, packets + 8 * time);
    }
    // What left 6 and then 15 ms ago has not come yet.
    finder.on_report(ms(100), 0, &report(ms(100), packets + 8 * 94, 0, Nanos::ZERO));
    assert_eq!(finder.poll(ms(100)), None);
    finder.on_report(ms(200), 0, &report(ms(200), packets + 8 * 185, 0, Nanos::ZERO));
    assert_eq!(finder.poll(ms(200)), Some(rate(50_000_000)));
}

#[test]
fn a_report_that_comes_late_itself_says_nothing_of_a_queue() {
    let (mut finder, path) = too_fast();
    let (from, packets) = (path.now, path.packets as u64);
    let ms = |time: u64| from.after(Nanos(time * 1_000_000));
    for time in 1..=200 {
        finder.on_sent(ms(time), 8000, packets + 8 * time);
    }
    // Made 6 and 30 ms before they come, and what had left by then had come.
    for (time, late) in [(100, 6), (180, 30), (200, 30)] {
        let made = Report { at: Nanos(ms(time - late).0.wrapping_sub(HOUR)), ..Report::default() };
        finder.on_report(ms(time), 0, &Report { packets: packets + 8 * (time - late), ..made });
        assert_eq!(finder.poll(ms(time)), None, "{time}");
    }
}

#[test]
fn over_a_path_that_loses_at_any_rate_it_climbs_in_seconds_where_packets_are_large() {
    for loss in [0.01, 0.02, 0.05] {
        let mut finder =
            RateFinder::new(rate(1_000_000), rate(100_000_000), rate(10_000_000_000), LAG, Nanos::ZERO);
        let mut path = Path::new(&[900e6], &[loss]);
        path.packet = 9038.0;
        path.run(&mut finder, 20.0);
        assert!(finder.rate().get() > 800_000_000, "{loss}: {}", finder.rate());
    }
}

#[test]
fn a_queue_is_seen_of_one_that_came_back_with_its_counts_too() {
    let (mut finder, path) = too_fast();
    let (from, packets) = (path.now, path.packets as u64);
    let ms = |time: u64| from.after(Nanos(time * 1_000_000));
    // It joins for the second time, and counts from its first on.
    finder.on_leave(0);
    finder.on_join(0, packets);
    let mut next = None;
    for time in 1..=200 {
        finder.on_sent(ms(time), 12_500, packets + 8 * time);
        // What left 6, 12 and then 30 ms ago has not come yet.
        if let Some(late) = [(100, 6), (150, 12), (200, 30)].iter().find(|(at, _)| *at == time) {
            finder.on_report(ms(time), 0, &report(ms(time), packets + 8 * (time - late.1), 0, Nanos::ZERO));
            next = finder.poll(ms(time));
            assert_eq!(next.is_some(), time == 200, "{time}");
        }
    }
    assert_eq!(next, Some(rate(50_000_000)));
    // And when all has come it is known from where it counts.
    finder.on_report(ms(300), 0, &report(ms(300), packets + 8 * 200, 0, Nanos::ZERO));
    assert_eq!(finder.receivers[&0].number(0), 0);
}

#[test]
fn once_found_the_rate_hardly_moves() {
    let mut finder = finder();
    let mut path = Path::new(&[500e6], &[0.001]);
    path.run(&mut finder, 25.0);
    // A look upward each half minute takes five trials or so.
    let changes = path.run(&mut finder, 120.0);
    assert!(changes <= 30, "{changes}");
    let share = usual(&mut finder, &mut path, 20) / 502e6;
    assert!((0.95..=1.06).contains(&share), "{share}");
}

#[test]
fn what_is_lost_at_any_rate_does_not_sink_the_rate() {
    for loss in [0.008, 0.01, 0.03, 0.1] {
        let mut finder = finder();
        let mut path = Path::new(&[900e6], &[loss]);
        path.run(&mut finder, 40.0);
        let share = usual(&mut finder, &mut path, 20) / 900e6;
        assert!((0.93..=1.06).contains(&share), "{loss}: {share}");
        // And it stays there.
        let mut least = f64::INFINITY;
        for _ in 0..300 {
            path.run(&mut finder, 1.0);
            least = least.min(finder.rate().get() as f64 / 900e6);
        }
        assert!(least > 0.75, "{loss}: {least}");
    }
}

#[test]
fn loss_that_begins_while_a_rate_is_kept_does_not_sink_it_and_ends_again() {
    let mut finder = finder();
    let mut path = Path::new(&[900e6], &[0.0]);
    path.run(&mut finder, 25.0);
    path.always[0] = 0.02;
    path.run(&mut finder, 60.0);
    let share = usual(&mut finder, &mut path, 20) / 900e6;
    assert!((0.9..=1.06).contains(&share), "{share}");
    path.always[0] = 0.0;
    path.run(&mut finder, 60.0);
    path.capacities[0] = 300e6;
    path.run(&mut finder, 30.0);
    let share = usual(&mut finder, &mut path, 20) / 300e6;
    assert!((0.9..=1.06).contains(&share), "{share}");
}

#[test]
fn a_path_that_loses_ever_more_as_it_gets_worse_is_not_taken_for_one_that_always_loses() {
    let mut finder = finder();
    let mut path = Path::new(&[900e6], &[0.0]);
    path.run(&mut finder, 25.0);
    // While the search gives way, what the path carries goes down as fast.
    for capacity in [800e6, 700e6, 600e6, 500e6, 400e6, 300e6] {
        path.capacities[0] = capacity;
        path.run(&mut finder, 0.75);
    }
    path.run(&mut finder, 90.0);
    let share = usual(&mut finder, &mut path, 20) / 300e6;
    assert!((0.8..=1.06).contains(&share), "{share}");
}

#[test]
fn a_burst_of_loss_now_and_then_keeps_it_from_the_rate_for_seconds_only() {
    let mut finder = finder();
    let mut path = Path::new(&[900e6], &[0.0]);
    path.burst_each = 23;
    path.run(&mut finder, 60.0);
    let mut rates = Vec::new();
    for _ in 0..240 {
        path.run(&mut finder, 0.5);
        rates.push(finder.rate().get());
    }
    rates.sort_unstable();
    let (low, middle) = (rates[rates.len() / 10] as f64 / 900e6, rates[rates.len() / 2] as f64 / 900e6);
    assert!(low > 0.7 && middle > 0.85, "{low} {middle}");
}

#[test]
fn a_host_that_does_not_send_as_fast_as_it_may_has_the_rate_that_it_sends_at() {
    let mut finder = finder();
    let mut path = Path::new(&[9e9], &[0.0]);
    path.host = 2.5e9;
    path.run(&mut finder, 30.0);
    let mut rates = Vec::new();
    for _ in 0..200 {
        path.run(&mut finder, 0.5);
        rates.push(finder.rate().get() as f64 / 2.5e9);
    }
    let (least, most) = rates.iter().fold((f64::MAX, 0.0_f64), |(l, m), rate| (l.min(*rate), m.max(*rate)));
    assert!(least > 0.9 && most < 1.2, "{least} {most}");
}
