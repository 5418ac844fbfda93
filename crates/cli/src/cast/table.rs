//! How a session goes, a line a receiver, on standard error.

use std::collections::BTreeMap;

use farlink_cast::group::Group;
use farlink_cast::send::{Peer, Progress};
use farlink_wire::quantity::Bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::tell;

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
            Some(bar) => bar.suspend(|| tell(text)),
            None => tell(text),
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
            Bytes(peer.report.repaired).to_string(),
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

/// A receiver, as people know it.
pub(super) fn name(peer: &Peer) -> String {
    format!("{} ({})", peer.host.name, peer.at.ip())
}

#[cfg(test)]
mod tests {
    use farlink_wire::cast::Position;
    use std::net::SocketAddr;

    use farlink_cast::send::Peer;
    use farlink_wire::cast::control::Report;
    use farlink_wire::message::{Host, Text};
    use farlink_wire::quantity::BitsPerSec;

    use super::*;

    fn peer(name: &str, behind: u64) -> Peer {
        let text = |text: &str| Text::from(text.to_owned());
        let host = Host { name: text(name), kernel: text("6.1"), cores: 2, clock: text("tsc") };
        let report =
            Report { packets: 2000, lost: 3, bytes: 2 << 20, repaired: 4 << 10, ..Report::default() };
        Peer {
            host,
            number: 1,
            place: None,
            at: SocketAddr::from(([10, 0, 0, 2], 40_000)),
            wanted: 0,
            joined: Position { product: 0, offset: 0 },
            report,
            rtt: farlink_wire::quantity::Nanos::ZERO,
            products: 4,
            failed: 0,
            repaired: 1_000,
            behind,
            is_there: true,
            leave: None,
            is_short: true,
        }
    }

    #[test]
    fn a_table_has_a_head_and_those_that_are_behind_first() {
        let mut progress = Progress { products: 5, seconds: 1.25, ..Progress::default() };
        assert_eq!(rows(&progress), "   1.2 s  5 products, 0B sent, 0B again");
        progress.rate = BitsPerSec::new(600_000_000);
        let gone = Peer { is_there: false, ..peer("gone", 9) };
        progress.peers = [(1, peer("near", 0)), (2, gone), (3, peer("far", 2))].into();
        let table = rows(&progress);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(table.lines().next().is_some_and(|head| head.ends_with(" again, at 600mbit")), "{table}");
        assert_eq!(lines[1], ["receiver", "received", "repaired", "lost", "behind"]);
        // What it said of repairs, to the group and rebuilt too, and not what was sent to it alone.
        assert_eq!(lines[2], ["far", "(10.0.0.2)", "2MiB", "4KiB", "0.150%", "2"]);
        assert_eq!((lines[3][0], lines[4][0], lines[4].last()), ("near", "gone", Some(&"gone")));
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn no_more_rows_are_shown_than_fit_a_screen() {
        let peers = (0..57).map(|number| (number, peer("b", u64::from(number)))).collect();
        let table = rows(&Progress { peers, ..Progress::default() });
        assert_eq!(table.lines().count(), 2 + ROWS + 1);
        assert_eq!(table.lines().last(), Some("and 37 more"));
    }
}
