//! What a client does in a conversation with its far end: it tells how it goes, and replaces connections that are lost.

use std::collections::VecDeque;

use farlink_host::clock::monotonic;
use farlink_wire::message::Arrival;
use farlink_wire::message::copy::{Accept, Account};
use farlink_wire::quantity::{BitsPerSec, Nanos};

use super::progress;
use crate::chain;
use crate::copy::CopyError;
use crate::copy::conversation::Party;
use crate::copy::end::End;
use crate::copy::ledger::Ledger;
use crate::copy::lost::Lost;
use crate::copy::plan::{Notice, Plan};
use crate::copy::redial::{Redial, Redialled};
use crate::copy::samples::Samples;
use crate::copy::sender_account::sender_account;

/// The client's part in a conversation.
pub(super) struct ClientParty<'a, 'l> {
    pub(super) ledger: &'a mut Ledger<'l>,
    pub(super) redial: Redial,
    pub(super) end: &'a End,
    /// Number of the next connection.
    pub(super) next: u32,
    /// When connections were replaced of late, and how many may be.
    pub(super) replaced: VecDeque<Nanos>,
    pub(super) most_replaced: usize,
    pub(super) samples: Samples,
    pub(super) plan: &'a Plan,
    /// What holds now.
    pub(super) limit: Option<BitsPerSec>,
    pub(super) host: Option<Accept>,
    pub(super) start: Nanos,
}

impl Party for ClientParty<'_, '_> {
    fn observe(&mut self, end: &End, arrivals: &[Arrival]) {
        for arrival in arrivals {
            self.samples.add(arrival.index.into(), arrival.bytes);
        }
        if !self.ledger.listener.is_behind() {
            self.ledger.on_events(end.take_events());
        }
        let limit = self.plan.limit_now();
        if limit != self.limit {
            self.limit = limit;
            end.hold(limit);
        }
        let progress = progress(&end.tally(), self.ledger.start.unwrap_or(self.start));
        self.ledger.listener.hear(Notice::Progress(progress));
    }

    fn replace(&mut self, end: &End, lost: Vec<Lost>) -> Result<(), CopyError> {
        for lost in lost {
            let now = monotonic();
            self.replaced.retain(|at| now.since(*at) < LATELY);
            self.replaced.push_back(now);
            if self.replaced.len() > self.most_replaced {
                return Err(CopyError::NoStream { why: lost.why });
            }
            self.redial.ask(lost, self.next);
            self.next += 1;
        }
        let redialled = self.redial.take();
        let mut why = None;
        for Redialled { lost, number, outcome } in redialled {
            let outcome = match outcome {
                Ok(channel) => {
                    end.join(number, channel).map_err(|error| ("the one in its place cannot be used", error))
                }
                Err(error) => Err(("no other can be had", error)),
            };
            match (lost, outcome) {
                (None, Ok(())) => {}
                (None, Err((_, error))) => {
                    let error = chain(&error);
                    self.ledger.warn(format!("data connection {number} cannot be had: {error}"));
                    why = Some(error);
                }
                (Some(Lost { stream, why }), Ok(())) => {
                    self.ledger
                        .warn(format!("data connection {stream} broke ({why}): another takes its place"));
                }
                (Some(lost), Err((what, error))) => {
                    let Lost { stream, why: broke } = lost;
                    let error = chain(&error);
                    self.ledger
                        .warn(format!("data connection {stream} broke ({broke}), and {what}: {error}"));
                    why = Some(broke);
                }
            }
        }
        match why {
            Some(why) if end.streams() == 0 && !self.redial.is_going() => Err(CopyError::NoStream { why }),
            _ => Ok(()),
        }
    }

    fn account(&mut self) -> Account {
        sender_account(self.end)
    }

    fn leaves_first(&self) -> bool {
        true
    }

    fn accepted(&mut self, accept: Accept) {
        self.host = Some(accept);
    }
}

/// Connections that are replaced within so long before it is given up; all of them twice, where there are more.
pub(super) const MOST_REPLACED: usize = 64;
const LATELY: Nanos = Nanos(600_000_000_000);
