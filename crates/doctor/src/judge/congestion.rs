//! Congestion control: what one loss costs over the path, and what does better on this host.

use farlink_wire::quantity::Nanos;

use crate::facts::{Facts, Program};
use crate::finding::Finding;
use crate::judge::{outside, set};
use crate::path::NetworkPath;

pub(super) fn findings(facts: &Facts, path: NetworkPath) -> Vec<Finding> {
    let found = [default_control(facts, path), circuit(facts, path)];
    found.into_iter().flatten().collect()
}

/// The control that connections have where nobody chooses.
fn default_control(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    let name = "net.ipv4.tcp_congestion_control";
    let settings = &facts.settings;
    let is = settings.setting(name)?.text.as_str();
    let (better, why) = match is {
        "cubic" => (&FOR_LONG[..], cubic(path)?),
        _ if LINEAR.contains(&is) => (&SCALABLE[..], linear(is, path)?),
        _ => return None,
    };
    let has =
        |list: &str, word: &str| settings.words(list).is_some_and(|mut words| words.any(|one| one == word));
    let choose = |list: &str| better.iter().copied().find(|word| has(list, word));
    let allowed = choose("net.ipv4.tcp_allowed_congestion_control");
    let available = allowed.or_else(|| choose("net.ipv4.tcp_available_congestion_control"));
    let should_be = available.unwrap_or(better[0]);
    let mut why = format!("{why}; the cost depends on the loss");
    if program(facts, CIRCUIT).is_some_and(|circuit| circuit.missing.is_none()) {
        why += &format!(
            ". A rate that is guaranteed is filled by farlink memory --circuit {}, which takes no loss for congestion",
            path.rate()
        );
    }
    let without_root = allowed.map(|allowed| format!("farlink memory --congestion {allowed}"));
    let finding = Finding { without_root, ..Finding::new(name, is.into(), should_be.into(), why) };
    // Only the first network namespace may choose a control that ordinary users may not, or load one
    // (tcp_set_default_congestion_control in the kernel's net/ipv4/tcp_cong.c), and only it shows tcp_mem.
    if allowed.is_none() && settings.setting("net.ipv4.tcp_mem").is_none() {
        return Some(outside(finding));
    }
    let finding = set(finding, settings, name, should_be);
    let command = finding.command.map(|command| match available {
        Some(_) => command,
        None => format!("modprobe tcp_{should_be} && {command}"),
    });
    Some(Finding { command, ..finding })
}

/// What a loss costs Reno and its like. RFC 5681, 3.1: it halves the window, and a segment comes back each round trip.
fn linear(is: &str, path: NetworkPath) -> Option<String> {
    let rounds = path.product().0 / SEGMENT / 2;
    let time = Nanos(rounds.saturating_mul(path.rtt().0));
    (time >= SHORT).then(|| {
        format!(
            "{is} regains one segment a round trip after a loss: {time} until the rate is back (RFC 3649, 1)"
        )
    })
}

/// What a loss costs CUBIC, over paths where that is more than BBR's caution.
fn cubic(path: NetworkPath) -> Option<String> {
    let time = cubic_returns(path);
    if path.rtt() < LONG || time < SHORT {
        return None;
    }
    let seconds = time.as_secs_f64();
    Some(format!(
        "cubic takes {seconds:.0} s after a loss until the rate is back (RFC 9438, 4.2), and loses as much as {:.1} s of it \
         meanwhile",
        seconds * CUBIC_LOSS / 4.0
    ))
}

/// RFC 9438, 4.2: a loss leaves 0.7 of the window, which is back after the cube root of what is missing / C, seconds, however long
/// round trips are. Meanwhile a quarter of what is missing at first is so on average: the integral of a cube.
fn cubic_returns(path: NetworkPath) -> Nanos {
    let segments = path.product().0 as f64 / SEGMENT as f64;
    Nanos::from_secs_f64((segments * CUBIC_LOSS / CUBIC_C).cbrt())
}

/// Whether `circuit` could be had, where a path is such that others need long to fill it.
fn circuit(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    let missing = program(facts, CIRCUIT)?.missing.as_ref()?;
    if cubic_returns(path) < SHORT || (missing.for_want_of_rights && !facts.is_root) {
        return None;
    }
    let why = format!(
        "farlink memory --circuit {} would fill the path from the first segment on, and take no loss for congestion: {}; the \
         cost depends on the loss",
        path.rate(),
        missing.reason
    );
    let finding = Finding::new("congestion control circuit", "not available".into(), "loadable".into(), why);
    let without_root = program(facts, "htcp")
        .filter(|htcp| htcp.missing.is_none())
        .map(|_| "farlink memory --congestion htcp".to_owned());
    Some(Finding { needs_root: missing.for_want_of_rights, without_root, ..finding })
}

fn program<'a>(facts: &'a Facts, name: &str) -> Option<&'a Program> {
    facts.programs.iter().find(|program| program.name == name)
}

const CIRCUIT: &str = "circuit";

/// Controls that add at most a segment a round trip where there is no slow start (`cong_avoid` of each in the kernel's
/// net/ipv4/tcp_NAME.c is Reno's, or slower).
const LINEAR: [&str; 6] = ["reno", "westwood", "veno", "vegas", "dctcp", "lp"];

/// Controls whose way back does not grow with the path, in the order in which they are proposed: the kernel's own
/// default first.
const SCALABLE: [&str; 3] = ["cubic", "htcp", "bbr"];

/// Controls that lose less than CUBIC over long round trips, best first (bench/memory.md).
const FOR_LONG: [&str; 2] = ["bbr", "htcp"];

/// The RTT from which CUBIC was seen to lose more by a loss than BBR by its caution, as `--congestion auto` has it.
const LONG: Nanos = Nanos(250_000_000);

/// RFC 9438, 4.1 and 4.6: what a loss takes of the window, and how fast it grows.
const CUBIC_LOSS: f64 = 0.3;
const CUBIC_C: f64 = 0.4;

/// Payload of a segment in an Ethernet frame of 1,500 bytes, with timestamps.
const SEGMENT: u64 = 1448;

/// Where a loss is made up for within a second, no control is needed that does better.
const SHORT: Nanos = Nanos(1_000_000_000);
