//! When packets left.

use std::collections::VecDeque;

use farlink_wire::quantity::Nanos;

/// How long ago packets left, as far as that is remembered: a millisecond more or less.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// A packet's number, and a time at which neither it nor one behind it had left.
    log: VecDeque<(u64, Nanos)>,
    next: u64,
}

impl Sent {
    /// Packets before number `next` have left by now.
    pub(super) fn note(&mut self, now: Nanos, next: u64) {
        if next == self.next {
            return;
        }
        if self.log.back().is_none_or(|(_, at)| now.since(*at) >= GRAIN) {
            self.log.push_back((self.next, now));
            if self.log.len() > MOST {
                self.log.pop_front();
            }
        }
        self.next = next;
    }

    /// The number of the next packet.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// How long ago the packet of that number left; zero where it has not.
    pub(super) fn age(&self, now: Nanos, number: u64) -> Nanos {
        if number >= self.next {
            return Nanos::ZERO;
        }
        let place = self.log.partition_point(|(first, _)| *first <= number).saturating_sub(1);
        self.log.get(place).map_or(Nanos::ZERO, |(_, at)| now.since(*at))
    }
}

/// How far apart times are that are remembered, and how many: four seconds, longer than any queue that is looked for.
const GRAIN: Nanos = Nanos(1_000_000);
const MOST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_when_a_packet_left() {
        let ms = |time: u64| Nanos(time * 1_000_000);
        let mut sent = Sent::default();
        assert_eq!(sent.age(ms(5), 0), Nanos::ZERO);
        for time in 1..=10_000 {
            sent.note(ms(time), 10 * time);
        }
        assert_eq!(sent.age(ms(10_000), 100_000), Nanos::ZERO);
        assert_eq!(sent.age(ms(10_000), 99_999), Nanos::ZERO);
        assert_eq!(sent.age(ms(10_000), 99_000), ms(99));
        assert_eq!(sent.age(ms(10_500), 99_999), ms(500));
        // Of what is long past the oldest that is known.
        assert_eq!(sent.age(ms(10_000), 7), ms(4095));
        assert!(sent.log.len() == MOST);
    }
}
