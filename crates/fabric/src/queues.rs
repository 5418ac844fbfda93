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
        // That its buffer is the application's again is told always (fi_msg(3), FI_MULTI_RECV).
        let is_released = flags & fi::FI_MULTI_RECV != 0;
        if operation.told || is_released || fault.is_some() {
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
        // One of which nothing was to be told, and that has no name either, is nobody's: Open MPI crashes that is told of its failure.
        if !operation.told && operation.context.0.is_null() {
            return;
        }
        let flags = operation.flags | if operation.several { fi::FI_MULTI_RECV } else { 0 };
        bound.push(Completion { from, ..Completion::of(operation.context, flags).failed(code) });
    }

    /// A question about messages was answered: of that, every queue tells.
    pub(crate) fn answered(&self, answer: Completion) {
        self.receive.push(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use farlink_flow::fabric::operation::{Operation, PeerId};

    use super::*;
    use crate::address_vector::NOWHERE;
    use crate::memory::Parts;

    /// Queues of which the application hears what it asks for.
    fn queues() -> (Queues, Arc<Queue>) {
        let (mut queues, queue) = (Queues::default(), Arc::new(Queue::new().unwrap()));
        let flags = fi::FI_TRANSMIT | fi::FI_RECV | fi::FI_SELECTIVE_COMPLETION;
        queues.bind(&queue, flags).unwrap();
        (queues, queue)
    }

    fn pending(context: usize, several: bool) -> Pending {
        // SAFETY: no memory is lent.
        let parts = unsafe { Parts::one(ptr::null(), 0) }.unwrap();
        let context = Context(ptr::without_provenance_mut(context));
        Pending { parts, context, flags: fi::FI_RECV, told: false, several, receives: several }
    }

    #[test]
    fn a_failure_is_told_of_what_has_a_name_or_was_to_be_told() {
        let (queues, queue) = queues();
        for (pending, is_told) in [
            (pending(0, false), false),
            (pending(7, false), true),
            (Pending { told: true, ..pending(0, false) }, true),
        ] {
            queues.failed(&pending, Code::OTHER, NOWHERE);
            assert_eq!(queue.read_failed().is_ok(), is_told);
        }
    }

    #[test]
    fn that_a_buffer_for_several_is_released_is_told_always() {
        let (queues, queue) = queues();
        let operation = Operation(0);
        let received = Received {
            operation,
            from: PeerId(0),
            tag: None,
            data: None,
            offset: 0,
            len: 0,
            cut: 0,
            last: false,
        };
        let mut flags = Vec::new();
        let mut read = || queue.read(1, |_, completion| flags.push(completion.flags)).is_ok();
        queues.received(&pending(7, true), &received, NOWHERE);
        assert!(!read());
        let last = Received { last: true, ..received };
        queues.received(&pending(7, false), &last, NOWHERE);
        assert!(!read());
        queues.received(&pending(7, true), &last, NOWHERE);
        assert!(read());
        assert_eq!(flags, [fi::FI_RECV | fi::FI_MULTI_RECV]);
        queues.failed(&pending(7, true), Code::OTHER, NOWHERE);
        assert_eq!(queue.read_failed().unwrap().flags, fi::FI_RECV | fi::FI_MULTI_RECV);
    }
}
