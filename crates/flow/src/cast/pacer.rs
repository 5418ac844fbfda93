//! When a sender may send: to the group at one rate, repairs within their share of it, and to single receivers beside it.

use farlink_wire::cast::Payload;
use farlink_wire::cast::packet::OVERHEAD;
use farlink_wire::quantity::{BitsPerSec, Fraction, Nanos};

use crate::token_bucket::TokenBucket;

/// Rates of a sender, counted on the wire with every header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// To the group: products, parity, and repairs.
    pub group: BitsPerSec,
    /// What repairs may take of it while products wait for their first pass. When none does, they may have all of it, and it counts: only
    /// where they had less than their share in the last [`MEMORY`] does a product wait for them.
    pub repair: Fraction,
    /// To single receivers, beside the group's: `None` where the circuit has no room beside it, and unicast shares what repairs have.
    pub beside: Option<BitsPerSec>,
    /// Bytes that go around a packet on the wire: of IPv4 and UDP 28, of IPv6 48, of Ethernet 38 more.
    pub around: u32,
}

/// Holds a sender to its rates. What was sent is charged after it, so that a rate is exceeded by one burst and one run at most. What it was
/// kept from sending to the group in time it makes up for: up to a burst at once, and more, up to 8 ms, at 1.25 times the rate.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    rates: Rates,
    packet: u64,
    group: Gate,
    /// What the group's rate is exceeded by at most while the sender catches up.
    peak: Gate,
    repair: Gate,
    rare: Gate,
    beside: Option<Gate>,
}

/// Which of the rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// To the group.
    Group,
    /// The repairs' share of it.
    Repair,
    /// What receivers that seldom lose anything may have before all others.
    Rare,
    /// What the group would not use: free when nothing more could be saved up for it. Charged as the group's.
    Spare,
    /// To single receivers.
    Beside,
}

#[derive(Clone, Copy, Debug)]
struct Gate {
    bucket: TokenBucket,
    free_at: Nanos,
}

impl Pacer {
    /// For full packets of `payload`.
    #[must_use]
    pub fn new(rates: Rates, payload: Payload, now: Nanos) -> Self {
        let packet = u64::from(payload.get()) + OVERHEAD as u64 + u64::from(rates.around);
        let with = |rate, burst| Gate { bucket: TokenBucket::with_burst(rate, burst, now), free_at: now };
        let gate = |rate| with(rate, burst(rate, packet));
        let (group, peak) = (with(rates.group, late(rates.group, packet)), gate(peak(rates.group)));
        let (repair, rare) = (gate(share(rates, rates.repair.get())), gate(share(rates, RARE)));
        let beside = rates.beside.map(gate);
        let mut pacer = Self { rates, packet, group, peak, repair, rare, beside };
        pacer.begin(now);
        pacer
    }

    /// The rates.
    #[must_use]
    pub const fn rates(&self) -> Rates {
        self.rates
    }

    /// Changes the group's rate, and the repairs' with it.
    pub fn set_group(&mut self, rate: BitsPerSec) {
        self.rates.group = rate;
        self.group.bucket.set_rate(rate, late(rate, self.packet));
        self.peak.bucket.set_rate(peak(rate), burst(peak(rate), self.packet));
        for (gate, part) in [(&mut self.repair, self.rates.repair.get()), (&mut self.rare, RARE)] {
            let rate = share(self.rates, part);
            gate.bucket.set_rate(rate, burst(rate, self.packet));
        }
    }

    /// Bytes of a full packet on the wire.
    #[must_use]
    pub const fn packet(&self) -> u64 {
        self.packet
    }

    /// Full packets that leave at once: for as long as nobody notices, and no more than one system call takes.
    #[must_use]
    pub fn run(&self) -> u64 {
        run(self.rates.group, self.packet)
    }

    /// Whether something may leave now.
    #[must_use]
    pub fn is_free(&self, lane: Lane, now: Nanos) -> bool {
        self.free_at(lane).is_some_and(|at| at <= now)
    }

    /// When something may leave next; `None` where there is no such lane.
    #[must_use]
    pub fn free_at(&self, lane: Lane) -> Option<Nanos> {
        match lane {
            Lane::Group => Some(self.group.free_at.max(self.peak.free_at)),
            Lane::Repair => Some(self.repair.free_at),
            Lane::Rare => Some(self.rare.free_at),
            Lane::Spare => Some(self.group.bucket.saved_at(self.burst()).max(self.peak.free_at)),
            Lane::Beside => self.beside.map(|gate| gate.free_at),
        }
    }

    /// There was nothing to be sent to the group until now: a burst is saved up for what comes, and it is not late.
    pub fn begin(&mut self, now: Nanos) {
        self.group.bucket.keep(now, self.burst());
    }

    fn burst(&self) -> u64 {
        burst(self.rates.group, self.packet)
    }

