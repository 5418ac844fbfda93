//! Receivers that come and go, and what they say that they have.

use std::ops::RangeInclusive;

use farlink_wire::cast::control::Report;
use farlink_wire::quantity::Nanos;

use super::Sender;
use super::peer::{Peer, Progress};

impl Sender {
    /// A receiver takes part, and wants what is held from product `first` on; those before it was told it cannot have, or has. Its number
    /// is the caller's, and no other receiver's.
    pub fn on_join(&mut self, now: Nanos, receiver: u32, first: u32) {
        self.on_leave(now, receiver);
        let place = self.free_places.pop().unwrap_or(self.peers.len() as u32);
        let mut peer = Peer::new(place, now, self.totals.first_pass);
        for (product, held) in &mut self.held {
            held.admit(place);
            if *product < first {
                held.settle(place);
            } else {
                peer.behind += u64::from(held.is_passed());
            }
        }
        // What is in its first pass has paused for as long as nobody was there.
        if let Some(since) = self.deserted_at.take()
            && let Some(held) = self.queue.front().and_then(|product| self.held.get_mut(product))
        {
            held.begun = held.begun.map(|begun| begun.after(now.since(since)));
        }
        peer.owed = self.archive.from(first);
        peer.gone.clone_from(&peer.owed);
        self.peers.insert(receiver, peer);
        let receivers = self.peers.len();
        self.peers.values_mut().for_each(|peer| peer.share(receivers));
        let before: Vec<_> = self.held.range(..first).map(|(product, _)| *product).collect();
        before.into_iter().for_each(|product| self.release_if_settled(now, product));
        self.tell_gone(receiver);
        self.wake_status(now);
    }

    /// A receiver is there no longer. What it lacks, it may ask for when it joins again.
    pub fn on_leave(&mut self, now: Nanos, receiver: u32) {
        self.account(receiver, Report::default());
        let Some(peer) = self.peers.remove(&receiver) else { return };
        if self.peers.is_empty() {
            self.deserted_at = Some(now);
        }
        self.waiting -= peer.waiting();
        self.free_places.push(peer.place);
        let mut settled = Vec::new();
        for (product, held) in &mut self.held {
            if held.settle(peer.place) {
                settled.push(*product);
            }
        }
        for product in settled {
            self.release_if_settled(now, product);
        }
    }

    /// A receiver has these products: runs of first and count.
    pub fn on_have(&mut self, now: Nanos, receiver: u32, runs: &[(u32, u32)]) {
        for (first, count) in runs {
            let last = first.saturating_add(count - 1);
            if let Some(peer) = self.peers.get_mut(&receiver) {
                let had = peer.lost.remove(u64::from(*first)..u64::from(last) + 1);
                peer.progress.failed -= had;
                peer.progress.products += had;
            }
            self.settle(now, receiver, *first..=last, |progress, products| progress.products += products);
        }
    }

    /// A receiver cannot store a product: it alone goes without. Whether that is news.
    pub fn on_failed(&mut self, now: Nanos, receiver: u32, product: u32) -> bool {
        let failed = |progress: &mut Progress, products| progress.failed += products;
        self.settle(now, receiver, product..=product, failed) > 0
    }

    fn settle(
        &mut self,
        now: Nanos,
        receiver: u32,
        products: RangeInclusive<u32>,
        count: impl Fn(&mut Progress, u64),
    ) -> u64 {
        let Some(peer) = self.peers.get_mut(&receiver) else { return 0 };
        let mut settled = Vec::new();
        for (product, held) in self.held.range_mut(products.clone()) {
            if held.settle(peer.place) {
                peer.behind -= u64::from(held.is_passed());
                settled.push(*product);
            }
        }
        let range = u64::from(*products.start())..u64::from(*products.end()) + 1;
        let owed = peer.owed.remove(range.clone());
        peer.gone.remove(range);
        self.waiting -= peer.forget_all(products);
        let news = settled.len() as u64 + owed;
        count(&mut peer.progress, news);
        for product in settled {
            self.release_if_settled(now, product);
        }
        news
    }
}

#[cfg(test)]
mod tests;
