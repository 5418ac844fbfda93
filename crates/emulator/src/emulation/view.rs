//! How an emulation stands, gathered from its engines and hosts.

use std::net::IpAddr;
use std::sync::PoisonError;

use farlink_host::process;
use farlink_host::scheduling::Scheduling;
use farlink_link::background::Background;
use farlink_link::{Conditions, Loss};
use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos};
use serde_json::{Map, Value};

use super::{Guest, Inner};
use crate::change::Target;
use crate::engine::{LinkShown, Shown};
use crate::path::Path;
use crate::plan::{Plan, ipv4, ipv6, round_trip};
use crate::state::{BackgroundDropped, CORE, Dropped, HostState, LinkState, State};

/// Who asks how an emulation stands.
#[derive(Clone, Debug)]
pub(crate) enum Asker<'a> {
    /// The host at this place: it is told of its paths, too.
    Host(usize),
    /// Its user, of a part.
    Owner(&'a Target),
}

impl Inner {
    /// How it stands now, to who asks.
    pub(crate) fn state(&self, asker: &Asker<'_>) -> State {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shown: Vec<Shown> = self.engines.iter().filter_map(super::Controls::show).collect();
        let cpu = shown.iter().map(|shown| shown.cpu.as_secs_f64()).sum();
        let mut cut: Vec<[usize; 2]> = shown.iter().flat_map(|shown| shown.cut.clone()).collect();
        cut.sort_unstable();
        // Two hosts have two engines, each of which knows.
        cut.dedup();
        let groups: Vec<Vec<IpAddr>> = shown.iter().flat_map(|shown| shown.groups.clone()).collect();
        let hosts = self.hosts.iter().enumerate().map(|(index, host)| HostState {
            name: host.name.clone(),
            ipv4: ipv4(index).to_string(),
            ipv6: ipv6(index).to_string(),
            groups: groups.get(index).into_iter().flatten().map(IpAddr::to_string).collect(),
        });
        let links: Vec<LinkShown> = shown.into_iter().flat_map(|shown| shown.links).collect();
        let shortest = self.pairs().map(|(from, to)| self.path(from, to, &plan, &links).overrun_limit_s);
        let Conditions { rate, loss, framing, mtu, background, .. } = plan.path;
        State {
            seed: plan.seed,
            rate_bps: rate.map_or(0, BitsPerSec::get),
            goodput_bps: rate.map_or(0.0, |rate| framing.goodput(rate, mtu)),
            rtt_s: round_trip(&plan.path).as_secs_f64(),
            loss: loss.mean(),
            queue_bytes: plan.conditions().queue_bytes().unwrap_or(0),
            background_bps: background.as_ref().map_or(0, Background::mean_bps),
            framing: framing.to_string(),
            mtu,
            asked: asked(&plan),
            scheduling: match &self.scheduling {
                Scheduling::Fifo => "fifo".to_owned(),
                Scheduling::RoundRobin => "rr".to_owned(),
                Scheduling::Other { reason } => format!("other: {reason}"),
            },
            overrun_limit_s: shortest.reduce(f64::min).unwrap_or_default(),
            cpu_s: cpu,
            stolen_s: process::stolen().map(Nanos::as_secs_f64),
            notes: self.notes.clone(),
            hosts: hosts.collect(),
            links: (links.iter().enumerate())
                .filter(|(place, _)| self.concerns(*place, asker))
                .map(|(place, link)| self.link_state(place, link))
                .collect(),
            cut_pairs: cut.iter().map(|pair| pair.map(|host| self.hosts[host].name.clone())).collect(),
            paths: match *asker {
                Asker::Host(here) => (self.pairs().filter(|(from, _)| *from == here))
                    .map(|(_, to)| self.path(here, to, &plan, &links))
                    .collect(),
                Asker::Owner(_) => Vec::new(),
            },
            name: plan.name,
            congestion: plan.congestion,
        }
    }