    /// Something leaves: so many packets with so many bytes of payload. Says how many bytes that is on the wire.
    pub fn charge(&mut self, lane: Lane, now: Nanos, packets: u64, payload: u64) -> u64 {
        let bytes = packets * (OVERHEAD as u64 + u64::from(self.rates.around)) + payload;
        let gate = match lane {
            Lane::Group | Lane::Spare => {
                self.peak.take(now, bytes);
                &mut self.group
            }
            Lane::Repair => &mut self.repair,
            Lane::Rare => &mut self.rare,
            Lane::Beside => match &mut self.beside {
                Some(gate) => gate,
                None => return 0,
            },
        };
        gate.take(now, bytes);
        if lane == Lane::Repair {
            gate.forgive(now.after(MEMORY));
        }
        bytes
    }
}

impl Gate {
    fn take(&mut self, now: Nanos, mut bytes: u64) {
        let mut wait = Nanos::ZERO;
        while bytes > 0 {
            let part = bytes.min(self.bucket.burst());
            wait = self.bucket.take(now, part);
            bytes -= part;
        }
        self.free_at = now.after(wait);
    }

    fn forgive(&mut self, at: Nanos) {
        self.bucket.forgive(at);
        self.free_at = self.free_at.min(at);
    }
}

/// What repairs have while products wait: never nothing, so that none waits for ever.
fn share(rates: Rates, part: f64) -> BitsPerSec {
    let bits = (rates.group.get() as f64 * part) as u64;
    BitsPerSec::new(bits.max(LEAST_REPAIR)).unwrap_or(rates.group)
}

fn run(rate: BitsPerSec, packet: u64) -> u64 {
    (rate.bytes_in(RUN) / packet).min(MOST_RUN_BYTES / packet).max(1)
}

fn burst(rate: BitsPerSec, packet: u64) -> u64 {
    rate.bytes_in(BURST).max(2 * packet * run(rate, packet))
}

fn late(rate: BitsPerSec, packet: u64) -> u64 {
    rate.bytes_in(LATE).max(burst(rate, packet))
}

fn peak(rate: BitsPerSec) -> BitsPerSec {
    BitsPerSec::new((rate.get() as f64 * PEAK) as u64).unwrap_or(rate)
}

/// What repairs have at least, bits per second: a packet of 1,500 bytes each 0.12 s.
const LEAST_REPAIR: u64 = 100_000;

/// How long it counts that repairs had more than their share: a third of the time for which products are held by default.
pub const MEMORY: Nanos = Nanos(10_000_000_000);

/// What receivers that seldom lose anything have before all others: as much as one of them loses at most.
const RARE: f64 = 0.005;

/// How long a run of packets takes at the rate. A receive buffer of 64 KiB holds some 40 packets of 1,500 bytes: at 1 Gb/s this is half
/// of them.
const RUN: Nanos = Nanos(250_000);

/// What one `sendmsg` with `UDP_SEGMENT` takes, bytes, with the headers that are counted here.
const MOST_RUN_BYTES: u64 = 65_000;

/// What is saved up while the sender is kept from sending: a virtual machine's processor is often away for a millisecond or two, and
/// receivers should have room for as much.
const BURST: Nanos = Nanos(2_000_000);

/// What a sender that has something to send makes up for when it was kept from it: longer than a busy host's scheduler gives a processor to
/// somebody else, and a queue at its rate becomes no longer than this.
const LATE: Nanos = Nanos(8_000_000);

