//! Changing a connection while it runs.

use std::sync::PoisonError;

use farlink_link::Conditions;

use super::Inner;
use crate::change::{Change, Target};
use crate::engine::Command;
use crate::plan::{self, PlanError};

/// Why a change was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChangeError {
    /// What it asks cannot be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No such host.
    #[error("no host {name:?} in {emulation:?}: it has {}", hosts.join(", "))]
    Host {
        /// As asked.
        name: String,
        /// Where.
        emulation: String,
        /// Those that would do.
        hosts: Vec<String>,
    },
    /// The two are one.
    #[error("{name:?} to itself is no path: name two hosts, as in wan/a..b")]
    Itself {
        /// As asked.
        name: String,
    },
    /// A path of a star has no conditions of its own.
    #[error(
        "a pair of hosts can be cut and restored, nothing else: change a host's link, as in wan/b --rate 1gbit"
    )]
    PairOnlyCuts,
}

impl Inner {
    /// Does what `change` asks of `target`, now.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing is changed then.
    pub(crate) fn change(&self, target: &Target, change: &Change) -> Result<(), ChangeError> {
        match target {
            Target::All => self.change_all(change),
            Target::Host(name) if self.hosts.len() == 2 => {
                self.host(name)?;
                self.change_all(change)
            }
            Target::Host(name) => self.change_access(self.host(name)?, change),
            Target::Pair(one, other) => {
                let (one_at, other_at) = (self.host(one)?, self.host(other)?);
                if one_at == other_at {
                    return Err(ChangeError::Itself { name: one.clone() });
                }
                let Change { cut: Some(is_cut), .. } = *change else { return Err(ChangeError::PairOnlyCuts) };
                if (Change { cut: None, ..change.clone() }) != Change::default() {
                    return Err(ChangeError::PairOnlyCuts);
                }
                let pair = [one_at.min(other_at), one_at.max(other_at)];
                self.engines.iter().for_each(|engine| engine.ask(Command::Cut(pair, is_cut)));
                Ok(())
            }
        }
    }

    /// The place of host `name`.
    pub(crate) fn host(&self, name: &str) -> Result<usize, ChangeError> {
        self.hosts.iter().position(|host| host.name == name).ok_or_else(|| ChangeError::Host {
            name: name.to_owned(),
            emulation: self.plan.lock().unwrap_or_else(PoisonError::into_inner).name.clone(),
            hosts: self.hosts.iter().map(|host| host.name.clone()).collect(),
        })
    }

    /// The namespaces of host `index`.
    pub(crate) fn namespaces(&self, index: usize) -> &farlink_host::namespace::Namespaces {
        &self.hosts[index].namespaces
    }

    fn change_all(&self, change: &Change) -> Result<(), ChangeError> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let mut asked = plan.clone();
        asked.path = Conditions { is_cut: false, ..change.on(asked.path) };
        asked.check()?;
        *plan = asked;
        let whole = plan.conditions();
        for engine in &self.engines {
            let Some(shown) = engine.show() else { continue };
            engine.feed(&whole, shown.links.len() as u64);
            for (place, link) in shown.links.iter().enumerate() {
                // What one host's link was given by itself ends here: the whole was asked.
                let is_cut = change.cut.unwrap_or(link.conditions.is_cut);
                engine.ask(Command::Set(place, Conditions { is_cut, ..whole }));
            }
        }
        Ok(())
    }

    fn change_access(&self, host: usize, change: &Change) -> Result<(), ChangeError> {
        let count = self.hosts.len();
        for engine in &self.engines {
            let Some(shown) = engine.show() else { continue };
            let asked = [host, count + host].map(|place| (place, change.on(shown.links[place].conditions)));
            for (_, conditions) in &asked {
                plan::check_conditions(conditions)?;
            }
            for (place, conditions) in asked {
                engine.feed(&conditions, 2 * count as u64);
                engine.ask(Command::Set(place, conditions));
            }
        }
        Ok(())
    }
}
