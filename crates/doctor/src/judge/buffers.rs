//! Memory: how much may be under way.

use farlink_host::circuit::Share;
use farlink_wire::quantity::{BitsPerSec, Bytes};

use crate::facts::Facts;
use crate::finding::{Finding, Value};
use crate::judge::set;
use crate::path::NetworkPath;
use crate::window::{MOST_WINDOW, Overhead};

pub(super) fn findings(facts: &Facts, path: NetworkPath) -> Vec<Finding> {
    let found = [
        receive(facts, path),
        receive_tuning(facts, path),
        send(facts, path),
        asked_for(facts, path, "net.core.rmem_max", overhead(facts).space(path.product().0).div_ceil(2)),
        asked_for(facts, path, "net.core.wmem_max", path.product().0),
        all_sockets(facts, path),
        largest_window(path),
    ];
    found.into_iter().flatten().collect()
}

/// The receive buffer that TCP may grow to.
fn receive(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    let name = "net.ipv4.tcp_rmem";
    let [least, first, most] = facts.settings.triple(name)?;
    let overhead = overhead(facts);
    let wanted = overhead.space(wanted_window(path)).min(MOST_SETTING);
    if most >= wanted {
        return None;
    }
    let window = overhead.window(most).min(MOST_WINDOW);
    let why = format!(
        "the receive buffer grows to this at most, and {} of it is window (tcp_win_from_space in the kernel's \
         include/net/tcp.h), which passes once a round trip",
        Bytes(window)
    );
    let finding =
        Finding::new(name, Value::Bytes(most), Value::Bytes(wanted), why).costing(path.lost_to(window)?);
    let finding = Finding { without_root: streams(path, window), ..finding };
    Some(set(finding, &facts.settings, name, &format!("{least} {first} {wanted}")))
}

/// Whether the receive buffer grows at all.
fn receive_tuning(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    let name = "net.ipv4.tcp_moderate_rcvbuf";
    if facts.settings.number(name)? != 0 {
        return None;
    }
    let [_, first, _] = facts.settings.triple("net.ipv4.tcp_rmem")?;
    let window = overhead(facts).window(first);
    let why = format!(
        "the receive buffer stays as it is at first (the second number of tcp_rmem): a window of {}",
        Bytes(window)
    );
    let finding = Finding::new(name, Value::Number(0), Value::Number(1), why).costing(path.lost_to(window)?);
    let finding = Finding { without_root: streams(path, window), ..finding };
    Some(set(finding, &facts.settings, name, "1"))
}

/// The send buffer that TCP may grow to.
fn send(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    let name = "net.ipv4.tcp_wmem";
    let [least, first, most] = facts.settings.triple(name)?;
    if most >= wanted_window(path) {
        return None;
    }
    // Twice: what the kernel itself aims at, so that there is new data to send while lost data is sent again.
    let wanted = (2 * wanted_window(path)).min(MOST_SETTING);
    let why = "the send buffer grows to this at most, and keeps what is not yet acknowledged (tcp_sndbuf_expand in \
               the kernel's net/ipv4/tcp_input.c)";
    let finding =
        Finding::new(name, Value::Bytes(most), Value::Bytes(wanted), why).costing(path.lost_to(most)?);
    let finding = Finding { without_root: streams(path, most), ..finding };
    Some(set(finding, &facts.settings, name, &format!("{least} {first} {wanted}")))
}

