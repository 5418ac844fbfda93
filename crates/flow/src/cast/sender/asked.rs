//! What receivers ask a sender for.

use farlink_wire::cast::control::{MOST_RUNS, Want};
use farlink_wire::message::Text;
use farlink_wire::quantity::Nanos;

use super::held::{Held, shape};
use super::{Send, Sender};

impl Sender {
    /// A receiver lacks something. It is dealt with when the others have had the time to say that they lack it too.
    pub fn on_nack(&mut self, now: Nanos, receiver: u32, wants: Vec<Want>) {
        let several = self.peers.len() > 1;
        let Some(peer) = self.peers.get_mut(&receiver) else { return };
        peer.progress.nacks += 1;
        self.totals.nacks += 1;
        // One that does not keep to its pace has no more to say than the others.
        if peer.unheard < MOST_UNHEARD {
            peer.unheard += 1;
            self.unheard.push((now, receiver, wants));
            let at = if several { now.after(LISTEN.max(self.pace())) } else { now };
            self.listen_until = self.listen_until.min(at);
        }
    }

    /// Deals with what was asked for, when that has been collected for long enough.
    pub(super) fn listen(&mut self, now: Nanos) {
        if now < self.listen_until {
            return;
        }
        self.listen_until = Nanos::MAX;
        for (came, receiver, wants) in std::mem::take(&mut self.unheard) {
            self.heed(now, came, receiver, &wants);
        }
    }

    /// Tells a receiver of the products that are held no longer.
    pub(super) fn tell_gone(&mut self, receiver: u32) {
        let Some(peer) = self.peers.get_mut(&receiver) else { return };
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for product in std::mem::take(&mut peer.gone) {
            match runs.last_mut() {
                Some((first, count)) if first.checked_add(*count) == Some(product) => *count += 1,
                _ => runs.push((product, 1)),
            }
        }
        for runs in runs.chunks(MOST_RUNS) {
            self.pending.push_back(Send::Gone { receiver, runs: runs.to_vec() });
        }
    }

    /// Takes what a receiver lacks into account.
    fn heed(&mut self, now: Nanos, came: Nanos, receiver: u32, wants: &[Want]) {
        let Some(peer) = self.peers.get_mut(&receiver) else { return };
        peer.unheard = peer.unheard.saturating_sub(1);
        let payload = self.config.payload;
        let mut lost = Vec::new();
        for want in wants {
            let product = want.product;
            let is_owed = peer.owed.contains(&product);
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
                    // Content that was damaged is wanted once more, whatever was sent.
                    let wanted = if want.catch_up { vec![packets] } else { peer.not_sent(product, packets) };
                    for packets in wanted {
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
                        self.waiting += peer.want(product, all.touched(payload, *range));
                    }
                } else {
                    peer.gone.insert(product);
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
            let reason = Text::from("the sender has forgotten it".to_owned());
            self.pending.push_back(Send::Lost { receiver, product, reason });
        }
        self.tell_gone(receiver);
        self.wake_status(now);
    }
}

/// How long NACKs are collected at least: receivers that lost the same packet say so within a millisecond or two of each other (a large
/// group within its pace), or are so far apart that repairing it twice costs less than waiting.
const LISTEN: Nanos = Nanos(2_000_000);

/// Frames of one receiver that are collected: it sends one a millisecond at most.
const MOST_UNHEARD: u32 = 4;
