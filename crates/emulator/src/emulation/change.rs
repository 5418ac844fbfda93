//! Changing a connection while it runs.

use std::sync::PoisonError;

use farlink_link::background::Background;
use farlink_link::conditions::{QueueLimit, Reorder};
use farlink_link::{Conditions, Loss};
use farlink_wire::quantity::{BitsPerSec, Fraction, Nanos};

use super::Inner;
use crate::engine::Command;
use crate::plan::{self, Plan, PlanError};

/// What to change; `None` leaves it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The wire's rate.
    pub rate: Option<BitsPerSec>,
    /// Round-trip time: of a path, or of one access link.
    pub rtt: Option<Nanos>,
    /// What the queue holds.
    pub queue: Option<QueueLimit>,
    /// What is lost in each direction.
    pub loss: Option<Loss>,
    /// How far the one-way delay varies.
    pub jitter: Option<Nanos>,
    /// Segments that arrive late.
    pub reorder: Option<Reorder>,
    /// Share of segments that arrive twice.
    pub duplicate: Option<Fraction>,
    /// Share of segments in which a bit is flipped.
    pub corrupt: Option<Fraction>,
    /// Other traffic; `Some(None)` ends it.
    pub background: Option<Option<Background>>,
    /// Whether nothing passes.
    pub cut: Option<bool>,
}

/// What part of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every path.
    All,
    /// One host's access link, both ways.
    Host(String),
    /// The path between two hosts: it can only be cut and restored.
    Pair(String, String),
}

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
        change.apply(&mut asked);
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
            for place in [host, count + host] {
                let conditions = change.on_link(shown.links[place].conditions);
                plan::check_conditions(&conditions, change.rtt.unwrap_or_default())?;
                engine.feed(&conditions, 2 * count as u64);
                engine.ask(Command::Set(place, conditions));
            }
        }
        Ok(())
    }
}

impl Change {
    fn apply(&self, plan: &mut Plan) {
        let Self { rate, rtt, queue, loss, jitter, reorder, duplicate, corrupt, background, cut: _ } = self;
        plan.rate = rate.unwrap_or(plan.rate);
        plan.rtt = rtt.unwrap_or(plan.rtt);
        plan.queue = queue.unwrap_or(plan.queue);
        plan.loss = loss.unwrap_or(plan.loss);
        plan.jitter = jitter.unwrap_or(plan.jitter);
        plan.reorder = reorder.unwrap_or(plan.reorder);
        plan.duplicate = duplicate.unwrap_or(plan.duplicate);
        plan.corrupt = corrupt.unwrap_or(plan.corrupt);
        plan.background = background.unwrap_or(plan.background);
    }

    fn on_link(&self, was: Conditions) -> Conditions {
        Conditions {
            rate: self.rate.or(was.rate),
            delay: self.rtt.map_or(was.delay, |rtt| Nanos(rtt.0 / 2)),
            queue: self.queue.unwrap_or(was.queue),
            loss: self.loss.unwrap_or(was.loss),
            jitter: self.jitter.unwrap_or(was.jitter),
            reorder: self.reorder.unwrap_or(was.reorder),
            duplicate: self.duplicate.unwrap_or(was.duplicate),
            corrupt: self.corrupt.unwrap_or(was.corrupt),
            background: self.background.unwrap_or(was.background),
            framing: was.framing,
            mtu: was.mtu,
            is_cut: self.cut.unwrap_or(was.is_cut),
        }
    }
}
