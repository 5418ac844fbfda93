//! How a session goes, a line a receiver, on standard error.

use std::collections::BTreeMap;

use farlink_cast::group::Group;
use farlink_cast::send::{Peer, Progress};
use farlink_wire::quantity::Bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::telling::name;

/// The table, where somebody looks.
#[derive(Debug)]
pub(super) struct Table {
    bar: Option<ProgressBar>,
    /// Of each group, as it stood last.
    groups: BTreeMap<String, String>,
}

impl Table {
    pub(super) fn new(live: bool) -> Self {
        let bar = live.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        Self { bar, groups: BTreeMap::new() }
    }

    /// Shows how it stands.
    pub(super) fn show(&mut self, group: Group, progress: &Progress) {
        if let Some(bar) = &self.bar {
            self.groups.insert(group.to_string(), rows(progress));
            let shown: Vec<_> = match self.groups.len() {
                1 => self.groups.values().cloned().collect(),
                _ => self.groups.iter().map(|(group, rows)| format!("{group}\n{rows}")).collect(),
            };
            bar.set_message(shown.join("\n"));
            bar.tick();
        }
    }

    /// Says something above it.
    pub(super) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Nothing more comes.
    pub(super) fn close(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// A head, and a row for each receiver: those that are behind first, and no more than fit a screen.
fn rows(progress: &Progress) -> String {
    let mut text = format!(
        "{:>6.1} s  {} products, {} sent, {} again",
        progress.seconds,
        progress.products,
        Bytes(progress.totals.first_pass),
        Bytes(progress.totals.multicast_repair + progress.totals.unicast_repair),
    );
    if let Some(rate) = progress.rate {
        text += &format!(", at {rate}");
    }
    let mut peers: Vec<&Peer> = progress.peers.values().collect();
    peers.sort_by_key(|peer| std::cmp::Reverse((peer.is_there, peer.behind, peer.report.lost)));
    if !peers.is_empty() {
        text += &format!(
            "\n{:<32} {:>10} {:>10} {:>9} {:>8}",
            "receiver", "received", "repaired", "lost", "behind"
        );
    }
    for peer in peers.iter().take(ROWS) {
        let loss = 100.0 * peer.report.lost as f64 / peer.report.packets.max(1) as f64;
        let behind = if peer.is_there { peer.behind.to_string() } else { "gone".to_owned() };
        text += &format!(
            "\n{:<32} {:>10} {:>10} {:>8.3}% {:>8}",
            name(peer),
            Bytes(peer.report.bytes).to_string(),
            Bytes(peer.repaired).to_string(),
            loss,
            behind
        );
    }
    if peers.len() > ROWS {
        text += &format!("\nand {} more", peers.len() - ROWS);
    }
    text
}

/// Rows that are shown at a time.
const ROWS: usize = 20;
