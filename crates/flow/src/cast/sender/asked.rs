//! What receivers ask a sender for.

use farlink_wire::cast::control::{MOST_RUNS, Want};
use farlink_wire::message::Text;
use farlink_wire::quantity::Nanos;

use super::archive::one;
use super::held::{Held, shape};
use super::{Send, Sender};

/// What a receiver asked for, and when.
#[derive(Debug)]
pub(super) struct Asked {
    came: Nanos,
    receiver: u32,
    /// The last first.
    wants: Vec<Want>,
}

impl Asked {
    fn new(came: Nanos, receiver: u32, mut wants: Vec<Want>) -> Self {
        wants.reverse();
        Self { came, receiver, wants }
    }

    /// Takes wants with so many ranges out, or all.
    fn take(&mut self, most: usize) -> Vec<Want> {
        let (mut part, mut room) = (Vec::new(), most);
        while room > 0
            && let Some(mut want) = self.wants.pop()
        {
            if want.ranges.len() > room {
                let rest = want.ranges.split_off(room);
                let Want { product, again, catch_up, .. } = want;
                self.wants.push(Want { product, again, catch_up, ranges: rest });
            }
            room -= want.ranges.len().min(room);
            part.push(want);
        }
        part
    }
}

impl Sender {
    /// A receiver lacks something. It is dealt with when the others have had the time to say that they lack it too.
    pub fn on_nack(&mut self, now: Nanos, receiver: u32, wants: Vec<Want>) {
        let several = self.peers.len() > 1;
        let Some(peer) = self.peers.get_mut(&receiver) else { return };
        peer.progress.nacks += 1;
        self.totals.nacks += 1;
        // Content that was damaged is wanted once more, whatever was sent: also where this frame is not heeded.
        for want in wants.iter().filter(|want| want.catch_up && !want.again) {
            want.ranges.iter().for_each(|range| peer.mark_unsent(want.product, self.config.payload, *range));
        }
        // One that does not keep to its pace has no more to say than the others.
        if peer.unheard < MOST_UNHEARD {
            peer.unheard += 1;
            self.unheard.push(Asked::new(now, receiver, wants));
            let at = if several { now.after(LISTEN.max(self.pace())) } else { now };
            self.listen_until = self.listen_until.min(at);
        }
    }

    /// Deals with a part of what was asked for, when that has been collected for long enough: all of it may take many times as long as
    /// the sender may be late with the next packet.
    pub(super) fn listen(&mut self, now: Nanos) {
        if now >= self.listen_until {
            self.listen_until = Nanos::MAX;
            self.heeding.extend(self.unheard.drain(..));
        }
        let Some(asked) = self.heeding.front_mut() else { return };
        let (came, receiver) = (asked.came, asked.receiver);
        let part = asked.take(AT_ONCE);
        if asked.wants.is_empty() {
            self.heeding.pop_front();
            if let Some(peer) = self.peers.get_mut(&receiver) {
                peer.unheard = peer.unheard.saturating_sub(1);
            }
        }
        self.heed(now, came, receiver, &part);
    }

    /// Tells a receiver of the products that are held no longer.
    pub(super) fn tell_gone(&mut self, receiver: u32) {
        let Some(peer) = self.peers.get_mut(&receiver) else { return };
        let gone = std::mem::take(&mut peer.gone);
        let runs: Vec<_> = gone.iter().map(|run| (run.start as u32, (run.end - run.start) as u32)).collect();
        for runs in runs.chunks(MOST_RUNS) {
            self.pending.push_back(Send::Gone { receiver, runs: runs.to_vec() });
        }
    }

    /// Takes what a receiver lacks into account.
    fn heed(&mut self, now: Nanos, came: Nanos, receiver: u32, wants: &[Want]) {
        let Some(peer) = self.peers.get_mut(&receiver) else { return };
        let payload = self.config.payload;
        let mut lost = Vec::new();
        for want in wants {
            let product = want.product;
            let is_owed = peer.owed.contains(product.into());
            if !is_owed && let Some(held) = self.held.get_mut(&product) {
                if held.is_settled(peer.place) {
                    continue;
                }
                for range in &want.ranges {
                    let packets = held.touched(payload, *range);
                    if !want.again {
                        peer.ask((packets.end - packets.start) * u64::from(payload.get()));
                    }
                    let rtt = peer.progress.report.rtt;
                    for packets in peer.not_sent(product, packets) {
                        for packets in held.not_repeated(came, packets, rtt) {
                            // What waits for it already is counted already.
                            let counted = want.again && peer.is_full();
                            for packets in peer.not_waiting(product, packets) {
                                held.lacking.add(packets.clone(), counted);
                                self.waiting += peer.want(product, packets);
                            }
                        }
                    }
                }
                if !held.lacking.is_empty() {
                    self.needy.insert(product);
                }
            } else if let Some(shape) = shape(&self.archive, &self.held, product) {
                // Where it is owed none, it said since that it has the product.
                if !is_owed {
                    continue;
                }
                if want.catch_up {
                    let mut all = Held::new(shape, payload, 0);
                    all.sent = all.packets;
                    for range in &want.ranges {
                        let packets = all.touched(payload, *range);
                        if !want.again {
                            peer.ask_late((packets.end - packets.start) * u64::from(payload.get()));
                        }
                        for packets in peer.not_sent(product, packets) {
                            self.waiting += peer.want(product, packets);
                        }
                    }
                } else {
                    peer.gone.insert(one(product));
                }
            } else if product < self.next_product {
                lost.push(product);
            }
        }
        if !peer.wanted.is_empty() && !peer.has_turn {
            peer.has_turn = true;
            self.turns.push(peer.round(self.totals.first_pass, payload), receiver);
        }
        self.nothing_from = None;
        for product in lost {
            let is_superseded = self.superseded.contains(product.into());
            self.pending.push_back(if is_superseded {
                Send::Superseded { receiver, product }
            } else {
                Send::Lost { receiver, product, reason: Text::from(NOT_READ.to_owned()) }
            });
        }
        self.tell_gone(receiver);
        self.wake_status(now);
    }
}

/// How long NACKs are collected at least: receivers that lost the same packet say so within a millisecond or two of each other (a large
/// group within its pace), or are so far apart that repairing it twice costs less than waiting.
const LISTEN: Nanos = Nanos(2_000_000);

const NOT_READ: &str = "the sender could not read it, or has forgotten it";

/// Frames of one receiver that are collected: it sends one a millisecond at most.
const MOST_UNHEARD: u32 = 4;

/// Ranges that are dealt with at a time: some tenths of a millisecond.
const AT_ONCE: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_comes_apart_without_loss() {
        let want = |product: u32, ranges: u64| Want {
            product,
            again: product == 2,
            catch_up: false,
            ranges: (0..ranges).map(|range| (range, 1)).collect(),
        };
        let mut asked = Asked::new(Nanos(7), 3, vec![want(1, 3), want(2, 300), want(3, 0), want(4, 1)]);
        let mut parts = Vec::new();
        while !asked.wants.is_empty() {
            let part = asked.take(AT_ONCE);
            assert!(!part.is_empty() && part.iter().map(|want| want.ranges.len()).sum::<usize>() <= AT_ONCE);
            parts.extend(part);
        }
        let ranges = |product: u32| {
            let of = parts.iter().filter(|want| want.product == product);
            of.inspect(|want| assert_eq!(want.again, product == 2))
                .flat_map(|want| want.ranges.clone())
                .count()
        };
        assert_eq!([1, 2, 3, 4].map(ranges), [3, 300, 0, 1]);
    }
}
