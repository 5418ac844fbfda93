//! Completions, and the queue in which they wait for the application.

use std::collections::VecDeque;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::address_vector::NOWHERE;
use crate::bindings::fi_addr_t;
use crate::drivers::Drivers;
use crate::entry::{Code, lock};
use crate::object::Context;

/// What became of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) context: Context,
    /// What it was, and what came with it.
    pub(crate) flags: u64,
    pub(crate) len: usize,
    /// Where the message is, of a buffer that takes several.
    pub(crate) buffer: Context,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    /// The number of the sender.
    pub(crate) from: fi_addr_t,
    pub(crate) fault: Option<Fault>,
}

/// Why it did not end as it should.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    /// Bytes of the message that found no room.
    pub(crate) cut: usize,
}

impl Completion {
    /// That of an operation of which nothing more is to be said.
    pub(crate) const fn of(context: Context, flags: u64) -> Self {
        let buffer = Context(ptr::null_mut());
        Self { context, flags, len: 0, buffer, data: 0, tag: 0, from: NOWHERE, fault: None }
    }

    /// The same, failed.
    pub(crate) const fn failed(self, code: Code) -> Self {
        Self { fault: Some(Fault { code, cut: 0 }), ..self }
    }
}

/// Completions in the order in which they came.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Mutex<VecDeque<Completion>>,
    /// Whether the last who read took all that there was, of more that it had room for.
    emptied: AtomicBool,
    /// How often whoever waits was to wait no longer.
    interruptions: AtomicU64,
    /// How many of those ended a wait.
    answered: AtomicU64,
    pub(crate) drivers: Drivers,
}

impl Queue {
    /// An empty one.
    pub(crate) fn new() -> Result<Self, Code> {
        Ok(Self {
            waiting: Mutex::default(),
            emptied: AtomicBool::default(),
            interruptions: AtomicU64::default(),
            answered: AtomicU64::default(),
            drivers: Drivers::new()?,
        })
    }

    /// One more.
    pub(crate) fn push(&self, completion: Completion) {
        if let Ok(mut waiting) = lock(&self.waiting) {
            waiting.push_back(completion);
        }
        self.drivers.ring();
    }

    /// Takes up to `most` that succeeded; [`Code::AVAILABLE`] where one that failed comes first, [`Code::AGAIN`] where there is none.
    pub(crate) fn read(&self, most: usize, mut take: impl FnMut(usize, &Completion)) -> Result<usize, Code> {
        self.drivers.check_here()?;
        let mut waiting = lock(&self.waiting)?;
        if waiting.is_empty() {
            drop(waiting);
            self.drivers.progress()?;
            waiting = lock(&self.waiting)?;
        }
        let mut count = 0;
        while let Some(next) = waiting.front() {
            if next.fault.is_some() && count == 0 {
                return Err(Code::AVAILABLE);
            }
            if next.fault.is_some() || count == most {
                break;
            }
            take(count, next);
            waiting.pop_front();
            count += 1;
        }
        let emptied = count > 0 && count < most && waiting.is_empty();
        self.emptied.store(emptied, Ordering::Relaxed);
        // Nothing is never a number: Open MPI ends the process that is told of 0 completions.
        if count == 0 { Err(Code::AGAIN) } else { Ok(count) }
    }

    /// Whether whoever reads has just taken all that there was, and nothing came since; true once. Open MPI reads until there is nothing, and
    /// only then goes on with what it was told: to look at the network meanwhile would keep it from that.
    pub(crate) fn was_emptied(&self) -> Result<bool, Code> {
        self.drivers.check_here()?;
        Ok(self.emptied.swap(false, Ordering::Relaxed) && lock(&self.waiting)?.is_empty())
    }

    /// Takes the one that failed, where that comes first.
    pub(crate) fn read_failed(&self) -> Result<Completion, Code> {
        self.drivers.check_here()?;
        lock(&self.waiting)?.pop_front_if(|next| next.fault.is_some()).ok_or(Code::AGAIN)
    }

    /// Ends every wait, or the next where nobody waits (fi_cq(3), fi_cq_signal).
    pub(crate) fn interrupt(&self) {
        self.interruptions.fetch_add(1, Ordering::SeqCst);
        self.drivers.ring();
    }

    /// Where a wait begins: what came before it and ended none is for this one.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }

    /// Whether a wait that began when so many had been `answered` is to end.
    pub(crate) fn is_interrupted(&self, answered: u64) -> bool {
        let interruptions = self.interruptions.load(Ordering::SeqCst);
        let ends = interruptions != answered;
        if ends {
            self.answered.fetch_max(interruptions, Ordering::SeqCst);
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_int, c_uint};
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Arc, Barrier};
    use std::thread;

    use farlink_host::clock::monotonic;
    use farlink_wire::quantity::Nanos;

    use super::*;

    fn completion(at: usize) -> Completion {
        Completion::of(Context(ptr::without_provenance_mut(at)), 0)
    }

