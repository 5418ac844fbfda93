//! Whether what is lost is repaired to one receiver or to the group: the cost model, and the decision.
//!
//! With `n` receivers that lose packets independently with probability `p`, repairing each loss by unicast costs the sender `1 + n p`
//! transmissions a packet, and by multicast `E[M] = Σ_{k≥0} (1 − (1 − p^k)^n)`: the mean of the maximum of `n` geometric numbers, as in
//! Nonnenmacher, Biersack and Towsley, ToN 6(4), 1998.

use std::fmt::Debug;

use farlink_wire::quantity::Nanos;

/// Transmissions to a group of `receivers` until each of them has a packet that each loses with probability `loss`: `E[M]`, at least 1,
/// also of no receiver; infinite where nothing arrives.
#[must_use]
pub fn transmissions(receivers: u32, loss: f64) -> f64 {
    if loss >= 1.0 {
        return if receivers == 0 { 1.0 } else { f64::INFINITY };
    }
    let (mut sum, mut lost) = (1.0, loss);
    // 1 − (1 − q)^n without losing what is left of a small q.
    let term = |lost: f64| -f64::exp_m1(f64::from(receivers) * f64::ln_1p(-lost));
    while term(lost) > LEAST_TERM {
        sum += term(lost);
        lost *= loss;
    }
    sum
}

/// What a policy decides by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Receivers of the group.
    pub receivers: u32,
    /// Mean share of packets that one of them loses.
    pub loss: f64,
    /// Whether products wait for their first pass.
    pub busy: bool,
    /// How long it would take to repair by unicast what waits for it.
    pub unicast_wait: Nanos,
}

/// Decides how losses are repaired.
pub trait RepairPolicy: Debug {
    /// From how many receivers on that lack a packet it is sent to the group again; fewer get it by unicast.
    fn least_lacking(&self, view: &View) -> u32;
}

/// What costs the sender least, as long as that costs the receivers without loss nothing: while products wait for their first pass,
/// unicast for all that it can carry in time, unless most of the group lacks the packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adaptive;

impl RepairPolicy for Adaptive {
    fn least_lacking(&self, view: &View) -> u32 {
        // Most of the group lost it: the few others lose less by hearing it again than the many by waiting.
        let most = view.receivers / 2 + 1;
        if view.busy && view.unicast_wait < PATIENCE {
            return most.max(2);
        }
        // ⌈x⌉ of exponential numbers of this rate are geometric ones: the mean of their maximum is H_n by it, and less than one more.
        let (rate, mut harmonic) = (view.loss.ln().abs(), 1.0);
        let is_cheaper = |lacking: &u32| {
            let count = f64::from(*lacking);
            harmonic += 1.0 / count;
            let least = harmonic / rate;
            least < count && (least + 1.0 < count || transmissions(*lacking, view.loss) < count)
        };
        (2..=MOST_COUNTED).find(is_cheaper).unwrap_or(u32::MAX).min(most.max(2))
    }
}

/// Everything by unicast, as VCMTP and FMTP have it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unicast;

impl RepairPolicy for Unicast {
    fn least_lacking(&self, _view: &View) -> u32 {
        u32::MAX
    }
}

/// Everything by multicast, as UFTP has it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Multicast;

impl RepairPolicy for Multicast {
    fn least_lacking(&self, _view: &View) -> u32 {
        1
    }
}

/// Less of a transmission than this is none: the tables have two digits.
const LEAST_TERM: f64 = 1e-9;

/// How much may wait for unicast while products wait for their first pass: what a receiver hardly notices beside the round trips that
/// a repair takes.
const PATIENCE: Nanos = Nanos(50_000_000);

/// As far as receivers are counted a packet: see [`super::sender`].
pub(super) const MOST_COUNTED: u32 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_repair_costs_what_the_table_says() {
        for (loss, receivers, expected) in [
            (0.001, 50, 1.05),
            (0.001, 1000, 1.63),
            (0.01, 10, 1.10),
            (0.01, 50, 1.40),
            (0.01, 100, 1.64),
            (0.01, 1000, 2.10),
            (0.05, 10, 1.43),
            (0.05, 50, 2.05),
            (0.05, 100, 2.23),
            (0.1, 10, 1.76),
            (0.1, 50, 2.44),
            (0.1, 100, 2.74),
        ] {
            let cost = transmissions(receivers, loss);
            assert!((cost - expected).abs() < 0.005, "{loss} {receivers}: {cost} of {expected}");
        }
        assert_eq!(transmissions(0, 0.3), 1.0);
        assert!((transmissions(1, 0.25) - 1.0 / 0.75).abs() < 1e-6);
        assert!(transmissions(1, 1.0).is_infinite());
    }

    fn view() -> View {
        View { receivers: 100, loss: 0.01, busy: false, unicast_wait: Nanos::ZERO }
    }

    #[test]
    fn what_two_lack_is_sent_once_unless_the_repair_is_likely_lost_too() {
        assert_eq!(Adaptive.least_lacking(&view()), 2);
        let lossy = View { loss: 0.6, ..view() };
        let least = Adaptive.least_lacking(&lossy);
        assert!(least > 2 && transmissions(least, 0.6) < f64::from(least), "{least}");
        assert!(transmissions(least - 1, 0.6) >= f64::from(least - 1));
        for loss in [0.0, 1e-6, 0.001, 0.02, 0.3, 0.7, 0.9, 0.97] {
            let sums = (2..=MOST_COUNTED).find(|n| transmissions(*n, loss) < f64::from(*n));
            let view = View { receivers: 1000, loss, ..view() };
            assert_eq!(Adaptive.least_lacking(&view), sums.unwrap_or(501), "{loss}");
        }
        // What hardly anything of arrives takes no longer to decide, however many terms its mean has.
        let hardly = View { loss: 1.0 - 1e-12, ..view() };
        assert_eq!(Adaptive.least_lacking(&hardly), 51);
        // A link that is down: nothing is sent to the group for it, unless most are cut off.
        assert_eq!(Adaptive.least_lacking(&View { loss: 1.0, ..view() }), 51);
    }

    #[test]
    fn while_products_wait_the_group_hears_again_only_what_most_lack() {
        let busy = View { busy: true, ..view() };
        assert_eq!(Adaptive.least_lacking(&busy), 51);
        let behind = View { unicast_wait: Nanos(1_000_000_000), ..busy };
        assert_eq!(Adaptive.least_lacking(&behind), 2);
        // One receiver alone never makes the group wait.
        assert_eq!(Adaptive.least_lacking(&View { receivers: 1, ..busy }), 2);
        assert_eq!(Adaptive.least_lacking(&View { receivers: 2, ..behind }), 2);
    }
}
