//! Changing a connection while it runs.

use std::sync::PoisonError;

use farlink_link::Conditions;

use super::Inner;
use crate::change::{Change, Target};
use crate::engine::{Command, LinkShown};
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
    /// Nothing passes any more.
    #[error("the emulation is ending")]
    Over,
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
                let pair = self.pair(one, other)?;
                let Change { cut: Some(is_cut), .. } = *change else { return Err(ChangeError::PairOnlyCuts) };
                if (Change { cut: None, ..change.clone() }) != Change::default() {
                    return Err(ChangeError::PairOnlyCuts);
                }
                self.engines.iter().for_each(|engine| engine.ask(Command::Cut(pair, is_cut)));
                Ok(())
            }
        }
    }

    /// Whether there is `target`.
    pub(crate) fn check_target(&self, target: &Target) -> Result<(), ChangeError> {
        match target {
            Target::All => Ok(()),
            Target::Host(name) => self.host(name).map(drop),
            Target::Pair(one, other) => self.pair(one, other).map(drop),
        }
    }

    /// The places of two hosts, in order.
    fn pair(&self, one: &str, other: &str) -> Result<[usize; 2], ChangeError> {
        let (one_at, other_at) = (self.host(one)?, self.host(other)?);
        if one_at == other_at {
            return Err(ChangeError::Itself { name: one.to_owned() });
        }
        Ok([one_at.min(other_at), one_at.max(other_at)])
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

    /// Changes what is named of every link: what one host's link was given by itself is changed only where it is named.
    fn change_all(&self, change: &Change) -> Result<(), ChangeError> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let mut asked = plan.clone();
        asked.path = Conditions { is_cut: false, ..change.on(asked.path) };
        asked.check()?;
        let each = Conditions { is_cut: change.cut == Some(true), ..asked.conditions() };
        self.set(|_, was| change.take(was, each))?;
        *plan = asked;
        if change.cut == Some(false) {
            self.engines.iter().for_each(|engine| engine.ask(Command::RestorePairs));
        }
        Ok(())
    }

    /// Changes a host's link, both ways.
    fn change_access(&self, host: usize, change: &Change) -> Result<(), ChangeError> {
        // Two changes at once would each start from what was before the other.
        let _plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let topology = self.topology();
        let places = [topology.from(host), topology.to(host)];
        self.set(|place, was| if places.contains(&place) { change.on(was) } else { was })
    }

    /// Sets every link, by its place, to what `change` makes of it; none where one of them cannot be.
    fn set(&self, change: impl Fn(usize, Conditions) -> Conditions) -> Result<(), ChangeError> {
        let mut first = 0;
        let mut asked = Vec::new();
        for engine in &self.engines {
            let links = engine.show().ok_or(ChangeError::Over)?.links;
            let count = links.len();
            let change = |(place, link): (usize, LinkShown)| change(first + place, link.conditions);
            asked.push((engine, links.into_iter().enumerate().map(change).collect::<Vec<_>>()));
            first += count;
        }
        let all: Vec<Conditions> = asked.iter().flat_map(|(_, links)| links.clone()).collect();
        plan::check_links(&all)?;
        for (engine, links) in asked {
            engine.feed(links.iter().filter_map(Conditions::held_bytes).sum());
            for (place, conditions) in links.into_iter().enumerate() {
                engine.ask(Command::Set(place, conditions));
            }
        }
        Ok(())
    }
}