    #[test]
    fn a_failure_stands_in_the_way_until_it_is_read() {
        let queue = Queue::new().unwrap();
        assert_eq!(queue.read(9, |_, _| ()), Err(Code::AGAIN));
        for each in [completion(1), completion(2), completion(3).failed(Code::OTHER), completion(4)] {
            queue.push(each);
        }
        let mut read = Vec::new();
        assert_eq!(queue.read(1, |_, it| read.push(it.context.0.addr())), Ok(1));
        assert_eq!(queue.read(9, |_, it| read.push(it.context.0.addr())), Ok(1));
        assert_eq!(queue.read(9, |_, _| ()), Err(Code::AVAILABLE));
        assert_eq!(queue.read_failed().unwrap().context.0.addr(), 3);
        assert!(queue.read_failed().is_err());
        assert_eq!(queue.read(9, |_, it| read.push(it.context.0.addr())), Ok(1));
        assert_eq!(read, [1, 2, 4]);
        assert_eq!(queue.read(0, |_, _| ()), Err(Code::AGAIN));
    }

    #[test]
    fn who_has_taken_all_that_there_was_is_told_so_once() {
        let queue = Queue::new().unwrap();
        let read = |pushed: usize, most| {
            (0..pushed).for_each(|at| queue.push(completion(at)));
            let _ = queue.read(most, |_, _| ());
            (queue.was_emptied().unwrap(), queue.was_emptied().unwrap())
        };
        assert_eq!(
            [read(2, 3), read(2, 2), read(0, 9), read(3, 2)],
            [(true, false), (false, false), (false, false), (false, false)]
        );
        // What is left, and what comes since, is read at once.
        assert_eq!(read(0, 9), (true, false));
        queue.push(completion(1));
        assert_eq!(queue.read(9, |_, _| ()), Ok(1));
        queue.push(completion(2));
        assert_eq!(queue.was_emptied(), Ok(false));
    }

    unsafe extern "C" {
        fn fork() -> c_int;
        fn alarm(seconds: c_uint) -> c_uint;
        fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
        fn _exit(status: c_int) -> !;
    }

    #[test]
    fn a_forked_child_is_refused_whatever_was_held_meanwhile() {
        let queue = Queue::new().unwrap();
        queue.push(completion(1));
        queue.push(completion(2).failed(Code::OTHER));
        let held = queue.waiting.lock().unwrap();
        // SAFETY: the child takes no lock, allocates nothing, and ends at once.
        let child = unsafe { fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: a child that waits for ever is ended by it.
            unsafe { alarm(20) };
            let is_refused = queue.read(1, |_, _| ()) == Err(Code::NOT_ENABLED)
                && matches!(queue.read_failed(), Err(Code::NOT_ENABLED))
                && queue.was_emptied() == Err(Code::NOT_ENABLED)
                && queue.drivers.wait(-1, || Some(())) == Err(Code::NOT_ENABLED);
            // SAFETY: it ends this process, and runs nothing of its parent's.
            unsafe { _exit(c_int::from(!is_refused)) };
        }
        drop(held);
        let mut status = -1;
        // SAFETY: a child of this process, and room for what became of it.
        assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(queue.read(9, |_, _| ()), Ok(1));
    }

    #[test]
    fn an_interruption_ends_every_wait_or_the_next() {
        let queue = Arc::new(Queue::new().unwrap());
        let ends = |queue: &Queue, answered| {
            let look = || queue.is_interrupted(answered).then_some(());
            queue.drivers.wait(20_000, look).unwrap().is_some()
        };
        let begun = Arc::new(Barrier::new(4));
        let wait = |_| {
            let (queue, begun) = (Arc::clone(&queue), Arc::clone(&begun));
            thread::spawn(move || {
                let answered = queue.answered();
                begun.wait();
                ends(&queue, answered)
            })
        };
        let waits: Vec<_> = (0..3).map(wait).collect();
        begun.wait();
        queue.interrupt();
        assert!(waits.into_iter().all(|each| each.join().unwrap()));
        assert!(!queue.is_interrupted(queue.answered()));
        queue.interrupt();
        assert!(ends(&queue, queue.answered()));
        assert!(!queue.is_interrupted(queue.answered()));
    }

    #[test]
    fn of_several_that_wait_one_is_woken_for_each_completion() {
        let (queue, taken) = (Arc::new(Queue::new().unwrap()), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let (queue, taken) = (Arc::clone(&queue), Arc::clone(&taken));
            thread::spawn(move || {
                loop {
                    let look = || queue.read(1, |_, _| ()).ok();
                    queue.drivers.wait(-1, look).unwrap();
                    taken.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for count in 1..2000 {
            queue.push(completion(count));
            let began = monotonic();
            while taken.load(Ordering::SeqCst) < count {
                assert!(
                    monotonic().since(began) < Nanos(10_000_000_000),
                    "{count} waits, and everybody sleeps"
                );
                thread::yield_now();
            }
        }
    }
}
