//! Which packets of a session came: a replay window (as RFC 4303, 3.4.3, has it), and what was lost by their numbers.

/// What came of a session's packets.
#[derive(Clone, Debug)]
pub struct Window {
    /// The first number that is awaited; packets before it are none of ours.
    first: u64,
    /// One more than the highest number that came.
    next: u64,
    received: u64,
    /// Packets that were awaited before `first`.
    before: u64,
    /// A bit a number, for the last [`WIDTH`].
    bits: Box<[u64; WORDS]>,
}

/// How many packets there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were sent, up to the newest that came.
    pub sent: u64,
    /// Those of them that came.
    pub received: u64,
}

impl Counts {
    /// Those of them that did not come, or not yet.
    #[must_use]
    pub const fn lost(self) -> u64 {
        self.sent - self.received
    }
}

impl Window {
    /// One that awaits packets from number `first` on.
    #[must_use]
    pub fn new(first: u64) -> Self {
        Self { first, next: first, received: 0, before: 0, bits: Box::new([0; WORDS]) }
    }

    /// None before `number` is awaited any more, where that is so far ahead that this end was away: what was sent meanwhile is no loss. Of
    /// what was sent a moment ago some may still come.
    pub fn skip_to(&mut self, number: u64) {
        if number > self.next.saturating_add(WIDTH) {
            self.before += self.next - self.first;
            (self.first, self.next) = (number, number);
            self.bits.fill(0);
        }
    }

    /// Whether a packet of this number was sent before any that are awaited.
    #[must_use]
    pub const fn is_before(&self, number: u64) -> bool {
        number < self.first
    }

    /// Whether a packet of this number may be one that did not come before. Those that are too old to tell are taken for replays: what
    /// they carry is asked for again.
    #[must_use]
    pub fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            return true;
        }
        let too_old = number < self.first || number + WIDTH < self.next;
        !too_old && self.bits[word(number)] & bit(number) == 0
    }

    /// Takes note of a packet that is genuine and [new](Self::is_new).
    pub fn mark(&mut self, number: u64) {
        debug_assert!(self.is_new(number));
        if number >= self.next {
            let fresh = number + 1 - self.next;
            if fresh >= WIDTH {
                self.bits.fill(0);
            } else {
                // What stood there belongs to numbers that have left the window.
                for passed in self.next..number {
                    self.bits[word(passed)] &= !bit(passed);
                }
            }
            self.next = number + 1;
        }
        self.bits[word(number)] |= bit(number);
        self.received += 1;
    }

    /// How many came, and how many could have.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        Counts { sent: self.before + self.next - self.first, received: self.received }
    }
}

const fn word(number: u64) -> usize {
    (number % WIDTH / 64) as usize
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

/// Packets that may come late and still count: 75 ms at 10 Gb/s with 1,416 bytes each, in 8 KiB.
const WIDTH: u64 = 65_536;
const WORDS: usize = WIDTH as usize / 64;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_was_away_lost_nothing_of_what_was_sent_meanwhile() {
        let mut window = Window::new(100);
        [100, 101, 105].into_iter().for_each(|number| window.mark(number));
        // A moment is no absence.
        window.skip_to(106 + WIDTH);
        assert_eq!(window.counts(), Counts { sent: 6, received: 3 });
        let number = 107 + WIDTH;
        window.skip_to(number);
        assert!(window.is_before(number - 1) && !window.is_new(number - 1) && window.is_new(number));
        window.mark(number + 2);
        assert_eq!(window.counts(), Counts { sent: 9, received: 4 });
        window.skip_to(number);
        assert_eq!(window.counts().lost(), 5);
    }

    proptest! {
        #[test]
        fn every_number_counts_once(steps in proptest::collection::vec(-40i64..60, 1..300)) {
            let (mut window, mut seen, mut at) = (Window::new(100), HashSet::new(), 120u64);
            for step in steps {
                at = at.saturating_add_signed(step);
                let expected = at >= 100 && !seen.contains(&at);
                prop_assert_eq!(window.is_new(at), expected, "{}", at);
                if expected {
                    window.mark(at);
                    seen.insert(at);
                }
            }
            prop_assert_eq!(window.counts().received, seen.len() as u64);
            let newest = seen.iter().max().map_or(0, |newest| newest - 99);
            prop_assert_eq!(window.counts().sent, newest);
        }
    }

    #[test]
    fn what_is_older_than_the_window_is_a_replay() {
        let mut window = Window::new(0);
        window.mark(5);
        for number in [WIDTH + 5, 3 * WIDTH, 3 * WIDTH + 1] {
            window.mark(number);
            assert!(!window.is_new(number) && !window.is_new(5));
            assert!(window.is_new(number - 7));
        }
        assert!(!window.is_new(2 * WIDTH + 1) && window.is_new(2 * WIDTH + 2));
        assert_eq!(window.counts(), Counts { sent: 3 * WIDTH + 2, received: 4 });
    }
}
