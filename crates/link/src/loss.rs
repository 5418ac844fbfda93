//! Which segments are lost on the wire: the trait, and the table of what people may ask for.

mod gilbert_elliott;
mod periodic;
mod random;

use std::fmt::{self, Debug};
use std::str::FromStr;

use farlink_wire::quantity::{Fraction, QuantityError};
use rand_pcg::Pcg64Mcg;

pub use gilbert_elliott::GilbertElliott;

/// Decides the fate of one segment after another.
pub trait LossModel: Debug + Send {
    /// Whether the segment that leaves now is lost.
    fn is_lost(&mut self, random: &mut Pcg64Mcg) -> bool;
}

/// Loss as asked for. A new model is a variant here, its words below, and one file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// Nothing is lost.
    #[default]
    None,
    /// Each segment with this probability, independently.
    Random(Fraction),
    /// Every n-th segment.
    Periodic(u64),
    /// In bursts.
    Bursty(GilbertElliott),
}

impl Loss {
    /// The model, at its start.
    #[must_use]
    pub fn model(self) -> Box<dyn LossModel> {
        match self {
            Self::None => Box::new(random::Random::new(0.0)),
            Self::Random(share) => Box::new(random::Random::new(share.get())),
            Self::Periodic(every) => Box::new(periodic::Periodic::new(every)),
            Self::Bursty(chain) => Box::new(gilbert_elliott::Chain::new(chain)),
        }
    }

    /// The share of segments that are lost in the long run, from 0 to 1.
    #[must_use]
    pub fn mean(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Random(share) => share.get(),
            Self::Periodic(every) => 1.0 / every as f64,
            Self::Bursty(chain) => chain.mean(),
        }
    }

    /// The loss of each of two links in a row that lose together what this one loses.
    #[must_use]
    pub fn halved(self) -> Self {
        match self {
            Self::Random(share) => {
                let half = 1.0 - (1.0 - share.get()).sqrt();
                Fraction::new(half).map_or(self, Self::Random)
            }
            // Two links in a row that each lose every 2n-th lose one in n of what was sent, but for the second's share.
            Self::Periodic(every) => Self::Periodic(every.saturating_mul(2)),
            Self::Bursty(chain) => Self::Bursty(chain.halved()),
            Self::None => Self::None,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("0%"),
            Self::Random(share) => write!(f, "{share}"),
            Self::Periodic(every) => write!(f, "every:{every}"),
            Self::Bursty(chain) => write!(f, "{chain}"),
        }
    }
}

/// Why a loss was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LossError {
    /// The share is none.
    #[error(transparent)]
    Share(#[from] QuantityError),
    /// Not of any form.
    #[error(
        "{text:?} is no loss: write 1%, every:1000, burst:1%,10 (share, mean length) or gemodel:1%,10%,100%,0%"
    )]
    Form {
        /// As given.
        text: String,
    },
    /// A burst model that never leaves or never enters the bad state as asked.
    #[error("{text:?} cannot be: {reason}")]
    Impossible {
        /// As given.
        text: String,
        /// Which number contradicts which.
        reason: &'static str,
    },
}

impl FromStr for Loss {
    type Err = LossError;

    fn from_str(text: &str) -> Result<Self, LossError> {
        let form = || LossError::Form { text: text.to_owned() };
        let Some((name, rest)) = text.split_once(':') else {
            let share: Fraction = text.parse()?;
            return Ok(if share.get() == 0.0 { Self::None } else { Self::Random(share) });
        };
        match name {
            "every" => match rest.parse() {
                Ok(0) | Err(_) => Err(form()),
                Ok(every) => Ok(Self::Periodic(every)),
            },
            "burst" => {
                let (share, length) = rest.split_once(',').ok_or_else(form)?;
                let length: f64 = length.trim().parse().map_err(|_| form())?;
                let chain = GilbertElliott::bursts(share.parse()?, length)
                    .map_err(|reason| LossError::Impossible { text: text.to_owned(), reason })?;
                Ok(Self::Bursty(chain))
            }
            "gemodel" => {
                let shares = rest.split(',').map(str::parse).collect::<Result<Vec<Fraction>, _>>()?;
                let chain = match shares[..] {
                    [enter, leave] => GilbertElliott { enter, leave, ..GilbertElliott::default() },
                    [enter, leave, bad] => GilbertElliott { enter, leave, bad, ..GilbertElliott::default() },
                    [enter, leave, bad, good] => GilbertElliott { enter, leave, bad, good },
                    _ => return Err(form()),
                };
                if chain.enter.get() == 0.0 && chain.leave.get() == 0.0 {
                    let reason = "with both probabilities of change zero the state never changes";
                    return Err(LossError::Impossible { text: text.to_owned(), reason });
                }
                Ok(Self::Bursty(chain))
            }
            _ => Err(form()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn measured(loss: Loss, segments: u32) -> f64 {
        let mut model = loss.model();
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let lost = (0..segments).filter(|_| model.is_lost(&mut random)).count();
        lost as f64 / f64::from(segments)
    }

    #[test]
    fn each_model_loses_its_mean() {
        for text in ["0%", "1%", "every:1000", "burst:1%,10", "gemodel:0.1%,5%,80%,0.01%"] {
            let loss: Loss = text.parse().unwrap();
            // Bursts correlate: a million segments hold about 1,000 of them, so the mean is known to about 5%.
            let tolerance = 0.15 * loss.mean() + 1e-9;
            let share = measured(loss, 1_000_000);
            assert!((share - loss.mean()).abs() <= tolerance, "{text}: {share} against {}", loss.mean());
            assert_eq!(loss.to_string().parse::<Loss>().unwrap().mean(), loss.mean(), "{text} as shown");
        }
    }

    #[test]
    fn two_halves_lose_what_was_asked() {
        for text in [
            "1%",
            "every:1000",
            "burst:1%,10",
            "gemodel:0.1%,5%,80%,0.01%",
            "gemodel:10%,10%,50%,50%",
            "gemodel:10%,10%,30%,40%",
            "gemodel:10%,0%",
            "gemodel:100%,100%",
            "gemodel:100%,0%,100%,100%",
        ] {
            let loss: Loss = text.parse().unwrap();
            let both = 1.0 - (1.0 - loss.halved().mean()).powi(2);
            assert!((both - loss.mean()).abs() <= 1e-3 * loss.mean(), "{text}: {both}");
        }
    }

    #[test]
    fn refuses_with_the_forms_that_would_do() {
        for text in
            ["every:0", "burst:1%", "gemodel:1%", "often:3", "110%", "x", "gemodel:0%,0%", "burst:99%,0.5"]
        {
            assert!(text.parse::<Loss>().is_err(), "{text}");
        }
    }
}
