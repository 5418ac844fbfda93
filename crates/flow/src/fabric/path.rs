//! What is known of the way to a host, by all contexts that lead there.

use core::net::SocketAddr;

use farlink_wire::quantity::{BitsPerSec, Nanos};

use super::congestion::{Congestion, Known, Round, Sought};
use super::parity;
use crate::token_bucket::TokenBucket;

/// The way to a host.
#[derive(Debug)]
pub struct Path {
    congestion: Box<dyn Congestion>,
    pacer: Pacer,
    flying: u64,
    smoothed: Option<Nanos>,
    variation: Nanos,
    loss: Loss,
    round: Round,
    round_began: Nanos,
    /// When something was last answered.
    heard: Nanos,
    /// Datagrams that may leave whatever is under way.
    probes: u32,
}

/// Datagrams of late, and how many of them were lost: the old are forgotten bit by bit.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    known: f64,
    lost: f64,
}

/// When the next datagram may leave.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    bucket: Option<TokenBucket>,
    /// Bytes that go around each datagram.
    around: u64,
    free_at: Nanos,
}

impl Pacer {
    /// One of a rate, or one that holds nothing back, of datagrams with so many bytes [around] each.
    #[must_use]
    pub fn new(rate: Option<BitsPerSec>, around: u64, now: Nanos) -> Self {
        let bucket = rate.map(|rate| TokenBucket::with_burst(rate, burst(rate), now));
        Self { bucket, around, free_at: Nanos::ZERO }
    }

    /// When something may leave.
    #[must_use]
    pub const fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// Goes on at another rate, of which so many bytes are not held back after silence.
    fn set_rate(&mut self, rate: BitsPerSec, burst: u64, now: Nanos) {
        match &mut self.bucket {
            Some(bucket) => bucket.set_rate(rate, burst),
            None => self.bucket = Some(TokenBucket::with_burst(rate, burst, now)),
        }
    }

    /// A datagram of so many bytes leaves now.
    pub fn on_sent(&mut self, now: Nanos, bytes: u64) {
        if let Some(bucket) = &mut self.bucket {
            self.free_at = now.after(bucket.take(now, (bytes + self.around).min(bucket.burst())));
        }
    }
}

fn burst(rate: BitsPerSec) -> u64 {
    rate.bytes_in(BURST).max(LEAST_BURST)
}

impl Path {
    /// One with a known rate, or one to be sought where so many processes of this host send, this one included; of datagrams with so many
    /// bytes [around] each.
    #[must_use]
    pub fn new(rate: Option<BitsPerSec>, sharers: u64, around: u64, now: Nanos) -> Self {
        let congestion: Box<dyn Congestion> = match rate {
            Some(rate) => Box::new(Known(rate)),
            None => Box::new(Sought::among(sharers)),
        };
        Self {
            congestion,
            pacer: Pacer::new(rate, around, now),
            flying: 0,
            smoothed: None,
            variation: Nanos::ZERO,
            loss: Loss::default(),
            round: NO_ROUND,
            round_began: now,
            heard: now,
            probes: 0,
        }
    }

    /// Whether more may be under way.
    pub fn has_room(&mut self) -> bool {
        let room = self.flying < self.congestion.window(self.smoothed);
        self.round.limited |= !room;
        room || self.probes > 0
    }

    /// So many datagrams more are to ask whether anything arrives: a full window does not hold them (RFC 9002, 7.5).
    pub const fn on_probe(&mut self, datagrams: u32) {
        // Several contexts on one path may have something to ask at a time.
        self.probes = self.probes.saturating_add(datagrams);
    }

    /// Something is kept by the rate.
    pub const fn on_paced(&mut self) {
        self.round.paced = true;
    }

    /// When its rate lets something leave.
    #[must_use]
    pub const fn paced_until(&self) -> Nanos {
        self.pacer.free_at
    }

    /// Round-trip time, smoothed (RFC 6298).
    #[must_use]
    pub const fn rtt(&self) -> Option<Nanos> {
        self.smoothed
    }

    /// Bytes under way.
    #[must_use]
    pub const fn flying(&self) -> u64 {
        self.flying
    }

    /// How long after a datagram to ask whether it arrived (RFC 9002, 6.2.1).
    #[must_use]
    pub fn timeout(&self) -> Nanos {
        match self.smoothed {
            Some(smoothed) => smoothed.after(Nanos((4 * self.variation.0).max(LEAST_VARIATION.0))),
            None => FIRST_TIMEOUT,
        }
    }

    /// How often to ask in vain, each time after twice as long, before all that is under way counts as lost.
    #[must_use]
    pub const fn patience(&self) -> u32 {
        if self.smoothed.is_some() { 1 } else { FIRST_PATIENCE }
    }

