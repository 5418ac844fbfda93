//! What a session tells, as people and programs read it.

use std::collections::HashSet;

use farlink_cast::group::Group;
use farlink_cast::send::{Finished, Notice, Peer};
use farlink_host::clock::{monotonic, rfc3339_before};
use farlink_host::scheduling::Scheduling;
use farlink_wire::key::PublicKey;
use farlink_wire::quantity::{BitsPerSec, Bytes};
use serde_json::json;

use super::products;
use super::table::{Table, name};
use crate::output::print;

/// Says it on standard error, or as objects on standard output.
pub(super) struct Telling {
    pub(super) json: bool,
    pub(super) quiet: bool,
    /// Whether there are several groups, which are named then.
    pub(super) several: bool,
    /// The key that the sender shows.
    pub(super) key: Option<PublicKey>,
    pub(super) table: Table,
    /// Groups and names of which it was said that something of theirs is not sent, and is no failure.
    pub(super) passed_over: HashSet<String>,
}

impl Telling {
    /// Something happened in the session of `group`.
    pub(super) fn on(&mut self, group: Group, notice: &Notice<'_>) {
        let is_told = !matches!(notice, Notice::Progress(_)) || !self.quiet;
        if self.json && is_told {
            let mut object = object(notice, self.key);
            if self.several {
                object["group"] = group.to_string().into();
            }
            print(&(object.to_string() + "\n"));
        }
        match notice {
            Notice::Ready { scheduling: Some(Scheduling::Other { reason }), .. } => {
                self.say(group, &format!("farlink: the sending thread is an ordinary one: {reason}"));
            }
            Notice::Ready { at, .. } if !self.quiet && !self.json => {
                self.say(group, &format!("receivers come to {at}"));
                if let Some(key) = self.key {
                    self.say(group, &format!("its key is {key}"));
                }
            }
            Notice::Waiting { receivers } if !self.quiet && !self.json => {
                let more = if *receivers == 1 { "receiver" } else { "receivers" };
                self.say(group, &format!("waiting for {receivers} more {more}"));
            }
            Notice::Without { receivers, after } if !self.json => {
                let were = if *receivers == 1 { "receiver that has" } else { "receivers that have" };
                self.say(
                    group,
                    &format!("farlink: begins without {receivers} {were} not come within {after}"),
                );
            }
            Notice::Joined(peer) if !self.quiet && !self.json => {
                self.say(group, &format!("{} has joined", name(peer)));
            }
            Notice::Left(peer) if !self.quiet && !self.json && peer.leave.is_some() => {
                self.say(group, &format!("{} has left", name(peer)));
            }
            Notice::Left(peer) if !self.json && peer.leave.is_none() => {
                self.say(group, &format!("farlink: {} was lost", name(peer)));
            }
            Notice::Refused { from, reason } => {
                self.say(group, &format!("farlink: {from} was not let in: {reason}"));
            }
            Notice::Full { receivers } => {
                self.say(group, &format!(
                    "farlink: {receivers} receivers are there, and this process may have no more files open: others are \
                     let in when one has left; raise the limit (ulimit -Hn)"
                ));
            }
            Notice::Others { by } => {
                self.say(group, &format!(
                    "farlink: {by} sends to {group} too, and did not prove to have a session there: going on"
                ));
            }
            // A name may be written again each second; what it comes to is said at the end.
            Notice::NotSent(not) if !not.failed && !self.is_news(group, &not.path) => {}
            Notice::NotSent(not) => {
                self.say(group, &format!("farlink: {}: not sent, {}", not.path, not.reason));
            }
            Notice::NotStored { peer, path, reason } => {
                self.say(group, &format!("farlink: {} has not stored {path}: {reason}", name(peer)));
            }
            Notice::Ceased if !self.quiet && !self.json => {
                self.say(group, "nothing more is looked for: waiting until receivers have everything (Ctrl-C again to end at once)");
            }
            Notice::Progress(progress) => self.table.show(group, progress),
            _ => {}
        }
    }

    /// Says `text`, of `group` where there are several.
    fn say(&self, group: Group, text: &str) {
        if !self.several {
            return self.table.say(text);
        }
        let (whose, rest) = text.strip_prefix(WHOSE).map_or(("", text), |rest| (WHOSE, rest));
        self.table.say(&format!("{whose}{group}: {rest}"));
    }

    /// Whether nothing was said yet of what has a name and is passed over, as far as is remembered.
    fn is_news(&mut self, group: Group, path: &str) -> bool {
        if self.passed_over.len() >= MOST_PASSED_OVER {
            self.passed_over.clear();
        }
        self.passed_over.insert(format!("{group} {path}"))
    }
}

/// What begins a line of what goes wrong.
const WHOSE: &str = "farlink: ";

/// Names that are remembered for that.
const MOST_PASSED_OVER: usize = 10_000;