    /// Every two hosts, either way.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let hosts = 0..self.hosts.len();
        hosts
            .clone()
            .flat_map(move |from| hosts.clone().map(move |to| (from, to)))
            .filter(|(from, to)| from != to)
    }

    /// The path from one host to another.
    fn path(&self, from: usize, to: usize, plan: &Plan, links: &[LinkShown]) -> Path {
        let one_way = |from: usize, to: usize| -> Vec<Conditions> {
            self.topology().path(from, to).filter_map(|place| Some(links.get(place)?.conditions)).collect()
        };
        Path::new(&self.hosts[to].name, plan, &one_way(from, to), &one_way(to, from))
    }

    /// Whether who asks wants to see the link at `place`.
    fn concerns(&self, place: usize, asker: &Asker<'_>) -> bool {
        let (from, to) = self.topology().ends(place);
        let is_end = |host: &str| [from, to].iter().flatten().any(|end| self.hosts[*end].name == host);
        match asker {
            Asker::Host(_) | Asker::Owner(Target::All) => true,
            Asker::Owner(Target::Host(host)) => is_end(host),
            Asker::Owner(Target::Pair(one, other)) => is_end(one) || is_end(other),
        }
    }

    fn link_state(&self, place: usize, link: &LinkShown) -> LinkState {
        let (from, to) = self.topology().ends(place);
        let name = |host: Option<usize>| host.map_or(CORE, |host| self.hosts[host].name.as_str()).to_owned();
        let counters = &link.counters;
        LinkState {
            from: name(from),
            to: name(to),
            rate_bps: link.conditions.rate.map_or(0, BitsPerSec::get),
            delay_s: link.conditions.delay.as_secs_f64(),
            loss: link.conditions.loss.mean(),
            cut: link.conditions.is_cut,
            packets: counters.packets,
            segments: counters.segments,
            bytes: counters.bytes,
            dropped: Dropped {
                queue: counters.dropped_queue,
                loss: counters.dropped_loss,
                cut: counters.dropped_cut,
                unread: from.map_or(0, |host| self.hosts[host].unread()),
            },
            background_packets: counters.background_packets,
            background_dropped: BackgroundDropped {
                queue: counters.background_dropped_queue,
                cut: counters.background_dropped_cut,
            },
            corrupted: counters.corrupted,
            duplicated: counters.duplicated,
            reordered: counters.reordered,
            refused: link.refused,
            multicast_packets: link.multicast.packets,
            multicast_segments: link.multicast.segments,
            multicast_unwanted: link.multicast.unwanted,
            queue_bytes: link.queue_bytes,
            queue_max_bytes: link.queue_most_bytes,
            late: link.lateness.buckets().map(|(bound, count)| (bound.as_secs_f64(), count)).collect(),
        }
    }
}

impl Guest {
    /// Packets that the host's device dropped before the emulator could read them.
    fn unread(&self) -> u64 {
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        netlink.counters(self.index).map_or(0, |counters| counters.tx_dropped)
    }
}

/// What was asked beyond rate, RTT and sizes, in the words of the command line.
fn asked(plan: &Plan) -> Map<String, Value> {
    // Every field is named, so that what is added to a path is told of here, or is said to stand elsewhere.
    let Conditions {
        queue,
        loss,
        jitter,
        reorder,
        duplicate,
        corrupt,
        background,
        rate: _,
        delay: _,
        framing: _,
        mtu: _,
        is_cut: _,
    } = plan.path;
    let words = [
        ("queue", Some(queue.to_string())),
        ("loss", (loss != Loss::None).then(|| loss.to_string())),
        ("jitter", (jitter.0 > 0).then(|| jitter.to_string())),
        ("reorder", (reorder.share.get() > 0.0).then(|| reorder.to_string())),
        ("duplicate", (duplicate.get() > 0.0).then(|| duplicate.to_string())),
        ("corrupt", (corrupt.get() > 0.0).then(|| corrupt.to_string())),
        ("background", background.as_ref().map(Background::to_string)),
        ("prefault", plan.prefault.as_ref().map(Bytes::to_string)),
    ];
    words.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into()))).collect()
}
