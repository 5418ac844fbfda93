//! Periodic loss.

use rand_pcg::Pcg64Mcg;

use super::LossModel;

/// Every n-th segment is lost, the first loss after n − 1 survivors.
#[derive(Debug)]
pub(super) struct Periodic {
    every: u64,
    survivors: u64,
}

impl Periodic {
    pub(super) const fn new(every: u64) -> Self {
        Self { every, survivors: 0 }
    }
}

impl LossModel for Periodic {
    fn is_lost(&mut self, _random: &mut Pcg64Mcg) -> bool {
        self.survivors += 1;
        let lost = self.survivors >= self.every;
        if lost {
            self.survivors = 0;
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn loses_exactly_the_nth() {
        let (mut model, mut random) = (Periodic::new(3), Pcg64Mcg::seed_from_u64(0));
        let fates: Vec<bool> = (0..7).map(|_| model.is_lost(&mut random)).collect();
        assert_eq!(fates, [false, false, true, false, false, true, false]);
    }
}