/// How many times as fast as its rate it sends then.
const PEAK: f64 = 1.25;

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(rate: u64) -> Pacer {
        let rates = Rates {
            group: BitsPerSec::new(rate).unwrap(),
            repair: Fraction::new(0.05).unwrap(),
            beside: None,
            around: 66,
        };
        Pacer::new(rates, Payload::try_from(1416).unwrap(), Nanos(1_000_000_000))
    }

    #[test]
    fn a_run_is_short_in_time_and_fits_a_system_call() {
        assert_eq!(pacer(10_000_000).run(), 1);
        assert_eq!(pacer(1_000_000_000).run(), 20);
        assert_eq!(pacer(100_000_000_000).run(), 42);
    }

    #[test]
    fn every_byte_on_the_wire_is_charged_and_the_rate_is_reached() {
        let mut pacer = pacer(600_000_000);
        let (mut now, mut payload) = (Nanos(1_000_000_000), 0);
        let end = now.after(Nanos(1_000_000_000));
        while now < end {
            assert!(pacer.is_free(Lane::Group, now));
            pacer.charge(Lane::Group, now, 10, 14_160);
            payload += 14_160;
            now = now.max(pacer.free_at(Lane::Group).unwrap());
        }
        let ceiling = 600e6 / 8.0 * 1416.0 / (1416.0 + 56.0 + 66.0);
        let share = payload as f64 / ceiling;
        assert!((0.999..1.006).contains(&share), "{share} of the payload's ceiling");
    }

    #[test]
    fn a_sender_that_was_away_catches_up_a_burst_and_no_more() {
        let mut pacer = pacer(1_000_000_000);
        pacer.charge(Lane::Group, Nanos(1_000_000_000), 1, 1416);
        let later = Nanos(3_000_000_000);
        let mut at_once = 0;
        while pacer.is_free(Lane::Group, later) {
            pacer.charge(Lane::Group, later, 20, 20 * 1416);
            at_once += 20 * 1538;
        }
        assert!((250_000..320_000 + 2 * 20 * 1538).contains(&at_once), "{at_once} bytes");
        // The rest of what it was late by comes a little faster than its rate, and nothing of what came before.
        let (mut now, end) = (later, later.after(Nanos(100_000_000)));
        let (mut bytes, mut first) = (at_once, 0);
        while now < end {
            pacer.charge(Lane::Group, now, 20, 20 * 1416);
            bytes += 20 * 1538;
            first += if now < later.after(Nanos(10_000_000)) { 20 * 1538 } else { 0 };
            now = now.max(pacer.free_at(Lane::Group).unwrap());
        }
        let expected = 125_000_000.0 * (0.1 + 0.008);
        assert!((bytes as f64 / expected - 1.0).abs() < 0.005, "{bytes} of {expected}");
        assert!((first as f64 / (1.25 * 1_250_000.0) - 1.0).abs() < 0.03, "{first}");
    }

    #[test]
    fn who_had_nothing_to_send_is_not_late() {
        let mut pacer = pacer(1_000_000_000);
        let mut now = Nanos(3_000_000_000);
        pacer.begin(now);
        let (end, mut bytes) = (now.after(Nanos(100_000_000)), 0);
        while now < end {
            pacer.charge(Lane::Group, now, 20, 20 * 1416);
            bytes += 20 * 1538;
            now = now.max(pacer.free_at(Lane::Group).unwrap());
        }
        let expected = 125_000_000.0 * (0.1 + 0.002);
        assert!((bytes as f64 / expected - 1.0).abs() < 0.005, "{bytes} of {expected}");
    }

    #[test]
    fn spare_time_is_filled_and_leaves_a_product_the_burst_that_it_would_have_had() {
        let mut pacer = pacer(1_000_000_000);
        let (mut now, mut bytes) = (Nanos(1_000_000_000), 0);
        while now < Nanos(1_500_000_000) {
            assert!(pacer.is_free(Lane::Spare, now));
            pacer.charge(Lane::Spare, now, 20, 20 * 1416);
            bytes += 20 * 1538;
            now = pacer.free_at(Lane::Spare).unwrap();
        }
        assert!((bytes as f64 * 8.0 / 0.5e9 - 1.0).abs() < 0.01, "{bytes}");
        let mut at_once = 0;
        while pacer.is_free(Lane::Group, now) {
            pacer.charge(Lane::Group, now, 20, 20 * 1416);
            at_once += 20 * 1538;
        }
        assert!(at_once > 220_000, "{at_once} bytes");
    }

    #[test]
    fn what_repairs_had_in_spare_time_counts_for_a_while() {
        let mut pacer = pacer(1_000_000_000);
        let now = Nanos(1_000_000_000);
        assert!(pacer.is_free(Lane::Repair, now));
        pacer.charge(Lane::Repair, now, 1000, 1_416_000);
        // 1.5 MB are what 50 Mb/s carry in a quarter of a second.
        assert!(!pacer.is_free(Lane::Repair, now.after(Nanos(200_000_000))));
        assert!(pacer.is_free(Lane::Repair, now.after(Nanos(250_000_000))));
        pacer.charge(Lane::Repair, now, 1_000_000, 1_416_000_000);
        assert_eq!(pacer.free_at(Lane::Repair), Some(now.after(MEMORY)));
        assert!(pacer.is_free(Lane::Rare, now) && pacer.is_free(Lane::Group, now));
    }

    #[test]
    fn repairs_have_their_share_and_follow_the_rate() {
        let mut pacer = pacer(1_000_000_000);
        let drained = |pacer: &mut Pacer, from: Nanos| {
            let (mut now, mut bytes) = (from, 0);
            while now < from.after(Nanos(1_000_000_000)) {
                pacer.charge(Lane::Repair, now, 1, 1416);
                bytes += 1538;
                now = now.max(pacer.free_at(Lane::Repair).unwrap());
            }
            bytes as f64 * 8.0
        };
        let first = drained(&mut pacer, Nanos(1_000_000_000));
        assert!((first / 50e6 - 1.0).abs() < 0.02, "{first}");
        pacer.set_group(BitsPerSec::new(2_000_000_000).unwrap());
        let second = drained(&mut pacer, Nanos(2_100_000_000));
        assert!((second / 100e6 - 1.0).abs() < 0.02, "{second}");
        assert!(pacer.free_at(Lane::Beside).is_none() && !pacer.is_free(Lane::Beside, Nanos::MAX));
    }
}
