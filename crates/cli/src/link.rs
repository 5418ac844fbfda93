//! `farlink link`: how a running connection stands, and what it should be from now on.

use std::process::ExitCode;

use clap::Args;
use farlink_emulator::Change;
use farlink_emulator::change::Target;
use farlink_emulator::client::Client;
use farlink_emulator::state::{CORE, LinkState, State};
use farlink_wire::quantity::{BitsPerSec, Bytes, Fraction, Nanos};

use crate::emulate::socket;
use crate::output::print;
use crate::path_options::PathOptions;

/// Show a running connection, or change it.
///
/// NAME is the whole connection, NAME/c host c's access link (of three hosts or more), NAME/a..b the path between
/// two hosts, which can be cut and restored. On an emulated host NAME may be left out.
#[derive(Debug, Args)]
pub(crate) struct Link {
    /// Which: wan, wan/c or wan/a..b.
    #[arg(value_name = "NAME[/HOST]")]
    target: Option<String>,
    #[command(flatten)]
    path: PathOptions,
    /// Let nothing pass.
    #[arg(long, conflicts_with = "restore")]
    cut: bool,
    /// Let everything pass again.
    #[arg(long)]
    restore: bool,
    /// Print how it stands as one line of JSON.
    #[arg(long)]
    json: bool,
}

impl Link {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (name, part) = match self.target.as_deref().map(|target| target.split_once('/').ok_or(target)) {
            None => (None, Target::All),
            Some(Err(name)) => (Some(name), Target::All),
            Some(Ok((name, part))) => (Some(name), part.parse()?),
        };
        let change = Change {
            cut: match (self.cut, self.restore) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            ..self.path.into_change()
        };
        let client = match name {
            Some(name) => Client::named(&socket(), name)?,
            None => Client::here()?,
        };
        let state = if change.is_nothing() { client.show(part)? } else { client.change(part, change)? };
        if self.json {
            print(&format!("{}\n", serde_json::to_string(&state)?));
        } else {
            print(&table(&state));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// How it stands, for a person.
fn table(state: &State) -> String {
    let rate = |bps| BitsPerSec::new(bps).map(|rate| rate.to_string()).unwrap_or_default();
    let asked: Vec<_> = state
        .asked
        .iter()
        .map(|(name, text)| format!(", {name} {}", text.as_str().unwrap_or_default()))
        .collect();
    let mut text = format!(
        "{}: {}, RTT {}, {} framing, MTU {}{}, seed {}\n",
        state.name,
        rate(state.rate_bps),
        Nanos::from_secs_f64(state.rtt_s),
        state.framing,
        state.mtu,
        asked.concat(),
        state.seed
    );
    for link in &state.links {
        text.push_str(&row(link, state));
    }
    for [one, other] in &state.cut_pairs {
        text.push_str(&format!("  nothing passes between {one} and {other}: cut\n"));
    }
    for host in state.hosts.iter().filter(|host| !host.groups.is_empty()) {
        text.push_str(&format!("  {} has joined {}\n", host.name, host.groups.join(", ")));
    }
    text
}

fn row(link: &LinkState, state: &State) -> String {
    let dropped = link.dropped;
    let (median, p99) = (late(link, 0.5), late(link, 0.99));
    let own = own_conditions(link, state);
    let background = if link.background_packets == 0 {
        String::new()
    } else {
        let dropped = link.background_dropped;
        format!(
            " background {} packets, dropped {} by the queue, {} by a cut;",
            link.background_packets, dropped.queue, dropped.cut
        )
    };
    let multicast = match link.multicast_segments {
        0 => String::new(),
        copies if link.from == CORE => format!(" ({copies} copies of multicast)"),
        segments => format!(" ({segments} for groups, {} of them unwanted)", link.multicast_unwanted),
    };
    format!(
        "  {} to {}{own}{}: {} segments{multicast}, {}; dropped {} by the queue, {} by loss, {} by a cut, {} packets unread;{background} \
         queue {}, at most {}; late {median} (median), {p99} (99%)\n",
        link.from,
        link.to,
        if link.cut { " (cut)" } else { "" },
        link.segments,
        Bytes(link.bytes),
        dropped.queue,
        dropped.loss,
        dropped.cut,
        dropped.unread,
        Bytes(link.queue_bytes),
        Bytes(link.queue_max_bytes),
    )
}

/// What of a link's rate, delay and loss is not what the connection has.
fn own_conditions(link: &LinkState, state: &State) -> String {
    let mut own = String::new();
    if link.rate_bps != state.rate_bps {
        let rate = BitsPerSec::new(link.rate_bps).map(|rate| rate.to_string());
        own += &format!(" {}", rate.unwrap_or_default());
    }
    // A path over the core has two links each way.
    let links = if link.from == CORE || link.to == CORE { 2.0 } else { 1.0 };
    let differs = |one: f64, other: f64| (one - other).abs() > 1e-9;
    if differs(link.delay_s, state.rtt_s / 2.0 / links) {
        own += &format!(" delay {}", Nanos::from_secs_f64(link.delay_s));
    }
    // What is lost at random is so at each of them; of what is counted each has its share.
    let shares = [1.0 - (1.0 - state.loss).powf(1.0 / links), state.loss / links];
    if shares.iter().all(|share| differs(link.loss, *share)) {
        own += &format!(" loss {}", Fraction::new(link.loss).unwrap_or_default());
    }
    own
}

/// The lateness that a share of the packets did not pass.
fn late(link: &LinkState, share: f64) -> Nanos {
    let total: u64 = link.late.iter().map(|(_, count)| count).sum();
    let mut seen = 0;
    let bucket = link.late.iter().find(|(_, count)| {
        seen += count;
        seen as f64 >= share * total as f64
    });
    Nanos::from_secs_f64(bucket.map_or(0.0, |(bound, _)| *bound))
}