/// A notice as an object.
fn object(notice: &Notice<'_>, key: Option<PublicKey>) -> serde_json::Value {
    let peer_of =
        |peer: &Peer| json!({"name": peer.host.name.to_string(), "address": peer.at.ip().to_string()});
    match notice {
        Notice::Ready { at, .. } => match key {
            Some(key) => json!({"ready": {"at": at.to_string(), "key": key.to_string()}}),
            None => json!({"ready": {"at": at.to_string()}}),
        },
        Notice::Waiting { receivers } => json!({"waiting": {"receivers": receivers}}),
        Notice::Without { receivers, after } => {
            json!({"without": {"receivers": receivers, "after_s": after.as_secs_f64()}})
        }
        Notice::Joined(peer) => json!({"joined": peer_of(peer)}),
        Notice::Left(peer) => {
            let mut object = peer_of(peer);
            object["complete"] = peer.is_whole().into();
            object["lost"] = peer.leave.is_none().into();
            json!({"left": object})
        }
        Notice::Refused { from, reason } => {
            json!({"refused": {"address": from.ip().to_string(), "reason": reason}})
        }
        Notice::Full { receivers } => json!({"full": {"receivers": receivers}}),
        Notice::Others { by } => json!({"others": {"address": by.to_string()}}),
        Notice::Begun { path, at } => {
            json!({"begun": {"path": path, "at": rfc3339_before(monotonic().since(*at))}})
        }
        Notice::NotSent(not) => {
            json!({"path": not.path, "outcome": if not.failed { "failed" } else { "skipped" }, "reason": not.reason})
        }
        Notice::NotStored { peer, path, reason } => {
            let name = peer.host.name.to_string();
            json!({"path": path, "outcome": "not stored", "receiver": name, "reason": reason})
        }
        Notice::Ceased => json!({"ceased": true}),
        Notice::Progress(progress) => {
            // Of who has left nothing changes any more: it was said when that was.
            let receivers = progress.peers.values().filter(|peer| peer.is_there).map(|peer| {
                let mut object = peer_of(peer);
                object["products"] = peer.products.into();
                object["failed"] = peer.failed.into();
                object["behind"] = peer.behind.into();
                object["bytes"] = peer.report.bytes.into();
                object["lost_packets"] = peer.report.lost.into();
                object["repaired_bytes"] = peer.report.repaired.into();
                object["unicast_repair_bytes"] = peer.repaired.into();
                object
            });
            json!({"progress": {
                "seconds": progress.seconds,
                "products": progress.products,
                "rate_bps": progress.rate.map(BitsPerSec::get),
                "rate_found": progress.rate_found,
                "first_pass_bytes": progress.totals.first_pass,
                "multicast_repair_bytes": progress.totals.multicast_repair,
                "unicast_repair_bytes": progress.totals.unicast_repair,
                "receivers": receivers.collect::<Vec<_>>(),
            }})
        }
    }
}

/// The rate of so many bytes in `seconds`; nothing of so few that it would say nothing.
pub(super) fn rate(bytes: u64, seconds: f64) -> String {
    if bytes < WORTH_A_RATE {
        return String::new();
    }
    format!(": {:.1} Mb/s", bytes as f64 * 8.0 / seconds / 1e6)
}

/// Less than this is over as soon as it has begun.
const WORTH_A_RATE: u64 = 64 << 10;

/// What came of it; where it `waited` for more, as what is watched does, its time says nothing of a rate.
pub(super) fn summary(finished: &Finished, waited: bool) -> String {
    let progress = &finished.progress;
    let (known, gone) = (progress.peers.len() as u64, progress.gone);
    let whole = progress.peers.values().filter(|peer| peer.is_whole()).count() as u64 + gone.whole;
    // With heads and digests; of what is whole only the content counts.
    let sent = progress.bytes.min(progress.totals.first_pass);
    // What it was ended before, or nobody wanted any more.
    let of = if sent < progress.bytes {
        format!("{} of {}", Bytes(sent), Bytes(progress.bytes))
    } else {
        Bytes(progress.bytes).to_string()
    };
    let all = products(progress.products);
    let count = match progress.unsent.0 {
        0 => all,
        unsent => format!("{} of {all}", progress.products - unsent),
    };
    let mut text = format!("{count}, {of} to {whole} of {} receivers", known + gone.receivers);
    if let Some(seconds) = finished.record.duration_s.filter(|seconds| *seconds > 0.0) {
        text += &format!(" in {seconds:.3} s");
        if !waited {
            text += &rate(sent, seconds);
        }
    }
    let repaired = progress.totals.multicast_repair + progress.totals.unicast_repair;
    if repaired > 0 {
        text += &format!(", {} sent again", Bytes(repaired));
    }
    if let (None, Some(rate)) = (finished.record.declared_bps, progress.rate) {
        text += &format!(", at {rate} in the end");
        if progress.rate_found == Some(false) {
            text += ", which was not all that it looked for yet";
        }
    }
    if progress.lost > 0 {
        text += &format!("; {} could not be sent", products(progress.lost));
    }
    if progress.replaced > 0 {
        let were = if progress.replaced == 1 {
            "was replaced before its turn"
        } else {
            "were replaced before their turn"
        };
        text += &format!("; {} {were}", products(progress.replaced));
    }
    if finished.interrupted {
        text += " (interrupted)";
    }
    text + "\n"
}