    /// The share of datagrams that are lost.
    #[must_use]
    pub fn loss(&self) -> f64 {
        (self.loss.lost + PRIOR_LOST) / (self.loss.known + PRIOR)
    }

    /// Whether so many are that something is done before they are known to be.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        parity::worth(1, self.loss()) > 0
    }

    /// How long after a datagram one that left before it, and has not arrived, is lost (RFC 9002, 6.1.2, with RFC 8985's quarter of a round
    /// trip for those that were overtaken on their way).
    #[must_use]
    pub fn lateness(&self) -> Nanos {
        self.smoothed.map_or(FIRST_TIMEOUT, |smoothed| Nanos(smoothed.0 + smoothed.0 / 4))
    }

    /// Shards of parity that so many pieces are worth, whose repair is waited for so long: none where that costs less, as often as one is
    /// needed, than to send them each time. Over 0.4 ms an answer of one piece has none below 0.8% of loss, one that is followed by another
    /// within half a round trip none below 3%.
    #[must_use]
    pub fn parity(&self, pieces: u16, repair: Nanos) -> u16 {
        let repairs = f64::from(pieces) * self.loss() * repair.0 as f64;
        if repairs < DATAGRAM.0 as f64 { 0 } else { parity::worth(pieces, self.loss()) }
    }

    /// A datagram left.
    pub fn on_sent(&mut self, now: Nanos, bytes: u32) {
        self.flying += u64::from(bytes);
        self.probes = self.probes.saturating_sub(1);
        self.pacer.on_sent(now, u64::from(bytes));
    }

    /// A datagram arrived.
    pub fn on_arrived(&mut self, bytes: u32) {
        self.on_known(bytes, 0.0);
        self.round.arrived += u64::from(bytes);
    }

    /// A datagram was lost.
    pub fn on_lost(&mut self, bytes: u32) {
        self.on_known(bytes, 1.0);
        self.round.lost += 1;
    }

    /// Somebody there answered.
    pub const fn on_heard(&mut self, now: Nanos) {
        self.heard = now;
    }

    /// Something was asked several times and not answered: where nothing else was either `since` it last left, all that is under way to the
    /// host may be lost, of which nothing is learnt but that (RFC 9002, 7.6; RFC 8085, 3.1).
    pub fn on_silence(&mut self, now: Nanos, since: Nanos) {
        if self.heard <= since {
            self.congestion.on_silence();
            (self.round, self.round_began) = (NO_ROUND, now);
        }
    }

    /// It does not matter any more what became of a datagram.
    pub const fn on_forgotten(&mut self, bytes: u32) {
        self.flying = self.flying.saturating_sub(bytes as u64);
    }

    fn on_known(&mut self, bytes: u32, lost: f64) {
        self.on_forgotten(bytes);
        self.round.known += 1;
        let kept = 1.0 - 1.0 / MEMORY;
        self.loss.known = self.loss.known * kept + 1.0;
        self.loss.lost = self.loss.lost * kept + lost;
    }

    /// A datagram's way there and back took so long. Where either process stood still meanwhile, be it that their job was suspended, that says nothing of
    /// the path: it would be asked what arrived only after as long again.
    pub fn on_rtt(&mut self, now: Nanos, rtt: Nanos) {
        let rtt = rtt.min(LONGEST_RTT);
        self.round.rtt = self.round.rtt.min(rtt);
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(rtt), Nanos(rtt.0 / 8)),
            Some(smoothed) => {
                let apart = smoothed.0.abs_diff(rtt.0);
                self.variation = Nanos((3 * self.variation.0 + apart) / 4);
                self.smoothed = Some(Nanos((7 * smoothed.0 + rtt.0) / 8));
            }
        }
        let rtt = self.smoothed.unwrap_or(rtt);
        if now.since(self.round_began) >= rtt {
            self.congestion.on_round(Round { now, ..self.round });
            self.round = NO_ROUND;
            self.round_began = now;
        }
        if let Some(rate) = self.congestion.rate(Some(rtt)) {
            self.pacer.set_rate(rate, self.congestion.burst(burst(rate)), now);
        }
    }
}

const NO_ROUND: Round =
    Round { now: Nanos::ZERO, arrived: 0, known: 0, lost: 0, rtt: Nanos::MAX, limited: false, paced: false };

/// Bits per second below which a job would seem to hang.
pub const LEAST_RATE: u64 = 1_000_000;

/// More than twice what a way around the earth and back takes; where a queue holds more, what is under way is asked after, and repaired, too soon.
const LONGEST_RTT: Nanos = Nanos(1_000_000_000);

