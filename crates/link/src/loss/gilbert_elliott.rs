//! Loss in bursts: the two-state chain of Gilbert (1960) and Elliott (1963), with the parameters of
//! netem's `gemodel` (Salsano et al., "Definition of a general and intuitive loss model", 2009).

use std::fmt;

use farlink_wire::quantity::Fraction;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::LossModel;

/// A good and a bad state, and what is lost in each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability, at each segment, of going from the good state to the bad: p.
    pub enter: Fraction,
    /// Probability of going back: r.
    pub leave: Fraction,
    /// Loss in the bad state: 1 − h.
    pub bad: Fraction,
    /// Loss in the good state: 1 − k.
    pub good: Fraction,
}

impl Default for GilbertElliott {
    /// Never bad; where it is, all is lost.
    fn default() -> Self {
        let (zero, one) = (Fraction::default(), Fraction::new(1.0).unwrap_or_default());
        Self { enter: zero, leave: one, bad: one, good: zero }
    }
}

impl GilbertElliott {
    /// Bursts of `length` segments on average that lose `share` of all.
    ///
    /// # Errors
    /// The reason where no chain does that.
    pub fn bursts(share: Fraction, length: f64) -> Result<Self, &'static str> {
        if !(1.0..=1e9).contains(&length) {
            return Err("a burst is at least 1 segment long, at most 1e9");
        }
        if share.get() >= 1.0 {
            return Err("bursts end: write 100% alone for a connection that loses everything");
        }
        let leave = 1.0 / length;
        let enter = leave * share.get() / (1.0 - share.get());
        match (Fraction::new(enter), Fraction::new(leave)) {
            (Some(enter), Some(leave)) => Ok(Self { enter, leave, ..Self::default() }),
            _ => Err("bursts so short cannot lose so large a share: make them longer"),
        }
    }

    /// The share of segments that are lost in the long run.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let changes = self.enter.get() + self.leave.get();
        let in_bad = if changes == 0.0 { 0.0 } else { self.enter.get() / changes };
        in_bad * self.bad.get() + (1.0 - in_bad) * self.good.get()
    }

    /// A chain for each of two links in a row: 1 − √(1 − mean) is lost by each, in bursts as long where there are such.
    #[must_use]
    pub(super) fn halved(&self) -> Self {
        let mean = self.mean();
        if mean == 0.0 {
            return *self;
        }
        let mean_of_each = 1.0 - (1.0 - mean).sqrt();
        let share = mean_of_each / mean;
        let scaled = |of: Fraction| Fraction::new(of.get() * share).unwrap_or(of);
        let good = scaled(self.good);
        let in_bad = (mean_of_each - good.get()) / (self.bad.get() - good.get());
        let enter = self.leave.get() * in_bad / (1.0 - in_bad);
        match Fraction::new(enter).filter(|enter| enter.get() > 0.0 && self.bad.get() > good.get()) {
            Some(enter) => Self { enter, good, ..*self },
            // One that stays bad, or is bad in name only: the same bursts, of which each link loses its share.
            None => Self { bad: scaled(self.bad), good, ..*self },
        }
    }
}

impl fmt::Display for GilbertElliott {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Shares as plain numbers: three decimals of a percentage would change the model.
        let (enter, leave) = (self.enter.get(), self.leave.get());
        write!(f, "gemodel:{enter},{leave},{},{}", self.bad.get(), self.good.get())
    }
}

/// The chain as it runs.
#[derive(Debug)]
pub(super) struct Chain {
    model: GilbertElliott,
    is_bad: bool,
}

impl Chain {
    pub(super) const fn new(model: GilbertElliott) -> Self {
        Self { model, is_bad: false }
    }
}

impl LossModel for Chain {
    fn is_lost(&mut self, random: &mut Pcg64Mcg) -> bool {
        let change = if self.is_bad { self.model.leave } else { self.model.enter };
        if random.random::<f64>() < change.get() {
            self.is_bad = !self.is_bad;
        }
        let share = if self.is_bad { self.model.bad } else { self.model.good };
        random.random::<f64>() < share.get()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn bursts_have_the_length_that_was_asked() {
        let model = GilbertElliott::bursts(Fraction::new(0.01).unwrap(), 10.0).unwrap();
        let (mut chain, mut random) = (Chain::new(model), Pcg64Mcg::seed_from_u64(3));
        let fates: Vec<bool> = (0..2_000_000).map(|_| chain.is_lost(&mut random)).collect();
        let lost = fates.iter().filter(|&&lost| lost).count() as f64;
        let bursts = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        assert!((lost / bursts - 10.0).abs() < 1.0, "{}", lost / bursts);
    }
}
