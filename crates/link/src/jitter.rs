//! A delay that varies within bounds, and so slowly that no packet overtakes another.

use farlink_wire::quantity::Nanos;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// What is added to the delay. It goes in straight lines from one random value to the next, evenly distributed within ±J, each 2 J after the one
/// before: it falls no faster than time passes, so that whatever leaves later arrives later, and the mean stays what was asked however
/// closely packets follow each other. A value for each packet would have to be raised to that of the one before, and close to +J under load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jitter {
    most: Nanos,
    /// When the line began; where it did, and where it ends, nanoseconds.
    from: Nanos,
    start: i64,
    end: i64,
}

impl Jitter {
    /// Of `most` either way, from `now` on.
    pub(crate) fn new(most: Nanos, now: Nanos, random: &mut Pcg64Mcg) -> Self {
        let mut jitter = Self { most, from: now, start: 0, end: 0 };
        (jitter.start, jitter.end) = (jitter.draw(random), jitter.draw(random));
        jitter
    }

    /// `delay`, varied, for what leaves at `now`.
    pub(crate) fn vary(&mut self, delay: Nanos, now: Nanos, random: &mut Pcg64Mcg) -> Nanos {
        let step = 2 * self.most.0;
        if step == 0 {
            return delay;
        }
        let lines = now.since(self.from).0 / step;
        if lines > 0 {
            self.start = if lines == 1 { self.end } else { self.draw(random) };
            self.end = self.draw(random);
            self.from = self.from.after(Nanos(lines * step));
        }
        let passed = i128::from(now.since(self.from).0);
        let risen = i128::from(self.end - self.start) * passed / i128::from(step);
        Nanos(delay.0.saturating_add_signed(self.start + risen as i64))
    }

    fn draw(&self, random: &mut Pcg64Mcg) -> i64 {
        match i64::try_from(self.most.0) {
            Ok(0) | Err(_) => 0,
            Ok(most) => random.random_range(-most..=most),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_mean_is_what_was_asked_and_the_order_is_kept_however_close_packets_are() {
        for spacing in [7_200, 53_000, MS, 50 * MS] {
            let mut random = Pcg64Mcg::seed_from_u64(4);
            let mut jitter = Jitter::new(Nanos(5 * MS), Nanos::ZERO, &mut random);
            // 10,000 lines, or as many packets.
            let count = (100_000 * MS / spacing).clamp(10_000, 2_000_000);
            let (mut sum, mut latest, mut least, mut most) = (0, Nanos::ZERO, u64::MAX, 0);
            for packet in 0..count {
                let now = Nanos(packet * spacing);
                let delay = jitter.vary(Nanos(10 * MS), now, &mut random);
                assert!(now.after(delay) >= latest, "{spacing}");
                latest = now.after(delay);
                (least, most, sum) = (least.min(delay.0), most.max(delay.0), sum + delay.0);
            }
            let mean = sum as f64 / count as f64;
            assert!((mean / (10 * MS) as f64 - 1.0).abs() < 0.02, "{spacing}: {mean}");
            assert!(
                (5 * MS..6 * MS).contains(&least) && (14 * MS..=15 * MS).contains(&most),
                "{least} {most}"
            );
        }
    }

    #[test]
    fn none_changes_nothing() {
        let mut random = Pcg64Mcg::seed_from_u64(4);
        let mut jitter = Jitter::new(Nanos::ZERO, Nanos(7), &mut random);
        assert_eq!(jitter.vary(Nanos(5), Nanos(9), &mut random), Nanos(5));
    }
}
