//! A thread that tells how a copy goes: where a terminal is held, or whoever reads takes his time, the copy itself goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use anyhow::Context;
use farlink_host::readiness::{Interest, Waited, Wake, wait_for};
use farlink_mover::copy::{Listener, Notice};
use farlink_wire::quantity::Nanos;

use super::report::Report;

/// Who hears of a copy, and has it told.
#[derive(Debug)]
pub(super) struct Teller {
    notices: Sender<Notice>,
    /// What was heard and is not told.
    untold: Arc<AtomicUsize>,
    thread: JoinHandle<Report>,
    /// Raised when all is told.
    done: Wake,
}

impl Teller {
    /// Tells by `report`.
    pub(super) fn start(mut report: Report) -> anyhow::Result<Self> {
        let done = Wake::new().context("start to tell how it goes")?;
        let untold = Arc::new(AtomicUsize::new(0));
        let (notices, heard) = channel();
        let end = End { done: done.clone(), untold: Arc::clone(&untold) };
        let work = move || {
            for notice in heard {
                report.on(&notice);
                end.untold.fetch_sub(1, Ordering::Relaxed);
            }
            report
        };
        let thread = Builder::new().name("farlink-tell".to_owned()).spawn(work).context("start a thread")?;
        Ok(Self { notices, untold, thread, done })
    }

    /// Nothing more is to be told; `None` where that takes too long for who has raised `stop`: then nothing can be printed.
    pub(super) fn end(self, stop: &Wake) -> Option<Report> {
        drop(self.notices);
        while !self.done.is_raised() {
            if let Ok(Waited::Stopped) = wait_for(&self.done, Interest::Read, stop, LONG) {
                break;
            }
        }
        let never = Wake::new().ok()?;
        let told = wait_for(&self.done, Interest::Read, &never, GRACE);
        matches!(told, Ok(Waited::Ready)).then(|| self.thread.join().ok()).flatten()
    }
}

/// The end of the thread, whatever ends it: nothing is to wait for it.
struct End {
    done: Wake,
    untold: Arc<AtomicUsize>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.untold.store(0, Ordering::Relaxed);
        self.done.raise();
    }
}

impl Listener for Teller {
    fn hear(&mut self, notice: Notice) {
        if self.is_behind() && matches!(notice, Notice::Progress(_)) {
            return;
        }
        self.untold.fetch_add(1, Ordering::Relaxed);
        if self.notices.send(notice).is_err() {
            // Nobody tells any more: nothing is to wait for that.
            self.untold.store(0, Ordering::Relaxed);
        }
    }

    fn is_behind(&self) -> bool {
        self.untold.load(Ordering::Relaxed) > MOST_UNTOLD
    }
}

/// What may be heard before it is told, of names and all else: 200 bytes each.
const MOST_UNTOLD: usize = 1000;

/// How long who was interrupted waits until what was heard is told.
const GRACE: Nanos = Nanos(1_000_000_000);

const LONG: Nanos = Nanos(3_600_000_000_000);