/// What may leave at once: a process is not always there in time.
const BURST: Nanos = Nanos(2_000_000);
const LEAST_BURST: u64 = 128 * 1024;

/// Bytes that the wire carries around each datagram from `address`: a rate is that of the wire.
#[must_use]
pub const fn around(address: SocketAddr) -> u64 {
    let headers = if address.is_ipv4() { 20 + UDP } else { 40 + UDP };
    headers + ETHERNET
}

const UDP: u64 = 8;

/// Preamble, header, check sequence and the gap between two frames.
const ETHERNET: u64 = 38;

/// What a datagram more costs those who wait for the next: system calls and packets of its own, at both ends.
const DATAGRAM: Nanos = Nanos(20_000);

/// Before anything is known of a path. To ask costs a datagram or two, six times where the answer takes 366 ms; to wait for longer costs
/// whoever lost the very first datagram of a short path all that time.
const FIRST_TIMEOUT: Nanos = Nanos(10_000_000);
/// After 0.6 s.
const FIRST_PATIENCE: u32 = 6;

/// A process that is kept from running answers late by so much.
const LEAST_VARIATION: Nanos = Nanos(2_000_000);

/// Datagrams by which loss is told.
const MEMORY: f64 = 1000.0;
/// Before anything is known one in a hundred is taken to be lost: what guards the first messages costs little.
const PRIOR: f64 = 50.0;
const PRIOR_LOST: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_learns_its_times_and_its_loss() {
        let mut path = Path::new(None, 1, 66, Nanos::ZERO);
        assert_eq!((path.timeout(), path.parity(1, path.timeout())), (FIRST_TIMEOUT, 1));
        for at in 0..1000_u64 {
            let now = Nanos(at * 1_000_000);
            path.on_sent(now, 9000);
            if at % 10 == 0 {
                path.on_lost(9000);
            } else {
                path.on_arrived(9000);
            }
            path.on_rtt(now, Nanos(50_000_000 + at % 7 * 100_000));
        }
        assert_eq!(path.flying(), 0);
        assert!((path.loss() - 0.1).abs() < 0.02 && path.parity(30, path.timeout()) > 5);
        assert!(path.timeout() > Nanos(50_000_000) && path.timeout() < Nanos(60_000_000));
    }

    #[test]
    fn a_path_that_loses_nothing_gets_no_parity() {
        let mut path = Path::new(None, 1, 66, Nanos::ZERO);
        for _ in 0..1000 {
            path.on_sent(Nanos::ZERO, 9000);
            path.on_arrived(9000);
        }
        assert_eq!(path.parity(64, path.timeout()), 0);
    }

    #[test]
    fn parity_is_sent_where_repairs_cost_more() {
        // A path where round trips take so long, and one datagram of so many is lost.
        let parities = |rtt: u64, one_of: u64| {
            let mut path = Path::new(None, 1, 66, Nanos::ZERO);
            for at in 0..5000_u64 {
                path.on_sent(Nanos(at), 9000);
                if at % one_of == 1 {
                    path.on_lost(9000);
                } else {
                    path.on_arrived(9000);
                }
                path.on_rtt(Nanos(at), Nanos(rtt));
            }
            [1, 8, 64].map(|pieces| path.parity(pieces, path.timeout()))
        };
        assert_eq!(parities(400_000, 300), [0, 1, 2]);
        assert_eq!(parities(400_000, 50), [1, 2, 4]);
        assert_eq!(parities(20_000_000, 300), [1, 1, 2]);
        assert_eq!(parities(366_000_000, 10_000), [0, 0, 0]);
    }

    #[test]
    fn a_job_that_was_suspended_for_an_hour_asks_within_seconds() {
        let mut path = Path::new(None, 1, 66, Nanos::ZERO);
        let mut now = Nanos::ZERO;
        for rtt in [20_000_000, 3_600_000_000_000] {
            now = now.after(Nanos(rtt));
            path.on_rtt(now, Nanos(rtt));
        }
        assert!(path.timeout() < Nanos(2_000_000_000), "{}", path.timeout());
    }

    #[test]
    fn a_known_rate_is_kept() {
        let mut path = Path::new(BitsPerSec::new(1_000_000_000), 1, 66, Nanos::ZERO);
        let (mut now, mut sent) = (Nanos::ZERO, 0_u64);
        while now < Nanos(1_000_000_000) {
            now = path.paced_until().max(now);
            assert!(path.has_room());
            path.on_sent(now, 8972);
            path.on_arrived(8972);
            sent += 9000;
        }
        assert!((124_000_000..126_500_000).contains(&sent), "{sent}");
    }
}
