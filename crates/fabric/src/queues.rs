//! Where the application hears of what an endpoint did.

use std::sync::Arc;

use farlink_flow::fabric::operation::Received;

use crate::bindings as fi;
use crate::bindings::fi_addr_t;
use crate::completion::{Completion, Fault, Queue};
use crate::counter::Count;
use crate::entry::Code;
use crate::object::Context;
use crate::operations::Pending;

/// A queue for each direction, and counters.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    transmit: Bound,
    receive: Bound,
}

#[derive(Debug, Default)]
struct Bound {
    queue: Option<Arc<Queue>>,
    /// Whether only those operations are told of that ask for it.
    selective: bool,
    counts: Vec<Arc<Count>>,
}

impl Bound {
    fn push(&self, completion: Completion) {
        if let Some(queue) = &self.queue {
            queue.push(completion);
        }
    }

    fn count(&self, failed: bool) {
        self.counts.iter().for_each(|count| count.add(failed));
    }
}

impl Queues {
    /// Tells `queue` of what the flags say.
    pub(crate) fn bind(&mut self, queue: &Arc<Queue>, flags: u64) -> Result<(), Code> {
        if flags & (fi::FI_TRANSMIT | fi::FI_RECV) == 0 {
            return Err(Code::INVALID);
        }
        let selective = flags & fi::FI_SELECTIVE_COMPLETION != 0;
        for (bound, flag) in [(&mut self.transmit, fi::FI_TRANSMIT), (&mut self.receive, fi::FI_RECV)] {
            if flags & flag != 0 {
                if bound.queue.is_some() {
                    return Err(Code::INVALID);
                }
                (bound.queue, bound.selective) = (Some(Arc::clone(queue)), selective);
            }
        }
        Ok(())
    }

    /// Counts by `count` what the flags say: of what is not had there is nothing to count.
    pub(crate) fn count_by(&mut self, count: &Arc<Count>, flags: u64) -> Result<(), Code> {
        for (bound, flag) in [(&mut self.transmit, fi::FI_SEND), (&mut self.receive, fi::FI_RECV)] {
            if flags & flag != 0 {
                bound.counts.push(Arc::clone(count));
            }
        }
        Ok(())
    }

    /// Whether the application hears of what it posts in either direction.
    pub(crate) fn is_bound(&self) -> bool {
        [&self.transmit, &self.receive]
            .into_iter()
            .any(|bound| bound.queue.is_some() || !bound.counts.is_empty())
    }

    /// Whether only those sends, or receives, are told of that ask for it.
    pub(crate) const fn selective(&self, sends: bool) -> bool {
        if sends { self.transmit.selective } else { self.receive.selective }
    }

    /// What was sent is the application's again.
    pub(crate) fn sent(&self, operation: &Pending) {
        self.transmit.count(false);
        if operation.told {
            self.transmit.push(Completion::of(operation.context, operation.flags));
        }
    }

    /// A message came.
    pub(crate) fn received(&self, operation: &Pending, received: &Received, from: fi_addr_t) {
        let mut flags = operation.flags;
        if received.data.is_some() {
            flags |= fi::FI_REMOTE_CQ_DATA;
        }
        if received.last && operation.several {
            flags |= fi::FI_MULTI_RECV;
        }
        let start = operation.parts.start();
        let buffer = if start.is_null() { start } else { start.wrapping_add(received.offset) };
        let fault = (received.cut > 0).then_some(Fault { code: Code::TRUNCATED, cut: received.cut });
        self.receive.count(fault.is_some());
        if operation.told || fault.is_some() {
            self.receive.push(Completion {
                context: operation.context,
                flags,
                len: received.len - received.cut,
                buffer: Context(buffer.cast()),
                data: received.data.unwrap_or(0),
                tag: received.tag.unwrap_or(0),
                from,
                fault,
            });
        }
    }

    /// An operation failed.
    pub(crate) fn failed(&self, operation: &Pending, code: Code, from: fi_addr_t) {
        let bound = if operation.receives { &self.receive } else { &self.transmit };
        bound.count(true);
        bound.push(Completion { from, ..Completion::of(operation.context, operation.flags).failed(code) });
    }

    /// A question about messages was answered: of that, every queue tells.
    pub(crate) fn answered(&self, answer: Completion) {
        self.receive.push(answer);
    }
}
