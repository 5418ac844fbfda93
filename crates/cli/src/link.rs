//! `farlink link`: how a running connection stands, and what it should be from now on.

use std::process::ExitCode;

use clap::Args;
use farlink_emulator::client::Client;
use farlink_emulator::control::ChangeWords;
use farlink_emulator::state::{LinkState, State};
use farlink_wire::quantity::{BitsPerSec, Bytes, Nanos};

use crate::emulate::socket;

/// Show a running connection, or change it.
///
/// NAME is the whole connection, NAME/c host c's access link (of three hosts or more), NAME/a..b the path between
/// two hosts, which can be cut and restored. On an emulated host NAME may be left out.
#[derive(Debug, Args)]
pub(crate) struct Link {
    /// Which: wan, wan/c or wan/a..b.
    #[arg(value_name = "NAME[/HOST]")]
    target: Option<String>,
    /// The wire's rate, framing included.
    #[arg(long)]
    rate: Option<String>,
    /// Round-trip time between any two hosts; of an access link, its own.
    #[arg(long)]
    rtt: Option<String>,
    /// What waits before the bottleneck at most: a time at the rate, or a size.
    #[arg(long)]
    queue: Option<String>,
    /// Loss in each direction: 1%, every:1000, burst:SHARE,LENGTH or gemodel:p,r[,1-h[,1-k]].
    #[arg(long)]
    loss: Option<String>,
    /// The one-way delay varies by up to this much either way.
    #[arg(long)]
    jitter: Option<String>,
    /// Share of segments that arrive late, and how late: 1%,2ms.
    #[arg(long, value_name = "SHARE[,TIME]")]
    reorder: Option<String>,
    /// Share of segments that arrive twice.
    #[arg(long, value_name = "SHARE")]
    duplicate: Option<String>,
    /// Share of segments in which a bit is flipped.
    #[arg(long, value_name = "SHARE")]
    corrupt: Option<String>,
    /// Other traffic in each direction: 3gbit, 3gbit,on-off:100ms, or none.
    #[arg(long, value_name = "LOAD")]
    background: Option<String>,
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
            None => (None, None),
            Some(Err(name)) => (Some(name), None),
            Some(Ok((name, part))) => (Some(name), Some(part.to_owned())),
        };
        let words = self.words(part);
        // Understood here first: a bad word needs no running emulation to be refused.
        words.parse()?;
        let client = match name {
            Some(name) => Client::named(&socket(), name)?,
            None => Client::here()?,
        };
        let is_change = (ChangeWords { target: None, ..words.clone() }) != ChangeWords::default();
        let state = if is_change { client.change(words)? } else { client.show()? };
        if self.json {
            println!("{}", serde_json::to_string(&state)?);
        } else {
            print!("{}", table(&state));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn words(&self, target: Option<String>) -> ChangeWords {
        ChangeWords {
            target,
            rate: self.rate.clone(),
            rtt: self.rtt.clone(),
            queue: self.queue.clone(),
            loss: self.loss.clone(),
            jitter: self.jitter.clone(),
            reorder: self.reorder.clone(),
            duplicate: self.duplicate.clone(),
            corrupt: self.corrupt.clone(),
            background: self.background.clone(),
            cut: match (self.cut, self.restore) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
        }
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
    text
}

fn row(link: &LinkState, state: &State) -> String {
    let dropped = link.dropped;
    let (median, p99) = (late(link, 0.5), late(link, 0.99));
    let own = if link.rate_bps == state.rate_bps {
        String::new()
    } else {
        format!(" {}", BitsPerSec::new(link.rate_bps).map(|rate| rate.to_string()).unwrap_or_default())
    };
    let background = if link.background_packets == 0 {
        String::new()
    } else {
        let dropped = link.background_dropped;
        format!(
            " background {} packets, dropped {} by the queue, {} by a cut;",
            link.background_packets, dropped.queue, dropped.cut
        )
    };
    format!(
        "  {} to {}{own}{}: {} segments, {}; dropped {} by the queue, {} by loss, {} by a cut, {} unread;{background} \
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
