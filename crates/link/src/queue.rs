//! The bottleneck: a drop-tail queue before a wire, as the time at which the wire falls idle.

use farlink_wire::quantity::{BitsPerSec, Carry, Nanos};
use rand_pcg::Pcg64Mcg;

use crate::background::Source;
use crate::conditions::Conditions;

/// Accepts segments in order of arrival and says when each has left.
#[derive(Debug)]
pub(crate) struct Queue {
    /// When the last accepted segment has left, and the part of a nanosecond that it left over.
    idle_at: Nanos,
    carry: Carry,
    /// Until when what leaves was taken at another rate, in the mean.
    before: Option<(Nanos, BitsPerSec)>,
    background: Option<Source>,
    background_len: u32,
    /// The latest arrival.
    now: Nanos,
    most_bytes: u64,
}

/// What became of the background's packets in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// That came.
    pub(crate) packets: u64,
    /// Of them, that found no place.
    pub(crate) dropped: u64,
}

impl Queue {
    pub(crate) fn new(conditions: &Conditions, now: Nanos, random: &mut Pcg64Mcg) -> Self {
        let background_len = conditions.framing.wire_len(conditions.mtu);
        let background = conditions.background.map(|asked| Source::new(asked, background_len, now, random));
        Self {
            idle_at: now,
            carry: Carry::default(),
            before: None,
            background,
            background_len,
            now,
            most_bytes: 0,
        }
    }

    /// Starts the background anew, as `conditions` have it; what waits keeps waiting.
    pub(crate) fn set_background(&mut self, conditions: &Conditions, now: Nanos, random: &mut Pcg64Mcg) {
        let fresh = Self::new(conditions, now, random);
        self.background = fresh.background;
        self.background_len = fresh.background_len;
    }

    /// When a segment of `wire_len` bytes that arrives at `now` has left; `None` where it is dropped.
    pub(crate) fn offer(&mut self, now: Nanos, wire_len: u32, rate: BitsPerSec, limit: u64) -> Option<Nanos> {
        let waiting = self.bytes(now, rate);
        if waiting + u64::from(wire_len) > limit.max(u64::from(wire_len)) {
            return None;
        }
        if self.idle_at < now {
            (self.idle_at, self.carry) = (now, Carry::default());
        }
        let (time, carry) = rate.serialise(wire_len, self.carry);
        (self.idle_at, self.carry) = (self.idle_at.after(time), carry);
        self.most_bytes = self.most_bytes.max(waiting + u64::from(wire_len));
        Some(self.idle_at)
    }

    /// Lets the background's packets up to `now` take their places, of a rate and a limit in bytes; none gets past
    /// a cut link, which has no `room`.
    pub(crate) fn advance(
        &mut self,
        now: Nanos,
        room: Option<(BitsPerSec, u64)>,
        random: &mut Pcg64Mcg,
    ) -> Passed {
        let mut passed = Passed::default();
        let Some(mut source) = self.background.take() else { return passed };
        if now.since(self.now) > STEPPED {
            // Nobody watched the queue meanwhile. A load below the rate leaves it empty, and one above fills
            // it in the stepped time at the end or keeps what there was: only its own packets are passed over.
            passed.packets = source.skip(Nanos(now.0 - STEPPED.0), random);
            passed.dropped = if room.is_none() { passed.packets } else { 0 };
        }
        while let Some(at) = source.poll(now, random) {
            passed.packets += 1;
            let left = room.and_then(|(rate, limit)| self.offer(at, self.background_len, rate, limit));
            passed.dropped += u64::from(left.is_none());
        }
        self.background = Some(source);
        self.now = self.now.max(now);
        passed
    }

    /// The link has another rate from `now` on than `rate`, at which what waits leaves all the same.
    pub(crate) fn on_rate(&mut self, now: Nanos, rate: BitsPerSec) {
        let (bytes, span) = (self.bytes(now, rate), self.idle_at.since(now));
        let mean = u128::from(bytes) * 8_000_000_000 / u128::from(span.0.max(1));
        self.before = u64::try_from(mean).ok().and_then(BitsPerSec::new).map(|mean| (self.idle_at, mean));
    }

    /// Bytes that wait at `now`.
    pub(crate) fn bytes(&self, now: Nanos, rate: BitsPerSec) -> u64 {
        match self.before {
            Some((until, before)) if until > now => {
                before.bytes_in(until.since(now)) + rate.bytes_in(self.idle_at.since(until))
            }
            _ => rate.bytes_in(self.idle_at.since(now)),
        }
    }

    /// The most bytes that ever waited.
    pub(crate) const fn most_bytes(&self) -> u64 {
        self.most_bytes
    }
}

/// How much of an idle link's past its background is stepped through, packet by packet.
///
/// Long enough for an overload of a tenth of the rate to fill a default queue of 50 ms; 0.5 s of 3 Gb/s
/// are 20,000 packets of 9,038 bytes, about 0.1 ms of work.
const STEPPED: Nanos = Nanos(500_000_000);

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn queue() -> (Queue, BitsPerSec, Pcg64Mcg) {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let conditions =
            Conditions { background: Some("3gbit".parse().unwrap()), mtu: 1500, ..Conditions::default() };
        let queue = Queue::new(&conditions, Nanos::ZERO, &mut random);
        (queue, BitsPerSec::new(10_000_000_000).unwrap(), random)
    }

    #[test]
    fn background_leaves_the_rest_of_the_rate() {
        let (mut queue, rate, mut random) = queue();
        let (mut now, mut carried) = (Nanos::ZERO, 0u64);
        // Twice the rate is offered for a second: what is carried is what background leaves.
        while now.0 < 1_000_000_000 {
            queue.advance(now, Some((rate, 1_000_000)), &mut random);
            if queue.offer(now, 9038, rate, 1_000_000).is_some() {
                carried += 9038 * 8;
            }
            now = now.after(Nanos(3615));
        }
        assert!((6.6e9..7.8e9).contains(&(carried as f64)), "{carried}");
    }

    #[test]
    fn an_idle_hour_of_background_costs_half_a_second_of_steps() {
        let (mut queue, rate, mut random) = queue();
        queue.advance(Nanos(3_600_000_000_000), Some((rate, 1_000_000)), &mut random);
        assert!(queue.bytes(Nanos(3_600_000_000_000), rate) < 3 * 1538);
    }
}
