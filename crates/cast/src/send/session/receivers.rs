//! Receivers as they come, speak, and go.

use std::net::SocketAddr;

use farlink_host::clock::monotonic;
use farlink_mover::facts;
use farlink_wire::cast::control::{BlockPackets, Control, Join, Leave, Report, Welcome, Words};
use farlink_wire::message::copy::Protect;
use farlink_wire::quantity::Nanos;

use super::Session;
use crate::door::Heard;
use crate::send::{Notice, Peer};

impl Session<'_> {
    /// The door tells something of a receiver.
    pub(super) fn hear(&mut self, receiver: u32, heard: Heard, tell: &mut dyn FnMut(Notice<'_>)) {
        let now = monotonic();
        self.heard_at.insert(receiver, now);
        match heard {
            Heard::Join(join, at) => self.admit(now, receiver, *join, at, tell),
            Heard::Nack(wants) => self.machine.on_nack(now, receiver, wants),
            Heard::Have(runs) => self.machine.on_have(now, receiver, &runs),
            Heard::Report(report) => {
                self.machine.on_report(receiver, report);
                if let Some(peer) = self.progress.peers.get_mut(&receiver) {
                    peer.report = report;
                }
            }
            Heard::Failed(product, reason) => {
                self.machine.on_failed(now, receiver, product);
                let path = self.products.path(product).to_owned();
                if let Some(peer) = self.progress.peers.get(&receiver) {
                    tell(Notice::NotStored { peer, path, reason });
                }
            }
            Heard::Writable => self.machine.on_writable(receiver, true),
            Heard::Left(leave) => self.part(now, receiver, leave, tell),
            Heard::Refused(from, reason) => tell(Notice::Refused { from, reason }),
        }
    }

    fn admit(
        &mut self,
        now: Nanos,
        receiver: u32,
        join: Join,
        at: SocketAddr,
        tell: &mut dyn FnMut(Notice<'_>),
    ) {
        // One that was lost, or was killed and starts anew, is there again.
        let before = self
            .lost
            .iter()
            .position(|(lost, _)| self.progress.peers.get(lost).is_some_and(|peer| peer.at.ip() == at.ip()));
        match before {
            Some(place) => {
                let (lost, _) = self.lost.swap_remove(place);
                self.progress.peers.remove(&lost);
            }
            None => self.joined += 1,
        }
        let first = self.machine.oldest();
        self.machine.on_join(now, receiver, first);
        let welcome = Welcome {
            host: facts::host(),
            session: self.id,
            key: self.key,
            protect: Protect::Encrypt,
            payload: self.payload,
            block: BlockPackets::default(),
            number: self.sealer.next(),
            first,
            position: self.machine.position(),
            pace: self.machine.pace(),
        };
        self.outbox.say(receiver, &Control::Words(Words::Welcome(Box::new(welcome))));
        if self.progress.is_all {
            let products = self.products.count();
            self.outbox.say(receiver, &Control::Words(Words::End { products }));
        }
        self.keep_pace();
        let peer = Peer {
            host: join.host,
            at,
            first,
            report: Report::default(),
            products: 0,
            failed: 0,
            repaired: 0,
            behind: 0,
            is_there: true,
            leave: None,
            is_short: true,
        };
        tell(Notice::Joined(&peer));
        self.progress.peers.insert(receiver, peer);
    }

    /// Tells those who have joined before that there are so many now that each must say less.
    fn keep_pace(&mut self) {
        let pace = self.machine.pace();
        if pace.0 < self.pace.0.saturating_add(self.pace.0 / 2) {
            return;
        }
        let is_first = std::mem::replace(&mut self.pace, pace) == Nanos::ZERO;
        for (receiver, _) in self.progress.peers.iter().filter(|(_, peer)| peer.is_there && !is_first) {
            self.outbox.say(*receiver, &Control::Words(Words::Pace(pace)));
        }
    }

    /// A receiver is there no longer.
    fn part(&mut self, now: Nanos, receiver: u32, leave: Option<Leave>, tell: &mut dyn FnMut(Notice<'_>)) {
        self.look_at(receiver);
        self.machine.on_leave(now, receiver);
        self.heard_at.remove(&receiver);
        let Some(peer) = self.progress.peers.get_mut(&receiver) else { return };
        let wanted = self.products.count() - peer.first;
        let has = leave.map_or(0, |leave| leave.products.saturating_add(leave.failed));
        peer.is_there = false;
        peer.leave = leave;
        peer.failed = peer.failed.max(leave.map_or(0, |leave| leave.failed.into()));
        peer.is_short = !self.progress.is_all || has < wanted;
        if leave.is_none() {
            self.lost.push((receiver, now.after(self.plan.patience)));
        }
        tell(Notice::Left(peer));
    }

    /// Has those leave who said nothing for too long: their hosts are gone, though no connection has ended.
    pub(super) fn dismiss_silent(&mut self, now: Nanos, tell: &mut dyn FnMut(Notice<'_>)) {
        let patience = self.plan.patience;
        let silent: Vec<_> = self
            .heard_at
            .iter()
            .filter(|(receiver, at)| {
                now.since(**at) > patience
                    && self.progress.peers.get(receiver).is_some_and(|peer| peer.is_there)
            })
            .map(|(receiver, _)| *receiver)
            .collect();
        for receiver in silent {
            self.outbox.close(receiver);
            self.part(now, receiver, None, tell);
        }
    }

    /// How a receiver stands, as the machine knows it.
    pub(super) fn look_at(&mut self, receiver: u32) {
        let (Some(peer), Some(progress)) =
            (self.progress.peers.get_mut(&receiver), self.machine.progress(receiver))
        else {
            return;
        };
        peer.products = progress.products;
        peer.failed = progress.failed;
        peer.repaired = progress.repaired;
        peer.behind = progress.behind;
    }
}
