//! Independent loss.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::LossModel;

/// Each segment is lost with the same probability, whatever became of the others.
#[derive(Debug)]
pub(super) struct Random {
    share: f64,
}

impl Random {
    pub(super) const fn new(share: f64) -> Self {
        Self { share }
    }
}

impl LossModel for Random {
    fn is_lost(&mut self, random: &mut Pcg64Mcg) -> bool {
        self.share > 0.0 && random.random::<f64>() < self.share
    }
}
