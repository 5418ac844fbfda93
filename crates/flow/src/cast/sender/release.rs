//! When a product is held no longer.

use farlink_wire::message::Text;
use farlink_wire::quantity::Nanos;

use super::held::Held;
use super::peer::Peer;
use super::{Send, Sender};

impl Sender {
    /// Drops a product that every receiver has. Without receivers nobody has it.
    pub(super) fn release_if_settled(&mut self, now: Nanos, product: u32) {
        let Some(held) = self.held.get(&product) else { return };
        if held.waiting > 0 || self.peers.is_empty() {
            return;
        }
        self.release(now, product);
    }

    /// Products that nobody waits for any more, at `now` at the latest: to those who do they are gone.
    pub(super) fn expire(&mut self, now: Nanos) {
        while let Some((at, product)) = self.expiries.first().copied()
            && at <= now
        {
            self.release(now, product);
        }
        let most = self.config.most_held + self.queue.len();
        while self.held.len() > most
            && let Some((_, product)) = self.expiries.first().copied()
        {
            self.release(now, product);
        }
    }

    /// To a receiver that hears nothing of the group what was sent to it is gone: it catches up over its connection.
    pub(super) fn release_to_deaf(&mut self, now: Nanos, receiver: u32) {
        let Some(peer) = self.peers.get(&receiver) else { return };
        // A sender that was kept from sending anything has told nobody anything.
        let silence = self.spoken_at.since(peer.heard_at);
        if silence < DEAF || peer.behind == 0 || now.since(peer.deaf_at) < DEAF_AGAIN {
            return;
        }
        // Where most hear nothing a tree is broken, or is being made: what is sent to each of them is sent to all once it is there.
        let is_deaf = |peer: &&Peer| self.spoken_at.since(peer.heard_at) >= DEAF;
        let many = self.peers.len();
        let deaf = self.peers.values().filter(is_deaf).count();
        if silence < DEAF_TOGETHER && deaf >= A_TREE && 2 * deaf > many {
            return;
        }
        let Some(peer) = self.peers.get_mut(&receiver) else { return };
        peer.deaf_at = now;
        let mut gone = Vec::new();
        for (product, held) in self.held.iter_mut().filter(|(_, held)| held.until.is_some()) {
            if held.settle(peer.place) {
                self.waiting -= peer.forget(*product);
                peer.owe(*product);
                gone.push(*product);
            }
        }
        peer.behind = 0;
        if gone.is_empty() {
            return;
        }
        self.totals.gone += gone.len() as u64;
        self.tell_gone(receiver);
        gone.into_iter().for_each(|product| self.release_if_settled(now, product));
    }

    fn release(&mut self, now: Nanos, product: u32) {
        let Some(held) = self.held.remove(&product) else { return };
        self.forget_first_pass(product, Some(&held));
        self.archive.insert(product, held.shape);
        let mut gone = Vec::new();
        for (receiver, peer) in &mut self.peers {
            if !held.is_settled(peer.place) {
                self.waiting -= peer.forget(product);
                peer.behind -= u64::from(held.is_passed());
                peer.owe(product);
                gone.push(*receiver);
                self.totals.gone += 1;
            }
        }
        gone.into_iter().for_each(|receiver| self.tell_gone(receiver));
        // Of the numbers between, the names are kept as well: few that can still be had must not keep all of those.
        while let Some(oldest) = self.archive.oldest()
            && product.saturating_sub(oldest) >= MOST_ARCHIVED
        {
            self.on_unreadable(oldest, &Text::from("the sender has forgotten it".to_owned()));
        }
        // Also where those were lost, and not forgotten: else whoever joins is told of each, however old the feed is.
        if self.first < product.saturating_sub(MOST_ARCHIVED - 1) {
            self.first = self.oldest();
            self.superseded.remove(0..self.first.into());
        }
        self.pending.push_back(Send::Released { product });
        self.wake_status(now);
    }

    /// Takes a product out of what is to be sent, and out of what expires.
    pub(super) fn forget_first_pass(&mut self, product: u32, held: Option<&Held>) {
        self.needy.remove(&product);
        if let Some(until) = held.and_then(|held| held.until) {
            self.expiries.remove(&(until, product));
        } else {
            self.queue.retain(|queued| *queued != product);
        }
    }
}

/// After what time without a packet of the group a receiver hears nothing of it: something is sent to it each second.
const DEAF: Nanos = Nanos(3_000_000_000);

/// The same of one among many: routers take some seconds to make another tree.
const DEAF_TOGETHER: Nanos = Nanos(12_000_000_000);

/// Fewer than these cost less alone.
const A_TREE: usize = 3;

/// How often what was sent meanwhile is found to be gone for it: that looks at everything that is held.
const DEAF_AGAIN: Nanos = Nanos(200_000_000);

/// The last products that can still be had when they are held no longer: 32 MB of shapes, which are days of a feed.
const MOST_ARCHIVED: u32 = if cfg!(test) { 64 } else { 1 << 20 };