/// What a program may ask for that sets its buffers itself, and a circuit, which is refused where it is granted less than its window. It
/// costs a transfer nothing that lets TCP tune them.
fn asked_for(facts: &Facts, path: NetworkPath, name: &str, least: u64) -> Option<Finding> {
    let most = u64::try_from(facts.settings.number(name)?).ok()?;
    let circuit = Share::of(path.rate(), 1).ok();
    let window = circuit.map_or(0, |share| share.window(path.rtt()).0);
    let least = least.max(path.product().0).max(window).min(MOST_ASKED);
    if most >= least {
        return None;
    }
    let wanted = circuit.map_or(least, |share| share.buffer(path.rtt()).0.max(least));
    let rate = path.rate().get() - path.lost_to(most).unwrap_or(0);
    let rate = BitsPerSec::new(rate).map_or_else(|| "nothing".to_owned(), |rate| rate.to_string());
    let why = format!(
        "a program that sets its own buffers, as farlink memory --buffer, may ask for this at most, which carries \
         {rate}, and a circuit over this path needs {}; where TCP tunes the buffers, and for root's farlink, it is no bound",
        Bytes(least)
    );
    let finding = Finding::new(name, Value::Bytes(most), Value::Bytes(wanted), why);
    let finding =
        Finding { without_root: Some("leave the buffers to the kernel: no --buffer".into()), ..finding };
    Some(set(finding, &facts.settings, name, &wanted.to_string()))
}

/// What all TCP sockets together may hold before each is held short: the second of three numbers, in pages
/// (`tcp_under_memory_pressure` in the kernel's include/net/tcp.h).
fn all_sockets(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    let name = "net.ipv4.tcp_mem";
    let [_, pressure, _] = facts.settings.triple(name)?;
    let page = facts.page_bytes.max(1);
    let held = pressure.saturating_mul(page);
    let wanted = path.product().0.saturating_mul(2);
    if held >= wanted {
        return None;
    }
    let why = "beyond this (the second number, in pages) all TCP sockets together are short of memory, and windows \
               grow no more; as in a receive buffer, half of it is payload";
    let pages = wanted.div_ceil(page);
    // The kernel's own proportions: low is three quarters, the limit twice low (tcp_init_mem in net/ipv4/tcp.c).
    let low = pages.div_ceil(4) * 3;
    let finding =
        Finding::new(name, Value::Bytes(held), Value::Bytes(wanted), why).costing(path.lost_to(held / 2)?);
    let finding = set(finding, &facts.settings, name, &format!("{low} {pages} {}", low * 2));
    let most = (low * 2).saturating_mul(page);
    let caution = facts.memory_bytes.filter(|memory| most > memory / 2).map(|memory| {
        format!(
            "sockets could then hold {} of the {} of memory that this host has",
            Bytes(most),
            Bytes(memory)
        )
    });
    Some(Finding { caution: caution.or_else(|| finding.caution.clone()), ..finding })
}

/// What no setting mends.
fn largest_window(path: NetworkPath) -> Option<Finding> {
    let lost = path.lost_to(MOST_WINDOW)?;
    let why = "no TCP window is larger (RFC 7323, 2.3): several streams fill this path, one does not";
    let product = path.product().0;
    let finding =
        Finding::new("TCP window", Value::Bytes(MOST_WINDOW), Value::Bytes(product), why).costing(lost);
    Some(Finding { needs_root: false, without_root: streams(path, MOST_WINDOW), ..finding })
}

fn overhead(facts: &Facts) -> Overhead {
    Overhead::of(&facts.kernel, facts.settings.number("net.ipv4.tcp_adv_win_scale"))
}

/// The window that fills the path, or the largest that there is.
fn wanted_window(path: NetworkPath) -> u64 {
    path.product().0.min(MOST_WINDOW)
}

/// How many streams fill the path where each has this window; `None` where that is more than farlink starts.
fn streams(path: NetworkPath, window: u64) -> Option<String> {
    let streams = path.product().0.div_ceil(window.max(1));
    (streams <= MOST_STREAMS).then(|| format!("farlink memory HOST --streams {streams}"))
}

/// The kernel keeps buffer sizes in an int, and doubles what is asked for (`__sock_set_rcvbuf` in net/core/sock.c).
const MOST_SETTING: u64 = i32::MAX as u64;
const MOST_ASKED: u64 = MOST_SETTING / 2;

/// As `farlink memory --streams` takes.
const MOST_STREAMS: u64 = 512;
