//! TCP: what it may do, and how it reacts to pauses.

use farlink_wire::quantity::Nanos;

use crate::facts::Facts;
use crate::finding::{Finding, Value};
use crate::judge::{interface, set};
use crate::path::NetworkPath;
use crate::window::UNSCALED_WINDOW;

pub(super) fn findings(facts: &Facts, path: NetworkPath) -> Vec<Finding> {
    let found = [
        window_scaling(facts, path),
        selective_acknowledgement(facts),
        timestamps(facts, path),
        pauses(facts, path),
        fast_open(facts, path),
        pieces(facts, path),
        saved_metrics(facts),
        mtu_probing(facts, path),
        mtu_discovery(facts),
    ];
    found.into_iter().flatten().collect()
}

fn window_scaling(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    let finding = switch(
        facts,
        "net.ipv4.tcp_window_scaling",
        |is| is != 0,
        1,
        || {
            "without window scaling a window has 16 bits: 65,535 bytes a round trip (RFC 7323, 1.1)"
                .to_owned()
        },
    )?;
    Some(finding.costing(path.lost_to(UNSCALED_WINDOW)?))
}

fn selective_acknowledgement(facts: &Facts) -> Option<Finding> {
    switch(
        facts,
        "net.ipv4.tcp_sack",
        |is| is != 0,
        1,
        || {
            "without selective acknowledgement the sender learns of one lost segment a round trip (RFC 2018, 1): the \
         cost depends on the loss"
            .to_owned()
        },
    )
}

fn timestamps(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    // 2 is on as well, without a random offset.
    switch(
        facts,
        "net.ipv4.tcp_timestamps",
        |is| is != 0,
        1,
        || {
            let wrap = Nanos::from_secs_f64(8.0 * 4_294_967_296.0 / path.rate().get() as f64);
            format!(
                "without timestamps old segments cannot be told from new ones once sequence numbers wrap, here after \
             {wrap}, and the RTT is known once a window (RFC 7323, 4 and 5): the cost depends on the loss"
            )
        },
    )
}

fn pauses(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    // RFC 6928: a connection begins with ten segments. What needs no more has nothing to regain.
    let doublings = (path.product().0 as f64 / (10 * SEGMENT) as f64).log2().ceil();
    if doublings < 1.0 {
        return None;
    }
    switch(
        facts,
        "net.ipv4.tcp_slow_start_after_idle",
        |is| is == 0,
        0,
        || {
            let time = Nanos::from_secs_f64(doublings * path.rtt().as_secs_f64());
            format!(
                "after a pause longer than the retransmission timeout TCP starts again from ten segments (RFC 5681, \
             4.1), and takes {doublings} round trips, {time}, to fill the path again: the cost depends on the pauses"
            )
        },
    )
}

/// The bit of 1 lets this host's programs open connections so, that of 2 lets others open them to this host's (`net.ipv4.tcp_fastopen` in the
/// kernel's Documentation/networking/ip-sysctl.rst); other bits stay.
fn fast_open(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    if path.rtt() < FELT {
        return None;
    }
    let name = "net.ipv4.tcp_fastopen";
    let both = facts.settings.number(name)? | 3;
    switch(
        facts,
        name,
        |is| is == both,
        both,
        || {
            format!(
                "without TCP Fast Open both ways (RFC 7413) nothing is said in the first round trip, {}, of a connection between hosts that \
                 have met: a transfer begins that much later",
                path.rtt()
            )
        },
    )
}

/// Pacing gives each connection a piece a millisecond; the kernel makes it up to a whole super-packet where two to this power, in
/// microseconds, is more than the round trip (`tcp_tso_autosize` in its net/ipv4/tcp_output.c, since Linux 5.18).
fn pieces(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    let share = path.rate().get() / MANY_STREAMS / 8 / PIECES_A_SECOND;
    let micros = path.rtt().0 / 1000;
    if share >= SUPER_PACKET || path.rate().get() < COSTLY_BPS || path.rtt() < LONG {
        return None;
    }
    let whole = i64::from(u64::BITS - micros.leading_zeros());
    switch(
        facts,
        "net.ipv4.tcp_tso_rtt_log",
        |is| is >= whole,
        whole,
        || {
            format!(
                "where several connections share the rate, pacing lets each send {share} bytes at once and less ({MANY_STREAMS} of \
             them), and every piece costs both hosts the work of a packet; with {whole} pieces are 64 KiB for round trips up to \
             this path's, in bursts as large (tcp_tso_autosize in the kernel's net/ipv4/tcp_output.c): the cost depends on the \
             processors"
            )
        },
    )
}

fn saved_metrics(facts: &Facts) -> Option<Finding> {
    // Since Linux 5.6 this keeps the harmful part out, and is on unless somebody turned it off.
    if facts.settings.number("net.ipv4.tcp_no_ssthresh_metrics_save").is_some_and(|is| is != 0) {
        return None;
    }
    switch(
        facts,
        "net.ipv4.tcp_no_metrics_save",
        |is| is != 0,
        1,
        || {
            "a connection that saw loss leaves its slow start threshold to the next one to the same host, which then \
         grows slowly from there (tcp_update_metrics in the kernel's net/ipv4/tcp_metrics.c): the cost depends on the \
         loss"
            .to_owned()
        },
    )
}

fn mtu_probing(facts: &Facts, path: NetworkPath) -> Option<Finding> {
    let large = interface::candidates(facts, path).into_iter().any(|nic| nic.mtu > interface::COMMON_MTU);
    if !large && !interface::wants_larger_packets(facts, path) {
        return None;
    }
    switch(
        facts,
        "net.ipv4.tcp_mtu_probing",
        |is| is != 0,
        1,
        || {
            "where a device on the path drops large packets and the message that says so is dropped too, a connection \
         with a large MTU stands still; 1 finds a size that passes (RFC 4821)"
            .to_owned()
        },
    )
}

fn mtu_discovery(facts: &Facts) -> Option<Finding> {
    switch(
        facts,
        "net.ipv4.ip_no_pmtu_disc",
        |is| is == 0,
        0,
        || {
            "without path MTU discovery a message that a packet was too large makes all packets to that host as small as \
         route/min_pmtu, 552 bytes by default (the kernel's Documentation/networking/ip-sysctl.rst)"
            .to_owned()
        },
    )
}

/// A finding where the setting `name` is a number that is not `right`.
fn switch(
    facts: &Facts,
    name: &str,
    right: impl Fn(i64) -> bool,
    should_be: i64,
    why: impl Fn() -> String,
) -> Option<Finding> {
    let is = facts.settings.number(name)?;
    if right(is) {
        return None;
    }
    let finding = Finding::new(name, Value::Number(is), Value::Number(should_be), why());
    Some(set(finding, &facts.settings, name, &should_be.to_string()))
}

/// Round trips from which somebody who waits notices one more or less.
const FELT: Nanos = Nanos(5_000_000);

/// Streams of a transfer over a long path: as many as `farlink copy` opens there.
const MANY_STREAMS: u64 = 32;

/// Round trips from which it opens that many, or nearly: it was measured to matter at 91.6 ms.
const LONG: Nanos = Nanos(50_000_000);

/// Pieces a second of what is paced (`sk_pacing_shift` of 10).
const PIECES_A_SECOND: u64 = 1024;

/// What the kernel hands to a device as one packet at most, bytes.
const SUPER_PACKET: u64 = 65_536;

/// Below this rate no processor of today minds pieces.
const COSTLY_BPS: u64 = 5_000_000_000;

/// Payload of a segment in an Ethernet frame of 1,500 bytes, with timestamps.
const SEGMENT: u64 = 1448;
