//! Data connections that are still on their way when a transfer begins with those that stand.

use farlink_host::clock::monotonic;
use farlink_host::congestion::Loaded;
use farlink_host::readiness::{Interest, Poller, Wake};
use farlink_wire::quantity::Nanos;

use super::{Dial, DialError, Opening, Place};
use crate::channel::Channel;

/// Those of one transfer. They share what they were begun with; dropped, they are closed.
#[derive(Debug)]
pub(crate) struct Late {
    pub(super) dial: Dial,
    pub(super) at: Place,
    pub(super) poller: Poller,
    pub(super) data: Vec<Opening>,
    /// How long they may take.
    pub(super) until: Nanos,
    /// What they are to choose when they stand.
    pub(super) loaded: Option<Loaded>,
}

impl Late {
    /// Which streams they are to be.
    pub(crate) fn streams(&self) -> Vec<u16> {
        self.data.iter().map(Opening::stream).collect()
    }

    /// Has them take so long from now on at most: what it took to find where the far end is reached is no measure for them.
    pub(crate) fn within(self, patience: Nanos) -> Self {
        Self { until: monotonic().after(patience), ..self }
    }

    /// Tells of each when it stands, or that it cannot be had, until all were told of or `halt` is raised.
    pub(crate) fn run(mut self, halt: &Wake, tell: &mut dyn FnMut(u16, Result<Channel, DialError>)) {
        let outcome = self.finish(halt, tell);
        for opening in self.data.drain(..) {
            match &outcome {
                Ok(Halted::Raised) => {}
                Ok(Halted::Late) => {
                    tell(opening.stream(), Err(DialError::Unanswered { at: self.at.to_string() }));
                }
                Err(error) => {
                    let source = std::io::Error::from(error.kind());
                    tell(opening.stream(), Err(DialError::Connect { at: self.at.to_string(), source }));
                }
            }
        }
        drop(self.loaded);
    }

    fn finish(
        &mut self,
        halt: &Wake,
        tell: &mut dyn FnMut(u16, Result<Channel, DialError>),
    ) -> std::io::Result<Halted> {
        self.poller.add(halt, HALT, Interest::Read)?;
        let mut ready = Vec::new();
        while !self.data.is_empty() {
            let now = monotonic();
            if now >= self.until {
                return Ok(Halted::Late);
            }
            self.poller.wait(self.until.since(now), &mut ready)?;
            for &key in &ready {
                if key == HALT {
                    return Ok(Halted::Raised);
                }
                let Some(at) = self.data.iter().position(|opening| opening.key == key) else { continue };
                let stream = self.data[at].stream();
                let outcome = self.dial.introduce(&mut self.data[at], &self.poller);
                if matches!(outcome, Ok(false)) {
                    continue;
                }
                let opening = self.data.swap_remove(at);
                // It may be closed, and is not waited for any more by that.
                let _ = self.poller.remove(&opening.channel);
                let told = outcome.map(|_| opening.channel).map_err(|error| self.dial.told(&self.at, error));
                tell(stream, told);
            }
        }
        Ok(Halted::Raised)
    }
}

/// Why no more are waited for.
enum Halted {
    /// Nobody wants them, or there are none.
    Raised,
    /// They took too long.
    Late,
}

/// The key of what ends the wait; data connections count from 0.
const HALT: u64 = u64::MAX - 2;
